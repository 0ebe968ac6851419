"""How a plan shows itself in Python: in a line, as pictures, as a page, in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from shardc.errors import ShardcError, flag, in_line
from shardc.io.files import check_output, check_page, write_output
from shardc.io.units import in_bytes, in_one_line, in_seconds
from shardc.report.front import FrontView
from shardc.report.table import table
from shardc.report.view import PlanView

if TYPE_CHECKING:
    from shardc.compiled.compare import Comparison
    from shardc.compiled.replay.timeline import Timeline
    from shardc.compiled.verify import Verification
    from shardc.cost.kinds.held import ByKind
    from shardc.cost.model import LinkModel
    from shardc.ir.plan import Schedule
    from shardc.report.pictures import Picture
    from shardc.report.pictures.plan import Pictured, PictureOf

_LONGEST = 100  # characters of statements in a line


class Shown(ABC):
    """A plan, as far as it can be seen."""

    _model: LinkModel

    @property
    @abstractmethod
    def _view(self) -> PlanView: ...

    @property
    @abstractmethod
    def schedule(self) -> Schedule: ...

    @abstractmethod
    def source(self) -> str: ...

    @abstractmethod
    def verify(self) -> Verification: ...

    @abstractmethod
    def compare(self, rounds: int = 15) -> Comparison: ...

    @abstractmethod
    def _front_view(self, say: Callable[[str], None]) -> FrontView: ...

    @property
    def memory(self) -> ByKind | None:
        """Of a training step its memory by kind, and what forward keeps for backward: `cost.kinds`.

        >>> from shardc import grad, parse, plan
        >>> forward = parse("y[B_X, F] = x[B_X, D] · W[D, F]", mesh={"X": 4}, dims={"B": 8, "D": 8, "F": 8})
        >>> found = plan(grad(forward, ["W"], whole=True)).memory
        >>> [(held.kind.value, held.parameter) for held in found.held][:2], [one.made for one in found.kept]
        ([('weights', '2'), ('gradients', '2')], ['x'])
        """
        return self._view.memory

    def __str__(self) -> str:
        return table(self._view)

    def __repr__(self) -> str:
        view = self._view
        mesh = ",".join(f"{axis}={size}" for axis, size in view.mesh.items()) or "one device"
        cost = f"{in_bytes(view.cost.wire_bytes)}, {in_seconds(view.cost.time_s)}"
        return f"<Plan of {statements_in_line(view)} on {view.chip}, {mesh}: {cost}>"

    def _repr_html_(self) -> str:
        from shardc.report.page.notebook import plan_html

        return plan_html(self._pictured())

    def picture(self, of: PictureOf = "steps") -> Picture:
        """A picture, which a notebook shows and `save` writes as SVG; needs drawsvg, `pip install 'shardc[report]'`.

        Of "steps", each as blocks on the mesh before and after; of what each of the "links" carries; the "timeline",
        the chip's "roofline" with the products, or the "memory" over the steps.

        >>> from shardc import plan
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> found.picture().title
        'A[I_X, J] → A[I, J]: 1 step'
        """
        from shardc.report.pictures.plan import picture

        return picture(self._pictured(), of)

    @property
    def timeline(self) -> Timeline:
        """When compute and each axis are busy, as it is priced: what `picture("timeline")` draws."""
        return self._pictured().timeline

    def page(
        self,
        *,
        pareto: bool = False,
        compare: Shown | Literal["xla"] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> str:
        """The plan as one page of HTML, under 500 KB, which fetches nothing; as `picture`, it needs drawsvg.

        With its front by `pareto`; and, where a slice is named and libtpu is there, with what the compiler makes of it.
        Or, to `compare`, with another plan beside it, or with what XLA alone makes of the same shardings ("xla"): for
        its slice where one is named, else for simulated devices. `say` is told what is being done.
        """
        from shardc.report.page import Reported, page, page_beside_xla, page_of_two

        flag(pareto, "pareto")
        if not (compare is None or isinstance(compare, Shown) or (isinstance(compare, str) and compare == "xla")):
            raise ShardcError(
                "SHC001", f"compare is {in_line(repr(compare)[:200])}", help='give another plan, or "xla"'
            )
        if compare in ("xla", None) and self.schedule.program.topology is not None:
            say(f"compiling for {self.schedule.program.topology}")
        if compare == "xla":
            return page_beside_xla(Reported(self._pictured(), self.source()), self.compare())
        if compare is not None:
            return page_of_two(*(Reported(each._pictured(), each.source()) for each in (self, compare)))
        verified, why_not = self._verified()
        front = self._front_view(say) if pareto else None
        say("drawing")
        return page(Reported(self._pictured(), self.source(), front, verified, why_not))

    def report(
        self, path: str, *, pareto: bool = False, compare: Shown | Literal["xla"] | None = None, force: bool = False
    ) -> None:
        """Writes `page()` to a file, whole or not at all; over one that exists only by `force`. SHC001, SHC502 to
        SHC506."""
        check_output(path, sources=(), force=force)
        check_page(path)
        write_output(self.page(pareto=pareto, compare=compare), path, sources=(), force=force)

    def _pictured(self) -> Pictured:
        from shardc.report.pictures.plan import Pictured

        return Pictured(self._view, self.schedule, self._model)

    def _verified(self) -> tuple[Verification | None, str]:
        """What the compiler makes of it, where a slice is named; or why that is not known."""
        if self.schedule.program.topology is None:
            return None, ""
        try:
            return self.verify(), ""
        except ShardcError as error:
            return None, f"Not held against the compiler: {error.message}."


def statements_in_line(view: PlanView) -> str:
    """`A[I_X] → A[I]; B[J_X] → B[J]`; of many the first, and how many more."""
    texts = [in_one_line(statement.text) for statement in view.statements]
    shown, *others = texts or [""]
    while others and len(shown) + len(others[0]) < _LONGEST:
        shown += "; " + others.pop(0)
    return shown + (f"; and {len(others)} more" if others else "")


def front_in_line(front: FrontView) -> str:
    """`<Front of 4 plans of A[…] → …: 340 µs in 46.1 MB to 457 µs in 33.6 MB>`."""
    ends = [front.points[0], front.points[-1]]
    said = " to ".join(dict.fromkeys(f"{in_seconds(p.cost.time_s)} in {in_bytes(p.cost.peak_bytes)}" for p in ends))
    count = f"{len(front.points)} plan{'s' * (len(front.points) != 1)}"
    return f"<Front of {count} of {statements_in_line(front.points[0])}: {said}>"
