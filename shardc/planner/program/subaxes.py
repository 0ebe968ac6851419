"""Plans in which an axis is cut, where that is cheaper: 4 = 2·2.

`A[I_X, J] · B[J, K_X] → C[I, K_X]` on X=16: an operand is needed whole, unless the devices are seen as a grid of 4·4,
I over the one half of the axis and K over the other. The plan is then that of the refined program (`ir.refine`), and
searched in the same way.

The search grows quickly with the number of axes. So a plan at its bound is left as it is; cuts into few parts are
tried, the most even ones; and of a product no way is searched whose bound is above what is known (`ways`). By time
only axes are cut whose parts have links of their own, as X=16 on a torus of 4·4 has: the parts of a ring share its
links, where a cut seldom saves more than a few hundredths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, pairwise, product

from shardc.cost.model import CostModel, picoseconds
from shardc.errors import ShardcError
from shardc.ir.mesh import MAX_AXES
from shardc.ir.program import Program, every_statement
from shardc.ir.refine import Refinement, refined, refinement
from shardc.ir.sharding import Sharding
from shardc.planner.budget import CUT, Budget, Spent
from shardc.planner.meshes.idle import only_moves, width_of
from shardc.planner.objective import Objective
from shardc.planner.program.at_once import PlannedProgram, planned_at_once
from shardc.planner.program.directly import directly
from shardc.planner.program.limits import TooLarge, axes_to_search, is_alone
from shardc.planner.program.plan import keeping, plan_program
from shardc.rules.products import count_placements
from shardc.rules.routes import route

MAX_WAYS = 250  # in which the dims of all statements can lie on the finer mesh: two products on three axes
MAX_CUTS = 4096  # of which those that leave few enough axes are tried by their routes
MOST_TRIED = {Objective.BYTES: 64, Objective.TIME: 8}
MAX_DEEP = 3  # are searched, if links of few enough groups are to be worked out, of so many devices together
MAX_ROUTED = 5000
MOST_EVEN = 2  # so many cuts are tried for each number of axes
_NO_LIMIT = 1 << 90
MARGIN = 100  # by time a plan on a finer mesh must save one part in so many


def plan_with_subaxes(
    program: Program, model: CostModel, objective: Objective = Objective.TIME, memory: int | None = None
) -> PlannedProgram:
    """As `plan_program`; on a mesh with axes cut where that is cheaper by the objective, or alone keeps the limit.

    By bytes it must save some, by time a hundredth, since the program is longer. Programs that take or give partial
    sums are left on their mesh.
    """
    refusal, budget = None, Budget.of(len(list(every_statement(program))))
    try:
        whole = plan_program(program, model, objective, memory, budget)
    except TooLarge as error:
        refusal, whole = error, plan_program(program, model, objective)
    best, limit = (whole, _below(whole, objective)) if refusal is None else (None, _NO_LIMIT)
    peaks: list[int] = []
    factors = _common_factors(whole, objective) if refusal is None else []
    for by in factors:
        if limit <= whole.bound_bytes and objective is Objective.BYTES:
            break
        found = _on(by, whole, model, objective, memory, limit, peaks, budget, quick=True)
        if found is not None:
            best, limit = found, _below(found, objective)
    for by in _cuts_to_try(best or whole, whole, model, objective, needed=refusal is not None):
        found = _on(by, whole, model, objective, memory, limit, peaks, budget)
        if found is not None:
            best, limit = found, _below(found, objective)
    for by in factors[:MAX_DEEP] if objective is Objective.BYTES else ():
        if limit <= whole.bound_bytes:
            break
        if by.fine.devices << len(by.fine.axes) > MAX_ROUTED:
            continue
        found = _on(by, whole, model, objective, memory, limit, peaks, budget, quick=True, deep=True)
        if found is not None:
            best, limit = found, _below(found, objective)
    exchanged = directly(whole, model, objective)
    if exchanged is not None and memory is not None and exchanged.cost.peak_bytes > memory:
        peaks.append(exchanged.cost.peak_bytes)
    elif exchanged is not None and measure(exchanged, objective) < limit:
        best = exchanged
    if best is None:
        assert refusal is not None and memory is not None
        raise TooLarge(program, memory, min(refusal.least, *peaks)) if peaks else refusal
    return _plainer(best, whole, model, objective, memory, budget)


def _cuts_to_try(
    best: PlannedProgram, whole: PlannedProgram, model: CostModel, objective: Objective, needed: bool
) -> list[Refinement]:
    """Where a memory limit needs cuts, those tried without one come first: their plans are to be found again."""
    found = _cuts(best, whole, model, objective, needed=False)
    return [*dict.fromkeys([*found, *_cuts(best, whole, model, objective, needed=True)])] if needed else found


def _on(
    by: Refinement,
    whole: PlannedProgram,
    model: CostModel,
    objective: Objective,
    memory: int | None,
    limit: int,
    peaks: list[int],
    budget: Budget,
    quick: bool = False,
    deep: bool = False,
) -> PlannedProgram | None:
    """The plan on a finer mesh, if it keeps the memory limit and costs less than another limit.

    The peaks of those that do not keep it are added to `peaks`.
    """
    finer, schedule = model.refined(by), whole.schedule
    if finer is None:
        return None
    inputs, outputs = ([schedule.values[n].sharding for n in ends] for ends in (schedule.inputs, schedule.outputs))
    program = refined(schedule.program, by, inputs, outputs)

    alone = limit if is_alone(program) else None
    for found in _planned(program, finer, objective, memory, alone, budget, quick, deep):
        if memory is not None and found.cost.peak_bytes > memory:
            peaks.append(found.cost.peak_bytes)
        elif measure(found, objective) < limit:
            return replace(
                found, schedule=replace(found.schedule, by=by), notes=(*whole.notes, str(by)), whole=schedule
            )
    return None


def _planned(
    program: Program,
    finer: CostModel,
    objective: Objective,
    memory: int | None,
    limit: int | None,
    budget: Budget,
    quick: bool,
    deep: bool,
) -> Iterator[PlannedProgram]:
    """The plan, or under a memory limit those that may keep it; nothing where none is cheaper, or it is too wide."""
    if memory is not None and not quick:
        yield from keeping(program, finer, objective, memory, limit=limit)
        return
    try:
        budget.pay(CUT)
        yield planned_at_once(
            program, finer, objective, limit=limit, budget=budget, hurried=False, quick=quick, deep=deep
        )
    except (ShardcError, Spent):
        return


def _plainer(
    best: PlannedProgram,
    whole: PlannedProgram,
    model: CostModel,
    objective: Objective,
    memory: int | None,
    budget: Budget,
) -> PlannedProgram:
    """Of X0·X1·X2 whose X0 and X1 always stand together, the plan on X0·X1, if it costs no more."""
    by = best.schedule.by
    cut = by and joined(by, [array.sharding for array in best.schedule.values])
    if by is None or not cut or cut == {axis: tuple(size for _, size in parts) for axis, parts in by.parts}:
        return best
    plainer = refinement(by.coarse, cut, [dim for dim, _ in whole.schedule.program.sizes])
    found = _on(plainer, whole, model, objective, memory, measure(best, objective) + 1, [], budget)
    return best if found is None else found


def joined(by: Refinement, shardings: Sequence[Sharding]) -> dict[str, tuple[int, ...]]:
    """The sizes of the parts of axes if parts are joined that are neighbours in all shardings, in order."""
    found: dict[str, tuple[int, ...]] = {}
    for axis, parts in by.parts:
        (last, size), *others = parts
        sizes = [size]
        for name, size in others:
            if all(_together(last, name, sharding) for sharding in shardings):
                sizes[-1] *= size
            else:
                sizes.append(size)
            last = name
        if len(sizes) > 1:
            found[axis] = tuple(sizes)
    return found


def _together(first: str, second: str, sharding: Sharding) -> bool:
    """Whether the second follows the first wherever one of them is."""
    if (first in sharding.unreduced) != (second in sharding.unreduced):
        return False
    if first not in sharding.sharded or second not in sharding.sharded:
        return first not in sharding.sharded and second not in sharding.sharded
    return any((first, second) in pairwise(axes) for axes in sharding.dims)


def measure(planned: PlannedProgram, objective: Objective) -> int:
    """What the objective counts. Time in whole picoseconds: sums of floats differ in their last bits by their order."""
    return picoseconds(planned.cost.time_s) if objective is Objective.TIME else planned.cost.wire_bytes


def _below(best: PlannedProgram, objective: Objective) -> int:
    """What a longer program must stay below."""
    limit = measure(best, objective)
    return limit - limit // MARGIN if objective is Objective.TIME else limit


def _common_factors(whole: PlannedProgram, objective: Objective) -> list[Refinement]:
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


def _cuts(
    best: PlannedProgram, whole: PlannedProgram, model: CostModel, objective: Objective, needed: bool
) -> list[Refinement]:
    """The finer meshes to try, those of fewer axes first; `needed` if no plan on the mesh as it is will do."""
    schedule, cost = whole.schedule, whole.cost
    program, mesh = schedule.program, schedule.mesh
    border = [schedule.values[number].sharding for number in (*schedule.inputs, *schedule.outputs)]
    if any(sharding.unreduced for sharding in border) or not cost.wire_bytes:
        return []
    by_time = objective is Objective.TIME and not needed
    if by_time and cost.communication_s * MARGIN < cost.time_s:
        return []
    pool, _ = axes_to_search(program, with_idle=objective is Objective.BYTES)
    used = {axis for array in schedule.inputs for axis in schedule.values[array].sharding.used}

    def may_cut(axis: str) -> bool:
        """By time, of an array that only moves, what is sliced in part: an axis that holds copies."""
        return not by_time or (model.has_parts(axis) and not (only_moves(program) and axis in used))

    wide = tuple((axis, mesh.size(axis), may_cut(axis)) for axis in pool if mesh.size(axis) > 1)
    cuts = _even_cuts(wide, _most_axes(program))
    if cuts and not by_time and not needed and best.cost.wire_bytes <= whole.bound_bytes:
        return []
    names = [dim for dim, _ in program.sizes]
    return [refinement(mesh, cut, names) for cut in cuts]


def _most_axes(program: Program) -> int:
    """How many axes the search has time for; that of an array which only moves is to be quick."""
    widths = [width_of(statement) for statement in every_statement(program)]
    ways = MAX_WAYS // 4 if only_moves(program) else MAX_WAYS
    return next(n for n in range(100) if sum(count_placements(n + 1, each) for each in widths) > ways)


@lru_cache(maxsize=256)
def _even_cuts(axes: tuple[tuple[str, int, bool], ...], most: int) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """Of all ways to cut some axes that leave at most so many, the most even for each number of axes.

    `axes` are names, sizes, and whether they may be cut.
    """
    room = most - len(axes)
    if room < 1:
        return ()
    ways: dict[int, list[tuple[int, Mapping[str, tuple[int, ...]]]]] = {}
    for cut in product(*(list(_factorings(size, room + 1 if may else 1)) for _, size, may in axes)):
        sizes = [part for parts in cut for part in parts]
        cuts = {axis: parts for (axis, _, _), parts in zip(axes, cut, strict=True) if len(parts) > 1}
        if cuts and len(sizes) <= most:
            ways.setdefault(len(sizes), []).append((sum(sizes), cuts))
    for found in ways.values():
        found.sort(key=lambda way: way[0])
    return tuple(cut for count in sorted(ways) for _, cut in ways[count][:MOST_EVEN])


def _factorings(size: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a size as a product of at most so many factors above 1, in order: 4, 2·2."""
    yield (size,)
    if most > 1:
        for first in range(2, size // 2 + 1):
            if size % first == 0:
                yield from ((first, *rest) for rest in _factorings(size // first, most - 1))
