"""The memory that the TPU's compiler will ask for: arguments, outputs, temporary buffers.

`memory.peak_bytes` counts each value while it lives, as any device must. The compiler adds to that, by rules
that were read off what it does (libtpu 0.0.42.1), and that `shardc verify` holds against it:

- arrays lie in tiles of 8 rows by 128 lanes, along the two dims that waste least;
- what a collective leaves lies among the temporaries; an output that one leaves is a copy of it;
- but an AllReduce adds up where its operand lies;
- until an output is written its buffer holds other values, not what collectives leave (`cost.heap.Buffers`);
- an AllToAll copies its operand, unless it splits the first dim, and its result, twice if it joins the last of three;
- an exchange over several dims at once, or of thin blocks, copies its operand and its result, twice if of the last dim;
- in an exchange in rounds what arrives stays until all of it is laid, the last dim's parts of lanes copied once more;
- a ReduceScatter in two rounds leaves what is between them, and an exchanged one its shares, before they are added;
  one over several dims copies its operand, twice if one is the last;
- an AllGather along the last dim, of a block that is not whole lanes, copies its operand;
- an AllGather over several dims is copied, piece by piece;
- a Slice that only products read is part of them, and one Slice after another is one Slice;
- slices that are small, pieces on their way out, and what is laid from few, stay on the chip.

Temporaries share a heap in order of time (`cost.heap`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from shardc.cost.heap import Buffers
from shardc.cost.tiles import LANES, tiled_bytes, up
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    Slice,
)
from shardc.ir.digits import Reshape
from shardc.ir.exchange import is_thin, tails
from shardc.ir.plan import Apply, Block, Einsum, Loop, Schedule, Step
from shardc.ir.sharding import Axes
from shardc.lowering.scatters import Form, Parts, scattering

_SMALL = 2**24  # bytes of a slice, or of what is laid from pieces, that stay on the chip
_SENT = 2**25  # bytes of pieces to send that stay on the chip


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bytes of one device."""

    argument_bytes: int
    output_bytes: int
    temporary_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.argument_bytes + self.output_bytes + self.temporary_bytes


def allocation(schedule: Schedule) -> Allocation:
    """What a program's compiled form is predicted to allocate on each device.

    The compiler is free to take operands in another order, and takes that which needs less.
    """
    sizes = tuple(tiled_bytes(value.local_shape(schedule.mesh), value.dtype.bytes) for value in schedule.values)
    temporary = min(_Walk(schedule, sizes, steps).temporary_bytes() for steps in _orders(schedule.block))
    return Allocation(
        sum(sizes[number] for number in schedule.inputs), sum(sizes[number] for number in schedule.outputs), temporary
    )


def _orders(block: Block) -> Iterator[tuple[Step, ...]]:
    """The steps with each product's first operand made first, and with its last."""
    made = {value: place for place, step in enumerate(block.steps) for value in step.results}
    for turn in (1, -1):
        found: dict[int, Step] = {}
        pending = [(number, False) for number in reversed(block.outputs)]
        while pending:
            number, ready = pending.pop()
            place = made.get(number)
            if place is None or place in found:
                continue
            if ready:
                found[place] = block.steps[place]
            else:
                pending.append((number, True))
                pending += [(operand, False) for operand in block.steps[place].operands[::-turn]]
        yield tuple(found.values())


