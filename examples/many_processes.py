"""A plan's emitted file, unchanged, on several processes that `jax.distributed` joins into one mesh.

    python examples/many_processes.py examples/mlp.shard --processes 4

    launcher ── plans, writes emitted.py and every device's blocks, waits, compares every shard with NumPy
     ├─ worker 0 ── devices 0 1 of the mesh
     ├─ worker 1 ── devices 2 3               collectives go over Gloo from process to process
     └─ …

JAX aborts a process that has lost a peer, and nothing inside that process can catch it. So the launcher watches
from outside: when a worker is missing, stuck or gone, it ends the others and says so, at --timeout at the latest.
The workers end with the launcher, too. To see it, leave one out: --without 1.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

import shardc
from shardc import simulate
from shardc.errors import INTERRUPTED, MISMATCH, ShardcError
from shardc.io.files import read_input
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array
from shardc.machines.comparison import report_of
from shardc.machines.run import MAX_SIMULATED
from shardc.planner.program import sizes

HERE = Path(__file__).parent
# How far a worker has come, and what is said of one that comes no further.
STAGES = {
    "missing": "never started",
    "starting": "never tried to join",
    "joining": "never joined",
    "running": "never came out of the program",
    "done": "never ended",
}
ABORTED = (-signal.SIGABRT, 128 + signal.SIGABRT)  # the second is how a shell reports it
POLL_S = 0.05
NOTE_LENGTH = 200
# In a worker's log: connections made, stack frames, and where in XLA an error was raised.
NOISE = re.compile(r"\s*$|\[Gloo\]|\s+@ |\*\*\*|===|external/|RPC: |-+$")
LOGGED = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ \S+\] ")  # what XLA puts before a line


@dataclass(frozen=True, slots=True)
class Run:
    """`folder` holds the files of one run: the program, the job, and each worker's blocks, stage, log and results."""

    folder: Path
    processes: int
    timeout: float

    def stage(self, rank: int) -> str:
        path = self.folder / f"stage_{rank}"
        return (path.read_text() or "joining") if path.exists() else "missing"  # empty while the worker writes it

    def last_words(self, rank: int) -> str:
        """The last line of a worker's log that says something."""
        path = self.folder / f"log_{rank}"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        told = next((LOGGED.sub("", line) for line in reversed(lines) if not NOISE.match(line)), "")
        return textwrap.shorten(told, NOTE_LENGTH, placeholder=" …")


def launch(options: argparse.Namespace) -> int:
    """Plans, runs, compares: 0 if every shard is equal to NumPy, 1 if not."""
    text, name = read_input(options.input)
    plan = shardc.plan(sizes.small(shardc.parse(text, name=name)))
    check_processes(plan.schedule, options.processes)
    emitted = plan.source() if options.program is None else program_text(options.program)
    wholes = simulate.sample_inputs(plan.program)
    with tempfile.TemporaryDirectory(prefix="shardc-") as folder:
        run = Run(Path(folder), options.processes, options.timeout)
        (run.folder / "emitted.py").write_text(emitted, encoding="utf-8")
        write_job(run, plan.schedule)
        write_blocks(run, plan.schedule, wholes)
        supervise(run, without=options.without)
        results = collect(run, plan.schedule)
    print(
        f"{run.processes} processes, {plan.schedule.mesh.devices} devices in all, joined by jax.distributed over Gloo"
    )
    return verdict(plan.schedule, wholes, results)


def check_processes(schedule: Schedule, processes: int) -> None:
    devices = schedule.mesh.devices
    if devices > MAX_SIMULATED:
        remedy = f"{MAX_SIMULATED} at most on one machine"
        raise ShardcError("SHC409", f"the mesh {schedule.mesh} has {devices} devices", help=remedy)
    if devices % processes:
        fitting = ", ".join(str(n) for n in range(1, devices + 1) if devices % n == 0)
        how = f"{devices} devices of the mesh {schedule.mesh} do not divide among {processes} processes"
        raise ShardcError("SHC001", how, help=f"--processes may be {fitting}")


def program_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ShardcError("SHC503", f"cannot read `{path}`: {error}", help="give what `shardc emit` wrote") from None


