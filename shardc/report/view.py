"""A plan as its JSON names it: every field of `shardc plan --json`, as an attribute."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from shardc.cost import LinkModel
from shardc.cost.kinds import by_kind
from shardc.cost.received import received
from shardc.io.text import json_text
from shardc.io.units import in_bytes
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Cost, Loop, Schedule, Step, Strategy, operands_of, single_steps
from shardc.ir.program import Program
from shardc.ir.sharding import Array
from shardc.planner import PlannedLoop, PlannedProgram, PlannedStatement, Written, as_written

if TYPE_CHECKING:
    from shardc.cost.kinds.flow import Path
    from shardc.cost.kinds.held import ByKind

VERSION = 1


@dataclass(frozen=True, slots=True)
class ArrayView:
    """An input or output: `bytes` and `local_shape` are of one device. `dtype` is JAX's name: `jnp.ones(shape, dtype)`
    is such an array."""

    name: str
    sharding: str
    shape: tuple[int, ...]
    dtype: str
    local_shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class StepView:
    """`axes` and `dim` are of a collective; `dim` is where it gathers, scatters, or slices, or what a loop runs along.

    A loop's `result` names all of its results, and its figures are of all trips; those of its `steps` are of one.
    """

    op: str
    statement: int
    operands: tuple[str, ...]
    result: str
    axes: tuple[str, ...]
    dim: str | None
    local_shape: tuple[int, ...]
    bytes: int  # of the result, on one device
    wire_bytes: int
    flops: int
    time_s: float
    formula: str
    rule: str
    trips: int = 1
    steps: tuple[StepView, ...] = ()  # of one trip, where the step is a loop
    hbm_bound: bool = False  # of a product: it waits for the device's memory
    off_critical_path: bool = False  # of a collective of a training step: nothing waits for it
    in_chunks: bool = False  # of a loop over chunks of a dim: its steps are of the statements around it
    form: str = ""  # `ring`, `partitioner`: how it is done as one with the steps beside it of the same form


@dataclass(frozen=True, slots=True)
class AlternativeView:
    """One legal way to do a statement."""

    wire_bytes: int
    time_s: float
    steps: tuple[StepView, ...]


class StatementView:
    """A statement, the case of each axis, and every strategy, the cheapest first; or a loop and its `statements`."""

    def __init__(self, planned: PlannedStatement | PlannedLoop, mesh: Mesh) -> None:
        self._planned = planned
        self._mesh = mesh
        self.text = planned.text
        self.cases = {} if isinstance(planned, PlannedLoop) else planned.cases

    @property
    def statements(self) -> tuple[StatementView, ...]:
        """Those of a loop's body."""
        if not isinstance(self._planned, PlannedLoop):
            return ()
        return tuple(StatementView(each, self._mesh) for each in self._planned.statements)

    @property
    def alternatives(self) -> tuple[AlternativeView, ...]:
        return self.cheapest(None)

    def cheapest(self, count: int | None) -> tuple[AlternativeView, ...]:
        """The first `count` alternatives, or all; of a loop its statements have them."""
        if isinstance(self._planned, PlannedLoop):
            return ()
        return tuple(_alternative(strategy, self._mesh) for strategy in self._planned.cheapest(count))


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound that holds for any method; 0 where none is known."""

    wire_bytes: int


class Totals(NamedTuple):
    """Over all devices; None where it was not counted."""

    devices: int
    wire_bytes: int | None
    flops: int


class WrittenView(NamedTuple):
    """The program as the book's own rules do it. Of what a loop repeats there is one step, with its `trips`."""

    wire_bytes: int
    time_s: float
    steps: tuple[StepView, ...]


@dataclass(frozen=True, slots=True)
class PlanView:
    """The plan, in the names of its JSON."""

    version: int
    mesh: dict[str, int]  # as given
    split: dict[str, dict[str, int]]  # of each axis that the steps see cut: its sub-axes, major to minor
    chip: str
    dims: dict[str, int]
    dtype: str
    inputs: tuple[ArrayView, ...]
    outputs: tuple[ArrayView, ...]
    statements: tuple[StatementView, ...]
    steps: tuple[StepView, ...]
    cost: Cost
    bound: Bound
    totals: Totals
    written: WrittenView | None  # None where the book's rules lead nowhere
    symbols: dict[str, float]
    notes: tuple[str, ...]
    capacity_bytes: int  # of a device
    warnings: tuple[str, ...]
    memory: ByKind | None  # of a training step, by kind


