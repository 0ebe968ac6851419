"""The Python interface: parse, check, plan, and the transforms for use under jax.jit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from shardc.errors import ShardcError, flag
from shardc.interface.arguments import (
    DimsLike,
    FormulaWord,
    IdleWord,
    MeshLike,
    ObjectiveWord,
    OverlapWord,
    ProfileWord,
    devices_of,
    dims_of,
    dtype_of,
    idle_of,
    mesh_of,
    objective_of,
    overlap_of,
    texts,
)
from shardc.interface.asked import Asked
from shardc.interface.called import Called, CallOptions
from shardc.interface.chosen import chosen
from shardc.interface.hardware import Hardware
from shardc.ir.program import Program
from shardc.notation import parse as parse_notation
from shardc.planner import plan_program, plan_with_subaxes
from shardc.planner.program import sizes
from shardc.results import Plan

if TYPE_CHECKING:
    import jax
    from jax.typing import ArrayLike

    from shardc.compiled.explain.explanation import Explanation


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


def faults_beside(first: ShardcError, read: Callable[[str], object]) -> list[ShardcError]:
    """A text's first fault, and the others that it has beside that. `read` raises them."""
    from shardc.notation.faults import every_fault

    return every_fault(first, read)


def canonical(text: str, name: str = "<expression>") -> str:
    """The text in the one spelling of the notation, a statement a line; comments stay. Raises ShardcError.

    >>> print(canonical("A[I_X,J]->B[I,J]   # gathered"), end="")
    A[I_X, J] → B[I, J]  # gathered
    """
    from shardc.notation.layout import formatted

    return formatted(text, name)


class PlanOptions(CallOptions, total=False):
    """What `plan` takes by name."""

    mesh: MeshLike | None
    dims: DimsLike | None
    dtype: Any
    tuned: bool
    name: str


