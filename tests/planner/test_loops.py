"""Loops: planned once, priced and simulated with all of their trips; held against the same program unrolled."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import LinkModel, chip
from shardc.cost.memory import peak_bytes
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Einsum, Loop, every_step, single_steps
from shardc.planner import Objective, plan_program, planned_at_once
from shardc.report.steps import print_schedule
from shardc.simulate import gather, reference, run, sample_inputs
from shardc.testing import Case, assert_schedule_legal, backward_programs, loops, programs

MESH = {"X": 2, "Y": 2}
SHARDINGS = ["B, D", "B_X, D", "B, D_X", "B_X, D_Y", "B_Y, D", "B_XY, D", "B, D_YX"]
WEIGHTS = ["D, E", "D_X, E", "D, E_Y", "D_Y, E_X", "D_XY, E"]


def planned(text, **options):
    return shardc.plan(text, **{"mesh": MESH, "dtype": "f32", "chip": "v5e"} | options)


def body(name, before, inside, weight, trip=None):
    """Of the trips one, as a loop's body or with a weight and names of its own."""
    w, x, t = ("W[L, " if trip is None else f"W{trip}[") + weight + "]", name, "" if trip is None else trip
    after = x if trip is None else f"x{trip + 1}"
    rows = f"S[L, {before.split(',')[0]}]" if trip is None else f"S{t}[{before.split(',')[0]}]"
    given = f"[{inside}]" if trip in (None, 1) else ""
    return f"""
        y{t}[B, E] = {x}{given} · {w}
        {after}[{inside}] = relu(y{t} · V[E, D] + {x})
        {rows} = sum_D({after})
    """


def loop_text(trips, before, inside, weight):
    return f"dims L={trips}, B=8, D=16, E=16\nfor L {{ {body('x', before, inside, weight)} }}\n"


def unrolled_text(trips, before, inside, weight):
    every = "".join(body(f"x{trip}", before, inside, weight, trip) for trip in range(1, trips + 1))
    names = ", ".join(f"S{trip}" for trip in range(1, trips + 1))
    return f"dims B=8, D=16, E=16\n{every}return x{trips + 1}, {names}"


def blocks_of(schedule, wholes):
    found = run(schedule, wholes)
    arrays = [schedule.values[number] for number in schedule.outputs]
    return {a.name: gather(b, a, schedule.mesh) for a, b in zip(arrays, found, strict=True)}


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 3), st.sampled_from(SHARDINGS), st.sampled_from(SHARDINGS), st.sampled_from(WEIGHTS))
def test_a_loop_is_its_trips_one_after_another(trips, before, inside, weight):
    """The values of the program unrolled, and at most the wire bytes of a trip by itself as often as there are trips.
    The unrolled program may take less: a trip of it may begin at what the one before held on the way.
    """
    loop = planned(loop_text(trips, before, inside, weight), objective="bytes")
    flat = planned(unrolled_text(trips, before, inside, weight), objective="bytes")
    assert_schedule_legal(loop.schedule)
    (step,) = (step for step in loop.schedule.steps if isinstance(step.op, Loop))
    assert step.op.trips == trips
    once = planned(unrolled_text(1, before, inside, weight))
    one = planned_at_once(once.program, once._asked.model, Objective.BYTES)
    assert flat.cost.wire_bytes <= loop.cost.wire_bytes <= trips * one.cost.wire_bytes
    wholes = dict(zip((array.name for array in loop.program.inputs), sample_inputs(loop.program), strict=True))
    own = {f"W{trip}": wholes["W"][trip - 1] for trip in range(1, trips + 1)} | wholes | {"x1": wholes["x"]}
    found = blocks_of(loop.schedule, list(wholes.values()))
    wanted = reference(flat.program, [own[array.name] for array in flat.program.inputs])
    by_name = dict(zip((flat.program.results[n].name for n in flat.program.outputs), wanted, strict=True))
    np.testing.assert_allclose(found["x"], by_name[f"x{trips + 1}"], rtol=1e-9, atol=1e-9)
    rows = np.stack([by_name[f"S{trip}"] for trip in range(1, trips + 1)])
    np.testing.assert_allclose(found["S"], rows, rtol=1e-9, atol=1e-9)


