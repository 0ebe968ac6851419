"""Peak bytes per device of a schedule.

Where its program names a slice of TPUs, what the compiled program is predicted to allocate (`allocation`), and
`verify` shows. Elsewhere the largest sum of buffers alive at once.

Inputs live throughout (the caller holds them), outputs from their step to the end, the rest from their
step to their last use. While a step runs, its operands and its results are alive together; while a loop runs, so is
what a trip takes. A dim in digits, and dims of one element elsewhere among the others, leave an array where it lay:

    x[B0_X, B1, B2, D] = Reshape x[B_X, D];  x[B1, B0_X, B2, D] = Einsum x       one buffer, where X has so many devices
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Loop, Schedule, ValueNumber, last_uses
from shardc.lowering.copies import is_turn, lies_alike
from shardc.lowering.target import Target

if TYPE_CHECKING:
    from shardc.cost.allocation import Allocation


def peak_of(schedule: Schedule) -> int:
    """The figure of memory of a plan: in its table, under `--memory`, and in `verify`."""
    allocated = allocated_of(schedule)
    return peak_bytes(schedule.block, schedule.mesh) if allocated is None else allocated.total_bytes


def allocated_of(schedule: Schedule) -> Allocation | None:
    """What the compiled program is predicted to allocate, where the program names a slice."""
    if not Target.of(schedule.program).names_slice:
        return None
    from shardc.cost.allocation import allocation  # the compiler's heap, and all that lies on it: only for a slice

    return allocation(schedule)


def peak_bytes(block: Block, mesh: Mesh) -> int:
    """The largest sum of buffers alive at once, in bytes of one device."""
    return max(alive_bytes(block, mesh))


def alive_bytes(block: Block, mesh: Mesh) -> Iterator[int]:
    """The buffers alive before the first step, then the most while each step runs, in bytes of one device."""
    return _alive(block, mesh, block.inputs)


def _alive(block: Block, mesh: Mesh, held: tuple[int, ...]) -> Iterator[int]:
    """The same of a block whose inputs live until their last use, but for those held throughout."""
    lies = _lies_in(block, mesh)
    sizes = [array.local_bytes(mesh) if lies[value] == value else 0 for value, array in enumerate(block.values)]
    last = last_uses(block) | dict.fromkeys(held, len(block.steps))
    for value, place in [*last.items()]:
        last[lies[value]] = max(place, last[lies[value]])
    alive = sum(sizes[number] for number in block.inputs)
    yield alive
    for place, step in enumerate(block.steps):
        ended = {lies[number] for number in (*step.operands, *step.results) if last.get(lies[number], place) == place}
        alive += sum(sizes[number] for number in step.results)
        yield alive + (_within(step.op, mesh) if isinstance(step.op, Loop) else 0)
        alive -= sum(sizes[number] for number in ended)


def _lies_in(block: Block, mesh: Mesh) -> list[ValueNumber]:
    """Of each value that in whose buffer it lies."""
    found = [ValueNumber(number) for number in range(len(block.values))]
    for step in block.steps:
        is_as_it_lay = is_turn(step, block.values) and lies_alike(step, block.values, mesh)
        if isinstance(step.op, Reshape) or is_as_it_lay:
            (operand,) = step.operands
            is_copied = step.result in block.outputs and found[operand] in block.inputs
            found[step.result] = step.result if is_copied else found[operand]
    return found


def _within(loop: Loop, mesh: Mesh) -> int:
    """What the trips take beside the loop's operands and results, in which what is fixed and carried lies."""
    body, first = loop.body, loop.fixed + loop.carried
    outside = sum(body.values[number].local_bytes(mesh) for number in body.inputs[:first])
    return max(_alive(body, mesh, body.inputs[: loop.fixed])) - outside
