"""A plan beside what the compiler made of it, step by step.

Collectives are compared as they are, but for what is stated here:

- *asynchronous*: a start and its done are one collective;
- *nothing moves*: a collective of one device, or of none that changes places, is left out on both sides;
- *combined*: several steps of one kind over the same axes may be one collective of their bytes;
- *in parts*: one step may be several collectives of its kind, whose bytes add up, as an AllGather over all of a
  large slice is, and a ReduceScatter over all of some slices, which are emitted in two;
- *exchanged*: a ReduceScatter of small shares, or of integers, is emitted as an AllToAll, and added up: the same bytes;
- *as one*: what a product and the collectives beside it became, where they are done as one, adds up to their bytes;
- *left to XLA*: of a program that is, as a whole, there is nothing to compare;
- *narrowed*: of f32 that products alone read, directly or moved again, the bf16 is moved to which they round it, so
  that half the bytes of the plan are predicted (`lowering.rounded`);
- *padding*: the rows that a padded ReduceScatter puts on the neighbour come back in small permutes, not counted.

One collective may also be put in another's place, by a compiler or by the emitter. Where that takes more bytes it is
not forgiven; either way it is named (`REWRITES`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardc.compiled.hlo.collectives import Collective, Reader
from shardc.compiled.hlo.text import Module
from shardc.compiled.replay.lines import path_of, with_lines
from shardc.compiled.replay.replay import replay
from shardc.compiled.replay.timeline import Timeline
from shardc.cost.allocation import Allocation, allocation
from shardc.cost.kinds import by_kind
from shardc.cost.kinds.held import ByKind
from shardc.cost.model import LinkModel
from shardc.io.text import preformatted
from shardc.ir.plan import Block, Cost, Done, Loop, Schedule, Step, Together, ValueNumber, every_step
from shardc.ir.sharding import Axes, spell_axes
from shardc.lowering.rounded import kept, rounded, rounded_ends

TOLERANCE = 0.01
_NARROWED = "as bf16, to which the products that read it round"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One collective put in another's place: its name here, and when that is done."""

    name: str
    why: str


# By what the plan asks for, and what is compiled.
REWRITES = {
    ("ReduceScatter", "AllReduce"): Rewrite(
        "summed whole",
        "all of it is summed, then sliced, where shares are less than a few tiles or all chips take part",
    ),
    ("ReduceScatter", "AllToAll"): Rewrite(
        "exchanged", "emitted so: shares are exchanged and then added up, the same bytes, which the compiler keeps"
    ),
    ("AllGather", "AllReduce"): Rewrite(
        "zeros summed", "blocks among zeros are summed in place of a gather, where all chips take part"
    ),
    ("AllReduce", "ReduceScatter+AllGather"): Rewrite("in two", "it is scattered, then gathered: the same bytes"),
}


@dataclass(frozen=True, slots=True)
class StepMatch:
    """A collective of the plan and what became of it, in all trips of loops around. `step` counts every step of the
    plan, a loop's own after it. `remark` names the normalisation or the rewrite."""

    step: int
    kind: str
    axes: Axes
    predicted_bytes: int
    compiled: tuple[Collective, ...]
    remark: str = ""

    @property
    def compiled_as(self) -> str:
        """`AllReduce`; several kinds joined by `+`."""
        return "+".join(dict.fromkeys(collective.kind for collective in self.compiled))

    @property
    def rewrite(self) -> Rewrite | None:
        return REWRITES.get((self.kind, self.compiled_as))

    @property
    def compiled_bytes(self) -> int:
        return sum(collective.total_bytes for collective in self.compiled)

    @property
    def agrees(self) -> bool:
        return abs(self.compiled_bytes - self.predicted_bytes) <= TOLERANCE * self.predicted_bytes


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """Wire bytes are received by the busiest device; memory is of one device."""

    topology: str
    steps: tuple[StepMatch, ...]
    unforeseen: tuple[Collective, ...]  # compiled, and not of the plan
    padding: tuple[Collective, ...]
    predicted_memory: Allocation
    compiled_memory: Allocation
    predicted: Cost
    replayed: Timeline
    kinds: ByKind | None = None  # of a training step, what is predicted
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        verdict = "as planned" if self.agrees else "not as planned"
        sizes = f"{self.compiled_bytes:,} wire bytes of {self.predicted_bytes:,} predicted"
        return f"<Verification for {self.topology}: {verdict}, {sizes}>"

    def _repr_html_(self) -> str:
        rows = [
            f"{match.kind}_{spell_axes(match.axes)}: {match.compiled_bytes:,} bytes of {match.predicted_bytes:,}"
            + (f", {match.remark}" if match.remark else "")
            for match in self.steps
        ]
        return preformatted("\n".join([repr(self)[1:-1], *rows]))

    @property
    def predicted_bytes(self) -> int:
        return sum(step.predicted_bytes for step in self.steps)

    @property
    def compiled_bytes(self) -> int:
        """After the normalisation."""
        return sum(step.compiled_bytes for step in self.steps) + sum(c.total_bytes for c in self.unforeseen)

    @property
    def padding_bytes(self) -> int:
        return sum(collective.total_bytes for collective in self.padding)

    @property
    def agrees(self) -> bool:
        """Whether every collective is as planned, to within a hundredth of its bytes."""
        return not self.unforeseen and all(step.agrees for step in self.steps)


