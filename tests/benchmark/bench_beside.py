"""Whole programs beside `jax.jit` with the same shardings, as compiled for slices of TPUs.

    python tests/benchmark/bench_beside.py [FILE.shard …] [--times 16] [--objective bytes] [--topology v5e:2x4]

Each example of `examples/`, or each file that is named, forward and forward and backward as one, every dim of more than
8 so many times as large. Needs libtpu, and no TPU. Columns are ours ÷ theirs: wire bytes, replayed time, temporaries;
and our replayed time over the plan's own. Below 1 ours is better. An axis of the text is laid over the slice in its
order.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from bench_memory import SLICES, larger, named, sizes_on
from tabulate import tabulate

import shardc

HEADERS = ["program", "slice", "", "wire bytes", "time", "temporaries", "replayed, µs", "÷ priced", "refused"]


def row(text: str, axes: list[str], topology: str, backward: bool, objective: str) -> list[object]:
    try:
        program = shardc.parse(text, mesh=sizes_on(topology, axes), topology=topology)
        plan = shardc.plan(shardc.grad(program, whole=True) if backward else program, objective=objective)
        found = plan.compare()
    except shardc.ShardcError as error:
        return [*[None] * 5, error.code]
    ours, theirs = found.ours, found.theirs
    assert ours.memory is not None and theirs.memory is not None, "compiled for a slice"
    return [
        _over(ours.wire_bytes, theirs.wire_bytes),
        _over(ours.timeline.step_s, theirs.timeline.step_s),
        _over(ours.memory.temporary_bytes, theirs.memory.temporary_bytes),
        ours.timeline.step_s * 1e6,
        _over(ours.timeline.step_s, plan.cost.time_s),
        "",
    ]


def _over(ours: float, theirs: float) -> float | None:
    """1 where both need none; None where only they need none."""
    return ours / theirs if theirs else None if ours else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--times", type=int, default=16)
    parser.add_argument("--objective", choices=("time", "bytes"), default="time")
    parser.add_argument("--topology", action="append", help="of v5e:2x4, v5e:4x4, v5p:2x2x2 if none is named")
    asked = parser.parse_args()
    examples = sorted((Path(__file__).parents[2] / "examples").glob("*.shard"))
    rows = list[list[object]]()
    for path in asked.files or examples:
        name, text, axes = named(path)
        for topology in asked.topology or SLICES:
            for backward in (False, True):
                found = row(larger(text, asked.times), axes, topology, backward, asked.objective)
                rows.append([name, topology, "with gradients" if backward else "", *found])
                print(*rows[-1], flush=True)
    print(tabulate(rows, HEADERS, floatfmt=("", "", "", ".3f", ".3f", ".3f", ",.0f", ".3f", "")))
    for place, what in ((3, "wire bytes"), (4, "time"), (5, "temporaries")):
        ratios = [float(ratio) for each in rows if isinstance(ratio := each[place], float) and ratio > 0]
        above = sum(ratio > 1.02 for ratio in ratios)
        print(f"{what}: mean {statistics.geometric_mean(ratios):.3f}, above 1.02 in {above} of {len(ratios)}", end="; ")
        print(f"largest {max(ratios):.3f}")


if __name__ == "__main__":
    main()
