"""What to compute, on whole arrays: statements over expressions.

    program    = mesh, sizes, inputs, statements, returns
    statement  = name[dims: pattern] = expr
               | For       statements, once for each index of a dim

Expressions are in `ir.expressions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from shardc.errors import Span
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Expr, Pattern, dims_named, use_moved, uses
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, spell_dim
from shardc.ir.sizes import following, not_divisible, shared_sizes


@dataclass(frozen=True, slots=True)
class Statement:
    """`name[dims] = expr`, the result in a sharding that matches `pattern`. `text` is as printed."""

    name: str
    dims: tuple[str, ...]
    pattern: Pattern
    expr: Expr
    dtype: DType
    text: str
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Input:
    """An array that the program is given."""

    name: str
    dims: tuple[str, ...]
    pattern: Pattern
    dtype: DType
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Scanned:
    """An array that has the loop's dim: its dims outside, of which the body knows all others."""

    name: str
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class For:
    """`for L { … }`: the body once for each index of a dim, from the first to the last; `for -L`, the other way.

    `takes` is what the body reads of outside, as inputs of its own: what is fixed (the same in each trip), what is
    carried (bound before, and again inside), what is scanned (has the dim outside, and is taken at the index).
    `stacked` is bound inside and has the dim outside: the rows of all trips.
    """

    dim: str
    down: bool
    body: tuple[Statement | For, ...]
    takes: tuple[Input, ...]  # fixed…, carried…, scanned…
    carried: tuple[str, ...]
    scanned: tuple[Scanned, ...]
    stacked: tuple[Scanned, ...]
    text: str
    span: Span | None = field(default=None, compare=False)

    @property
    def fixed(self) -> tuple[str, ...]:
        return tuple(array.name for array in self.takes[: len(self.takes) - len(self.carried) - len(self.scanned)])

    def turns(self, trips: int) -> Sequence[int]:
        """The indices, in order."""
        return range(trips)[:: -1 if self.down else 1]

    @property
    def leaves(self) -> tuple[str, ...]:
        """What the body gives: the names carried, then those stacked."""
        return (*self.carried, *(array.name for array in self.stacked))


@dataclass(frozen=True, slots=True)
class Binding:
    """A name bound by a statement, as it is after it."""

    name: str
    dims: tuple[str, ...]
    pattern: Pattern
    dtype: DType


_LONGEST = 160  # characters of a program in a line


