"""Reshards whose exchange in unequal pieces is too long to be written, in programs that do other things too: each
brings what it brings alone."""

import sys
from itertools import islice
from pathlib import Path

import pytest

import shardc
from shardc.cost.formulas import evaluate
from shardc.ir.sharding import spell
from shardc.lowering.flow import untyped_along

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program
from test_unequal import assert_proved, drawn

DIMS = ("I", "J", "K")
OTHERS = ("P", "Q", "R")


def planned(text, mesh, sizes, objective="bytes", **asked):
    axes = ",".join(f"{axis}={size}" for axis, size in mesh.axes)
    dims = ",".join(f"{dim}={size}" for dim, size in sizes.items())
    return shardc.plan(text, mesh=axes, dims=dims, dtype="f32", chip="v5p", objective=objective, **asked)


def moved(case, before, after, dims=DIMS):
    """The two sides of a reshard in the notation, and the sizes of its dims."""
    _, shape, source, target = case
    dims = dims[: len(shape)]
    sides = (f"{before}{spell(dims, source)}", f"{after}{spell(dims, target)}")
    return *sides, dict(zip(dims, shape, strict=True))


def alone(case, objective="bytes"):
    before, after, sizes = moved(case, "A", "B")
    return planned(f"{before} → {after}", case[0], sizes, objective)


def two(one, other):
    """Two reshards of one program that have nothing to do with one another."""
    (before, after, sizes), (others, left, more) = moved(one, "A", "B"), moved(other, "S", "T", OTHERS)
    return f"{before} → {after}; {others} → {left}", sizes | more


def beside_a_product(case):
    before, after, sizes = moved(case, "A", "B")
    first = case[0].names[0]
    return f"{before} → {after}; S[P_{first}, Q] · T[Q, R] → U[P_{first}, R]", sizes | dict.fromkeys("PQR", 360)


def function_first(case):
    before, after, sizes = moved(case, "B", "C")
    return f"{before} = relu(A{before[1:]}); {after} = B", sizes


def function_last(case):
    before, after, sizes = moved(case, "A", "B")
    return f"{before} → {after}; C{after[1:]} = relu(B)", sizes


def in_a_loop(case):
    before, after, sizes = moved(case, "A", "B")
    row, left = (side.replace("[", "[L, ") for side in (before, after))
    return f"for L {{ {after} = {row}; C{left[1:]} = relu(B) }}; D = C", sizes | {"L": TRIPS}


TRIPS = 2


def is_typed(plan):
    """Whether types say where the result of a reshard is equal, as they must in a loop."""
    return not untyped_along(plan.schedule.block)[plan.schedule.outputs[0]]


AROUND = [beside_a_product, function_first, function_last]


def pairs(seed):
    """Two on one mesh, without end."""
    waiting = {}
    for case in drawn(f"two {seed}"):
        other = waiting.pop(case[0], None)
        if other is None:
            waiting[case[0]] = case
        else:
            yield other, case


def by_name(case):
    return f"{case[2].dims} {case[3].dims}"


def check(case, text, sizes, most):
    """Right, and it brings no more than that."""
    plan = planned(text, case[0], sizes)
    assert plan.cost.wire_bytes <= most
    assert_means_the_program(plan.schedule)
    return plan


def check_two(one, other):
    return check(one, *two(one, other), alone(one).cost.wire_bytes + alone(other).cost.wire_bytes)


@pytest.mark.parametrize("around", AROUND, ids=lambda around: around.__name__)
@pytest.mark.parametrize("case", list(islice(drawn(11), 4)), ids=by_name)
def test_beside_other_statements_it_brings_what_it_does_alone(case, around):
    plan = check(case, *around(case), alone(case).cost.wire_bytes)
    own, *_ = plan.statements[-1 if around is function_first else 0].alternatives
    assert own.wire_bytes == plan.cost.wire_bytes, "what is listed first is what is done"


@pytest.mark.parametrize("case", list(islice(drawn(17), 4)), ids=by_name)
def test_each_trip_of_a_loop_brings_what_it_does_alone(case):
    check_in_a_loop(case)