def write_job(run: Run, schedule: Schedule) -> None:
    """What all workers must know: who they are together, and how the arguments lie."""
    ends = [schedule.values[number] for number in (*schedule.inputs, *schedule.outputs)]
    job = {
        "address": f"localhost:{free_port()}",
        "processes": run.processes,
        "patience": math.ceil(run.timeout) + 1,  # the launcher, which knows more, gives up first
        "names": schedule.mesh.names,
        "sizes": schedule.mesh.sizes,
        "x64": any(array.dtype.bytes == 8 for array in ends),
        "inputs": [described(schedule.values[number]) for number in schedule.inputs],
    }
    (run.folder / "job.json").write_text(json.dumps(job))


def described(array: Array) -> dict[str, Any]:
    dims, unreduced = array.sharding.dims, sorted(array.sharding.unreduced)
    return {"shape": array.shape, "dtype": array.dtype.jax, "dims": dims, "unreduced": unreduced}


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as listener:
        return int(listener.getsockname()[1])


def write_blocks(run: Run, schedule: Schedule, wholes: Sequence[Any]) -> None:
    """Each worker's blocks; of an unreduced argument, partial sums that differ from device to device."""
    blocks = []
    for k, (whole, number) in enumerate(zip(wholes, schedule.inputs, strict=True)):
        array = schedule.values[number]
        laid_out = simulate.scatter(whole, array, schedule.mesh, seed=k)
        blocks.append(laid_out.reshape(-1, *array.local_shape(schedule.mesh)))
    each = schedule.mesh.devices // run.processes
    for rank in range(run.processes):
        mine = range(rank * each, (rank + 1) * each)
        named = {f"{k}_{n}": of_devices[n] for k, of_devices in enumerate(blocks) for n in mine}
        np.savez(run.folder / f"blocks_{rank}.npz", **named)


def supervise(run: Run, without: int | None) -> None:
    """Returns when every worker has ended well; otherwise raises in bounded time. No worker outlives it."""
    workers: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for rank in range(run.processes):
            if rank != without:
                workers[rank] = start(run, rank)
        watch(run, workers)
    finally:
        for worker in workers.values():
            worker.kill()
            worker.communicate()


def start(run: Run, rank: int) -> subprocess.Popen[bytes]:
    """A worker that speaks to its log, and whose standard input is open for as long as the launcher lives."""
    (run.folder / f"stage_{rank}").write_text("starting")
    command = [sys.executable, str(HERE / "many_processes_worker.py"), str(run.folder), str(rank)]
    with (run.folder / f"log_{rank}").open("wb") as log:
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    print(f"process {rank}: pid {worker.pid}", file=sys.stderr, flush=True)
    return worker


