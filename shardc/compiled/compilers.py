"""Plans and programs held against a compiler: what `verify`, `compare` and `explain` put together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardc.cost.topology import Topology, lay
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program

if TYPE_CHECKING:
    from shardc.compiled.compare import Comparison
    from shardc.compiled.explain.explanation import Explanation
    from shardc.compiled.explain.remat import Rematerialization
    from shardc.compiled.verify import Verification
    from shardc.cost import LinkModel
    from shardc.interface.hardware import Hardware
    from shardc.planner import PlannedProgram


def verify(found: PlannedProgram, model: LinkModel) -> Verification:
    """Compiles a plan's program for its slice, with no TPU, and puts what came out beside what was predicted."""
    from shardc.compiled import read_hlo
    from shardc.compiled.compare import memory_of
    from shardc.compiled.hlo.text import UnreadableHlo
    from shardc.compiled.verify import verification_of
    from shardc.machines import tpu
    from shardc.machines.libtpu import other_libtpu, reading
    from shardc.machines.stderr import caught_stderr

    schedule = found.schedule
    with caught_stderr():
        compiled = tpu.compile_schedule(schedule, slice_mesh(schedule.mesh, model))
    memory = memory_of(compiled)
    assert memory is not None, "the TPU's compiler says what it allocates"
    with reading(UnreadableHlo):
        module, on = read_hlo(compiled.as_text()), str(_topology(model))
        verified = verification_of(schedule, found.cost, on, module, memory, model)
    return replace(verified, notes=other_libtpu())


def compare(
    found: PlannedProgram, model: LinkModel, given: LinkModel, rounds: int = 15, platform: str = "cpu"
) -> Comparison:
    """A plan's program beside what `jax.jit` alone makes of the same shardings.

    `model` is of the mesh of the plan's steps, `given` of the mesh as the program was written, on which `jax.jit`
    works; where no axis is cut they are one.

    Both compiled for the model's slice, if it has one; else for the devices of a platform, and run there, `rounds`
    times each in turns. Raises ShardcError: SHC212 for unreduced inputs or outputs, which jit cannot be told of.
    """
    from shardc.machines import heard  # before what loads JAX

    heard.jax_warns()
    from shardc.compiled.compare import comparison_of
    from shardc.compiled.explain.remat import rematerializations
    from shardc.compiled.hlo.text import UnreadableHlo
    from shardc.emit.call import placing
    from shardc.machines import tpu
    from shardc.machines.baseline import compile_baseline
    from shardc.machines.libtpu import other_libtpu, reading
    from shardc.machines.measure import measured
    from shardc.machines.run import at_ends, in_64_bits, mesh_on
    from shardc.machines.stderr import caught_stderr

    schedule, whole = found.schedule, found.whole or found.schedule
    on_slice = model.network.layout.topology is not None
    with caught_stderr() as caught, in_64_bits(() if on_slice else at_ends(schedule)):
        mesh = slice_mesh(schedule.mesh, model) if on_slice else mesh_on(platform, schedule)
        ours = tpu.compile_schedule(schedule, mesh)
        theirs = compile_baseline(whole, placing.coarser(mesh, schedule.by))
        timed = () if on_slice else measured(schedule, whole, mesh, rounds)
    warnings = [_warning(one) for one in rematerializations(caught.text, whole.mesh)]
    warnings += () if warnings else heard.unheard(on_slice)
    warnings += other_libtpu() if on_slice else ()
    with reading(UnreadableHlo):
        return comparison_of(
            ours, theirs, model, given, bound_wire_bytes=found.bound_bytes, rounds=timed, warnings=warnings
        )


def explain(jitted: Any, args: tuple[Any, ...], hardware: Hardware, topology: str | None = None) -> Explanation:
    """What a JAX function communicates on its arguments' mesh, or on a slice of so many chips.

    Raises ShardcError: SHC308 where it cannot be traced or compiled.
    """
    from shardc.machines import heard  # before what loads JAX

    heard.jax_warns()
    from shardc.compiled.explain.explain import explanation_of
    from shardc.compiled.hlo.text import UnreadableHlo
    from shardc.machines.jitted import lower, mesh_of
    from shardc.machines.libtpu import other_libtpu, reading
    from shardc.machines.stderr import caught_stderr

    mesh = mesh_of(args)
    model = hardware.model(Program(mesh, (), DTYPES["bf16"], (), (), chip=hardware.chip, topology=topology))
    with caught_stderr():  # what a TPU's runtime has to say where there is no TPU
        onto = None if topology is None else slice_mesh(mesh, model)
    with reading(UnreadableHlo):
        explained = explanation_of(lower(jitted, args, onto), model)
    return explained if onto is None else replace(explained, notes=(*explained.notes, *other_libtpu()))


def _warning(found: Rematerialization) -> str:
    from shardc.emit.call.placing import spec_of

    shardings = (found.before, found.after)
    specs = ["?" if one is None else repr(spec_of(one)).replace("PartitionSpec", "P") for one in shardings]
    return f"XLA warns of an involuntary full rematerialization, {specs[0]} → {specs[1]}"


def slice_mesh(mesh: Mesh, model: LinkModel) -> Any:
    """A JAX mesh on the chips of the model's slice, each axis where the model lays it; see `tpu.slice_mesh`."""
    from shardc.emit.call import placing
    from shardc.machines import tpu

    topology, layout, by = _topology(model), model.network.layout, model.network.by
    if layout.dcn:
        raise ShardcError(
            "SHC224", f"axes over DCN: {', '.join(layout.dcn)}; the compiler is asked for one slice", help="drop --dcn"
        )
    coarse = mesh if by is None else by.coarse
    laid = lay(coarse, topology, dict(layout.map))
    found = tpu.slice_mesh(coarse, topology.chip.name, topology.shape, laid.place)
    return found if by is None else placing.finer(found, by, found.axis_types[0])


def _topology(model: LinkModel) -> Topology:
    found = model.network.layout.topology
    if found is None:
        raise ShardcError("SHC224", "no slice to compile for", help="give --topology, as in v5p:2x2x1")
    return found
