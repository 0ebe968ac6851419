"""The memory that the TPU's compiler will ask for: arguments, outputs, temporary buffers.

`memory.peak_bytes` counts each value while it lives, as any device must. The compiler adds to that, by rules
that were read off what it does (libtpu 0.0.42.1), and that `shardc verify` holds against it:

- arrays lie in tiles of 8 rows by 128 lanes, along the two dims that waste least (`lowering.tiles`);
- what a collective leaves lies among the temporaries; an output that one leaves is a copy of it;
- but an AllReduce adds up where its operand lies;
- until an output is written its buffer holds other values, not what collectives leave (`cost.heap.Buffers`);
- each form takes what `lowering.buffers` says: copies, what is between two rounds, pieces on their way;
- a Slice that only products read is part of them, and one Slice after another is one Slice;
- functions are computed as they are read, or where their operand lay (`lowering.fusion`);
- what only products read, which round it, lies as bf16 (`lowering.rounded`);
- on a chip whose own memory is large, what finds room there takes none, but for large pieces that loops take and leave,
  or steps that are done as one (`cost.on_chip`).

Temporaries share a heap in order of time (`cost.heap`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import assert_never

from shardc.cost.heap import Buffers
from shardc.cost.scheduled import Rings, orders_early, orders_of_least
from shardc.ir.digits import Reshape
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum, How, Loop, Schedule, Step, Together, ValueNumber, every_step
from shardc.lowering import tpu, work
from shardc.lowering.buffers import Actions, Blocks, Done, Give, InPlace, Leave, Same, Take, Where, actions, size_of
from shardc.lowering.chunks import is_read
from shardc.lowering.copies import copies_to_reshape
from shardc.lowering.forms import Form, Gathered, Looped, Lowering
from shardc.lowering.fusion import Reads, fused, reads
from shardc.lowering.held import held_as_one, held_by_two_rings
from shardc.lowering.lower import lower
from shardc.lowering.meeting import meeting_of
from shardc.lowering.rounded import as_kept
from shardc.lowering.target import Target

_F32 = 4  # bytes


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bytes of one device."""

    argument_bytes: int
    output_bytes: int
    temporary_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.argument_bytes + self.output_bytes + self.temporary_bytes


def allocation(schedule: Schedule, lowering: Lowering | None = None) -> Allocation:
    """What a program's compiled form is predicted to allocate on each device.

    The compiler is free to take steps in several orders. Where it hides collectives, what is promised holds in each
    that it was seen to take; elsewhere it takes the one of least memory.
    """
    lowering = lower(schedule) if lowering is None else lowering
    sizes = [size_of(value, schedule.mesh) for value in schedule.values]
    given, left = (sum(sizes[number] for number in ends) for ends in (schedule.inputs, schedule.outputs))
    taken = _temporary(schedule, lowering, tpu.on_chip(lowering.target))
    found = tpu.in_memory(taken, _beside(schedule, lowering), lowering.target)
    return Allocation(given, left, found)


def _temporary(schedule: Schedule, lowering: Lowering, room: int, loop: Loop | None = None) -> int:
    """Bytes of temporary buffers in memory, on a chip that has so much room for them; of a trip of this loop."""
    schedule = replace(schedule, block=as_kept(schedule.block))
    sizes = tuple(size_of(value, schedule.mesh) for value in schedule.values)
    forms: dict[tuple[int, ...], Form] = {
        step.results: form for step, form in zip(schedule.steps, lowering.forms, strict=True)
    }
    steps, again = schedule.steps, work.computes_again(lowering.target)
    waits = {steps[place].result: ValueNumber(value) for place, value in lowering.again if value is not None}
    if tpu.moves_early(lowering.target):
        found, worst = orders_early(schedule.block, waits, Rings.of(schedule)), max
    else:
        inside = fused(schedule.block, steps, max(again)).inside
        lies = {value: 0 if value in inside else size for value, size in enumerate(sizes)}
        found, worst = orders_of_least(schedule.block, lies), min
    ways = product(found, again)
    walks = (_Walk(schedule, forms, sizes, *way, loop, Buffers(room, loop is not None)) for way in ways)
    return worst(walk.temporary_bytes() for walk in walks)


