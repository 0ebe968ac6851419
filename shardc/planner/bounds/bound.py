"""Bytes that no method gets below.

A program's bound adds those of outputs that have no input in common: each step of a plan moves one array, and so serves
one of them. Of outputs that share an input the largest counts, since what is moved for one may serve the others:

    B[I, J] = A[I_X, J];  C[I, J_X] = A       B needs 3/4 of A, C of what B has nothing
    B[I, J] = A[I_X, J];  D[I, J] = C[I_X, J]     3/4 of A, and 3/4 of C
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shardc.cost.bounds import reshard_bound
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Expr, Named, Product, Use, operands
from shardc.ir.plan import Schedule
from shardc.ir.program import For, Input, Program, bound_by, read_by
from shardc.ir.sharding import Array, Sharding
from shardc.planner.bounds.received import Matmul, Operand, received
from shardc.planner.bounds.sent import by_products, sent


@dataclass(frozen=True, slots=True)
class _Same:
    """A value that is an input, in whichever sharding."""

    array: Input


@dataclass(frozen=True, slots=True)
class _Multiplied:
    """A value that is the product of two inputs."""

    expr: Product
    arrays: tuple[Input, Input]
    dtypes: tuple[DType, ...]  # that it has had: what is sent may be of any


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Any other value; nothing is known of what it needs."""


_Meaning: TypeAlias = _Same | _Multiplied | _Unknown


@dataclass(frozen=True, slots=True)
class _Value:
    """What a name stands for, and the inputs that it was made from."""

    meaning: _Meaning
    inputs: frozenset[str]


def lower_bound(schedule: Schedule) -> int:
    """The wire bytes that every plan of the program needs; 0 where none is known.

    Of an input in another sharding, the most bytes that a device must hold and does not; of a product of two inputs
    what `received` and `sent` count. Nothing of what lies, or may lie, as the planner likes.
    """
    program = schedule.program
    found: list[tuple[frozenset[str], int]] = []
    for value, dims, wanted in _outputs(program):
        bound, inputs = _bound(value.meaning, dims, wanted, program), value.inputs
        for other in [other for other in found if other[0] & inputs]:
            found.remove(other)
            inputs, bound = inputs | other[0], max(bound, other[1])
        found.append((inputs, bound))
    return sum(bound for _, bound in found)


def _outputs(program: Program) -> list[tuple[_Value, tuple[str, ...], Sharding | None]]:
    """Each output's value, its dims, and its sharding if that is given."""
    by_name = {array.name: _Value(_Same(array), frozenset([array.name])) for array in program.inputs}
    values: list[_Value] = []
    for statement in program.statements:
        if isinstance(statement, For):
            inputs = frozenset[str]().union(*(by_name[name].inputs for name in read_by(statement)))
            left = {bound.name: _Value(_Unknown(), inputs) for bound in bound_by(statement)}
            values += left.values()
            by_name |= left
            continue
        value = _value(statement.expr, by_name)
        if isinstance(value.meaning, _Multiplied):
            value = _Value(_of_dtype(value.meaning, statement.dtype), value.inputs)
        values.append(value)
        by_name[statement.name] = value
    results = program.results
    return [(values[n], results[n].dims, results[n].pattern.exact) for n in program.outputs]


def _of_dtype(found: _Multiplied, dtype: DType) -> _Multiplied:
    return _Multiplied(found.expr, found.arrays, (*found.dtypes, dtype))


def _value(expr: Expr, by_name: dict[str, _Value]) -> _Value:
    if isinstance(expr, Use):
        return by_name[expr.name]
    below = [_value(operand, by_name) for operand in operands(expr)]
    inputs = frozenset[str]().union(*(value.inputs for value in below))
    if isinstance(expr, Named):
        return below[0]
    return _Value(_product(expr, below) if isinstance(expr, Product) else _Unknown(), inputs)


def _product(expr: Product, below: Sequence[_Value]) -> _Meaning:
    match [value.meaning for value in below]:
        case [_Same(left), _Same(right)] if left.name != right.name:
            return _Multiplied(expr, (left, right), (expr.dtype, left.dtype, right.dtype))
        case _:
            return _Unknown()


def _bound(found: _Meaning, dims: tuple[str, ...], wanted: Sharding | None, program: Program) -> int:
    match found:
        case _Same(array) if wanted is not None and array.pattern.exact is not None:
            before = Array(array.name, array.dims, program.shape(array.dims), array.pattern.exact, array.dtype)
            return reshard_bound(before, wanted, program.mesh)
        case _Multiplied():
            matmul = _of_arrays(found, dims, wanted, program)
            words = 0 if matmul is None else max(received(matmul), sent(matmul), by_products(matmul))
            return words * min(dtype.bytes for dtype in found.dtypes)
        case _:
            return 0


def _of_arrays(found: _Multiplied, dims: tuple[str, ...], wanted: Sharding | None, program: Program) -> Matmul | None:
    """The product from its inputs; None if something is left open, or a dim is summed that one alone has."""
    left, right = (array.pattern.exact for array in found.arrays)
    below = [operand.dims for operand in found.expr.operands]
    alone = set(below[0]) ^ set(below[1])
    if left is None or right is None or wanted is None or wanted.unreduced or not alone <= set(found.expr.dims):
        return None
    sizes = dict(program.sizes)
    return Matmul(program.mesh, sizes, Operand(below[0], left), Operand(below[1], right), Operand(dims, wanted))


def _matmul(schedule: Schedule) -> Matmul | None:
    """The product that the program's only output is; None if it is anything else, or leaves something open."""
    match _outputs(schedule.program):
        case [(_Value(_Multiplied() as found), dims, wanted)]:
            return _of_arrays(found, dims, wanted, schedule.program)
        case _:
            return None
