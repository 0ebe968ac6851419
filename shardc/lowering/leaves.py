"""What the loops of a program's text are made of (`lowering.loops`): what they read, what has to be there before, and
what is told of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Product
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.plan import Apply
from shardc.lowering.readers import Met, is_of_elements
from shardc.lowering.rounds import widens_as_it_reads
from shardc.lowering.streams import Passes


class Leaf(NamedTuple):
    """An array in memory, or tiles of a product or a softmax, which are at hand to what is done with them at once."""

    key: Met
    dims: frozenset[str]
    dtype: DType
    is_tiles: bool = False


@dataclass(slots=True)
class TextLoop:
    """What is done in one loop over these dims, in order; the product or the softmax whose tiles it has, if any."""

    dims: frozenset[str]
    tiles: Leaf | None
    members: list[Met] = field(default_factory=list)
    at_hand: set[Met] = field(default_factory=set)


class Behind(NamedTuple):
    """What a value is made of: by elements alone, and what has to be there as a whole before."""

    near: frozenset[Met] = frozenset()
    far: frozenset[Met] = frozenset()

    def joined(self, other: Behind) -> Behind:
        return Behind(self.near | other.near, self.far | other.far)


class Told(NamedTuple):
    """Of what a loop leaves, or goes through: the leaves that are read for it, and the rest as of `Streams`."""

    charged: frozenset[Met]
    written: bool
    beside: bool = False
    passes: Passes = Passes()
    bare: bool = False
    in_place: bool = False
    single: bool = False


def is_in_loops(expr: Product | Call) -> bool:
    """A function of elements, or a sum: what may be part of a loop."""
    return is_of_elements(expr) or (isinstance(expr, Product) and len(expr.operands) == 1)


def is_widened(expr: Expr) -> bool:
    """Whether each that reads a value makes it anew (`rounds.widens_as_it_reads`)."""
    return isinstance(expr, Call) and widens_as_it_reads(Apply(expr.function))


def loop_dims(expr: Product | Call) -> frozenset[str]:
    """Those over which an operation is a loop: its own, and those that it sums."""
    return frozenset(dim for each in (expr, *expr.operands) for dim in each.dims)


def leaves_tiles(expr: Expr) -> bool:
    """A product of two arrays that each have a dim of their own, and one that is summed; and a softmax."""
    if isinstance(expr, Call):
        return Through.RESULT in FUNCTIONS[expr.function].through
    if not isinstance(expr, Product) or len(expr.operands) < 2:
        return False
    left, right = (set(operand.dims) for operand in expr.operands)
    return bool(left - right and right - left)