def view(planned: PlannedProgram, model: LinkModel, asked: Program, asked_model: LinkModel) -> PlanView:
    """`asked` is the program as it was given, `asked_model` its prices: on the mesh before any axis was cut."""
    schedule, program = planned.schedule, planned.schedule.program
    mesh, given = program.mesh, [schedule.given(number) for number in schedule.inputs]
    written, memory = as_written(asked, asked_model, given), by_kind(schedule)
    shown = _in_forms(steps(schedule.steps, schedule.values, mesh), schedule)
    return PlanView(
        VERSION,
        dict(schedule.given_mesh.axes),
        {} if schedule.by is None else {axis: dict(cut) for axis, cut in schedule.by.parts},
        model.chip.name,
        dict(program.sizes),
        program.dtype.name,
        tuple(_array(array, schedule.given_mesh) for array in given),
        tuple(_array(array, schedule.given_mesh) for array in schedule.results),
        tuple(StatementView(statement, mesh) for statement in planned.statements),
        shown if memory is None else _waiting(shown, memory.off_path),
        planned.cost,
        Bound(planned.bound_bytes),
        Totals(mesh.devices, received(schedule), mesh.devices * planned.cost.flops),
        None if written is None else _written(written, schedule.given_mesh),
        model.symbols() | dict(schedule.given_mesh.axes) | dict(mesh.axes) | dict(program.sizes),
        (*program.warnings, *planned.notes),
        int(model.chip.hbm_bytes),
        tuple(_warnings(planned.cost, model)),
        memory,
    )


def _written(found: Written, mesh: Mesh) -> WrittenView:
    every = single_steps(found.block)
    shown = (replace(_step(done.step, done.block.values, mesh), trips=done.times) for done in every)
    return WrittenView(found.cost.wire_bytes, found.cost.time_s, tuple(shown))


def _warnings(cost: Cost, model: LinkModel) -> Iterator[str]:
    """What keeps the plan from being run."""
    chip, fabric = model.chip, model.network.fabric
    chips = 1 if fabric is None else math.prod(fabric.laid.shape)
    if chips > chip.most_chips:
        yield (
            f"no slice of {chip.name} has {chips:,} chips, its largest is {chip.largest}; axes over several slices are "
            "named by --dcn"
        )
    if cost.peak_bytes > chip.hbm_bytes:
        yield (
            f"it does not fit: a device needs {in_bytes(cost.peak_bytes)}, and chip {chip.name} has "
            f"{in_bytes(int(chip.hbm_bytes))}; shard the arrays over more axes, or look at --pareto"
        )


def steps(found: Sequence[Step], values: Sequence[Array], mesh: Mesh) -> tuple[StepView, ...]:
    return tuple(_step(step, values, mesh) for step in found)


def _in_forms(found: tuple[StepView, ...], schedule: Schedule) -> tuple[StepView, ...]:
    """What is done as one says so."""
    forms = {n: group.how.value for group in schedule.together for n in group.places}
    forms |= dict.fromkeys(range(len(found)), "XLA") if schedule.by_xla else {}
    return tuple(replace(step, form=forms[n]) if n in forms else step for n, step in enumerate(found))


def _waiting(found: tuple[StepView, ...], off: Collection[Path], around: Path = ()) -> tuple[StepView, ...]:
    """What is off the critical path says so, in loops too."""
    paths = [(*around, place) for place in range(len(found))]
    return tuple(
        replace(step, off_critical_path=path in off, steps=_waiting(step.steps, off, path))
        for step, path in zip(found, paths, strict=True)
    )


def without_steps(statement: int, found: Sequence[StepView]) -> str:
    """Of a statement that no step is of, what there is to do: nothing, unless a loop over chunks of several has it."""
    loops = (step for step in found if step.in_chunks and any(each.statement == statement for each in step.steps))
    loop = next(loops, None)
    return "nothing to do" if loop is None else f"in the loop over {loop.rule} below"


def every_view(found: Sequence[StepView]) -> Iterator[StepView]:
    """Every step in order, after a loop its own: as `ir.plan.every_step` has them."""
    for step in found:
        yield step
        yield from every_view(step.steps)


def to_json(plan: PlanView, top: int | None = None) -> str:
    """The JSON text; of each statement the first `top` alternatives, or all."""
    return json_text(fields(plan, top), indent=1)


