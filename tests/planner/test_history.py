"""A plan does not depend on what was planned before it in the same process.

What is worked out once is kept: graphs of shardings, prices, routes. Each program is planned three times: with nothing
kept, as in a new process; after all the others; and with every graph of shardings made anew and numbered from another
number on, as where a process keeps more graphs than there is room for. A cache whose key lacks something gives another
plan the second time; a number that is read in the graph of another array is none of any sharding the third time.
"""

import functools
import random
import sys
from pathlib import Path

import pytest

import shardc
from shardc.errors import ShardcError
from shardc.planner import problem
from shardc.planner.paths import graph, search

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from same_plans import programs

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = ("mixture_of_experts",)
LONG = ("llama", "llama_layer")  # planned alone for seconds


ROOMS = tuple(f"shardc.{room}." for room in ("ir", "rules", "cost", "lowering", "planner"))


def forget():
    """All that functions of these rooms keep."""
    named = [module for name, module in sys.modules.items() if name.startswith(ROOMS)]
    every = [value for module in named for value in vars(module).values()]
    for each in every:
        if isinstance(each, functools._lru_cache_wrapper):
            each.cache_clear()


@pytest.fixture
def scattered(monkeypatch):
    """Graphs that nobody shares, each with numbers of its own."""
    drawn = random.Random("numbers")

    def alone(*arguments):
        made = graph.Graph(*arguments)
        first = 1000 * drawn.randint(1, 40)
        made.shardings += [None] * first
        made.blocks += [None] * first
        made.counts += [None] * first
        return made

    def on():
        for module in (graph, problem, search):
            monkeypatch.setattr(module, "sharding_graph", alone)

    return on


def planned(text, options, share):
    """Steps, cost and what is said of a plan; under so much of its own memory, if that is asked for."""
    try:
        plan = shardc.plan(text, **options)
        if share is not None:
            plan = shardc.plan(text, **options, memory=int(plan.cost.peak_bytes * share))
    except ShardcError as error:
        return str(error)
    return [(str(step.result), step.op, step.operands, step.wire_bytes) for step in plan.steps], plan.cost, plan.notes


def cases(count, seed, examples):
    """Each drawn program on another chip as well: what differs in prices alone."""
    drawn = random.Random(seed)
    found = [((EXAMPLES / f"{name}.shard").read_text(encoding="utf-8"), {}, None) for name in examples]
    for text, options in programs(count, seed):
        twin = {name: value for name, value in options.items() if name != "topology"}
        other = next(chip for chip in ("v5p", "v5e") if chip not in options.values())
        found += [(text, options, drawn.choice((None, None, 0.7, 0.95))), (text, twin | {"chip": other}, None)]
    return found


def check(every, scattered):
    first = []
    for case in every:
        forget()
        first.append(planned(*case))
    for case, before in zip(every[::-1], first[::-1], strict=True):
        assert planned(*case) == before, case
    scattered()
    for case, before in zip(every, first, strict=True):
        assert planned(*case) == before, case


def test_what_was_planned_before_changes_no_plan(scattered):
    check(cases(5, 13, FEW), scattered)


@pytest.mark.exhaustive
def test_what_was_planned_before_changes_no_plan_of_many(scattered):
    every = [path.stem for path in sorted(EXAMPLES.glob("*.shard")) if path.stem not in LONG]
    check(cases(10, 12, every[::3]), scattered)
