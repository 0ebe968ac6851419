"""How near reshards come to their bound where sizes of axes share factors:
`python tests/benchmark/bench_factors.py [COUNT]`.

Not a timed test. Random pairs of shardings, drawn from a seed, planned by bytes; wire bytes over the bytes that some
device needs and does not hold. Dims are as small as the two shardings allow (tight), or multiples of all devices.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time

from tabulate import tabulate

from shardc.cost import LinkModel, chip
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern, Use
from shardc.ir.mesh import Mesh
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Sharding, spell
from shardc.planner import Objective, PlannedProgram, plan_with_subaxes
from shardc.rules.placements import placements

F32 = DTYPES["f32"]
MESHES = ((2, 3), (2, 4), (2, 3, 4), (4, 6), (6, 10), (4, 6, 5), (12, 8), (12, 18), (2, 12, 3), (4, 4, 6))
LARGE = ((6, 4, 9), (6, 10, 15), (12, 18, 5), (8, 9, 10))  # on which an exchange may be too long to be written


def reshard(mesh: Mesh, source: Sharding, target: Sharding, tight: bool) -> Program:
    dims = ("I", "J", "K", "L")[: source.rank]
    before, after = Pattern.exactly(source), Pattern.exactly(target)
    text = f"A{spell(dims, source)} → A{spell(dims, target)}"
    pairs = zip(source.blocks(mesh), target.blocks(mesh), strict=True)
    shape = (math.lcm(*pair) if tight else 2 * mesh.devices for pair in pairs)
    statement = Statement("A", dims, after, Use("A", dims, before, F32), F32, text)
    return Program(mesh, tuple(zip(dims, shape, strict=True)), F32, (Input("A", dims, before, F32),), (statement,))


def planned(program: Program, objective: Objective = Objective.BYTES) -> PlannedProgram:
    return plan_with_subaxes(program, LinkModel.of(program.mesh, chip("v5p")), objective)


def main(count: int) -> None:
    rows = []
    for sizes in (*MESHES, *LARGE):
        mesh = Mesh.of(zip("WXYZ", sizes, strict=False))
        for tight in (True, False):
            chosen, ratios, seconds, worst = random.Random(20), [], 0.0, ""
            for rank in (1, 2, 3):
                every = [Sharding(dims) for dims in placements(mesh.names, rank)]
                for _ in range(count):
                    program = reshard(mesh, chosen.choice(every), chosen.choice(every), tight)
                    start = time.process_time()
                    found = planned(program)
                    seconds = max(seconds, time.process_time() - start)
                    if found.bound_bytes:
                        ratios.append(found.cost.wire_bytes / found.bound_bytes)
                        worst = program.statements[0].text if ratios[-1] == max(ratios) > 1 else worst
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            above = sum(ratio > 1 for ratio in ratios)
            figures = (f"{mean:.4f}", f"{max(ratios):.3f}", f"{above}", f"{seconds:.2f} s", worst)
            rows.append((str(mesh), "tight" if tight else "wide", len(ratios), *figures))
    headers = ("mesh", "dims", "pairs", "÷ bound, mean", "worst", "above it", "slowest", "the worst")
    print(tabulate(rows, headers=headers, disable_numparse=True))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
