"""Against the field: random reshards and matmuls, ours and XLA's, each as its compiler leaves it.

    python tests/benchmark/bench_field.py [--seed 0] [--reshards 200] [--matmuls 400] [--run] [--worst 5]

Sections: reshards on 4×4×4; reshards on other meshes; the shardings for which users reported that XLA replicated the
whole array; matmuls on 2×2×2. Shardings are drawn uniformly: each axis on any dim or on none, in any order. Every
case is planned by bytes and by time, compiled for a TPU slice (which needs libtpu, and no TPU), and given to jax.jit
alone, for that slice and for simulated CPU devices. `--run` also executes every plan there, and compares the bits of
every shard with NumPy.

Ratios are ours ÷ theirs. A mean is geometric, over the cases where both move something; `above` counts those of all
where ours is the larger. XLA for the CPU sums bf16 in f32, so there it compiles for f32 and counts half. Programs run
on int32, reshards with smaller dims, so that all devices fit into one machine's memory: by the same moves, but for a
few. `priced` is the plan's own time, `replayed` the compiled program's by the compiler's cycles and the cost model's
links, in bf16.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from tabulate import tabulate

import shardc
from shardc.cost import LinkModel
from shardc.interface.hardware import Hardware
from shardc.ir.program import Program
from shardc.ir.sharding import Sharding, spell, spell_axes
from shardc.planner import Objective, PlannedProgram, plan_program
from shardc.rules.placements import placements

OBJECTIVES = ("bytes", "time")
RESHARDS, ELSEWHERE, REPORTED, MATMULS = "reshards on 4×4×4", "reshards elsewhere", "reported", "matmuls on 2×2×2"
CUBE, SMALL_CUBE = ("X=4,Y=4,Z=4", "v5p:4x4x4"), ("X=2,Y=2,Z=2", "v5p:2x2x2")
OTHER_MESHES = (  # mesh, topology, rank
    (*CUBE, 3),
    ("X=2,Y=4", "v5e:2x4", 2),
    ("X=8", "v5e:2x4", 2),
    (*SMALL_CUBE, 3),
    ("X=2,Y=4,Z=8", "v5p:4x4x4", 2),
)
# Dims of reshards by rank, and by how much they are divided to run. A device holds a fraction of a megabyte or more;
# where it holds less, the compiler's tiles and the latency of a hop are most of what is seen (`--small`).
LARGE, SMALL = {2: ((4096, 8192, 16384), 16), 3: ((256, 512), 4)}, {2: ((1024, 2048, 4096), 4), 3: ((128, 256), 2)}
ABOVE = 1 + 1e-6
Row = dict[str, Any]
Sizes = dict[int, tuple[tuple[int, ...], int]]


@dataclass(frozen=True, slots=True)
class Case:
    section: str
    text: str
    mesh: str
    dims: str
    topology: str
    smaller: int = 1  # dims are divided by so much where the plan is run
    link: str = ""

    @property
    def devices(self) -> int:
        return math.prod(int(part.split("=")[1]) for part in self.mesh.split(","))


def _reported(text: str, mesh: str, dims: str, topology: str, smaller: int, link: str = "") -> Case:
    return Case(REPORTED, text, mesh, dims, topology, smaller, link)


# What users reported "Involuntary full rematerialization" for, in the notation; sizes are larger than the reports'
# where theirs were those of a toy, or not divisible.
REPORTS = (
    _reported(
        "A[B_Y, S, H_X] → A[B, S_XY, H]",
        "X=4,Y=2",
        "B=64,S=512,H=512",
        "v5e:2x4",
        1,
        "https://github.com/jax-ml/jax/issues/21562, https://github.com/openxla/xla/issues/15207",
    ),
    _reported(  # {devices=[256,1]<=[256]} to {devices=[1,64,4]<=[256] last_tile_dim_replicate}
        "A[I_XY, J] → A[I, J_X]",
        "X=64,Y=4",
        "I=8192,J=8192",
        "v5p:4x8x8",
        8,
        "https://github.com/jax-ml/jax/issues/18591",
    ),
    _reported(  # {devices=[…,2,2]<=[4] last_tile_dim_replicate} to {devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}
        "A[I_X] → A[I_Y]",
        "X=2,Y=2",
        "I=1048576",
        "v5e:2x2",
        1,
        "https://github.com/EnzymeAD/Enzyme-JAX/issues/822",
    ),
    _reported(  # {devices=[4,1,1,1]0,1,2,3} to {devices=[2,1,1,2]0,1,2,3}
        "A[N_XY, H, W, C] → A[N_X, H, W, C_Y]",
        "X=2,Y=2",
        "N=32,H=32,W=32,C=256",
        "v5e:2x2",
        1,
        "https://github.com/alpa-projects/alpa/issues/701",
    ),
    # Warnings quoted in public code and notes, with no issue of their own: a preconditioner, {devices=[1,16,1,4]<=[64]
    # last_tile_dim_replicate} to {devices=[1,1,4,16]<=[16,4]T(1,0) last_tile_dim_replicate} on f32[3,8,128]; a server,
    # {devices=[1,32]<=[32]} to {devices=[16,1,2]<=[2,16]T(1,0) …}; a study of jax.reshard, {devices=[2,32,4]
    # <=[2,8,4,4]T(0,2,1,3) …} to {devices=[1,256]<=[256]} on f32[2048,2048].
    _reported("A[L, I_X, J] → A[L, I, J_Y]", "X=16,Y=4", "L=4,I=4096,J=4096", "v5p:4x4x4", 4),
    _reported("A[I, J_XY] → A[I_Y, J]", "X=2,Y=16", "I=8192,J=8192", "v5p:2x4x4", 8),
    _reported("A[I_W, J_YX] → A[I, J_WXYZ]", "W=2,X=8,Y=4,Z=4", "I=8192,J=8192", "v5p:4x8x8", 8),
)


def cases(seed: int, reshards: int, matmuls: int, quick: bool = False, small: bool = False) -> list[Case]:
    """Each section from a generator of its own, so that the length of one changes no other.

    `quick` leaves out what needs more than 8 devices, except on 4×4×4.
    """
    sizes = SMALL if small else LARGE
    drawn = random.Random(f"{seed} {RESHARDS}")
    found = [_reshard(drawn, RESHARDS, *CUBE, 2, sizes) for _ in range(reshards)]
    for mesh, topology, rank in OTHER_MESHES:
        drawn = random.Random(f"{seed} {mesh} {rank}")
        found += [_reshard(drawn, ELSEWHERE, mesh, topology, rank, sizes) for _ in range(math.ceil(reshards / 10))]
    drawn = random.Random(f"{seed} {MATMULS}")
    found += [*REPORTS, *(_matmul(drawn) for _ in range(matmuls))]
    return [case for case in found if not quick or case.devices <= 8 or case.section == RESHARDS]


def _reshard(drawn: random.Random, section: str, mesh: str, topology: str, rank: int, sizes: Sizes) -> Case:
    dims, (of_dims, smaller) = "IJK"[:rank], sizes[rank]
    before, after = (_array(drawn, "A", dims, mesh) for _ in range(2))
    spelled = ",".join(f"{dim}={drawn.choice(of_dims)}" for dim in dims)
    return Case(section, f"{before} → {after}", mesh, spelled, topology, smaller)


def _matmul(drawn: random.Random) -> Case:
    mesh, topology = SMALL_CUBE
    a, b, c = (_array(drawn, name, dims, mesh) for name, dims in (("A", "IJ"), ("B", "JK"), ("C", "IK")))
    return Case(MATMULS, f"{a} · {b} → {c}", mesh, "I=64,J=128,K=256", topology)


def _array(drawn: random.Random, name: str, dims: str, mesh: str) -> str:
    axes = tuple(part.split("=")[0] for part in mesh.split(","))
    return name + spell(tuple(dims), Sharding(drawn.choice(_shardings(axes, len(dims)))))


@cache
def _shardings(axes: tuple[str, ...], rank: int) -> list[Any]:
    return list(placements(axes, rank))


Planned = tuple[PlannedProgram, LinkModel, float]


def planned(case: Case, objective: str, dtype: str = "bf16") -> Planned:
    """The plan, its model, and the seconds that planning took, reading the text left out."""
    program = _program(case, dtype)
    model = Hardware().model(program)
    start = time.perf_counter()
    found = plan_program(program, model, Objective(objective))
    return found, model, time.perf_counter() - start


def to_run(case: Case, objective: str) -> PlannedProgram:
    """The plan for int32 and smaller dims. A hop takes less by as much, so that the same plan is the fastest."""
    program = _program(case, "int32", case.smaller)
    model = Hardware().model(program)
    rank = 0 if "·" in case.text else len(program.sizes)
    chip = replace(model.chip, hop_latency=model.chip.hop_latency * 2 / case.smaller**rank)
    return plan_program(program, LinkModel.of(model.mesh, chip, model.network.layout), Objective(objective))


def _program(case: Case, dtype: str, smaller: int = 1) -> Program:
    dims = {name: int(size) // smaller for name, size in (part.split("=") for part in case.dims.split(","))}
    return shardc.parse(case.text, mesh=case.mesh, dims=dims, dtype=dtype, topology=case.topology)


def _moves(found: PlannedProgram) -> list[Any]:
    return [step.op for step in found.schedule.steps]


def compared(case: Case, tpu: bool) -> Row:
    """One case: the plans, and what the TPU's compiler makes of them and of jax.jit alone."""
    row: Row = asdict(case)
    plans = {objective: planned(case, objective) for objective in OBJECTIVES}
    found, model, _ = plans["bytes"]
    if found.bound_bytes or "·" not in case.text:  # 0 for a product: none is known
        row["bound"] = found.bound_bytes
    for objective, (plan, _, seconds) in plans.items():
        row[objective] = {"plan_s": seconds, "priced_s": plan.cost.time_s, "planned": plan.cost.wire_bytes}
        row[objective]["steps"] = [_spelled(plan, step) for step in plan.schedule.steps if step.cost.wire_bytes]
    if tpu:
        _compile(row, case, {objective: plan for objective, (plan, _, _) in plans.items()}, model)
    return row


