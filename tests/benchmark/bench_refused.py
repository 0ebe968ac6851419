"""How long plans under a memory limit take, and refusals, in seconds of the processor.

    python tests/benchmark/bench_refused.py                       # what takes more than 0.7 s
    python tests/benchmark/bench_refused.py --above 0 --only mlp  # all of one file

Not a timed test. Every example and block, as it is and with its gradients, planned for no slice and for two, within no
limit, within a byte, and within parts of what the plan without a limit takes, each with nothing known of another. A row
says what the plan takes, or the smallest peak that its refusal names.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench_limits import forget
from bench_memory import larger, named, sizes_on
from tabulate import tabulate

import shardc
from shardc.errors import ShardcError
from shardc.ir.program import Program
from shardc.planner.program.memory import TooLarge

ROOT = Path(__file__).parents[2]
FILES = [*sorted(ROOT.glob("examples/*.shard")), *sorted(Path(__file__).parent.glob("blocks/*.shard"))]
SLICES = ("", "v5e:2x4", "v5p:2x2x2")
PARTS = (None, 0.0, 0.5, 0.8)  # of the peak of the plan without a limit, and a byte at least


def asked(path: Path, topology: str, times: int) -> Iterator[tuple[str, Program]]:
    """What is planned of a file: it, and it with its gradients."""
    name, text, axes = named(path)
    if times > 1:
        text = larger(text, times)
    options = {"topology": topology} if topology else {}
    mesh = sizes_on(topology or SLICES[1], axes)
    try:
        program = shardc.parse(text, mesh=mesh, **options)
    except ShardcError as error:  # a block for another mesh
        print(f"{name} on {mesh}: {error.code}", file=sys.stderr)
        return
    yield name, program
    try:
        yield f"{name}, gradients", shardc.grad(program, whole=True)
    except ShardcError as error:
        print(f"{name}: {error.code}", file=sys.stderr)


def ended(program: Program, memory: int | None) -> tuple[float, str, int]:
    """Seconds, how it ended, and the peak."""
    forget()
    start = time.process_time()
    try:
        plan = shardc.plan(program, memory=memory)
        peak = plan.cost.peak_bytes
    except TooLarge as error:
        return time.process_time() - start, "refused", error.smallest
    return time.process_time() - start, "planned", peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--above", type=float, default=0.7)
    parser.add_argument("--times", type=int, default=1, help="every dim of more than 8 so many times as large")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows = list[tuple[object, ...]]()
    for path in FILES:
        for topology in SLICES:
            for name, program in asked(path, topology, options.times) if options.only in path.stem else ():
                peak = 0
                for part in PARTS:
                    seconds, how, found = ended(program, None if part is None else max(1, int(part * peak)))
                    peak = found if part is None else peak
                    row = (name, topology, "none" if part is None else f"{part}", how, found, seconds)
                    rows += [row] if seconds >= options.above else []
    columns = ["program", "slice", "limit", "", "peak, B", "s"]
    print(tabulate(rows, columns, floatfmt=".2f", intfmt=",", disable_numparse=[2]))


if __name__ == "__main__":
    main()
