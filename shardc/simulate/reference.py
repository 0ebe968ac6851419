"""What a program means: the same statements on whole arrays, with no devices in sight.

Shardings, reshards, fixed collectives and unreduced sets change cost, never values, so all of them
are the identity here. Nothing here knows of plans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from shardc.ir.calls import arguments
from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands
from shardc.ir.functions import FUNCTIONS, Gives
from shardc.ir.program import For, Program, bindings_of
from shardc.ir.scalars import number
from shardc.simulate.arguments import converted, in_range, program_inputs
from shardc.simulate.blocks import Values


def reference(program: Program, wholes: Sequence[Any]) -> list[Values]:
    """The outputs in the order of `program.outputs`, in int64 for integers and float64 otherwise.

    Integers that their type has no room for go on from its other end at each operation, as JAX has it.
    """
    known = dict(zip((array.name for array in program.inputs), program_inputs(program, wholes), strict=True))
    with np.errstate(all="ignore"):  # what is not finite is compared, not warned of
        results = list(_done(program, known))
    return [results[number] for number in program.outputs]


def _done(program: Program, known: dict[str, Values]) -> Iterator[Values]:
    """What the statements bind, in order; `known` has it by name."""
    for statement in program.statements:
        if isinstance(statement, For):
            known |= _looped(statement, program, known)
        else:
            expr = statement.expr
            value = _evaluate(expr, known, dict(program.sizes))
            known[statement.name] = contract([value], [expr.dims], statement.dims)
        yield from [known[bound.name] for bound in bindings_of(statement)]


def _looped(loop: For, program: Program, known: dict[str, Values]) -> dict[str, Values]:
    """What is carried as the last trip leaves it, and the rows of all trips."""
    carried = {name: known[name] for name in loop.carried}
    rows: dict[str, list[Values]] = {array.name: [] for array in loop.stacked}
    for turn in loop.turns(program.shape((loop.dim,))[0]):
        here = {name: known[name] for name in loop.fixed} | carried
        here |= {array.name: known[array.name].take(turn, array.dims.index(loop.dim)) for array in loop.scanned}
        list(_done(program.inside(loop), here))
        carried = {name: here[name] for name in carried}
        for name in rows:
            rows[name].append(here[name])
    rows = {name: each[::-1] if loop.down else each for name, each in rows.items()}
    return carried | {array.name: np.stack(rows[array.name], array.dims.index(loop.dim)) for array in loop.stacked}


def _evaluate(expr: Expr, known: Mapping[str, Values], sizes: Mapping[str, int]) -> Values:
    below = [_evaluate(operand, known, sizes) for operand in operands(expr)]
    match expr:
        case Use(name=name):
            return known[name]
        case Named(operand=operand, dims=dims):
            return contract(below, [operand.dims], dims)
        case Product(operands=factors, dims=dims):
            found = contract(below, [factor.dims for factor in factors], dims)
        case Call():
            found = call(expr, below, sizes)
        case _:
            assert_never(expr)
    return in_range(found, expr.dtype)


def contract(operands: Sequence[Values], names: Sequence[tuple[str, ...]], wanted: tuple[str, ...]) -> Values:
    """np.einsum over named dims; a product of two as np.matmul, which is many times faster."""
    summed = {name for dims in names for name in dims}.difference(wanted)
    if len(operands) == 2 and summed:
        return _matmul(operands, names, wanted)
    number = {name: i for i, name in enumerate(dict.fromkeys(name for dims in names for name in dims))}
    arguments: list[Any] = []
    for operand, dims in zip(operands, names, strict=True):
        arguments += [operand, [number[name] for name in dims]]
    result: Values = np.einsum(*arguments, [number[name] for name in wanted])
    return result


def _matmul(operands: Sequence[Values], names: Sequence[tuple[str, ...]], wanted: tuple[str, ...]) -> Values:
    """(batch, rows, inner) · (batch, inner, columns), each group of dims as one."""
    left, right = names
    batch = tuple(name for name in wanted if name in left and name in right)
    inner = tuple(name for name in left if name in right and name not in wanted)
    rows = tuple(name for name in wanted if name in left and name not in batch)
    columns = tuple(name for name in wanted if name in right and name not in batch)
    first = contract(operands[:1], names[:1], batch + rows + inner)
    second = contract(operands[1:], names[1:], batch + inner + columns)
    sizes = dict(zip(batch + rows + inner, first.shape, strict=True))
    sizes |= dict(zip(batch + inner + columns, second.shape, strict=True))
    together, high, deep, wide = (math.prod(sizes[name] for name in group) for group in (batch, rows, inner, columns))
    product = _exact_matmul(first.reshape(together, high, deep), second.reshape(together, deep, wide))
    made = batch + rows + columns
    return contract([product.reshape([sizes[name] for name in made])], [made], wanted)


def _exact_matmul(first: Values, second: Values) -> Values:
    """Whole numbers are multiplied as floats where every sum is below 2^53, which is exact and fast."""
    if first.dtype.kind == "f" or second.dtype.kind == "f":
        return np.asarray(np.matmul(first, second))
    largest = int(np.abs(first).max(initial=0)) * int(np.abs(second).max(initial=0)) * first.shape[-1]
    if not 0 <= largest < 2**53:
        return np.asarray(np.matmul(first, second))
    return np.asarray(np.matmul(first.astype(np.float64), second.astype(np.float64)).astype(np.int64))


def call(expr: Call, operands: Sequence[Values], sizes: Mapping[str, int]) -> Values:
    """A function on arrays that have the dims of `expr.operands`."""
    function = FUNCTIONS[expr.function]
    if expr.function == "index":
        return np.arange(sizes[expr.dims[0]])
    if expr.function == "full":
        (scalar,) = expr.numbers
        assert scalar is not None
        return converted(np.full([sizes[dim] for dim in expr.dims], number(scalar, sizes)), expr.dtype)
    dims = expr.dims if len(operands) > 1 else expr.operands[0].dims
    aligned = [align(value, operand.dims, dims) for value, operand in zip(operands, expr.operands, strict=True)]
    if not function.over_dims:
        numbers = [None if scalar is None else number(scalar, sizes) for scalar in expr.numbers]
        found = function.numpy(np, *arguments(aligned, numbers))
        found = converted(found, expr.dtype) if function.gives is Gives.ASKED else found
        return contract([found], [dims], expr.dims)
    value = function.numpy(np, *aligned, axis=tuple(dims.index(dim) for dim in expr.over))
    left = dims if function.keeps_dims else tuple(dim for dim in dims if dim not in expr.over)
    return contract([value], [left], expr.dims)


def align(value: Values, dims: tuple[str, ...], wanted: tuple[str, ...]) -> Values:
    """The wanted dims in their order; those that the array lacks have size 1."""
    ordered = contract([value], [dims], tuple(dim for dim in wanted if dim in dims))
    return np.expand_dims(ordered, tuple(i for i, dim in enumerate(wanted) if dim not in dims))
