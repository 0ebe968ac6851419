"""How near reshards come to their bound, and how fast they are planned: `python tests/benchmark/bench_reshard.py`.

Not a timed test. Random pairs of shardings, drawn from a seed; wire bytes of the plan over the bytes that some device
needs and does not hold. The first plans of a mesh also work out its shardings: they are in the times.
"""

from __future__ import annotations

import math
import random
import statistics
import time

from tabulate import tabulate

from shardc.cost import LinkModel, chip
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern, Use
from shardc.ir.mesh import Mesh
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Sharding, spell
from shardc.planner import Objective, plan_program
from shardc.rules.placements import placements

BF16 = DTYPES["bf16"]
SIZE = 2304  # of every dim: room for all axes of the meshes below
CASES = (  # mesh, rank, pairs
    ({"X": 4, "Y": 4, "Z": 4}, 2, 200),
    ({"X": 4, "Y": 4, "Z": 4}, 3, 100),
    ({"X": 2, "Y": 4, "Z": 8}, 2, 200),
    ({"X": 16, "Y": 16}, 2, 100),
    ({"X": 2, "Y": 3}, 2, 100),
    ({"X": 2, "Y": 3, "Z": 4}, 2, 100),
    ({"W": 4, "X": 4, "Y": 4, "Z": 4}, 2, 60),
    (dict.fromkeys("VWXYZ", 2), 4, 20),
)


def reshard(mesh: Mesh, source: Sharding, target: Sharding) -> Program:
    dims = ("I", "J", "K", "L")[: source.rank]
    before, after = Pattern.exactly(source), Pattern.exactly(target)
    text = f"A{spell(dims, source)} → A{spell(dims, target)}"
    statement = Statement("A", dims, after, Use("A", dims, before, BF16), BF16, text)
    sizes = tuple((dim, SIZE) for dim in dims)
    return Program(mesh, sizes, BF16, (Input("A", dims, before, BF16),), (statement,))


def measured(mesh: Mesh, rank: int, count: int, objective: Objective) -> tuple[list[float], list[float]]:
    """The ratios to the bound, of pairs that need bytes at all, and the seconds of planning."""
    drawn, model = random.Random(20), LinkModel.of(mesh, chip("v5p"))
    every = [Sharding(dims) for dims in placements(mesh.names, rank)]
    ratios, seconds = [], []
    for _ in range(count):
        program = reshard(mesh, drawn.choice(every), drawn.choice(every))
        start = time.perf_counter()
        found = plan_program(program, model, objective)
        seconds.append(time.perf_counter() - start)
        if found.bound_bytes:
            ratios.append(found.cost.wire_bytes / found.bound_bytes)
    return ratios, seconds


def main() -> None:
    rows = []
    for objective in Objective:
        for sizes, rank, count in CASES:
            mesh = Mesh.of(sizes)
            ratios, seconds = measured(mesh, rank, count, objective)
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            times = [statistics.median(seconds), statistics.quantiles(seconds, n=100, method="inclusive")[-1]]
            name = f"{objective.value}, rank {rank}, {mesh}"
            rows.append((name, count, f"{mean:.4f}", f"{max(ratios):.3f}", *(f"{1e3 * t:.2f} ms" for t in times)))
    headers = ("objective, rank, mesh", "pairs", "÷ bound, mean", "max", "median", "p99")
    print(tabulate(rows, headers=headers, disable_numparse=True))


if __name__ == "__main__":
    main()
