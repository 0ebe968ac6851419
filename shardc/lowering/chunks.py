"""Which products can be done in chunks with the AllGather before or behind them, each gathered beside other chunks.

C[I, K] = AllGather_X (A[I_X, J] · B[J, K])    chunks of K: a chunk's columns are gathered beside the next one's product
C[I, K] = (AllGather_X A[I, J_X]) · B[J, K]    chunks of I: a chunk's rows are gathered beside the product of the last

The chunks are of a dim that stays free: one operand has it, and so has the result. Where a slice is named they are
whole tiles: of `Q[N, H, E]`, 64 heads of 128, chunks are of heads, 8 each, and not of 16 numbers of each head.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum, Schedule, Step, Together, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.repeats import any_repeats
from shardc.lowering.target import Target
from shardc.lowering.timed import cuts_whole_tiles

COUNT = 8


@dataclass(frozen=True, slots=True)
class Chunks:
    """So many of a dim, cut from this operand of the first step."""

    count: int
    dim: str
    operand: int


def chunks_of(schedule: Schedule, group: Together) -> Chunks | None:
    """How a group is done in chunks; None where it cannot be."""
    steps = schedule.steps[group.first : group.last + 1]
    if len(steps) != 2 or any_repeats(schedule.block, group.places):
        return None
    one, other = steps
    product, gather = (one, other) if isinstance(one.op, Einsum) else (other, one)
    if not isinstance(product.op, Einsum) or gather.op.facts.kind is not Kind.GATHER or len(gather.op.on) != 1:
        return None
    return _chunks(schedule, one, product, gather)


def _chunks(schedule: Schedule, first: Step, product: Step, gather: Step) -> Chunks | None:
    """Of the longest dim."""
    arrays, result = operands_of(product, schedule.values), schedule.values[product.result]
    if len(set(product.operands)) != 2:
        return None
    (place,) = gather.op.on
    if first is product:
        gathered, at = result, [0, 1]
    else:
        at = [product.operands.index(gather.result)]
        gathered = arrays[at[0]]
    mesh, moved = schedule.mesh, gathered.dims[place]
    sizes = dict(zip(result.dims, result.local_shape(mesh), strict=True))
    free = [
        (sizes[dim], -n, dim) for n in at for dim in arrays[n].dims if dim != moved and _is_free(dim, arrays, result)
    ]
    held = (*arrays, result)
    cut = [found for found in free if found[0] % COUNT == 0 and _may_cut(found[2], held, Target.of(schedule.program))]
    if not cut:
        return None
    _, n, dim = max(cut)
    return Chunks(COUNT, dim, -n if first is product else 0)


def _may_cut(dim: str, held: tuple[Array, ...], target: Target) -> bool:
    """Whether chunks of a dim are whole tiles of each array that has it."""
    if not target.names_slice:
        return True
    having = [(array.local_shape(target.mesh), array.dims.index(dim)) for array in held if dim in array.dims]
    return all(cuts_whole_tiles(shape, place, COUNT) for shape, place in having)


def _is_free(dim: str, arrays: tuple[Array, ...], result: Array) -> bool:
    return dim in result.dims and sum(dim in array.dims for array in arrays) == 1


def is_read(value: int, users: Mapping[int, Sequence[Step]], outputs: Collection[int]) -> bool:
    """Whether anything reads an array but functions of its elements that make an output of it."""
    read = users.get(value, ())
    maps = [step for step in read if isinstance(step.op, Apply) and not step.op.over and step is read[0]]
    return value not in outputs and (len(maps) < max(1, len(read)) or is_read(maps[0].result, users, outputs))