_COST = ("wire_bytes", "flops", "compute_s", "communication_s", "time_s", "peak_bytes")


def fields(plan: PlanView, top: int | None = None) -> dict[str, Any]:
    """What the JSON holds."""
    return {
        "version": plan.version,
        "mesh": plan.mesh,
        **({"split": plan.split} if plan.split else {}),
        "chip": plan.chip,
        "dims": plan.dims,
        "dtype": plan.dtype,
        "inputs": [asdict(array) for array in plan.inputs],
        "outputs": [asdict(array) for array in plan.outputs],
        "statements": [_statement_fields(statement, top) for statement in plan.statements],
        "steps": [step_fields(step) for step in plan.steps],
        "cost": {name: getattr(plan.cost, name) for name in _COST} | _prefetched(plan),
        "bound": asdict(plan.bound),
        "totals": plan.totals._asdict(),
        "as_written": None if plan.written is None else _written_fields(plan.written),
        "symbols": plan.symbols,
        "notes": list(plan.notes),
        "capacity_bytes": plan.capacity_bytes,
        "warnings": list(plan.warnings),
        **_memory(plan),
    }


def _prefetched(plan: PlanView) -> dict[str, float]:
    return {"prefetched_s": plan.cost.prefetched_s} if plan.cost.prefetched_s else {}


def _memory(plan: PlanView) -> dict[str, Any]:
    if plan.memory is None:
        return {}
    from shardc.report.kinds import kinds_fields

    return {"memory": kinds_fields(plan.memory)}


def _statement_fields(statement: StatementView, top: int | None) -> dict[str, Any]:
    """Of a loop its statements as well."""
    found = {
        "text": statement.text,
        "cases": statement.cases,
        "alternatives": [_alternative_fields(other) for other in statement.cheapest(top)],
    }
    below = [_statement_fields(each, top) for each in statement.statements]
    return found | {"statements": below} if below else found


def step_fields(step: StepView) -> dict[str, Any]:
    """Of a loop the number of trips and the steps of one as well."""
    found = asdict(step)
    for quiet in ("form", "hbm_bound", "off_critical_path", "in_chunks"):
        if not found[quiet]:
            del found[quiet]
    if not step.steps:
        del found["trips"], found["steps"]
    return found | ({"steps": [step_fields(each) for each in step.steps]} if step.steps else {})


def _written_fields(found: WrittenView) -> dict[str, Any]:
    steps = [step_fields(step) | ({"trips": step.trips} if step.trips > 1 else {}) for step in found.steps]
    return {"wire_bytes": found.wire_bytes, "time_s": found.time_s, "steps": steps}


def _alternative_fields(other: AlternativeView) -> dict[str, Any]:
    return asdict(other) | {"steps": [step_fields(step) for step in other.steps]}


def _array(array: Array, mesh: Mesh) -> ArrayView:
    of_one = array.local_shape(mesh), array.local_bytes(mesh)
    return ArrayView(array.name, str(array), array.shape, array.dtype.jax, *of_one)


def _step(step: Step, values: Sequence[Array], mesh: Mesh) -> StepView:
    loop = step.op if isinstance(step.op, Loop) else None
    results = [values[number] for number in step.results]
    dim = loop.dim if loop is not None else ",".join(results[0].dims[place] for place in step.op.on) or None
    return StepView(
        step.name,
        step.statement,
        tuple(map(str, operands_of(step, values))),
        ", ".join(map(str, results)),
        step.op.axes,
        dim,
        results[0].local_shape(mesh) if loop is None else (),
        sum(result.local_bytes(mesh) for result in results),
        step.cost.wire_bytes,
        step.cost.flops,
        step.cost.time_s,
        step.cost.formula,
        str(step.rule),
        hbm_bound=step.cost.by_memory,
        **({} if loop is None else _inside(loop, mesh)),
    )


def _inside(loop: Loop, mesh: Mesh) -> dict[str, Any]:
    inside = steps(loop.body.steps, loop.body.values, mesh)
    return {"trips": loop.trips, "steps": inside, "in_chunks": loop.is_of_chunks}


def _alternative(strategy: Strategy, mesh: Mesh) -> AlternativeView:
    return AlternativeView(strategy.wire_bytes, strategy.time_s, steps(strategy.steps, strategy.values, mesh))
