"""What the TPU's compiler reads and writes of products and functions of elements, and of sums, by what stands around.

    n = x ⊙ r ⊙ g                  one loop: x is read and n written; x ⊙ r lies nowhere
    y = x + relu(z)                one loop: x and z are read, y is written
    s = sum_D(x ⊙ x)               one loop, which computes each element as it reads x; x ⊙ x lies nowhere
    s = sum_D(x)                   what lies in memory is summed at a lower rate
    y = (A · B) ⊙ g                done with the tiles of the product, which writes y

Read off the program's text alone, as `over_dims`. A name stands for what it is bound to if it is used once, so that
nothing depends on where statements end; what is used several times lies in memory, and so do a program's ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeGuard, assert_never

from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands, uses
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.program import For, Program, Statement, bound_by, read_by
from shardc.lowering.over_dims import Passes, is_of_elements, is_product


class Streams(NamedTuple):
    """Which operands are read from memory, whether the result is written there, and how often the first operand is gone
    through to sum it."""

    read: tuple[bool, ...]
    written: bool = True
    passes: Passes = Passes()

    def taken(self, read: Sequence[int], written: int) -> tuple[int, int]:
        """Of the bytes of operands and of the result those that are read and written."""
        return sum(size for size, is_read in zip(read, self.read, strict=True) if is_read), written * self.written


class Loops(NamedTuple):
    """How often a function goes through its operand, and of one of elements what it reads and writes, if known."""

    passes: Passes
    streams: Streams | None


def widest(call: Call) -> DType:
    """The widest type that a function reads, by which its loop is as slow as it is."""
    return max((each.dtype for each in call.operands), key=lambda dtype: dtype.bytes)


class _Made(Enum):
    """Where an operand comes from."""

    TILES = auto()  # of a product or a softmax, at hand
    ELEMENTS = auto()  # computed as they are read
    MEMORY = auto()


_Met: TypeAlias = Hashable  # an expression, the same in whatever order its products are taken


class _Within(NamedTuple):
    """What is around a product or the use of a name: a loop that multiplies or sums elements, or none; and whether that
    loop counts one of its arrays by itself."""

    inside: bool = False
    counted: bool = False


def streams_of(program: Program, expr: Product | Call) -> Streams | None:
    """Of an operation in a statement of a program, in whatever order products are taken: what another order makes on
    the way lies nowhere. None of a function over dims, which `over_dims` tells."""
    if isinstance(expr, Call) and not is_of_elements(expr):
        return None
    if not _is_one(expr):
        return Streams((True,) * len(expr.operands))
    walk = _walked(program)
    return walk.streams(expr, walk.around.get(_met(expr), _Within(inside=True)))


def _is_one(expr: Expr) -> TypeGuard[Product | Call]:
    """A product or a function of elements, or a sum: what may be part of a loop."""
    return is_of_elements(expr) or _is_sum(expr)


def _is_sum(expr: Expr) -> bool:
    return isinstance(expr, Product) and len(expr.operands) == 1 and not is_of_elements(expr)


def _leaves_shares(expr: Expr) -> bool:
    """A softmax: what reads its result is computed in the loop that leaves it."""
    return isinstance(expr, Call) and Through.RESULT in FUNCTIONS[expr.function].through


def _met(expr: Expr) -> _Met:
    match expr:
        case Use():
            return expr.name, expr.dims
        case Product():
            return expr.dims, frozenset(Counter(map(_met, _factors(expr))).items())
        case Call():
            return expr.function, expr.over, expr.numbers, expr.dims, tuple(map(_met, expr.operands))
        case Named():
            return expr
        case _:
            assert_never(expr)


def _factors(product: Product) -> Iterator[Expr]:
    """What a chain multiplies: of `x ⊙ r ⊙ g` x, r and g."""
    for below in product.operands:
        if isinstance(below, Product):
            yield from _factors(below)
        else:
            yield below


@lru_cache(maxsize=64)
def _walked(program: Program) -> _Walk:
    walk = _Walk.of(program)
    for statement in reversed(program.statements):
        if isinstance(statement, Statement):
            walk.read(statement.expr, walk.wanted.get(statement.name, _Within()))
    return walk


@dataclass(slots=True)
class _Walk:
    """From the last statement, so that what reads a name is met before what makes it."""

    once: Mapping[str, Expr]  # what a name is bound to that is used once, and no end of the program
    wanted: dict[str, _Within] = field(default_factory=dict)  # around the one use of such a name
    around: dict[_Met, _Within] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> _Walk:
        straight = [each for each in program.statements if isinstance(each, Statement)]
        used = Counter(use.name for each in straight for use in uses(each.expr))
        bound = Counter(made.name for each in program.statements for made in bound_by(each))
        in_loops = {name for each in program.statements if isinstance(each, For) for name in read_by(each)}
        ends = in_loops | {program.results[place].name for place in program.outputs}
        single = [each for each in straight if used[each.name] == bound[each.name] == 1 and each.name not in ends]
        return cls({each.name: each.expr for each in single})

    def read(self, expr: Expr, within: _Within) -> None:
        """An expression and all below it."""
        if isinstance(expr, Use) and expr.name in self.once:
            self.wanted[expr.name] = within
        if _is_one(expr):
            self.around[_met(expr)] = within
            counts = within.counted and not any(self._is_whole_in_memory(each, expr) for each in expr.operands)
            within = _Within(inside=True, counted=_is_sum(expr) or counts)
        elif isinstance(expr, Call) and FUNCTIONS[expr.function].through:
            within = _Within(inside=True, counted=True)
        else:
            within = _Within()
        for below in operands(expr):
            self.read(below, within)

    def streams(self, expr: Product | Call, within: _Within) -> Streams:
        made = [self._made(each) for each in expr.operands]
        if _is_sum(expr):
            return Streams((False,), True, Passes(int(made[0] is _Made.MEMORY), int(made[0] is _Made.ELEMENTS)))
        read, counted = list[bool](), within.counted
        for place, (operand, own) in enumerate(zip(expr.operands, made, strict=True)):
            takes = own is _Made.MEMORY and _met(operand) not in map(_met, expr.operands[:place])
            is_counted = counted and takes and self._is_whole_in_memory(operand, expr)
            read.append(takes and not is_counted)
            counted = counted and not is_counted
        return Streams(tuple(read), not within.inside and _Made.TILES not in made)

    def _is_whole_in_memory(self, operand: Expr, expr: Expr) -> bool:
        return set(operand.dims) == set(expr.dims) and self._made(operand) is _Made.MEMORY

    def _made(self, expr: Expr) -> _Made:
        if isinstance(expr, Use):
            made = self.once.get(expr.name)
            return _Made.MEMORY if made is None else self._made(made)
        if is_product(expr) or _leaves_shares(expr):
            return _Made.TILES
        if not operands(expr):
            return _Made.ELEMENTS  # positions along a dim
        if not is_of_elements(expr):
            return _Made.MEMORY
        tiles = (self._made(each) for each in operands(expr) if set(each.dims) == set(expr.dims))
        return _Made.TILES if _Made.TILES in tiles else _Made.ELEMENTS
