"""The backward program as text: how each array is spelled where it is first used, what is cast, what is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.backward.forward import Names, forward, shown
from shardc.backward.terms import printed, use, uses
from shardc.backward.walk import Walk
from shardc.backward.written import Line, Lines, Written, each_line, every_line, in_use, named
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Pattern
from shardc.ir.program import Input, Program, every_statement
from shardc.ir.sharding import Dims
from shardc.notation import parse
from shardc.notation.printer import print_loop


def assembled(program: Program, walk: Walk, wanted: Sequence[Input], whole: bool) -> Program:
    """The text of the lines, parsed; what comes out in another type than its array's is cast, and parsed again."""
    gradients = [walk.of_name[array.name] for array in wanted]
    lines = in_use(walk.lines, gradients)
    after = whole or walk.remat is True
    names = Names.of(walk.keys, named(lines), walk.fresh, after)
    outputs = [program.results[number].name for number in program.outputs] if whole else []
    before = forward(walk.keys, names) if after else []
    end = "return " + ", ".join([*outputs, *gradients])

    def text_of(written: Sequence[Written]) -> Program:
        text = _Text(walk, names, after, {line.name: line.dims for line in every_line(written)})
        return parse("\n".join([*program.declarations, *before, *text.lines(written), end]), name="<gradient>")

    apart = _apart(lines, walk)
    first = text_of([one for each in lines for one in each_line(each, lambda line: apart.get(line, (line,)))])
    types = {statement.name: statement.dtype for statement in every_statement(first)}
    found = {line: types[apart[line][0].name if line in apart else line.name] for line in every_line(lines)}
    cast = tuple(one for each in lines for one in each_line(each, lambda line: (_cast(line, found[line]),)))
    return first if cast == lines and not apart else text_of(cast)


def _apart(lines: Sequence[Written], walk: Walk) -> Mapping[Line, tuple[Line, Line]]:
    """What a loop carries in two statements, the second a cast: it has to be of one type in the first text too."""
    carried = {line.name for line in every_line(lines) if line.again}
    found: dict[Line, tuple[Line, Line]] = {}
    for line in every_line(lines):
        if line.name in carried and not line.is_zero and line.text != use(line.name, line.dims).text:
            made = replace(line, name=walk.fresh(line.name))
            found[line] = made, replace(line, text=f"{line.dtype}({use(made.name, line.dims).text})")
    return found


def _cast(line: Line, found: DType) -> Line:
    return line if line.is_zero or line.dtype in (None, found) else replace(line, text=f"{line.dtype}({line.text})")


def _has_moved(dims: Dims, other: Dims) -> bool:
    """Whether a use has one of these names at another place."""
    return any(one != dim and one in dims for dim, one in zip(dims, other, strict=True))