def match(schedule: Schedule, compiled: Iterable[Collective]) -> tuple[list[StepMatch], list[Collective]]:
    """Each collective of the plan with those that were compiled for it; and what is left over."""
    if schedule.by_xla:
        return [], []
    every, as_one = [*enumerate(every_step(schedule.block))], _as_one(schedule)
    narrow = set(_narrowed(schedule.block))
    moves = [(number, done) for number, done in every if done.step.cost.wire_bytes and done.step.is_collective]
    planned = [(number, done) for number, done in moves if done.path not in as_one]
    left = [collective for collective in compiled if collective.total_bytes]
    found: dict[tuple[int, ...], list[Collective]] = {done.path: [] for _, done in planned}
    for collective in list(left):
        path = path_of(collective.scope)
        if path in found:
            found[path].append(collective)
            left.remove(collective)
    for _, done in planned:
        # The compiler forgets the names of what it rewrites; it keeps the groups, and more or less the order.
        if not found[done.path]:
            found[done.path] = _nameless(done.step, left)
            left = [collective for collective in left if collective not in found[done.path]]
    matches = [_matched(schedule, number, done, tuple(found[done.path]), narrow) for number, done in planned]
    grouped = [_together(schedule, group, moves, left, narrow) for group in schedule.together]
    left = [collective for collective in left if not any(collective in match.compiled for match in grouped)]
    return _uncombined([*matches, *grouped]), left


def _narrowed(
    block: Block, ends: Collection[ValueNumber] = (), around: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """The paths of the steps that leave f32 as bf16."""
    narrow, found = kept(block, ends), rounded(block, ends)
    for place, step in enumerate(block.steps):
        path = (*around, place)
        if isinstance(step.op, Loop):
            yield from _narrowed(step.op.body, rounded_ends(step, step.op, found), path)
        elif not narrow.isdisjoint(step.results):
            yield path


def _wire_bytes(done: Done, narrow: Collection[tuple[int, ...]]) -> int:
    """Of a move in all trips of loops around, as it is to be compiled."""
    return done.times * done.step.cost.wire_bytes // (2 if done.path in narrow else 1)


def _as_one(schedule: Schedule) -> set[tuple[int, ...]]:
    """The paths of the steps that are done as one with others."""
    return {(place,) for group in schedule.together for place in group.places}


def _together(
    schedule: Schedule,
    group: Together,
    moves: Sequence[tuple[int, Done]],
    compiled: Sequence[Collective],
    narrow: Collection[tuple[int, ...]],
) -> StepMatch:
    """What a group moves, and what was compiled under the name of one of its steps."""
    paths = [(place,) for place in group.places]
    of = [(number, done) for number, done in moves if done.path in paths]
    became = tuple(collective for collective in compiled if path_of(collective.scope) in paths)
    axes = schedule.mesh.ordered({axis for _, done in of for axis in done.step.op.axes})
    wire = sum(_wire_bytes(done, narrow) for _, done in of)
    name = "+".join(done.step.name for _, done in of)
    return StepMatch(of[0][0], name, axes, wire, became, f"as one: {group.how.value}")


def _nameless(step: Step, left: list[Collective]) -> list[Collective]:
    same = [c for c in left if c.axes is not None and set(c.axes) == set(step.op.axes) and not path_of(c.scope)]
    rewritten = {name for planned, name in REWRITES if planned == step.name}
    return [c for c in same if c.kind == step.name][:1] or [c for c in same if c.kind in rewritten][:1]


def _matched(
    schedule: Schedule,
    number: int,
    done: Done,
    compiled: tuple[Collective, ...],
    narrow: Collection[tuple[int, ...]],
) -> StepMatch:
    step = done.step
    axes = step.op.axes if len(step.op.on) == 1 else schedule.mesh.ordered(step.op.axes)
    wire = _wire_bytes(done, narrow)
    moved = done.times > 1 and done.times * sum(collective.total_bytes for collective in compiled) == wire
    remark = "once, not in each trip" if moved else _remark(step.name, compiled)
    if not remark and done.path in narrow:
        remark = _NARROWED
    return StepMatch(number, step.name, axes, wire, compiled, remark)


def _remark(kind: str, compiled: tuple[Collective, ...]) -> str:
    kinds = "+".join(dict.fromkeys(collective.kind for collective in compiled))
    if not compiled:
        return "not there"
    if kinds != kind:
        rewrite = REWRITES.get((kind, kinds))
        return f"compiled as {kinds}" if rewrite is None else rewrite.name
    remarks = ["in parts"] if len(compiled) > 1 and kind != "CollectivePermute" else []
    remarks += ["padded"] if any(collective.padded for collective in compiled) else []
    return ", ".join(remarks)


def _uncombined(matches: list[StepMatch]) -> list[StepMatch]:
    """One collective for several steps bears the name of one of them: they are one match, of all their bytes."""
    missing = [match for match in matches if not match.compiled]
    found: list[StepMatch] = []
    for one in (match for match in matches if match.compiled):
        over = one.compiled_bytes - one.predicted_bytes
        for other in list(missing):
            if other.kind == one.kind and set(other.axes) == set(one.axes) and over >= other.predicted_bytes:
                missing.remove(other)
                over -= other.predicted_bytes
                one = replace(one, predicted_bytes=one.predicted_bytes + other.predicted_bytes, remark="combined")
        found.append(one)
    return sorted([*found, *missing], key=lambda match: match.step)


def verification_of(
    schedule: Schedule, cost: Cost, topology: str, module: Module, memory: Allocation, model: LinkModel
) -> Verification:
    """The plan of a schedule beside its compiled module, which allocates so much on each device."""
    every = Reader(module, schedule.mesh).all()
    padding = tuple(collective for collective in every if collective.part_of)
    matches, left = match(schedule, (collective for collective in every if not collective.part_of))
    predicted = allocation(schedule)
    replayed, kinds = with_lines(replay(module, model), schedule), by_kind(schedule)
    return Verification(topology, tuple(matches), tuple(left), padding, predicted, memory, cost, replayed, kinds)
