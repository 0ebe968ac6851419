"""The price of a move and of a local product.

The search adds whole picoseconds, so that sums do not depend on their order and equal plans compare equal.

For V = the bytes of the array gathered over the group, on one device, and the levels of the group's network,
inner ones first, with D members and W B/s each (`cost.links`):

    AllGather, ReduceScatter   max over levels of (D-1)/D · V/(W · members inside)
    AllReduce                  twice that
    AllToAll                   max over levels of the share that crosses it
    CollectivePermute          max over levels of the longest route; in rounds as long for all that they bring

and never less than the hops on the way (twice for an AllReduce, once a round) times the latency of one.
`--formula book` drops (D-1)/D, as the book does. Source: *How To Scale Your Model*, chapters 3 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, assert_never

from shardc.cost import formulas
from shardc.cost.chips import Chip
from shardc.cost.layout import Layout
from shardc.cost.links import Factor, Level
from shardc.cost.links.level import less_one, product, total
from shardc.cost.network import Network, network
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    Move,
    ReduceScatter,
    Slice,
    UnevenExchange,
)
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Array, Axes

PICO = 10**12
GATHERED = AllGather | JointGather | AllToAll | JointExchange  # moves whose V is larger than the block


def picoseconds(seconds: float) -> int:
    """Rounded up, so that a whole is never dearer than its parts; but not for the last bits of a float."""
    return math.ceil(seconds * PICO - 1e-6)


@dataclass(frozen=True, slots=True)
class Rate:
    """Time as a function of the local bytes L before the move: max(latency_s, L · s_per_byte)."""

    latency_s: float
    s_per_byte: float

    def seconds(self, local_bytes: int) -> float:
        return max(self.latency_s, local_bytes * self.s_per_byte)

    def time_ps(self, local_bytes: int) -> int:
        return picoseconds(self.seconds(local_bytes))


class CostModel(Protocol):
    """What the planner asks of a cost model."""

    def __hash__(self) -> int: ...

    @property
    def chip(self) -> Chip: ...

    @property
    def mesh(self) -> Mesh: ...

    def rate(self, move: Move) -> Rate:
        """The time of a move as a function of the bytes it moves."""
        ...

    def formula(self, move: Move, before: Array) -> str:
        """The time of a move of this array, as the books would write it; `symbols` has what it names."""
        ...

    def symbols(self) -> dict[str, float]:
        """The bandwidths (B/s), the peak rates (FLOP/s) and the latency of a hop (s), by their names in formulas."""
        ...

    def local_s(self, flops: int, bytes_moved: int, dtype: DType) -> float:
        """The time of a local product: FLOPs over peak, or bytes through HBM, whichever is longer."""
        ...

    def has_parts(self, axis: str) -> bool:
        """Whether parts of a mesh axis have links of their own."""
        ...

    def refined(self, by: Refinement) -> CostModel | None:
        """The model of the same devices seen as a finer mesh; None where it cannot tell."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LinkModel:
    """Prices by the links of a network. `book` drops (n-1)/n from gathers, as the book's formulas do.

    Of equal parts `of` makes one model, so that programs share the rates of moves; a model is equal to itself alone.
    """

    network: Network
    book: bool = False
    _rates: dict[tuple[type[Move], Axes, int, float], Rate] = field(default_factory=dict, init=False, repr=False)
    _finer: dict[Refinement, LinkModel | None] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, mesh: Mesh, chip: Chip, layout: Layout | None = None, *, book: bool = False) -> LinkModel:
        """The model of a mesh on a chip; without a layout every mesh axis is a physical axis of its own."""
        return _model(mesh, chip, layout or Layout(), book)

    def has_parts(self, axis: str) -> bool:
        return self.network.has_parts(axis)

    def refined(self, by: Refinement) -> LinkModel | None:
        """The same hardware under the axes of a finer mesh; None where parts of axes are not parts of its links."""
        if by not in self._finer:
            network = self.network.refined(by)
            self._finer[by] = None if network is None else LinkModel(network, self.book)
        return self._finer[by]

    @property
    def mesh(self) -> Mesh:
        return self.network.mesh

    @property
    def chip(self) -> Chip:
        return self.network.chip

    def rate(self, move: Move) -> Rate:
        key = (type(move), move.axes, _rounds(move), share_of(move))  # dims play no part
        found = self._rates.get(key)
        if found is None:
            found = self._rates[key] = self._rate(move)
        return found

    def _rate(self, move: Move) -> Rate:
        return self.rate_of(move, self.network.levels(move.axes), self.mesh.product(move.axes))

    def rate_of(self, move: Move, levels: tuple[Level, ...], devices: int) -> Rate:
        """The time of such a move among so many devices, on these levels, whichever axes it names."""
        factor = self._factor(move, levels)
        if factor is None:
            return Rate(0, 0.0)
        gathered = devices if isinstance(move, GATHERED) else 1
        return Rate(self._latency(move, levels).value, factor.value * gathered * share_of(move))

    def factor(self, move: Move) -> Factor | None:
        """Seconds per byte of V: the gathered array, or the block of a permute. None if nothing moves."""
        return self._factor(move, self.network.levels(move.axes))

    def _factor(self, move: Move, levels: tuple[Level, ...]) -> Factor | None:
        if not levels or isinstance(move, Slice):
            return None
        match move:
            case AllGather() | JointGather() | ReduceScatter() | JointScatter():
                return self._gather(levels)
            case AllReduce():
                once = self._gather(levels)
                return Factor(f"2·{once.text}" if once.text[0] != "1" else "2" + once.text[1:], 2 * once.value)
            case AllToAll() | JointExchange():
                return _slowest(_exchanges(levels, self.book))
            case CollectivePermute() | DirectExchange() | UnevenExchange():
                return _slowest(level.route() for level in levels)
            case _:
                assert_never(move)

    def _gather(self, levels: tuple[Level, ...]) -> Factor:
        return _slowest(self._gathers(levels))

    def _gathers(self, levels: tuple[Level, ...]) -> Iterator[Factor]:
        """Through each level comes what is outside it, over the links of all the devices inside."""
        inside: list[Factor] = []
        for level in levels:
            missing = Factor("1", 1.0) if self.book else less_one(level.count)
            width = product([*inside, level.width])
            yield Factor(f"{missing.text} / {width.text}", missing.value / width.value)
            inside.append(level.count)

    def _latency(self, move: Move, levels: tuple[Level, ...]) -> Factor:
        hops = total(level.hops for level in levels)
        if isinstance(move, AllReduce):  # there and back
            hops = Factor(f"2·{hops.text}", 2 * hops.value)
        if (rounds := _rounds(move)) > 1:
            hops = Factor(f"{rounds}·{hops.text}", rounds * hops.value)
        text = "T_hop" if hops.text == "1" else f"{hops.text}·T_hop"
        return Factor(text, hops.value * self.chip.hop_latency)

    def formula(self, move: Move, before: Array) -> str:
        factor = self.factor(move)
        if factor is None:
            return "0"
        rate = self.rate(move)
        if rate.latency_s >= before.local_bytes(self.mesh) * rate.s_per_byte:
            return self._latency(move, self.network.levels(move.axes)).text
        gathered = move.axes if isinstance(move, GATHERED) else ()
        size = formulas.local_bytes(before, without=gathered)
        if isinstance(move, UnevenExchange):
            size = formulas.part_of(size, move.brings, move.cells)
        return formulas.times(size, factor.text)

    def symbols(self) -> dict[str, float]:
        found = {"T_hop": self.chip.hop_latency, "W_hbm": self.chip.hbm_bandwidth, "C_peak": self.chip.flops}
        return found | {"C_int8": self.chip.narrow_flops} | self.network.symbols()

    def local_s(self, flops: int, bytes_moved: int, dtype: DType) -> float:
        return max(flops / self.chip.peak(dtype), bytes_moved / self.chip.hbm_bandwidth)


