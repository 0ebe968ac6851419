"""What to compute, on whole arrays: statements over expressions, every name resolved.

    program    = mesh, sizes, statements
    statement  = name[dims: pattern] = expr
    expr       = Use      a named array, in the sharding asked for
               | Product  one or two operands; dims that the result lacks are summed
               | Call     an elementwise function, or one over named dims
               | Named    a collective that the user fixed

Products are pairwise and read from the left: `A · B · C` is `(A · B) · C`. `ir.chains` says in which other orders
that means the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shardc.errors import ShardcError, Span
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.scalars import Scalar, sizes_in
from shardc.ir.sharding import SUM, Axes, Sharding, spell_dim, spell_unreduced


@dataclass(frozen=True, slots=True)
class Pattern:
    """A sharding in which some dims may be left to the planner (None)."""

    dims: tuple[Axes | None, ...]
    unreduced: frozenset[str] = frozenset()

    @classmethod
    def free(cls, rank: int) -> Pattern:
        return cls((None,) * rank)

    @classmethod
    def exactly(cls, sharding: Sharding) -> Pattern:
        return cls(sharding.dims, sharding.unreduced)

    @property
    def exact(self) -> Sharding | None:
        """The one sharding that matches, if every dim is given."""
        given = tuple(axes for axes in self.dims if axes is not None)
        return Sharding(given, self.unreduced) if len(given) == len(self.dims) else None

    def matches(self, sharding: Sharding) -> bool:
        partial = sharding.reduction == SUM and self.unreduced == sharding.unreduced
        return partial and all(
            wanted is None or wanted == axes for wanted, axes in zip(self.dims, sharding.dims, strict=True)
        )

    def spell(self, dims: tuple[str, ...]) -> str:
        inside = ", ".join(spell_dim(dim, axes) for dim, axes in zip(dims, self.dims, strict=True))
        return f"[{inside}]" + spell_unreduced(sorted(self.unreduced))


@dataclass(frozen=True, slots=True)
class Use:
    """An array by name. `pattern` is None for a bare name: whatever sharding it has, or is best.

    `dims` may be other names than the array's own, place by place: `x[B, S, D]` of `x[B, T, D]`.
    """

    name: str
    dims: tuple[str, ...]
    pattern: Pattern | None
    dtype: DType
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Product:
    """`A[I, J] · B[J, K]`, or a sum over dims of one operand (`sum_J A[I, J]`).

    `dims` are the result's. A dim of both operands and not of the result is contracted, of both and of the
    result batched, of one and not of the result summed. `local` forbids communication (`·_LOCAL`).
    """

    operands: tuple[Expr, ...]
    dims: tuple[str, ...]
    dtype: DType
    local: bool = False
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `ir.functions`; `over` are the dims it runs along (`softmax_J`), `numbers` the arguments that are
    no operands (see `ir.calls`).

    Of several operands, any may lack dims of the others; `dims` are all of theirs. `index_T` has none.
    """

    function: str
    operands: tuple[Expr, ...]
    dims: tuple[str, ...]
    dtype: DType
    over: tuple[str, ...] = ()
    numbers: tuple[Scalar | None, ...] = ()
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Named:
    """A collective that the user wrote: `AllGather_X(…)`. None where the brackets are to say it."""

    collective: str  # a key of ir.collectives.COLLECTIVE_NAMES
    axes: Axes | None
    dim: str | None
    operand: Expr
    dims: tuple[str, ...]
    dtype: DType
    span: Span | None = field(default=None, compare=False)


Expr: TypeAlias = Use | Product | Call | Named


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
class Program:
    """A checked program. `sizes` has the sizes that are known; `chip` and `topology` if declared."""

    mesh: Mesh
    sizes: tuple[tuple[str, int], ...]
    dtype: DType
    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    chip: str | None = None
    topology: str | None = None
    returns: tuple[str, ...] | None = None  # the outputs, if the text names them
    warnings: tuple[str, ...] = field(default=(), compare=False)  # of how it was written, not of what it is
    spans: tuple[tuple[str, Span], ...] = field(default=(), compare=False)  # where each dim is first written

    def __str__(self) -> str:
        """The notation, declarations first: what was parsed can be parsed again."""
        lines = [f"mesh {self.mesh}"] if self.mesh.axes else []
        if self.sizes:
            lines.append("dims " + ", ".join(f"{dim}={size}" for dim, size in self.sizes))
        lines.append(f"dtype {self.dtype}")
        lines += [f"chip {self.chip}"] if self.chip else []
        lines += [f"topology {self.topology}"] if self.topology else []
        end = [] if self.returns is None else ["return " + ", ".join(self.returns)]
        return "\n".join([*lines, *(statement.text for statement in self.statements), *end])

    @property
    def outputs(self) -> tuple[int, ...]:
        """The statements whose results the text returns; without that, which no later statement uses, in order."""
        last: dict[str, int] = {}
        if self.returns is not None:
            last = {statement.name: number for number, statement in enumerate(self.statements)}
            return tuple(last[name] for name in self.returns)
        for number, statement in enumerate(self.statements):
            for use in uses(statement.expr):
                last.pop(use.name, None)
            last[statement.name] = number
        return tuple(sorted(last.values()))

    @property
    def dims(self) -> tuple[str, ...]:
        """Every dim, in order of first use."""
        found: dict[str, None] = {}
        for array in self.inputs:
            found |= dict.fromkeys(array.dims)
        for statement in self.statements:
            found |= {dim: None for use in uses(statement.expr) for dim in use.dims}
            found |= dict.fromkeys(dims_named(statement.expr))
            found |= dict.fromkeys(statement.dims)
        return tuple(found)

    @property
    def renamed(self) -> tuple[tuple[str, str], ...]:
        """Each pair of dims that name one place of an array, and so have one size."""
        own = {array.name: array.dims for array in self.inputs}
        found: dict[tuple[str, str], None] = {}
        for statement in self.statements:
            for use in uses(statement.expr):
                found |= {pair: None for pair in zip(own[use.name], use.dims, strict=True) if pair[0] != pair[1]}
            own[statement.name] = statement.dims
        return tuple(found)

    def shape(self, dims: tuple[str, ...]) -> tuple[int, ...]:
        sizes = dict(self.sizes)
        return tuple(sizes[dim] for dim in dims)

    def with_sizes(self, sizes: Mapping[str, int]) -> Program:
        """With these sizes too, and those of the dims that must have the same."""
        known = dict(self.sizes) | dict(sizes)
        return replace(self, sizes=tuple((known | shared_sizes(known, self.renamed)).items()))

    def shardings_of(self, dim: str) -> Iterator[tuple[Axes, Span | None]]:
        """Every subscript that the program writes on a dim."""
        for array in self.inputs:
            yield from _on(dim, array.dims, array.pattern, array.span)
        for statement in self.statements:
            for use in uses(statement.expr):
                if use.pattern is not None:
                    yield from _on(dim, use.dims, use.pattern, use.span)
            yield from _on(dim, statement.dims, statement.pattern, statement.span)