LAYERS = """
    dims L=3, B=8, D=16, F=32
    for L {
        H = x[B_X, D] ·_D Win[L, D, F_Y]
        x[B_X, D] = relu(H) ·_F Wout[L, F_Y, D]
    }
    Out[B_X, D] = exp(x)
"""


def test_a_loop_costs_its_trips():
    costs = {trips: planned(LAYERS.replace("L=3", f"L={trips}")).cost for trips in (1, 3, 100)}
    for trips, cost in costs.items():
        assert cost.wire_bytes == trips * costs[1].wire_bytes and cost.flops == trips * costs[1].flops
        assert cost.time_s == pytest.approx(trips * costs[1].time_s)


def test_the_cost_of_the_loop_is_that_of_its_steps_times_its_trips():
    plan = planned(LAYERS)
    every = list(every_step(plan.schedule.block))
    (loop,) = (done.step for done in every if isinstance(done.step.op, Loop))
    inside = [done for done in every if len(done.path) == 2]
    assert {done.times for done in inside} == {3}
    assert loop.cost.wire_bytes == sum(3 * done.step.cost.wire_bytes for done in inside)
    assert sum(d.times * d.step.cost.flops for d in single_steps(plan.schedule.block)) == plan.cost.flops


def test_a_hundred_layers_are_planned_as_one_is():
    def seconds(trips):
        begun = time.perf_counter()
        planned(LAYERS.replace("L=3", f"L={trips}"))
        return time.perf_counter() - begun

    seconds(1)
    assert min(seconds(100) for _ in range(3)) < 3 * min(seconds(1) for _ in range(3))


def test_what_a_loop_only_reads_is_moved_once_before_it():
    plan = planned("dims L=4, B=8, D=16\nfor L { x[B_X, D] = relu(x[B_X, D] ·_D W[D_Y, E] ·_E V[E, D]) }", dims="E=16")
    first, loop = plan.schedule.steps
    assert first.name == "AllGather" and isinstance(loop.op, Loop)
    assert not any(step.is_collective for step in loop.op.body.steps)
    assert plan.cost.wire_bytes == first.cost.wire_bytes


def test_what_the_text_gathers_in_a_loop_is_gathered_in_each_trip():
    text = "dims L=4, B=8, D=16, E=16\nfor L {\n W[D, E] = AllGather_Y(W[D_Y, E])\n"
    plan = planned(text + " x[B_X, D] = relu(x[B_X, D] ·_D W ·_E V[E, D])\n}")
    (loop,) = plan.schedule.steps
    assert loop.op.body.steps[0].name == "AllGather"
    assert plan.cost.wire_bytes == 4 * loop.op.body.steps[0].cost.wire_bytes > 0


def test_a_carried_array_lies_where_the_loop_as_a_whole_is_cheapest():
    """Before the loop x lies whole; each trip leaves it over X. Brought there once, it stays."""
    text = "dims L={}, B=64, D=64\nx[B, D] = relu(A[B, D])\n"
    text += "for L {{ x = relu(x ·_D W[L, D, E_X]) ·_E V[L, E_X, D] }}\nOut[B, D] = x"
    few, many = (planned(text.format(trips), dims="E=64") for trips in (1, 64))
    assert many.cost.time_s <= 64 * few.cost.time_s


def test_the_dim_of_a_loop_may_stand_anywhere():
    plan = planned(
        "dims L=3, B=8, D=16\nfor L { x[B_X, D] = x[B_X, D] ·_D W[D, L, E] ·_E V[E, D, L] \n H[B_X, L] = sum_D(x) }",
        dims="E=16",
    )
    assert_schedule_legal(plan.schedule)
    wholes = sample_inputs(plan.program)
    found = blocks_of(plan.schedule, wholes)
    for name, whole in zip(found, reference(plan.program, wholes), strict=True):
        np.testing.assert_allclose(found[name], whole, rtol=1e-9, atol=1e-9)
    x, w, v = (dict(zip((a.name for a in plan.program.inputs), wholes, strict=True))[name] for name in "xWV")
    for turn in range(3):
        x = x @ w[:, turn] @ v[:, :, turn]
    np.testing.assert_allclose(found["x"], x, rtol=1e-9)


