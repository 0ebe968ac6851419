"""Where a program runs: on simulated devices, or on the accelerators that JAX finds on this machine.

--platform cpu      as many simulated devices as the mesh has, in this process
--platform gpu      the machine's GPUs, in the order in which `jax.make_mesh` lays a mesh on them
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from shardc.errors import ShardcError

SIMULATED = "cpu"
PLATFORMS = (SIMULATED, "gpu", "tpu")  # as JAX calls them


def accelerators(platform: str) -> list[Any]:
    """The devices that JAX has of a platform; SHC301 if it finds none."""
    from shardc.emit.supported import check_jax  # not for `--help`, which says which platforms there are
    from shardc.machines.tpu import quiet_without_a_tpu

    check_jax()
    quiet_without_a_tpu()
    import jax

    try:
        return list(jax.devices(platform))
    except RuntimeError as error:  # no such hardware, or a JAX that was installed without its support
        raise ShardcError(
            "SHC301",
            f"JAX finds no {platform.upper()} on this machine",
            help=f"install JAX with support for it where there is one, and leave JAX_PLATFORMS unset; "
            f"--platform {SIMULATED} simulates devices",
        ) from error


def in_full_precision(platform: str) -> AbstractContextManager[object]:
    """Products of f32 in f32, which accelerators by default do in fewer bits (a TPU in bf16, a GPU in TF32): rounding
    is compared with that of the types which the program says."""
    import jax

    return nullcontext() if platform == SIMULATED else jax.default_matmul_precision("highest")


def name_of(platform: str) -> str:
    """What the devices of a platform are, for several of them: `simulated devices`, `NVIDIA H100 80GB HBM3`."""
    return "simulated devices" if platform == SIMULATED else str(accelerators(platform)[0].device_kind)
