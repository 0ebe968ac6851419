"""The finer meshes that are tried for a plan: where arrays alone move every cut of axes, else few, the most even."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise, product

from shardc.cost.model import CostModel
from shardc.ir.mesh import MAX_AXES
from shardc.ir.program import Program, every_statement
from shardc.ir.refine import Refinement, refinement
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.idle import only_moves, width_of
from shardc.planner.options import Objective
from shardc.planner.planned import PlannedProgram
from shardc.rules.placements import count_placements
from shardc.rules.routes import route

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
    """How many axes the search has time for; that of an array which only moves is to be quick."""
    widths = [width_of(statement) for statement in every_statement(program)]
    ways = MAX_WAYS // 4 if only_moves(program) else MAX_WAYS
    return next(n for n in range(100) if sum(count_placements(n + 1, each) for each in widths) > ways)


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
