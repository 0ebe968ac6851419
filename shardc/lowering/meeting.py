"""Products of two operands that are both gathered, as two rings at once: turned to where they meet, and sent on.

    C[I_X, K_Y] = AllGather_Y A[I_X, J_Y] · AllGather_X B[J_X, K_Y]

Each device multiplies the two blocks that it has, and each operand goes round its own axis (Cannon, 1969). On X=2, Y=2,
the numbers of the blocks of J that device (x, y) has, of A and of B:

              given     turned    sent on
    (0, 0)    0 · 0     0 · 0     1 · 1
    (0, 1)    1 · 0     1 · 1     0 · 0
    (1, 0)    0 · 1     1 · 1     0 · 0
    (1, 1)    1 · 1     0 · 0     1 · 1

Where Y is m times X, a block of B holds m of A: it stays for a round of m products, in which those of A go round among
m neighbours; then B is sent on, and A to the next m. Device (x, q·m + r) has in round p block (x + q + p) mod X of B,
and of the m in it, as the i-th, that of number (r - p + i) mod m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardc.ir.exchange import Pairs
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, Schedule, Step, Together, operands_of
from shardc.ir.sharding import Axes
from shardc.lowering.flow import equal_along
from shardc.lowering.repeats import any_repeats
from shardc.lowering.rings import MOST

Source = Callable[[int, int, int], tuple[int, int]]  # of the device at x, q and r, where its first block is


@dataclass(frozen=True, slots=True)
class Meeting:
    """Of two operands that have a dim over an axis each: `fine` is the place of that with more blocks of it, A above.

    `rounds` of `within` products; the axes are the fine operand's and the other's.
    """

    fine: int
    axes: tuple[str, str]
    rounds: int
    within: int
    dim: str

    @property
    def count(self) -> int:
        """The products."""
        return self.rounds * self.within

    def over(self, mesh: Mesh) -> Axes:
        """Both axes, in the order in which JAX counts the devices of a permute."""
        return mesh.ordered(self.axes)

    def fine_turned(self, mesh: Mesh) -> Pairs:
        """From device (x, ((x + q) mod X)·m + r) to (x, q·m + r)."""
        return self._turned(mesh, lambda x, q, r: (x, (x + q) % self.rounds * self.within + r))

    def coarse_turned(self, mesh: Mesh) -> Pairs:
        """From device ((x + q) mod X, q·m + r) to (x, q·m + r)."""
        return self._turned(mesh, lambda x, q, r: ((x + q) % self.rounds, q * self.within + r))

    def _turned(self, mesh: Mesh, source: Source) -> Pairs:
        is_first = self.over(mesh)[0] == self.axes[0]
        places = [(x, *divmod(y, self.within)) for x in range(self.rounds) for y in range(self.count)]

        def number(x: int, y: int) -> int:
            return y * self.rounds + x if is_first else x * self.count + y

        return tuple(sorted((number(*source(x, q, r)), number(x, q * self.within + r)) for x, q, r in places))

    @property
    def passed(self) -> Pairs:
        """Within a round, along the fine operand's axis: to the one before among m, the first's to the last."""
        m = self.within
        return tuple((q + r, q + (r - 1) % m) for q in range(0, self.count, m) for r in range(m))

    @property
    def fine_sent_on(self) -> Pairs:
        """After a round, along that axis."""
        return _back(self.count, self.within)

    @property
    def coarse_sent_on(self) -> Pairs:
        """After a round, along the other."""
        return _back(self.rounds, 1)


def _back(count: int, by: int) -> Pairs:
    return tuple((at, (at - by) % count) for at in range(count))


def meeting_of(schedule: Schedule, group: Together) -> Meeting | None:
    """How a group is done as two rings; None where it cannot be."""
    steps = schedule.steps[group.first : group.last + 1]
    if len(steps) != 3 or any_repeats(schedule.block, group.places):
        return None
    *gathers, product = steps
    if not isinstance(product.op, Einsum) or not all(_is_simple(gather) for gather in gathers):
        return None
    made = {gather.result: gather for gather in gathers}
    if len(product.operands) != 2 or set(product.operands) != set(made):
        return None
    return _met(schedule, product, [made[value] for value in product.operands])


def _is_simple(step: Step) -> bool:
    return step.op.facts.kind is Kind.GATHER and len(step.op.on) == len(step.op.axes) == 1


def _met(schedule: Schedule, product: Step, gathers: list[Step]) -> Meeting | None:
    """The result varies along both axes, as the blocks do: it must not have to be equal along one of them."""
    arrays = operands_of(product, schedule.values)
    dims = {array.dims[gather.op.on[0]] for array, gather in zip(arrays, gathers, strict=True)}
    axes = [gather.op.axes[0] for gather in gathers]
    sizes = [schedule.mesh.size(axis) for axis in axes]
    fine = 0 if sizes[0] >= sizes[1] else 1
    few, many = min(sizes), max(sizes)
    if len(dims) != 1 or not dims.isdisjoint(schedule.values[product.result].dims):
        return None
    if few < 2 or many > MOST or many % few or axes[0] == axes[1]:
        return None
    if not equal_along(schedule.block, schedule.mesh)[product.result].isdisjoint(axes):
        return None
    return Meeting(fine, (axes[fine], axes[1 - fine]), few, many // few, *dims)
