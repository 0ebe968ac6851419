"""Memory that no plan of a program gets below: what it is given lies there throughout, beside what it leaves.

A[I_X, J] → A[I, J], 8 MB of A on X=4      2 MB given, 8 MB left: 10 MB on each device
A[I_?, J_?] → A[I, J] on X=4, Y=4          1/2 MB at least, and 8 MB
B[I_X] = relu(A[I_X])                      both, though they are of one size
B[I_?] = A[I_X]                            A alone, which B may be
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, operands, parts_of
from shardc.ir.mesh import Mesh
from shardc.ir.program import Binding, For, Input, Program, bindings_of
from shardc.ir.sharding import Dims
from shardc.lowering.target import Target
from shardc.lowering.tiles import tiled_bytes
from shardc.lowering.tpu import Beside, in_memory


@dataclass(frozen=True, slots=True)
class _Made:
    """What an array is made of: the inputs, and what is done to them. Nothing done: it may be the input itself.

    Plans take what is made alike for one array, and products in any order: what is made of other inputs, or by other
    functions, is another.
    """

    inputs: frozenset[str]
    functions: frozenset[str] = frozenset()

    def plus(self, other: _Made) -> _Made:
        return _Made(self.inputs | other.inputs, self.functions | other.functions)


_LOOP = _Made(frozenset(), frozenset({"for"}))  # what loops leave may be anything
_PRODUCT, _SUM = "·", "sum"


@dataclass(frozen=True, slots=True)
class _End:
    """An input, or an output."""

    made: _Made
    dims: Dims
    shape: tuple[int, ...]
    dtype: DType
    pattern: Pattern
    is_given: bool

    def may_be(self, other: _End, mesh: Mesh) -> bool:
        """Whether an output may lie in the buffer of what was met before it. An input that is turned is copied, so that
        it lies as it is given; one output may be another that is turned."""
        if self.dtype != other.dtype or sorted(self.shape) != sorted(other.shape):
            return False
        if not (self.made == other.made or "for" in self.made.functions | other.made.functions):
            return False
        if not other.is_given and self.dims != other.dims:
            return True
        return self.shape == other.shape and _may_lie_alike(self.pattern, other.pattern, mesh)


def _may_lie_alike(one: Pattern, other: Pattern, mesh: Mesh) -> bool:
    """Whether both may lie over the same axes, but for those of one device."""

    def over(axes: Iterable[str]) -> list[str]:
        return [axis for axis in axes if mesh.size(axis) > 1]

    pairs = zip(one.dims, other.dims, strict=True)
    return {*over(one.unreduced)} == {*over(other.unreduced)} and all(
        mine is None or others is None or over(mine) == over(others) for mine, others in pairs
    )


def least_held(program: Program) -> int:
    """Bytes of one device. An output that may be another array, given or left, is not counted."""
    met = list[_End]()
    total = 0
    for end in _ends(program):
        if end.is_given or not any(end.may_be(other, program.mesh) for other in met):
            total += _least(end.shape, end.pattern, program.mesh) * end.dtype.bytes
            met.append(end)
    return total


def least_peak(program: Program) -> int:
    """Bytes of one device that no plan's peak is below. On a slice arguments and outputs are buffers of their own, each
    in tiles, beside what every program takes."""
    target = Target.of(program)
    if not target.names_slice:
        return least_held(program)
    return sum(_least_in_tiles(end, program.mesh) for end in _ends(program)) + in_memory(0, Beside(0, 0), target)


def _least_in_tiles(end: _End, mesh: Mesh) -> int:
    exact = end.pattern.exact
    if exact is None:
        return _least(end.shape, end.pattern, mesh) * end.dtype.bytes
    return tiled_bytes(exact.local_shape(end.shape, mesh), end.dtype.bytes)


def _ends(program: Program) -> Iterator[_End]:
    """Each input, then each output."""

    def end(array: Input | Binding, made: _Made, is_given: bool) -> _End:
        return _End(made, array.dims, tuple(program.shape(array.dims)), array.dtype, array.pattern, is_given)

    known = {array.name: _Made(frozenset({array.name})) for array in program.inputs}
    yield from (end(array, known[array.name], True) for array in program.inputs)
    made = [*_results(program, known)]
    yield from (end(program.results[number], made[number], False) for number in program.outputs)


def _results(program: Program, known: dict[str, _Made]) -> Iterator[_Made]:
    """Of what the statements bind, in order, what it is made of; `known` has it by name."""
    for statement in program.statements:
        made = _LOOP if isinstance(statement, For) else _made(statement.expr, known)
        for bound in bindings_of(statement):
            known[bound.name] = made
            yield made


def _made(expr: Expr, known: dict[str, _Made]) -> _Made:
    """Of an expression; moving an array, and turning it, does nothing to it."""
    found = [known[part.name] for part in parts_of(expr) if isinstance(part, Use)]
    done = frozenset(name for part in parts_of(expr) for name in _done(part))
    return reduce(_Made.plus, found, _Made(frozenset(), done))


def _done(part: Expr) -> Iterator[str]:
    """What a part of an expression does to its operands."""
    match part:
        case Use() | Named():
            return
        case Product(dims=dims):
            if len(part.operands) > 1:
                yield _PRODUCT
            if {dim for operand in operands(part) for dim in operand.dims}.difference(dims):
                yield _SUM
        case Call(function=function):
            if function != "again":
                yield function


def _least(shape: tuple[int, ...], pattern: Pattern, mesh: Mesh) -> int:
    """Elements on one device where what is left open is spread over all axes that are not written."""
    written = [axis for axes in pattern.dims for axis in axes or ()]
    over = mesh.product(tuple(written)) if None not in pattern.dims else mesh.devices
    return math.ceil(math.prod(shape) / over)
