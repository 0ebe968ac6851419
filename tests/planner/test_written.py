"""What the book's own rules make of a program, which every plan is held against: its steps, its meaning, its price."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import CHIPS, LinkModel
from shardc.ir.expressions import Pattern
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.planner.program.written import written_schedule
from shardc.report.table import describe
from shardc.rules.written import _met, goal
from shardc.testing import loops, mixed_programs, programs, shardings

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

DIMS = {"I": 64, "J": 4096, "K": 32, "L": 8, "B": 16}
# What the books write for each case, and for what they say of several.
RULES = {
    "A[I_X, J] · B[J, K] → C[I_X, K]": "Einsum",
    "A[I, J_X] · B[J, K] → C[I, K]": "AllGather_X A; Einsum",
    "A[I, J_X] · B[J_X, K] → C[I, K]": "Einsum; AllReduce_X C",
    "A[I, J_X] · B[J_X, K] → C[I_X, K]": "Einsum; ReduceScatter_X,I C",
    "A[I, J_X] · B[J_X, K] → C[I_XY, K]": "Einsum; ReduceScatter_X,I C; Slice_Y,I C",
    "A[I, J_X] · B[J_X, K] → C[I, K]{U_X}": "Einsum",
    "A[I_X, J] · B[J, K_X] → C[I_X, K]": "AllGather_X B; Einsum",
    "A[I_X, J] · B[J, K_X] → C[I, K_X]": "AllGather_X A; Einsum",
    "A[I, J_X] · B[J, K_X] → C[I, K_X]": "AllGather_X A; Einsum",
    "A[B_X, I, J] · D[B, J, K] → C[B_X, I, K]": "Slice_X,B D; Einsum",
    "A[I_XY, J] · B[J, K] → C[I_X, K]": "Einsum; AllGather_Y C",
    "A[I_X, J] → A[I, J_X]": "AllToAll_X,J A",
    "AllGather_X(A[I_X, J]) → A[I, J]": "AllGather_X A",
    "A[I_X, J_Y] → A[I_Y, J_X]": "AllGather_X A; AllGather_Y A; Slice_Y,I A; Slice_X,J A",
    "A[I]{U_X} → A[I_X]": "ReduceScatter_X,I A",
    "C[I, L] = A[I, J_X] · B[J_X, K] · D[K, L]": "Einsum; AllReduce_X C_1; Einsum",
    "M[I] = max_J(A[I, J_X])": "max; AllReduce_X M",
    "C[I, J_X] = relu(A[I, J_X]) + B[I_X, J]": "relu; AllToAll_X,J B; add",
}


@pytest.mark.parametrize(("text", "steps"), RULES.items(), ids=str)
def test_a_statement_as_the_books_do_it(text, steps):
    plan = shardc.plan(text, mesh={"X": 2, "Y": 2}, dims={d: n for d, n in DIMS.items() if d in text})
    assert "; ".join(map(describe, plan._view.written.steps)) == steps


@settings(max_examples=30)
@given(st.one_of(programs(), loops(), mixed_programs()))
def test_as_written_is_the_program(case):
    """On every device, loops' bodies included; the rules may lead nowhere, but seldom."""
    program = shardc.parse(case.text, mesh=dict(case.mesh.axes), dims=case.dims, dtype="f64")
    given_ = shardc.plan(program).schedule
    inputs = [given_.given(number) for number in given_.inputs]
    found = written_schedule(program, LinkModel.of(program.mesh, CHIPS["v5p"]), inputs)
    assert not list(faults_of(found))
    assert_means_the_program(found)


@settings(max_examples=60)
@given(st.data())
def test_what_a_pattern_asks_for_has_each_axis_once_and_keeps_what_it_may(data):
    mesh = Mesh.of({"X": 2, "Y": 2, "Z": 2})
    left, other = (data.draw(shardings(mesh, 2, unreduced=kind)) for kind in (False, True))
    wanted = Pattern(tuple(axes if data.draw(st.booleans()) else None for axes in other.dims), other.unreduced)
    found, taken = goal(left, wanted), {axis for axes in wanted.dims for axis in axes or ()} | wanted.unreduced
    assert wanted.matches(found) and len(found.used) == len([*found.sharded, *found.unreduced])
    for own, lies, asked in zip(left.dims, found.dims, wanted.dims, strict=True):
        if asked is None:
            assert lies == own[: len(lies)] and (lies == own or own[len(lies)] in taken)


@pytest.mark.parametrize("objective", ["time", "bytes"])
@settings(max_examples=12)
@given(data=st.data())
def test_no_plan_is_dearer_than_as_written(objective, data):
    """A planner that misses what one would write down is caught here, loops' bodies included."""
    case = data.draw(st.one_of(programs(), loops(), mixed_programs()))
    plan = shardc.plan(case.text, mesh=dict(case.mesh.axes), dims=case.dims, objective=objective)
    written = plan._view.written
    if written is None:
        return
    if objective == "time":
        assert plan.cost.time_s <= written.time_s * (1 + 1e-9)
    else:
        assert plan.cost.wire_bytes <= written.wire_bytes


def test_the_table_and_the_json_say_what_it_costs():
    plan = shardc.plan("A[I, J_X] · B[J, K] → C[I, K_X]", mesh={"X": 4}, dims={"I": 512, "J": 8192, "K": 1024})
    row = next(line for line in str(plan).splitlines() if line.startswith("as written"))
    assert row.endswith("6.29 MB on the wire: AllGather_X A; Einsum; Slice_X,K C)")
    assert '"as_written": {\n  "wire_bytes": 6291456' in plan.to_json()


@pytest.mark.parametrize(
    ("own", "kept", "met"),
    [
        ([("B", "X"), ("B",)], True, ("B", "X")),
        ([("B", "X"), ("B",)], False, ("B",)),
        ([("B", "X"), ("Y",)], True, ()),
        ([("B", "X"), ("B",), ("Y",)], True, ()),  # a Slice makes one of the first two, none makes the third
        ([("B", "X"), ("B", "Y")], True, ("B",)),
    ],
)
def test_a_dim_of_several_operands_lies_as_all_of_them_can(own, kept, met):
    assert _met(own, [set() for _ in own], kept) == met
    assert not kept or _met(own, [{"X"}, *(set() for _ in own[1:])], kept) == _met(own, [set() for _ in own], False)