@dataclass(frozen=True, repr=False)  # without slots: what is asked again and again is kept
class Program:
    """A checked program. `sizes` has the sizes that are known; `chip` and `topology` if declared."""

    mesh: Mesh
    sizes: tuple[tuple[str, int], ...]
    dtype: DType
    inputs: tuple[Input, ...]
    statements: tuple[Statement | For, ...]
    chip: str | None = None
    topology: str | None = None
    returns: tuple[str, ...] | None = None  # the outputs, if the text names them
    warn: Callable[[], Iterable[str]] = field(default=tuple, compare=False)  # of how it was written, if somebody asks
    spans: tuple[tuple[str, Span], ...] = field(default=(), compare=False)  # where each dim is first written

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """What is kept of a program is asked for many times, and each time by all of its statements."""
        return hash((self.mesh, self.sizes, self.dtype, self.inputs, self.statements, self.returns))

    def __getstate__(self) -> dict[str, object]:
        """Without its hash: another process has other hashes of names."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    @property
    def declarations(self) -> list[str]:
        """The lines of the notation that say mesh, sizes, type and hardware."""
        lines = [f"mesh {self.mesh}"] if self.mesh.axes else []
        if self.sizes:
            lines.append("dims " + ", ".join(f"{dim}={size}" for dim, size in self.sizes))
        lines.append(f"dtype {self.dtype}")
        lines += [f"chip {self.chip}"] if self.chip else []
        return [*lines, f"topology {self.topology}"] if self.topology else lines

    def __str__(self) -> str:
        """The notation, declarations first: what was parsed can be parsed again. Of dims of one size it gives that of
        one, so that another is asked for by one name."""
        told = following([dim for dim, _ in self.sizes], self.renamed) - self.trips
        own = self if not told else replace(self, sizes=tuple(each for each in self.sizes if each[0] not in told))
        end = [] if self.returns is None else ["return " + ", ".join(self.returns)]
        return "\n".join([*own.declarations, *(statement.text for statement in self.statements), *end])

    def __repr__(self) -> str:
        """A line, as a notebook shows it."""
        text = "; ".join(str(self).splitlines())
        return f"<Program: {text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}>"

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What looks like a slip in how it was written."""
        return tuple(self.warn())

    @cached_property
    def results(self) -> tuple[Binding, ...]:
        """What the statements bind, in order: of a program without loops, one each."""
        return tuple(bound for statement in self.statements for bound in bindings_of(statement))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """The results that are returned; where that is not said, those that no later statement uses, in order."""
        last: dict[str, int] = {}
        number = 0
        for statement in self.statements:
            for name in () if self.returns is not None else read_by(statement):
                last.pop(name, None)
            for bound in bindings_of(statement):
                last[bound.name] = number
                number += 1
        return tuple(sorted(last.values())) if self.returns is None else tuple(last[name] for name in self.returns)

    @cached_property
    def leaving(self) -> frozenset[tuple[int, str]]:
        """Of each output the number of its statement, and its name, which others may bear before."""
        every = [(number, bound.name) for number, each in enumerate(self.statements) for bound in bindings_of(each)]
        return frozenset(every[result] for result in self.outputs)

    def inside(self, loop: For) -> Program:
        """A loop's body, as a program of its own."""
        return replace(self, inputs=loop.takes, statements=loop.body, returns=loop.leaves)

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """Every dim, in order of first use."""
        found: dict[str, None] = {}
        for array in self.inputs:
            found |= dict.fromkeys(array.dims)
        for each in nested(self.statements):
            if isinstance(each, Statement):
                found |= {dim: None for use in uses(each.expr) for dim in use.dims}
                found |= dict.fromkeys(dims_named(each.expr))
            found |= dict.fromkeys((each.dim,) if isinstance(each, For) else each.dims)
        return tuple(found)

    @cached_property
    def trips(self) -> frozenset[str]:
        """The dims that loops run along."""
        return frozenset(each.dim for each in nested(self.statements) if isinstance(each, For))

    @cached_property
    def renamed(self) -> tuple[tuple[str, str], ...]:
        """Each pair of dims that name one place of an array, and so have one size."""
        return tuple(dict.fromkeys(_renamed(self.statements, self.inputs)))

    def shape(self, dims: tuple[str, ...]) -> tuple[int, ...]:
        return tuple([self._known[dim] for dim in dims])

    @cached_property
    def _known(self) -> dict[str, int]:
        return dict(self.sizes)

    def with_sizes(self, sizes: Mapping[str, int]) -> Program:
        """With these sizes too, and those of the dims that must have the same."""
        known = dict(self.sizes) | dict(sizes)
        return replace(self, sizes=tuple((known | shared_sizes(known, self.renamed)).items()))

    @cached_property
    def axes_written(self) -> Axes:
        """Every mesh axis that the program names in brackets, in the order of the mesh."""
        patterns = [array.pattern for array in self.inputs]
        return self.mesh.ordered(axes_in([*patterns, *patterns_of(self.statements)]))

    @cached_property
    def indivisible(self) -> tuple[tuple[str, Axes, Span | None], ...]:
        """The subscripts that do not divide their dim."""
        sizes, mesh = dict(self.sizes), self.mesh
        return tuple(each for each in self.subscripts if sizes.get(each[0], 0) % mesh.product(each[1]))

    @property
    def subscripts(self) -> Iterator[tuple[str, Axes, Span | None]]:
        """Every subscript that the program writes, with its dim."""
        for array in self.inputs:
            yield from _subscripts(array.dims, array.pattern, array.span)
        for statement in every_statement(self):
            for use in uses(statement.expr):
                if use.pattern is not None:
                    yield from _subscripts(use.dims, use.pattern, use.span)
            yield from _subscripts(statement.dims, statement.pattern, statement.span)


def _subscripts(dims: tuple[str, ...], pattern: Pattern, span: Span | None) -> Iterator[tuple[str, Axes, Span | None]]:
    return ((dim, axes, span) for dim, axes in zip(dims, pattern.dims, strict=True) if axes)


