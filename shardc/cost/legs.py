"""What a route costs: the rate of each of its moves, on the blocks that there are by then.

A[I, J_X] → A[I_Y, J], X=2, Y=2      slice A[I_Y, J_X], gather X: one leg, from blocks of L = bytes / 4
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardc.cost.model import CostModel
from shardc.cost.rate import Rate
from shardc.ir.collectives import Move, apply
from shardc.ir.digits import Place, Reshape, places_of, reshaped, size_at
from shardc.ir.sharding import Sharding
from shardc.lowering.scatters import LocalBlock


class Leg(NamedTuple):
    """A move that is no Slice: from blocks of L = bytes / `blocks`, bringing `wire` · L / `parts`."""

    rate: Rate
    blocks: int
    wire: int
    parts: int


@dataclass(frozen=True, slots=True)
class Legs:
    """Those of a route to `end`, of arrays whose dims are multiples of `divisors`.

    `blocks` are into how many blocks the array is cut after each step.
    """

    legs: tuple[Leg, ...]
    end: Sharding
    divisors: tuple[int, ...]
    blocks: tuple[int, ...]


def legs_along(
    model: CostModel, sharding: Sharding, moves: Sequence[Move | Reshape], array: LocalBlock | None
) -> Legs | None:
    """Of moves one after another of an array that lies so; None if some digit is cut into more blocks than it has
    elements."""
    mesh, whole = model.mesh, [Place(dim, None, 1) for dim in range(sharding.rank)]
    places = [*whole]
    divisors, legs, blocks = [1] * len(places), list[Leg](), list[int]()
    for move in moves:
        before = mesh.product(sharding.sharded)
        if isinstance(move, Reshape):
            split, apart = (places, sharding) if move.joins else (places_of(move), reshaped(move, sharding, mesh))
            if model.alone.measured is not None and _cuts_last(split, apart.blocks(mesh)):
                legs.append(Leg(Rate(0, model.alone.copy_s_per_byte), before, 0, 1))
            sharding, places = reshaped(move, sharding, mesh), [*whole] if move.joins else split
        else:
            if move.facts.communicates:
                parts = mesh.product(move.axes)
                block = array and block_cut(array, sharding.blocks(mesh), places)
                # Wire bytes are linear: for L = parts, the numerator.
                legs.append(
                    Leg(model.emitted(move, block, sharding), before, move.wire_bytes(sharding, mesh, parts), parts)
                )
            sharding = apply(move, sharding, mesh)
        for (dim, size, above), count in zip(places, sharding.blocks(mesh), strict=True):
            if size is None:
                divisors[dim] = math.lcm(divisors[dim], above * count)
            elif size % count:
                return None
        blocks.append(mesh.product(sharding.sharded))
    return Legs(tuple(legs), sharding, tuple(divisors), tuple(blocks))


def block_cut(array: LocalBlock, counts: Sequence[int], places: Sequence[Place] | None = None) -> LocalBlock:
    """A device's block of an array whose dims, or digits at these places, are cut so often."""
    shape = array.shape if places is None else tuple(size_at(place, array.shape) for place in places)
    return LocalBlock(tuple(size // count for size, count in zip(shape, counts, strict=True)), array.dtype)


def _cuts_last(places: Sequence[Place], counts: Sequence[int]) -> bool:
    """Whether a block has several of a digit above the rest of its last dim, so that to see it so is a copy."""
    above = [(size, n) for (dim, size, _), n in zip(places, counts, strict=True) if dim == places[-1].dim and size]
    return any(size > count for size, count in above)
