"""Parts of a layer as one writes them: what the plans move is what one reckons by hand."""

import re
from pathlib import Path

import pytest

import shardc
from shardc.planner.planned import Planning

EXAMPLES = Path(__file__).parents[2] / "examples"


def moves(plan):
    return [(step.name, step.cost.wire_bytes) for step in plan.schedule.steps if step.is_collective]


def test_causal_attention_reduces_its_output_once():
    """y[B, T, D] on each device, 2 · 32 · 64 numbers of two bytes, summed over model=4: 2 · 3/4 of it."""
    plan = shardc.plan((EXAMPLES / "causal_attention.shard").read_text(encoding="utf-8"))
    assert moves(plan) == [("AllReduce", 2 * 3 * (2 * 32 * 64 * 2) // 4)]


def test_cross_entropy_reduces_three_numbers_of_each_token():
    """Of 64 tokens over data=2 three times 32 numbers of four bytes, over model=4: 2 · 3/4 of it each."""
    plan = shardc.plan((EXAMPLES / "cross_entropy.shard").read_text(encoding="utf-8"))
    assert moves(plan) == [("AllReduce", 2 * 3 * (32 * 4) // 4)] * 3


def test_a_norm_over_a_sharded_dim_reduces_one_number_of_each_row():
    """B=4096 rows over X=2, their squares' mean over Y=4: 2 · 3/4 · 2048 numbers of two bytes."""
    text = "n[B_X, D_Y] = x[B_X, D_Y] ⊙ rsqrt(mean_D(x ⊙ x) + 1e-6)"
    plan = shardc.plan(text, mesh={"X": 2, "Y": 4}, dims={"B": 4096, "D": 8192}, chip="v5p")
    assert moves(plan) == [("AllReduce", 2 * 3 * (2048 * 2) // 4)]


def test_the_mask_costs_no_bytes_however_it_lies():
    for lies in ("[T_X, S]", "[T, S_X]", "[T_XY, S]", "[T_X, S_Y]"):
        plan = shardc.plan(f"index_T >= index_S → M{lies}", mesh={"X": 2, "Y": 2}, dims={"T": 1024, "S": 1024})
        assert plan.cost.wire_bytes == 0 and not moves(plan)


def test_softmax_of_a_large_matrix_moves_what_is_left():
    """8192 rows, two AllReduces of two bytes of each: 2 · 2 · 3/4 · 16,384 B, where the matrix was moved twice."""
    text = "softmax_J(A[I, J_X]) → C[I, J_X]"
    plan = shardc.plan(text, mesh={"X": 4}, dims={"I": 8192, "J": 8192}, chip="v5p")
    assert plan.cost.wire_bytes == 2 * 2 * 3 * 16384 // 4
    assert plan.cost.time_s < 10e-6


def test_a_mixture_of_experts_exchanges_tokens_twice_though_nobody_wrote_it():
    found = shardc.plan((EXAMPLES / "mixture_of_experts.shard").read_text(encoding="utf-8"))
    moved = [step.op for step in found.steps if step.wire_bytes and step.axes == ("X",)]
    assert moved == ["AllToAll", "AllToAll"]


def test_a_llama_layer_gathers_each_weight_once_and_adds_up_twice():
    found = shardc.plan((EXAMPLES / "llama_layer.shard").read_text(encoding="utf-8"))
    reduced = [step for step in found.steps if step.op in ("AllReduce", "ReduceScatter")]
    gathered = [step.operands[0].partition("[")[0] for step in found.steps if step.op == "AllGather"]
    weights = [name for name in gathered if name.startswith("W")]
    assert len(reduced) <= 2 and len(weights) == len(set(weights)) <= 7


@pytest.mark.exhaustive
@pytest.mark.parametrize(("batch", "length"), [(64, 4096), (128, 2048)])
def test_a_layer_and_its_gradients_are_planned_near_their_bound(batch, length):
    """1.12 and 1.15 before nodes of the factor graph took their best states at once: one gate was gathered whole."""
    text = re.sub(r"(?m)^(mesh|chip|dims) .*$", "", (EXAMPLES / "llama_layer.shard").read_text(encoding="utf-8"))
    sizes = {"B": batch, "T": length, "S": length, "D": 4096, "G": 8, "R": 4, "E": 128, "F": 14336}
    layer = shardc.parse(text, mesh={"data": 8, "model": 8}, dims=sizes, topology="v5p:4x4x4", dtype="bf16")
    plan = shardc.plan(shardc.grad(layer, whole=True))
    gaps = [float(gap) for note in plan._found.notes for gap in re.findall(r"gap (\d\.\d+)", note)]
    assert all(gap <= 1.02 for gap in gaps)


def test_of_choices_that_ask_for_the_same_one_is_planned(monkeypatch):
    """One token of a layer has few ways to lie: most choices that hold less, or hide more, ask for what is known."""
    asked, attempt = [], Planning.attempt

    def noted(planning, program, model, options, budget=None):
        asked.append((program, options, budget))
        return attempt(planning, program, model, options, budget)

    monkeypatch.setattr(Planning, "attempt", noted)
    shardc.plan((EXAMPLES / "decode.shard").read_text(encoding="utf-8"))
    assert len(asked) == len(set(asked)) > 1
