"""What planning gives: a plan, and a front of leaner ones. Attributes have the names of the JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from shardc.interface.arguments import count_of, mesh_of
from shardc.interface.asked import Asked
from shardc.interface.chosen import front_of
from shardc.interface.equal import ByParts
from shardc.ir.plan import Cost, Schedule
from shardc.ir.program import Program
from shardc.planner import Objective, PlannedProgram
from shardc.planner.program.pareto import MAX_POINTS
from shardc.report import FrontView, front_json, front_table, table, to_json, view
from shardc.report.shown import Shown, front_in_line
from shardc.report.view import ArrayView, Bound, PlanView, StatementView, StepView

if TYPE_CHECKING:
    import jax
    import numpy as np

    from shardc.compiled.compare import Comparison
    from shardc.compiled.verify import Verification
    from shardc.proving import Proof
    from shardc.report.pictures import Picture
    from shardc.report.tuning import Tuning

    Whole = np.ndarray[Any, Any]


class Plan(ByParts, Shown):
    """A planned program. Its attributes have the names of its JSON; `print` shows the table.

    >>> from shardc import plan
    >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
    >>> found.mesh, found.dims, found.inputs[0].sharding, found.inputs[0].local_shape, found.outputs[0].sharding
    ({'X': 4}, {'I': 8, 'J': 8}, 'A[I_X, J]', (2, 8), 'A[I, J]')
    >>> print(found.steps[0].op, found.steps[0].wire_bytes, found.steps[0].formula)
    AllGather 192 ⌈X/2⌉·T_hop
    """

    _parts = ("program", "_found", "_asked", "_asked.model.parts")

    def __init__(self, found: PlannedProgram, asked: Asked) -> None:
        self._found, self._asked = found, asked
        self._model = asked.model.on(found.schedule.by)

    @cached_property
    def _view(self) -> PlanView:
        """What the table and the JSON show; a plan that is only compiled or emitted needs none of it."""
        return view(self._found, self._model, self._asked.program, self._asked.model)

    @property
    def program(self) -> Program:
        return self.schedule.program

    @property
    def schedule(self) -> Schedule:
        """The steps as data, for other rooms."""
        return self._found.schedule

    @property
    def mesh(self) -> dict[str, int]:
        return self._view.mesh

    @property
    def chip(self) -> str:
        return self._view.chip

    @property
    def dims(self) -> dict[str, int]:
        return self._view.dims

    @property
    def dtype(self) -> str:
        return self._view.dtype

    @property
    def inputs(self) -> tuple[ArrayView, ...]:
        """The arrays that `compile()` takes, in order: `jnp.ones(each.shape, each.dtype)` is one."""
        return self._view.inputs

    @property
    def outputs(self) -> tuple[ArrayView, ...]:
        return self._view.outputs

    @property
    def statements(self) -> tuple[StatementView, ...]:
        """Per statement its cases and, cheapest first, every strategy."""
        return self._view.statements

    @property
    def steps(self) -> tuple[StepView, ...]:
        return self._view.steps

    @property
    def cost(self) -> Cost:
        """Per device: wire bytes received, FLOPs, seconds, peak bytes."""
        return self._found.cost

    @property
    def bound(self) -> Bound:
        return self._view.bound

    @property
    def symbols(self) -> dict[str, float]:
        """What the steps' formulas name: sizes of dims and axes, bandwidths in B/s, peak rates in FLOP/s, the hop."""
        return self._view.symbols

    @property
    def notes(self) -> tuple[str, ...]:
        """What the planner assumed, and what looks like a slip."""
        return self._view.notes

    @property
    def capacity_bytes(self) -> int:
        """The memory of a device, by the chip."""
        return self._view.capacity_bytes

    @property
    def warnings(self) -> tuple[str, ...]:
        """What keeps the plan from being run: more memory than a device has."""
        return self._view.warnings

    def table(self, top: int = 3) -> str:
        """The table, with the `top` cheapest strategies of each statement.

        >>> from shardc import plan
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> print(found.table(top=1).splitlines()[0])
        mesh X=4; chip v5p; f32; I=8, J=8
        """
        return table(self._view, count_of(top, "top", 0))

    def to_json(self, top: int | None = None) -> str:
        """The JSON text of `shardc plan --json`.

        >>> from shardc import plan
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> import json
        >>> json.loads(found.to_json())["cost"]["wire_bytes"]
        192
        """
        return to_json(self._view, None if top is None else count_of(top, "top", 0))

    def source(self) -> str:
        """A stand-alone JAX module; its function is called `program`.

        >>> from shardc import plan
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> print(found.source().splitlines()[0])
        \"\"\"A[I_X, J] → A[I, J], planned for v5p, mesh X=4.\"\"\"
        """
        from shardc.emit import source

        return source(self.schedule, self._model.chip.name)

    def prove(self) -> Proof:
        """Whether the plan and its emitted text are the program, for every value, on every device: `proving.prove`.

        >>> from shardc import plan
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> found.prove().holds
        True
        """
        from shardc.proving import prove

        return prove(self.schedule, self.source())

    def compile(self, mesh: Any = None) -> Callable[..., jax.Array]:
        """The jitted program: arrays in the order of `inputs`; results in that of `outputs` (one: bare).

        Where no mesh is in force it runs on `mesh`, or the JAX mesh that the plan was made for, or that of the arrays,
        or the first devices there are; under jax.jit, jax.grad and jax.vmap too. It is proved first, as `emit` and
        `run` prove what they write, where that takes no more than hundredths of a second; SHC900 if it is wrong.

        >>> import numpy as np
        >>> from shardc import plan
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> found.compile()(np.ones((8, 8), "float32")).sharding.spec
        P(None, None)
        """
        import jax

        from shardc.emit import compile
        from shardc.proving import UNASKED, prove, refuse_wrong

        refuse_wrong(prove(self.schedule, self.source(), UNASKED))
        mesh = self._asked.devices if mesh is None else getattr(mesh, "mesh", mesh)  # a NamedSharding has one
        return compile(self.schedule, mesh if isinstance(mesh, jax.sharding.Mesh) else mesh_of(mesh))

    def verify(self) -> Verification:
        """What the TPU compiler makes of the program on the plan's topology, beside the prediction; needs libtpu."""
        from shardc.compiled.compilers import verify

        return verify(self._found, self._model)

    def compare(self, rounds: int = 15, platform: str = "cpu") -> Comparison:
        """Beside what `jax.jit` alone makes of the same shardings: on the plan's topology, if it has one (needs
        libtpu), else on simulated devices, or those of a `platform` that are here ("gpu", "tpu"), where both are also
        timed, `rounds` times in turns.

        >>> from shardc import plan
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> compared = found.compare(rounds=1)
        >>> [(tally.kind, tally.wire_bytes) for tally in compared.ours.collectives]
        [('AllGather', 192)]
        """
        from shardc.compiled.compilers import compare

        return compare(self._found, self._model, self._asked.model, count_of(rounds, "rounds", 1), platform)

    def tune(self, few: int = 4, say: Callable[[str], None] = lambda line: None) -> Tuning[Plan]:
        """The fastest of this plan, `few` others, each in its forms, and XLA's own program: compiled for the plan's
        topology (needs libtpu, and no TPU), replayed, and kept on disk by content.

        `say` is told what is compiled. Raises ShardcError: SHC224 without a topology, SHC311 without libtpu.
        """
        from shardc.compiled.tune.tune import tune
        from shardc.report.tuning import Tuning

        count_of(few, "few", 0)
        asked = self._asked
        tuned = tune(self._found, asked, few, say)
        best = tuned.best.candidate.found
        note = f"tuned: {tuned.best.candidate.label} replays fastest of {len(tuned.tried)} candidates"
        return Tuning(Plan(replace(best, notes=(*best.notes, note)), asked), tuned)

    def pareto(self, points: int = MAX_POINTS, say: Callable[[str], None] = lambda line: None) -> Front:
        """Leaner plans of the program, each slower (by bytes: of more wire bytes) than the one before it.

        They are what `plan` finds under every `memory` up to this plan's own limit, from the best to the leanest, at
        most `points`, less those that another equals or betters in both. The first is this plan, unless a limit
        leads to one as good that needs less. What is compared is `cost.time_s`, seconds by the cost model, or
        `cost.wire_bytes`, with `cost.peak_bytes`: per device, the buffers alive at once, inputs and outputs included;
        where a slice is named, what the compiled program takes. `say` is told how far it is.

        >>> from shardc import plan
        >>> found = plan("A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]", mesh={"X": 4, "Y": 2}, dtype="f32")
        >>> front = found.pareto()
        >>> [point.cost.time_s for point in front] == sorted(point.cost.time_s for point in front)
        True
        >>> front[-1].cost.peak_bytes < front[0].cost.peak_bytes, front.whole
        (True, True)
        """
        count_of(points, "points", 1)
        asked = self._asked
        found = front_of(asked, points, say)
        plans = [Plan(point, replace(asked, memory=point.cost.peak_bytes)) for point in found.points]
        return Front(plans, asked.objective, found.whole)

    def _front_view(self, say: Callable[[str], None]) -> FrontView:
        return self.pareto(say=say)._view

    def simulate(self, *arrays: Whole) -> Whole | tuple[Whole, ...]:
        """Runs the steps on virtual devices in NumPy, on whole arrays; copies that differ are an error.

        >>> import numpy as np
        >>> from shardc import plan
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> bool((found.simulate(np.eye(8)) == np.eye(8)).all())
        True
        """
        from shardc import simulate

        schedule, blocks = self.schedule, simulate.run(self.schedule, arrays)
        ended = zip(blocks, schedule.outputs, strict=True)
        return _bare([simulate.gather(each, schedule.values[number], schedule.mesh) for each, number in ended])

    def reference(self, *arrays: Whole) -> Whole | tuple[Whole, ...]:
        """What the program means, on whole arrays, in int64 or float64; integers past the end of their type go on from
        its other end, as in JAX.

        >>> import numpy as np
        >>> from shardc import plan
        >>> found = plan("A[I_X, J] · B[J, K] → C[I_X, K]", mesh={"X": 2}, dims={"I": 2, "J": 3, "K": 1}, dtype="f32")
        >>> found.reference(np.ones((2, 3)), np.ones((3, 1))).tolist()
        [[3.0], [3.0]]
        """
        from shardc import simulate

        return _bare(simulate.reference(self.program, arrays))


