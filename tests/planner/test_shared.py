"""What a program moves or computes twice from the same values is done once, and paid once."""

import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import CHIPS, LinkModel
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import spell
from shardc.planner import Objective, planned_at_once
from shardc.testing import shardings

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

SIZES = {"I": 16, "J": 32, "K": 64}


def planned(text, mesh, dims, **options):
    return shardc.plan(text, mesh=mesh, dims={d: n for d, n in dims.items() if d in text}, **options)


def test_one_gather_serves_queries_keys_and_values():
    text = "; ".join(f"{name}[B, H_X] = In[B_X, D] · W{name}[D, H_X]" for name in "QKV")
    found = planned(text.replace("K[B, H_X] = In[B_X, D]", "K[B, H_X] = In"), {"X": 4}, {"B": 256, "D": 128, "H": 512})
    assert [step.op for step in found.steps] == ["AllGather", "Einsum", "Einsum", "Einsum"]
    assert found.cost.wire_bytes == 256 * 128 * 2 * 3 // 4
    assert_means_the_program(found.schedule)


def test_what_the_text_names_is_done_as_often_as_it_is_named():
    found = planned("B[I, J] = AllGather(A[I_X, J]); C[I, J] = AllGather(A[I_X, J])", {"X": 4}, SIZES)
    assert [step.op for step in found.steps] == ["AllGather", "AllGather"]


def test_a_copy_is_no_place_where_a_local_product_takes_an_operand():
    """`·_LOCAL` is of the array as it was bound; the copy that the first statement gathered is not asked."""
    text = "S[I, K] = A[I_X, J] · B[J, K]; T[I_X, K] = A ·_LOCAL C[J, K]"
    found = planned(text, {"X": 4}, SIZES)
    assert found.outputs[1].sharding == "T[I_X, K]"
    assert_means_the_program(found.schedule)


@st.composite
def twice(draw):
    """A product, or a reshard, and the same once more under another name."""
    mesh = Mesh.of(draw(st.sampled_from(({"X": 2}, {"X": 4}, {"X": 2, "Y": 2}))))
    a, b, c = (draw(shardings(mesh, 2, unreduced=False)) for _ in range(3))
    if draw(st.booleans()):
        once = f"A{spell(('I', 'J'), a)}"
        result = spell(("I", "J"), c)
    else:
        once = f"A{spell(('I', 'J'), a)} · B{spell(('J', 'K'), b)}"
        result = spell(("I", "K"), c)
    return mesh, f"S{result} = {once}", f"T{result} = {once}"


@settings(max_examples=40, deadline=None)
@given(twice(), st.sampled_from(["time", "bytes"]))
def test_the_same_statement_twice_costs_what_it_costs_once(case, objective):
    mesh, first, second = case
    alone = planned(first, dict(mesh.axes), SIZES, objective=objective)
    both = planned(f"{first}; {second}", dict(mesh.axes), SIZES, objective=objective)
    if objective == "bytes":
        assert both.cost.wire_bytes <= alone.cost.wire_bytes
    else:
        assert both.cost.time_s <= alone.cost.time_s
    assert_means_the_program(both.schedule)


@settings(max_examples=15)
@given(st.data())
def test_in_turn_a_statement_is_done_as_its_cheapest_strategy_when_what_it_shares_is_paid_once(data):
    """A is moved for two products: strategies are compared as built, since the search pays for each use."""
    mesh = Mesh.of({"X": 4})
    a, b, d, c = (spell(dims, data.draw(shardings(mesh, 2, unreduced=False))) for dims in ("IJ", "JK", "JK", "IK"))
    program = shardc.parse(f"(A{a} ·_J B{b}) + (A ·_J D{d}) → C{c}", mesh=mesh, dims=SIZES, dtype="bf16")
    found = planned_at_once(program, LinkModel.of(mesh, CHIPS["v5p"]), Objective.BYTES)
    (statement,) = found.statements
    assert found.cost.wire_bytes == min(other.wire_bytes for other in statement.cheapest(8))
