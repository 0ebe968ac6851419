"""Peak bytes per device of a schedule.

Where its program names a slice of TPUs, what the compiled program is predicted to allocate (`allocation`), and
`verify` shows. Elsewhere the largest sum of buffers alive at once.

Inputs live throughout (the caller holds them), outputs from their step to the end, the rest from their
step to their last use. While a step runs, its operands and its results are alive together; while a loop runs, so is
what a trip takes.
"""

from __future__ import annotations

from shardc.cost.allocation import allocation
from shardc.ir.folds import last_uses
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Loop, Schedule
from shardc.lowering.target import Target


def peak_of(schedule: Schedule) -> int:
    """The figure of memory of a plan: in its table, under `--memory`, and in `verify`."""
    if Target.of(schedule.program).names_slice:
        return allocation(schedule).total_bytes
    return peak_bytes(schedule.block, schedule.mesh)


def peak_bytes(block: Block, mesh: Mesh) -> int:
    """The largest sum of buffers alive at once, in bytes of one device."""
    return _peak(block, mesh, block.inputs)


def _peak(block: Block, mesh: Mesh, held: tuple[int, ...]) -> int:
    """The same of a block whose inputs live until their last use, but for those held throughout."""
    sizes = [array.local_bytes(mesh) for array in block.values]
    last = last_uses(block) | dict.fromkeys(held, len(block.steps))
    alive = peak = sum(sizes[number] for number in block.inputs)
    for place, step in enumerate(block.steps):
        ended = {number for number in (*step.operands, *step.results) if last.get(number, place) == place}
        alive += sum(sizes[number] for number in step.results)
        peak = max(peak, alive + (_within(step.op, mesh) if isinstance(step.op, Loop) else 0))
        alive -= sum(sizes[number] for number in ended)
    return peak


def _within(loop: Loop, mesh: Mesh) -> int:
    """What the trips take beside the loop's operands and results, in which what is fixed and carried lies."""
    body, first = loop.body, loop.fixed + loop.carried
    outside = sum(body.values[number].local_bytes(mesh) for number in body.inputs[:first])
    return _peak(body, mesh, body.inputs[: loop.fixed]) - outside
