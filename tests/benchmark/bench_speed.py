"""How fast the front door and the planner are, also of whole layers, and how long many einsums take to trace.

    python tests/benchmark/bench_speed.py                     # beside what is aimed at, and beside jnp.einsum
    python tests/benchmark/bench_speed.py --beside TREE       # beside another checkout
    python tests/benchmark/bench_speed.py --beside TREE --cold      # the front door alone

Not a timed test. Times are of the processor. A process stands beside an empty Python process of the same run, as a
ratio; plans in this process, by class, beside what they aim at. Two trees are compared program by program, in two
processes that plan in turns, so that a slow moment of the machine falls on both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

if TYPE_CHECKING:
    from shardc.planner import Objective

TEXT = "A[I_X, J_Y] · B[J_Y, K_Z] → C[I_Z, K_X]"
MESH = "X=4,Y=4,Z=4"
HERE = Path(__file__).resolve().parents[2]


def seconds(task: Callable[[], object]) -> float:
    """Of the processor, in this process."""
    start = time.process_time()
    task()
    return time.process_time() - start


def seconds_below(task: Callable[[], object]) -> float:
    """Of the processor, in processes that the task starts; to a microsecond, where `os.times` counts hundredths."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    task()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def medians(tasks: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """The median of each task, interleaved so that a slow moment of the machine falls on all."""
    found: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(runs):
        for name, task in tasks.items():
            found[name].append(seconds_below(task))
    return {name: statistics.median(times) for name, times in found.items()}


def process(*arguments: str, tree: Path = HERE) -> Callable[[], object]:
    """A Python in which this checkout is `shardc`; in its folder too, which `-c` and `-m` look at first."""
    command = [sys.executable, *arguments]
    return lambda: subprocess.run(command, check=True, capture_output=True, env=of(tree), cwd=tree)


def of(tree: Path) -> dict[str, str]:
    """The environment in which this checkout is `shardc`."""
    return {**os.environ, "PYTHONPATH": str(tree)}


FRONT_DOOR = {
    "import shardc": ("-c", "import shardc"),
    "shardc plan": ("-m", "shardc", "plan", TEXT, "--mesh", MESH),
}


def processes() -> None:
    tasks = {"python -c pass": process("-c", "pass")}
    tasks |= {name: process(*arguments) for name, arguments in FRONT_DOOR.items()}
    times = medians(tasks, 15)
    base = times["python -c pass"]
    rows = [(name, f"{1e3 * t:.0f} ms", f"{t / base:.2f}", f"{1e3 * (t - base):.0f} ms") for name, t in times.items()]
    print(tabulate(rows, headers=("process", "median", "ratio", "beyond Python itself")))


# name, mesh, arrays of each program in order, how many programs, the seconds that median and 99th percentile aim at
CUBE = "X=4,Y=4,Z=4"
CLASSES = (
    ("reshard, rank 2", CUBE, ("IJ", "IJ"), 200, (1e-3, 10e-3)),
    ("reshard, rank 3", CUBE, ("IJK", "IJK"), 100, (1e-3, 10e-3)),
    ("reshard, rank 4", "V=2,W=2,X=2,Y=2,Z=2", ("IJKL", "IJKL"), 40, (1.0, 1.0)),
    ("product, rank 2", "X=2,Y=2,Z=2", ("IJ", "JK", "IK"), 200, (5e-3, 30e-3)),
    ("product, rank 2", CUBE, ("IJ", "JK", "IK"), 200, (5e-3, 30e-3)),
    ("product, one axis idle", "X=2,Y=2,Z=2,S=2", ("IJ", "JK", "IK"), 50, None),
    ("product, three idle", "X=2,Y=2,Z=2,S=2,T=2,U=2", ("IJ", "JK", "IK"), 50, None),
    ("product, five idle", "X=2,Y=2,Z=2,S=2,T=2,U=2,V=2,W=2", ("IJ", "JK", "IK"), 50, None),
    ("three operands", "X=4,Y=2", ("IJ", "JK", "KL", "IL"), 40, None),
    ("four operands", "X=4,Y=2", ("IJ", "JK", "KL", "LM", "IM"), 40, None),
    ("six operands", "X=4,Y=2", ("IJ", "JK", "KL", "LM", "MN", "NP", "IP"), 20, None),
)
IDLE = "STUVW"


def planning() -> None:
    """Random shardings from a seed. The first plans of a mesh also work out its shardings: they are in the times."""
    from shardc.planner import Objective

    rows = []
    for name, mesh, arrays, count, aims in CLASSES:
        for objective in Objective:
            times = [plan_seconds(text, mesh, objective) for text in drawn(mesh, arrays, count, "idle" in name)]
            found = statistics.median(times), statistics.quantiles(times, n=100, method="inclusive")[-1]
            cells = [f"{1e3 * t:.2f} ms" for t in found]
            if aims is not None:
                cells = [f"{cell} (< {1e3 * aim:g})" for cell, aim in zip(cells, aims, strict=True)]
            rows.append((f"{name}, by {objective.value}", mesh.replace(",", " "), count, *cells))
    headers = ("planned in this process", "mesh", "programs", "median (aim)", "p99 (aim)")
    print(tabulate(rows, headers=headers, disable_numparse=True))


def drawn(mesh: str, arrays: tuple[str, ...], count: int, some_idle: bool) -> Iterator[str]:
    from shardc.ir.sharding import Sharding, spell
    from shardc.rules.placements import placements

    chosen = random.Random(20)
    names = [part.split("=")[0] for part in mesh.split(",")]
    axes = tuple(name for name in names if not (some_idle and name in IDLE))
    every = {dims: [Sharding(found) for found in placements(axes, len(dims))] for dims in arrays}
    for _ in range(count):
        *given, wanted = (spell(tuple(dims), chosen.choice(every[dims])) for dims in arrays)
        result = "A" if len(given) == 1 else "R"
        yield " · ".join(name + array for name, array in zip("ABCDEF", given, strict=False)) + f" → {result}{wanted}"


def plan_seconds(text: str, mesh: str, objective: Objective) -> float:
    """The seconds of planning, reading the text left out."""
    from shardc.api import parse
    from shardc.cost import LinkModel, chip
    from shardc.planner import plan_program

    program = parse(text, mesh=mesh, dims=dict.fromkeys(sorted(set(text) & set("IJKLMNP")), 2304), dtype="bf16")
    model = LinkModel.of(program.mesh, chip("v5p"))
    return seconds(lambda: plan_program(program, model, objective))


# name, example, mesh, the seconds that its plan aims at, all that planning keeps worked out anew
LAYERS = (
    ("a layer of LLaMA", "llama_layer", "data=2, seq=2, model=2", 2),
    ("a layer of LLaMA", "llama_layer", "data=4, seq=4, model=4", 2),
    ("a hundred of them in a loop", "llama", "data=2, seq=2, model=2", 3),
)


def layers() -> None:
    rows = []
    for name, example, mesh, aim in LAYERS:
        found = statistics.median(layer_planned(example, mesh, HERE) for _ in range(3))
        rows.append((name, mesh.replace(",", ""), f"{found:.2f} s (< {aim})"))
    print(tabulate(rows, headers=("planned in a new process", "mesh", "median (aim)"), disable_numparse=True))


def layer_planned(example: str, mesh: str, tree: Path) -> float:
    """The seconds of a plan in a process that has planned nothing."""
    command = [sys.executable, __file__, "--layer", example, mesh]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=of(tree)).stdout)


def layer_seconds(example: str, mesh: str) -> float:
    """The same in this process. Its tokens are shared over a third axis."""
    import shardc

    text = (HERE / "examples" / f"{example}.shard").read_text(encoding="utf-8").replace("L=32", "L=100")
    text = text.replace("mesh data=2, model=4", f"mesh {mesh}").replace("x[B_data, T, D]", "x[B_data, T_seq, D]")
    program = shardc.parse(text)
    return seconds(lambda: shardc.plan(program))


class Planning:
    """A process in which a checkout plans what it is given, a program a line."""

    def __init__(self, tree: Path) -> None:
        command = [sys.executable, __file__, "--answer"]
        self._process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=of(tree), cwd=tree)

    def seconds(self, *asked: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())


def answer() -> None:
    """Such a process: the seconds of each plan."""
    from shardc.planner import Objective

    for line in sys.stdin:
        text, mesh, objective = json.loads(line)
        print(plan_seconds(text, mesh, Objective(objective)), flush=True)


def beside(other: Path, cold: bool) -> None:
    """This checkout and another: medians over a class, their ratio, and that of all of the class together. `cold`: of
    new processes alone."""
    trees = {"other": other, "this": HERE}
    tasks = {
        (name, side): process(*arguments, tree=tree)
        for name, arguments in FRONT_DOOR.items()
        for side, tree in trees.items()
    }
    times = medians({f"{name}, {side}": task for (name, side), task in tasks.items()}, 15)
    rows: list[tuple[object, ...]] = [
        (name, 15, *ratio([times[f"{name}, other"]], [times[f"{name}, this"]])) for name in FRONT_DOOR
    ]
    if not cold:
        rows += _planned_beside(trees)
    print(tabulate(rows, headers=("", "programs", "other", "this", "ratio", "of sums"), disable_numparse=True))


def _planned_beside(trees: dict[str, Path]) -> Iterator[tuple[object, ...]]:
    sides = [Planning(tree) for tree in trees.values()]
    for name, mesh, arrays, count, _ in CLASSES:
        for objective in ("time", "bytes"):
            texts = list(drawn(mesh, arrays, count, "idle" in name))
            found = [in_turns(sides, (text, mesh, objective), place) for place, text in enumerate(texts)]
            yield f"{name}, by {objective}, {mesh.count('=')} axes", count, *ratio(*zip(*found, strict=True))
    for name, example, mesh, _ in LAYERS:
        try:
            pairs = [[layer_planned(example, mesh, tree) for tree in trees.values()] for _ in range(3)]
        except subprocess.CalledProcessError:  # a tree that knows no layers
            continue
        yield f"{name}, {mesh}", 3, *ratio(*zip(*pairs, strict=True))


def in_turns(sides: Sequence[Planning], asked: tuple[str, str, str], place: int) -> list[float]:
    """The seconds of each side, now the one first, now the other."""
    order = sides if place % 2 else sides[::-1]
    found = {side: side.seconds(*asked) for side in order}
    return [found[side] for side in sides]


def ratio(before: Sequence[float], after: Sequence[float]) -> tuple[str, str, str, str]:
    first, second = statistics.median(before), statistics.median(after)
    return f"{1e3 * first:.2f} ms", f"{1e3 * second:.2f} ms", f"{second / first:.2f}", f"{sum(after) / sum(before):.2f}"


def tracing() -> None:
    """Fifty einsums, equal and different ones: `bench_trace.py`."""
    subprocess.run([sys.executable, str(HERE / "tests" / "benchmark" / "bench_trace.py")], check=True, env=of(HERE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, metavar="TREE")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--layer", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answer:
        answer()
    elif asked.layer:
        print(layer_seconds(*asked.layer))
    elif asked.beside is not None:
        beside(asked.beside.resolve(), asked.cold)
    else:
        processes()
        print()
        planning()
        print()
        layers()
        print(flush=True)
        tracing()


if __name__ == "__main__":
    main()
