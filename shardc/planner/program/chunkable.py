"""Which steps of a block may be done for one chunk of a dim after another: `program.chunked` does them so.

    s[B, T, H, S] = q · k;  p = softmax_S(s);  o[B, T, H, E] = p · v          along B, T or H, not along S

A group is made around the largest value that lies between local steps: what makes it and what reads it, and so on with
every value about as large that local steps alone read. Each of its steps leaves the dim, and goes over others alone; or
it is a product that sums over the dim, for what is outside of the group: the sums of all chunks are added up.

    h[B, F] = relu(x[B, D] · W[D, F]);  y[B, D] = h · V[F, D]                   along B, or along F, over which y sums
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Einsum, StatementNumber, Step, ValueNumber, operands_of
from shardc.lowering.flow import AxisSet, untyped_along
from shardc.lowering.fusion import Reads, reads
from shardc.lowering.masks import masks_of

Part: TypeAlias = tuple[ValueNumber, int | None]  # a value, and of which of its dims a part; of none if it is whole

ALIKE = 4  # a value of at least this part of the largest is cut with it, where it may be
MOST_SEEDS = 3  # values around which groups are made


@dataclass(frozen=True, slots=True)
class Group:
    """Steps of a block that all leave one dim, each with its name for it, and of each value that they make the place of
    that dim; among them products that sum over it."""

    block: Block
    steps: Mapping[int, str]
    made: Mapping[ValueNumber, int]
    sums: frozenset[int] = frozenset()  # of the steps
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


def groups(block: Block, mesh: Mesh, larger_than: int = 0, *, sums: bool = False) -> Iterator[Group]:
    """Groups around the largest values that lie between local steps, for each dim of each that may be cut; none where
    they are no larger. With `sums` also those with products that sum over the dim."""
    ends, users = {*block.inputs, *block.outputs}, _users(block)
    size = [array.local_bytes(mesh) for array in block.values]
    untyped = untyped_along(block)
    local = {place for place, step in enumerate(block.steps) if _may_be_cut(step)}
    inner = [value for place in local if (value := block.steps[place].result) not in ends and value in users]
    inner = [value for value in inner if local.issuperset(users[value]) and size[value] > larger_than]
    inner = sorted(inner, key=lambda value: (-size[value], value))
    known, count = set[ValueNumber](), 0
    for seed in inner:
        if seed in known or size[seed] * ALIKE < size[inner[0]]:
            continue
        count += 1
        if count > MOST_SEEDS:
            return
        for place, extent in enumerate(block.values[seed].local_shape(mesh)):
            grown = [_Grown(block, users, seed, place, may_sum) for may_sum in ((False, True) if sums else (False,))]
            for found in _different(each.largest(inner, size) for each in grown if extent > 1):
                if found.says_its_types(untyped):
                    known |= {*found.made}
                    yield replace(found, size=extent, is_sharded=bool(block.values[seed].sharding.dims[place]))


def _different(found: Iterable[Group | None]) -> list[Group]:
    """Groups of other steps than those before."""
    return [*{tuple(each.places): each for each in found if each is not None}.values()]


def _may_be_cut(step: Step) -> bool:
    """Whether it is a local step that makes something of what it is given."""
    return step.op.facts.kind is Kind.LOCAL and not isinstance(step.op, Reshape) and bool(step.operands)


def _users(block: Block) -> dict[ValueNumber, list[int]]:
    found = dict[ValueNumber, list[int]]()
    for place, step in enumerate(block.steps):
        for value in dict.fromkeys(step.operands):
            found.setdefault(value, []).append(place)
    return found


@dataclass(slots=True)
class _Grown:
    """A group that grows from a value and one of its dims."""

    block: Block
    users: Mapping[ValueNumber, Sequence[int]]
    seed: ValueNumber
    place: int
    may_sum: bool
    makers: dict[ValueNumber, int] = field(init=False)
    masks: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.masks = masks_of(self.block)
        self.makers = {step.result: number for number, step in enumerate(self.block.steps) if _may_be_cut(step)}

    def largest(self, inner: Sequence[ValueNumber], size: Sequence[int]) -> Group | None:
        """The group with all values about as large, or else with those as large."""
        for least in dict.fromkeys((size[self.seed] // ALIKE, size[self.seed])):
            found = self._with({value for value in inner if size[value] >= least})
            if found is not None and ordered(found) is not None:
                return found
        return None

    def _with(self, large: set[ValueNumber]) -> Group | None:
        """The group of what makes and what reads the value, and every large one that is met. None where one of these
        steps does not keep the dim, or reads more of what another makes than its part."""
        steps, made, sums = dict[int, str](), dict[ValueNumber, int](), set[int]()
        waiting = [(self.makers[self.seed], self.block.values[self.seed].dims[self.place])]
        while waiting:
            number, dim = waiting.pop()
            if number in steps:
                continue
            step = self.block.steps[number]
            if not _may_be_cut(step):
                return None
            if _keeps(step, self.block, dim):
                made[step.result] = self.block.values[step.result].dims.index(dim)
                waiting += self._readers(step.result, made[step.result]) if step.result in large else ()
            elif self.may_sum and isinstance(step.op, Einsum):
                sums.add(number)
            else:
                return None
            steps[number] = dim
            waiting += self._makers(step, dim, large)
        self._add_masks(steps, made)
        found = Group(self.block, steps, made, frozenset(sums))
        return found if len(steps) > 1 and all(map(found.reads_its_part, steps)) else None

    def _add_masks(self, steps: dict[int, str], made: dict[ValueNumber, int]) -> None:
        """What masks a part of what the steps read is made for each chunk, of arrays with fewer dims."""
        for number, step in reversed([*enumerate(self.block.steps)]):
            if step.results[0] not in self.masks or not steps.keys() >= {*self.users[step.result]}:
                continue
            read = [part for user in self.users[step.result] for part in Group(self.block, steps, made).read_by(user)]
            places = {place for value, place in read if value == step.result}
            if len(places) == 1 and (place := places.pop()) is not None:
                steps[number], made[step.result] = self.block.values[step.result].dims[place], place

    def _makers(self, step: Step, dim: str, large: set[ValueNumber]) -> Iterator[tuple[int, str]]:
        """What makes the large values that a step reads, each with what it calls the dim."""
        for value, array in zip(step.operands, operands_of(step, self.block.values), strict=True):
            if value in large and dim in array.dims:
                yield self.makers[value], self.block.values[value].dims[array.dims.index(dim)]

    def _readers(self, value: ValueNumber, place: int) -> Iterator[tuple[int, str]]:
        for user in self.users[value]:
            step = self.block.steps[user]
            yield user, operands_of(step, self.block.values)[step.operands.index(value)].dims[place]


def _keeps(step: Step, block: Block, dim: str) -> bool:
    """Whether a step leaves a dim, and goes over another if over any."""
    return dim in block.values[step.result].dims and not (isinstance(step.op, Apply) and dim in step.op.over)


def ordered(group: Group) -> tuple[list[Step], list[Step]] | None:
    """The steps between those of a group that come before it, and those that wait for it; None where it needs one of
    these."""
    added = {group.block.steps[number].result for number in group.sums}
    before, after, waiting = list[Step](), list[Step](), {*group.made, *added}
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