def _spelled(plan: PlannedProgram, step: Any) -> str:
    left = plan.schedule.values[step.result]
    axes = spell_axes(step.op.axes)
    return f"{step.name}_{axes} {step.cost.wire_bytes / 1e3:,.1f} kB → {left}"


def _compile(row: Row, case: Case, plans: dict[str, PlannedProgram], model: LinkModel) -> None:
    from shardc.machines import tpu
    from shardc.machines.baseline import compile_baseline
    from shardc.machines.stderr import caught_stderr

    try:
        with caught_stderr():
            mesh = _slice_mesh(case.mesh, case.topology)
            ours = [tpu.compile_schedule(plans["bytes"].schedule, mesh)]
            if _moves(plans["bytes"]) != _moves(plans["time"]):
                ours.append(tpu.compile_schedule(plans["time"].schedule, mesh))
        with caught_stderr() as caught:
            theirs = compile_baseline(plans["bytes"].schedule, mesh)
    except shardc.ShardcError as error:
        row["refused"] = str(error).splitlines()[0]
        return
    row["bytes"] |= _side(ours[0], model)
    row["time"] |= _side(ours[-1], model)
    row["xla"] = _side(theirs, model) | {"warns": "full rematerialization" in caught.text}


@cache
def _slice_mesh(mesh: str, topology: str) -> Any:
    from shardc.compiled.compilers import slice_mesh

    program = shardc.parse("A[I] → A[I]", mesh=mesh, dims={"I": 1}, topology=topology)
    return slice_mesh(program.mesh, Hardware().model(program))


