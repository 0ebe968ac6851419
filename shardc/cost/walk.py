"""A block's steps in an order, each taking and giving back the buffers of what `cost.allocation` says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from shardc.cost import trips
from shardc.cost.brought import Brought
from shardc.cost.grouped import Groups, InBlocks
from shardc.cost.heap import Buffers
from shardc.cost.inside import Inside
from shardc.ir.digits import Reshape
from shardc.ir.operations import Kind
from shardc.ir.plan import Loop, Schedule, Step, ValueNumber
from shardc.lowering import buffers, tpu
from shardc.lowering.buffers import Actions, Blocks, Done, Give, InPlace, Leave, Same, Take, Where
from shardc.lowering.copies import copies_to_reshape, is_turn, lies_alike
from shardc.lowering.forms import Form, Gathered, Looped, Lowering, OneForm
from shardc.lowering.fusion import Reads, reads
from shardc.lowering.held import copied_at_the_end, lies_in_memory_in_trips, may_become_output, shares_place
from shardc.lowering.laid import lies_as_told


@dataclass(slots=True)
class Walk:
    """Steps in an order, each taking and giving back buffers."""

    schedule: Schedule
    forms: dict[tuple[int, ...], Form]  # by the results of the step
    sizes: tuple[int, ...]
    steps: tuple[Step, ...]
    groups: Groups
    of_trip: Callable[[Loop, Lowering], tuple[int, ...]]  # the temporary buffers of a trip of a loop
    users: Mapping[int, Sequence[Step]]
    inside: Inside
    has_products: bool
    in_tiles: frozenset[ValueNumber]  # what is copied to lie in an output's tiles
    places: Mapping[tuple[int, ...], int]  # of the results of each step, in the order of the text
    loop: Loop | None = None  # of which these are the steps of a trip
    heap: Buffers = field(default_factory=Buffers)
    held: dict[int, int] = field(default_factory=dict)  # the buffer of each value that has one
    by_products: set[int] = field(default_factory=set)  # the buffers in which products have written
    in_other_tiles: set[int] = field(default_factory=set)  # those of them that no output is written over
    beside: dict[int, list[int]] = field(default_factory=dict)  # further buffers that live as long as a value's
    placed: set[int] = field(default_factory=set)  # what is put together from blocks: nothing is computed in its place
    laid: dict[int, int] = field(default_factory=dict)  # buffers that are there from the start, until they are filled
    last: dict[int, Step] = field(default_factory=dict)
    copied_late: list[tuple[Step, int]] = field(default_factory=list)  # outputs, and the buffers they were gathered to
    in_place: bool = True  # whether what is computed with a product may lie in the place of what it reads by elements
    at_last: dict[int, bool] = field(default_factory=dict)  # whether values become outputs, as far as that is known
    adds_up_apart: bool = False  # whether sums beside a gather have buffers of their own
    awaited: set[int] = field(default_factory=set)  # what was gathered, and nothing has read yet

    def temporaries(self) -> tuple[int, ...]:
        """The bytes of each temporary buffer, when all take most."""
        steps = [step for step in self.steps if not self.inside.has(step)]
        self.last = {value: step for step in steps for value in self._read(step)}
        for step in steps:
            each = self.groups.blocks.get(step.results[0])
            if each is not None and each.is_ring and each.puts_together(step) and not self._becomes_output(step):
                self.laid[step.result] = self.heap.take(self.sizes[step.result])
        brought = Brought.of(self.schedule.block, steps, self.last, self.inside, self.sizes, self.heap)
        for place, step in enumerate(steps):
            self.heap.place = self.places.get(step.results, len(self.places))
            brought.before(place)
            self._step(step, self.forms[step.results])
            brought.after(place)
        for step, gathered in self.copied_late:
            self.heap.place = self.places[step.results]
            self._output(step)
            self.heap.give_back(gathered)
        for value in self.schedule.outputs:  # what is passed on is copied at the end
            if value in self.schedule.inputs:
                self.heap.becomes_output(self.heap.take(self.sizes[value]))
        return self.heap.temporaries

    def _step(self, step: Step, form: Form) -> None:
        if step.is_collective:
            for operand in [value for value in self._read(step) if value in self.held]:
                self.heap.may_be_near(self.held[operand], False)
        if isinstance(form, Looped):
            assert isinstance(step.op, Loop)
            return self._trips(step, step.op, self.of_trip(step.op, form.body))
        turns = is_turn(step, self.schedule.values)
        if turns and lies_alike(step, self.schedule.values, self.schedule.mesh):
            return self._do(step, iter((Same(),)))
        if turns and not self._becomes_output(step):
            return self._leave(step, self.heap.take(self.sizes[step.result], apart=True))
        reused = None if turns or self._is_laid_in_tiles(step) else self._reused(step)
        if reused is not None:
            held = self._taken_over(reused, step)
            if self._becomes_output(step):
                self.heap.becomes_output(held)
            return self._leave(step, held)
        if self._is_turned(step):
            self.heap.give_back(self.heap.take(self.sizes[step.result], apart=True))
        if self.groups.comes_round(step):
            return self._leave(step, self.heap.take(0))
        if step.results[0] in self.groups.blocks:
            return self._in_blocks(step, form, self.groups.blocks[step.results[0]])
        beside = self.heap.take(self.groups.held_as_one(step, self.users), apart=True)
        self._do(step, buffers.actions(form, self._blocks(step)))
        self.heap.give_back(beside)
        if self.groups.is_as_one(step):  # its parts are read and left in memory
            self.heap.stays_in_memory(beside, *self.heap.since(beside))

    def _in_blocks(self, step: Step, form: OneForm, each: InBlocks) -> None:
        """Blocks of what is gathered or added up, as long as the array would be there; what they lead to is whole."""
        brought = [self.heap.brings(size) for size in each.brought] if step is each.product else []
        if each.ends_in_sums(step):
            if each.gathered_after:
                self._end(step)
            is_own = self._becomes_output(step) and not each.gathered_after
            self._leave(step, self._output(step) if is_own else self.heap.take(self.sizes[step.result], apart=True))
        elif each.puts_together(step):
            beside = [*brought, self.heap.take(each.made, apart=True)]
            if each.is_ring and not self._becomes_output(step):
                self._leave(step, self.laid.pop(step.result))
                self.placed.add(step.result)
            else:
                self._do(step, buffers.actions(form, self._blocks(step)))
                self.heap.stays_in_memory(*self.heap.since(beside[-1]))
            for number in beside:
                self.heap.give_back(number)
        else:
            cut = self.heap.take(each.cut, apart=True)
            self.heap.stays_in_memory(cut, even_small=True)
            goes_on = (step, each.move) in zip(self.steps, self.steps[1:], strict=False)
            first, *others = (self.heap.take(each.block, apart=True) for _ in range(each.blocks(goes_on)))
            self.beside[step.result] = [*brought, cut, *others]
            self._leave(step, first)

    def _blocks(self, step: Step) -> Blocks:
        before, after = (self.schedule.values[number] for number in ((*step.operands, step.result)[0], step.result))
        users = self.users.get(step.result, [])
        moves_on = len(users) == 1 and users[0].is_collective
        return Blocks(
            before, after, self.schedule.mesh, self._becomes_output_as_it_is(step), moves_on, self.has_products
        )

    def _is_laid_in_tiles(self, step: Step) -> bool:
        """Whether what a step leaves is copied to lie in an output's tiles: of chunks each is as it is made."""
        in_blocks = self.groups.blocks.get(step.results[0])
        return step.results[0] in self.in_tiles and (in_blocks is None or in_blocks.is_ring)

    def _trips(self, step: Step, loop: Loop, sizes: tuple[int, ...]) -> None:
        """What a trip takes of memory is gone after it; no buffer lies in an output, though small ones were seen there.
        What is carried lies where it lay, unless something else reads that, or it is an argument; what is stacked has a
        buffer from the first trip on."""
        renamed = {value for value in step.operands if self.heap.is_empty(self.held.get(value))}
        laid = trips.laid_anew(step, loop, renamed, self.sizes, self.schedule.mesh)
        rows = [self.heap.take(each, apart=True) for each in laid]
        trip = [self.heap.take(each, apart=True) for each in sizes]
        fixed = (self.held[operand] for operand in step.operands[: loop.fixed] if operand in self.held)
        self.heap.stays_in_memory(
            *fixed, *([] if trips.lie_on_chip(step, loop, sum(sizes), self.sizes, self.heap.room) else trip)
        )
        for place, value in enumerate(step.results):
            operand = step.operands[loop.fixed + place] if place < loop.carried else None
            is_free = operand in self.held and self.last[operand] is step and step.operands.count(operand) == 1
            held = self.held.pop(operand) if operand is not None and is_free else self.heap.take(self.sizes[value])
            if place >= loop.carried or lies_in_memory_in_trips(self.sizes[value]):
                self.heap.stays_in_memory(held)
            if self._is_at_last(value):
                self.heap.becomes_output(held)
            self.held[value] = held
        for number in (*trip, *rows):
            self.heap.give_back(number)
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
                return self._output(step) if self._becomes_output_as_it_is(step) else self.heap.take(size)
            case _:
                assert_never(where)

    def _output(self, step: Step) -> int:
        number = self.heap.take(self.sizes[step.result])
        self.heap.becomes_output(number, self._is_added_to(step))
        return number

    def _addup(self, step: Step, size: int) -> None:
        """In place, where nothing else reads the operand, and it is no argument."""
        operand = step.operands[0]
        held = self.held.get(operand)
        is_own = self._becomes_output(step) and not self._is_stacked(step)
        beside_gather = self.adds_up_apart and held in self.by_products and bool(self.awaited) and not is_own
        if held is None or self.last[operand] is not step or beside_gather:
            return self._leave(step, self._output(step) if is_own else self.heap.take(size, apart=True))
        del self.held[operand]
        self.by_products.discard(held)
        found = self.heap.take_over(held)
        if is_own:
            self.heap.becomes_output(found)
        self._leave(step, found)

    def _is_added_to(self, step: Step) -> bool:
        """Whether a trip leaves it in the place of what came from the trip before, of which it is made."""
        if self.loop is None:
            return False
        carried = slice(self.loop.fixed, self.loop.fixed + self.loop.carried)
        pairs = zip(self.loop.body.inputs[carried], self.loop.body.outputs, strict=False)
        return any(after == step.result and self.last.get(before) is step for before, after in pairs)

    def _is_stacked(self, step: Step) -> bool:
        """Whether a trip leaves it as a row of an output: only what fusions compute is written there at once."""
        return self.loop is not None and step.result in self.loop.body.outputs[self.loop.carried :]

    def _leave(self, step: Step, result: int, *scratch: int) -> None:
        """The step is over: its result holds a buffer; an output that is not in its own yet is copied there."""
        for number in scratch:
            self.heap.give_back(number)
        self._end(step)
        if self._is_laid_in_tiles(step) and not self._becomes_output(step):
            copy = self.heap.take(self.sizes[step.result])
            self.heap.give_back(result)
            result = copy
        if self._becomes_output(step) and not self.heap.is_output(result):
            if self._is_copied_late(step):
                return self.copied_late.append((step, result))
            copy = self._output(step)
            self.heap.give_back(result)
            result = copy
        self.held[step.result] = result
        self.heap.may_be_near(result, self._is_function(step))
        self.by_products |= {result} if step.result in self.inside.loops else set()
        if result in self.by_products and self.inside.leaves_other_tiles(step, self.schedule):
            self.in_other_tiles.add(result)

    def _is_function(self, step: Step) -> bool:  # of elements, or sums of them, and no product
        kind = reads(step, self.schedule.block)
        return kind in (Reads.ELEMENTS, Reads.SUMS, Reads.SHARES) and step.result not in self.inside.loops

    def _end(self, step: Step) -> None:
        """Operands that nothing else reads give their buffers back."""
        self.awaited.difference_update(step.operands)
        if step.op.facts.kind is Kind.GATHER:
            self.awaited.update(step.results)
        for operand in self._read(step):
            if self.last[operand] is step and operand in self.held:
                for number in (self.held.pop(operand), *self.beside.pop(operand, ())):
                    self.heap.give_back(number)

    def _read(self, step: Step) -> dict[int, None]:
        """The values in memory that a step reads."""
        return self.inside.lying((*step.operands, *self.groups.also_read(step)))

    def _reused(self, step: Step) -> int | None:
        """An operand that nothing reads any more, in whose place the elements of the result come to lie."""
        value, is_output = step.result, self._becomes_output(step)
        if not self.placed.isdisjoint(self._read(step)) or (is_output and self.loop is not None):
            return None
        if reads(step, self.schedule.block) not in (Reads.ELEMENTS, Reads.SHARES):
            return None
        read = self.inside.overwritten(step)
        free = (each for each in self._read(step) if each in read and each in self.held and self.last[each] is step)
        alike = (each for each in free if self.sizes[each] == self.sizes[value])
        found = next((each for each in alike if not self._lies_apart(each, is_output)), None)
        return found if value not in self.inside.loops or self.in_place else None

    def _taken_over(self, value: int, step: Step) -> int:
        over_product = (before := self.held.pop(value)) in self.by_products or step.result not in self.inside.loops
        shared = shares_place(over_product, self.heap.fits_twice_on_chip(before), self.sizes[value])
        found = before if shared else self.heap.take_over(before, stays=step.result not in self.inside.loops)
        for among in (self.by_products, self.in_other_tiles):
            among |= {found} if before in among else set()
        return found

    def _lies_apart(self, value: int, is_output: bool) -> bool:
        """Whether nothing comes to lie over a value: no output over a collective's, or where a product left it so."""
        held = self.held[value]
        if not is_output or self.heap.is_apart(held) or held not in self.by_products:
            return self.heap.is_apart(held) if is_output else self.heap.is_output(held)
        told, block = lies_as_told(self.forms.get((value,))), self.schedule.block
        is_tiled = self.inside.is_read_in_tiles(value, self.steps, self.users, block, told)
        return not may_become_output(is_tiled or held in self.in_other_tiles, self.heap.fits_twice_on_chip(held))

    def _is_turned(self, step: Step) -> bool:
        if step.op.facts.kind is Kind.SLICE and self._becomes_output(step):
            return any(self._is_gathered_turned(each) for each in self._read(step))
        read, _ = self.inside.read_by(step)
        others = any(each not in self.inside.loops and each not in self.schedule.inputs for each in read)
        is_output = self._becomes_output(step) and reads(step, self.schedule.block) is Reads.ELEMENTS
        return tpu.copies_beside_product(is_output, not self.inside.loops.isdisjoint(read), others)

    def _is_gathered_turned(self, value: int) -> bool:
        form = self.forms.get((value,))
        if not isinstance(form, Gathered) or form.rows is not None or len(form.parts) > 1:
            return False
        (operand,) = next(step.operands for step in self.steps if step.results == (value,))
        local = self.schedule.values[operand].local_shape(self.schedule.mesh)
        return tpu.is_turned_by_gather(local, form.dim)

    def _becomes_output(self, step: Step) -> bool:
        return self._is_at_last(step.result)

    def _becomes_output_as_it_is(self, step: Step) -> bool:
        return self._becomes_output(step) and not self._is_laid_in_tiles(step)

    def _is_at_last(self, value: int) -> bool:
        """Whether a value is an output, as it is, or under another shape."""
        if value not in self.at_last:
            self.at_last[value] = value in self.schedule.outputs or self._is_renamed_at_last(value)
        return self.at_last[value]

    def _is_renamed_at_last(self, value: int) -> bool:
        users = self.users.get(value, [])
        if len(users) != 1 or not self._is_renamed_by(users[0]):
            return False
        return self._is_at_last(users[0].result)

    def _is_renamed_by(self, step: Step) -> bool:
        """Whether a step leaves what it reads where it lies."""
        if isinstance(step.op, Reshape):
            before, after = (self.schedule.values[number] for number in (step.operands[0], step.result))
            return not copies_to_reshape(before, after, self.schedule.mesh)
        return is_turn(step, self.schedule.values) and lies_alike(step, self.schedule.values, self.schedule.mesh)

    def _is_copied_late(self, step: Step) -> bool:
        """Whether an output that a step leaves elsewhere is copied to its place after all other steps."""
        if self.loop is not None or step.result not in self.schedule.outputs:
            return False
        return copied_at_the_end(step.op.facts.kind, buffers.lies_as_it_arrived(step.op, self._blocks(step)))