def _on(dim: str, dims: tuple[str, ...], pattern: Pattern, span: Span | None) -> Iterator[tuple[Axes, Span | None]]:
    for name, axes in zip(dims, pattern.dims, strict=True):
        if name == dim and axes:
            yield axes, span


def shared_sizes(sizes: Mapping[str, int], pairs: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The sizes that dims have from others whose place they name; SHC206 where the two differ."""
    found: dict[str, int] = {}
    for dims in classes(pairs):
        given = {dim: sizes[dim] for dim in dims if dim in sizes}
        if len(set(given.values())) > 1:
            raise _two_sizes(given)
        found |= {dim: size for size in set(given.values()) for dim in dims if dim not in given}
    return found


def classes(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The dims that the pairs join, directly or by way of others, in order."""
    found: list[list[str]] = []
    for pair in pairs:
        joined = [some for some in found if not set(pair).isdisjoint(some)]
        found = [some for some in found if some not in joined]
        found.append(list(dict.fromkeys([*(dim for some in joined for dim in some), *pair])))
    return found


def _two_sizes(given: Mapping[str, int]) -> ShardcError:
    (one, size), *others = given.items()
    other, another = next(pair for pair in others if pair[1] != size)
    return ShardcError(
        "SHC206",
        f"`{other}` names the same dim of an array as `{one}`: {another} is not {size}",
        help=f"give both one size, or leave `{other}` without one",
    )


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below one."""
    match expr:
        case Use():
            return ()
        case Named(operand=operand):
            return (operand,)
        case Product(operands=below) | Call(operands=below):
            return below


def uses(expr: Expr) -> Iterator[Use]:
    """Every array that an expression names, from the left."""
    waiting = [expr]  # a product of a thousand terms is a tree a thousand deep, too deep to recurse into
    while waiting:
        found = waiting.pop()
        if isinstance(found, Use):
            yield found
        waiting += reversed(operands(found))


def dims_named(expr: Expr) -> Iterator[str]:
    """The dims that an expression names by themselves: `index_T`, `|D|`."""
    waiting = [expr]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Call):
            yield from found.dims if not found.operands else ()
            for scalar in found.numbers:
                yield from sorted(sizes_in(scalar)) if scalar is not None else ()
        waiting += reversed(operands(found))


def axes_written(program: Program) -> frozenset[str]:
    """Every mesh axis that the program names in brackets."""
    patterns = [array.pattern for array in program.inputs] + [statement.pattern for statement in program.statements]
    patterns += [use.pattern for s in program.statements for use in uses(s.expr) if use.pattern is not None]
    return frozenset().union(*(axes or () for pattern in patterns for axes in (*pattern.dims, pattern.unreduced)))


def check_divisible(program: Program) -> None:
    """SHC204 if a written sharding does not divide its dim."""
    sizes = dict(program.sizes)
    spans = dict(program.spans)
    for dim in program.dims:
        if dim not in sizes:
            continue
        for axes, span in program.shardings_of(dim):
            parts = program.mesh.product(axes)
            if sizes[dim] % parts:
                raise not_divisible(dim, sizes[dim], axes, program.mesh, spans.get(spell_dim(dim, axes), span))


def not_divisible(dim: str, size: int, axes: Axes, mesh: Mesh, span: Span | None) -> ShardcError:
    parts = mesh.product(axes)
    spelled = ", ".join(f"`{axis}` = {mesh.size(axis)}" for axis in axes)
    many = "axes" if len(axes) > 1 else "axis"
    total = f" ({parts} together)" if len(axes) > 1 else ""
    return ShardcError(
        "SHC204",
        f"dim `{dim}` = {size} is not divisible by mesh {many} {spelled}{total}",
        span=span,
        note=f"{size} mod {parts} = {size % parts}",
        help=f"make {dim} {-(-size // parts) * parts}, or drop `{spell_dim('', axes)}`",
    )
