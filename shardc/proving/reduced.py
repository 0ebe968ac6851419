"""The smallest sizes that keep every pattern of a plan, and why it is enough to look at these.

A size is a *unit* times a *rest*. The unit is what the steps and their forms cut the dim into: the least common
multiple, over all values, of the axes on the dim, of the digits above, of pieces and lanes. The rest is what stays
together in every step. Emitted code asks arrays for their sizes and divides or multiplies them by numbers that belong
to the unit; so the code for a rest of 2 is the code for any rest, letter by letter, but for the positions along a dim
(`index_T`), an array of one number (`h[B, D] = 0`) and the trips of a loop, whose sizes are literals: these are
compared with the plan's, and read as the small ones.

For every rest r:

- What moves (collectives, slices, reshapes, transposes) takes an element at (unit, k) to another unit and leaves k as
  it is, whatever the values. It does the same for every k < r: what it does for k = 0 and 1 it does for all, and two
  of them tell the order (unit, k) from (k, unit), which one alone would not.
- What is done element by element, linear or an uninterpreted symbol, does not know k.
- What is summed is a sum over units and over all k. A product of n arrays has terms in which its k are equal or not,
  and with the rest also their number changes; each kind of term is there from a rest of 2 on for two factors along
  one dim, which is all that one product of the plan has. Longer chains are such products one after another.
- A number in the code that is a size by chance, and right for one rest alone, is found where it is read (sizes are
  multiplied and divided, and by nothing else), and with another rest: what is asked for is proved for two.
- Positions are numbers of their own (no two alike), of which only `index` steps and their functions know.

So code that is right for the small sizes is right for all that have the same units. It does not hold for what looks at
k or at values: a sort, a cumulative sum, a gather by data. The notation has none; whatever function is added to it and
is not elementwise, a sum or a maximum over a whole dim has to be left out here.

Dims of different sizes stay different, so that one is not taken for another; dims of one size may become two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias

from shardc.ir.collectives import DirectExchange, JointExchange
from shardc.ir.digits import Reshape
from shardc.ir.exchange import tails
from shardc.ir.mesh import Mesh
from shardc.ir.plan import (
    Apply,
    Block,
    Einsum,
    Loop,
    Schedule,
    Step,
    ValueNumber,
    every_block,
    operands_of,
)
from shardc.ir.sharding import Array
from shardc.ir.sizes import classes
from shardc.lowering.as_one import LeftToXla
from shardc.lowering.chunks import Chunks
from shardc.lowering.forms import Form, Looped, Lowering, Scattered
from shardc.lowering.meeting import Meeting
from shardc.lowering.rings import Ring
from shardc.lowering.scattered import SHARE
from shardc.lowering.scatters import Along
from shardc.lowering.tpu import FOLD

_SHARES = {
    Along.APART: SHARE,
    Along.TURNED_APART: SHARE,
    Along.FOLDED: SHARE * FOLD,
}  # what each share is cut into, or a multiple of
_OF_A_DEVICE = 20  # moves of elements that a step takes as long as on a device that has none

Size: TypeAlias = "Part | int"  # of one dim of a value: a part of a dim of the program, or a digit as it is


@dataclass(frozen=True, slots=True)
class Part:
    """A dim of the program over a number, which is the digits above."""

    dim: str
    over: int = 1


@dataclass(frozen=True, slots=True)
class Reduced:
    """The size of each dim, and what the literals of the code stand for: trips, positions, arrays of one number."""

    sizes: dict[str, int]
    literals: dict[int, int]
    work: int  # multiplications and moves of an element, over all devices and on whole arrays

    def shape(self, dims: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.sizes[dim] for dim in dims)


def reduced(schedule: Schedule, lowering: Lowering, least: int = 2) -> Reduced:
    """The smallest sizes for a schedule and its forms, of a rest of `least` or more."""
    given = dict(schedule.program.sizes)
    counted = _counted(schedule.block)
    together = _together(schedule, given, counted)
    walk = _Walk(schedule.mesh, together)
    sizes_of = walk.block(schedule.block, lowering.forms, _inputs(schedule.block))
    walk.of_groups(schedule, lowering)
    small = _smallest(given, together, walk.units, least)
    literals = {given[dim]: small[dim] for dim in counted}
    return Reduced(small, literals, sum(each.volume(small) for each in sizes_of))


def _inputs(block: Block) -> list[tuple[Size, ...]]:
    return [tuple(map(Part, block.values[value].dims)) for value in block.inputs]


def _counted(block: Block) -> list[str]:
    """The dims whose sizes are literals of the code."""
    found = list[str]()
    for _, inside in every_block(block):
        for step in inside.steps:
            if isinstance(step.op, Loop):
                found += [] if step.op.is_of_chunks else [step.op.dim]
            elif isinstance(step.op, Apply) and not step.operands:
                found += inside.values[step.result].dims
    return list(dict.fromkeys(found))


def _together(schedule: Schedule, given: Mapping[str, int], counted: Sequence[str]) -> dict[str, str]:
    """For each dim one that stands for all that must have its size."""
    pairs = [*schedule.program.renamed, *_seen(schedule.block)]
    pairs += [(one, other) for one in counted for other in counted if given[one] == given[other]]
    known = [pair for pair in pairs if set(pair) <= set(given)]
    return {dim: some[0] for some in classes(known) for dim in some}


def _seen(block: Block) -> Iterator[tuple[str, str]]:
    for _, inside in every_block(block):
        for step in inside.steps:
            for value, dims in zip(step.operands, step.seen, strict=False):
                yield from zip(inside.values[value].dims, dims, strict=True)


def _smallest(
    given: Mapping[str, int], together: Mapping[str, str], units: Mapping[str, int], least: int
) -> dict[str, int]:
    found: dict[str, int] = {}
    for dim in sorted(given, key=lambda dim: (-units.get(together.get(dim, dim), 1), dim)):
        stands = together.get(dim, dim)
        if stands not in found:
            unit = units.get(stands, 1)
            free = next(unit * rest for rest in count(least) if unit * rest not in found.values())
            found[stands] = min(free, given[dim])
    return {dim: found[together.get(dim, dim)] for dim in given}


@dataclass(frozen=True, slots=True)
class _Work:
    """What a step takes: on how many devices, and the sizes that are multiplied."""

    devices: int
    local: tuple[tuple[Size, int], ...]  # each over so many devices

    def volume(self, small: Mapping[str, int]) -> int:
        whole = math.prod(_in(size, small) for size, _ in self.local)
        return whole + self.devices * (_OF_A_DEVICE + whole // math.prod(cut for _, cut in self.local))


def _in(size: Size, small: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else max(1, small[size.dim] // size.over)


@dataclass(slots=True)
class _Walk:
    """Through the steps, with the sizes of every value as parts of the program's dims."""

    mesh: Mesh
    together: Mapping[str, str]
    units: dict[str, int] = field(default_factory=dict)

    def block(self, block: Block, forms: Sequence[Form], given: Sequence[tuple[Size, ...]]) -> list[_Work]:
        known = dict(zip(block.inputs, given, strict=True))
        found = list[_Work]()
        for value, sizes in known.items():
            self._cut(block.values[value], sizes)
        for step, form in zip(block.steps, forms, strict=True):
            if isinstance(step.op, Loop):
                assert isinstance(form, Looped)
                left, work = self._loop(step.op, form, [known[value] for value in step.operands])
                known |= dict(zip(step.results, left, strict=True))
                found += work
            else:
                known[step.result] = self._left(step, block, known)
                self._form(step, form, block, known[step.operands[0]] if step.operands else ())
                found.append(self._work(step, block, known))
            for value in step.results:
                self._cut(block.values[value], known[value])
        self.sizes, self.outputs = known, [known[value] for value in block.outputs]
        return found

    outputs: list[tuple[Size, ...]] = field(default_factory=list)
    sizes: dict[ValueNumber, tuple[Size, ...]] = field(default_factory=dict)  # of the block walked last

    def _loop(
        self, loop: Loop, form: Looped, given: list[tuple[Size, ...]]
    ) -> tuple[list[tuple[Size, ...]], list[_Work]]:
        first = loop.fixed + loop.carried
        work = self.block(loop.body, form.body.forms, [*given[:first], *(sizes[1:] for sizes in given[first:])])
        counted = given[first][0] if loop.is_of_chunks else Part(loop.dim)
        rows = [(counted, *sizes) for sizes in self.outputs[loop.carried :]]
        trips = ((counted, 1),)
        return [*given[loop.fixed : first], *rows], [replace(each, local=each.local + trips) for each in work]

    def _left(self, step: Step, block: Block, known: Mapping[ValueNumber, tuple[Size, ...]]) -> tuple[Size, ...]:
        match step.op:
            case Einsum() | Apply():
                return tuple(
                    self._dims(step, block, known).get(dim, Part(dim)) for dim in block.values[step.result].dims
                )
            case Reshape():
                return tuple(_reshaped(step.op, known[step.operands[0]]))
            case _:
                assert step.op.facts.is_move, step.op
                return known[step.operands[0]]

    def _dims(self, step: Step, block: Block, known: Mapping[ValueNumber, tuple[Size, ...]]) -> dict[str, Size]:
        """The size of each dim that a local step meets."""
        arrays = zip(step.operands, operands_of(step, block.values), strict=True)
        return {dim: size for value, array in arrays for dim, size in zip(array.dims, known[value], strict=True)}

    def _work(self, step: Step, block: Block, known: Mapping[ValueNumber, tuple[Size, ...]]) -> _Work:
        result = block.values[step.result]
        dims = dict(zip(result.dims, known[step.result], strict=True))
        cuts = {dim: self.mesh.product(result.axes_of(dim)) for dim in dims}
        if isinstance(step.op, Einsum):
            dims |= self._dims(step, block, known)
            for array in operands_of(step, block.values):
                cuts |= {dim: self.mesh.product(array.axes_of(dim)) for dim in array.dims}
        return _Work(self.mesh.devices, tuple((size, cuts[dim]) for dim, size in dims.items()))

    def of_groups(self, schedule: Schedule, lowering: Lowering) -> None:
        """A sum for all as a ring is scattered on the way, along a dim that no value shows cut so far; and so are
        chunks. Either may be a digit."""
        forms = dict(lowering.groups)
        for group in schedule.together:
            first, last = (schedule.steps[place].result for place in (group.first, group.last))
            match forms.get(group.first):
                case Ring(dim=dim, gathered_after=True) as ring:
                    self._along(first, schedule.values[first], dim, ring.size)
                case Chunks(count, dim):
                    self._along(last, schedule.values[last], dim, count)
                case Ring() | Meeting() | LeftToXla() | None:
                    continue

    def _along(self, value: ValueNumber, array: Array, dim: str, parts: int) -> None:
        self._in_parts(self.sizes[value][array.dims.index(dim)], parts * self.mesh.product(array.axes_of(dim)))

    def _cut(self, array: Array, sizes: Sequence[Size]) -> None:
        for size, axes in zip(sizes, array.sharding.dims, strict=True):
            self._in_parts(size, self.mesh.product(axes))

    def _in_parts(self, size: Size, parts: int) -> None:
        if isinstance(size, Part):
            stands = self.together.get(size.dim, size.dim)
            self.units[stands] = math.lcm(self.units.get(stands, 1), size.over * parts)

    def _form(self, step: Step, form: Form, block: Block, sizes: Sequence[Size]) -> None:
        """What a form cuts more finely than the sharding that it leaves."""
        lies = block.values[step.operands[0]].sharding.dims if step.operands else ()
        match step.op:  # no other move cuts a dim more finely than the sharding that it leaves
            case JointExchange(dims=dims) | DirectExchange(dims=dims):
                for size, axes, tail in zip(sizes, lies, tails(lies, dims, self.mesh), strict=True):
                    self._in_parts(size, self.mesh.product(axes) * tail.cut)
        for stage in form.stages if isinstance(form, Scattered) else ():
            dim = stage.dims[0][0]
            cut = self.mesh.product(block.values[step.result].sharding.dims[dim])
            self._in_parts(sizes[dim], cut * _SHARES.get(stage.along, 1))


def _reshaped(op: Reshape, sizes: Sequence[Size]) -> Iterator[Size]:
    place = 0
    for digits in op.sizes:
        above = math.prod(digits)
        if op.joins:
            place += len(digits)
            last = sizes[place]
            yield Part(last.dim, last.over // above) if isinstance(last, Part) else last * above
        else:
            yield from digits
            only = sizes[place]
            yield Part(only.dim, only.over * above) if isinstance(only, Part) else only // above
        place += 1
