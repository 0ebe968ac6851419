"""What is said of an operation with the operation itself: its kind, and its name in JSON and in tables.

What takes more than a word (how it is priced, simulated, called, held in memory) stands in tables that are closed by
`assert_never`, one in each room; an operation without facts, or without its row in one of them, the type checker names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What becomes of the blocks of a group of devices, along however many dims."""

    GATHER = "each device gets the blocks of all"
    SCATTER = "partial sums become sums, each device keeps its share"
    SUM = "partial sums become sums, on every device"
    EXCHANGE = "each device sends every other a piece, and keeps one"
    PERMUTE = "blocks or pieces change devices, none stays by rule"
    SLICE = "each device keeps its share of what all hold"
    LOCAL = "each device by itself"
    LOOP = "a block of steps, trip after trip"


@dataclass(frozen=True, slots=True)
class Facts:
    """`linear` in its operand: the sum of what it leaves of partial sums is what it leaves of the sum.

    `is_named`: whether the notation's name may mean it. Others of its name are told from it by their dims.
    `cuts`: whether each device begins by taking a part of its block.
    """

    kind: Kind
    name: str
    linear: bool = True
    is_named: bool = True
    cuts: bool = False

    @property
    def reduces(self) -> bool:
        """Whether partial sums over its axes become sums."""
        return self.kind in (Kind.SCATTER, Kind.SUM)

    @property
    def is_move(self) -> bool:
        """Whether it changes a sharding and no value: a collective, or a Slice."""
        return self.kind not in (Kind.LOCAL, Kind.LOOP)

    @property
    def communicates(self) -> bool:
        """Whether devices send anything, if there are several."""
        return self.is_move and self.kind is not Kind.SLICE
