"""What a lowering says that all devices hold, in symbols: every step done on their blocks as its form has it.

    C[I, K]{U_XY} → C[I_XY, K]    over X, then over Y: two ReduceScatters, the second of the shares that the first left

This is the pass `lower` by itself: rounds, parts of an axis, stacked and folded shares, tables of cells. How JAX is
asked for them, and whether that is what it does, is the next passes' matter; where a form says no more than its move,
it is done by the shardings before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TypeAlias, assert_never

from shardc.ir.collectives import AllReduce, AllToAll, CollectivePermute, Slice, UnevenExchange
from shardc.ir.digits import Reshape
from shardc.ir.exchange import tails
from shardc.ir.masks import Mask
from shardc.ir.plan import Apply, Block, Einsum, Loop, Schedule, Step, ValueNumber, operands_of
from shardc.ir.sharding import Array, Sharding
from shardc.ir.uneven import cells, timetable
from shardc.lowering.forms import (
    Gathered,
    InOneRound,
    InRounds,
    InTurns,
    Looped,
    Lowering,
    OneForm,
    Pieces,
    Plain,
    PlainOp,
    Scattered,
)
from shardc.lowering.scatters import Along, Scattering
from shardc.lowering.tpu import FOLD
from shardc.proving.compared import put_together
from shardc.proving.devices import Devices, Held, alone, laid_out
from shardc.proving.laid import Laid
from shardc.proving.meaning import Sizes, function_of, row, stacked
from shardc.proving.tensors import Tensor, contracted, joined, parted, shaped, sum_of, transposed, zeros

Known = dict[ValueNumber, Held]
Change: TypeAlias = Callable[[Tensor], Tensor]


def forms_on(schedule: Schedule, lowering: Lowering, given: Sequence[Held], small: Sizes) -> Known:
    """Every value of a schedule, of inputs that lie as it says."""
    return _Forms(Devices(schedule.mesh), small).block(schedule.block, lowering, given)


@dataclass(frozen=True, slots=True)
class _Forms:
    devices: Devices
    small: Sizes

    def block(self, block: Block, lowering: Lowering, given: Sequence[Held]) -> Known:
        known = dict(zip(block.inputs, given, strict=True))
        for step, form in zip(block.steps, lowering.forms, strict=True):
            values = [known[value] for value in step.operands]
            if isinstance(form, Looped):
                assert isinstance(step.op, Loop)
                left: Sequence[Held] = self._trips(step.op, form, values)
            else:
                left = [self._step(step, form, block, values)]
            known |= dict(zip(step.results, left, strict=True))
        return known

    def _trips(self, loop: Loop, form: Looped, values: Sequence[Held]) -> list[Held]:
        first, rows = loop.fixed + loop.carried, list[list[Held]]()
        carried = list(values[loop.fixed : first])
        for turn in loop.turns(values[first].shape[0] if loop.is_of_chunks else self.small[loop.dim]):
            taken = [each.each(partial(row, place=0, index=turn)) for each in values[first:]]
            known = self.block(loop.body, form.body, [*values[: loop.fixed], *carried, *taken])
            left = [known[value] for value in loop.body.outputs]
            carried = left[: loop.carried]
            rows.append(left[loop.carried :])
        columns = zip(*(rows[::-1] if loop.down else rows), strict=True)
        return [*carried, *map(_stacked, columns)]

    def _step(self, step: Step, form: OneForm, block: Block, values: Sequence[Held]) -> Held:
        before, after = block.values[(*step.operands, step.result)[0]], block.values[step.result]
        match form:
            case Plain(op):
                found = self._plain(op, operands_of(step, block.values), after, values)
            case Pieces(AllToAll() as op):
                found = self._exchanged(op, values[0])
            case Pieces() | InTurns() | InOneRound():
                found = self._relaid(values[0], before.sharding, after)
            case Gathered():
                found = self._gathered(form, values[0])
            case Scattered(stages):
                found = reduce(self._scattered, stages, values[0])
            case InRounds(op):
                found = self._in_rounds(op, values[0], before.sharding)
            case _:
                assert_never(form)
        return replace(found, dtype=after.dtype)

    def _plain(self, op: PlainOp, arrays: Sequence[Array], after: Array, values: Sequence[Held]) -> Held:
        devices, mesh = self.devices, self.devices.mesh
        match op:
            case Einsum() | Apply():
                return self._local(op, arrays, after, values)
            case Reshape(_, joins):
                digits = (arrays[0] if joins else after).local_shape(mesh)
                return values[0].each(partial(_reshaped, op, digits))
            case AllReduce(axes, reduction):
                return devices.everywhere(values[0], axes, partial(put_together, reduction))
            case Slice(axes, dim):
                numbers = zip(values[0].blocks, devices.index(axes), strict=True)
                return Held(tuple(parted(each, mesh.product(axes), dim)[n] for each, n in numbers), after.dtype)
            case Mask(axes):
                numbers = zip(values[0].blocks, devices.index(axes), strict=True)
                return Held(tuple(zeros(each.shape) if n else each for each, n in numbers), after.dtype)
            case AllToAll():
                return self._exchanged(op, values[0])
            case CollectivePermute():
                return self._relaid(values[0], arrays[0].sharding, after)
            case _:
                assert_never(op)

    def _local(self, op: Einsum | Apply, arrays: Sequence[Array], after: Array, values: Sequence[Held]) -> Held:
        if isinstance(op, Apply) and not arrays:  # of whole dims: each device has its own part
            whole = function_of(op.function, [], [], [], after.dims, after.dtype, (), op.numbers, self.small)
            lies = Sharding(after.sharding.dims)  # partial sums of zeros are zeros
            return laid_out(whole, lies, after.dtype, self.devices, after.name)
        names, types = [array.dims for array in arrays], [array.dtype for array in arrays]

        def done(*blocks: Tensor) -> Tensor:
            if isinstance(op, Einsum):
                return contracted(blocks, names, after.dims)
            given = op.over, op.numbers, self.small
            return function_of(op.function, blocks, names, types, after.dims, after.dtype, *given)

        return Held(alone(done, [each.blocks for each in values]), after.dtype)

    def _exchanged(self, op: AllToAll, held: Held) -> Held:
        def exchanged(blocks: list[Tensor]) -> Sequence[Tensor]:
            pieces = [parted(block, len(blocks), op.dim) for block in blocks]
            return [joined([sent[n] for sent in pieces], op.source) for n in range(len(blocks))]

        return self.devices.gathered(held, self.devices.groups(op.axes), exchanged)

    def _relaid(self, held: Held, before: Sharding, after: Array) -> Held:
        """Each device has the block that it is to have; partial ones stay apart, as along a dim of their own."""
        apart = self.devices.mesh.ordered(before.unreduced)
        lies, shall = (Sharding((apart, *dims)) for dims in (before.dims, after.sharding.dims))
        laid = Laid(held.each(lambda block: shaped(block, (1, *block.shape))), lies, self.devices)
        found = laid_out(laid.whole(), shall, after.dtype, self.devices, after.name)
        return found.each(lambda block: shaped(block, block.shape[1:]))

    def _gathered(self, form: Gathered, held: Held) -> Held:
        for each in form.rounds:
            groups = self.devices.groups(each.axes, each.groups() if each.split else None)
            held = self.devices.gathered(held, groups, lambda blocks: [joined(blocks, form.dim)] * len(blocks))
        counts = [(dim, self.devices.mesh.product(axes)) for dim, axes in form.parts]
        return held.each(partial(_spread, form.dim, counts))

    def _scattered(self, held: Held, way: Scattering) -> Held:
        if way.left_out:
            left = self._scattered(held.each(partial(_without, way.left_out)), way.without_ones)
            return left.each(partial(_with_ones, way.left_out))
        ready, along, back = self._as_it_lies(way, held)
        held = held.each(ready)
        for each in way.rounds:
            groups = self.devices.groups(each.axes, each.groups() if each.split else None)
            held = self.devices.gathered(held, groups, partial(_shares, along))
        return held.each(back)

    def _as_it_lies(self, way: Scattering, held: Held) -> tuple[Change, int, Change]:
        """What is done to a block before, the dim that shares lie along then, and what is done to a share."""
        match way.along:
            case Along.PLAIN | Along.APART:
                return _same, way.dims[0][0], _same
            case Along.TURNED | Along.TURNED_APART:
                return _turned, _in_turn(way.dims[0][0], held.shape), _turned
            case Along.FOLDED:
                return lambda block: shaped(block, (-1, FOLD)), 0, lambda share: shaped(share, (-1,))
            case Along.STACKED | Along.EXCHANGED:
                counts = {dim: self.devices.mesh.product(axes) for dim, axes in way.dims}
                return partial(_one_behind_the_other, counts), 0, lambda share: shaped(share, share.shape[1:])
            case _:
                assert_never(way.along)

    def _in_rounds(self, op: UnevenExchange, held: Held, before: Sharding) -> Held:
        """By the tables: in each round every device sends cells of its block; laid are its own and those received."""
        mesh = self.devices.mesh
        grid, table = cells(tails(before.dims, op.dims, mesh)), timetable(before.dims, op.dims, mesh)
        assert table is not None, "an exchange that is legal has rounds"

        def exchanged(blocks: list[Tensor]) -> Sequence[Tensor]:
            own = [_cells(block, grid.held) for block in blocks]
            has = [list(each) for each in own]
            for each in table.rounds:
                sender_of = {receiver: sender for sender, receiver in each.pairs}
                for device, received in enumerate(has):
                    sender = sender_of.get(device, device)  # who is sent nothing reads nothing of that round
                    received += [own[sender][cell] for cell in each.cells[sender]]
            wanted = zip(has, table.laid, strict=True)
            return [_joined_cells([received[n] for n in laid], grid.wanted) for received, laid in wanted]

        return self.devices.gathered(held, self.devices.groups(op.axes), exchanged)


def _stacked(column: Sequence[Held]) -> Held:
    return Held(alone(lambda *blocks: stacked(blocks, 0), [each.blocks for each in column]), column[0].dtype)


def _reshaped(op: Reshape, digits: tuple[int, ...], block: Tensor) -> Tensor:
    """`digits`: the sizes on a device of the side that has them; of each dim the last is the rest."""
    shape, place = list[int](), 0
    for dim, some in enumerate(op.sizes):
        above = digits[place : place + len(some)]
        if op.joins:
            shape.append(math.prod(above) * block.shape[place + len(some)])
        else:
            shape += [*above, block.shape[dim] // math.prod(above)]
        place += len(some) + 1
    return shaped(block, shape)


def _shares(dim: int, blocks: list[Tensor]) -> Sequence[Tensor]:
    return parted(sum_of(blocks), len(blocks), dim)


def _spread(dim: int, counts: Sequence[tuple[int, int]], block: Tensor) -> Tensor:
    """What was gathered along one dim, laid along several: of these the last one's blocks are the major ones there."""
    found = block
    for each, count in reversed(counts):
        found = joined(parted(found, count, dim), each) if each != dim else found
    return found


