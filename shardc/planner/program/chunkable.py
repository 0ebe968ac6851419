"""Which steps of a block may be done for one chunk of a dim after another: `program.chunked` does them so.

    s[B, T, H, S] = q · k;  p = softmax_S(s);  o[B, T, H, E] = p · v          along B, T or H, not along S

A group is made around the largest value that lies between local steps: what makes it and what reads it, and so on with
every value about as large. Each of its steps leaves the dim, and goes over others alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, StatementNumber, Step, ValueNumber, operands_of
from shardc.lowering.flow import AxisSet, untyped_along
from shardc.lowering.fusion import Reads, reads

Part: TypeAlias = tuple[ValueNumber, int | None]  # a value, and of which of its dims a part; of none if it is whole

ALIKE = 4  # a value of at least this part of the largest is cut with it, where it may be
MOST_SEEDS = 3  # values around which groups are made


@dataclass(frozen=True, slots=True)
class Group:
    """Steps of a block that all leave one dim, each with its name for it, and of each value that they make the place of
    that dim."""

    block: Block
    steps: Mapping[int, str]
    made: Mapping[ValueNumber, int]
    size: int = 0  # of the dim on a device
    is_sharded: bool = False

    @property
    def dim(self) -> str:
        """As the first of its steps calls it."""
        return self.steps[self.places[0]]

    @property
    def statement(self) -> StatementNumber:
        """That of the last of its steps."""
        return self.block.steps[self.places[-1]].statement

    def says_its_types(self, untyped: Sequence[AxisSet]) -> bool:
        """Whether nothing of it is equal on some devices and cannot say so, which goes into no loop."""
        return not any(untyped[value] for number in self.steps for value, _ in self.read_by(number))

    @property
    def is_between_products(self) -> bool:
        """Whether two of its steps are products, or more."""
        steps = (self.block.steps[number] for number in self.steps)
        return sum(reads(step, self.block) is Reads.PRODUCT for step in steps) > 1

    def is_whole(self, trips: int) -> bool:
        """Whether each of so many trips has one index of the dim itself."""
        return trips == self.size and not self.is_sharded

    def read_by(self, number: int) -> list[Part]:
        """What a step reads, each with the place of the dim of which it reads a part."""
        step, dim = self.block.steps[number], self.steps[number]
        ends = zip(step.operands, operands_of(step, self.block.values), strict=True)
        return [(value, array.dims.index(dim) if dim in array.dims else None) for value, array in ends]

    @property
    def places(self) -> list[int]:
        """Of its steps, in order."""
        return sorted(self.steps)

    def reads_its_part(self, number: int) -> bool:
        """Whether a step reads of what others of the group make no more than the part that they make for it."""
        return all(self.made[value] == place for value, place in self.read_by(number) if value in self.made)


def groups(block: Block, mesh: Mesh, larger_than: int = 0) -> Iterator[Group]:
    """Groups around the largest values that lie between local steps, one for each dim of each that may be cut; none
    where they are no larger."""
    ends, users = {*block.inputs, *block.outputs}, _users(block)
    size = [array.local_bytes(mesh) for array in block.values]
    untyped = untyped_along(block)
    inner = [s.result for s in block.steps if _may_be_cut(s) and s.result not in ends and s.result in users]
    inner = sorted((value for value in inner if size[value] > larger_than), key=lambda value: -size[value])
    known, count = set[ValueNumber](), 0
    for seed in inner:
        if seed in known or size[seed] * ALIKE < size[inner[0]]:
            continue
        count += 1
        if count > MOST_SEEDS:
            return
        for place, extent in enumerate(block.values[seed].local_shape(mesh)):
            found = _largest(block, users, inner, size, seed, place) if extent > 1 else None
            if found is not None and found.says_its_types(untyped):
                known |= {*found.made}
                yield replace(found, size=extent, is_sharded=bool(block.values[seed].sharding.dims[place]))


def _largest(
    block: Block,
    users: Mapping[ValueNumber, Sequence[int]],
    inner: Sequence[ValueNumber],
    size: Sequence[int],
    seed: ValueNumber,
    place: int,
) -> Group | None:
    """The group around a value with all about as large, or else with those as large."""
    for least in dict.fromkeys((size[seed] // ALIKE, size[seed])):
        found = _grown(block, users, {value for value in inner if size[value] >= least}, seed, place)
        if found is not None and ordered(found) is not None:
            return found
    return None


def _may_be_cut(step: Step) -> bool:
    """Whether it is a local step that makes something of what it is given."""
    return step.op.facts.kind is Kind.LOCAL and not isinstance(step.op, Reshape) and bool(step.operands)


def _users(block: Block) -> dict[ValueNumber, list[int]]:
    found = dict[ValueNumber, list[int]]()
    for place, step in enumerate(block.steps):
        for value in dict.fromkeys(step.operands):
            found.setdefault(value, []).append(place)
    return found


def _grown(
    block: Block, users: Mapping[ValueNumber, Sequence[int]], large: set[ValueNumber], seed: ValueNumber, place: int
) -> Group | None:
    """The group of what makes and what reads a value, and every large one that is met. None where one of these steps
    does not keep the dim, or reads more of what another makes than its part."""
    makers = {step.result: number for number, step in enumerate(block.steps) if _may_be_cut(step)}
    steps, made, waiting = dict[int, str](), dict[ValueNumber, int](), [(makers[seed], block.values[seed].dims[place])]
    while waiting:
        number, dim = waiting.pop()
        if number in steps:
            continue
        step = block.steps[number]
        if not _may_be_cut(step) or not _keeps(step, block, dim):
            return None
        steps[number], made[step.result] = dim, block.values[step.result].dims.index(dim)
        for value, array in zip(step.operands, operands_of(step, block.values), strict=True):
            if value in large and dim in array.dims:
                waiting.append((makers[value], block.values[value].dims[array.dims.index(dim)]))
        for user in users[step.result] if step.result in large else ():
            reader = block.steps[user]
            read = operands_of(reader, block.values)[reader.operands.index(step.result)]
            waiting.append((user, read.dims[made[step.result]]))
    found = Group(block, steps, made)
    return found if len(steps) > 1 and all(map(found.reads_its_part, steps)) else None


def _keeps(step: Step, block: Block, dim: str) -> bool:
    """Whether a step leaves a dim, and goes over another if over any."""
    return dim in block.values[step.result].dims and not (isinstance(step.op, Apply) and dim in step.op.over)


def ordered(group: Group) -> tuple[list[Step], list[Step]] | None:
    """The steps between those of a group that come before it, and those that wait for it; None where it needs one of
    these."""
    before, after, waiting = list[Step](), list[Step](), {*group.made}
    for number in range(group.places[0], group.places[-1] + 1):
        step = group.block.steps[number]
        late = {value for value in step.operands if value in waiting and value not in group.made}
        if number in group.steps:
            if late:
                return None
        elif waiting.intersection(step.operands):
            after.append(step)
            waiting.update(step.results)
        else:
            before.append(step)
    return before, after
