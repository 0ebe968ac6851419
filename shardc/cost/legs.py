"""What a route costs: the rate of each of its moves, on the blocks that there are by then.

A[I, J_X] → A[I_Y, J], X=2, Y=2      slice A[I_Y, J_X], gather X: one leg, from blocks of L = bytes / 4
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from shardc.cost.model import CostModel
from shardc.cost.rate import Rate
from shardc.ir.collectives import Move, apply
from shardc.ir.digits import Place, Reshape, places_of, reshaped, size_at
from shardc.ir.mesh import Mesh
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
    told = _told(model.mesh, sharding, tuple(moves))
    if told is None:
        return None
    legs = list[Leg]()
    for move, lies, places, parts, brings in told.sent:
        before = model.mesh.product(lies.sharded)
        if move is not None:
            block = array and block_cut(array, lies.blocks(model.mesh), places)
            legs.append(Leg(model.emitted(move, block, lies), before, brings, parts))
        elif model.alone.measured is not None:
            legs.append(Leg(Rate(0, model.alone.copy_s_per_byte), before, 0, 1))
    return Legs(tuple(legs), told.end, told.divisors, told.blocks)


class _Sent(NamedTuple):
    """A move of an array that lies so, seen in digits at these places; None of a copy. Wire bytes are linear: for
    L = parts, the numerator."""

    move: Move | None
    lies: Sharding
    places: tuple[Place, ...]
    parts: int = 1
    brings: int = 0


class _Told(NamedTuple):
    """What is told of a route by the moves alone, whatever the array; else as `Legs`."""

    sent: tuple[_Sent, ...]
    end: Sharding
    divisors: tuple[int, ...]
    blocks: tuple[int, ...]


@lru_cache(maxsize=4096)
def _told(mesh: Mesh, sharding: Sharding, moves: tuple[Move | Reshape, ...]) -> _Told | None:
    whole = tuple(Place(dim, None, 1) for dim in range(sharding.rank))
    places, divisors, sent, blocks = whole, [1] * len(whole), list[_Sent](), list[int]()
    for move in moves:
        if isinstance(move, Reshape):
            split, apart = (places, sharding) if move.joins else (places_of(move), reshaped(move, sharding, mesh))
            if _cuts_last(split, apart.blocks(mesh)):
                sent.append(_Sent(None, sharding, places))
            sharding, places = reshaped(move, sharding, mesh), whole if move.joins else tuple(split)
        else:
            if move.facts.communicates:
                parts = mesh.product(move.axes)
                sent.append(_Sent(move, sharding, places, parts, move.wire_bytes(sharding, mesh, parts)))
            sharding = apply(move, sharding, mesh)
        for (dim, size, above), count in zip(places, sharding.blocks(mesh), strict=True):
            if size is None:
                divisors[dim] = math.lcm(divisors[dim], above * count)
            elif size % count:
                return None
        blocks.append(mesh.product(sharding.sharded))
    return _Told(tuple(sent), sharding, tuple(divisors), tuple(blocks))


def block_cut(array: LocalBlock, counts: Sequence[int], places: Sequence[Place] | None = None) -> LocalBlock:
    """A device's block of an array whose dims, or digits at these places, are cut so often."""
    shape = array.shape if places is None else tuple(size_at(place, array.shape) for place in places)
    return LocalBlock(tuple(size // count for size, count in zip(shape, counts, strict=True)), array.dtype)


def _cuts_last(places: Sequence[Place], counts: Sequence[int]) -> bool:
    """Whether a block has several of a digit above the rest of its last dim, so that to see it so is a copy."""
    above = [(size, n) for (dim, size, _), n in zip(places, counts, strict=True) if dim == places[-1].dim and size]
    return any(size > count for size, count in above)
