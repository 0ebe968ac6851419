"""Memory that no plan of a program gets below: what it is given lies there throughout, beside what it leaves.

A[I_X, J] → A[I, J], 8 MB of A on X=4      2 MB given, 8 MB left: 10 MB on each device
A[I_?, J_?] → A[I, J] on X=4, Y=4          1/2 MB at least, and 8 MB
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardc.ir.dtypes import DType
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Dims


def least_held(program: Program) -> int:
    """Bytes of one device. An output of the size and type of another array may be that array, and is not counted."""
    met = set[tuple[tuple[int, ...], DType]]()
    total = 0
    for is_given, shape, dtype, pattern in _ends(program):
        if is_given or (shape, dtype) not in met:
            total += _least(shape, pattern, program.mesh) * dtype.bytes
        met.add((shape, dtype))
    return total


def _ends(program: Program) -> Iterator[tuple[bool, tuple[int, ...], DType, Pattern]]:
    """Of each input, then of each output: whether it is an input, its sizes, its type and how it may lie."""
    for array in program.inputs:
        yield True, _shape(program, array.dims), array.dtype, array.pattern
    for number in program.outputs:
        bound = program.results[number]
        yield False, _shape(program, bound.dims), bound.dtype, bound.pattern


def _shape(program: Program, dims: Dims) -> tuple[int, ...]:
    return tuple(program.shape(dims))


def _least(shape: tuple[int, ...], pattern: Pattern, mesh: Mesh) -> int:
    """Elements on one device where what is left open is spread over all axes that are not written."""
    written = [axis for axes in pattern.dims for axis in axes or ()]
    over = mesh.product(tuple(written)) if None not in pattern.dims else mesh.devices
    return math.ceil(math.prod(shape) / over)
