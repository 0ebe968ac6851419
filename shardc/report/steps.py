"""A schedule as text, a step a line.

schedule = mesh, block
block    = given array…, step…, return array…
step     = array… = op operand…        # rule; of a Loop with its block below; of `1 - A[I]` `sub 1, A[I]`
array    = name[dims, each with its axes]{U_axes}

given A[I, J_X]
given B[J, K]
B[J_X, K] = Slice_X,J B[J, K]  # case 2: slice the other operand
C[I, K]{U_X} = Einsum A[I, J_X], B[J_X, K]  # local product
C[I, K] = AllReduce_X C[I, K]{U_X}  # case 2: reduce the result
return C[I, K]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Block, Loop, Schedule, Step
from shardc.ir.sharding import spell_axes
from shardc.report.table import operation
from shardc.report.view import StepView, steps


def print_schedule(schedule: Schedule) -> str:
    """The mesh of the steps, and the block."""
    lines = [f"mesh {schedule.mesh}"] if schedule.mesh.axes else []
    return "\n".join([*lines, *_block(schedule.block, schedule.mesh)])


def _block(block: Block, mesh: Mesh) -> Iterator[str]:
    """What is given, the steps, each loop's body below it, and what is returned."""
    yield from (f"given {block.values[number]}" for number in block.inputs)
    for step, shown in zip(block.steps, steps(block.steps, block.values, mesh), strict=True):
        yield _line(step, shown)
        if isinstance(step.op, Loop):
            yield from (f"    {line}" for line in _block(step.op.body, mesh))
    yield "return " + ", ".join(str(block.values[number]) for number in block.outputs)


def _line(step: Step, shown: StepView) -> str:
    rule = f"  # {shown.rule}" if shown.rule else ""
    name, arguments = operation(shown), shown.operands
    if isinstance(step.op, Apply):
        name, arguments = name + _over(step.op.over), tuple(_arguments(step.op, shown.operands))
    return f"{shown.result} = {' '.join([name, *[', '.join(arguments)][: len(arguments)]])}{rule}"


def _over(dims: Sequence[str]) -> str:
    """`_J`, `_{J,K}`."""
    return f"_{spell_axes(tuple(dims))}" if dims else ""


def _arguments(function: Apply, operands: Sequence[str]) -> Iterator[str]:
    """The operands, and the numbers between them."""
    arrays = iter(operands)
    for number in function.numbers:
        yield next(arrays) if number is None else str(number)
    yield from arrays
