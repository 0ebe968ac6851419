"""Plans in which an axis is cut, where that is cheaper: 4 = 2·2.

`A[I_X, J] · B[J, K_X] → C[I, K_X]` on X=16: an operand is needed whole, unless the devices are seen as a grid of 4·4,
I over the one half of the axis and K over the other. The plan is then that of the refined program (`ir.refine`), and
searched in the same way.

The search grows quickly with the number of axes. So a plan at its bound is left as it is; cuts into few parts are
tried, the most even ones; and of a product no way is searched whose bound is above what is known (`products`). By time
only axes are cut whose parts have links of their own, as X=16 on a torus of 4·4 has: the parts of a ring share its
links, where a cut seldom saves more than a few hundredths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product
from typing import TypeAlias

from shardc.cost.model import CostModel
from shardc.ir.expressions import Named, Product, Use, parts_of
from shardc.ir.finer import in_common, joined
from shardc.ir.mesh import MAX_AXES
from shardc.ir.plan import Schedule
from shardc.ir.program import Program, Statement, every_statement
from shardc.ir.refine import Refinement, refined, refinement
from shardc.ir.sharding import Axes
from shardc.planner.budget import CUT, QUICK, Budget
from shardc.planner.idle import in_one, is_alone, only_moves, width_of
from shardc.planner.options import Method, Objective, Options
from shardc.planner.planned import PlannedProgram, Planning, Refused, computed, may_gain
from shardc.planner.program.directly import Directly, directly
from shardc.planner.program.memory import FEW, Left, Limited
from shardc.planner.program.shorter import is_one_array, meshes_to_exchange_on
from shardc.rules.placements import count_placements
from shardc.rules.routes import route

SMALL, FEW_ENOUGH = 4, 14  # products and functions of what is planned in several ways; together on every mesh tried
MAX_DEEP = 3  # meshes are searched in digits, if links of few enough groups are to be worked out,
MAX_ROUTED = 5000  # of so many devices together
_NO_LIMIT = 1 << 90


@dataclass(frozen=True, slots=True)
class _Best:
    """The best so far, what a better one must stay below, what is left of the budget, and the peaks of those that need
    too much memory."""

    planned: PlannedProgram | None
    limit: int
    budget: Budget
    peaks: tuple[int, ...] = ()


Apart: TypeAlias = Callable[[Schedule], Callable[[PlannedProgram], PlannedProgram | None]]
Together: TypeAlias = Callable[[Program, CostModel, Planning], Iterator[PlannedProgram]]


@dataclass(frozen=True, slots=True)
class Finer:
    """A plan on the mesh as it is, to be bettered on finer ones; it keeps no memory limit if the search had to end."""

    whole: PlannedProgram
    model: CostModel
    planning: Planning
    memory: int | None
    together: Together | None = None  # plans all statements together, the cheapest first
    apart: Apart | None = None  # of a plan on the mesh as it is: what has each array move as it does alone
    left: Left | None = None  # what the plans on all finer meshes may take under a memory limit
    beside: Refinement | None = None  # a mesh of which one may be finer that is finer than that of the plan too

    def best(self, refused: Refused | None, budget: Budget) -> PlannedProgram | Refused:
        """The best plan on any mesh; `refused` if the one on the mesh as it is does not keep the memory limit."""
        best = _Best(None, _NO_LIMIT, budget) if refused else _Best(self.whole, self._below(self.whole), budget)
        by_bytes = self.planning.objective is Objective.BYTES
        factors = [] if refused else self._fitting(common_factors(self.whole, self.planning.objective))
        for by in factors:
            if not (by_bytes and self._is_at_bound(best)):
                best = self._tried(best, by, Method.ROUTES)
        cuts = self._fitting(self._cuts(best.planned or self.whole, needed=refused is not None))
        for by in cuts:
            best = self._tried(best, by)
        for by in cuts if is_alone(self._on(None)) and not only_moves(self._on(None)) else ():
            best = self._tried(best, by, is_bounded=False)  # what costs as much on whole dims may cost less in digits
        best = self._together(best, cuts)
        for by in factors[:MAX_DEEP] if by_bytes else ():
            if not self._is_at_bound(best) and by.fine.devices << len(by.fine.axes) <= MAX_ROUTED:
                best = self._tried(best, by, Method.ROUTES_IN_DIGITS)
        directly_done = directly(self.whole, self.model, self.planning.objective)
        best = self._in_pieces(best, directly_done.planned)
        if directly_done.unwritten and not self.planning.is_typed:  # types do not say where its blocks are equal
            best = self._in_shorter_pieces(best, factors)
            best = self._apart(best, directly_done.planned or self.whole)
        if best.planned is None:
            assert refused is not None
            return Refused(min(refused.smallest, *best.peaks)) if best.peaks else refused
        return self._telling(self._plainer(best.planned, best.budget), directly_done)

    def _fitting(self, every: list[Refinement]) -> list[Refinement]:
        """Those that go with the mesh of others."""
        return [by for by in every if self.beside is None or in_common(by, self.beside, ()) is not None]

    def _in_pieces(self, best: _Best, found: PlannedProgram | None) -> _Best:
        """Or moves as one exchange in unequal pieces, on the mesh as it is: no axis is cut for what costs as much."""
        if found is None:
            return best
        if best.planned is not None and best.planned.schedule.by is not None:
            best = replace(best, limit=best.planned.measure(self.planning.objective) + 1)
        if self.memory is not None and found.cost.peak_bytes > self.memory:
            return replace(best, peaks=(*best.peaks, found.cost.peak_bytes))
        return replace(best, planned=found) if found.measure(self.planning.objective) < best.limit else best

    def _in_shorter_pieces(self, best: _Best, factors: Sequence[Refinement]) -> _Best:
        """Or with one exchange in pieces that is short enough, and moves beside it: on a finer mesh, where axes are cut
        as these need it, or on the mesh as it is."""
        for by in meshes_to_exchange_on(self.whole, factors):
            if self.planning.objective is not Objective.BYTES or not self._is_at_bound(best):
                best = self._tried(best, by, Method.UNEQUAL_ROUTES)
        return best

    def _apart(self, best: _Best, as_given: PlannedProgram) -> _Best:
        """Or each array that moves beside other statements as it is planned alone."""
        if self.apart is None or is_one_array(self.whole.schedule):
            return best
        moving = self.apart(self.whole.schedule)
        cut = [] if best.planned is None or best.planned.schedule.by is None else [best.planned]
        for made in filter(None, map(moving, (as_given, *cut))):
            best = self._bettered(best, [made], None)
        return best

    def _telling(self, planned: PlannedProgram, done: Directly) -> PlannedProgram:
        """The plan, which says so where an exchange that is too long to be written would be clearly better."""
        objective, spent = self.planning.objective, planned.measure(self.planning.objective)
        unwritten, exchanged = done.unwritten, (done.planned or self.whole).measure(objective) - done.unwritten
        if not unwritten or exchanged >= objective.clearly_less(spent):
            return planned
        from shardc.ir.uneven import MAX_NUMBERS  # few plans say so

        note = "an exchange in unequal pieces is too long to be written: it would take more than "
        note += f"{MAX_NUMBERS} numbers; gap up to {spent / max(1, exchanged):.2f}"
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

    def _tried(
        self, best: _Best, by: Refinement | None, method: Method = Method.SEARCH, is_bounded: bool = True
    ) -> _Best:
        """The plan on a finer mesh, or on the mesh as it is, if it keeps the memory limit and costs less than the best
        so far."""
        finer = self.model if by is None else self.model.refined(by)
        if finer is None:
            return best
        program = self._on(by)
        options = Options(below=best.limit if is_bounded and is_alone(program) else None, method=method)
        every, budget = self._plans(program, finer, options, best.budget)
        if self.memory is not None and computed(program) > SMALL:
            every = islice(every, FEW if best.planned is None else 1)
        return self._bettered(replace(best, budget=budget), every, by)

    def _on(self, by: Refinement | None) -> Program:
        """The program on a finer mesh, its inputs and outputs where the plan has them."""
        schedule = self.whole.schedule
        if by is None:
            return schedule.program
        inputs, outputs = ([schedule.values[n].sharding for n in ends] for ends in (schedule.inputs, schedule.outputs))
        return refined(schedule.program, by, inputs, outputs)

    def _bettered(self, best: _Best, every: Iterable[PlannedProgram], by: Refinement | None) -> _Best:
        """The first of these plans that keeps the memory limit, if it costs less than the best so far."""
        peaks = best.peaks
        for found in every:
            if self.memory is not None and found.cost.peak_bytes > self.memory:
                peaks = (*peaks, found.cost.peak_bytes)
            elif found.measure(self.planning.objective) < best.limit:
                planned = found if by is None else self._placed(found, by)
                return _Best(planned, self._below(planned), best.budget, peaks)
        return replace(best, peaks=peaks)

    def _placed(self, found: PlannedProgram, by: Refinement) -> PlannedProgram:
        """A plan on a finer mesh, told as that."""
        notes = dict.fromkeys((*self.whole.notes, *found.notes, str(by)))
        placed = replace(found.schedule, by=by)
        return replace(found, schedule=placed, notes=tuple(notes), whole=self.whole.schedule)

    def _together(self, best: _Best, cuts: Sequence[Refinement]) -> _Best:
        """All statements planned together, on the mesh whose cuts are worth it for them in turn. By bytes on the first
        there is if none are, and on each where operations are few enough: that takes half a second more.

        `Z = H[B_X, F_Y] · V[F_Y, D]; Out[B_X, D] = relu(Z)`: alone Z may as well be scattered along D, from where it
        has to be moved.
        """
        if self.together is None:
            return best
        found = best.planned.schedule.by if best.planned is not None else None
        meshes = [*cuts[:1]] if found is None else [found]
        if self.planning.objective is not Objective.BYTES:
            meshes = [] if found is None else meshes
        elif computed(self.whole.schedule.program) <= FEW_ENOUGH:
            meshes = [*dict.fromkeys([*meshes, *cuts])]
        for by in meshes:
            finer, program = self.model.refined(by), self._on(by)
            if finer is not None and may_gain(program, self.planning):
                every = self.together(program, finer, self.planning)
                best = self._bettered(best, every if self.memory is not None else islice(every, 1), by)
        return best

    def _plans(
        self, program: Program, finer: CostModel, options: Options, budget: Budget
    ) -> tuple[Iterable[PlannedProgram], Budget]:
        """The plan, or under a memory limit those that may keep it; none where none is cheaper, or it is too wide."""
        if self.memory is not None and options.searches:
            return Limited.of(program, finer, self.memory, self.planning, self.left).keeping(options), budget
        found, left = self.planning.attempt(program, finer, replace(options, must_plan=False), budget.less(CUT))
        return ([] if found is None else [found]), left

    def _plainer(self, best: PlannedProgram, budget: Budget) -> PlannedProgram:
        """Of X0·X1·X2 whose X0 and X1 always stand together, the plan on X0·X1, if it costs no more. Of one array that
        moves, what there is by routes on the one there mostly is by routes on the other."""
        by = best.schedule.by
        cut = by and joined(by, [array.sharding for array in best.schedule.values])
        if by is None or not cut or cut == {axis: tuple(size for _, size in parts) for axis, parts in by.parts}:
            return best
        plainer = refinement(by.coarse, cut, [dim for dim, _ in self.whole.schedule.program.sizes])
        no_dearer = _Best(None, best.measure(self.planning.objective) + 1, budget)
        if not is_one_array(self.whole.schedule):
            return self._tried(no_dearer, plainer).planned or best
        quickly = replace(no_dearer, budget=Budget(min(budget.total, QUICK)))
        return self._tried(quickly, plainer).planned or self._tried(no_dearer, plainer, Method.ROUTES).planned or best


MAX_WAYS = 250  # in which the dims of all statements can lie on the finer mesh: two products on three axes
MAX_CUTS = 4096  # of which those that leave few enough axes are tried by their routes
MOST_TRIED = {Objective.BYTES: 64, Objective.TIME: 8}
MOST_EVEN = 2  # so many cuts are tried for each number of axes
MARGIN = 100  # by time a plan on a finer mesh must save one part in so many


def common_factors(whole: PlannedProgram, objective: Objective) -> list[Refinement]:
    """The finer meshes on which an array that moves may have a route in fewer bytes, the finest first.

    `A[I_X, J_Z] → A[I_Y, J]` on X=4, Y=6, Z=5: X = X0·X1 and Y = Y0·Y1 with X0 = Y0 = 2. On whole axes quarters do not
    become sixths but by a gather. Of each axis every cut is tried, into most parts first.
    """
    schedule = whole.schedule
    program, mesh = schedule.program, schedule.mesh
    border = [schedule.values[number].sharding for number in (*schedule.inputs, *schedule.outputs)]
    if not only_moves(program) or whole.cost.wire_bytes <= whole.bound_bytes or any(s.unreduced for s in border):
        return []
    if len(schedule.inputs) == len(program.statements) == 1:
        array = schedule.values[schedule.inputs[0]]
        if route(array.sharding, border[-1], array.shape, mesh) is not None:
            return []  # which brings the fewest bytes on whole axes
    used = frozenset[str]().union(*(sharding.used for sharding in border))
    ways = [list(_factorings(size, MAX_AXES if axis in used else 1)) for axis, size in mesh.axes]
    every = [
        {axis: parts for (axis, _), parts in zip(mesh.axes, cut, strict=True) if len(parts) > 1}
        for cut in islice(product(*ways), MAX_CUTS)
        if sum(map(len, cut)) <= MAX_AXES
    ]
    names = [dim for dim, _ in program.sizes]
    finest_first = sorted(filter(None, every), key=lambda cut: -sum(map(len, cut.values())))
    return [refinement(mesh, cut, names) for cut in finest_first[: MOST_TRIED[objective]]]


def worth_cutting(
    best: PlannedProgram, whole: PlannedProgram, model: CostModel, objective: Objective, pool: Axes, needed: bool
) -> list[Refinement]:
    """The finer meshes to try, axes of the pool cut, those of fewer axes first; `needed` if no plan on the mesh as it
    is will do."""
    schedule, cost = whole.schedule, whole.cost
    program, mesh = schedule.program, schedule.mesh
    border = [schedule.values[number].sharding for number in (*schedule.inputs, *schedule.outputs)]
    if any(sharding.unreduced for sharding in border) or not cost.wire_bytes:
        return []
    by_time = objective is Objective.TIME and not needed
    if by_time and (cost.communication_s * MARGIN < cost.time_s or not any(map(model.has_parts, mesh.names))):
        return []
    used = {axis for array in schedule.inputs for axis in schedule.values[array].sharding.used}

    def may_cut(axis: str) -> bool:
        """By time, of an array that only moves, what is sliced in part: an axis that holds copies."""
        return not by_time or (model.has_parts(axis) and not (only_moves(program) and axis in used))

    axes = tuple((axis, mesh.size(axis), may_cut(axis)) for axis in mesh.nontrivial(pool))
    cuts = _even_cuts(axes, _most_axes(program))
    if cuts and not by_time and not needed and best.cost.wire_bytes <= whole.bound_bytes:
        return []
    names = [dim for dim, _ in program.sizes]
    return [refinement(mesh, cut, names) for cut in cuts]


def _most_axes(program: Program) -> int:
    """How many axes the search has time for; that of an array which only moves is to be quick, and takes no time beside
    what is computed, nor does a function beside products: it may stand in a statement of its own or not."""
    moves = only_moves(program)
    every = [[each] for each in every_statement(program)] if moves else [*map(_computing, in_one(program))]
    products = [each for each in every if any(isinstance(part, Product) for one in each for part in parts_of(one.expr))]
    widths = [max(map(width_of, each)) for each in products or every if each]
    ways = MAX_WAYS // 4 if moves else MAX_WAYS
    return next(n for n in range(100) if sum(count_placements(n + 1, each) for each in widths) > ways)


def _computing(statements: Sequence[Statement]) -> list[Statement]:
    return [each for each in statements if not isinstance(each.expr, Use | Named)]


@lru_cache(maxsize=256)
def _even_cuts(axes: tuple[tuple[str, int, bool], ...], max_axes: int) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """Of all ways to cut some axes that leave at most so many, the most even for each number of axes.

    `axes` are names, sizes, and whether they may be cut.
    """
    room = max_axes - len(axes)
    if room < 1:
        return ()
    ways: dict[int, list[tuple[int, Mapping[str, tuple[int, ...]]]]] = {}
    for cut in product(*(list(_factorings(size, room + 1 if may else 1)) for _, size, may in axes)):
        sizes = [part for parts in cut for part in parts]
        cuts = {axis: parts for (axis, _, _), parts in zip(axes, cut, strict=True) if len(parts) > 1}
        if cuts and len(sizes) <= max_axes:
            ways.setdefault(len(sizes), []).append((sum(sizes), cuts))
    for found in ways.values():
        found.sort(key=lambda way: way[0])
    return tuple(cut for count in sorted(ways) for _, cut in ways[count][:MOST_EVEN])


def _factorings(size: int, max_parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a size as a product of at most so many factors above 1, in order: 4, 2·2."""
    yield (size,)
    if max_parts > 1:
        for first in range(2, size // 2 + 1):
            if size % first == 0:
                yield from ((first, *rest) for rest in _factorings(size // first, max_parts - 1))