@lru_cache(maxsize=64)
def _model(mesh: Mesh, chip: Chip, layout: Layout, book: bool) -> LinkModel:
    return LinkModel(network(mesh, chip, layout), book)


def _rounds(move: Move) -> int:
    match move:
        case DirectExchange():
            return move.rounds
        case UnevenExchange():
            return len(move.rounds)
        case _:
            return 1


def share_of(move: Move) -> float:
    """What a permute, or its rounds together, brings of a block."""
    return move.brings / move.cells if isinstance(move, UnevenExchange) else 1.0


def _exchanges(levels: tuple[Level, ...], book: bool) -> Iterator[Factor]:
    """What leaves a group of M inner devices of N: (N-M)/N of every device's N-th part."""
    if len(levels) == 1:
        yield levels[0].exchange(book)
        return
    every = product(level.count for level in levels)
    inside = Factor("1", 1.0)
    for level in levels:
        leaves = (every.value - inside.value) / every.value
        text = f"({every.text}-{inside.text})/{every.text}/{every.text} / {level.width.text}"
        yield Factor(text, leaves / every.value / level.width.value)
        inside = product([inside, level.count]) if inside.value > 1 else level.count


def _slowest(factors: Iterator[Factor]) -> Factor:
    return max(factors, key=lambda factor: factor.value)
