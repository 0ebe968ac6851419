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

from collections.abc import Iterable
from dataclasses import dataclass, replace

from shardc.compiled.expected import Expected, Path, expected
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
from shardc.ir.plan import Cost, Schedule
from shardc.ir.sharding import Axes, spell_axes
from shardc.lowering.forms import Lowering
from shardc.lowering.lower import lower

TOLERANCE = 0.01
_NARROWED = "as bf16, to which the products that read it round"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One collective put in another's place: its name here, and when that is done.

    By the emitter where that says so of the step (`compiled.expected`), else by the compiler.
    """

    name: str
    why: str
    is_emitted: bool = False


# By what the plan asks for, and what is compiled.
REWRITES = {
    ("ReduceScatter", "AllReduce"): Rewrite(
        "summed whole",
        "all of it is summed, then sliced, where shares are less than a few tiles or all chips take part",
    ),
    ("ReduceScatter", "AllToAll"): Rewrite(
        "exchanged",
        "emitted so: shares are exchanged and then added up, the same bytes, which the compiler keeps",
        is_emitted=True,
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


def match(
    schedule: Schedule, compiled: Iterable[Collective], lowering: Lowering | None = None
) -> tuple[list[StepMatch], list[Collective]]:
    """Each collective of the plan with those that were compiled for it; and what is left over."""
    if schedule.by_xla:
        return [], []
    alone, groups = expected(schedule, lower(schedule) if lowering is None else lowering)
    left = [collective for collective in compiled if collective.total_bytes]
    found: dict[Path, list[Collective]] = {path: [] for each in alone for path in each.paths}
    for collective in list(left):
        path = path_of(collective.scope)
        if path in found:
            found[path].append(collective)
            left.remove(collective)
    for each in alone:
        # The compiler forgets the names of what it rewrites; it keeps the groups, and more or less the order.
        (path,) = each.paths
        if not found[path]:
            found[path] = _nameless(each, left)
            left = [collective for collective in left if collective not in found[path]]
    matches = [_matched(each, tuple(found[each.paths[0]])) for each in alone]
    for each in groups:
        matches.append(_matched(each, tuple(one for one in left if path_of(one.scope) in each.paths)))
        left = [collective for collective in left if collective not in matches[-1].compiled]
    return _uncombined(matches), left


def _nameless(each: Expected, left: list[Collective]) -> list[Collective]:
    same = [c for c in left if c.axes is not None and set(c.axes) == set(each.axes) and not path_of(c.scope)]
    rewritten = {name for planned, name in REWRITES if planned == each.name}
    return [c for c in same if c.kind in (each.name, *each.kinds)][:1] or [c for c in same if c.kind in rewritten][:1]


def _matched(each: Expected, compiled: tuple[Collective, ...]) -> StepMatch:
    moved = each.times > 1 and each.times * sum(collective.total_bytes for collective in compiled) == each.wire_bytes
    remark = "once, not in each trip" if moved else _remark(each, compiled)
    if not remark and each.as_bf16:
        remark = _NARROWED
    return StepMatch(each.step, each.name, each.axes, each.wire_bytes, compiled, remark)


def _remark(each: Expected, compiled: tuple[Collective, ...]) -> str:
    """What became of it otherwise than the plan's name says. What is as emitted is no rewrite of the compiler's."""
    kinds = tuple(dict.fromkeys(collective.kind for collective in compiled))
    is_emitted = set(kinds) == set(each.kinds)
    if not compiled:
        return "not there"
    if each.as_one:
        return f"as one: {each.as_one}" + ("" if is_emitted or not each.kinds else f", compiled as {'+'.join(kinds)}")
    if kinds != (each.name,) or not is_emitted:
        rewrite = REWRITES.get((each.name, "+".join(kinds)))
        is_known = rewrite is not None and rewrite.is_emitted == is_emitted
        return rewrite.name if rewrite is not None and is_known else f"compiled as {'+'.join(kinds)}"
    remarks = ["in parts"] if len(compiled) > 1 and each.name != "CollectivePermute" else []
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
    lowering = lower(schedule)
    matches, left = match(schedule, (collective for collective in every if not collective.part_of), lowering)
    predicted = allocation(schedule, lowering)
    replayed, kinds = with_lines(replay(module, model), schedule), by_kind(schedule)
    return Verification(topology, tuple(matches), tuple(left), padding, predicted, memory, cost, replayed, kinds)
