"""What tuning gives, as Python shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from shardc.report.shown import Shown

if TYPE_CHECKING:
    from shardc.compiled.tune.tuned import Tuned
    from shardc.report.pictures import Picture

PlanT = TypeVar("PlanT", bound=Shown)


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Generic[PlanT]):
    """The plan that replays fastest, and what was tried; `print` shows the candidates as a table."""

    plan: PlanT
    tried: Tuned

    def __str__(self) -> str:
        return str(self.tried)

    def __repr__(self) -> str:
        return repr(self.tried)

    def _repr_html_(self) -> str:
        from shardc.report.page.notebook import tuned_html

        return tuned_html(self.tried) + self.plan._repr_html_()

    def picture(self) -> Picture:
        """Of each candidate a bar as long as its replay. As `Plan.picture`."""
        from shardc.report.pictures.tuned import tuned_picture

        return tuned_picture(self.tried)
