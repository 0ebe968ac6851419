"""The Python interface: parse, check, plan, and the transforms for use under jax.jit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from shardc.arguments import DimsLike, MeshLike, count_of, dims_of, dtype_of, mesh_of, objective_of, texts
from shardc.cost import LinkModel
from shardc.errors import ShardcError
from shardc.hardware import Hardware
from shardc.ir.plan import Cost, Schedule
from shardc.ir.program import Program
from shardc.notation import parse as parse_notation
from shardc.planner import Objective, PlannedProgram, pareto, plan_program, plan_with_subaxes, sizes
from shardc.planner.pareto import MAX_POINTS
from shardc.report import FrontView, front_json, front_table, table, to_json, view
from shardc.report.view import ArrayView, Bound, PlanView, StatementView, StepView

if TYPE_CHECKING:
    import numpy as np

    from shardc.compiled.compare import Comparison
    from shardc.compiled.explain.explanation import Explanation
    from shardc.compiled.verify import Verification

    Whole = np.ndarray[Any, Any]


def parse(
    text: str,
    *,
    mesh: MeshLike | None = None,
    dims: DimsLike | None = None,
    dtype: Any = None,
    chip: str | None = None,
    topology: str | None = None,
    dcn: Mapping[str, int] | str | None = None,
    name: str = "<expression>",
) -> Program:
    """The program that a text in the notation means, names resolved. Arguments override declarations.

    `mesh` is a dict of sizes by axis, a JAX mesh, or text as in `X=4,Y=2`; `dims` a dict or text. Raises
    ShardcError with the place in the text.

    >>> program = parse("A[I_X, J] * B[J, K] -> C[I_X, K]", mesh={"X": 4}, dims={"I": 8, "J": 8, "K": 8})
    >>> print(program)
    mesh X=4
    dims I=8, J=8, K=8
    dtype bf16
    A[I_X, J] · B[J, K] → C[I_X, K]
    """
    texts(text=text, chip=chip, topology=topology, name=name)
    program = parse_notation(
        text,
        mesh=Hardware.of(dcn=dcn).with_dcn(mesh_of(mesh)),
        dims=dims_of(dims),
        dtype=dtype_of(dtype),
        chip=chip,
        topology=topology,
        name=name,
    )
    if chip is None and topology is None:
        return program
    return replace(program, chip=chip, topology=topology)  # neither is half the text's, half the caller's


def check(text: str | Program, **options: Any) -> Program:
    """The program, if it is legal: parsed, divisible, and every result within reach. Options as of `parse`.

    >>> check("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 6, "J": 8})
    Traceback (most recent call last):
    shardc.errors.ShardcError: error[SHC204]: dim `I` = 6 is not divisible by mesh axis `X` = 4
     --> <expression>:1:3
      | A[I_X, J] → A[I, J]
      |   ^^^ 6 mod 4 = 2
      = help: make I 8, or drop `_X`
    """
    return plan(text, **options).program


def plan(
    text: str | Program,
    *,
    mesh: MeshLike | None = None,
    dims: DimsLike | None = None,
    dtype: Any = None,
    chip: str | None = None,
    topology: str | None = None,
    objective: str = "time",
    memory: int | str | None = None,
    formula: str = "exact",
    profile: str = "book",
    map: Mapping[str, Any] | str | None = None,
    dcn: Mapping[str, int] | str | None = None,
    wraparound: Mapping[str, bool | str] | str | None = None,
    name: str = "<expression>",
) -> Plan:
    """The cheapest plan of a program, by `objective`: "time" or "bytes" (of the wire).

    `chip` is a name or a TOML file, `topology` a slice as in "v5p:4x4x4"; without one every mesh axis is a
    physical axis. `map` says on which physical axes mesh axes lie ({"Y": (1, 2)}), `dcn` which axes run over the
    data-centre network ({"P": 2}), `wraparound` which axes are rings (True), lines (False) or "one-way" rings,
    against the chip's rule. `profile` takes the constants of the "book" or the vendor's "spec"; `formula` "book"
    drops (n-1)/n. `memory` limits `cost.peak_bytes`, per device (16e9, "16GB"): SHC410 if no plan that is found keeps
    it. Dims without a size get 4096. Raises ShardcError.

    >>> found = plan("A[I, J_X] · B[J_X, K] → C[I, K_X]", mesh={"X": 4}, dims={"I": 8, "J": 8, "K": 8}, dtype="f32")
    >>> [step.op for step in found.steps], found.cost.wire_bytes
    (['Einsum', 'ReduceScatter'], 192)
    """
    texts(chip=chip, topology=topology, name=name)
    hardware = Hardware.of(
        chip=chip, formula=formula, profile=profile, map=map, dcn=dcn, wraparound=wraparound, memory=memory
    )
    program = (
        text
        if isinstance(text, Program)
        else parse(text, mesh=mesh, dims=dims, dtype=dtype, chip=chip, topology=topology, dcn=dcn, name=name)
    )
    if isinstance(text, Program) and any(option is not None for option in (mesh, dims, dtype, topology)):
        raise ShardcError("SHC001", "a parsed program has its mesh, dims and dtype", help="give them to `parse`")
    return planned(sizes.large(program), hardware, objective)


def planned(program: Program, hardware: Hardware | None = None, objective: str = "time", may_cut: bool = True) -> Plan:
    """The plan of a program whose sizes are all known; on the mesh as it is unless axes `may_cut`."""
    hardware = Hardware() if hardware is None else hardware
    asked = Asked(program, hardware.model(program), objective_of(objective), hardware.memory)
    search = plan_with_subaxes if may_cut else plan_program
    try:
        return Plan(search(asked.program, asked.model, asked.objective, asked.memory), asked)
    except RecursionError:
        raise ShardcError(
            "SHC403", "a statement is nested too deeply to plan", help="split it into several statements"
        ) from None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan answers."""

    program: Program
    model: LinkModel
    objective: Objective
    memory: int | None


class Plan:
    """A planned program. Its attributes have the names of its JSON; `print` shows the table.

    >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
    >>> found.mesh, found.dims, found.inputs[0].sharding, found.inputs[0].local_shape, found.outputs[0].sharding
    ({'X': 4}, {'I': 8, 'J': 8}, 'A[I_X, J]', (2, 8), 'A[I, J]')
    >>> print(found.steps[0].op, found.steps[0].wire_bytes, found.steps[0].formula)
    AllGather 192 ⌈X/2⌉·T_hop
    """

    def __init__(self, found: PlannedProgram, asked: Asked) -> None:
        self._found = found
        self._asked = asked
        by = found.schedule.by
        refined = asked.model if by is None else asked.model.refined(by)
        assert refined is not None, "the plan is priced by it"
        self._model = refined

    @cached_property
    def _view(self) -> PlanView:
        """What the table and the JSON show; a plan that is only compiled or emitted needs none of it."""
        return view(self._found, self._model)

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
        """The arrays that `compile()` takes, in order."""
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

    def __str__(self) -> str:
        return table(self._view)

    def table(self, top: int = 3) -> str:
        """The table, with the `top` cheapest strategies of each statement.

        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> print(found.table(top=1).splitlines()[0])
        mesh X=4; chip v5p; f32; I=8, J=8
        """
        return table(self._view, count_of(top, "top", 0))

    def to_json(self, top: int | None = None) -> str:
        """The JSON text of `shardc plan --json`.

        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> import json
        >>> json.loads(found.to_json())["cost"]["wire_bytes"]
        192
        """
        return to_json(self._view, None if top is None else count_of(top, "top", 0))

    def source(self) -> str:
        """A stand-alone JAX module; its function is called `program`.

        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> print(found.source().splitlines()[0])
        \"\"\"A[I_X, J] → A[I, J], planned for v5p, mesh X=4.\"\"\"
        """
        from shardc.backend import source

        return source(self.schedule, self._model.chip.name)

    def compile(self, mesh: Any = None) -> Callable[..., Any]:
        """The jitted program: arrays in the order of `inputs`; results in that of `outputs` (one: bare).

        Where no mesh is in force it runs on `mesh`, or on the first devices there are.

        >>> import numpy as np
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> program = found.compile()
        >>> program(np.ones((8, 8), "float32")).sharding.spec
        P(None, None)
        """
        import jax

        from shardc.backend import compile

        mesh = getattr(mesh, "mesh", mesh)  # a NamedSharding has one
        return compile(self.schedule, mesh if isinstance(mesh, jax.sharding.Mesh) else mesh_of(mesh))

    def verify(self) -> Verification:
        """What the TPU compiler makes of the program on the plan's topology, beside the prediction; needs libtpu."""
        from shardc.compilers import verify

        return verify(self._found, self._model)

    def compare(self, rounds: int = 15) -> Comparison:
        """Beside what `jax.jit` alone makes of the same shardings: on the plan's topology, if it has one (needs
        libtpu), else on simulated devices, where both are also timed, `rounds` times in turns.

        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> compared = found.compare(rounds=1)
        >>> [(tally.kind, tally.wire_bytes) for tally in compared.ours.collectives]
        [('AllGather', 192)]
        """
        from shardc.compilers import compare

        return compare(self._found, self._model, self._asked.model, rounds)

    def pareto(self, points: int = MAX_POINTS) -> Front:
        """Leaner plans of the program, each slower (by bytes: of more wire bytes) than the one before it.

        They are what `plan` finds under every `memory` up to this plan's own limit, from the best to the leanest, at
        most `points`, less those that another equals or betters in both. The first is this plan, unless a limit
        leads to one as good that needs less. What is compared is `cost.time_s`, seconds by the cost model, or
        `cost.wire_bytes`, with `cost.peak_bytes`: per device, the buffers alive at once, inputs and outputs included;
        where a slice is named, what the compiled program takes.

        >>> found = plan("A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]", mesh={"X": 4, "Y": 2}, dtype="f32")
        >>> front = found.pareto()
        >>> [point.cost.time_s for point in front] == sorted(point.cost.time_s for point in front)
        True
        >>> front[-1].cost.peak_bytes < front[0].cost.peak_bytes, front.whole
        (True, True)
        """
        count_of(points, "points", 1)
        asked = self._asked
        found = pareto(asked.program, asked.model, asked.objective, asked.memory, points)
        plans = [Plan(point, replace(asked, memory=point.cost.peak_bytes)) for point in found.points]
        return Front(plans, asked.objective, found.whole)

    def simulate(self, *arrays: Whole) -> Whole | tuple[Whole, ...]:
        """Runs the steps on virtual devices in NumPy, on whole arrays; copies that differ are an error.

        >>> import numpy as np
        >>> found = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")
        >>> bool((found.simulate(np.eye(8)) == np.eye(8)).all())
        True
        """
        from shardc import simulate

        blocks = simulate.run(self.schedule, arrays)
        outputs = [self.schedule.values[number] for number in self.schedule.outputs]
        mesh = self.schedule.mesh
        return _bare([simulate.gather(b, array, mesh) for b, array in zip(blocks, outputs, strict=True)])

    def reference(self, *arrays: Whole) -> Whole | tuple[Whole, ...]:
        """What the program means, on whole arrays, in int64 or float64.

        >>> import numpy as np
        >>> found = plan("A[I_X, J] · B[J, K] → C[I_X, K]", mesh={"X": 2}, dims={"I": 2, "J": 3, "K": 1}, dtype="f32")
        >>> found.reference(np.ones((2, 3)), np.ones((3, 1))).tolist()
        [[3.0], [3.0]]
        """
        from shardc import simulate

        return _bare(simulate.reference(self.program, arrays))


class Front(Sequence[Plan]):
    """Plans of one program, from the best by the objective to the leanest; `print` shows them as a table.

    >>> front = plan("A[I_X, J] → A[I, J]", mesh={"X": 4}).pareto()
    >>> len(front), front[0].cost.wire_bytes
    (1, 25165824)
    """

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

    def to_json(self) -> str:
        """The JSON text of `shardc plan --pareto --json`."""
        return front_json(self._view)


def einsum(text: str, *arrays: Any) -> Any:
    """A program of the notation as a JAX function, on the mesh of `jax.set_mesh`; sizes and dtypes from the arrays.

    Works eagerly, under jax.jit, jax.grad and jax.vmap, with Explicit and Auto axes, also mixed; and inside a shard_map
    over the axes that it leaves. Products of two dtypes are promoted as JAX promotes them. What the text
    declares must be what the arrays and the mesh say. Raises ShardcError.

    >>> import jax, jax.numpy as jnp
    >>> with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
    ...     x = jax.device_put(jnp.ones((8, 16)), jax.P("X", "Y"))
    ...     w = jax.device_put(jnp.ones((16, 8)), jax.P("X", "Y"))
    ...     y = einsum("In[B_X, D_Y] · W[D_X, F_Y] → Out[B_X, F_Y]", x, w)
    >>> y.shape, y.sharding.spec
    ((8, 8), P('X', 'Y'))
    """
    from shardc.backend.transforms import einsum

    return einsum(text, *arrays, planner=_schedule)


def reshard(x: Any, spec: Any) -> Any:
    """The same array in the sharding `spec` (a jax.P or NamedSharding), by the cheapest path, where jax.reshard may
    replicate. Arrays of any type.

    The path begins where the array lies: its type says so along Explicit axes, the array itself when called
    eagerly. Under jax.jit how it lies along Auto axes is for XLA to decide, and what it costs to move them is XLA's
    choice: where every axis is Auto `reshard` is a sharding constraint.

    >>> import jax, jax.numpy as jnp
    >>> with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
    ...     x = jax.device_put(jnp.ones((8, 16)), jax.P("X", "Y"))
    ...     reshard(x, jax.P(None, "X")).sharding.spec
    P(None, 'X')
    """
    from shardc.backend.transforms import reshard

    return reshard(x, spec, planner=_schedule)


def explain(
    jitted: Any,
    *args: Any,
    chip: str | None = None,
    topology: str | None = None,
    profile: str = "book",
    map: Mapping[str, Any] | str | None = None,
    wraparound: Mapping[str, bool | str] | str | None = None,
) -> Explanation:
    """What an existing JAX function communicates, where, what it costs, what is wasteful, and what would do better.

    `jitted` is a function, jitted or not; `args` are arrays, or jax.ShapeDtypeStructs, with NamedShardings. Compiled
    for the devices of their mesh, or for a TPU slice of as many chips with `topology` (needs libtpu); priced for that
    slice, or for `chip`. `print` shows the collectives, with the lines of source that they come from, and the
    findings, each with a remedy. Of `wire_bytes`, `judged_bytes` are those of which it is known whether they are
    wasted; `not_judged` lists the others, with what stood in the way. Raises ShardcError.

    >>> import jax, jax.numpy as jnp
    >>> mesh = jax.make_mesh((8,), ("X",))
    >>> x = jax.device_put(jnp.ones((64, 64)), jax.NamedSharding(mesh, jax.P("X")))
    >>> whole = jax.jit(lambda x: x * 2, out_shardings=jax.NamedSharding(mesh, jax.P()))
    >>> explain(whole, x).wire_bytes
    14336
    """
    from shardc.compilers import explain

    hardware = Hardware.of(chip=chip, profile=profile, map=map, wraparound=wraparound)
    return explain(jitted, args, hardware, topology)


def _schedule(program: Program, may_cut: bool) -> Schedule:
    return planned(program, may_cut=may_cut).schedule


def _bare(results: list[Whole]) -> Whole | tuple[Whole, ...]:
    return results[0] if len(results) == 1 else tuple(results)
