"""Steps that are done for one chunk of a dim after another, so that what lies between them never lies whole.

    s[B, T, H, S] = q[B, T, H, E] · k[B, S, H, E];  p = softmax_S(s);  o[B, T, H, E] = p · v[B, S, H, E]

    q[B, T0, T1, H, E] = Reshape q;  q[T0, B, T1, H, E] = Einsum q             rows to where a loop reads them
    o[T0, B, T1, H, E] = Loop_T0 k, v, q:
        s[B, T1, H, S] = q[B, T1, H, E] · k;  p = softmax_S(s);  o[B, T1, H, E] = p · v
    o[B, T0, T1, H, E] = Einsum o;  o[B, T, H, E] = Reshape o                  and back

With T in eight chunks an eighth of the scores lies at a time. Any dim will do that every step of the group leaves, and
none goes over: of attention its batch, its heads and its queries. What each device has of the dim is cut, so nothing
moves between devices; where the dim is sharded its axes stay on a digit above (`T[T0_X, T1, T2]`), and in a trip the
dim is joined of that and of what a chunk has of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from shardc.cost.copied import turned, with_first
from shardc.cost.in_chunks import part_of
from shardc.cost.model import CostModel
from shardc.cost.sums import cost_of, loop_cost
from shardc.cost.trips import fits_on_chip
from shardc.ir.digits import Reshape
from shardc.ir.plan import Block, Einsum, Loop, Rule, Step, StepCost, ValueNumber, every_block
from shardc.ir.sharding import Array, Axes, in_order, row_of, with_dim
from shardc.lowering.tpu import on_chip
from shardc.planner.options import CLEARLY, Objective
from shardc.planner.planned import PlannedProgram, Refused
from shardc.planner.program.chunkable import Group, Part, groups, ordered

T = TypeVar("T")

MOST_TRIPS = 256  # of a loop over chunks
MOST_IDLE = 1  # loops after one another that lower no peak: two steps may hold as much
MOST_LOOPS = 8  # that a plan is given, one after another, to keep a limit


def faster(planned: PlannedProgram, model: CostModel) -> PlannedProgram:
    """The plan with steps in chunks where it takes clearly less time so: what lies between them then lies on the chip,
    and had no room there as a whole."""
    room = on_chip(model.target)
    for _ in range(MOST_LOOPS if room else 0):
        made = [each for loops in _every(planned, model, 0, larger_than=room) for each in loops]
        best = min(made, key=lambda each: each.cost.time_s, default=planned)
        if best.cost.time_s > (1 - CLEARLY) * planned.cost.time_s:
            break
        planned = best
    return planned


def within(planned: PlannedProgram, model: CostModel, objective: Objective, memory: int) -> PlannedProgram | Refused:
    """The plan with as few chunks as keep a memory limit: of those with one loop more the cheapest that does; if none
    does, one that is lean and takes little time with another loop, and so on."""
    smallest, idle = planned.cost.peak_bytes, 0
    for _ in range(MOST_LOOPS):
        made = [each for loops in _every(planned, model, memory) for each in loops]
        keeping = [each for each in made if each.cost.peak_bytes <= memory]
        if keeping:
            return min(keeping, key=lambda each: each.price(objective))
        idle = 0 if any(each.cost.peak_bytes < smallest for each in made) else idle + 1
        if not made or idle > MOST_IDLE:
            break
        planned = min(made, key=lambda each: each.cost.time_s * (each.cost.peak_bytes + _bytes(each)))
        smallest = min(smallest, *(each.cost.peak_bytes for each in made))
    return Refused(smallest)


def _bytes(planned: PlannedProgram) -> int:
    """Of all values, those of a trip once: what is leaner though its peak is at another step than was cut."""
    mesh = planned.schedule.mesh
    return sum(array.local_bytes(mesh) for _, block in every_block(planned.schedule.block) for array in block.values)


def _every(
    planned: PlannedProgram, model: CostModel, memory: int, larger_than: int = 0
) -> Iterator[list[PlannedProgram]]:
    """For each block and each dim that may be cut there, the plan in ever more chunks, up to the first that keeps the
    limit, or where smaller ones may lie on the chip up to the most. Around values that are larger."""
    model = model if planned.schedule.by is None else model.refined(planned.schedule.by) or model
    for path, block in _blocks(planned.schedule.block):
        for group in groups(block, planned.schedule.mesh, larger_than):
            made = list[PlannedProgram]()
            for trips in _counts(group.size):
                made.append(_done(planned, path, in_chunks(group, trips, model, planned.schedule.program.dims), model))
                if made[-1].cost.peak_bytes <= memory and not on_chip(model.target):
                    break
            yield made


def _blocks(block: Block, around: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Block]]:
    """Those that are of the text: what is in chunks is not cut again."""
    yield around, block
    for place, step in enumerate(block.steps):
        if isinstance(step.op, Loop) and not step.op.is_of_chunks:
            yield from _blocks(step.op.body, (*around, place))


def _counts(size: int) -> Iterator[int]:
    """Divisors of a size, each at least twice the one before."""
    last = 1
    for count in range(2, min(size, MOST_TRIPS) + 1):
        if count >= 2 * last and size % count == 0:
            yield (last := count)


def _done(planned: PlannedProgram, path: tuple[int, ...], block: Block, model: CostModel) -> PlannedProgram:
    """The plan with another block at a place, after which its loops are priced anew."""
    schedule = replace(planned.schedule, block=_put(planned.schedule.block, path, block))
    return replace(planned, schedule=schedule, cost=cost_of(schedule, model))


def _put(block: Block, path: tuple[int, ...], new: Block) -> Block:
    if not path:
        return new
    steps, (place, *below) = list(block.steps), path
    loop = steps[place].op
    assert isinstance(loop, Loop), "a block lies in loops"
    loop = replace(loop, body=_put(loop.body, tuple(below), new))
    steps[place] = replace(steps[place], op=loop, cost=loop_cost(loop))
    return replace(block, steps=tuple(steps))


def in_chunks(group: Group, trips: int, model: CostModel, taken: Iterable[str] = ()) -> Block:
    """The block with a group done in so many trips of a loop; `taken` are names that no digit may have."""
    return _Chunks.of(group, trips, model, taken).block()


@dataclass(frozen=True, slots=True)
class _Digits:
    """An array, with a dim in digits, these with the digit of the trips first, and joined again to what a trip has."""

    split: Array
    front: Array
    rows: Array
    into: Reshape | None  # of the array; None where each trip has one index of the dim
    again: Reshape | None  # of the rows, where the dim is sharded

    @property
    def lies_so(self) -> bool:
        """Whether the trips' digit is the first anyway."""
        return self.split.dims == self.front.dims


