"""Checkers that raise AssertionError and say which step, device and element is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.errors import ShardcError
from shardc.interface.arguments import MeshLike
from shardc.ir.dtypes import DTYPES
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array
from shardc.simulate import TOLD_APART, expected_blocks, gather
from shardc.simulate.tolerance import spread_of
from shardc.testing.refusals import mesh_of

_ALIKE, _OF_ZEROS = 1e-3, 1e-6  # the bound of values all alike, by their size, and of zeros


def assert_schedule_legal(schedule: Schedule) -> None:
    """Every step follows from its operands, and inputs and outputs lie as the program says (`ir.legal`)."""
    if not isinstance(schedule, Schedule):
        raise ShardcError("SHC001", f"{schedule!r} is no schedule", help="give the `schedule` of a plan")
    fault = next(faults_of(schedule), None)
    if fault is not None:
        raise AssertionError(str(fault))


def assert_equal_on_every_device(
    blocks: NDArray[Any],
    whole: NDArray[Any],
    array: Array,
    mesh: MeshLike,
    bound: NDArray[Any] | float = 0.0,
) -> None:
    """Every device's block, not only the assembled array, is within `bound` of what it must be.

    Of an unreduced array it is the sum over its axes that is compared. What is not finite must be so in both. A bound
    that tells nothing is refused: it is finite, and at most an eighth of the spread of the array's values, both in the
    root mean square (of values that are all alike, a thousandth of an eighth of their size).
    """
    devices = mesh_of(mesh)
    _check_bound(np.asarray(bound, dtype=np.float64), np.asarray(whole), array)
    if array.sharding.unreduced:
        expected, found = np.asarray(whole), gather(blocks, array, devices)
        allowed: NDArray[Any] = np.broadcast_to(np.asarray(bound, dtype=np.float64), expected.shape)
    else:
        expected, found = expected_blocks(whole, array, devices), np.asarray(blocks)
        allowed = np.broadcast_to(np.asarray(bound, dtype=np.float64), array.shape)
        allowed = _laid_out_like(allowed, array, devices)
    if found.shape != expected.shape:
        raise AssertionError(f"{array}: the blocks have the shape {found.shape}, not {expected.shape}")
    wrong = _differs(found, expected, allowed)
    if not wrong.any():
        return
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    raise AssertionError(
        f"{array}: {_place(array, devices, place)} is {found[place]} where {expected[place]} "
        f"(± {allowed[place]}) is wanted; {int(wrong.sum())} of {wrong.size} elements differ"
    )


def _check_bound(bound: NDArray[Any], whole: NDArray[Any], array: Array) -> None:
    if not bound.any():
        return
    allowed = float(np.sqrt(np.mean(np.square(bound))))
    values = np.asarray(whole, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not values.any():
        spread = _OF_ZEROS * TOLD_APART
    else:
        spread = max(spread_of(values), _ALIKE * float(np.sqrt(np.mean(np.square(values)))))
    if not allowed * TOLD_APART <= spread:
        raise AssertionError(
            f"{array}: a bound of {allowed:.2g} tells nothing of values that are spread by {spread:.2g}"
        )


def _laid_out_like(bound: NDArray[Any], array: Array, mesh: Mesh) -> NDArray[Any]:
    """A bound is a float even where the array is of integers."""
    return expected_blocks(bound, replace(array, dtype=DTYPES["f64"]), mesh)


def _differs(found: NDArray[Any], expected: NDArray[Any], allowed: NDArray[Any]) -> NDArray[np.bool_]:
    if found.dtype.kind in "iub" and expected.dtype.kind in "iub" and not allowed.any():
        return np.asarray(found != expected)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = (found == expected) | (np.abs(found - expected) <= allowed) & np.isfinite(expected)
    return np.asarray(~(near | np.isnan(found) & np.isnan(expected)))


def _place(array: Array, mesh: Mesh, place: tuple[int, ...]) -> str:
    if array.sharding.unreduced:
        return f"the sum over devices at {place}"
    count = len(mesh.axes)
    device = ", ".join(f"{axis}={i}" for axis, i in zip(mesh.names, place[:count], strict=True))
    return f"device ({device}) at {place[count:]}"
