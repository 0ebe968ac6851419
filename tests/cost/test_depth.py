"""The order of a block gone through from its end."""

from pathlib import Path

import pytest

import shardc
from shardc.cost.depth import _Nodes, depth_first
from shardc.cost.inside import Inside
from shardc.lowering.buffers import size_of
from shardc.lowering.fusion import readers_of

ROOT = Path(__file__).parents[2]
DIMS = {"B": 64, "D": 16, "F": 64}


def planned(text, mesh=None, grad=False):
    program = shardc.parse(text, mesh=mesh or {"X": 8}, dims=DIMS, dtype="bf16")
    return shardc.plan(shardc.grad(program, whole=True) if grad else program, idle="keep").schedule


def ordered(schedule, stored=()):
    """The block, in that order, and what is needed to measure it."""
    block, sizes = schedule.block, [size_of(array, schedule.mesh) for array in schedule.values]
    inside = Inside.of(block, block.steps, readers_of(block.steps), 12, stored)
    return block, depth_first(block, inside, sizes), inside, sizes


def names(block, steps):
    return [block.values[step.results[0]].name for step in steps]


@pytest.mark.parametrize("example", ["attention", "layers", "llama_layer", "micro_batches", "sequence_parallel"])
def test_it_has_every_step_that_is_read_once_after_what_it_reads(example):
    text = (ROOT / f"examples/{example}.shard").read_text(encoding="utf-8")
    block, steps, _, _ = ordered(shardc.plan(shardc.grad(shardc.parse(text), whole=True)).schedule)
    there = set(block.inputs)
    for step in steps:
        assert there.issuperset(step.operands) and there.isdisjoint(step.results)
        there.update(step.results)
    assert there.issuperset(block.outputs)


def test_what_has_most_readers_behind_it_comes_first():
    """Though y is the first output, as large as z, and may be made at once: of z more is read more than once."""
    text = "n[B_X, F] = softmax_F(x[B_X, F]); y[B_X, D] = x ·_F W[F, D]; k[B_X, F] = softmax_F(n); "
    text += "z[B_X, D] = (n - k) ·_F V[F, D]; return y, z"
    block, steps, _, _ = ordered(planned(text))
    found = names(block, steps)
    assert found.index("z") < found.index("y") == len(found) - 1


def test_of_equals_what_is_made_of_most_bytes_comes_first():
    text = "a[B_X, D] = exp(u[B_X, D]); b[B_X, D] = softmax_D(softmax_D(v[B_X, D])); return a, b"
    block, steps, _, _ = ordered(planned(text))
    assert names(block, steps)[-1] == "a"


def test_all_reduces_over_the_same_axes_are_one_step():
    """g alone would be made to its end before h, which is read by less."""
    text = "g[D, F] = AllReduce(x[B_X, D] ·_B y[B_X, F]); h[D, F] = AllReduce(x ·_B z[B_X, F]); return g, h"
    _, steps, _, _ = ordered(planned(text))
    assert [step.name for step in steps] == ["Einsum", "Einsum", "AllReduce", "AllReduce"]


def test_all_reduces_that_wait_for_one_another_are_taken_one_by_one():
    text = "g[D, F] = AllReduce(x[B_X, D] ·_B y[B_X, F]); s[D, F] = AllReduce(x ·_B (x ·_D g)); return s"
    block, steps, _, _ = ordered(planned(text))
    assert [step.name for step in steps].count("AllReduce") == 2 and names(block, steps)[-1] == "s"


def test_readers_behind_count_once_for_each_way_and_are_no_more_than_there_are():
    """Of diamonds one after another: each value is read by two, whose results are read by one."""
    reads, count = {"a0": []}, 5
    for n in range(count):
        reads |= {f"b{n}": [f"a{n}"], f"c{n}": [f"a{n}"], f"a{n + 1}": [f"b{n}", f"c{n}"]}
    nodes = _Nodes(dict.fromkeys(reads, ()), reads, [f"a{count}"])
    found = nodes.behind(reads, [])
    readers = [found[f"a{n}"].readers for n in range(count)]
    assert readers == [min(2 ** (n + 1) - 1, len(reads)) for n in range(count)]


DOUBLED = {
    "a sum with itself": "s{1} = s{0} + s{0}",
    "a residual": "s{1} = s{0} + relu(s{0})",
    "a norm": "s{1} = s{0} + s{0} ⊙ rsqrt(mean_F(square(s{0})))",
}
AROUND = [
    ("s0[B_X, F] = relu(x[B_X, F])", "y[B_X, F] = s40"),
    ("s0[B_X, F] = x[B_X, D] · W[D, F]", "y[B_X, D] = s40 · V[F, D]"),
    ("s0[B, F]{U_X} = x[B, F]{U_X} + x", "y[B_X, F] = s40"),
]


CROSSED = [
    (name, *around)
    for name in DOUBLED
    for around in (AROUND if name == "a sum with itself" else AROUND[:2])  # partial sums pass through what is linear
]


@pytest.mark.parametrize("topology", [None, "v5e:2x4", "v5p:2x2x2"])
@pytest.mark.parametrize(("name", "head", "end"), CROSSED)
def test_what_is_read_on_two_ways_forty_times_over_is_planned_at_once(name, head, end, topology):
    """Each way by itself was gone along, 2^40 of them: of 24 statements no plan was seen in forty seconds."""
    typed = "[B, F]{U_X} =" if "{U_X}" in head else " ="
    lines = [DOUBLED[name].format(number, number + 1).replace(" =", typed, 1) for number in range(40)]
    plan = shardc.plan("\n".join([head, *lines, end]), mesh={"X": 8}, dims=DIMS, dtype="bf16", topology=topology)
    assert plan.source() and str(plan) and plan.cost.peak_bytes
