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

    h[B, F] = relu(x[B, D] · W[D, F]);  y[B, D] = h · V[F, D]                  along F, over which y sums

    y: f32[B, D] = full;  y = Loop_F0 x, y, W, V:
        h[B, F1] = relu(x · W[D, F1]);  y_1: f32[B, D] = h · V[F1, D];  y = add y, y_1
    y: bf16[B, D] = narrow y                                                   rounded once, as the product is
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from shardc.cost.copied import turned, with_first
from shardc.cost.in_chunks import Taken, part_of, retyped
from shardc.cost.model import CostModel
from shardc.cost.sums import loop_cost
from shardc.cost.trips import fits_on_chip
from shardc.ir.digits import Reshape
from shardc.ir.dtypes import accumulator, multiplied
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Einsum, Loop, Rule, Step, StepCost, ValueNumber, operands_of
from shardc.ir.sharding import Array, Axes, in_order, row_of, with_dim
from shardc.lowering.timed import stays_near
from shardc.lowering.tpu import on_chip
from shardc.planner.program.chunkable import Group, Part, ordered

T = TypeVar("T")


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


@dataclass(slots=True)
class _Trip:
    """The block of a trip that is being written: the first arrays are what it is given."""

    arrays: list[Array]
    numbers: dict[Part, ValueNumber]  # of what the block around it has, by the place of the dim that is cut
    given: int
    steps: list[Step] = field(default_factory=list)

    def new(self, array: Array) -> ValueNumber:
        self.arrays.append(array)
        return ValueNumber(len(self.arrays) - 1)

    def block(self, left: Iterable[Part]) -> Block:
        inputs, outputs = map(ValueNumber, range(self.given)), (self.numbers[each] for each in left)
        return Block(tuple(self.arrays), tuple(inputs), tuple(outputs), tuple(self.steps))


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
        """The loop; before it what brings rows to the front, and sums of nothing; after it what takes rows back."""
        own, made, read = self.group.block, self.group.made, [self.group.read_by(place) for place in self.group.places]
        whole = [value for value, at in self._read if at is None]
        cut = [(value, at) for value, at in self._read if at is not None]
        given = [self._in_rows(value, at) for value, at in cut]
        added = [own.steps[place] for place in sorted(self.group.sums)]
        sums = {step.result: self._of_none(step) for step in added}
        arrays = [own.values[value] for value in whole] + [self.values[value] for value in sums.values()]
        arrays += [row_of(self.values[value]) for value in given]
        arrays += [row_of(self._digits(own.values[value], at).rows) for value, at in made.items()]
        every = [*((value, None) for value in whole), *((value, None) for value in sums), *cut, *made.items()]
        trip = _Trip(arrays, {each: ValueNumber(number) for number, each in enumerate(every)}, len(every) - len(made))
        for place, some in zip(self.group.places, read, strict=True):
            self._step(place, some, trip)
        left = self._left()
        done = trip.block([(value, None) for value in sums] + [(value, made[value]) for value in left])
        loop = Loop(self.along, self.trips, False, done, len(whole), len(sums), is_of_chunks=True)
        totals = [v if self.values[none] == own.values[v] else self._new(self.values[none]) for v, none in sums.items()]
        stacked = [self._stacked(value, trip.arrays[trip.numbers[value, made[value]]]) for value in left]
        rule, operands = Rule(f"{self.trips} chunks of {self.group.dim}"), (*whole, *sums.values(), *given)
        self.steps.append(Step(loop, operands, (*totals, *stacked), self.group.statement, loop_cost(loop), rule))
        for value, total in zip(sums, totals, strict=True):
            if total != value:
                cost = retyped(self.values[total], own.values[value], self.model)
                self._append(Apply("narrow"), total, own.values[value], value, cost)
        for value, rows in zip(left, stacked, strict=True):
            if rows != value:
                self._back(rows, value, made[value])

    def _step(self, place: int, read: Sequence[Part], trip: _Trip) -> None:
        """A step in a trip; of a sum also what adds it to those of the trips before."""
        step, dim = self.group.block.steps[place], self.group.steps[place]
        seen = tuple(self._seen(dims, dim) for dims in step.seen)
        own = step.result, self.group.made.get(step.result)
        operands = tuple(trip.numbers[each] for each in read)
        result = trip.new(trip.arrays[trip.numbers[own]]) if place in self.group.sums else trip.numbers[own]
        trip.steps.append(replace(step, operands=operands, results=(result,), seen=seen, cost=self._cost(place, read)))
        if place in self.group.sums:
            before = trip.numbers[own]
            trip.numbers[own] = trip.new(trip.arrays[before])
            trip.steps.append(Step(Apply("add"), (before, result), (trip.numbers[own],), step.statement, StepCost()))

    def _seen(self, dims: tuple[str, ...], dim: str) -> tuple[str, ...]:
        if self.group.is_whole(self.trips):
            return tuple(each for each in dims if each != dim)
        return tuple(self._name(each) if each == dim else each for each in dims)

    def _cost(self, place: int, read: Sequence[Part]) -> StepCost:
        """Of a step in a trip."""
        step, own = self.group.block.steps[place], self.group.block.values
        cut = [own[value] for value, at in read if at is not None]
        whole = [own[value] for value, at in read if at is None]
        far = [own[value] for value, at in read if at is None and value not in self.fixed_near]
        taken = Taken(cut, whole, own[step.result], self._sum(step) if place in self.group.sums else None, far)
        return part_of(step.cost, taken, self.trips, self.model, near=self._is_near(step))

    def _is_near(self, step: Step) -> bool:
        """Whether the most that a step reads and leaves lies on the chip: of nothing as large it leaves a row."""
        size = [array.local_bytes(self.model.mesh) for array in self.group.block.values]
        left = self._left()
        inside = [size[value] for value in step.operands if value in self.group.made and value not in left]
        return (
            step.result in self.group.made
            and self.lies_near
            and (step.result not in left or 2 * size[step.result] <= max(inside, default=0))
        )

    @cached_property
    def lies_near(self) -> bool:
        """Whether what a trip leaves between two products lies on the chip; of others less time was not seen."""
        if not self.group.is_between_products:
            return False
        return fits_on_chip(self._between, self._fixed.values(), self._rows, self.trips, on_chip(self.model.target))

    @cached_property
    def fixed_near(self) -> frozenset[ValueNumber]:
        """What all trips read that has room on the chip beside what a trip leaves: the largest first."""
        found, there = set[ValueNumber](), self._between + sum(self._rows) // self.trips
        for value, size in sorted(self._fixed.items(), key=lambda each: -each[1]):
            if stays_near(there + size):
                found.add(value)
                there += size
        return frozenset(found)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(array.local_bytes(self.model.mesh) for array in self.group.block.values)

    @cached_property
    def _read(self) -> tuple[Part, ...]:
        """What the group reads that it does not make."""
        every = (each for place in self.group.places for each in self.group.read_by(place))
        return tuple(dict.fromkeys(each for each in every if each[0] not in self.group.made))

    @property
    def _fixed(self) -> dict[ValueNumber, int]:
        """The bytes of each array that all trips read."""
        return {value: self._sizes[value] for value, at in self._read if at is None}

    @property
    def _rows(self) -> list[int]:
        """The bytes of arrays of which each trip has a row."""
        read = [self._sizes[value] for value, at in self._read if at is not None]
        return read + [self._sizes[value] for value in self._left()]

    @property
    def _between(self) -> int:
        """The most bytes that a trip makes of an array that is read in it alone."""
        left = self._left()
        return max((self._sizes[value] // self.trips for value in self.group.made if value not in left), default=0)

    def _left(self) -> list[ValueNumber]:
        """What the group makes that is read outside of it."""
        own = self.group.block
        others = {v for n, step in enumerate(own.steps) if n not in self.group.steps for v in step.operands}
        return [value for value in self.group.made if value in others or value in own.outputs]

    # --- what is added up from trip to trip

    def _sum(self, step: Step) -> Array:
        """What a step sums, in the type in which products of its operands are added up, if that is wider."""
        array = self.group.block.values[step.result]
        adds = accumulator(multiplied(each.dtype for each in operands_of(step, self.group.block.values)))
        return replace(array, dtype=adds) if adds.bytes > array.dtype.bytes else array

    def _of_none(self, step: Step) -> ValueNumber:
        """A sum before the first trip."""
        found = self._new(self._sum(step))
        self.steps.append(Step(Apply("full", numbers=(0,)), (), (found,), self.group.statement, StepCost()))
        return found

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
        dims before it. What is gathered is laid so before, as a share."""
        array = self.values[value]
        if all(size == 1 for size in array.local_shape(self.model.mesh)[:place]):
            return StepCost()
        made = next((step for step in self.group.block.steps if value in step.results), None)
        if made is not None and made.op.facts.kind is Kind.GATHER and value not in self.group.block.outputs:
            array = replace(array, sharding=self.values[made.operands[0]].sharding)
        return turned(array, with_first(array.dims, place), self.model)[1]

    def _append(
        self,
        op: Reshape | Einsum | Apply,
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
