"""Whole arrays as arguments: their number, shapes and types are checked, then they are widened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.errors import ShardcError
from shardc.ir.dtypes import DType, Kind
from shardc.ir.program import Program


def in_precision(whole: Any, name: str, shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """The argument in int64 or float64; SHC303 for another shape, SHC304 for values of another kind."""
    given = np.asarray(whole)
    if given.shape != shape:
        raise ShardcError(
            "SHC303",
            f"`{name}` has the shape {given.shape}, not {shape}",
            help=f"pass a whole array of shape {shape}",
        )
    # Types that NumPy does not know (bfloat16) are of kind V and convert to float64.
    allowed = "iub" if dtype.kind is Kind.INT else "iubfV"
    if given.dtype.kind not in allowed:
        raise ShardcError(
            "SHC304",
            f"`{name}` has the type {given.dtype}, which does not convert to {dtype}",
            help=f"pass values of {dtype.jax}",
        )
    return given.astype(np.int64 if dtype.kind is Kind.INT else np.float64)


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
