"""Checkers that raise AssertionError and say which step, device and element is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn, assert_never

import numpy as np
from numpy.typing import NDArray

from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    IllegalMove,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    Slice,
    apply,
)
from shardc.ir.digits import Reshape
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Einsum, Op, Schedule, Step
from shardc.ir.program import Pattern
from shardc.ir.sharding import Array, Sharding
from shardc.simulate import expected_blocks, gather
from shardc.testing.laws import function_law, product_law, reshape_law


def assert_schedule_legal(schedule: Schedule) -> None:
    """Every step follows from its operands, and inputs and outputs lie as the program says."""
    for number, array in enumerate(schedule.values):
        _check_array(f"value {number}, {array}", array, schedule.mesh)
    _check_order(schedule)
    for number, step in enumerate(schedule.steps):
        _check_step(f"step {number}, {step.name}", schedule, step)
    _check_interface(schedule)


def assert_equal_on_every_device(
    blocks: NDArray[Any],
    whole: NDArray[Any],
    array: Array,
    mesh: Mesh,
    bound: NDArray[Any] | float = 0.0,
) -> None:
    """Every device's block, not only the assembled array, is within `bound` of what it must be.

    Of an unreduced array it is the sum over its axes that is compared. What is not finite must be so in both.
    """
    if array.sharding.unreduced:
        expected, found = np.asarray(whole), gather(blocks, array, mesh)
        allowed: NDArray[Any] = np.broadcast_to(np.asarray(bound, dtype=np.float64), expected.shape)
    else:
        expected, found = expected_blocks(whole, array, mesh), np.asarray(blocks)
        allowed = np.broadcast_to(np.asarray(bound, dtype=np.float64), array.shape)
        allowed = _laid_out_like(allowed, array, mesh)
    if found.shape != expected.shape:
        raise AssertionError(f"{array}: the blocks have the shape {found.shape}, not {expected.shape}")
    wrong = _differs(found, expected, allowed)
    if not wrong.any():
        return
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    raise AssertionError(
        f"{array}: {_place(array, mesh, place)} is {found[place]} where {expected[place]} "
        f"(± {allowed[place]}) is wanted; {int(wrong.sum())} of {wrong.size} elements differ"
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


def _fail(where: str, reason: str) -> NoReturn:
    raise AssertionError(f"{where}: {reason}")


def _check_array(where: str, array: Array, mesh: Mesh) -> None:
    sharding = array.sharding
    if not len(array.dims) == len(array.shape) == sharding.rank:
        _fail(where, f"{len(array.dims)} dims, {len(array.shape)} sizes, {sharding.rank} subscripts")
    if len(set(array.dims)) != len(array.dims):
        _fail(where, "a dim occurs twice")
    counted = Counter([*sharding.sharded, *sharding.unreduced])
    for axis, count in counted.items():
        if axis not in mesh:
            _fail(where, f"axis {axis} is not of the mesh")
        if count > 1:
            _fail(where, f"axis {axis} is used twice")
    if not sharding.divides(array.shape, mesh):
        _fail(where, f"its axes do not divide the shape {array.shape}")


def _check_order(schedule: Schedule) -> None:
    """A value is written once, and before it is read."""
    written = list(schedule.inputs)
    for number, step in enumerate(schedule.steps):
        for value in (*step.operands, step.result):
            if not 0 <= value < len(schedule.values):
                _fail(f"step {number}, {step.name}", f"there is no value {value}")
        early = [value for value in step.operands if value not in written]
        if early:
            _fail(f"step {number}, {step.name}", f"reads value {early[0]} before it is written")
        written.append(step.result)
    twice = [value for value, count in Counter(written).items() if count > 1]
    if twice:
        _fail(f"value {twice[0]}, {schedule.values[twice[0]]}", "is written twice")
    unwritten = [value for value in schedule.outputs if value not in written]
    if unwritten:
        _fail(f"output {unwritten[0]}", "is never written")


def _check_step(where: str, schedule: Schedule, step: Step) -> None:
    operands = [schedule.values[value] for value in step.operands]
    result = schedule.values[step.result]
    where = f"{where}: {', '.join(map(str, operands))} → {result}"
    left = _left_by(where, step.op, operands, result, schedule.mesh)
    if isinstance(left, str):
        _fail(where, left)
    if left != result.sharding:
        _fail(where, f"the step leaves {left}, not {result.sharding}")
    _check_sizes(where, operands, result)


def _left_by(where: str, op: Op, operands: Sequence[Array], result: Array, mesh: Mesh) -> Sharding | str:
    match op:
        case (
            AllGather()
            | JointGather()
            | ReduceScatter()
            | JointScatter()
            | AllReduce()
            | AllToAll()
            | JointExchange()
            | CollectivePermute()
            | DirectExchange()
            | Slice()
        ):
            if len(operands) != 1 or (operands[0].dims, operands[0].dtype) != (result.dims, result.dtype):
                return "a move keeps the dims and the type of its one operand"
            if isinstance(op, CollectivePermute):
                return _permuted(op, operands[0].sharding, mesh)
            try:
                return apply(op, operands[0].sharding, mesh)
            except IllegalMove as refusal:
                return str(refusal)
        case Reshape(sizes, joins):
            one, other = (result, operands[0]) if joins else (operands[0], result)
            return result.sharding if (why := reshape_law(one, other, sizes, mesh)) is None else why
        case Einsum():
            return product_law([a.dims for a in operands], [a.sharding for a in operands], result.dims)
        case Apply(function, over):
            dims = [a.dims for a in operands]
            return function_law(function, over, dims, [a.sharding for a in operands], result.dims)
        case _:
            assert_never(op)


def _permuted(move: CollectivePermute, before: Sharding, mesh: Mesh) -> Sharding | str:
    try:
        after = apply(move, before, mesh)
    except IllegalMove as refusal:
        return str(refusal)
    moved = {axis for old, new in zip(before.dims, after.dims, strict=True) if old != new for axis in old + new}
    if not moved:
        return "the permute moves nothing"
    return after


def _check_sizes(where: str, operands: Sequence[Array], result: Array) -> None:
    sizes: dict[str, int] = {}
    for array in (*operands, result):
        for dim, size in zip(array.dims, array.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                _fail(where, f"dim {dim} has the sizes {sizes[dim]} and {size}")


def _check_interface(schedule: Schedule) -> None:
    program = schedule.program
    if len(schedule.inputs) != len(program.inputs):
        _fail("inputs", f"{len(schedule.inputs)} of the schedule, {len(program.inputs)} of the program")
    for value, wanted in zip(schedule.inputs, program.inputs, strict=True):
        _check_pattern(f"input {wanted.name}", schedule.values[value], wanted.dims, wanted.pattern)
    if len(schedule.outputs) != len(program.outputs):
        _fail("outputs", f"{len(schedule.outputs)} of the schedule, {len(program.outputs)} of the program")
    for value, number in zip(schedule.outputs, program.outputs, strict=True):
        statement = program.statements[number]
        _check_pattern(f"output {statement.name}", schedule.values[value], statement.dims, statement.pattern)


def _check_pattern(where: str, array: Array, dims: tuple[str, ...], pattern: Pattern) -> None:
    if array.dims != dims:
        _fail(where, f"{array} has the dims {array.dims}, not {dims}")
    if not pattern.matches(array.sharding):
        _fail(where, f"{array} does not lie as {pattern.spell(dims)}")