def test_loops_nest():
    text = """
        dims L=3, M=2, B=8, D=16, F=32
        for L {
            for M {
                x = x[B_X, D] + relu(x ·_D W[L, M, D_Y, F]) ·_F V[L, F, D]
                H[L, M, B_X] = sum_D(x)
            }
        }
        Out[B_X] = sum_{L,M}(H[L, M, B_X])
    """
    plan = planned(text)
    assert_schedule_legal(plan.schedule)
    assert max(done.times for done in single_steps(plan.schedule.block)) == 6
    wholes = sample_inputs(plan.program)
    for (name, found), whole in zip(
        blocks_of(plan.schedule, wholes).items(), reference(plan.program, wholes), strict=True
    ):
        np.testing.assert_allclose(found, whole, rtol=1e-9, atol=1e-9, err_msg=name)


def test_a_loop_holds_what_it_carries_and_stacks_and_one_trip():
    """x (8·16·4 B over X) in, carried and out; S; the weights; and the most that a trip takes beside them."""
    short, long = (planned(LAYERS.replace("L=3", f"L={trips}")).schedule for trips in (2, 7))
    weights = sum(
        short.values[number].local_bytes(short.mesh) for number in short.inputs if short.values[number].name != "x"
    )
    grown = peak_bytes(long.block, long.mesh) - peak_bytes(short.block, short.mesh)
    assert grown == weights // 2 * 5


def test_a_plan_with_a_loop_is_printed_and_written_with_its_steps():
    plan = planned(LAYERS)
    found = json.loads(plan.to_json())
    loop, last = found["steps"]
    assert (loop["op"], loop["trips"], loop["dim"]) == ("Loop", 3, "L")
    assert [step["op"] for step in loop["steps"]] == ["Einsum", "relu", "Einsum", "AllReduce"]
    assert "steps" not in last and loop["wire_bytes"] == 3 * loop["steps"][-1]["wire_bytes"]
    assert found["statements"][0]["statements"][0]["text"] == "H = x[B_X, D] ·_D Win[L, D, F_Y]"
    assert "Loop_L ×3" in str(plan) and "│ AllReduce_Y x" in str(plan)
    printed = print_schedule(plan.schedule)
    assert "    given x[B_X, D]" in printed and "    return x[B_X, D]" in printed


