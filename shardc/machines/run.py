"""Runs a plan on simulated or real devices and compares every device's shard with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from shardc import simulate
from shardc.emit.supported import check_jax
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array
from shardc.machines.comparison import OutputReport, RunReport, Verdict, report_of
from shardc.machines.foresight import MOST_SECONDS, Planned, check_room, foresee
from shardc.machines.platforms import SIMULATED, accelerators, in_full_precision, name_of
from shardc.machines.progress import Progress

__all__ = ["MAX_SIMULATED", "OutputReport", "RunReport", "Verdict", "report_of", "run", "simulated_mesh"]

MAX_SIMULATED = 512


def run(
    schedule: Schedule,
    seed: int = 0,
    seconds: float = MOST_SECONDS,
    say: Callable[[str], None] = lambda line: None,
    platform: str = SIMULATED,
    anew: Planned | None = None,
) -> RunReport:
    """Drawn inputs through the compiled program, against the meaning on whole arrays.

    SHC411 where it is foreseen to take more memory than there is, or more than so many seconds; `anew` plans it with
    other sizes, so that the help names some. `say` is told what takes more than a second. Starts simulated devices
    itself, so JAX must not have started with fewer: SHC301, SHC302, SHC409; of another platform as many must be there:
    SHC301.
    """
    mesh = mesh_on(platform, schedule, schedule.given_mesh)
    foreseen = foresee(schedule)
    check_room(foreseen, schedule.program, seconds, anew)
    with Progress(lambda line: say(f"… {line} (foreseen for the whole run: {foreseen})")) as now:
        now(f"running on {schedule.mesh.devices} {name_of(platform)}")
        wholes = simulate.sample_inputs(schedule.program, seed)
        with in_64_bits(at_ends(schedule)), in_full_precision(platform):
            results = _computed(schedule, wholes, mesh, seed)
        return replace(report_of(schedule, wholes, results, now, seed), on=name_of(platform))


def mesh_on(platform: str, schedule: Schedule, mesh: Mesh | None = None) -> Any:
    """A JAX mesh of a platform's devices; that of the steps if no other is asked for. SHC301, SHC302, SHC409."""
    if platform == SIMULATED:
        return simulated_mesh(schedule, mesh)
    from shardc.emit.call.placing import make_mesh

    return make_mesh(schedule.mesh if mesh is None else mesh, accelerators(platform))


def _computed(schedule: Schedule, wholes: Sequence[Any], mesh: Any, seed: int) -> tuple[Any, ...]:
    """The compiled program's results. Its arguments are let go of before anything else takes memory."""
    import jax

    from shardc.emit.call.program import CompiledProgram

    with np.errstate(over="ignore"):  # a number of the text may be inf in its type, as the comparison shows
        results = CompiledProgram(schedule, mesh)(*placed(schedule, wholes, mesh, seed))
    jax.block_until_ready(results)
    return results if isinstance(results, tuple) else (results,)


def placed(schedule: Schedule, wholes: Sequence[Any], mesh: Any, seed: int = 0) -> list[Any]:
    """The arguments on a JAX mesh."""
    return [
        on_devices(whole, schedule.given(number), schedule.given_mesh, mesh, seed + place)
        for place, (whole, number) in enumerate(zip(wholes, schedule.inputs, strict=True))
    ]


def simulated_mesh(schedule: Schedule, mesh: Mesh | None = None) -> Any:
    """A JAX mesh of simulated devices, started if JAX has not; that of the steps if no other is asked for.

    SHC301, SHC302, SHC409.
    """
    _start_devices(schedule)
    import jax

    from shardc.emit.call.placing import make_mesh

    return make_mesh(schedule.mesh if mesh is None else mesh, jax.devices("cpu"))


def on_devices(whole: Any, array: Array, mesh: Mesh, devices: Any, seed: int) -> Any:
    """The argument on the mesh, an unreduced one as partial sums that differ from device to device."""
    import jax
    import jax.numpy as jnp

    from shardc.emit.call.placing import from_blocks, spec_of

    dtype = jnp.dtype(array.dtype.jax)
    if not mesh.axes:
        return jnp.asarray(whole, dtype)
    sharding = jax.NamedSharding(devices, spec_of(array.sharding))
    blocks = simulate.scatter(whole, array, mesh, seed).astype(dtype)
    local = blocks.shape[len(mesh.sizes) :]
    return from_blocks(list(blocks.reshape(-1, *local)), array, devices, sharding)


def in_64_bits(arrays: Iterable[Array]) -> AbstractContextManager[object]:
    """JAX's 64-bit mode, as long as it is needed, where one of these arrays is of a type that JAX has in it alone."""
    import jax

    return jax.enable_x64(True) if any(array.dtype.is_wide for array in arrays) else nullcontext()


def at_ends(schedule: Schedule) -> tuple[Array, ...]:
    """What is given, and what is returned."""
    return tuple(schedule.values[number] for number in (*schedule.inputs, *schedule.outputs))


def check_devices(schedule: Schedule) -> None:
    """SHC409 where there are more than are simulated."""
    count = schedule.mesh.devices
    if count > MAX_SIMULATED:
        raise ShardcError(
            "SHC409",
            f"the mesh {schedule.given_mesh} has {count} devices; at most {MAX_SIMULATED} are simulated",
            help="give a smaller --mesh, or check the plan in NumPy: plan.simulate(*arrays)",
        )


def _start_devices(schedule: Schedule) -> None:
    check_devices(schedule)
    check_jax()
    import jax

    count = schedule.mesh.devices
    asked = max(count, jax.config.values["jax_num_cpu_devices"])  # what somebody has set is for what runs later too
    try:
        jax.config.update("jax_num_cpu_devices", asked)  # first, so that of a JAX that has started nothing is changed
        jax.config.update("jax_platforms", "cpu")
    except RuntimeError:  # JAX has started; what it has may do
        if len(jax.devices("cpu")) < count:
            raise ShardcError(
                "SHC302",
                f"JAX has started with {len(jax.devices('cpu'))} devices; {count} are needed",
                help=f'jax.config.update("jax_num_cpu_devices", {count}) before its first use',
            ) from None
