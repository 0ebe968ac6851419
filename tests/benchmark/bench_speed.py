"""How fast the front door and the planner are: `python tests/benchmark/bench_speed.py`.

Not a timed test. Each figure is the median of interleaved runs and stands beside one taken in the same run,
as a ratio: an empty Python process, or the brute-force search of the same reshard.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from tabulate import tabulate

TEXT = "A[I_X, J_Y] · B[J_Y, K_Z] → C[I_Z, K_X]"
MESH = "X=4,Y=4,Z=4"


def seconds(task: Callable[[], object]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def medians(tasks: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """The median of each task, interleaved so that a slow moment of the machine falls on all."""
    found: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(runs):
        for name, task in tasks.items():
            found[name].append(seconds(task))
    return {name: statistics.median(times) for name, times in found.items()}


def process(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def processes() -> None:
    tasks = {
        "python -c pass": process("-c", "pass"),
        "import shardc": process("-c", "import shardc"),
        "shardc plan": process("-m", "shardc", "plan", TEXT, "--mesh", MESH),
    }
    times = medians(tasks, 15)
    base = times["python -c pass"]
    rows = [(name, f"{1e3 * t:.0f} ms", f"{t / base:.2f}", f"{1e3 * (t - base):.0f} ms") for name, t in times.items()]
    print(tabulate(rows, headers=("process", "median", "ratio", "beyond Python itself")))


def planning() -> None:
    from shardc.api import parse
    from shardc.cost import LinkModel, chip
    from shardc.ir.mesh import Mesh
    from shardc.ir.sharding import Sharding
    from shardc.planner import plan_program, sizes
    from shardc.testing import shortest_path_oracle

    def planner(text: str) -> Callable[[], object]:
        program = sizes.large(parse(text, mesh=MESH))
        return lambda: plan_program(program, LinkModel.of(program.mesh, chip("v5p")))

    mesh = Mesh.of({"X": 2, "Y": 2, "Z": 2})
    source, target = Sharding.of([["X", "Y"], ["Z"]]), Sharding.of([["Z"], ["X"]])
    tasks = {
        "reshard, rank 2, three axes": planner("A[I_XY, J_Z] → A[I_Z, J_X]"),
        "matmul, rank 2, three axes": planner(TEXT),
        "matmul, batched, three axes": planner("A[L_X, I, J_Y] · B[L_X, J_Y, K_Z] → C[L_X, I_Z, K]"),
        "two products, three axes": planner("In[B_X, D_Y] ·_D Win[D_X, F_Y] ·_F Wout[F_Y, D_X] → Out[B_X, D_Y]"),
    }
    first = {name: seconds(task) for name, task in tasks.items()}
    times = medians(tasks, 15)
    brute = seconds(lambda: shortest_path_oracle(mesh, (64, 64), source, target, 2))
    rows = [(name, f"{1e3 * first[name]:.1f} ms", f"{1e3 * t:.2f} ms", f"{t / brute:.4f}") for name, t in times.items()]
    print(tabulate(rows, headers=("planned in this process", "first", "median", "÷ brute force over a 2×2×2 mesh")))


if __name__ == "__main__":
    processes()
    print()
    planning()
