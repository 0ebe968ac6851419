"""Products of which two axes are gathered or scattered, as they are planned, beside every step by itself and XLA's own.

    python tests/benchmark/bench_rings.py [--sizes 2] [--seed 0] [--topology v5e:4x4]

Of each text one size is given, and so many are drawn, of 4,096 to 32,768, in bf16, on X=4, Y=4. Planned by time,
compiled, and replayed.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

from bench_time import SIZES, sides
from tabulate import tabulate

import shardc
from shardc.ir.plan import Schedule
from shardc.lowering.together import spelled
from shardc.machines.stderr import caught_stderr

TEXTS = (
    "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]",
    "A[I, J_XY] · B[J, K_XY] → C[I, K_XY]",
    "A[I_XY, J] · B[J, K_XY] → C[I, K_XY]",
    "T[I, K]{U_XY} = A[I, J_XY] · B[J_XY, K]; C[I_XY, K] = ReduceScatter(T[I, K]{U_XY})",
)
FIRST = {"I": 16384, "J": 8192, "K": 16384}
MOST = 2**29  # elements of an array


def rows(topology: str, sizes: int, seed: int) -> Iterator[tuple[str, ...]]:
    """A line of the table for each product."""
    mesh = "X=4,Y=4,Z=4" if topology.count("x") == 2 else "X=4,Y=4"
    drawn = random.Random(seed)
    for text in TEXTS:
        for dims in (FIRST, *(_drawn(drawn) for _ in range(sizes))):
            yield _row(text, mesh, topology, dims)


def _drawn(drawn: random.Random) -> dict[str, int]:
    while True:
        found = {dim: drawn.choice(SIZES) for dim in "IJK"}
        if all(found[one] * found[other] < MOST for one, other in ("IJ", "JK", "IK")):
            return found


def _row(text: str, mesh: str, topology: str, dims: dict[str, int]) -> tuple[str, ...]:
    planned, blocking = (
        shardc.plan(text, mesh=mesh, dims=dims, dtype="bf16", topology=topology, overlap=overlap)
        for overlap in ("auto", "off")
    )
    with caught_stderr():
        ours, theirs = (side.timeline.step_s for side in sides(planned))
        steps = sides(blocking)[0].timeline.step_s
    shown = (planned.cost.time_s, ours, steps, theirs)
    return (
        text,
        " × ".join(map(str, dims.values())),
        *(f"{each * 1e6:,.0f}" for each in shown),
        _told(planned.schedule),
    )


def _told(schedule: Schedule) -> str:
    return "; ".join(spelled(schedule, group) for group in schedule.together)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--topology", default="v5e:4x4")
    options = parser.parse_args()
    head = ("product", "I × J × K", "priced, µs", "planned", "step by step", "XLA", "as one")
    print(tabulate(rows(options.topology, options.sizes, options.seed), head, disable_numparse=True))


if __name__ == "__main__":
    main()
