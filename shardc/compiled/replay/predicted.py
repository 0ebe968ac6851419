"""A plan as a timeline: its steps as they are priced, each as long; no compiler is asked.

They stand one after another, but for gathers that the compiler begins early (`cost.prefetch`). A product and a
collective that are done as one stand beside each other, as `cost.together` prices them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shardc.compiled.replay.timeline import COMPUTE, Event, Timeline
from shardc.compiled.replay.tracks import in_order, tracks
from shardc.cost.model import LinkModel
from shardc.cost.prefetch import in_order as as_taken
from shardc.cost.rate import picoseconds
from shardc.cost.rings import Beside
from shardc.cost.together import beside
from shardc.ir.operations import Kind
from shardc.ir.plan import Done, Einsum, How, Loop, Schedule, Together
from shardc.lowering.lower import form
from shardc.lowering.pairs import NOTHING, pairs_of, sent_by
from shardc.lowering.scatters import block_of


def predicted(schedule: Schedule, model: LinkModel) -> Timeline:
    """Products occupy `compute`, a collective the ways along its axes; what a loop repeats stands once, as long as all
    trips."""
    made = _Made(model)
    made.add_all(schedule, Around())
    shown = (track for event in made.events for track in event.tracks)
    end = max((event.end_ps for event in made.events), default=0)
    return Timeline(tuple(made.events), in_order(shown, (COMPUTE,), schedule.mesh), max(end, made.end))


class Around(NamedTuple):
    """The loops around a block: how often it is done, since when, in picoseconds, and their places."""

    times: int = 1
    since: int = 0
    path: tuple[int, ...] = ()

    def at(self, seconds: float) -> int:
        return self.since + self.times * picoseconds(seconds)


class _Made:
    """The events so far, and when the last of them ends, in picoseconds."""

    def __init__(self, model: LinkModel) -> None:
        self.model = model
        self.events: list[Event] = []
        self.end = 0

    def add_all(self, schedule: Schedule, around: Around) -> None:
        groups = {group.first: group for group in schedule.together}
        for taken in as_taken(schedule, self.model):
            place, start = taken.work.places[0], around.at(taken.start_s)
            done = Done(schedule.steps[place], schedule.block, around.times, (*around.path, place))
            if (group := groups.get(place)) is not None:
                add = self._add_at_once if group.how is How.RINGS else self._add_as_one
                add(_steps_of(schedule, group), beside(schedule, group, self.model), start)
            elif isinstance(done.step.op, Loop):
                inside = Around(around.times * done.step.op.trips, start, done.path)
                self.add_all(schedule.inside(done.step.op), inside)
            else:
                self._add(done, start, done.step.cost.time_s)
            self.end = max(self.end, around.at(taken.end_s))

    def _add(self, done: Done, start: int, seconds: float) -> int:
        """When it ends."""
        step, time = done.step, done.times * picoseconds(seconds)
        if time:
            wire = done.times * step.cost.wire_bytes
            name = str(done.block.values[step.result])
            self.events.append(Event(name, step.name, _tracks(done, self.model), start, time, wire))
        return start + time

    def _add_as_one(self, steps: Sequence[Done], parts: Beside, start: int) -> None:
        """The collectives before the last, then the last beside the product, then what nothing hides."""
        [product] = [done for done in steps if isinstance(done.step.op, Einsum)]
        *others, last = [done for done in steps if done.step.op.facts.communicates]
        for done in others if parts.before else ():
            start = self._add(done, start, done.step.cost.time_s)
        end = max(self._add(product, start, parts.computing), self._add(last, start, parts.hidden))
        if last.step.op.facts.kind is Kind.SUM:
            self._add(last, end, last.step.cost.time_s - parts.hidden)

    def _add_at_once(self, steps: Sequence[Done], parts: Beside, start: int) -> None:
        """Both collectives beside the product, and before it what turns their blocks."""
        *others, product = steps
        for done in others:
            self._add(done, start, parts.before + parts.hidden)
        self._add(product, start + picoseconds(parts.before), parts.computing)


def _steps_of(schedule: Schedule, group: Together) -> list[Done]:
    return [Done(schedule.steps[n], schedule.block, 1, (n,)) for n in group.places]


def _tracks(done: Done, model: LinkModel) -> tuple[str, ...]:
    op = done.step.op
    if isinstance(op, Loop) or not op.facts.communicates:
        return (COMPUTE,)
    before = done.block.values[done.step.operands[0]]
    sent = sent_by(form(op, block_of(before, model.mesh), model.target), before.sharding, model.mesh)
    return tracks(op.axes, model, () if sent == NOTHING else pairs_of(sent, model.mesh))
