"""Compiles for a TPU slice that is not there: libtpu holds the compiler, and compiles on any machine."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from shardc.backend import placing
from shardc.backend.callable import on_steps_mesh
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule

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

# Without these it asks the network for a TPU's metadata, warns, and refuses to load beside another process.
_QUIET = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
}

_WARNING = {"TPU_STDERR_LOG_LEVEL": "1", "TPU_MIN_LOG_LEVEL": "1"}

# Where each mesh axis lies: per axis its (physical axis, size, stride), major to minor.
Places = Mapping[str, tuple[tuple[int, int, int], ...]]


def is_installed() -> bool:
    return importlib.util.find_spec("libtpu") is not None


def slice_mesh(mesh: Mesh, chip: str, shape: tuple[int, ...], places: Places, warns: bool = False) -> Any:
    """A JAX mesh, its axes Explicit, on the chips of a slice that is described, not present.

    `X=2, Y=2` on v5p:2x2x1: device (x, y) of the mesh is the chip at (x, y, 0). A chip of two devices (v3, v7x)
    gives its first. With `warns` the compiler writes its warnings to standard error, if this is its first use in the
    process. Raises SHC311 without libtpu, SHC224 for a slice that the compiler does not know.
    """
    import jax

    chips = _chips(chip, shape, warns)
    ordered = np.empty(mesh.sizes, dtype=object)
    for index in np.ndindex(*mesh.sizes):
        at = [0] * len(shape)
        for axis, number in zip(mesh.names, index, strict=True):
            for place, size, stride, inner in _digits(places[axis]):
                at[place] += number // inner % size * stride
        ordered[index] = chips[tuple(at)]
    kinds = (jax.sharding.AxisType.Explicit,) * len(mesh.names)
    return jax.sharding.Mesh(ordered, mesh.names, axis_types=kinds)


def compile_schedule(schedule: Schedule, mesh: Any) -> Any:
    """The plan's program, compiled for that mesh, which is that of its steps: a `jax.stages.Compiled`."""
    import jax

    arguments = arguments_of(schedule, mesh)
    with jax.set_mesh(mesh):
        return compiled(jax.jit(on_steps_mesh(schedule, scopes=True)).lower(*arguments))


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


def compiled(lowered: Any) -> Any:
    """SHC308 for a program that the compiler refuses, most often because it needs more memory than there is."""
    import jax

    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        first = str(error).splitlines()[0]
        raise ShardcError(
            "SHC308", f"the compiler refuses the program: {first[:300]}", help="give smaller --dims, or a larger slice"
        ) from None


def _digits(parts: tuple[tuple[int, int, int], ...]) -> list[tuple[int, int, int, int]]:
    """Each part with the product of the sizes after it: how an axis counts over several physical ones."""
    found, inner = [], 1
    for place, size, stride in reversed(parts):
        found.append((place, size, stride, inner))
        inner *= size
    return found


def _chips(chip: str, shape: tuple[int, ...], warns: bool) -> dict[tuple[int, ...], Any]:
    """The first device of every chip of a slice, by its coordinates."""
    if not is_installed():
        raise ShardcError("SHC311", "the TPU compiler is not installed", help='pip install "shardc[tpu]"')
    if chip not in _CHIPS:
        raise ShardcError("SHC224", f"{chip} is no TPU that the compiler knows", help=f"one of {', '.join(_CHIPS)}")
    for name, value in (_QUIET | _WARNING if warns else _QUIET).items():
        os.environ.setdefault(name, value)
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