def watch(run: Run, workers: Mapping[int, subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + run.timeout
    while time.monotonic() < deadline:
        statuses = [worker.poll() for worker in workers.values()]
        if any(statuses):  # neither None nor 0
            raise failure(run, workers)
        if None not in statuses:
            return
        time.sleep(POLL_S)
    raise overdue(run)


def failure(run: Run, workers: Mapping[int, subprocess.Popen[bytes]]) -> ShardcError:
    """What to say when a worker has failed: of several, the one that the others died of."""
    failed = {rank: status for rank, worker in workers.items() if (status := worker.poll())}
    rank = min(failed, key=lambda rank: (failed[rank] in ABORTED, failed[rank] > 0, rank))
    status, note = failed[rank], run.last_words(rank)
    who = f"process {rank} of {run.processes}"
    if status in ABORTED:
        how = f"{who} was aborted (exit 134), as JAX does with one that has lost a peer"
        return ShardcError("SHC310", how, note=note, help="start every process anew")
    if status < 0:
        how = f"{who} was killed by {signal.Signals(-status).name}"
        return ShardcError("SHC310", how, note=note, help="start every process anew; SIGKILL may mean want of memory")
    remedy = "`shardc run` runs the program in one process: does it fail there?"
    return ShardcError("SHC308", f"{who} failed (exit {status})", note=note, help=remedy)


def overdue(run: Run) -> ShardcError:
    """What to say at the deadline: the others wait for those that are furthest behind."""
    stages = {rank: run.stage(rank) for rank in range(run.processes)}
    last = min(stages.values(), key=list(STAGES).index)
    behind = [rank for rank in stages if stages[rank] == last]
    who = f"process{'es' if len(behind) > 1 else ''} {', '.join(map(str, behind))} of {run.processes}"
    others = ", ".join(f"process {rank} is {stage}" for rank, stage in stages.items() if stage != last)
    told = [run.last_words(rank) for rank in behind]
    how = f"{who} {STAGES[last]}; gave up after {run.timeout:g} s"
    note = "; ".join(text for text in (others, *dict.fromkeys(told)) if text)
    remedy = "a collective waits for every process: start them all, or give slow ones longer with --timeout"
    return ShardcError("SHC310", how, note=note, help=remedy)


def collect(run: Run, schedule: Schedule) -> list[Any]:
    """The results with the blocks of all processes, in mesh order, as `report_of` reads them off a JAX array."""
    blocks: dict[str, Any] = {}
    results: list[Any] = []
    for rank in range(run.processes):
        path = run.folder / f"results_{rank}"
        results = json.loads(path.with_suffix(".json").read_text())
        with np.load(path.with_suffix(".npz")) as found:
            blocks |= found
    held = [[blocks.get(f"{k}_{n}") for n in range(schedule.mesh.devices)] for k in range(len(results))]
    return [
        SimpleNamespace(
            shape=tuple(result["shape"]),
            dtype=SimpleNamespace(name=result["dtype"]),
            addressable_shards=[SimpleNamespace(data=block) for block in of_devices if block is not None],
        )
        for result, of_devices in zip(results, held, strict=True)
    ]


def verdict(schedule: Schedule, wholes: Sequence[Any], results: Sequence[Any]) -> int:
    """Prints how every result compares with NumPy, shard by shard."""
    mesh = schedule.mesh
    wanted = [[schedule.values[number].local_shape(mesh)] * mesh.devices for number in schedule.outputs]
    found = [[shard.data.shape for shard in result.addressable_shards] for result in results]
    if found != wanted:
        print(f"NOT EQUAL to NumPy: the results' shards have the shapes {found}, not {wanted}")
        return MISMATCH
    try:
        report = report_of(schedule, wholes, results)
    except simulate.ReplicaMismatch as error:
        print(f"NOT EQUAL to NumPy: {error}")
        return MISMATCH
    print(report)
    return 0 if report.ok else MISMATCH


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ShardcError("SHC001", message, help=f"{self.prog} --help")


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(description="Runs an emitted file on many processes and compares every shard with NumPy.")
    parser.add_argument("input", nargs="?", default=str(HERE / "mlp.shard"), help="an expression, a .shard file, -")
    parser.add_argument("--processes", type=int, default=2, help="how many share the mesh's devices (default 2)")
    parser.add_argument("--timeout", type=float, default=60, metavar="S", help="give up after so long (default 60 s)")
    parser.add_argument("--program", metavar="FILE", help="run this emitted file instead of emitting one")
    parser.add_argument("--without", type=int, metavar="N", help="do not start process N, to see how that ends")
    options = parser.parse_args(arguments)
    if options.processes < 1:
        parser.error(f"--processes is {options.processes}; give 1 or more")
    if not 0 < options.timeout <= 86400:
        parser.error(f"--timeout is {options.timeout}; give seconds, up to 86400")
    if options.without is not None and options.without not in range(options.processes):
        parser.error(f"--without is {options.without}; processes are numbered from 0 to {options.processes - 1}")
    return options


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # by way of every `finally`
    try:
        return launch(options_of(sys.argv[1:]))
    except ShardcError as error:
        refused = error
    except OSError as error:
        refused = ShardcError("SHC506", f"the files of the run: {error}", help="check the temporary directory")
    except KeyboardInterrupt:
        return INTERRUPTED
    print(refused.render(), file=sys.stderr)
    return refused.exit_code


if __name__ == "__main__":
    sys.exit(main())
