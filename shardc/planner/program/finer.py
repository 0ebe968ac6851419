"""Plans in which an axis is cut, where that is cheaper: 4 = 2·2.

`A[I_X, J] · B[J, K_X] → C[I, K_X]` on X=16: an operand is needed whole, unless the devices are seen as a grid of 4·4,
I over the one half of the axis and K over the other. The plan is then that of the refined program (`ir.refine`), and
searched in the same way, on the meshes that `meshes.cuts` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardc.cost.model import CostModel
from shardc.ir.program import Program
from shardc.ir.refine import Refinement, refined, refinement
from shardc.ir.uneven import MAX_NUMBERS, MAX_ROUNDS
from shardc.planner.budget import CUT, Budget
from shardc.planner.meshes.cuts import MARGIN, common_factors, joined, worth_cutting
from shardc.planner.meshes.idle import is_alone
from shardc.planner.options import Method, Objective, Options
from shardc.planner.planned import PlannedProgram, Refused
from shardc.planner.planning import Planning
from shardc.planner.program.directly import directly
from shardc.planner.program.memory import Limited

MAX_DEEP = 3  # meshes are searched in digits, if links of few enough groups are to be worked out,
MAX_ROUTED = 5000  # of so many devices together
_NO_LIMIT = 1 << 90


@dataclass(frozen=True, slots=True)
class _Best:
    """The best so far, what a better one must stay below, and the peaks of those that need too much memory."""

    planned: PlannedProgram | None
    limit: int
    peaks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Finer:
    """A plan on the mesh as it is, to be bettered on finer ones; it keeps no memory limit if the search had to end."""

    whole: PlannedProgram
    model: CostModel
    planning: Planning
    memory: int | None
    budget: Budget

    def best(self, refused: Refused | None) -> PlannedProgram | Refused:
        """The best plan on any mesh; `refused` if the one on the mesh as it is does not keep the memory limit."""
        best = _Best(None, _NO_LIMIT) if refused else _Best(self.whole, self._below(self.whole))
        by_bytes = self.planning.objective is Objective.BYTES
        factors = [] if refused else common_factors(self.whole, self.planning.objective)
        for by in factors:
            if not (by_bytes and self._is_at_bound(best)):
                best = self._tried(best, by, Method.ROUTES)
        for by in self._cuts(best.planned or self.whole, needed=refused is not None):
            best = self._tried(best, by)
        for by in factors[:MAX_DEEP] if by_bytes else ():
            if not self._is_at_bound(best) and by.fine.devices << len(by.fine.axes) <= MAX_ROUTED:
                best = self._tried(best, by, Method.ROUTES_IN_DIGITS)
        directly_done = directly(self.whole, self.model, self.planning.objective)
        best = self._in_pieces(best, directly_done.planned)
        if best.planned is None:
            assert refused is not None
            return Refused(min(refused.least, *best.peaks)) if best.peaks else refused
        return self._telling(self._plainer(best.planned), directly_done.unwritten)

    def _in_pieces(self, best: _Best, found: PlannedProgram | None) -> _Best:
        """Or moves as one exchange in unequal pieces, on the mesh as it is."""
        if found is None:
            return best
        if self.memory is not None and found.cost.peak_bytes > self.memory:
            return replace(best, peaks=(*best.peaks, found.cost.peak_bytes))
        return replace(best, planned=found) if found.measure(self.planning.objective) < best.limit else best

    def _telling(self, planned: PlannedProgram, unwritten: int) -> PlannedProgram:
        """The plan, which says so where an exchange that is too long to be written would be clearly better."""
        objective, spent = self.planning.objective, planned.measure(self.planning.objective)
        least = self.whole.measure(objective) - unwritten
        if not unwritten or least >= objective.clearly_less(spent):
            return planned
        note = "an exchange in unequal pieces is too long to be written: it would take more than "
        note += f"{MAX_ROUNDS} rounds, or {MAX_NUMBERS} numbers; gap up to {spent / max(1, least):.2f}"
        return replace(planned, notes=(*planned.notes, note))

    def _is_at_bound(self, best: _Best) -> bool:
        return best.limit <= self.whole.bound_bytes

    def _below(self, best: PlannedProgram) -> int:
        """What a longer program must stay below."""
        limit = best.measure(self.planning.objective)
        return limit - limit // MARGIN if self.planning.objective is Objective.TIME else limit

    def _cuts(self, best: PlannedProgram, needed: bool) -> list[Refinement]:
        """Where a memory limit needs cuts, those tried without one come first: their plans are to be found again."""
        planning = self.planning
        pool = planning.axes(self.whole.schedule.program, planning.uses_idle_first)
        found, *more = (
            worth_cutting(best, self.whole, self.model, planning.objective, pool, needed=each)
            for each in ((False, True) if needed else (False,))
        )
        return [*dict.fromkeys([*found, *more[0]])] if needed else found

    def _tried(self, best: _Best, by: Refinement, method: Method = Method.SEARCH) -> _Best:
        """The plan on a finer mesh, if it keeps the memory limit and costs less than the best so far."""
        finer, peaks = self.model.refined(by), best.peaks
        if finer is None:
            return best
        schedule = self.whole.schedule
        inputs, outputs = ([schedule.values[n].sharding for n in ends] for ends in (schedule.inputs, schedule.outputs))
        program = refined(schedule.program, by, inputs, outputs)
        options = Options(below=best.limit if is_alone(program) else None, method=method)
        for found in self._planned(program, finer, options):
            if self.memory is not None and found.cost.peak_bytes > self.memory:
                peaks = (*peaks, found.cost.peak_bytes)
            elif found.measure(self.planning.objective) < best.limit:
                placed = replace(found.schedule, by=by)
                planned = replace(found, schedule=placed, notes=(*self.whole.notes, str(by)), whole=schedule)
                return _Best(planned, self._below(planned), peaks)
        return replace(best, peaks=peaks)

    def _planned(self, program: Program, finer: CostModel, options: Options) -> Iterator[PlannedProgram]:
        """The plan, or under a memory limit those that may keep it; none where none is cheaper, or it is too wide."""
        if self.memory is not None and options.searches:
            yield from Limited(program, finer, self.memory, self.planning).keeping(options)
            return
        self.budget.pay(CUT)
        found = self.planning.attempt(program, finer, replace(options, must_plan=False), self.budget)
        if found is not None:
            yield found

    def _plainer(self, best: PlannedProgram) -> PlannedProgram:
        """Of X0·X1·X2 whose X0 and X1 always stand together, the plan on X0·X1, if it costs no more."""
        by = best.schedule.by
        cut = by and joined(by, [array.sharding for array in best.schedule.values])
        if by is None or not cut or cut == {axis: tuple(size for _, size in parts) for axis, parts in by.parts}:
            return best
        plainer = refinement(by.coarse, cut, [dim for dim, _ in self.whole.schedule.program.sizes])
        no_dearer = _Best(None, best.measure(self.planning.objective) + 1)
        return self._tried(no_dearer, plainer).planned or best