@dataclass(slots=True)
class _Walk:
    """Steps in an order, each taking and giving back buffers."""

    schedule: Schedule
    sizes: tuple[int, ...]
    steps: tuple[Step, ...]
    heap: Buffers = field(default_factory=Buffers)
    held: dict[int, int] = field(default_factory=dict)  # the buffer of each value that has one
    users: dict[int, list[Step]] = field(default_factory=dict)
    inside: dict[int, int] = field(default_factory=dict)  # a Slice inside products: the value it is sliced from
    last: dict[int, Step] = field(default_factory=dict)

    def temporary_bytes(self) -> int:
        for step in self.steps:
            for operand in step.operands:
                self.users.setdefault(operand, []).append(step)
        for step in reversed(self.steps):
            if isinstance(step.op, Slice) and (self._only_products_read(step.result) or self._is_cut_again(step)):
                self.inside[step.result] = step.operands[0]
        steps = [step for step in self.steps if not self.inside.keys() & set(step.results)]
        self.last = {self._whole(operand): step for step in steps for operand in step.operands}
        for step in steps:
            self._lower(step)
        return self.heap.temporary_bytes

    def _lower(self, step: Step) -> None:
        match step.op:
            case Einsum() | Apply():
                self._leave(step, self._result(step, self.sizes[step.result]))
            case Slice():
                self._leave(step, self._result(step, _beyond(_SMALL, self.sizes[step.result])))
            case AllToAll(axes) if not self._is_thin(step, axes):
                self._exchange(step, step.op)
            case AllToAll() | JointExchange():
                self._exchange_jointly(step)
            case DirectExchange():
                self._exchange_in_rounds(step, step.op)
            case Reshape():
                self._rename(step)
            case JointGather():
                self._gather_jointly(step)
            case AllGather():
                self._collective(step, copies=self._copied_before(step, step.op))
            case ReduceScatter(axes, dim):
                self._scatter(step, ((dim, axes),))
            case JointScatter(parts):
                self._scatter(step, parts)
            case AllReduce():
                self._addup(step)
            case CollectivePermute():
                self._collective(step, copies=False)
            case Loop():
                self._trips(step, step.op)
            case _:
                assert_never(step.op)

    def _trips(self, step: Step, loop: Loop) -> None:
        """What a trip takes is gone after it; what is carried and stacked lies where the loop leaves it."""
        trip = self.heap.take(allocation(self.schedule.inside(loop)).temporary_bytes, apart=True)
        for value in step.results:
            held = self.held[value] = self.heap.take(self.sizes[value])
            if value in self.schedule.outputs:
                self.heap.becomes_output(held)
        self.heap.give_back(trip)
        self._end(step)

    def _result(self, step: Step, size: int) -> int:
        """A buffer for what a local step leaves; an output's is its own."""
        return self._output(step) if self._becomes_output(step) else self.heap.take(size)

    def _output(self, step: Step) -> int:
        number = self.heap.take(self.sizes[step.result])
        self.heap.becomes_output(number)
        return number

    def _arrived(self, step: Step) -> int:
        """What a collective leaves: never where an output will be."""
        return self.heap.take(self.sizes[step.result], apart=True)

    def _collective(self, step: Step, copies: bool) -> None:
        copy = self._copy_operand(step) if copies else None
        result = self._arrived(step)
        self._leave(step, result, *([] if copy is None else [copy]))

    def _addup(self, step: Step) -> None:
        """In place, where nothing else reads the operand, and it is no argument."""
        operand = step.operands[0]
        held = self.held.get(operand)
        if held is None or self.last[operand] is not step:
            return self._collective(step, copies=False)
        del self.held[operand]
        if self._becomes_output(step):
            self.heap.becomes_output(held)
        self._leave(step, held)

    def _scatter(self, step: Step, parts: Parts) -> None:
        before, mesh = self.schedule.values[step.operands[0]], self.schedule.mesh
        way = scattering(parts, before.local_shape(mesh), before.dtype, self.schedule.program)
        if way.form is Form.EXCHANGED:
            shares = self.heap.take(self.sizes[step.operands[0]], apart=True)
            self._end(step)
            self._leave(step, self._result(step, self.sizes[step.result]), shares)
        elif len(way.rounds) > 1:
            between = self.heap.take(self.sizes[step.result] * way.rounds[-1].parts(mesh), apart=True)
            self._end(step)
            self._leave(step, self.heap.take(self.sizes[step.result]), between)
        elif len(parts) > 1:
            stacked = self._copy_operand(step)
            if any(dim == len(before.dims) - 1 for dim, _ in parts):
                stacked = self._moved(stacked, self.sizes[step.operands[0]])
            self._leave(step, self.heap.take(self.sizes[step.result]), stacked)
        else:
            self._leave(step, self.heap.take(self.sizes[step.result]))

    def _exchange(self, step: Step, op: AllToAll) -> None:
        """Operand, copy split first; exchanged; copy joined; and again if joined along the last dim."""
        copy = self._copy_operand(step) if op.dim else None
        result = self._arrived(step)
        if copy is not None:
            self.heap.give_back(copy)
        self._end(step)
        rank, is_output = len(self.schedule.values[step.result].dims), self._becomes_output(step)
        twice = op.source == rank - 1 and (rank > 2 or is_output)
        if twice:  # where it goes on to a product, the first copy stays on the chip
            result = self._moved(result, _beyond(0 if is_output else _SMALL, self.sizes[step.result]))
        if not is_output:
            result = self._moved(result, self.sizes[step.result])
        self._leave(step, result)

    def _is_thin(self, step: Step, axes: Axes) -> bool:
        mesh = self.schedule.mesh
        return is_thin(self.schedule.values[step.operands[0]].local_shape(mesh), mesh.product(axes))

    def _exchange_jointly(self, step: Step) -> None:
        """Pieces brought to the front, exchanged, and laid where they belong; each in two copies if of the last dim."""
        mesh, rank = self.schedule.mesh, len(self.schedule.values[step.result].dims)
        before, after = (self.schedule.values[n].local_shape(mesh)[-1] for n in (step.operands[0], step.result))
        copies = [] if self._is_in_order(step) else [self._copy_operand(step)]
        if copies and after < before:
            copies = [self._moved(copies[0], self.sizes[step.operands[0]])]
        result = self._arrived(step)
        for copy in copies:
            self.heap.give_back(copy)
        if after > before and (rank > 2 or self._becomes_output(step)):
            result = self._moved(result, self.sizes[step.result])
        self._leave(step, self._result(step, self.sizes[step.result]), result)

    def _is_in_order(self, step: Step) -> bool:
        """Whether the pieces to send already lie one behind the other, in the order of the devices."""
        if not isinstance(step.op, JointExchange):
            return False
        mesh = self.schedule.mesh
        first, *others = tails(self.schedule.values[step.operands[0]].sharding.dims, step.op.dims, mesh)
        return first.new == mesh.ordered(first.new) and not first.old and all(part.cut == 1 for part in others)

    def _moved(self, number: int, size: int) -> int:
        """A copy in place of a buffer."""
        copy = self.heap.take(size)
        self.heap.give_back(number)
        return copy

    def _exchange_in_rounds(self, step: Step, op: DirectExchange) -> None:
        """Pieces are cut out, sent, and put where they belong."""
        before, mesh = self.schedule.values[step.operands[0]], self.schedule.mesh
        cuts = tails(before.sharding.dims, op.dims, mesh)
        shape = tuple(n // part.cut for n, part in zip(before.local_shape(mesh), cuts, strict=True))
        piece = tiled_bytes(shape, before.dtype.bytes)
        sent = [self.heap.take(piece) for _ in range(op.rounds - _SENT // piece)]
        self._end(step)
        received = [self.heap.take(piece, apart=True) for _ in range(op.rounds)]
        if shape[-1] % LANES and cuts[-1].joined > 1:  # laid by rows of lanes that are not whole
            received.append(self.heap.take(math.prod(shape[:-1]) * up(shape[-1], LANES) * before.dtype.bytes))
        if cuts[0].joined > 1 and sent:  # what arrives is laid there at once; elsewhere the whole is made before
            self.heap.give_back(sent.pop())
        self._leave(step, self._result(step, self.sizes[step.result]), *sent, *received)

    def _gather_jointly(self, step: Step) -> None:
        gathered = self._arrived(step)
        self._end(step)
        self._leave(step, self._joined(step), gathered)

    def _joined(self, step: Step) -> int:
        """A buffer for what is laid together from pieces."""
        return self._result(step, _beyond(_SMALL, self.sizes[step.result]))

    def _copy_operand(self, step: Step) -> int:
        copy = self.heap.take(self.sizes[step.operands[0]])
        self._end(step)
        return copy

    def _copied_before(self, step: Step, op: AllGather) -> bool:
        before = self.schedule.values[step.operands[0]]
        is_last = op.dim == len(before.dims) - 1
        return is_last and before.local_shape(self.schedule.mesh)[-1] % LANES != 0

    def _rename(self, step: Step) -> None:
        """The same buffer under another shape."""
        held = self.held.pop(step.operands[0], None)
        self._leave(step, self.heap.take(0) if held is None else held)

    def _leave(self, step: Step, result: int, *scratch: int) -> None:
        """The step is over: its result holds a buffer; an output that is not in its own yet is copied there."""
        for number in scratch:
            self.heap.give_back(number)
        self._end(step)
        if self._becomes_output(step) and not self.heap.is_output(result):
            copy = self._output(step)
            self.heap.give_back(result)
            result = copy
        self.held[step.result] = result

    def _end(self, step: Step) -> None:
        """Operands that nothing else reads give their buffers back."""
        for operand in {self._whole(operand) for operand in step.operands}:
            if self.last[operand] is step and operand in self.held:
                self.heap.give_back(self.held.pop(operand))

    def _only_products_read(self, value: int) -> bool:
        users = self.users.get(value, [])
        is_output = value in self.schedule.outputs
        return bool(users) and not is_output and all(self._is_product(user) for user in users)

    def _is_product(self, step: Step) -> bool:
        return isinstance(step.op, Einsum) or bool(self.inside.keys() & set(step.results))

    def _is_cut_again(self, step: Step) -> bool:
        users = self.users.get(step.result, [])
        return len(users) == 1 and isinstance(users[0].op, Slice | DirectExchange) and not self._is_output(step)

    def _whole(self, value: int) -> int:
        while value in self.inside:
            value = self.inside[value]
        return value

    def _is_output(self, step: Step) -> bool:
        return step.result in self.schedule.outputs

    def _becomes_output(self, step: Step) -> bool:
        """As it is, or under another shape."""
        users = self.users.get(step.result, [])
        renamed = len(users) == 1 and isinstance(users[0].op, Reshape) and self._is_output(users[0])
        return renamed or self._is_output(step)


def _beyond(limit: int, size: int) -> int:
    """The bytes off the chip."""
    return 0 if size <= limit else size
