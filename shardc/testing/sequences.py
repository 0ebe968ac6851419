"""Hypothesis strategies of sequences of moves, and of chips to price them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from shardc.cost.chips import CHIPS, Chip
from shardc.interface.arguments import MeshLike
from shardc.ir.collectives import Move, apply, in_one_round, uneven_exchange
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import SUM, Sharding, spell
from shardc.rules.moves import MOVES, masks
from shardc.rules.placements import placements
from shardc.testing.refusals import count_of
from shardc.testing.sides import Moves
from shardc.testing.strategies import drawn_mesh, shardings

_DIMS = ("I", "J", "K", "L")
_MOST_MOVES = 100


@dataclass(frozen=True, slots=True)
class Path:
    """An array on a mesh, and moves of it, one after another."""

    mesh: Mesh
    shape: tuple[int, ...]
    source: Sharding
    moves: tuple[Move, ...]

    @property
    def array(self) -> str:
        """As the notation writes it, before the moves."""
        return f"A{spell(_DIMS[: len(self.shape)], self.source)}"

    @property
    def given(self) -> Moves:
        """For `assert_rewrite`."""
        return Moves(self.array, *self.moves)

    def by(self, *moves: Move) -> Moves:
        """The same array with other moves."""
        return Moves(self.array, *moves)


@st.composite
def paths(
    draw: st.DrawFn,
    max_axes: int = 3,
    max_size: int = 3,
    max_rank: int = 3,
    max_moves: int = 4,
    unreduced: bool = True,
    mesh: MeshLike | None = None,
) -> Path:
    """An array in any sharding and up to `max_moves` moves of it, each of any kind that its sharding allows.

    Each kind is drawn as often as another, however many moves of it there are. Sizes are the least that every
    sharding on the way divides. Shrinks to no move of an array on one device.
    """
    drawn = drawn_mesh(draw, mesh, max_axes, max_size)
    rank = draw(st.integers(1, count_of("max_rank", max_rank, 1, len(_DIMS))))
    source = draw(shardings(drawn, rank, unreduced))
    ways, moves = [source], list[Move]()
    for _ in range(draw(st.integers(0, count_of("max_moves", max_moves, 0, _MOST_MOVES)))):
        rules = [*(rule(ways[-1], drawn, drawn.names) for rule in MOVES), _masks(ways[-1], drawn, unreduced)]
        kinds: list[list[Move | Sharding]] = [
            found for each in (*rules, _uneven_exchanges(ways[-1], drawn)) if (found := list(each))
        ]
        if not kinds:
            break
        chosen = draw(st.sampled_from(draw(st.sampled_from(kinds))))
        move = uneven_exchange(ways[-1], chosen.dims, drawn) if isinstance(chosen, Sharding) else chosen
        if move is None:
            continue  # too long to be written
        moves.append(move)
        ways.append(apply(move, ways[-1], drawn))
    cuts = [[drawn.product(sharding.dims[dim]) for sharding in ways] for dim in range(rank)]
    return Path(drawn, tuple(math.lcm(*some) for some in cuts), source, tuple(moves))


def _masks(before: Sharding, mesh: Mesh, unreduced: bool) -> Iterator[Move]:
    """Where partial sums are drawn at all."""
    return masks(before, mesh.names if unreduced and before.reduction == SUM else ())


def _uneven_exchanges(before: Sharding, mesh: Mesh) -> Iterator[Sharding]:
    """Where one leads: anywhere. No search asks for them, so they stand in no table; the one drawn is worked out."""
    for dims in placements(mesh.names, before.rank) if not before.unreduced else ():
        if in_one_round(before, dims, mesh) is not None:
            yield Sharding(dims)


def chips() -> st.SearchStrategy[Chip]:
    """Every chip of the hardware table."""
    return st.sampled_from(sorted(CHIPS.values(), key=lambda chip: chip.name))
