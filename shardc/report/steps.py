"""A schedule as text, a step a line.

schedule = given array…, step…, return array…
step     = array = op operand…        # rule
array    = name[dims, each with its axes]{U_axes}

given A[I, J_X]
given B[J, K]
B[J_X, K] = Slice_X,J B[J, K]  # case 2: slice the other operand
C[I, K]{U_X} = Einsum A[I, J_X], B[J_X, K]  # local product
C[I, K] = AllReduce_X C[I, K]{U_X}  # case 2: reduce the result
return C[I, K]
"""

from __future__ import annotations

from shardc.ir.plan import Schedule
from shardc.report.table import operation
from shardc.report.view import StepView, steps


def print_schedule(schedule: Schedule) -> str:
    """The mesh of the steps, what is given, the steps, and what is returned."""
    lines = [f"mesh {schedule.mesh}"] if schedule.mesh.axes else []
    lines += [f"given {schedule.values[number]}" for number in schedule.inputs]
    lines += map(_line, steps(schedule.steps, schedule.values, schedule.mesh))
    return "\n".join([*lines, "return " + ", ".join(str(schedule.values[number]) for number in schedule.outputs)])


def _line(step: StepView) -> str:
    rule = f"  # {step.rule}" if step.rule else ""
    return f"{step.result} = {operation(step)} {', '.join(step.operands)}{rule}"
