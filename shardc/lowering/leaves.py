"""What the loops of a program's text are made of (`lowering.loops`): what they read, what has to be there before, and
what is told of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Product
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.plan import Apply
from shardc.lowering.readers import Met, is_of_elements, met
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

    @property
    def key(self) -> Met:
        """Of what has the tiles; None of nothing."""
        return None if self.tiles is None else self.tiles.key


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


@dataclass(slots=True)
class Going:
    """The functions over dims that go through one array, in order. Of several that have a loop in common it is the
    first's, and the others' are done in it; what looks for a largest before is done where exponentials are added up:

        r = logsumexp_J(A); s = logsumexp_I(A)      one loop for the largest of rows and columns, one for both sums
        m = max_J(A); n = min_J(A)                  one loop; by itself each would be an instruction
        r = logsumexp_J(A); n = min_J(A)            a loop for the largest and the smallest, one for the sum
        n = min_J(A); r = logsumexp_J(A)            an instruction for the largest; a loop for the sum and the smallest
    """

    calls: list[Call] = field(default_factory=list)

    def is_first(self, call: Call, loop: Through) -> bool:
        """Whether a function has such a loop, and it is no other's."""
        each = [other for other in self._looking if loop in FUNCTIONS[other.function].through]
        return loop in FUNCTIONS[call.function].through and (not each or met(each[0]) == met(call))

    @property
    def have_one_largest(self) -> bool:
        """Whether they look for no more than one: the largest and the smallest, or by other dims, are a loop."""
        return len({(other.over, FUNCTIONS[other.function].reduces == "min") for other in self._looking}) < 2

    @property
    def _looking(self) -> list[Call]:
        """All from the first that adds up, if one does."""
        adding = (at for at, call in enumerate(self.calls) if Through.SUM in FUNCTIONS[call.function].through)
        return self.calls[next(adding, 0) :]


def is_in_loops(expr: Product | Call) -> bool:
    """A function of elements, or a sum: what may be part of a loop."""
    return is_of_elements(expr) or (isinstance(expr, Product) and len(expr.operands) == 1)


def is_widened(expr: Expr) -> bool:
    """Whether each that reads a value makes it anew (`rounds.widens_as_it_reads`)."""
    return isinstance(expr, Call) and widens_as_it_reads(Apply(expr.function))


def types_of(leaves: Iterable[Leaf]) -> tuple[DType, ...]:
    return tuple(leaf.dtype for leaf in leaves)