@pytest.mark.parametrize("cases", list(islice(pairs(12), 4)), ids=lambda cases: " ".join(map(by_name, cases)))
def test_two_bring_no_more_than_each_alone(cases):
    check_two(*cases)


def check_in_a_loop(case):
    by_itself = alone(case)
    if is_typed(by_itself):
        plan = check(case, *in_a_loop(case), TRIPS * by_itself.cost.wire_bytes)
        own, *_ = plan.statements[0].statements[0].alternatives
        assert TRIPS * own.wire_bytes == plan.cost.wire_bytes, "what is listed first is what is done"
        return plan
    return None


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(18, 21))
def test_of_many_none_brings_more_in_a_loop(seed):
    plans = [*filter(None, map(check_in_a_loop, islice(drawn(seed), 8)))]
    assert len(plans) > 4


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(13, 16))
def test_of_many_none_brings_more_than_alone(seed):
    first, *others = islice(pairs(seed), 6)
    assert_proved(check_two(*first))
    for cases in others:
        check_two(*cases)
    first, *others = islice(drawn(seed), 4)
    for around in AROUND:
        assert_proved(check(first, *around(first), alone(first).cost.wire_bytes))
        for case in others:
            check(case, *around(case), alone(case).cost.wire_bytes)


WORST = "A[I_Y, J_X, K_W] → B[I, J_W, K_YX]"  # alone 1.8 times the bound, by moves 10.96 times
MESH, SIZES = "W=6,X=10,Y=15", "I=15,J=30,K=150,L=4,P=30,Q=30,R=30"
BRINGS = 540


def worst(text, change=lambda program: program, **asked):
    program = change(shardc.parse(text, mesh=MESH, dims=SIZES, dtype="f32"))
    plan = shardc.plan(program, chip="v5p", objective="bytes", **asked)
    assert_means_the_program(plan.schedule)
    assert "too long" in " ".join(plan.notes)
    return plan


def test_formulas_name_what_the_plan_has():
    plan = worst(f"{WORST}; S[P_W, Q] · T[Q, R_X] → U[P_W, R]")
    for step in plan.steps:
        assert evaluate(step.formula, plan.symbols) == pytest.approx(step.time_s)


def test_a_gradient_moves_it_back_so():
    plan = worst("B[I, J_W, K_YX] = relu(A[I_Y, J_X, K_W])", lambda program: shardc.grad(program, ["A"], whole=True))
    assert plan.cost.wire_bytes == 2 * BRINGS
    assert_proved(plan)


def test_before_a_loop_where_types_say_what_is_equal():
    plan = worst(f"{WORST}\nx[J_W] = S[J_W]\nfor L {{\n x[J_W] = relu(x)\n}}")
    assert plan.cost.wire_bytes == BRINGS
    assert_proved(plan)


def test_in_loops_with_their_gradients():
    text = "for L {\n x[I_Y, J_X, K_W] = x[I_Y, J_X, K_W] + C[L, I_Y, J_X, K_W]\n"
    text += " B[I, J_W, K_YX] = relu(x)\n D[L, I, J_W, K_YX] = B ⊙ B\n}\nE = D"
    plan = worst(text)
    assert plan.cost.wire_bytes == 4 * BRINGS
    assert_proved(plan)
    both = worst(text, lambda program: shardc.grad(program, ["C"], whole=True))
    assert both.cost.wire_bytes == 2 * 4 * BRINGS
    assert_proved(both)


def test_inside_a_loop_and_beside_it():
    text = f"{WORST}\nfor L {{\n T[I, J_W, K_YX] = S[L, I_Y, J_X, K_W]\n H[L, I, J_W, K_YX] = relu(T)\n}}\nE = H"
    assert worst(text).cost.wire_bytes == 5 * BRINGS


def test_a_memory_limit_is_kept():
    text = f"{WORST}; C[J_W] = relu(D[J_W])"
    free = worst(text)
    assert worst(text, memory=free.cost.peak_bytes).cost.wire_bytes == BRINGS == free.cost.wire_bytes