@dataclass
class _Chunks:
    """A block that is being written with a group in a loop."""

    group: Group
    trips: int
    model: CostModel
    along: str  # the digit that the trips count
    values: list[Array]
    taken: set[str]
    names: dict[tuple[str, str], str] = field(default_factory=dict)  # of the dims that are cut, and of their digits
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def of(cls, group: Group, trips: int, model: CostModel, taken: Iterable[str]) -> _Chunks:
        values = [*group.block.values]
        taken = {*taken, *(dim for array in values for dim in array.dims)}
        along = group.dim if group.is_whole(trips) else _fresh(group.dim, taken)
        return cls(group, trips, model, along, values, taken)

    def block(self) -> Block:
        own, around = self.group.block, ordered(self.group)
        assert around is not None, "only such groups are found"
        first, last, (before, after) = self.group.places[0], self.group.places[-1], around
        self.steps += [*own.steps[:first], *before]
        self._loop()
        self.steps += [*after, *own.steps[last + 1 :]]
        return Block(tuple(self.values), own.inputs, own.outputs, tuple(self.steps))

    def _loop(self) -> None:
        """The loop; before it what brings rows to the front, and after it what takes them back."""
        own, made, read = self.group.block, self.group.made, [self.group.read_by(place) for place in self.group.places]
        outside = dict.fromkeys(each for some in read for each in some if each[0] not in made)
        whole = [value for value, at in outside if at is None]
        cut = [(value, at) for value, at in outside if at is not None]
        given = [self._in_rows(value, at) for value, at in cut]
        arrays = [own.values[value] for value in whole] + [row_of(self.values[value]) for value in given]
        arrays += [row_of(self._digits(own.values[value], at).rows) for value, at in made.items()]
        every = [*((value, None) for value in whole), *cut, *made.items()]
        numbers = {each: ValueNumber(number) for number, each in enumerate(every)}
        left = self._left()
        trip = Block(
            tuple(arrays),
            tuple(map(ValueNumber, range(len(whole) + len(cut)))),
            tuple(numbers[value, made[value]] for value in left),
            tuple(self._step(place, some, numbers) for place, some in zip(self.group.places, read, strict=True)),
        )
        loop = Loop(self.along, self.trips, False, trip, len(whole), 0, is_of_chunks=True)
        stacked = [self._stacked(value, trip.values[numbers[value, made[value]]]) for value in left]
        rule = Rule(f"{self.trips} chunks of {self.group.dim}")
        step = Step(loop, (*whole, *given), tuple(stacked), self.group.statement, loop_cost(loop), rule)
        self.steps.append(step)
        for value, rows in zip(left, stacked, strict=True):
            if rows != value:
                self._back(rows, value, made[value])

    def _step(self, place: int, read: Sequence[Part], numbers: Mapping[Part, ValueNumber]) -> Step:
        """A step in a trip."""
        step, dim = self.group.block.steps[place], self.group.steps[place]
        seen = tuple(self._seen(dims, dim) for dims in step.seen)
        result = numbers[step.result, self.group.made[step.result]]
        operands = tuple(numbers[each] for each in read)
        return replace(step, operands=operands, results=(result,), seen=seen, cost=self._cost(step, read))

    def _seen(self, dims: tuple[str, ...], dim: str) -> tuple[str, ...]:
        if self.group.is_whole(self.trips):
            return tuple(each for each in dims if each != dim)
        return tuple(self._name(each) if each == dim else each for each in dims)

    def _cost(self, step: Step, read: Sequence[Part]) -> StepCost:
        """Of a step in a trip."""
        own = self.group.block.values
        cut = [own[value] for value, at in read if at is not None]
        whole = [own[value] for value, at in read if at is None]
        return part_of(step.cost, cut, whole, own[step.result], self.trips, self.model, self._is_near(step))

    def _is_near(self, step: Step) -> bool:
        """Whether the most that a step reads and leaves lies on the chip: of nothing as large it leaves a row."""
        size = [array.local_bytes(self.model.mesh) for array in self.group.block.values]
        left = self._left()
        inside = [size[value] for value in step.operands if value in self.group.made and value not in left]
        return self.lies_near and (step.result not in left or 2 * size[step.result] <= max(inside, default=0))

    @cached_property
    def lies_near(self) -> bool:
        """Whether what a trip leaves between two products lies on the chip; of others less time was not seen."""
        if not self.group.is_between_products:
            return False
        own, made, mesh, left = self.group.block.values, self.group.made, self.model.mesh, self._left()
        read = {each for place in self.group.places for each in self.group.read_by(place) if each[0] not in made}
        size = [array.local_bytes(mesh) for array in own]
        rows = [size[value] for value, at in read if at is not None] + [size[value] for value in left]
        fixed = [size[value] for value, at in read if at is None]
        between = max((size[value] // self.trips for value in made if value not in left), default=0)
        return fits_on_chip(between, fixed, rows, self.trips, on_chip(self.model.target))

    def _left(self) -> list[ValueNumber]:
        """What the group makes that is read outside of it."""
        own = self.group.block
        others = {v for n, step in enumerate(own.steps) if n not in self.group.steps for v in step.operands}
        return [value for value in self.group.made if value in others or value in own.outputs]

    # --- an array in digits

    def _in_rows(self, value: ValueNumber, place: int) -> ValueNumber:
        """What a loop reads of an array, row by row."""
        found = self._digits(self.values[value], place)
        split = value if found.into is None else self._append(found.into, value, found.split)
        front = split if found.lies_so else self._append(Einsum(), split, found.front, cost=self._laid(value, place))
        return front if found.again is None else self._append(replace(found.again, joins=True), front, found.rows)

    def _stacked(self, value: ValueNumber, row: Array) -> ValueNumber:
        """Of the rows that a loop leaves: the value itself, if it is no more than these."""
        if self.group.is_whole(self.trips) and not self.group.made[value]:
            return value
        return self._new(with_dim(row, self.along, self.trips))

    def _back(self, rows: ValueNumber, value: ValueNumber, place: int) -> None:
        """An array of the rows that a loop left."""
        found = self._digits(self.values[value], place)
        front = rows if found.again is None else self._append(found.again, rows, found.front)
        if not found.lies_so:
            end = value if found.into is None else None
            seen = () if self.values[front].dims == found.front.dims else (found.front.dims,)
            front = self._append(Einsum(), front, found.split, end, self._laid(value, place), seen)
        if found.into is not None:
            self._append(replace(found.into, joins=True), front, self.values[value], value)

    def _laid(self, value: ValueNumber, place: int) -> StepCost:
        """What it costs to lay an array with the chunks of a dim first: nothing where a device has one element of all
        dims before it."""
        array = self.values[value]
        if all(size == 1 for size in array.local_shape(self.model.mesh)[:place]):
            return StepCost()
        return turned(array, with_first(array.dims, place), self.model)[1]

    def _append(
        self,
        op: Reshape | Einsum,
        value: ValueNumber,
        array: Array,
        result: ValueNumber | None = None,
        cost: StepCost | None = None,
        seen: tuple[tuple[str, ...], ...] = (),
    ) -> ValueNumber:
        found = self._new(array) if result is None else result
        rule = Rule(f"rows along {self.along}" if isinstance(op, Einsum) else "")
        self.steps.append(Step(op, (value,), (found,), self.group.statement, cost or StepCost(), rule, seen))
        return found

    def _new(self, array: Array) -> ValueNumber:
        self.values.append(array)
        return ValueNumber(len(self.values) - 1)

    def _digits(self, array: Array, place: int) -> _Digits:
        dim, axes = array.dims[place], array.sharding.dims[place]
        devices = self.model.mesh.product(axes)
        if self.group.is_whole(self.trips):
            front = in_order(array, with_first(array.dims, place))
            return _Digits(array, front, front, None, None)
        joined = self._name(dim)
        high = [(self._name(dim, "above"), devices, axes)] if axes else []
        low = (self._name(dim, "below") if axes else joined, array.shape[place] // devices // self.trips, ())
        digits = [*high, (self.along, self.trips, ()), low]
        split = _with(array, place, digits)
        front = in_order(split, with_first(split.dims, place + len(high)))
        into = _reshape(len(array.dims), place, [size for _, size, _ in digits[:-1]])
        if not axes:
            return _Digits(split, front, front, into, None)
        rows = _with(front, place + 1, [(joined, devices * low[1], axes)], instead_of=2)
        return _Digits(split, front, rows, into, _reshape(len(rows.dims), place + 1, [devices]))

    def _name(self, dim: str, digit: str = "") -> str:
        """What a dim that is cut is called in a trip, or its digit above or below that of the trips."""
        if (dim, digit) not in self.names:
            self.names[dim, digit] = _fresh(dim, self.taken)
        return self.names[dim, digit]


def _fresh(dim: str, taken: set[str]) -> str:
    """A name that no dim has, for a part of one: `T0`."""
    found = next(name for n in range(len(taken) + 1) if (name := f"{dim}{n}") not in taken)
    taken.add(found)
    return found


def _with(array: Array, place: int, dims: Sequence[tuple[str, int, Axes]], instead_of: int = 1) -> Array:
    """An array with these dims, each of a size and over some axes, in the place of one or more."""
    names, sizes, axes = zip(*dims, strict=True)

    def put(own: tuple[T, ...], new: tuple[T, ...]) -> tuple[T, ...]:
        return (*own[:place], *new, *own[place + instead_of :])

    sharding = replace(array.sharding, dims=put(array.sharding.dims, axes))
    return replace(array, dims=put(array.dims, names), shape=put(array.shape, sizes), sharding=sharding)


def _reshape(rank: int, place: int, sizes: Sequence[int]) -> Reshape:
    """Into digits, of one dim."""
    return Reshape(tuple(tuple(sizes) if n == place else () for n in range(rank)), joins=False)
