"""Runs a plan on simulated devices and compares every device's shard with NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from shardc import simulate
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array

MAX_SIMULATED = 512


@dataclass(frozen=True, slots=True)
class OutputReport:
    """One output: the largest error over all shards, what it may be at most, and how many shards were compared."""

    sharding: str
    shards: int
    max_error: float
    bound: float
    ok: bool


@dataclass(frozen=True, slots=True)
class RunReport:
    """`ok` if every shard of every output is within its bound; integers must be equal."""

    devices: int
    outputs: tuple[OutputReport, ...]

    @property
    def ok(self) -> bool:
        return all(output.ok for output in self.outputs)

    @property
    def max_error(self) -> float:
        return max((output.max_error for output in self.outputs), default=0.0)

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        return fields | {"ok": self.ok, "max_error": self.max_error}

    def __str__(self) -> str:
        return "\n".join(self._line(output) for output in self.outputs)

    def _line(self, output: OutputReport) -> str:
        verdict = "equal to NumPy" if output.ok else "NOT EQUAL to NumPy"
        return (
            f"{output.sharding}: {output.shards} shards on {self.devices} simulated devices, {verdict}; "
            f"largest error {output.max_error:.2g}, allowed {output.bound:.2g}"
        )


def run(schedule: Schedule, seed: int = 0) -> RunReport:
    """Small integer-valued inputs through the compiled program, against the meaning on whole arrays.

    Starts the simulated devices itself, so JAX must not have started with fewer: SHC301, SHC302, SHC409.
    """
    mesh = simulated_mesh(schedule, schedule.given_mesh)
    import jax

    from shardc.backend.program import CompiledProgram

    wholes = simulate.sample_inputs(schedule.program, seed)
    arrays = [
        _placed(whole, schedule.given(number), schedule.given_mesh, mesh, seed + place)
        for place, (whole, number) in enumerate(zip(wholes, schedule.inputs, strict=True))
    ]
    results = CompiledProgram(schedule, mesh)(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    jax.block_until_ready(results)
    return compare(schedule, wholes, results)


def simulated_mesh(schedule: Schedule, mesh: Mesh | None = None) -> Any:
    """A JAX mesh of simulated devices, started if JAX has not; that of the steps if no other is asked for.

    SHC301, SHC302, SHC409.
    """
    _start_devices(schedule)
    import jax

    from shardc.backend.placing import make_mesh

    return make_mesh(schedule.mesh if mesh is None else mesh, jax.devices("cpu"))


def compare(schedule: Schedule, wholes: Sequence[Any], results: Sequence[Any]) -> RunReport:
    """Every device's shard of every result with what it must be; another shape or dtype is not equal."""
    expected = simulate.reference(schedule.program, wholes)
    bounds = simulate.error_bound(schedule.program, wholes)
    reports = [
        _compare(schedule.given(number), result, whole, bound, schedule.given_mesh)
        for number, result, whole, bound in zip(schedule.outputs, results, expected, bounds, strict=True)
    ]
    return RunReport(schedule.mesh.devices, tuple(reports))


def blocks_of(result: Any, mesh: Mesh) -> Any:
    """What each device holds, as one array of the mesh's shape and the local shape, in precision."""
    shards = [np.asarray(shard.data) for shard in result.addressable_shards]
    found = shards[0].dtype
    kind: type[Any] = np.complex128 if np.issubdtype(found, np.complexfloating) else np.float64
    kind = np.int64 if np.issubdtype(found, np.integer) else kind
    return np.stack(shards).astype(kind).reshape((*mesh.sizes, *shards[0].shape))


def _compare(array: Array, result: Any, whole: Any, bound: Any, mesh: Mesh) -> OutputReport:
    if result.shape != array.shape or result.dtype.name != array.dtype.jax:
        return OutputReport(f"{array} as {result.dtype.name}{list(result.shape)}", mesh.devices, math.inf, 0.0, False)
    blocks = blocks_of(result, mesh)
    if array.sharding.unreduced:
        found, wanted, allowed = simulate.gather(blocks, array, mesh), whole, np.asarray(bound)
    else:
        found = blocks
        wanted = simulate.expected_blocks(whole, array, mesh)
        exact = replace(array, dtype=DTYPES["f64"])
        allowed = simulate.expected_blocks(np.broadcast_to(bound, whole.shape), exact, mesh)
    error = np.abs(found - wanted)
    fits = bool(np.all((error <= allowed) | (np.isnan(found) & np.isnan(wanted))))
    return OutputReport(
        str(array), mesh.devices, float(np.max(error, initial=0)), float(np.max(allowed, initial=0)), fits
    )


def _placed(whole: Any, array: Array, mesh: Mesh, devices: Any, seed: int) -> Any:
    """The argument on the mesh, an unreduced one as partial sums that differ from device to device."""
    import jax
    import jax.numpy as jnp

    from shardc.backend.placing import from_blocks, spec_of

    dtype = jnp.dtype(array.dtype.jax)
    if not mesh.axes:
        return jnp.asarray(whole, dtype)
    sharding = jax.NamedSharding(devices, spec_of(array.sharding))
    blocks = simulate.scatter(whole, array, mesh, seed).astype(dtype)
    local = blocks.shape[len(mesh.sizes) :]
    return from_blocks(list(blocks.reshape(-1, *local)), array, devices, sharding)


def _start_devices(schedule: Schedule) -> None:
    import jax

    count = schedule.mesh.devices
    if count > MAX_SIMULATED:
        raise ShardcError(
            "SHC409",
            f"the mesh {schedule.given_mesh} has {count} devices; at most {MAX_SIMULATED} are simulated",
            help="give a smaller --mesh, or check the plan in NumPy: plan.simulate(*arrays)",
        )
    if any(schedule.values[number].dtype.is_wide for number in (*schedule.inputs, *schedule.outputs)):
        jax.config.update("jax_enable_x64", True)
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started; what it has may do
        if len(jax.devices("cpu")) < count:
            raise ShardcError(
                "SHC302",
                f"JAX has started with {len(jax.devices('cpu'))} devices; {count} are needed",
                help=f'jax.config.update("jax_num_cpu_devices", {count}) before its first use',
            ) from None
