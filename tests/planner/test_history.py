"""A plan does not depend on what was planned before it in the same process.

What is worked out once is kept: graphs of shardings, prices, routes. Each program is planned three times: with nothing
kept, as in a new process; after all the others; and with every graph of shardings made anew and numbered from another
number on, as where a process keeps more graphs than there is room for. A cache whose key lacks something gives another
plan the second time; a number that is read in the graph of another array is none of any sharding the third time. The
second time all that is remembered is held against what is worked out anew as well: a bound that is too low changes no
plan. The programs differ in one thing alone: their type, chip, mesh, wiring, objective, limit, …
"""

import random
import sys
from pathlib import Path

import pytest

from shardc.planner import problem
from shardc.planner.paths import graph, search

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from cache_keys import alone, one_apart, planned, planted, shows, watched
from same_plans import programs

EXAMPLES = Path(__file__).parents[2] / "examples"
LONG = ("llama", "llama_layer")  # planned alone for seconds
ONE_IN = 12  # of the programs that differ from another in one thing, in a quick run


@pytest.fixture
def scattered(monkeypatch):
    """Graphs that nobody shares, each with numbers of its own."""
    drawn = random.Random("numbers")

    def alone(*arguments, **named):
        made = graph.Graph(*arguments, **named)
        first = 1000 * drawn.randint(1, 40)
        made.shardings += [None] * first
        made.blocks += [None] * first
        made.counts += [None] * first
        return made

    def on():
        for module in (graph, problem, search):
            monkeypatch.setattr(module, "sharding_graph", alone)

    return on


def cases(count, seed, examples):
    """Each drawn program on another chip as well: what differs in prices alone."""
    drawn = random.Random(seed)
    found = [((EXAMPLES / f"{name}.shard").read_text(encoding="utf-8"), {}, None) for name in examples]
    for text, options in programs(count, seed):
        twin = {name: value for name, value in options.items() if name != "topology"}
        other = next(chip for chip in ("v5p", "v5e") if chip not in options.values())
        found += [(text, options, drawn.choice((None, None, 0.7, 0.95))), (text, twin | {"chip": other}, None)]
    return found


@pytest.fixture(scope="module")
def apart():
    """Programs that differ in one thing alone, each as a new process plans it."""
    return [(case, alone(case)) for case in one_apart(ONE_IN)]


def check(first, scattered):
    with watched() as wrong:
        for case, before in first[::-1]:
            assert planned(*case) == before, case
            assert not wrong, case
    scattered()
    for case, before in first:
        assert planned(*case) == before, case


@pytest.mark.exhaustive
def test_what_was_planned_before_changes_no_plan(apart, scattered):
    check(apart, scattered)


@pytest.mark.parametrize(("function", "part"), [("sharding_graph", "mesh"), ("edge_costs", "model")])
def test_a_key_that_lacks_a_part_is_seen(apart, function, part):
    """Every part of every key, in turn: `tests/benchmark/cache_keys.py`."""
    with planted(getattr(graph, function), part):
        assert shows(*map(list, zip(*apart, strict=True))) is not None


@pytest.mark.parametrize(
    ("drawn", "one_in"), [pytest.param(2, 8, marks=pytest.mark.long), pytest.param(10, 4, marks=pytest.mark.long)]
)
def test_what_was_planned_before_changes_no_plan_of_many(scattered, drawn, one_in):
    examples = [path.stem for path in sorted(EXAMPLES.glob("*.shard")) if path.stem not in LONG]
    every = [*cases(drawn, 12, examples[::one_in]), *one_apart(one_in)]
    check([(case, alone(case)) for case in every], scattered)
