"""What forward leaves, made again for backward where no loop does it.

    h[B_X, F] = relu(x[B_X, D] ·_D W[D, F])          forward, as it was
    …
    x'[B_X, D] = again(x)                            the same values, which no compiler takes for the same array
    h'[B_X, F] = relu(x' ·_D W)                      just before backward first reads it
    dV[F, D] = h' ·_B dy

Where one array alone leads from one part of a program to the next, as from layer to layer, it is kept, and what is
between is made again from it, part by part: so that no more than a part is ever there twice. Selectively made again is
what contracts nothing with an input: that costs little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardc.backward.keys import Keys, again, contracted
from shardc.backward.terms import call, use
from shardc.backward.walk import Walk
from shardc.backward.written import Line, Written, each_line, named
from shardc.ir.expressions import parts_of, uses
from shardc.ir.program import Statement


def with_made_again(walk: Walk) -> list[Written]:
    """The lines of a walk, with what they read of forward made again before they do."""
    made = _Made(walk, {each.name: each for each in _statements(walk)})
    return [line for each in walk.lines for line in made.before(each)]


def _statements(walk: Walk) -> Iterator[Statement]:
    """What is made again: of all, what is neither an output nor kept; selectively, what costs little."""
    keys = walk.keys
    every = [each for each in keys.body if isinstance(each, Statement) and not again(each)]
    outputs = {keys.last[walk.program.results[number].name] for number in walk.program.outputs}
    kept = outputs | (_kept(keys, every) if walk.remat is True else set())
    for each in every:
        if each.name not in kept and (walk.remat is True or not _is_product_with_input(keys, each)):
            yield each


def _is_product_with_input(keys: Keys, statement: Statement) -> bool:
    given = {array.name for array in keys.program.inputs}
    return any(one.name in given for each in parts_of(statement.expr) for one in contracted(each))


def _kept(keys: Keys, every: list[Statement]) -> set[str]:
    """Of the arrays that alone lead from one part to the next those after √n statements each, of n."""
    last = {one.name: place for place, each in enumerate(every) for one in uses(each.expr)}
    found, since = set[str](), 0
    for place, each in enumerate(every):
        since += 1
        alone = all(last.get(other.name, -1) <= place for other in every[:place])
        if alone and last.get(each.name, -1) > place and since * since >= len(every):
            found.add(each.name)
            since = 0
    return found


@dataclass(slots=True)
class _Made:
    """What was made again so far: of each array the name that it has then."""

    walk: Walk
    statements: dict[str, Statement]
    names: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)  # of what is kept the name under which it is read again
    of_forward: set[str] = field(default_factory=set)  # lines of backward that compute what forward has computed

    def before(self, each: Written) -> Iterator[Written]:
        """What a line reads, made again; then the line."""
        marks = list(dict.fromkeys(named([each])))
        for mark in marks:
            yield from self.array(mark)
        if isinstance(each, Line) and self.walk.remat is True and self.is_of_forward(marks):
            self.of_forward.add(each.name)
            yield from self.made(each, marks)
        else:
            yield from each_line(each, lambda line: (line.calling(lambda mark: self.names.get(mark, mark)),))

    def is_of_forward(self, marks: list[str]) -> bool:
        """Whether a line of backward computes what forward has computed, and gives it a name."""
        return all(mark in self.walk.keys.held or mark in self.of_forward for mark in marks)

    def array(self, key: str) -> Iterator[Line]:
        if key not in self.statements or key in self.names:
            return
        statement, array = self.statements[key], self.walk.keys.held[key]
        marks = list(dict.fromkeys(one.name for one in uses(statement.expr)))
        for one in marks:
            yield from self.array(one)
        name = self.walk.fresh(array.name)
        term = self.walk.term(statement.expr)
        yield from self.made(self.walk.line(name, array.dims, statement.pattern, term, statement.dtype), marks)
        self.names[key] = name

    def made(self, line: Line, marks: list[str]) -> Iterator[Line]:
        """A line that reads what is kept as other arrays than forward does."""
        for one in self.barriers(line, marks):
            yield self.as_another(one)
        yield line.calling(lambda mark: self.names.get(mark, self.read.get(mark, mark)))

    def barriers(self, line: Line, marks: list[str]) -> list[str]:
        """What a line reads as another array for the first time: what is kept; of inputs alone those of the tokens."""
        given = {array.name for array in self.walk.program.inputs}
        kept = [one for one in marks if one not in self.names and one not in self.read and one not in self.of_forward]
        bound = [one for one in kept if one not in given]
        if bound or len(kept) < len(marks):
            return bound
        every = [each.dims for each in self.walk.keys.body if isinstance(each, Statement)]
        tokens = set(line.dims).intersection(*every)
        return [one for one in kept if tokens & set(self.walk.keys.held[one].dims)] or kept

    def as_another(self, key: str) -> Line:
        array = self.walk.keys.held[key]
        self.read[key] = self.walk.fresh(array.name)
        return self.walk.line(self.read[key], array.dims, array.pattern, call("again", use(key, array.dims)))
