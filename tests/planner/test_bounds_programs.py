"""Bounds of programs: what cannot be shared adds up, what can be counts once; below every plan by brute force."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError
from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding, spell
from shardc.testing import Case, backward_programs, loops, mixed_programs, partial_programs, programs, shardings
from shardc.testing.oracles import all_shardings, matmul_oracle, shortest_path_oracle

SMALL = ({"X": 2}, {"X": 4}, {"X": 2, "Y": 2})
SHAPE = {"I": 16, "J": 32, "K": 64}
MORE = SHAPE | {"K2": 64, "J2": 32, "L": 3}


def wire(text, mesh, objective="bytes", dims=SHAPE, **options):
    dims = {dim: size for dim, size in dims.items() if dim in text}
    plan = shardc.plan(text, mesh=mesh, dims=dims, dtype="bf16", objective=objective, **options)
    return plan.bound.wire_bytes, plan.cost.wire_bytes


@pytest.mark.instant
@pytest.mark.parametrize("count", [2, 3])
def test_optimal_reshards_that_share_nothing_are_at_their_bound(count):
    for before, after in (("[I_X, J]", "[I, J]"), ("[I_X, J]", "[I, J_X]"), ("[I, J]{U_X}", "[I, J_X]")):
        text = "; ".join(f"B{n}{after} = A{n}{before}" for n in range(count))
        bound, found = wire(text, {"X": 4})
        assert bound == found == count * wire(f"A{before} → A{after}", {"X": 4})[0] > 0
    plan = shardc.plan("B[I, J] = A[I_X, J]; D[I, J] = C[I_X, J]", mesh={"X": 4}, dims={"I": 64, "J": 64})
    assert "(1.00× the lower bound)" in str(plan)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("B[I, J] = A[I_X, J]; C[I, J] = A", ["A[I_X, J] → A[I, J]"]),  # one gather for both
        ("B[I, J] = A[I_X, J]; C[I, J_X] = A", ["A[I_X, J] → A[I, J]"]),  # what C needs is a part of what B has
        ("B[I, J_X] = A[I_X, J]; C[I, J] = B", ["A[I_X, J] → A[I, J]"]),  # B is no output
        (
            "S[I, K] = A[I, J_X] · V[J, K]; T[I, K] = A · W[J, K]",
            ["A[I, J_X] · V[J, K] → S[I, K]"],
        ),  # one gather of A
        (
            "S[I, K] = A[I, J_X] · V[J, K]; T[I, K] = B[I, J_X] · W[J, K]",
            ["A[I, J_X] · V[J, K] → S[I, K]", "A[I, J_X] · V[J, K] → S[I, K]"],
        ),
        (
            "S[I, K] = A[I, J_X] · V[J, K]; D[I, J] = C[I_X, J]",
            ["A[I, J_X] · V[J, K] → S[I, K]", "A[I_X, J] → A[I, J]"],
        ),
        (
            "S[I, K] = relu(A[I, J_X] · V[J, K]); D[I, J] = C[I_X, J]",  # S needs what the product does
            ["A[I, J_X] · V[J, K] → S[I, K]", "A[I_X, J] → A[I, J]"],
        ),
        ("S[I, J] = exp(A[I_X, J]) ⊙ V[I, J]", ["A[I_X, J] → A[I, J]"]),
        ("T = sum_J(A[I, J_X]); S[I, K] = T ⊙ V[I, K]", ["T[I]{U_X} → T[I]"]),  # each device its own sums
        ("S[I, K] = (A[I, J_X] · V[J, K]) · W[K, L] · U[L, K2]", ["T[I]{U_X} → T[I]"]),  # for each row a number
        ("S[I, J] = A[I_X, J] + relu(A · V[J, K] · W[K, J2])", ["A[I_X, J] → A[I, J]"]),
        (
            "T[J2, K2] = V[J2, K2] ⊙ relu(U[J2, K2] + V); S[I, K] = A[I, J_X] · T[J, K]",
            ["A[I, J_X] · V[J, K] → S[I, K]"],
        ),
        ("T = V[J, K] / V; S[I, K] = A[I, J_X] · T", ["T[I]{U_X} → T[I]"]),  # ones: for each row a number
        ("for L { T = relu(A[L, I_X, J]); S[L, I, J] = T + V[I, J] }", ["A[L, I_X, J] → A[L, I, J]"]),
        ("for L { A1 = A[L, I_X, J]; S[L, I, J] = relu(A1) }", ["A[L, I_X, J] → A[L, I, J]"]),  # a row by a name
        ("for L { S[L, I, K] = exp(A[L, I, J_X] · V[L, J, K]) }", 3 * ["A[I, J_X] · V[J, K] → S[I, K]"]),
        ("for L { G = G[I, K] + A[L, I, J_X] · V[L, J, K] }", []),  # of what is carried nothing is known
        ("C[I, K_?] = A[I, J_X] · V[J, K]", []),
        ("B[I, J] = A[I_?, J]", []),
    ],
)
def test_what_is_shared_counts_once_and_what_is_open_not_at_all(text, parts):
    bound, found = wire(text, {"X": 4}, dims=MORE)
    assert bound == sum(wire(part, {"X": 4}, dims=MORE)[0] for part in parts) <= found
    assert bound > 0 or not parts


@st.composite
def pairs(draw):
    """Two statements, each a reshard or a matmul; the second of the first's input, or of another's."""
    mesh = Mesh.of(draw(st.sampled_from(SMALL)))
    shared, kinds = draw(st.booleans()), [draw(st.sampled_from("RM")) for _ in range(2)]
    given_a = draw(shardings(mesh, 2, unreduced=False))
    arrays, lines = [], []
    for n, kind in enumerate(kinds):
        a = given_a if shared or n == 0 else draw(shardings(mesh, 2, unreduced=False))
        name = "A" if shared or n == 0 else "B"
        spelled = name if shared and n else name + spell(("I", "J"), a)
        if kind == "R":
            after = draw(shardings(mesh, 2, unreduced=False))
            lines.append(f"R{n}{spell(('I', 'J'), after)} = {spelled}")
            arrays.append((kind, a, after, None))
        else:
            w, after = (draw(shardings(mesh, 2, unreduced=False)) for _ in range(2))
            lines.append(f"R{n}{spell(('I', 'K'), after)} = {spelled} · W{n}{spell(('J', 'K'), w)}")
            arrays.append((kind, a, after, w))
    return "; ".join(lines), mesh, shared, arrays


def moved(mesh, before, after):
    found = shortest_path_oracle(mesh, (SHAPE["I"], SHAPE["J"]), before, after, 2)
    return math.inf if found is None else found


def cost(mesh, kind, before, after, other):
    """The fewest bytes of one statement whose first operand lies so, by brute force."""
    if kind == "R":
        return moved(mesh, before, after)
    found = matmul_oracle(mesh, SHAPE, before, other, after, 2)
    return math.inf if found is None else found


def by_brute_force(mesh, shared, arrays):
    """Both statements; of a shared input what is moved first, for both, is moved once."""
    if not shared:
        return sum(cost(mesh, kind, a, after, w) for kind, a, after, w in arrays)
    junctions = [s for s in all_shardings(mesh, 2, unreduced=False) if s.divides((SHAPE["I"], SHAPE["J"]), mesh)]
    return min(
        moved(mesh, arrays[0][1], at) + sum(cost(mesh, kind, at, after, w) for kind, _, after, w in arrays)
        for at in junctions
    )


def test_one_gather_serves_two_so_that_a_sum_would_be_above_a_plan():
    mesh = Mesh.of({"X": 4})
    a, w, after = Sharding.of([(), ("X",)]), Sharding.of([(), ()]), Sharding.of([(), ()])
    text = "S[I, K] = A[I, J_X] · V[J, K]; T[I, K] = A · W[J, K]"
    alone = wire("A[I, J_X] · V[J, K] → S[I, K]", {"X": 4})[0]
    shared = by_brute_force(mesh, True, [("M", a, after, w)] * 2)
    assert wire(text, {"X": 4})[0] <= shared < 2 * alone


@settings(max_examples=40, deadline=None)
@given(pairs(), st.sampled_from(["time", "bytes"]))
def test_no_plan_of_two_statements_gets_below_the_bound(case, objective):
    text, mesh, shared, arrays = case
    options = {"mesh": dict(mesh.axes), "dims": {d: n for d, n in SHAPE.items() if d in text}, "dtype": "bf16"}
    plan = shardc.plan(text, objective=objective, **options)
    bound = plan.bound.wire_bytes
    assert 0 <= bound <= by_brute_force(mesh, shared, arrays)
    assert bound <= plan.cost.wire_bytes
    ahead = sum(step.wire_bytes for step in plan.steps if step.statement == 0)
    assert all(bound <= ahead + other.wire_bytes for other in plan.statements[1].alternatives[:50])
    if not shared:
        singles = [
            shardc.plan(line, objective=objective, **options | {"dims": dims_of(line)}) for line in text.split("; ")
        ]
        assert bound == sum(single.bound.wire_bytes for single in singles)
    try:
        lean = shardc.plan(text, objective=objective, memory=plan.cost.peak_bytes - 1, **options)
    except ShardcError:
        return
    assert lean.bound.wire_bytes == bound <= lean.cost.wire_bytes


def test_what_is_zero_of_zeros_is():
    for name in (row.name for row in FUNCTIONS.values() if row.zero_at_zero):
        row, zeros = FUNCTIONS[name], np.zeros((2, 3))
        assert not np.any(row.numpy(np, *[zeros] * row.arity))


def test_what_is_flat_says_no_more_of_a_number_than_of_one_beside_it():
    near = np.array([-1.5, -0.25, 0.25, 1.5])
    found = {name for name, row in FUNCTIONS.items() if row.is_flat}
    same = [np.array_equal(FUNCTIONS[name].numpy(np, near), FUNCTIONS[name].numpy(np, near + 0.1)) for name in found]
    assert found and all(same)


def check_drawn(case):
    """By bytes, over all that the planner knows: any bound that is too high for some program shows where it is met."""
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="bf16", objective="bytes")
    assert 0 <= plan.bound.wire_bytes <= plan.cost.wire_bytes


DRAWN = st.one_of(programs(), partial_programs(), loops(), backward_programs(), mixed_programs())


@settings(max_examples=25, deadline=None)
@given(DRAWN)
def test_no_plan_of_a_drawn_program_gets_below_the_bound(case):
    check_drawn(case)


@pytest.mark.exhaustive
@settings(max_examples=150, deadline=None)
@given(DRAWN)
@example(Case("T1[I] = A1[] · A2[I]", Mesh.of({"X": 2}), {"I": 2}))  # a number, which each device has
def test_no_plan_of_many_drawn_programs_gets_below_the_bound(case):
    check_drawn(case)


def dims_of(text):
    return {dim: size for dim, size in SHAPE.items() if dim in text}


@pytest.mark.instant
@pytest.mark.parametrize(
    "product", ["A[L, I, J_X] · B[J_X, K]", "A[I, J_X] · B[L, J_X, K]", "relu(A[I, J_X]) · B[L, J_X, K]"]
)
def test_a_product_of_rows_is_received_in_each_trip_whichever_operand_they_are_of(product):
    """A device has a quarter of the sums; of both operands' rows more is received."""
    dims = {"I": 64, "J": 64, "K": 64, "L": 3}
    results = math.prod(dims[dim] for dim in "LIK") * 2 * 3 // 4
    assert wire(f"for L {{ C[L, I, K] = {product} }}; return C", {"X": 4}, dims=dims)[0] == results
    once, _ = wire("C[I, K] = A[I, J_X] · B[J_X, K]", {"X": 4}, dims=dims)
    both, _ = wire("for L { C[L, I, K] = A[L, I, J_X] · B[L, J_X, K] }; return C", {"X": 4}, dims=dims)
    assert both == dims["L"] * once >= results
