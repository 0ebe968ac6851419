"""A plan as a timeline: its steps one after another, each as long as it is priced; no compiler is asked."""

from __future__ import annotations

from shardc.compiled.replay.timeline import COMPUTE, Event, Timeline
from shardc.cost.model import picoseconds
from shardc.ir.collectives import Slice
from shardc.ir.digits import Reshape
from shardc.ir.plan import Apply, Einsum, Schedule, Step


def predicted(schedule: Schedule) -> Timeline:
    """Products occupy `compute`, a collective the axes that it goes over."""
    events: list[Event] = []
    now = 0
    for step in schedule.steps:
        time = picoseconds(step.cost.time_s)
        if time:
            events.append(
                Event(str(schedule.values[step.result]), step.name, _tracks(step), now, time, step.cost.wire_bytes)
            )
        now += time
    shown = {track for event in events for track in event.tracks}
    return Timeline(tuple(events), tuple(track for track in (COMPUTE, *schedule.mesh.names) if track in shown), now)


def _tracks(step: Step) -> tuple[str, ...]:
    return (COMPUTE,) if isinstance(step.op, Einsum | Apply | Reshape | Slice) else step.op.axes
