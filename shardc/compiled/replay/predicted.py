"""A plan as a timeline: its steps one after another, each as long as it is priced; no compiler is asked."""

from __future__ import annotations

from shardc.compiled.replay.timeline import COMPUTE, Event, Timeline
from shardc.cost.model import picoseconds
from shardc.ir.plan import Loop, Schedule, Single, single_steps


def predicted(schedule: Schedule) -> Timeline:
    """Products occupy `compute`, a collective the axes that it goes over; what a loop repeats stands once, as long as
    all trips."""
    events: list[Event] = []
    now = 0
    for done in single_steps(schedule.block):
        step, op = done.step, done.step.op
        time, wire = done.times * picoseconds(step.cost.time_s), done.times * step.cost.wire_bytes
        if time and not isinstance(op, Loop):
            events.append(Event(str(done.block.values[step.result]), step.name, _tracks(op), now, time, wire))
        now += time
    shown = {track for event in events for track in event.tracks}
    return Timeline(tuple(events), tuple(track for track in (COMPUTE, *schedule.mesh.names) if track in shown), now)


def _tracks(op: Single) -> tuple[str, ...]:
    return op.axes if op.facts.communicates else (COMPUTE,)
