"""Peak bytes per device of a schedule.

Where its program names a slice of TPUs, what the compiled program is predicted to allocate (`allocation`), and
`verify` shows. Elsewhere the largest sum of buffers alive at once.

Inputs live throughout (the caller holds them), outputs from their step to the end, the rest from their
step to their last use. While a step runs, its operands and its result are alive together.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.allocation import allocation
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule, Step
from shardc.ir.sharding import Array
from shardc.lowering.scatters import slice_of


def peak_of(schedule: Schedule) -> int:
    """The figure of memory of a plan: in its table, under `--memory`, and in `verify`."""
    if slice_of(schedule.program) is not None:
        return allocation(schedule).total_bytes
    return peak_bytes(schedule.values, schedule.inputs, schedule.outputs, schedule.steps, schedule.mesh)


def peak_bytes(
    values: Sequence[Array], inputs: Sequence[int], outputs: Sequence[int], steps: Sequence[Step], mesh: Mesh
) -> int:
    """The largest sum of buffers alive at once, in bytes of one device."""
    last_use = {operand: place for place, step in enumerate(steps) for operand in step.operands}
    last_use |= dict.fromkeys([*inputs, *outputs], len(steps))
    alive = sum(values[number].local_bytes(mesh) for number in inputs)
    peak = alive
    for place, step in enumerate(steps):
        alive += values[step.result].local_bytes(mesh)
        peak = max(peak, alive)
        ended = {number for number in (*step.operands, step.result) if last_use.get(number, place) == place}
        alive -= sum(values[number].local_bytes(mesh) for number in ended)
    return peak