def _same(block: Tensor) -> Tensor:
    return block


def _one_behind_the_other(counts: Mapping[int, int], block: Tensor) -> Tensor:
    """Shares, numbered over the dims in order."""
    return stacked(_cells(block, [counts.get(dim, 1) for dim in range(len(block.shape))]), 0)


def _cells(block: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Parts of a block, so many of each dim, in row-major order."""
    found = [block]
    for dim, count in enumerate(counts):
        found = [part for each in found for part in parted(each, count, dim)]
    return found


def _joined_cells(some: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    """The way back."""
    found = list(some)
    for dim, count in reversed(list(enumerate(counts))):
        found = [joined(found[n : n + count], dim) for n in range(0, len(found), count)]
    return found[0]


def _without(ones: Sequence[int], block: Tensor) -> Tensor:
    return shaped(block, [size for dim, size in enumerate(block.shape) if dim not in ones])


def _with_ones(ones: Sequence[int], block: Tensor) -> Tensor:
    shape = list(block.shape)
    for dim in ones:
        shape.insert(dim, 1)
    return shaped(block, shape)


def _turned(block: Tensor) -> Tensor:
    """The last two dims in turn."""
    return transposed(block, [_in_turn(dim, block.shape) for dim in range(len(block.shape))])


def _in_turn(dim: int, shape: Sequence[int]) -> int:
    rank = len(shape)
    return {rank - 2: rank - 1, rank - 1: rank - 2}.get(dim, dim)