def axes_in(patterns: Iterable[Pattern]) -> frozenset[str]:
    """The mesh axes that patterns name."""
    return frozenset(axis for each in patterns for axes in (*each.dims, each.unreduced) for axis in axes or ())


def patterns_of(statements: tuple[Statement | For, ...]) -> Iterator[Pattern]:
    """What statements write in brackets, those in loops too."""
    for each in nested(statements):
        if isinstance(each, Statement):
            yield each.pattern
            yield from (use.pattern for use in uses(each.expr) if use.pattern is not None)


def nested(statements: tuple[Statement | For, ...]) -> Iterator[Statement | For]:
    """Statements in order, after a loop those of its body."""
    for each in statements:
        yield each
        if isinstance(each, For):
            yield from nested(each.body)


def every_statement(program: Program) -> Iterator[Statement]:
    """Every statement that binds a name, those in loops too."""
    return (each for each in nested(program.statements) if isinstance(each, Statement))


def repeated_statements(program: Program, times: int = 1) -> Iterator[tuple[Statement, int]]:
    """Every statement that binds a name, and how often it is done."""
    for each in program.statements:
        if isinstance(each, Statement):
            yield each, times
        else:
            (trips,) = program.shape((each.dim,))
            yield from repeated_statements(program.inside(each), times * trips)


def straight(program: Program) -> tuple[Statement, ...]:
    """The statements of a program without loops."""
    found = tuple(each for each in program.statements if isinstance(each, Statement))
    assert len(found) == len(program.statements), "without loops"
    return found


def read_by(statement: Statement | For) -> Iterator[str]:
    """The names that a statement reads, as often as it does."""
    if isinstance(statement, For):
        yield from (array.name for array in statement.takes)
    else:
        yield from (use.name for use in uses(statement.expr))


def bindings_of(statement: Statement | For) -> Iterator[Binding]:
    """What a statement binds; a loop what it carries, then what it stacks."""
    if isinstance(statement, Statement):
        yield Binding(statement.name, statement.dims, statement.pattern, statement.dtype)
        return
    last = {bound.name: bound for each in statement.body for bound in bindings_of(each)}
    yield from (last[name] for name in statement.carried)
    for array in statement.stacked:
        row = last[array.name]
        yield replace(row, dims=array.dims, pattern=row.pattern.along(array.dims.index(statement.dim)))


def pinned(statements: tuple[Statement | For, ...], patterns: Mapping[str, Pattern]) -> tuple[Statement | For, ...]:
    """The statements with what they leave of each of these names in this pattern: at its last binding."""
    left, found = dict(patterns), list[Statement | For]()
    for each in reversed(statements):
        own = {bound.name: left.pop(bound.name) for bound in bindings_of(each) if bound.name in left}
        if own and isinstance(each, For):
            places = {array.name: array.dims.index(each.dim) for array in each.stacked}
            own = {name: own[name].without(places[name]) if name in places else own[name] for name in own}
            each = replace(each, body=pinned(each.body, own))
        elif isinstance(each, Statement) and own:
            each = replace(each, pattern=own[each.name])
        found.append(each)
    return tuple(reversed(found))


def _renamed(statements: tuple[Statement | For, ...], inputs: tuple[Input, ...]) -> Iterator[tuple[str, str]]:
    own = {array.name: array.dims for array in inputs}
    for each in statements:
        if isinstance(each, For):
            yield from _renamed(each.body, each.takes)
        else:
            for use in uses(each.expr):
                yield from (pair for pair in zip(own[use.name], use.dims, strict=True) if pair[0] != pair[1])
        own |= {bound.name: bound.dims for bound in bindings_of(each)}


def same_array(statement: Statement) -> bool:
    """Whether a statement binds a name to what it names already: in another sharding, if any."""
    moved = use_moved(statement.expr)
    return moved is not None and moved.name == statement.name and moved.dims == statement.dims


def check_divisible(program: Program) -> None:
    """SHC204 if a written sharding does not divide its dim."""
    if program.indivisible:
        dim, axes, span = min(program.indivisible, key=lambda each: program.dims.index(each[0]))
        span = dict(program.spans).get(spell_dim(dim, axes), span)
        raise not_divisible(dim, dict(program.sizes)[dim], axes, program.mesh, span)
