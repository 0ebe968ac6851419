"""Where an array's moves may lead, at what price, and by which steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from shardc.ir.collectives import Move
from shardc.ir.digits import Reshape
from shardc.rules.routes import Route

Arrival: TypeAlias = tuple[int, Route]  # from which sharding, by which moves


@dataclass(frozen=True, slots=True)
class Paths:
    """Cheapest prices from the seeds to every sharding reached, and the last moves to each (None at a seed).

    A search that ended with its budget proves no more than that no path to its goal costs less than the `bound`.
    """

    price: dict[int, int]
    last: dict[int, Arrival | None]
    bound: int | None = None

    def moves_to(self, number: int) -> tuple[int, list[Move | Reshape]]:
        """The seed from which a sharding is reached, and the moves, in order."""
        found: list[Move | Reshape] = []
        arrival = self.last[number]
        while arrival is not None:
            number, moves = arrival
            found += reversed(moves)
            arrival = self.last[number]
        return number, found[::-1]
