"""The loops that the TPU's compiler makes of a function over dims, by what its operand is made of and what reads it.

    softmax_J(A)                   the largest of A as it lies; the sum of exponentials; shares, written
    x = A · B; p = softmax_J(x)    the largest with the tiles of the product; the sum; shares, written
    x = A · B; softmax_J(x) · V    the largest with the tiles; the sum; shares as the second product reads them
    max_J(relu(A))                 the largest of elements that are computed as they are read

Read off the program's text alone, so that a price does not depend on which moves are planned between: what is moved
before, or after, is gone through once more than is said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands, uses
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.program import For, Program, Statement, bound_by, read_by
from shardc.lowering import tpu


class Passes(NamedTuple):
    """How often a block is gone through: for the largest of what lies in memory, with what is computed of each element,
    and, once more, to write as much as is read."""

    largest: int = 0
    computed: int = 0
    written: int = 0

    def joined(self, other: Passes) -> Passes:
        """Of one call that is met twice, the more of each."""
        return Passes(*map(max, self, other))


class _Made(Enum):
    """What a value is when its largest is asked for."""

    PRODUCT = auto()  # tiles at hand
    ELEMENTS = auto()  # computed as they are read
    MEMORY = auto()


_Met: TypeAlias = tuple[str, tuple[str, ...], frozenset[str]]  # a function, over which dims, of which arrays


def passes_of(program: Program, call: Call) -> Passes:
    """Of a function over dims in a statement of a program, in whatever order the products in it are taken. The body of
    a loop is a program."""
    return _passes(program)[_met(call)]


def _met(call: Call) -> _Met:
    return call.function, call.over, frozenset(use.name for use in uses(call))


@lru_cache(maxsize=64)
def _passes(program: Program) -> Mapping[_Met, Passes]:
    walk = _Walk.of(program)
    for statement in reversed(program.statements):
        if isinstance(statement, Statement):
            walk.read(statement.expr, statement.name not in walk.lying)
    return walk.found


@dataclass(slots=True)
class _Walk:
    """From the last statement, so that all that reads a name is met before what makes it."""

    bound: Mapping[str, Expr]  # by the one statement that binds the name
    lying: set[str]  # names that have to lie in memory, as far as is known
    found: dict[_Met, Passes] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> _Walk:
        straight = [each for each in program.statements if isinstance(each, Statement)]
        names = [made.name for each in program.statements for made in bound_by(each)]
        outputs = {program.results[place].name for place in program.outputs}
        in_loops = {name for each in program.statements if isinstance(each, For) for name in read_by(each)}
        once = {each.name: each.expr for each in straight if names.count(each.name) == 1}
        return cls(once, outputs | in_loops | (set(names) - set(once)))

    def read(self, expr: Expr, by_products: bool) -> None:
        """An expression and all below it; whether products alone read it."""
        if isinstance(expr, Use) and not by_products:
            self.lying.add(expr.name)
        if isinstance(expr, Call) and FUNCTIONS[expr.function].through:
            passes = Passes(*self._counted(expr, by_products))
            self.found[_met(expr)] = passes.joined(self.found.get(_met(expr), Passes()))
        for below in operands(expr):
            self.read(below, is_product(expr) or (by_products and is_of_elements(expr)))

    def _counted(self, call: Call, by_products: bool) -> Iterator[int]:
        loops, made = FUNCTIONS[call.function].through, self._made(call.operands[0])
        yield int(Through.LARGEST in loops and made is _Made.MEMORY)
        yield int(Through.LARGEST in loops and made is _Made.ELEMENTS) + int(Through.SUM in loops)
        yield int(Through.RESULT in loops and not by_products)

    def _made(self, expr: Expr) -> _Made:
        if isinstance(expr, Use):
            made = self.bound.get(expr.name)
            return _Made.MEMORY if made is None else self._made(made)
        if is_product(expr):
            return _Made.PRODUCT
        if not is_of_elements(expr):
            return _Made.MEMORY
        whole = [each for each in operands(expr) if set(each.dims) == set(expr.dims)]
        is_tiles = any(self._made(each) is _Made.PRODUCT for each in whole)
        return _Made.PRODUCT if is_tiles and tpu.is_computed_in_loop(products_before=False) else _Made.ELEMENTS


def is_product(expr: Expr) -> bool:
    """Of two arrays that each have a dim of their own, and one that is summed; others multiply elements."""
    if not isinstance(expr, Product) or len(expr.operands) < 2 or is_of_elements(expr):
        return False
    left, right = (set(operand.dims) for operand in expr.operands)
    return bool(left - right and right - left)


def is_of_elements(expr: Expr) -> bool:
    """Each element of the result from one of each operand."""
    match expr:
        case Call():
            return not FUNCTIONS[expr.function].over_dims
        case Product():
            return set(expr.dims) == {dim for operand in expr.operands for dim in operand.dims}
        case Use() | Named():
            return False