def test_a_loop_whose_carried_array_is_left_elsewhere_is_not_legal():
    from dataclasses import replace

    plan = planned(LAYERS)
    block = plan.schedule.block
    loop = block.steps[0].op
    early = loop.body.steps[-1].operands  # unreduced, as it is before the AllReduce
    body = replace(loop.body, outputs=early)
    broken = replace(block.steps[0], op=replace(loop, body=body))
    schedule = replace(plan.schedule, block=replace(block, steps=(broken, *block.steps[1:])))
    assert any("after a trip" in str(fault) for fault in faults_of(schedule))


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "lie"),
    [
        ("for L { x = relu(x[I_X]) ⊙ V[L, I_?] ⊙ W[I_?] }", "x[I_X] V[L, I_X] W[I_X]"),
        ("for L { x = relu(x[I_X, J]) ⊙ V[J, L, I_?] }", "x[I_X, J] V[J, L, I_X]"),
    ],
)
def test_what_the_text_leaves_open_lies_as_a_trip_would_have_it(text, lie):
    """Of a loop that is the first to use it, where statements are planned in turn."""
    program = shardc.parse(text, mesh={"X": 2}, dims={"L": 3, "I": 8, "J": 4})
    schedule = plan_program(program, LinkModel.of(program.mesh, chip("v5e"))).schedule
    assert " ".join(str(schedule.values[number]) for number in schedule.inputs) == lie
    wholes = sample_inputs(schedule.program)
    for found, expected in zip(blocks_of(schedule, wholes).values(), reference(program, wholes), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


TURNED = Case("for L { x = relu(x[I_X]); S[I_X, L] = neg(x) }", Mesh.of({"X": 2}), {"L": 3, "I": 8})


@example(TURNED)
@settings(max_examples=12, deadline=None)
@given(st.one_of(programs(), loops(), backward_programs()))
def test_only_what_is_sent_brings_bytes_and_only_what_multiplies_or_sums_does_work(case):
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    for step in (done.step for done in single_steps(plan.schedule.block)):
        assert step.op.facts.communicates or not step.cost.wire_bytes
        sums = isinstance(step.op, Einsum) and "rows along" not in step.rule.words
        assert (step.cost.flops > 0) == sums, step


SLICES = {"v5e:2x4": ("X=2,Y=4", "X=8"), "v5p:2x2x2": ("X=2,Y=4", "X=4,Y=2")}
BEFORE = {  # each was an error or a plan that read what was never written
    "scanned where it is smaller than what is computed of it": (
        "u[T, B_X] = exp(x[T, B_X]); for T { s[B_X, N] = exp(u · A[N]) ⊙ s[B_X, N] + u · C[N] }; return s",
        {"T": 8, "B": 16, "N": 4},
    ),
    "sharded over what nothing names": (
        "U = relu(W[L, D, E]); for L { x[B, D] = relu(x[B, D] · U ·_E V[E, D]) }; return x",
        {"B": 1, "D": 3, "L": 2, "E": 4},
    ),
    "sharded over the trips by the text": (
        "U[L_X, D] = relu(W[L, D]); for L { x[B, D] = relu(x[B, D] ⊙ U[L, D]) }; return x, U",
        {"B": 8, "D": 8, "L": 8},
    ),
    "an input sharded over the trips where it is used before": (
        "Y = neg(W[L_X, D]); for L { x[B, D] = x[B, D] ⊙ W }; return x, Y",
        {"B": 8, "D": 8, "L": 8},
    ),
}


@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize("where", [*SLICES, None])
@pytest.mark.parametrize("name", BEFORE)
def test_what_a_loop_reads_row_by_row_may_be_computed_before_it(name, where, objective):
    text, dims = BEFORE[name]
    options = {"topology": where, "objective": objective} if where else {"chip": "v5e", "objective": objective}
    assert shardc.plan(text, mesh="X=2,Y=4", dims=dims, **options).prove().holds


@pytest.mark.exhaustive
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_loops_are_planned_for_slices_too_where_prices_know_what_is_read_of_the_text(data):
    topology = data.draw(st.sampled_from(sorted(SLICES)))
    case = data.draw(loops(mesh=data.draw(st.sampled_from(SLICES[topology]))))
    assert shardc.plan(case.text, mesh=case.mesh, dims=case.dims, topology=topology).prove().holds


ANEW = {  # of each the plan read what had been bound to another array since, or what had other names of its dims
    "a value from before a trip's end": (
        "t2 = relu(A[B_X, F]); for L { t = where(index_F >= index_B, t2, 0); t2 = 0.5 ⊙ t2; S[L, B, F] = t };"
        "m = where(index_D >= index_F, M[F, D_X], 0); return S, m, t2"
    ),
    "a chain around what is carried": (
        "y = square(a[B_X, D]); for L { t = y ·_D W[D, K]; y = 0.5 ⊙ y; u = t ·_K V[K, D];"
        "S[L, B, N_Y] = u ·_D Z[D, N] }; return S, y"
    ),
    "a function of what is fixed, by another name": "t = neg(W[B, F]); for L { u = relu(t[B_?, D_?]); S[L, B, D] = u }",
    "a sum over another name": (
        "t = neg(W[B_X, F]); u[B, D_Y] = t[B_?, D_?]; for L { v[B] = logsumexp_D(u); S[L, B] = v + x[B] }"
    ),
    "rows under another name": "t = relu(V[K, D]); u[L, D_X] = t[L_?, D_?]; for L { x[D] = 0.5 ⊙ x[D] + u }; return x",
    "a maximum behind a loop": (
        "for L { a = x[L, B_X]; S[L, B] = exp(a); R[L, B] = neg(a) }; m[L] = max_B(y[L, B_X]); return S, R, m"
    ),
    "what nothing uses": "t = neg(V[K]); for L { S[L] = mean_B(x[B_X]) }; m[D] = W[D] · b[B]; return S, m",
}


@pytest.mark.parametrize("topology", ["v5e:2x4", None])
@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize("name", ANEW)
def test_names_in_loops_are_of_what_they_are_bound_to_there(name, objective, topology):
    dims = dict.fromkeys("BDFKL", 8) | {"N": 4}
    plan = shardc.plan(ANEW[name], mesh="X=2,Y=4", dims=dims, topology=topology, objective=objective)
    assert plan.prove().holds


RECURRENT = """mesh X=4
dims T=512, B=256, D=1024, H=1024, G=1024
h[B_X, H] = h0[B_X, H]
for T { h[B_X, H] = tanh(x[T, B_X, D] · W[D_X, H] + h[B_X, G] ·_G U[G_X, H]) }
return h"""


def test_weights_of_a_recurrence_are_brought_once():
    """As where the text brings them before the loop: 9.0 ms and 302 MB were planned for it, and 3.1 ms and 3.1 MB."""
    brought = RECURRENT.replace("h[B_X, H] = h0", "P[D, H] = W[D_X, H]; Q[G, H] = U[G_X, H]; h[B_X, H] = h0")
    brought = brought.replace("· W[D_X, H]", "· P").replace("U[G_X, H]) }", "Q) }")
    free, told = (shardc.plan(text, chip="v5e").cost for text in (RECURRENT, brought))
    assert free.wire_bytes <= told.wire_bytes and free.time_s <= 1.001 * told.time_s


@pytest.mark.instant
@pytest.mark.parametrize(
    "statement",
    [
        "K[B_X, E_?] = K[B, E] + x[T, B, E]",
        "K[B_?, E_X] = K[B_X, E] + x[T, B, E]",
        "K[B, E_?] = K[B_X, E] + x[T, B, E]",
        "K[B_?, E_Y] = K[B_YX, E] + x[T, B, E_X]",
    ],
)
def test_what_is_carried_lies_as_far_as_the_text_says(statement):
    """`[B, E]` was carried on where `[B_X, E_?]` is asked for: SHC900."""
    plan = shardc.plan(f"for T {{ {statement} }}; return K", mesh="X=2,Y=2", dims="T=4,B=4,E=4")
    assert "proved" in str(plan.prove()) and not list(faults_of(plan.schedule))


@pytest.mark.instant
@pytest.mark.parametrize("options", [{}, {"topology": "v5e:2x4"}, {"topology": "v5p:2x2x2"}], ids=["", "v5e", "v5p"])
@pytest.mark.parametrize(
    "text",
    [
        "h = A[I_X, J]; for K { h = h }; return h",  # its table ended in an IndexError on a slice
        "h = A[I_X, J]; g = B[J, I_X]; for K { h = h; g = g }; return h, g",
        "h = A[I_X, J]; for K { for L { h = h } }; return h",
        "h = A[I_X, J]; for K { h = h }; y[I_X, M] = h · W[J, M]",
    ],
)
def test_a_loop_that_leaves_nothing_new_is_no_step(text, options):
    sizes = {dim: 8 for dim in "IJKLM" if dim in text}
    plan = shardc.plan(text, mesh={"X": 4, "Y": 2}, dims=sizes, **options)
    assert "for" not in {step.op for step in plan.steps} and "× the time" in str(plan)
    assert all(step.results for step in plan.schedule.steps)
