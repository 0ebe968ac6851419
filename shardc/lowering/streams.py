"""What the TPU's compiler reads and writes of a product of elements, and of a sum, by what stands around them.

    n = x ⊙ r ⊙ g                  one loop: x is read and n written; x ⊙ r lies nowhere
    s = sum_D(x ⊙ x)               one loop, which computes each element as it reads x; x ⊙ x lies nowhere
    s = sum_D(x)                   what lies in memory is summed at a lower rate
    y = (A · B) ⊙ g                done with the tiles of the product, which writes y

Read off the program's text alone, as `over_dims`. A name stands for what it is bound to if it is used once, so that
nothing depends on where statements end; what is used several times lies in memory, and so do a program's ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from shardc.ir.expressions import Call, Expr, Product, Use, operands, uses
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import For, Program, Statement, bound_by, read_by
from shardc.lowering.over_dims import Passes, is_of_elements, is_product


class Streams(NamedTuple):
    """Which operands of a product are read from memory, whether its result is written there, and how often the first is
    gone through to sum it."""

    read: tuple[bool, ...]
    written: bool = True
    passes: Passes = Passes()

    @classmethod
    def all_of(cls, product: Product) -> Streams:
        return cls((True,) * len(product.operands))

    def taken(self, read: Sequence[int], written: int) -> tuple[int, int]:
        """Of the bytes of operands and of the result those that are read and written."""
        return sum(size for size, is_read in zip(read, self.read, strict=True) if is_read), written * self.written


class _Made(Enum):
    """Where an operand comes from."""

    TILES = auto()  # of a product, at hand
    ELEMENTS = auto()  # computed as they are read
    MEMORY = auto()


_Met: TypeAlias = frozenset[tuple[Expr, int]]  # what a product of elements multiplies, and how often; or what is summed


class _Within(NamedTuple):
    """What is around a product or the use of a name: a loop that multiplies or sums elements, or none; and whether that
    loop counts one of its arrays by itself."""

    inside: bool = False
    counted: bool = False


def streams_of(program: Program, product: Product) -> Streams:
    """Of a product in a statement of a program, in whatever order products of elements are taken: what another order
    makes on the way lies nowhere."""
    if not _is_one(product):
        return Streams.all_of(product)
    walk = _walked(program)
    return walk.streams(product, walk.around.get(_met(product), _Within(inside=True)))


def _is_one(expr: Expr) -> bool:
    """A product of elements, or a sum: what may be part of a loop."""
    return isinstance(expr, Product) and (is_of_elements(expr) or len(expr.operands) == 1)


def _is_sum(product: Product) -> bool:
    return len(product.operands) == 1 and not is_of_elements(product)


def _met(product: Product) -> _Met:
    """The same for every order of a chain: of `x ⊙ r ⊙ g` x, r and g."""
    return frozenset(Counter([product] if _is_sum(product) else _factors(product)).items())


def _factors(expr: Expr) -> Iterator[Expr]:
    if not isinstance(expr, Product) or not is_of_elements(expr):
        yield expr
        return
    for below in expr.operands:
        yield from _factors(below)


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
        if isinstance(expr, Product) and _is_one(expr):
            self.around[_met(expr)] = within
            counts = within.counted and not any(self._is_whole_in_memory(each, expr) for each in expr.operands)
            within = _Within(inside=True, counted=_is_sum(expr) or counts)
        elif isinstance(expr, Call) and FUNCTIONS[expr.function].through:
            within = _Within(inside=True, counted=True)
        elif not is_of_elements(expr):
            within = _Within()
        for below in operands(expr):
            self.read(below, within)

    def streams(self, product: Product, within: _Within) -> Streams:
        made = [self._made(each) for each in product.operands]
        if _is_sum(product):
            return Streams((False,), True, Passes(int(made[0] is _Made.MEMORY), int(made[0] is _Made.ELEMENTS)))
        read, counted = list[bool](), within.counted
        for place, (operand, own) in enumerate(zip(product.operands, made, strict=True)):
            takes = own is _Made.MEMORY and operand not in product.operands[:place]
            is_counted = counted and takes and self._is_whole_in_memory(operand, product)
            read.append(takes and not is_counted)
            counted = counted and not is_counted
        return Streams(tuple(read), not within.inside and _Made.TILES not in made)

    def _is_whole_in_memory(self, operand: Expr, product: Product) -> bool:
        return set(operand.dims) == set(product.dims) and self._made(operand) is _Made.MEMORY

    def _made(self, expr: Expr) -> _Made:
        if isinstance(expr, Use):
            made = self.once.get(expr.name)
            return _Made.MEMORY if made is None else self._made(made)
        if is_product(expr):
            return _Made.TILES
        if not is_of_elements(expr):
            return _Made.MEMORY
        tiles = (self._made(each) for each in operands(expr) if set(each.dims) == set(expr.dims))
        return _Made.TILES if _Made.TILES in tiles else _Made.ELEMENTS
