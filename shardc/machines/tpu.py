"""Compiles for a TPU slice that is not there: libtpu holds the compiler, and compiles on any machine."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Mapping
from glob import glob
from typing import Any

import numpy as np

from shardc.emit.call import placing
from shardc.emit.call.callable import on_steps_mesh
from shardc.emit.supported import check_jax
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.machines.heard import tpu_loading
from shardc.machines.laid_out import Compiled, laid_bytes, report_into

# A chip's name here, and the compiler's, with how many axes it counts, and what else it wants to be told. A v4 chip is
# two devices unless its cores are joined, as they are where v4 is used.
_CHIPS: dict[str, tuple[str, int, dict[str, str]]] = {
    "v3": ("v3", 2, {}),
    "v4p": ("v4", 3, {"chip_config_name": "megacore"}),
    "v5e": ("v5e", 2, {}),
    "v5p": ("v5p", 3, {}),
    "v6e": ("v6e", 2, {}),
    "v7x": ("tpu7x", 3, {}),
}

# Without these it asks the network for a TPU's metadata, warns, and refuses to load beside another process. What the
# user has set stays.
_QUIET = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
}

_DEVICES = ("/dev/accel*", "/dev/vfio/[0-9]*")  # the files of a TPU that is there

Place = Callable[[int], tuple[int, ...]]  # the coordinates of a device's chip; the last mesh axis counts fastest


def is_installed() -> bool:
    return importlib.util.find_spec("libtpu") is not None


def quiet_without_a_tpu() -> None:
    """Where libtpu is installed and no TPU is there, JAX does not look for one over the network, nor warn of it."""
    if is_installed() and not any(map(glob, _DEVICES)):
        for name, value in _QUIET.items():
            if name != "JAX_PLATFORMS":  # there may be a GPU
                os.environ.setdefault(name, value)


def slice_mesh(mesh: Mesh, chip: str, shape: tuple[int, ...], place: Place) -> Any:
    """A JAX mesh, its axes Explicit, on the chips of a slice that is described, not present.

    A chip of two devices (v3, v7x) gives its first. The compiler then writes its warnings to standard error
    (`machines.heard`), so that who compiles catches them. Raises SHC311 without libtpu, SHC224 for a slice that the
    compiler does not know.
    """
    check_jax()
    import jax

    chips = _chips(chip, shape)
    ordered = np.empty(mesh.devices, dtype=object)
    for device in range(mesh.devices):
        ordered[device] = chips[place(device)]
    kinds = (jax.sharding.AxisType.Explicit,) * len(mesh.names)
    return jax.sharding.Mesh(ordered.reshape(mesh.sizes), mesh.names, axis_types=kinds)


def compile_schedule(schedule: Schedule, mesh: Any) -> Compiled:
    """The plan's program, compiled for that mesh, which is that of its steps."""
    return compiled(lower_schedule(schedule, mesh), mesh)


def lower_schedule(schedule: Schedule, mesh: Any) -> Any:
    """The same before it is compiled: a `jax.stages.Lowered`."""
    import jax

    arguments = arguments_of(schedule, mesh)
    with jax.set_mesh(mesh):
        return jax.jit(on_steps_mesh(schedule, scopes=True)).lower(*arguments)


def arguments_of(schedule: Schedule, mesh: Any) -> list[Any]:
    """The program's arguments, as their shapes and shardings only."""
    import jax
    import jax.numpy as jnp

    arrays = [schedule.values[number] for number in schedule.inputs]
    for array in arrays:
        placing.check_enabled(array.dtype)
    return [
        jax.ShapeDtypeStruct(
            array.shape,
            jnp.dtype(array.dtype.jax),
            sharding=jax.NamedSharding(mesh, placing.spec_of(array.sharding)),
        )
        for array in arrays
    ]


def compiled(lowered: Any, mesh: Any, options: Mapping[str, str] | None = None) -> Compiled:
    """Of `jax.jit(f).lower(…)` on the devices of `mesh`. SHC308 for a program that the compiler refuses, most often
    because it needs more memory than there is."""
    import jax

    told = dict(options or {})
    try:
        if mesh.devices.flat[0].platform != "tpu":
            return Compiled(lowered.compile(told or None), None)
        with tempfile.TemporaryDirectory(prefix="shardc-", ignore_cleanup_errors=True) as folder:
            return Compiled(lowered.compile(told | report_into(folder)), laid_bytes(folder))
    except jax.errors.JaxRuntimeError as error:
        first = str(error).splitlines()[0]
        raise ShardcError(
            "SHC308", f"the compiler refuses the program: {first[:300]}", help="give smaller --dims, or a larger slice"
        ) from None


def _chips(chip: str, shape: tuple[int, ...]) -> dict[tuple[int, ...], Any]:
    """The first device of every chip of a slice, by its coordinates."""
    if not is_installed():
        raise ShardcError("SHC311", "the TPU compiler is not installed", help='pip install "shardc[tpu]"')
    if chip not in _CHIPS:
        raise ShardcError("SHC224", f"{chip} is no TPU that the compiler knows", help=f"one of {', '.join(_CHIPS)}")
    with tpu_loading():
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        return _described(chip, shape)


def _described(chip: str, shape: tuple[int, ...]) -> dict[tuple[int, ...], Any]:
    from jax.experimental import topologies

    name, rank, told = _CHIPS[chip]
    text = f"{name}:{'x'.join(map(str, (*shape, *[1] * (rank - len(shape)))))}"
    try:
        devices: list[Any] = topologies.get_topology_desc(text, "tpu", **told).devices
    except Exception as error:  # jaxlib raises what the compiler's plugin gave it
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ShardcError(
            "SHC224", f"the TPU compiler knows no slice {text}: {first[:200]}", help="v5p:2x2x1 and v5p:4x4x4 are some"
        ) from None
    found: dict[tuple[int, ...], Any] = {}
    for device in devices:
        found.setdefault(tuple(device.coords[: len(shape)]), device)
    return found
