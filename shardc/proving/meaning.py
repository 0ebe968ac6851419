"""What a program means, and what a plan says that each of its values is, on whole arrays of symbols."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import assert_never

from shardc.ir.digits import Reshape, shape_after
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Named, Product, Use
from shardc.ir.functions import FUNCTIONS, Gives
from shardc.ir.plan import Apply, Block, Einsum, Loop, Step, ValueNumber, operands_of
from shardc.ir.program import For, Program, bindings_of
from shardc.ir.scalars import number
from shardc.ir.sharding import Dims
from shardc.proving.field import PRIME, element
from shardc.proving.functions import applied, converted
from shardc.proving.tensors import Tensor, contracted, cut, filled, joined, shaped, transposed

Sizes = Mapping[str, int]


def drawn(place: int, shape: tuple[int, ...]) -> Tensor:
    """The input of that number: a symbol for each element."""
    draws = Random(place)
    return Tensor(shape, tuple(draws.getrandbits(64) % PRIME for _ in range(math.prod(shape))))


def program_on(program: Program, inputs: Sequence[Tensor], small: Sizes) -> list[Tensor]:
    """The outputs, in order. Numbers of the text are by the sizes as given, arrays by the small ones."""
    known = dict(zip((array.name for array in program.inputs), inputs, strict=True))
    results = list(_done(program, known, small))
    return [results[place] for place in program.outputs]


def _done(program: Program, known: dict[str, Tensor], small: Sizes) -> Iterator[Tensor]:
    for statement in program.statements:
        if isinstance(statement, For):
            known |= _looped(statement, program, known, small)
        else:
            found = _value(statement.expr, known, dict(program.sizes), small)
            known[statement.name] = contracted([found], [statement.expr.dims], statement.dims)
        yield from [known[bound.name] for bound in bindings_of(statement)]


def _looped(loop: For, program: Program, known: Mapping[str, Tensor], small: Sizes) -> dict[str, Tensor]:
    carried = {name: known[name] for name in loop.carried}
    rows: dict[str, list[Tensor]] = {array.name: [] for array in loop.stacked}
    for turn in loop.turns(small[loop.dim]):
        here = {name: known[name] for name in loop.fixed} | carried
        here |= {array.name: row(known[array.name], array.dims.index(loop.dim), turn) for array in loop.scanned}
        list(_done(program.inside(loop), here, small))
        carried = {name: here[name] for name in carried}
        for name, made in rows.items():
            made.append(here[name])
    rows = {name: each[::-1] if loop.down else each for name, each in rows.items()}
    return carried | {array.name: stacked(rows[array.name], array.dims.index(loop.dim)) for array in loop.stacked}


def row(given: Tensor, place: int, index: int) -> Tensor:
    """At one index of a dim, which goes."""
    sizes = (*given.shape[:place], 1, *given.shape[place + 1 :])
    found = cut(given, [index if n == place else 0 for n in range(len(sizes))], sizes)
    return shaped(found, (*sizes[:place], *sizes[place + 1 :]))


def stacked(rows: Sequence[Tensor], place: int) -> Tensor:
    """Along a new dim."""
    sizes = rows[0].shape
    return joined([shaped(each, (*sizes[:place], 1, *sizes[place:])) for each in rows], place)


def _value(expr: Expr, known: Mapping[str, Tensor], sizes: Sizes, small: Sizes) -> Tensor:
    match expr:
        case Use(name=name):
            return known[name]
        case Named(operand=operand, dims=dims):
            return contracted([_value(operand, known, sizes, small)], [operand.dims], dims)
        case Product(operands=operands, dims=dims):
            values = [_value(operand, known, sizes, small) for operand in operands]
            return contracted(values, [operand.dims for operand in operands], dims)
        case Call(function=name, operands=operands, dims=dims, over=over):
            values = [_value(operand, known, sizes, small) for operand in operands]
            numbers = [None if scalar is None else number(scalar, sizes) for scalar in expr.numbers]
            types = [operand.dtype for operand in operands]
            return function_of(name, values, [o.dims for o in operands], types, dims, expr.dtype, over, numbers, small)
        case _:
            assert_never(expr)


def function_of(
    name: str,
    values: Sequence[Tensor],
    names: Sequence[Dims],
    types: Sequence[DType],
    dims: Dims,
    dtype: DType,
    over: Dims,
    numbers: Sequence[int | float | None],
    small: Sizes,
) -> Tensor:
    """A function of values with these dims, with the dims `dims`."""
    function = FUNCTIONS[name]
    if name == "index":
        return Tensor((small[dims[0]],), tuple(map(element, range(small[dims[0]]))))
    if name == "full":
        (filling,) = numbers
        assert filling is not None
        return filled(tuple(small[dim] for dim in dims), filling)
    if function.gives is Gives.ASKED:
        return contracted([converted(values[0], types[0], dtype)], [names[0]], dims)
    if function.over_dims:
        (own,) = names
        found = applied(name, values, (), tuple(own.index(dim) for dim in over))
        return contracted([found], [own if function.keeps_dims else tuple(d for d in own if d not in over)], dims)
    laid = [aligned(value, own, dims) for value, own in zip(values, names, strict=True)]
    return applied(name, laid, numbers, lowest=dtype.lowest)


def aligned(value: Tensor, own: Dims, wanted: Dims) -> Tensor:
    """The wanted dims in order; those that it lacks have size 1."""
    turned = transposed(value, [own.index(dim) for dim in wanted if dim in own])
    return shaped(turned, [value.shape[own.index(dim)] if dim in own else 1 for dim in wanted])


def plan_on(block: Block, inputs: Sequence[Tensor], small: Sizes) -> dict[ValueNumber, Tensor]:
    """Every value of a block on whole arrays: what moves is what it was."""
    known = dict(zip(block.inputs, inputs, strict=True))
    for step in block.steps:
        known |= dict(zip(step.results, _results(step, block, known, small), strict=True))
    return known


def _results(step: Step, block: Block, known: Mapping[ValueNumber, Tensor], small: Sizes) -> list[Tensor]:
    values = [known[value] for value in step.operands]
    if isinstance(step.op, Loop):
        return _trips(step.op, values, small)
    arrays, result = operands_of(step, block.values), block.values[step.result]
    match step.op:
        case Einsum():
            return [contracted(values, [array.dims for array in arrays], result.dims)]
        case Apply(function, over, numbers):
            types, names = [array.dtype for array in arrays], [array.dims for array in arrays]
            return [function_of(function, values, names, types, result.dims, result.dtype, over, numbers, small)]
        case Reshape():
            return [shaped(values[0], shape_after(step.op, values[0].shape))]
        case _:
            assert step.op.facts.is_move, step.op
            return values


def _trips(loop: Loop, values: Sequence[Tensor], small: Sizes) -> list[Tensor]:
    first, rows = loop.fixed + loop.carried, list[list[Tensor]]()
    carried = list(values[loop.fixed : first])
    for turn in loop.turns(values[first].shape[0] if loop.is_of_chunks else small[loop.dim]):
        taken = [row(each, 0, turn) for each in values[first:]]
        known = plan_on(loop.body, [*values[: loop.fixed], *carried, *taken], small)
        left = [known[value] for value in loop.body.outputs]
        carried = left[: loop.carried]
        rows.append(left[loop.carried :])
    rows = rows[::-1] if loop.down else rows
    return [*carried, *(stacked(each, 0) for each in zip(*rows, strict=True))]
