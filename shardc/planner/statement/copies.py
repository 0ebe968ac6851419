"""What the steps of a statement copy, or wait for, because of one another, which is known once they stand in order.

C[I, K] = AllGather_X C[I_X, K]; return C                a collective's result is copied to become an output
Q[B, T, H, E] = x[B, T, D] · W[D, H, E]; return Q        a product's, to lie in other tiles
B[I_X, J] = AllToAll_X A[I, J_X]; return B       an input is brought into pieces, and its result laid from them
A[I_X] = Slice_X A[I]; A[I_X, J] = AllGather_Y …         a share is cut out, unless what reads it computes
A[I, J_X] = Slice_X A[I, J]                              and where its rows are no whole tiles
A[I0, I1, J] = AllGather_X A[I0, I1_X, J]; A[I, J] = …   the digit gathered lies above I0, and joined is laid anew
B[J, K] = AllGather_X B[J_X, K]; C[I, K] = A · B         the smaller operand is not brought to the chip beforehand
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

from shardc.cost.model import CostModel
from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, Op, Step, ValueNumber
from shardc.ir.sharding import Array
from shardc.lowering.copies import of_input
from shardc.lowering.forms import Laid
from shardc.lowering.target import Target
from shardc.lowering.timed import cuts_share_out
from shardc.lowering.tpu import reads_digits

Steps = Sequence[Step]


def copied(
    steps: Steps,
    first: int,
    made: AbstractSet[ValueNumber],
    output: ValueNumber | None,
    values: Sequence[Array],
    model: CostModel,
) -> Iterator[tuple[int, Laid]]:
    """The places of steps, from the first on, whose result is copied, or whose operand is; of a share that is so where
    it has to lie, which steps of other statements may tell. `made` are the values that are no inputs of the program.
    `output` is the one that becomes an output, if these steps end so: one of an earlier step is copied after it."""
    target, leaves, new = model.target, None if output is None else _maker(steps, output), steps[first:]
    for place, step in enumerate(new, first):
        if made.isdisjoint(step.operands) and of_input(step.op, values[step.result], place == leaves, target):
            yield place, Laid.LANES
        if is_ragged_share(step, values, target.mesh):
            yield place, Laid.PIECES
        elif place != leaves and step.op.facts.kind is Kind.SLICE:
            yield place, Laid.SHARE
        elif place != leaves and _is_laid_anew(new, step, values, target):
            yield place, Laid.WHOLE
    if leaves is not None:  # by a loop nothing is copied, however many it leaves
        from shardc.lowering.turned import laid_in_tiles  # where a slice is named

        left = values[steps[leaves].results[0]]
        in_tiles = laid_in_tiles(steps, steps[leaves].results, values, target.mesh)
        yield from ((place, Laid.TILES) for place, step in enumerate(steps) if not in_tiles.isdisjoint(step.results))
        if model.leaves_output_apart(steps[leaves].op, len(left.dims)):
            yield leaves, Laid.WHOLE


def reads_share(steps: Steps, read: Sequence[ValueNumber], values: Sequence[Array], mesh: Mesh) -> bool:
    """Whether some operand is a share of what is there, which is cut out as it is read: what reads it is then no single
    instruction."""
    cut = (step for step in steps if step.op.facts.kind is Kind.SLICE and not is_ragged_share(step, values, mesh))
    shares = {step.result for step in cut}
    return not shares.isdisjoint(read)


def is_ragged_share(step: Step, values: Sequence[Array], mesh: Mesh) -> bool:
    """A Slice along the last dim that is cut out by itself."""
    if step.op.facts.kind is not Kind.SLICE or step.op.on != (len(values[step.result].dims) - 1,):
        return False
    block, share = (values[value].local_shape(mesh) for value in (step.operands[0], step.result))
    return cuts_share_out(block, share)


def waiting(steps: Steps, first: int, values: Sequence[Array], mesh: Mesh) -> Iterator[int]:
    """The places, from the first on, of products whose smaller operand a collective has just left. An exchange of what
    several statements read is done long before."""
    timed = [place for place, step in enumerate(steps) if step.cost.time_s]
    for one, place in ((one, other) for one, other in pairwise(timed) if other >= first):
        before, step = steps[one], steps[place]
        if one < first and before.op.facts.kind is Kind.EXCHANGE:
            continue
        if isinstance(step.op, Einsum) and len(step.operands) == 2 and before.op.facts.communicates:
            left, right = (values[operand].local_bytes(mesh) for operand in step.operands)
            if step.operands[0 if left < right else 1] == before.result:
                yield place


def _maker(steps: Steps, value: ValueNumber) -> int | None:
    """The step that a value is from, seen through digits."""
    made = {value: place for place, step in enumerate(steps) for value in step.results}
    place = made.get(value)
    while place is not None and isinstance(steps[place].op, Reshape):
        place = made.get(steps[place].operands[0])
    return place


def _readers(steps: Steps, value: int) -> Iterator[Op]:
    """What reads a value, also in digits."""
    for step in steps:
        if value in step.operands:
            if isinstance(step.op, Reshape):
                yield from _readers(steps, step.result)
            else:
                yield step.op


def _is_laid_anew(steps: Steps, step: Step, values: Sequence[Array], target: Target) -> bool:
    """Whether a step gathers a digit with others above it, which is then joined with them and not read as it lies."""
    if step.op.facts.kind is not Kind.GATHER or len(step.op.on) != 1:
        return False
    shape, (dim,) = values[step.result].local_shape(target.mesh), step.op.on
    readers = [*_readers(steps, step.result)]
    if readers and all(reads_digits(op, target) for op in readers):
        return False
    joined = any(step.result in s.operands and isinstance(s.op, Reshape) and s.op.joins for s in steps)
    return joined and dim < len(shape) - 1 and math.prod(shape[:dim]) > 1
