"""Expressions over whole arrays, every name resolved.

    expr = Use      a named array, in the sharding asked for
         | Product  one or two operands; dims that the result lacks are summed
         | Call     an elementwise function, or one over named dims
         | Named    a collective that the user fixed

Products are pairwise and read from the left: `A · B · C` is `(A · B) · C`. `ir.chains` says in which other orders
that means the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shardc.errors import Span
from shardc.ir.dtypes import DType
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

    def laid_on(self, sharding: Sharding) -> Sharding:
        """A sharding that matches, of what it leaves open as that one: of `[B_X, E_?]` and `[B_Y, E_X]` `[B_X, E]`."""
        said = {axis for axes in self.dims for axis in axes or ()}
        own = (tuple(axis for axis in axes if axis not in said) for axes in sharding.dims)
        dims = (left if axes is None else axes for axes, left in zip(self.dims, own, strict=True))
        return Sharding(tuple(dims), self.unreduced)

    @property
    def reduced(self) -> Pattern:
        """The same dims, and no partial sum."""
        return Pattern(self.dims)

    def along(self, place: int) -> Pattern:
        """The pattern of an array with one more dim at that place, which each device holds whole."""
        return Pattern((*self.dims[:place], (), *self.dims[place:]), self.unreduced)

    def without(self, place: int) -> Pattern:
        """The pattern of an array without the dim at that place."""
        return Pattern((*self.dims[:place], *self.dims[place + 1 :]), self.unreduced)

    def spell(self, dims: tuple[str, ...]) -> str:
        inside = ", ".join(spell_dim(dim, axes) for dim, axes in zip(dims, self.dims, strict=True))
        return f"[{inside}]" + spell_unreduced(sorted(self.unreduced))


@dataclass(frozen=True, slots=True)
class Use:
    """An array by name. `pattern` is None for a bare name: whatever sharding it has, or is best.

    `dims` may be other names than the array's own, place by place: `x[B, S, D]` of `x[B, T, D]`. What is bound to
    numbers that a condition chooses is `of_numbers`, and of the type of the float that it meets.
    """

    name: str
    dims: tuple[str, ...]
    pattern: Pattern | None
    dtype: DType
    span: Span | None = field(default=None, compare=False)
    of_numbers: bool = field(default=False, compare=False)


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

    Of several operands, any may lack dims of the others; `dims` are all of theirs. `index_T` has none, nor has `full`,
    an array of one number.
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


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below one."""
    match expr:
        case Use():
            return ()
        case Named(operand=operand):
            return (operand,)
        case Product(operands=below) | Call(operands=below):
            return below


def parts_of(expr: Expr) -> Iterator[Expr]:
    """An expression and every one below it, from the left."""
    waiting = [expr]  # a product of a thousand terms is a tree a thousand deep, too deep to recurse into
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed(operands(found))


def use_moved(expr: Expr) -> Use | None:
    """The array that an expression only moves, by collectives or by none."""
    while isinstance(expr, Named):
        expr = expr.operand
    return expr if isinstance(expr, Use) else None


def says_steps(expr: Expr) -> bool:
    """Whether the text says which step is done, which is done on what is written."""
    return any(isinstance(part, Named) or (isinstance(part, Product) and part.local) for part in parts_of(expr))


def uses(expr: Expr) -> Iterator[Use]:
    """Every array that an expression names, from the left."""
    return (found for found in parts_of(expr) if isinstance(found, Use))


def dims_named(expr: Expr) -> Iterator[str]:
    """The dims that an expression names by themselves: `index_T`, `|D|`."""
    for found in parts_of(expr):
        if isinstance(found, Call):
            yield from found.dims if not found.operands else ()
            for scalar in found.numbers:
                yield from sorted(sizes_in(scalar)) if scalar is not None else ()


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with its arrays under these names."""
    match expr:
        case Use():
            return replace(expr, name=names[expr.name])
        case Named():
            return replace(expr, operand=renamed(expr.operand, names))
        case Product() | Call():
            return replace(expr, operands=tuple(renamed(operand, names) for operand in expr.operands))
