"""What each search of the planner buys: `python tests/benchmark/bench_searches.py`.

    python tests/benchmark/bench_searches.py --programs 8 --seed 1

Reshards, products and chains of three are drawn on several meshes, planned by bytes and by time, with small arrays and
large ones; then again without each search. A row says of how many plans the answer is worse without it, by how much in
the mean of those and at worst, and how much of the processor's time is saved: less than nothing where more work is done
in another place. `refused` counts plans that are not found at all.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from unittest.mock import patch

from same_plans import _array
from tabulate import tabulate

import shardc
from shardc.cost import LinkModel, chip
from shardc.errors import ShardcError
from shardc.ir.program import Program
from shardc.planner import Idle, Objective, PlannedProgram, plan_program, plan_with_subaxes
from shardc.planner.paths.graph import Graph
from shardc.planner.paths.search import Search
from shardc.planner.program import finer, progress
from shardc.planner.program.directly import Directly
from shardc.planner.statement import strategies

MESHES = ("X=4,Y=4,Z=4", "X=8,Y=4", "X=2,Y=3,Z=4", "X=4,Y=6")
SIZES = {"small": 192, "large": 12288}
PRODUCT = (("IJ", "JK", "IK"), ("IJK", "IKL", "IJL"))


@dataclass
class Row:
    """Of plans without a search, by the plans with all."""

    plans: int = 0
    refused: int = 0
    worse: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def cells(self, seconds: float) -> tuple[str, ...]:
        mean = f"{sum(self.worse) / len(self.worse):.2f}×" if self.worse else ""
        worst, saved = f"{max(self.worse, default=1):.2f}×", f"{1 - self.seconds / seconds:.0%}"
        return f"{len(self.worse)} of {self.plans}", str(self.refused), mean, worst, saved


Plan = Callable[[Program, LinkModel, Objective], PlannedProgram]
Without = tuple[Plan, Callable[[], AbstractContextManager[object]]]


def _plain(program: Program, model: LinkModel, objective: Objective) -> PlannedProgram:
    return plan_program(program, model, objective)


def _over_written(program: Program, model: LinkModel, objective: Objective) -> PlannedProgram:
    return plan_with_subaxes(program, model, objective, idle=Idle.KEEP)


# What is left out: how a plan is made then, and what is switched off meanwhile.
WITHOUT: dict[str, Without] = {
    "any search: closed routes, few ways": (plan_with_subaxes, lambda: patch.object(progress, "PLAN", 0)),
    "closed routes, as edges of the search": (
        plan_with_subaxes,
        lambda: patch.object(Search, "route", lambda *_: None),
    ),
    "closed routes, as shortcuts to what is met": (
        plan_with_subaxes,
        lambda: patch.object(Search, "shortcut", lambda self, seed, start, number, goal, found: found),
    ),
    "routes in digits": (plan_with_subaxes, lambda: patch.object(Graph, "needs_digits", lambda *_: False)),
    "routes in digits from several seeds": (
        plan_with_subaxes,
        lambda: patch.object(Search, "from_seeds", lambda *_: iter(())),
    ),
    "products in digits": (plan_with_subaxes, lambda: patch.object(strategies, "chosen_below", lambda *_: {})),
    "finer meshes, and what is found on them": (_plain, nullcontext),
    "moves as one exchange in unequal pieces": (
        plan_with_subaxes,
        lambda: patch.object(finer, "directly", lambda *_: Directly(None, 0)),
    ),
    "idle axes": (_over_written, nullcontext),
}


def programs(count: int, seed: int) -> Iterator[tuple[str, str, int, str]]:
    """A mesh, a size and its name, a text."""
    for mesh in MESHES:
        axes = [part.split("=")[0] for part in mesh.split(",")]
        for name, size in SIZES.items():
            drawn = random.Random(f"searches {seed} {mesh} {name}")
            for _ in range(count):
                dims = drawn.choice(("IJ", "IJK"))
                yield mesh, name, size, f"{_array(drawn, 'A', dims, axes)} → {_array(drawn, 'A', dims, axes)}"
                arrays = [_array(drawn, *each, axes) for each in zip("ABC", drawn.choice(PRODUCT), strict=True)]
                yield mesh, name, size, f"{arrays[0]} · {arrays[1]} → {arrays[2]}"
                chain = [_array(drawn, *each, axes) for each in zip("ABCD", ("IJ", "JK", "KL", "IL"), strict=True)]
                yield mesh, name, size, f"{' · '.join(chain[:3])} → {chain[3]}"


def timed(plan: Plan, *asked: object) -> tuple[PlannedProgram | None, float]:
    start = time.process_time()
    try:
        found = plan(*asked)  # type: ignore[arg-type]  # three ways to plan, each with arguments of its own
    except ShardcError:
        return None, time.process_time() - start
    return found, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=6, help="of each kind, mesh and size")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rows = {(name, objective): Row() for name in WITHOUT for objective in Objective}
    whole = dict.fromkeys(Objective, 0.0)
    for mesh, _, size, text in programs(asked.programs, asked.seed):
        program = shardc.parse(text, mesh=mesh, dims=dict.fromkeys("IJKL", size), dtype="bf16")
        model = LinkModel.of(program.mesh, chip("v5p"))
        for objective in Objective:
            timed(plan_with_subaxes, program, model, objective)  # what is remembered helps all alike
            best, seconds = timed(plan_with_subaxes, program, model, objective)
            if best is None:
                continue
            whole[objective] += seconds
            for name, (plan, off) in WITHOUT.items():
                with off():
                    found, seconds = timed(plan, program, model, objective)
                judge(rows[name, objective], best, found, seconds, objective)
    cells = ((name, objective.value, *row.cells(whole[objective])) for (name, objective), row in rows.items())
    print(
        tabulate(
            cells, headers=("without", "by", "worse", "refused", "mean", "worst", "time saved"), disable_numparse=True
        )
    )


def judge(row: Row, best: PlannedProgram, found: PlannedProgram | None, seconds: float, objective: Objective) -> None:
    row.plans, row.seconds = row.plans + 1, row.seconds + seconds
    if found is None:
        row.refused += 1
    elif found.measure(objective) > best.measure(objective):
        row.worse.append(found.measure(objective) / max(1, best.measure(objective)))


if __name__ == "__main__":
    main()
