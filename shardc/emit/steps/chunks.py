"""A product and the AllGather before or behind it in chunks: a compiler gathers one beside the product of another.

joined = jax.lax.empty(…)
for turn in range(8):
    piece = W[:, turn-th eighth]
    piece = In · piece
    piece = AllGather of piece
    joined[:, turn-th eighth] = piece
Out = joined
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shardc.emit.allowed import JOINED, PIECE, TURN
from shardc.emit.exprs import (
    BinOp,
    Code,
    Const,
    Expr,
    Items,
    Line,
    Loop,
    Name,
    Scan,
    call,
    over,
    renamed,
    size_of,
    times,
)
from shardc.emit.steps import local
from shardc.ir.plan import Einsum, Schedule, Step, Together, operands_of
from shardc.lowering.chunks import Chunks

_PIECE, _JOINED, _TURN = Name(PIECE), Name(JOINED), Name(TURN)
Gather = Callable[[Step], Sequence[Expr | Code]]  # the calls of a gather, of the name ""


def in_chunks(schedule: Schedule, group: Together, found: Chunks, names: Sequence[str], gather: Gather) -> list[Code]:
    """The lines of a group."""
    first, last = schedule.steps[group.first], schedule.steps[group.last]
    result = schedule.values[last.result]
    lines = [_cut(schedule, first, found, names), *_done(schedule, first, found, names, gather)]
    lines += [*_done(schedule, last, found, names, gather), _put(result.dims.index(found.dim))]
    empty = call("jax.lax.empty", Items(tuple(_sizes(schedule, group, names))), local.type_name(result.dtype))
    return [Line(JOINED, empty, ""), Loop(found.count, tuple(lines)), Line(names[last.result], _JOINED, str(result))]


def _cut(schedule: Schedule, first: Step, chunks: Chunks, names: Sequence[str]) -> Line:
    """A chunk of the operand that has the dim."""
    value = first.operands[chunks.operand]
    dim, name = operands_of(first, schedule.values)[chunks.operand].dims.index(chunks.dim), Name(names[value])
    size = over(size_of(name, dim), chunks.count)
    return Line(PIECE, call("jax.lax.dynamic_slice_in_dim", name, BinOp(_TURN, "*", size), size, axis=Const(dim)), "")


def _done(schedule: Schedule, step: Step, chunks: Chunks, names: Sequence[str], gather: Gather) -> Iterator[Line]:
    """A step of a chunk."""
    if not isinstance(step.op, Einsum):
        for expr in gather(step):
            assert not isinstance(expr, Line | Loop | Scan), "one array is gathered along one dim"
            yield Line(PIECE, renamed(expr, "", PIECE), "")
        return
    arrays, result = operands_of(step, schedule.values), schedule.values[step.result]
    cut = [chunks.dim in array.dims for array in arrays]
    given = tuple(_PIECE if has else Name(names[value]) for has, value in zip(cut, step.operands, strict=True))
    found, summing = local.einsum(arrays, given, result), local.summing_type(arrays, result)
    rounded = found if summing in (None, result.dtype) else local.as_type(found, result.dtype)
    yield Line(PIECE, rounded, "")


def _put(dim: int) -> Line:
    start = BinOp(_TURN, "*", size_of(_PIECE, dim))
    return Line(JOINED, call("jax.lax.dynamic_update_slice_in_dim", _JOINED, _PIECE, start, axis=Const(dim)), "")


def _sizes(schedule: Schedule, group: Together, names: Sequence[str]) -> Iterator[Expr]:
    """Of the result, from the arrays that are read: the dim that is gathered is so many times as long."""
    steps = schedule.steps[group.first : group.last + 1]
    gather = next(step for step in steps if not isinstance(step.op, Einsum))
    moved, parts = schedule.values[gather.result].dims[gather.op.on[0]], schedule.mesh.product(gather.op.axes)
    made = {step.result for step in steps}
    read = [
        (Name(names[value]), array.dims)
        for step in steps
        for value, array in zip(step.operands, operands_of(step, schedule.values), strict=True)
        if value not in made
    ]
    for dim in schedule.values[steps[-1].result].dims:
        name, place = next((name, dims.index(dim)) for name, dims in read if dim in dims)
        yield times(parts if dim == moved else 1, size_of(name, place))
