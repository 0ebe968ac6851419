"""The price of a move and of a local product.

Times are whole picoseconds, so that sums do not depend on their order and equal plans compare equal.
The first model: one bandwidth and one peak rate per chip; every mesh axis is a ring of its own links.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, assert_never

from shardc.cost import formulas
from shardc.cost.chips import Chip
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, Move, ReduceScatter, Slice
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array

PICO = 10**12


@dataclass(frozen=True, slots=True)
class Rate:
    """Time as a function of the local bytes L before the move: max(latency_ps, L · ps_per_byte)."""

    latency_ps: int
    ps_per_byte: float

    def time_ps(self, local_bytes: int) -> int:
        return max(self.latency_ps, round(local_bytes * self.ps_per_byte))


class CostModel(Protocol):
    """What the planner asks of a cost model."""

    @property
    def chip(self) -> Chip: ...

    @property
    def mesh(self) -> Mesh: ...

    def rate(self, move: Move) -> Rate:
        """The time of a move as a function of the bytes it moves."""
        ...

    def formula(self, move: Move, before: Array) -> str:
        """The time of a move of this array, as the books would write it."""
        ...

    def local_ps(self, flops: int, bytes_moved: int, dtype: DType) -> int:
        """The time of a local product: FLOPs over peak, or bytes through HBM, whichever is longer."""
        ...


@dataclass(frozen=True, slots=True)
class RingModel:
    """Every mesh axis a ring (or a switch, by the chip); axes of one move use their links together.

    For V = the bytes of the array gathered over the n devices of the group, and k axes of bandwidth W
    (both directions): AllGather and ReduceScatter (n−1)/n · V/(kW), AllReduce twice that, AllToAll a quarter
    of V/(kW) on a ring of even size and V(n²−1)/(4n²W) on an odd one (V(n−1)/(n²W) through a switch),
    CollectivePermute its block over W. Latency: ⌈n/2⌉ hops per axis on a ring, one through a switch.
    Source: *How To Scale Your Model*, chapter 3.
    """

    mesh: Mesh
    chip: Chip
    _rates: dict[Move, Rate] = field(default_factory=dict, init=False, repr=False, compare=False, hash=False)

    def rate(self, move: Move) -> Rate:
        found = self._rates.get(move)
        if found is None:
            found = self._rates[move] = self._rate(move)
        return found

    def _rate(self, move: Move) -> Rate:
        n = self.mesh.product(move.axes)
        if n == 1 or isinstance(move, Slice):
            return Rate(0, 0.0)
        wide = [axis for axis in move.axes if self.mesh.size(axis) > 1]
        per_byte = PICO / (self.chip.bandwidth * (len(wide) if self.chip.ring else 1))
        hops = sum(-(-self.mesh.size(axis) // 2) for axis in wide) if self.chip.ring else 1
        return Rate(round(hops * self.chip.hop_latency * PICO), per_byte * self._load(move, n))

    def formula(self, move: Move, before: Array) -> str:
        rate, size = self.rate(move), before.local_bytes(self.mesh)
        if rate.latency_ps and rate.latency_ps >= size * rate.ps_per_byte:
            return formulas.of_latency(move.axes, self.mesh, self.chip.ring)
        return formulas.of_move(move, before, self.mesh, self.chip.ring)

    def _load(self, move: Move, n: int) -> float:
        """Bytes through the group's links, as a multiple of the local bytes before the move."""
        match move:
            case AllGather():
                return n - 1
            case ReduceScatter():
                return (n - 1) / n
            case AllReduce():
                return 2 * (n - 1) / n
            case AllToAll() if not self.chip.ring:
                return (n - 1) / n
            case AllToAll(axes=(_,)) if n % 2:
                return (n * n - 1) / (4 * n)
            case AllToAll(axes=axes):
                # On a torus of N chips the axis of size nᵢ is busy for V·nᵢ/(8wN) = L·nᵢ/(4W); the longest counts.
                return max(self.mesh.size(axis) for axis in axes) * sum(self.mesh.size(a) > 1 for a in axes) / 4
            case CollectivePermute():
                return 1.0
            case Slice():
                return 0.0
            case _:
                assert_never(move)

    def local_ps(self, flops: int, bytes_moved: int, dtype: DType) -> int:
        return round(max(flops / self.chip.peak(dtype), bytes_moved / self.chip.hbm_bandwidth) * PICO)
