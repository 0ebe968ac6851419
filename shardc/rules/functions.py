"""Which shardings a function of one or two arrays allows, and what it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.ir.calls import linear_operands
from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Dims, Sharding


def applied(
    function: str,
    over: Dims,
    operand_dims: Sequence[Dims],
    result_dims: Dims,
    operands: Sequence[Sharding],
    numbers: Sequence[Any] = (),
) -> Sharding | None:
    """What a function of local blocks leaves, or None where it would not mean the same.

    `relu(A[I_X, J]) → C[I_X, J]`; `A[I_X]{U_Y} + B[I_X]{U_Y} → C[I_X]{U_Y}`; `A[I]{U_Y} / B[I] → C[I]{U_Y}`.
    Refused: an unreduced value where the function is not linear, since relu(a₀ + a₁) is not relu(a₀) + relu(a₁);
    linear operands unreduced over different axes; a dim sharded differently on two; a dim that the function runs over
    and is sharded.
    """
    linear = linear_operands(function, numbers)
    partial = next((operands[place].unreduced for place in linear), frozenset[str]())
    if any(each.unreduced != (partial if place in linear else frozenset()) for place, each in enumerate(operands)):
        return None
    axes_of: dict[str, Axes] = {}
    for dims, sharding in zip(operand_dims, operands, strict=True):
        for dim, axes in zip(dims, sharding.dims, strict=True):
            if axes_of.setdefault(dim, axes) != axes or (dim in over and axes):
                return None
    placed = [axis for axes in axes_of.values() for axis in axes]
    if len(set(placed) | partial) != len(placed) + len(partial):
        return None
    return Sharding(tuple(axes_of[dim] for dim in result_dims), partial)


def reduced_across(
    function: str, over: Dims, operand_dims: Dims, result_dims: Dims, operand: Sharding, mesh: Mesh
) -> tuple[Sharding, Axes] | None:
    """What a function over sharded dims leaves, and the axes of its AllReduces, of what is left on each device.

    `max_J(A[I_Y, J_X]) → C[I_Y]`: the largest of each block, then the largest of these over X. So too `softmax_J`,
    whose exponentials are summed as well; it leaves `C[I_Y, J_X]`.
    """
    axes_of = dict(zip(operand_dims, operand.dims, strict=True))
    across = tuple(axis for dim in over for axis in axes_of[dim])
    if not across or operand.unreduced or not FUNCTIONS[function].across:
        return None
    return Sharding(tuple(axes_of[dim] for dim in result_dims)), mesh.ordered(across)