def _side(compiled: Any, model: LinkModel) -> Row:
    from shardc.compiled.compare import side_of

    side = side_of("", compiled, model)
    assert side.memory is not None
    return {
        "wire_bytes": side.wire_bytes,
        "collectives": [f"{t.count} {t.name} {t.wire_bytes / 1e3:,.1f} kB" for t in side.collectives],
        "replayed_s": side.timeline.step_s,
        "communication_s": side.timeline.communication_s,
        "temporary": side.memory.temporary_bytes,
        "largest": max(side.memory.argument_bytes, side.memory.output_bytes),
    }


def simulated(found: list[Case], run: bool) -> list[Row]:
    """XLA for the CPU, and the plans executed: in child processes, one for each number of devices."""
    rows: dict[int, Row] = {}
    for devices in sorted({case.devices for case in found}):
        left = [number for number, case in enumerate(found) if case.devices == devices]
        while left:
            request = {"devices": devices, "run": run, "cases": [asdict(found[number]) for number in left]}
            child = subprocess.run(
                [sys.executable, __file__, "--child"],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                env=os.environ | {"JAX_PLATFORMS": "cpu"},
            )
            rows |= zip(left, map(json.loads, child.stdout.splitlines()), strict=False)
            left = [number for number in left if number not in rows]
            if left:  # it died of the next one, as an abort in a collective does; go on behind it
                rows[left.pop(0)] = {"died": child.stderr.strip()[-2000:]}
    return [rows[number] for number in range(len(found))]