def _beside(schedule: Schedule, lowering: Lowering) -> tpu.Beside:
    """What is compiled for the text: each turn of a permute is a collective, and there is one beside them."""
    calls = list(lowering.calls)
    return tpu.Beside(
        sum(call.times + (call.times > 1) for call in calls),
        0 if schedule.by is None else len(calls),
        sum(isinstance(done.step.op, Apply) for done in every_step(schedule.block)),
    )


@dataclass(slots=True)
class _Walk:
    """Steps in an order, each taking and giving back buffers."""

    schedule: Schedule
    forms: dict[tuple[int, ...], Form]  # by the results of the step
    sizes: tuple[int, ...]
    steps: tuple[Step, ...]
    again: int  # how much work products do of what they read, each for itself
    loop: Loop | None = None  # of which these are the steps of a trip
    heap: Buffers = field(default_factory=Buffers)
    held: dict[int, int] = field(default_factory=dict)  # the buffer of each value that has one
    by_products: set[int] = field(default_factory=set)  # the buffers in which products have written
    users: dict[int, list[Step]] = field(default_factory=dict)
    inside: dict[int, tuple[int, ...]] = field(default_factory=dict)  # of what has no buffer, what is read in its place
    products: frozenset[int] = frozenset()  # the results of loops that compute a product
    last: dict[int, Step] = field(default_factory=dict)

    def temporary_bytes(self) -> int:
        for step in self.steps:
            for operand in step.operands:
                self.users.setdefault(operand, []).append(step)
        for step in reversed(self.steps):
            if step.op.facts.kind is Kind.SLICE and (self._only_products_read(step.result) or self._is_cut_again(step)):
                self.inside[step.result] = step.operands
        found = fused(self.schedule.block, self.steps, self.again)
        self.inside, self.products = self.inside | found.inside, found.products
        steps = [step for step in self.steps if not self.inside.keys() & set(step.results)]
        self.last = {value: step for step in steps for value in self._read(step)}
        for step in steps:
            self._step(step, self.forms[step.results])
        for value in self.schedule.outputs:  # what is passed on is copied at the end
            if value in self.schedule.inputs:
                self.heap.becomes_output(self.heap.take(self.sizes[value]))
        return self.heap.temporary_bytes

    def _step(self, step: Step, form: Form) -> None:
        if isinstance(form, Looped):
            assert isinstance(step.op, Loop)
            size = _temporary(self.schedule.inside(step.op), form.body, self.heap.room, step.op)
            return self._trips(step, step.op, size)
        reused = self._reused(step)
        if reused is not None:
            held = self.held.pop(reused)
            if self._becomes_output(step):
                self.heap.becomes_output(held)
            return self._leave(step, held)
        if self._is_turned(step):
            self.heap.give_back(self.heap.take(self.sizes[step.result], apart=True))
        if any(group.how is How.RINGS and step in steps[:-1] for group, steps in self._groups()):
            # What two rings bring round has its memory with their product.
            return self._leave(step, self.heap.take(0))
        beside = self.heap.take(self._held_as_one(step), apart=True)
        self._do(step, actions(form, self._blocks(step)))
        self.heap.give_back(beside)
        if self._is_as_one(step):  # its parts are read and left in memory
            self.heap.stays_in_memory(beside, *self.heap.since(beside))

    def _groups(self) -> Iterator[tuple[Together, tuple[Step, ...]]]:
        """The steps that are done as one."""
        for group in self.schedule.together:
            yield group, self.schedule.steps[group.first : group.last + 1]

    def _is_as_one(self, step: Step) -> bool:
        return any(step is each for _, steps in self._groups() for each in steps)

    def _held_as_one(self, step: Step) -> int:
        """Where the step ends a group of steps that are done as one, what that takes beside them."""
        group = next((group for group, steps in self._groups() if steps[-1] is step), None)
        if group is None:
            return 0
        if group.how is How.RINGS:
            return self._of_two(group)
        kind, size, target = step.op.facts.kind, self.sizes[step.result], Target.of(self.schedule.program)
        return held_as_one(group.how, kind, size, is_read(step.result, self.users, self.schedule.outputs), target)

    def _of_two(self, group: Together) -> int:
        """The sum and the blocks of two rings."""
        met, target = meeting_of(self.schedule, group), Target.of(self.schedule.program)
        *gathers, product = self.schedule.steps[group.first : group.last + 1]
        assert met is not None, "what is asked for as two rings can be done so"
        size = {gather.result: self.sizes[gather.operands[0]] for gather in gathers}
        fine, coarse = (size[product.operands[place]] for place in (met.fine, 1 - met.fine))
        summed = self.sizes[product.result] // self.schedule.values[product.result].dtype.bytes * _F32
        return held_by_two_rings((fine, coarse), summed, met.within > 1, target)

    def _blocks(self, step: Step) -> Blocks:
        before, after = (self.schedule.values[number] for number in ((*step.operands, step.result)[0], step.result))
        users = self.users.get(step.result, [])
        moves_on = len(users) == 1 and users[0].is_collective
        has_products = any(isinstance(each.op, Einsum) for each in self.steps)
        return Blocks(before, after, self.schedule.mesh, self._becomes_output(step), moves_on, has_products)

    def _trips(self, step: Step, loop: Loop, size: int) -> None:
        """What a trip takes of memory is gone after it. What is carried lies where it lay, unless something else reads
        that, or it is an argument; what is stacked has a buffer from the first trip on."""
        trip = self.heap.take(size)
        fixed = (self.held[operand] for operand in step.operands[: loop.fixed] if operand in self.held)
        self.heap.stays_in_memory(trip, *fixed)
        for place, value in enumerate(step.results):
            operand = step.operands[loop.fixed + place] if place < loop.carried else None
            is_free = operand in self.held and self.last[operand] is step and step.operands.count(operand) == 1
            held = self.held.pop(operand) if operand is not None and is_free else self.heap.take(self.sizes[value])
            self.heap.stays_in_memory(held)
            if value in self.schedule.outputs:
                self.heap.becomes_output(held)
            self.held[value] = held
        self.heap.give_back(trip)
        self._end(step)

    def _do(self, step: Step, todo: Actions) -> None:
        scratch: dict[str, int] = {}
        for action in todo:
            match action:
                case Take(name, size, where):
                    scratch[name] = self._taken(step, size, where)
                case Give(name):
                    self.heap.give_back(scratch.pop(name))
                case Done():
                    self._end(step)
                case Leave(name):
                    self._leave(step, scratch.pop(name), *scratch.values())
                case InPlace(size):
                    self._addup(step, size)
                case Same():
                    held = self.held.pop(step.operands[0], None)
                    self._leave(step, self.heap.take(0) if held is None else held)
                case _:
                    assert_never(action)

    def _taken(self, step: Step, size: int, where: Where) -> int:
        match where:
            case Where.HEAP:
                return self.heap.take(size)
            case Where.APART:
                return self.heap.take(size, apart=True)
            case Where.OWN:
                return self._output(step) if self._becomes_output(step) else self.heap.take(size)
            case _:
                assert_never(where)

    def _output(self, step: Step) -> int:
        number = self.heap.take(self.sizes[step.result])
        self.heap.becomes_output(number)
        return number

    def _addup(self, step: Step, size: int) -> None:
        """In place, where nothing else reads the operand, and it is no argument."""
        operand = step.operands[0]
        held = self.held.get(operand)
        if held is None or self.last[operand] is not step:
            return self._leave(step, self.heap.take(size, apart=True))
        del self.held[operand]
        if self._becomes_output(step) and not self._is_stacked(step):
            self.heap.becomes_output(held)
        self._leave(step, held)

    def _is_stacked(self, step: Step) -> bool:
        """Whether a trip leaves it as a row of an output: only what fusions compute is written there at once."""
        return self.loop is not None and step.result in self.loop.body.outputs[self.loop.carried :]

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
        self.by_products |= {result} if step.result in self.products or isinstance(step.op, Einsum) else set()

    def _end(self, step: Step) -> None:
        """Operands that nothing else reads give their buffers back."""
        for operand in self._read(step):
            if self.last[operand] is step and operand in self.held:
                self.heap.give_back(self.held.pop(operand))

    def _only_products_read(self, value: int) -> bool:
        users = self.users.get(value, [])
        is_output = value in self.schedule.outputs
        return bool(users) and not is_output and all(self._is_product(user) for user in users)

    def _is_product(self, step: Step) -> bool:
        return tpu.slices_as_it_reads(step.op) or bool(self.inside.keys() & set(step.results))

    def _is_cut_again(self, step: Step) -> bool:
        users = self.users.get(step.result, [])
        return len(users) == 1 and tpu.cuts_what_it_reads(users[0].op) and not self._is_output(step)

    def _read(self, step: Step) -> dict[int, None]:
        """The values in memory that a step reads."""
        found, waiting = dict[int, None](), list[int](step.operands)
        while waiting:
            value = waiting.pop()
            if value in self.inside:
                waiting += self.inside[value]
            else:
                found[value] = None
        return found

    def _reused(self, step: Step) -> int | None:
        """An operand that nothing reads any more, in whose place the elements of the result come to lie."""
        value, is_output = step.result, self._becomes_output(step)
        if value in self.products or (is_output and self.loop is not None):
            return None
        if reads(step, self.schedule.block) not in (Reads.ELEMENTS, Reads.SHARES):
            return None
        free = (each for each in self._read(step) if each in self.held and self.last[each] is step)
        alike = (each for each in free if self.sizes[each] == self.sizes[value])
        lies_apart = self._lies_apart if is_output else self.heap.is_output
        return next((each for each in alike if not lies_apart(self.held[each])), None)

    def _lies_apart(self, buffer: int) -> bool:
        """Whether a buffer never becomes an output's: a collective's, or laid out as a product lays it out."""
        return self.heap.is_apart(buffer) or buffer in self.by_products

    def _is_turned(self, step: Step) -> bool:
        read = self._read(step)
        if step.op.facts.kind is Kind.SLICE and self._becomes_output(step):
            return any(self._is_gathered_turned(each) for each in read)
        others = any(each not in self.products and each not in self.schedule.inputs for each in read)
        is_output = self._becomes_output(step) and reads(step, self.schedule.block) is Reads.ELEMENTS
        return tpu.copies_beside_product(is_output, not self.products.isdisjoint(read), others)

    def _is_gathered_turned(self, value: int) -> bool:
        form = self.forms.get((value,))
        if not isinstance(form, Gathered) or form.rows is not None or len(form.parts) > 1:
            return False
        (operand,) = next(step.operands for step in self.steps if step.results == (value,))
        local = self.schedule.values[operand].local_shape(self.schedule.mesh)
        return tpu.is_turned_by_gather(local, form.dim)

    def _is_output(self, step: Step) -> bool:
        return step.result in self.schedule.outputs

    def _becomes_output(self, step: Step) -> bool:
        """As it is, or under another shape."""
        users = self.users.get(step.result, [])
        renamed = len(users) == 1 and isinstance(users[0].op, Reshape) and self._is_output(users[0])
        return (renamed and not self._is_copied(users[0])) or self._is_output(step)

    def _is_copied(self, step: Step) -> bool:
        """Of a Reshape: whether it lies in other tiles after."""
        before, after = (self.schedule.values[number] for number in (step.operands[0], step.result))
        return copies_to_reshape(before, after, self.schedule.mesh)