def check(text: str | Program, **options: Unpack[PlanOptions]) -> Program:
    """The program, if it is legal: parsed, divisible, and every result within reach. Options as of `plan`.

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
    objective: ObjectiveWord = "time",
    memory: int | float | str | None = None,
    formula: FormulaWord = "exact",
    profile: ProfileWord = "book",
    map: Mapping[str, Any] | str | None = None,
    dcn: Mapping[str, int] | str | None = None,
    wraparound: Mapping[str, bool | str] | str | None = None,
    idle: IdleWord | None = None,
    overlap: OverlapWord = "auto",
    tuned: bool = False,
    name: str = "<expression>",
) -> Plan:
    """The cheapest plan of a program, by `objective`: "time" or "bytes" (of the wire).

    `chip` is a name or a TOML file, `topology` a slice as in "v5p:4x4x4"; without one every mesh axis is a
    physical axis. `map` says on which physical axes mesh axes lie ({"Y": (1, 2)}), `dcn` which axes run over the
    data-centre network ({"P": 2}), `wraparound` which axes are rings (True), lines (False) or "one-way" rings,
    against the chip's rule. `profile` takes the constants of the "book" or the vendor's "spec"; `formula` "book"
    drops (n-1)/n. Mesh axes that the text does not name are used where that is cheaper (`idle` "use"), or left alone
    ("keep", the default with `formula` "book"). `memory` limits `cost.peak_bytes`, per device (16e9, "16GB"): SHC410
    if no plan that is found keeps it. Dims without a size get 4096. `overlap` "on" does a product and a collective
    beside it as one, a ring, where that is priced less; "auto" where it saves an eighth, on v5e, or alone keeps the
    limit of memory; "off" never. `tuned`: what `shardc tune` keeps, the plan, form or program of XLA's own that replays
    fastest as the TPU's compiler leaves it, on `topology` (needs libtpu). Raises ShardcError.

    >>> found = plan("A[I, J_X] · B[J_X, K] → C[I, K_X]", mesh={"X": 4}, dims={"I": 8, "J": 8, "K": 8}, dtype="f32")
    >>> [step.op for step in found.steps], found.cost.wire_bytes
    (['Einsum', 'ReduceScatter'], 192)
    """
    texts(chip=chip, topology=topology, name=name)
    hardware = Hardware.of(
        chip=chip, formula=formula, profile=profile, map=map, dcn=dcn, wraparound=wraparound, memory=memory
    )
    beside = {"chip": chip, "dcn": dcn, "name": name}
    program = _program(text, beside, mesh=mesh, dims=dims, dtype=dtype, topology=topology)
    found = planned(sizes.large(program), hardware, objective, idle, overlap, devices=devices_of(mesh))
    return found.tune().plan if flag(tuned, "tuned") else found


def _program(text: str | Program, beside: dict[str, Any], topology: str | None = None, **given: Any) -> Program:
    """A text as parsed; a program as it is, which has already what is `given`, on the slice that is named."""
    if not isinstance(text, Program):
        return parse(text, **beside, topology=topology, **given)
    too_late = [f"`{option}`" for option, value in given.items() if value is not None]
    if too_late:
        what = " and ".join(too_late)
        raise ShardcError(
            "SHC001", f"{what} is given, and a parsed program has its own", help=f"give {what} to `parse`"
        )
    return text if topology is None else replace(text, topology=topology)


def planned(
    program: Program,
    hardware: Hardware | None = None,
    objective: str = "time",
    idle: str | None = None,
    overlap: str = "auto",
    *,
    may_cut: bool = True,
    devices: Any = None,
) -> Plan:
    """The plan of a program whose sizes are all known; on the mesh as it is unless axes `may_cut`."""
    hardware = Hardware() if hardware is None else hardware
    given = objective_of(objective), hardware.memory, idle_of(idle, hardware.book), overlap_of(overlap)
    asked = Asked(program, hardware.model(program), *given, devices=devices)
    search = plan_with_subaxes if may_cut else plan_program
    try:
        return Plan(chosen(search, asked), asked)
    except RecursionError:
        raise ShardcError(
            "SHC403", "a statement is nested too deeply to plan", help="split it into several statements"
        ) from None


@dataclass(frozen=True, slots=True)
class _Planner:
    """How an `einsum` is planned: one of equal options is equal, so that what it has planned is found again."""

    asked: Called

    def __call__(self, program: Program, may_cut: bool) -> Plan:
        asked = self.asked
        chip, topology = asked.hardware.chip, asked.topology
        if chip is not None or topology is not None:
            program = replace(program, chip=chip, topology=topology)
        return planned(program, asked.hardware, asked.objective, asked.idle, asked.overlap, may_cut=may_cut)

    def whole(self, program: Program) -> tuple[Program, tuple[str | None, ...]]:
        from shardc.backward import with_backward

        return with_backward(program)


_AS_IT_IS = _Planner(Called.by())  # what a step that is traced asks for a thousand times


def _planner(options: CallOptions) -> _Planner:
    return _Planner(Called.by(**options)) if options else _AS_IT_IS


class Einsum:
    """A program of the notation as a JAX function, on the mesh of `jax.set_mesh`, or where none is set that of the
    arrays; sizes and dtypes from the arrays.

    Works eagerly, under jax.jit, jax.grad (planned too, as one with forward), jax.jvp and jax.vmap; with Explicit and
    Auto axes, also mixed; and inside a shard_map over the axes that it leaves. Products of two dtypes are
    promoted as JAX promotes them, numbers of Python as weakly typed. What the text declares must be what the arrays
    and the mesh say. Of several outputs the result is a tuple. Options as of `plan`, those of the hardware, the aim and
    the search. Raises ShardcError.

    >>> import jax, jax.numpy as jnp
    >>> with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
    ...     x = jax.device_put(jnp.ones((8, 16)), jax.P("X", "Y"))
    ...     w = jax.device_put(jnp.ones((16, 8)), jax.P("X", "Y"))
    ...     y = einsum("In[B_X, D_Y] · W[D_X, F_Y] → Out[B_X, F_Y]", x, w, objective="bytes")
    >>> y.shape, y.sharding.spec
    ((8, 8), P('X', 'Y'))
    """

    def __call__(
        self,
        text: str,
        *arrays: ArrayLike,
        **options: Unpack[CallOptions],
    ) -> jax.Array:
        from shardc.emit.call.transforms import einsum

        found: jax.Array = einsum(text, *arrays, planner=_planner(options))
        return found

    def plan(
        self,
        text: str,
        *arrays: ArrayLike | jax.ShapeDtypeStruct,
        **options: Unpack[CallOptions],
    ) -> Plan:
        """The plan by which the same call goes, in the same place: eagerly, or, while it is traced, in a jitted one.
        Of arrays that there are not yet, `jax.ShapeDtypeStruct`s.

        >>> import jax, jax.numpy as jnp
        >>> with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        ...     A = jax.device_put(jnp.ones((8, 16)), jax.P(None, "X"))
        ...     B = jax.ShapeDtypeStruct((16, 8), jnp.float32)
        ...     found = einsum.plan("A[I, J_X] · B[J_X, K] → C[I, K_X]", A, B)
        >>> [step.op for step in found.steps], found.dims
        (['Einsum', 'ReduceScatter'], {'I': 8, 'J': 16, 'K': 8})
        """
        from shardc.emit.call.transforms import einsum_plan

        return einsum_plan(text, *arrays, planner=_planner(options))


einsum = Einsum()


def reshard(
    x: ArrayLike, spec: jax.sharding.PartitionSpec | jax.sharding.NamedSharding, **options: Unpack[CallOptions]
) -> jax.Array:
    """The same array in the sharding `spec` (a jax.P or NamedSharding), by the cheapest path, where jax.reshard may
    replicate. Arrays of any type. Options as of `einsum`.

    The path begins where the array lies: its type says so along Explicit axes, the array itself when called
    eagerly. Under jax.jit how it lies along Auto axes is for XLA to decide, and what it costs to move them is XLA's
    choice: where every axis is Auto `reshard` is a sharding constraint. Of a dim that has axes of both kinds, jax.jit
    hands out an array that may lack the Auto ones, since its type names the Explicit ones alone.

    >>> import jax, jax.numpy as jnp
    >>> with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
    ...     x = jax.device_put(jnp.ones((8, 16)), jax.P("X", "Y"))
    ...     reshard(x, jax.P(None, "X")).sharding.spec
    P(None, 'X')
    """
    from shardc.emit.call.transforms import reshard

    found: jax.Array = reshard(x, spec, planner=_planner(options))
    return found


def explain(
    jitted: Any,
    *args: Any,
    chip: str | None = None,
    topology: str | None = None,
    profile: ProfileWord = "book",
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
    from shardc.compiled.compilers import explain

    hardware = Hardware.of(chip=chip, profile=profile, map=map, wraparound=wraparound)
    return explain(jitted, args, hardware, topology)