def _child() -> None:
    import jax

    request = json.load(sys.stdin)
    jax.config.update("jax_num_cpu_devices", request["devices"])  # type: ignore[no-untyped-call]  # JAX gives it no types
    for case in request["cases"]:
        print(json.dumps(_on_simulated_devices(Case(**case), request["run"])), flush=True)


def _on_simulated_devices(case: Case, run: bool) -> Row:
    import jax

    from shardc.compiled import collectives
    from shardc.emit.call.placing import make_mesh
    from shardc.machines.baseline import compile_baseline
    from shardc.machines.run import run as run_plan

    found, model, _ = planned(case, "bytes", "f32")
    theirs = compile_baseline(found.schedule, make_mesh(model.mesh, jax.devices("cpu")))
    row: Row = {"cpu": sum(one.total_bytes for one in collectives(theirs, model.mesh)) // 2}
    if run:
        for objective in OBJECTIVES:
            small = to_run(case, objective)
            same = _moves(small) == _moves(planned(case, objective)[0])
            row[f"run {objective}"] = {"equal": run_plan(small.schedule).ok, "as planned": same}
    return row


RATIOS: tuple[tuple[str, Callable[[Row], tuple[float, float]]], ...] = (
    ("wire bytes planned ÷ bound", lambda row: (row["bytes"]["planned"], row["bound"])),
    ("wire bytes compiled ÷ bound", lambda row: (row["bytes"]["wire_bytes"], row["bound"])),
    ("XLA for the TPU ÷ bound", lambda row: (row["xla"]["wire_bytes"], row["bound"])),
    ("XLA for the CPU ÷ bound", lambda row: (row["cpu"], row["bound"])),
    ("wire bytes compiled ÷ XLA for the TPU", lambda row: (row["bytes"]["wire_bytes"], row["xla"]["wire_bytes"])),
    ("wire bytes planned ÷ XLA for the TPU", lambda row: (row["bytes"]["planned"], row["xla"]["wire_bytes"])),
    ("wire bytes planned ÷ XLA for the CPU", lambda row: (row["bytes"]["planned"], row["cpu"])),
    ("by time: priced ÷ XLA replayed", lambda row: (row["time"]["priced_s"], row["xla"]["replayed_s"])),
    ("by time: replayed ÷ XLA replayed", lambda row: (row["time"]["replayed_s"], row["xla"]["replayed_s"])),
    (
        "by time: communication ÷ XLA, replayed",
        lambda row: (row["time"]["communication_s"], row["xla"]["communication_s"]),
    ),
    ("temporary memory ÷ larger of input, output", lambda row: (row["bytes"]["temporary"], row["bytes"]["largest"])),
    ("XLA's temporary memory ÷ the same", lambda row: (row["xla"]["temporary"], row["xla"]["largest"])),
)
BOUND, BYTES, PLANNED, CPU, PRICED, REPLAYED, MEMORY = (RATIOS[place][0] for place in (1, 4, 5, 6, 7, 8, 10))


@dataclass(frozen=True, slots=True)
class Ratio:
    cases: int
    mean: float
    largest: float
    total: float
    above: int


def ratio_of(pairs: list[tuple[float, float]]) -> Ratio:
    """Of pairs (ours, theirs). Those in which nothing moves on one side count in `total` and in `above` only."""
    both = [a / b for a, b in pairs if a and b]
    total = sum(b for _, b in pairs)
    return Ratio(
        len(pairs),
        math.exp(statistics.fmean(map(math.log, both))) if both else 1.0,
        max((a / b if b else math.inf for a, b in pairs if a), default=1.0),
        sum(a for a, _ in pairs) / total if total else 1.0,
        sum(a > b * ABOVE for a, b in pairs),
    )


def pairs_of(rows: list[Row], name: str) -> list[tuple[float, float]]:
    """Ours and theirs of each row that has them."""
    return [pair for row in rows if (pair := _pair(row, dict(RATIOS)[name])) is not None]


def _pair(row: Row, of: Callable[[Row], tuple[float, float]]) -> tuple[float, float] | None:
    try:
        return of(row)
    except KeyError:
        return None


def table(rows: list[Row]) -> str:
    lines = []
    for name, _ in RATIOS:
        pairs = pairs_of(rows, name)
        if not pairs:
            continue
        found = ratio_of(pairs)
        lines.append((name, found.cases, *(f"{n:.3f}" for n in (found.mean, found.largest, found.total)), found.above))
    headers = ("", "cases", "mean", "largest", "total", "above 1")
    return tabulate(lines, headers=headers, disable_numparse=True, colalign=("left", *["right"] * 5))


def remarks(rows: list[Row]) -> Iterator[str]:
    for objective in OBJECTIVES:
        seconds = sorted(row[objective]["plan_s"] * 1e3 for row in rows)
        p99 = seconds[min(len(seconds) - 1, math.ceil(len(seconds) * 0.99) - 1)]
        yield f"planned by {objective} in {statistics.median(seconds):.2f} ms (median), {p99:.2f} ms (p99)"
    warned = [row["xla"]["warns"] for row in rows if "xla" in row]
    if warned:
        yield f"XLA for the TPU warns of a full rematerialization in {sum(warned)} of {len(warned)}"
    runs = [row[key] for row in rows for key in row if key.startswith("run ")]
    if runs:
        equal, same = (sum(run[key] for run in runs) for key in ("equal", "as planned"))
        yield f"executed: {equal} of {len(runs)} plans equal to NumPy on every shard, {same} by the same moves"
    for row in rows:
        yield from (f"{row['text']}: {key}: {row[key]}" for key in ("refused", "died") if key in row)


def worst(rows: list[Row], name: str, count: int) -> Iterator[str]:
    """The cases above 1 with the largest ratios, with both plans; the largest alone if none is above."""
    objective = "time" if name.startswith("by time") else "bytes"
    pairs = ((_pair(row, dict(RATIOS)[name]), row) for row in rows)
    ratios = [(a / b if b else math.inf, row) for pair, row in pairs if pair is not None for a, b in [pair] if a]
    ratios.sort(key=lambda found: -found[0])
    above = sum(ratio > ABOVE for ratio, _ in ratios)
    for ratio, row in ratios[: min(count, max(above, 1))]:
        yield f"  {ratio:.3f}  {row['text']}   {row['mesh']}; {row['dims']}"
        yield "         planned   " + ("; ".join(row[objective]["steps"]) or "nothing moves")
        for label, key in (("compiled", objective), ("XLA", "xla")):
            if "collectives" in row.get(key, {}):
                moved = "; ".join(row[key]["collectives"]) or "nothing moves"
                yield f"         {label:9} {moved}   replayed {row[key]['replayed_s'] * 1e6:.1f} µs"


def stated(rows: list[Row]) -> Iterator[tuple[str, str, str, str]]:
    """What the project promises of these figures: (promise, wanted, found, kept)."""

    def line(what: str, wanted: str, found: float, kept: bool) -> tuple[str, str, str, str]:
        return what, wanted, f"{found:.3f}" if isinstance(found, float) else str(found), "yes" if kept else "NO"

    reshards = [row for row in rows if row["section"] == RESHARDS]
    matmuls = [row for row in rows if row["section"] == MATMULS]
    if pairs := pairs_of(reshards, BOUND):
        bound, bytes_ = ratio_of(pairs), ratio_of(pairs_of(reshards, BYTES))
        yield line("reshards: wire bytes ÷ bound, mean", "≤ 1.05", bound.mean, bound.mean <= 1.05)
        yield line("reshards: wire bytes ÷ bound, largest", "≤ 1.5", bound.largest, bound.largest <= 1.5)
        yield line("reshards: cases above XLA's wire bytes", "0", bytes_.above, not bytes_.above)
        yield line("reshards: XLA's wire bytes ÷ ours, mean", "≥ 1.6", 1 / bytes_.mean, 1 / bytes_.mean >= 1.6)
        for name, label in ((PRICED, "priced"), (REPLAYED, "replayed")):
            slower = ratio_of(pairs_of(reshards, name)).above
            yield line(f"reshards by time: cases {label} above XLA's replayed time", "0", slower, not slower)
        memory = ratio_of([p for row in rows if row["section"] != MATMULS for p in pairs_of([row], MEMORY)])
        yield line("every reshard: temporary memory, largest", "≤ 2", memory.largest, memory.largest <= 2)
    for name, label in ((PLANNED, "planned"), (BYTES, "compiled")):
        if pairs := pairs_of(matmuls, name):
            found = ratio_of(pairs)
            yield line(f"matmuls: XLA's wire bytes ÷ {label}, total", "≥ 2.5", 1 / found.total, 1 / found.total >= 2.5)
            yield line(f"matmuls: cases {label} above XLA's wire bytes", "0", found.above, not found.above)
    if runs := [row[key] for row in rows for key in row if key.startswith("run ")]:
        unequal = sum(not run["equal"] for run in runs) + sum("died" in row for row in rows)
        yield line("plans executed that differ from NumPy", "0", unequal, not unequal)


def report(rows: list[Row], count: int) -> Iterator[str]:
    for section in dict.fromkeys(row["section"] for row in rows):
        part = [row for row in rows if row["section"] == section]
        yield f"\n{section}\n\n{table(part)}\n"
        yield from remarks(part)
        for name in (BOUND, BYTES, CPU, PRICED, REPLAYED, *([MEMORY] if section != MATMULS else [])):
            if found := list(worst(part, name, count)):
                yield "\n".join([f"\nworst: {name}", *found])
    if promises := list(stated(rows)):
        yield "\n" + tabulate(promises, headers=("stated", "wanted", "found", "kept"), disable_numparse=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reshards", type=int, default=200, help="on 4×4×4; a tenth as many on each other mesh")
    parser.add_argument("--matmuls", type=int, default=400)
    parser.add_argument("--run", action="store_true", help="execute every plan on simulated devices")
    parser.add_argument("--quick", action="store_true", help="a few cases, in seconds")
    parser.add_argument("--small", action="store_true", help="reshards of small arrays, a few tiles a device")
    parser.add_argument("--no-tpu", action="store_true", help="only what needs no libtpu")
    parser.add_argument("--worst", type=int, default=5, help="how many cases of each kind to show")
    parser.add_argument("--json", metavar="FILE", help="every figure of every case")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.reshards, options.matmuls = min(options.reshards, 2), min(options.matmuls, 3)
    return options


def main() -> None:
    options = arguments()
    if options.child:
        return _child()
    found = cases(options.seed, options.reshards, options.matmuls, options.quick, options.small)
    start, rows = time.perf_counter(), []
    with ThreadPoolExecutor(1) as pool:
        children = pool.submit(simulated, found, options.run)
        for number, case in enumerate(found):
            rows.append(compared(case, tpu=not options.no_tpu))
            if number % 50 == 49:
                print(f"{number + 1} of {len(found)}, {time.perf_counter() - start:.0f} s", file=sys.stderr)
        for row, more in zip(rows, children.result(), strict=True):
            row |= more
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"seed": options.seed, "cases": rows}, file, ensure_ascii=False, indent=1)
    print(f"seed {options.seed}, {len(rows)} cases, {time.perf_counter() - start:.0f} s")
    print("\n".join(report(rows, options.worst)))


if __name__ == "__main__":
    main()
