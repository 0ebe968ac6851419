"""One process of many: joins the others, runs an emitted file on its part of the mesh, leaves what its devices hold.

`many_processes.py` starts it, as `many_processes_worker.py FOLDER RANK`. It needs JAX and NumPy, not shardc. On
machines of your own, leave out the CPU's three settings, and give each process its own blocks.

In FOLDER it finds `job.json`, `emitted.py` and `blocks_RANK.npz`; it writes `stage_RANK`, how far it has come, and
`results_RANK.npz` and `.json`. A block is called k_n: of argument or result k, on device n of the mesh.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np


def work(folder: Path, rank: int) -> None:
    """The steps of every process, in order."""
    job = json.loads((folder / "job.json").read_text())
    stage = folder / f"stage_{rank}"
    stage.write_text("joining")
    join(job, rank)
    stage.write_text("running")
    mesh = jax.make_mesh(job["sizes"], job["names"])
    sys.path.insert(0, str(folder))
    from emitted import program  # what `shardc emit` writes, as it is

    with np.load(folder / f"blocks_{rank}.npz") as blocks, jax.set_mesh(mesh):
        arrays = [placed(k, wanted, blocks, mesh) for k, wanted in enumerate(job["inputs"])]
        results = jax.block_until_ready(jax.tree.leaves(program(*arrays)))
    save(results, mesh, folder / f"results_{rank}")
    stage.write_text("done")


def join(job: Mapping[str, Any], rank: int) -> None:
    """One backend out of all processes. If a peer stays away JAX aborts this process: nothing here can catch that."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", math.prod(job["sizes"]) // job["processes"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_x64", job["x64"])
    jax.distributed.initialize(
        job["address"],
        job["processes"],
        rank,
        initialization_timeout=job["patience"],
        coordinator_bind_address=job["address"],  # else every network of the machine may connect
    )


def local_devices(mesh: jax.sharding.Mesh) -> dict[int, Any]:
    """This process's devices by their number in the mesh, whose last axis varies fastest."""
    return {n: device for n, device in enumerate(mesh.devices.flat) if device.process_index == jax.process_index()}


def placed(k: int, wanted: Mapping[str, Any], blocks: Mapping[str, Any], mesh: jax.sharding.Mesh) -> jax.Array:
    """Argument k, made of this process's blocks; the other processes bring the others."""
    dims = [axes[0] if len(axes) == 1 else tuple(axes) or None for axes in wanted["dims"]]
    unreduced = set(wanted["unreduced"])
    spec = jax.P(*dims, unreduced=unreduced) if unreduced else jax.P(*dims)
    dtype = jax.numpy.dtype(wanted["dtype"])
    local = [jax.device_put(blocks[f"{k}_{n}"].astype(dtype), device) for n, device in local_devices(mesh).items()]
    return jax.make_array_from_single_device_arrays(tuple(wanted["shape"]), jax.NamedSharding(mesh, spec), local)


def save(results: Sequence[jax.Array], mesh: jax.sharding.Mesh, path: Path) -> None:
    """What each device of this process holds, and of what type it was."""
    number = {device: n for n, device in local_devices(mesh).items()}
    np.savez(
        path.with_suffix(".npz"),
        **{
            f"{k}_{number[s.device]}": wide(s.data)
            for k, result in enumerate(results)
            for s in result.addressable_shards
        },
    )
    described = [{"shape": result.shape, "dtype": result.dtype.name} for result in results]
    path.with_suffix(".json").write_text(json.dumps(described))


def wide(block: Any) -> Any:
    """NumPy's files do not know bf16: int64 and float64 hold every value."""
    array = np.asarray(block)
    return array.astype(np.int64 if np.issubdtype(array.dtype, np.integer) else np.float64)


def end_with_launcher() -> None:
    """The launcher holds the other end of our standard input; when it is gone, however it went, so are we."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def main(arguments: Sequence[str]) -> None:
    if len(arguments) != 2:
        print(__doc__)
        return
    threading.Thread(target=end_with_launcher, daemon=True).start()
    try:
        work(Path(arguments[0]), int(arguments[1]))
    except BaseException as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr, flush=True)
        os._exit(1)  # an ordinary exit would wait for the peers, and they for us


if __name__ == "__main__":
    main(sys.argv[1:])