@dataclass(slots=True)
class _Text:
    """Arrays as the notation writes them: the first use of one that comes in shows how it lies, and its type."""

    walk: Walk
    names: Names
    after: bool  # the forward part, whose arrays are known
    bound: dict[str, Dims]  # what the lines bind, and what comes in where it was named first
    known: set[str] = field(default_factory=set)
    second: dict[str, str] = field(default_factory=dict)  # another name that a line uses for an array
    laid: dict[str, str] = field(default_factory=dict)  # the name of an array brought to where a loop can take its rows

    def lines(self, written: Sequence[Written], loops: Dims = ()) -> Iterator[str]:
        for each in written:
            if isinstance(each, Lines):
                yield from self.before(each, loops)
                yield print_loop(each.dim, each.down, list(self.lines(each.body, (*loops, each.dim))))
                continue
            yield from self.by_other_names(each, loops)
            is_news = each.is_zero and each.dtype not in (None, self.walk.program.dtype)
            typed = f"{each.name}: {each.dtype}" if is_news else each.name
            yield f"{typed}{each.pattern.spell(each.dims)} = " + printed(
                each.text, lambda mark, dims: self.spell(mark, dims, loops)
            )
            self.known.add(each.name)
            self.second.clear()

    def before(self, loop: Lines, loops: Dims) -> Iterator[str]:
        """A statement for each array that the loop would be the first to name, and of which it takes rows along a dim
        that is sharded: `T'[L_?, B_?] = T[L_X, B]`, to be read as `T'`."""
        for mark, _ in (each for line in every_line([loop]) for each in uses(line.text)):
            name, key = self.names.spelled(mark)
            comes_in = key is not None or mark in self.walk.given.values()
            if loops or not comes_in or mark in self.laid or self.is_known(name, key):
                continue
            own = self.own(name, mark, key)
            pattern = self.lies(mark) if key is None else self.walk.keys.whole(key)[1]
            cut = {dim for dim, axes in zip(own, pattern.dims, strict=True) if axes}
            if cut.isdisjoint(self.walk.program.trips):
                continue
            second = self.walk.fresh(name)
            yield f"{second}{Pattern.free(len(own)).spell(own)} = {self.spell(mark, own, ())}"
            self.laid[mark], self.bound[second] = second, own
            self.known.add(second)

    def by_other_names(self, line: Line, loops: Dims) -> Iterator[str]:
        """A statement for each array of which the line has a name at another place: after `A[I, M]`, `A[M, K]` is
        read as `A'[M, K]`, of `A'[I', M'] = A[I', M']`. And for one of which a loop takes rows, and that the line would
        be the first to name: by its own names first, `S'[L, B] = S[L, B]` before `S'[K, B]`."""
        for mark, dims in uses(line.text):
            name, key = self.spelled(mark)
            here = tuple(dim for dim in self.own(name, mark, key) if dim not in loops)
            if mark in self.second or len(here) != len(dims):
                continue
            if self.is_known(name, key):
                if _has_moved(here, dims):
                    self.second[mark] = self.walk.fresh(name)
                    brackets = Pattern.free(len(here)).spell(self.fresh_dims(here))
                    yield f"{self.second[mark]}{brackets} = {name}{brackets}"
            elif any(one != dim and dim in self.walk.program.trips for dim, one in zip(here, dims, strict=True)):
                second = self.walk.fresh(name)
                yield f"{second}{Pattern.free(len(here)).spell(here)} = {self.spell(mark, here, loops)}"
                self.second[mark] = second

    def spelled(self, mark: str) -> tuple[str, str | None]:
        """As the names have it, or where a loop takes rows of it another name."""
        name, key = self.names.spelled(mark)
        return self.laid.get(mark, name), key

    def fresh_dims(self, dims: Dims) -> Dims:
        """Each with primes, so that no dim of the program and none of these has its name: `D, D'` are `D'', D'''`."""
        found = list[str]()
        for dim in dims:
            name = f"{dim}'"
            while name in self.walk.keys.program.dims or name in found:
                name += "'"
            found.append(name)
        return tuple(found)

    def is_known(self, name: str, key: str | None) -> bool:
        return name in self.known or (key is not None and self.is_bound(key))

    def spell(self, mark: str, dims: Dims, loops: Dims) -> str:
        name, key = self.spelled(mark)
        own = self.own(name, mark, key)
        here = tuple(dim for dim in own if dim not in loops)
        if self.is_known(name, key):
            self.known.add(name)
            is_plain = dims == here and mark not in self.second
            return self.second.get(mark, name) + ("" if is_plain else Pattern.free(len(dims)).spell(dims))
        self.known.add(name)
        seen = iter(dims)
        whole = tuple(dim if dim in loops else next(seen) for dim in own)
        if key is None or not self.after:
            self.bound[name] = whole  # that is what it is called from here on
        return name + self.shown(mark, key, whole)

    def own(self, name: str, mark: str, key: str | None) -> Dims:
        """The dims of an array, with those of the loops whose rows it has."""
        if name in self.bound:
            return self.bound[name]
        return self.walk.keys.whole(key)[0] if key is not None else self.walk.keys.held[self.came(mark)].dims

    def came(self, mark: str) -> str:
        """The output whose gradient this is."""
        return next(key for key, name in self.walk.given.items() if name == mark)

    def lies(self, mark: str) -> Pattern:
        """How a gradient that comes in lies: as the output, which a statement may have brought elsewhere under the name
        that it had; where that leaves it open as the array was bound."""
        of = self.came(mark)
        results = self.walk.program.results
        last = {results[number].name: results[number].pattern for number in self.walk.program.outputs}
        left = last[self.walk.keys.held[of].name]
        return self.walk.keys.whole(of)[1] if left.exact is None else left

    def is_bound(self, key: str) -> bool:
        """Whether the forward part binds it under its name; else it is rows of a loop's own."""
        array = self.walk.keys.held[key]
        return self.after and (not array.loops or self.names.kept[key] != array.name)

    def shown(self, mark: str, key: str | None, dims: Dims) -> str:
        if self.after and key is not None:
            return Pattern.free(len(dims)).spell(dims)
        of = self.came(mark) if key is None else key
        lies = self.lies(mark).reduced if key is None else self.walk.keys.whole(key)[1]
        return shown(self.walk.program, self.walk.keys.held[of].dtype, lies, dims)
