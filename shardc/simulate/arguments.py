"""Whole arrays as arguments: their number, shapes and types are checked, then they are widened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.errors import ShardcError
from shardc.ir.dtypes import DType, Kind
from shardc.ir.program import Program

_KINDS = {Kind.INT: "iub", Kind.BOOL: "iub", Kind.FLOAT: "iubfV", Kind.COMPLEX: "iubfcV"}
_PRECISION: dict[Kind, type[Any]] = {
    Kind.INT: np.int64,
    Kind.BOOL: np.int64,
    Kind.FLOAT: np.float64,
    Kind.COMPLEX: np.complex128,
}


def as_numpy(given: Any, what: str) -> NDArray[Any]:
    """The array that NumPy makes of it; SHC001 if that is one of Python's objects."""
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        array = np.array(None)
    if array.dtype.kind == "O" or array.dtype.names:
        raise ShardcError("SHC001", f"{what} is a {type(given).__name__}", help="give an array of numbers")
    return array


def in_precision(whole: Any, name: str, shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """The argument in int64, as its type has it, in float64 or complex128; SHC303 for another shape, SHC304 for values
    of another kind."""
    given = as_numpy(whole, f"`{name}`")
    if given.shape != shape:
        raise ShardcError(
            "SHC303",
            f"`{name}` has the shape {given.shape}, not {shape}",
            help=f"pass a whole array of shape {shape}",
        )
    # Types that NumPy does not know (bfloat16) are of kind V and convert to float64.
    if given.dtype.kind not in _KINDS[dtype.kind] and given.dtype.name != dtype.jax:
        raise ShardcError(
            "SHC304",
            f"`{name}` has the type {given.dtype}, which does not convert to {dtype}",
            help=f"pass values of {dtype.jax}",
        )
    return in_range(given.astype(_PRECISION[dtype.kind]), dtype)


def converted(values: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """What a cast means: floats as they are, to be rounded by whoever rounds; to integers what is nearer to 0."""
    if dtype.kind is Kind.FLOAT:
        return values if values.dtype.kind == "f" else values.astype(np.float64)
    if dtype.kind is Kind.BOOL:
        truth: NDArray[Any] = (np.asarray(values) != 0).astype(np.int64)
        return truth
    kind = np.dtype(dtype.jax)
    if values.dtype.kind == "f":  # out of range it is the end of the range
        ends = np.iinfo(kind)
        found: NDArray[Any] = np.clip(np.trunc(np.nan_to_num(np.asarray(values))), ends.min, ends.max).astype(np.int64)
        return found
    wrapped: NDArray[Any] = values.astype(kind).astype(np.int64)
    return wrapped


def in_range(values: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Whole numbers as devices hold them: past one end of their type they go on from the other, as JAX has it."""
    if dtype.kind is not Kind.INT or dtype.is_wide or dtype.moves:
        return values
    ends = np.iinfo(np.dtype(dtype.jax))
    if ends.min <= np.min(values, initial=0) and np.max(values, initial=0) <= ends.max:
        return values
    return converted(values, dtype)


def check_count(given: int, names: Sequence[str]) -> None:
    """SHC309 unless there is one array for each name."""
    if given == len(names):
        return
    raise ShardcError(
        "SHC309",
        f"{given} array{'' if given == 1 else 's'} given for {len(names)} input{'' if len(names) == 1 else 's'}",
        help="pass, in this order: " + ", ".join(names),
    )


def program_inputs(program: Program, wholes: Sequence[Any]) -> list[NDArray[Any]]:
    """The inputs of a program, checked and widened."""
    check_count(len(wholes), [array.name for array in program.inputs])
    return [
        in_precision(whole, array.name, input_shape(program, array.dims), array.dtype)
        for whole, array in zip(wholes, program.inputs, strict=True)
    ]


def input_shape(program: Program, dims: tuple[str, ...]) -> tuple[int, ...]:
    """The shape of an array with these dims; SHC208 where a size is unknown."""
    known = dict(program.sizes)
    missing = [dim for dim in dims if dim not in known]
    if missing:
        raise ShardcError(
            "SHC208",
            f"the size of dim `{missing[0]}` is unknown",
            help=f"give it: dims {missing[0]}=64, say",
        )
    return program.shape(dims)
