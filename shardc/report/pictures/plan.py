"""The pictures of a plan by their names, as `plan.picture(…)` takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from shardc.compiled.replay.predicted import predicted
from shardc.compiled.replay.timeline import Timeline
from shardc.cost.model import LinkModel
from shardc.errors import ShardcError, nearest
from shardc.ir.plan import Done, Schedule, single_steps
from shardc.report.pictures.held import shown as devices_shown
from shardc.report.pictures.links import links_picture
from shardc.report.pictures.memory import memory_picture
from shardc.report.pictures.picture import Picture, above, line_of
from shardc.report.pictures.roofline import roofline_picture
from shardc.report.pictures.steps import step_name, step_picture, steps_picture
from shardc.report.pictures.timeline import timeline_picture
from shardc.report.view import PlanView, StepView

PictureOf = Literal["steps", "links", "timeline", "roofline", "memory"]


@dataclass(frozen=True, slots=True)
class Pictured:
    """A plan, as pictures need it."""

    view: PlanView
    schedule: Schedule
    model: LinkModel
    _drawn: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def drawn(self, done: Done, shown: StepView, most: int) -> list[str]:
        """A step, on so many devices at most, and its links as SVG for a page, which may ask again."""
        key = done.path, devices_shown(self.schedule.mesh, most)
        if key not in self._drawn:
            step = step_picture(done, shown, self.schedule.mesh, most)
            links = links_picture(done, self.model, self.schedule)
            self._drawn[key] = [each.inside for each in (step, links) if each is not None]
        return self._drawn[key]

    @property
    def timeline(self) -> Timeline:
        """As it is priced."""
        return predicted(self.schedule, self.model)


def picture(plan: Pictured, of: str) -> Picture:
    """The picture of that name; SHC001 if there is none."""
    draw = PICTURES.get(of) if isinstance(of, str) else None
    if draw is None:
        near = nearest(str(of)[:200], list(PICTURES))
        raise ShardcError(
            "SHC001",
            f"no picture of `{str(of)[:200]}`",
            help=f"did you mean `{near}`?" if near else "one of " + ", ".join(PICTURES),
        )
    return draw(plan)


def _links(plan: Pictured) -> Picture:
    """Those of every step that moves something."""
    found = [(done, links_picture(done, plan.model, plan.schedule)) for done in single_steps(plan.schedule.block)]
    rows = [
        each
        for done, links in found
        if links is not None
        for each in (line_of(f"  step {step_name(done)}: {done.step.name}", "h"), links)
    ]
    return above("what each link carries", rows or [line_of("nothing moves between devices")], gap=0)


PICTURES: dict[str, Callable[[Pictured], Picture]] = {
    "steps": lambda plan: steps_picture(plan.view, plan.schedule),
    "links": _links,
    "timeline": lambda plan: timeline_picture(plan.timeline),
    "roofline": lambda plan: roofline_picture(plan.schedule, plan.model.alone),
    "memory": lambda plan: memory_picture(plan.schedule, plan.view.capacity_bytes),
}
