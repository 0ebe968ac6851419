"""A plan as a timeline: its steps one after another, each as long as it is priced; no compiler is asked.

A product and a collective that are done as one stand beside each other, as `cost.together` prices them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.compiled.replay.timeline import COMPUTE, Event, Timeline
from shardc.compiled.replay.tracks import in_order, tracks
from shardc.cost.model import LinkModel, picoseconds
from shardc.cost.rings import Beside
from shardc.cost.together import beside
from shardc.ir.operations import Kind
from shardc.ir.plan import Done, Einsum, How, Loop, Schedule, Together, single_steps
from shardc.lowering.lower import form
from shardc.lowering.pairs import NOTHING, pairs_of, sent_by
from shardc.lowering.scatters import block_of


def predicted(schedule: Schedule, model: LinkModel) -> Timeline:
    """Products occupy `compute`, a collective the ways along its axes; what a loop repeats stands once, as long as all
    trips."""
    made = _Made(model)
    groups = {group.first: group for group in schedule.together}
    grouped = {place for group in schedule.together for place in group.places}
    for done in single_steps(schedule.block):
        if done.path[0] not in grouped:
            made.add(done)
        elif (group := groups.get(done.path[0])) is not None:
            add = made.add_at_once if group.how is How.RINGS else made.add_as_one
            add(_steps_of(schedule, group), beside(schedule, group, model))
    shown = (track for event in made.events for track in event.tracks)
    return Timeline(tuple(made.events), in_order(shown, (COMPUTE,), schedule.mesh), made.now)


class _Made:
    """The events so far, and when the last of them ends, in picoseconds."""

    def __init__(self, model: LinkModel) -> None:
        self.model = model
        self.events: list[Event] = []
        self.now = 0

    def add(self, done: Done) -> None:
        self.now += self._begin(done, done.step.cost.time_s)

    def _begin(self, done: Done, seconds: float) -> int:
        """How long it takes."""
        step, op, time = done.step, done.step.op, done.times * picoseconds(seconds)
        if time and not isinstance(op, Loop):
            wire = done.times * step.cost.wire_bytes
            name = str(done.block.values[step.result])
            self.events.append(Event(name, step.name, _tracks(done, self.model), self.now, time, wire))
        return time

    def add_as_one(self, steps: Sequence[Done], parts: Beside) -> None:
        """The collectives before the last, then the last beside the product, then what nothing hides."""
        [product] = [done for done in steps if isinstance(done.step.op, Einsum)]
        *others, last = [done for done in steps if done.step.op.facts.communicates]
        for done in others if parts.before else ():
            self.add(done)
        self.now += max(self._begin(product, parts.computing), self._begin(last, parts.hidden))
        if last.step.op.facts.kind is Kind.SUM:
            self._begin(last, last.step.cost.time_s - parts.hidden)
        self.now += picoseconds(parts.left)

    def add_at_once(self, steps: Sequence[Done], parts: Beside) -> None:
        """Both collectives beside the product, and before it what turns their blocks."""
        *others, product = steps
        ends = [self.now + self._begin(done, parts.before + parts.hidden) for done in others]
        self.now += picoseconds(parts.before)
        self.now = max(*ends, self.now + self._begin(product, parts.computing))


def _steps_of(schedule: Schedule, group: Together) -> list[Done]:
    return [Done(schedule.steps[n], schedule.block, 1, (n,)) for n in group.places]


def _tracks(done: Done, model: LinkModel) -> tuple[str, ...]:
    op = done.step.op
    if isinstance(op, Loop) or not op.facts.communicates:
        return (COMPUTE,)
    before = done.block.values[done.step.operands[0]]
    sent = sent_by(form(op, block_of(before, model.mesh), model.target), before.sharding, model.mesh)
    return tracks(op.axes, model, () if sent == NOTHING else pairs_of(sent, model.mesh))
