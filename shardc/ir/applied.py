"""A call of a program as the step of a schedule: `mean_J(A)` of J=64 divides by 64."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.ir.calls import holds, meeting, no_room, whole
from shardc.ir.expressions import Call
from shardc.ir.functions import FUNCTIONS
from shardc.ir.plan import Apply
from shardc.ir.scalars import number


def applied(call: Call, sizes: Mapping[str, int]) -> Apply:
    """The step of a call, its numbers as they are where dims have these sizes."""
    numbers = tuple(None if scalar is None else number(scalar, sizes) for scalar in call.numbers)
    for found in numbers:
        of = [operand.dtype for operand in call.operands]
        met = meeting(FUNCTIONS[call.function], of, whole(numbers)) if of else call.dtype
        if found is not None and not holds(met, found):
            raise no_room(met, found, call.span)
    return Apply(call.function, call.over, numbers)