class Front(ByParts, Sequence[Plan]):
    """Plans of one program, from the best by the objective to the leanest; `print` shows them as a table.

    >>> from shardc import plan
    >>> front = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}).pareto()
    >>> len(front), front[0].cost.wire_bytes
    (1, 25165824)
    """

    _parts = ("_plans", "whole")

    def __init__(self, plans: Sequence[Plan], objective: Objective, whole: bool) -> None:
        self._plans = tuple(plans)
        self._view = FrontView(objective, tuple(plan._view for plan in plans), whole)

    @property
    def whole(self) -> bool:
        """Whether no leaner plan than the last was found; False where the front was cut off."""
        return self._view.whole

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, place: int) -> Plan: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Plan, ...]: ...
    def __getitem__(self, place: int | slice) -> Plan | tuple[Plan, ...]:
        return self._plans[place]

    def __str__(self) -> str:
        return front_table(self._view)

    def __repr__(self) -> str:
        return front_in_line(self._view)

    def _repr_html_(self) -> str:
        from shardc.report.page.notebook import front_html

        return front_html(self._view)

    def picture(self) -> Picture:
        """Time, or wire bytes, against memory: a dot for each plan. As `Plan.picture`.

        >>> from shardc import plan
        >>> front = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}).pareto()
        >>> front.picture().title
        'time against memory'
        """
        from shardc.report.pictures import front_picture

        return front_picture(self._view)

    def to_json(self) -> str:
        """The JSON text of `shardc plan --pareto --json`."""
        return front_json(self._view)


def _bare(results: list[Whole]) -> Whole | tuple[Whole, ...]:
    return results[0] if len(results) == 1 else tuple(results)
