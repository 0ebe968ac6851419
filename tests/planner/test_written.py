"""What the book's own rules make of a program, which every plan is held against: its steps, its meaning, its price."""

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import CHIPS, LinkModel
from shardc.ir.collectives import AllReduce, AllToAll, ReduceScatter, apply
from shardc.ir.expressions import Pattern
from shardc.ir.laws import product_law
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.planner.program.written import written_schedule
from shardc.report.table import describe
from shardc.rules.placements import placements
from shardc.rules.written import _met, before_product, goal, reduced, resharded
from shardc.testing import all_shardings, loops, mixed_programs, programs, shardings

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
    "B[I_X, J] = relu(AllGather_X(A[I_X, J]))": "AllGather_X A; relu; Slice_X,I B",
    "B[I, J_X] = relu(ReduceScatter_X(A[I, J]{U_X}))": "ReduceScatter_X,I A; relu; AllToAll_X,J B",
    "A[I_X, J_Y] → A[I_Y, J_X]": "AllGather_X A; AllGather_Y A; Slice_Y,I A; Slice_X,J A",
    "A[I]{U_X} → A[I_X]": "ReduceScatter_X,I A",
    "C[I, L] = A[I, J_X] · B[J_X, K] · D[K, L]": "Einsum; AllReduce_X C_1; Einsum",
    "M[I] = max_J(A[I, J_X])": "max; AllReduce_X M",
    "C[I, J_X] = relu(A[I, J_X]) + B[I_X, J]": "relu; AllToAll_X,J B; add",
}


@pytest.mark.instant
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


@pytest.mark.instant
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


@pytest.mark.instant
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


@pytest.mark.instant
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


XY, XYZ = Mesh.of({"X": 2, "Y": 2}), Mesh.of({"X": 2, "Y": 2, "Z": 2})


def applied(moves, sharding, mesh):
    for move in moves:
        sharding = apply(move, sharding, mesh)
    return sharding


def is_below(shorter, longer):
    return longer[: len(shorter)] == shorter


def test_a_reshard_leads_to_what_is_asked_and_exchanges_where_one_exchange_is_all():
    every = [Sharding(dims) for dims in placements(XYZ.names, 2)]
    for before, after in itertools.product(every, repeat=2):
        found = [*resharded(before, after)]
        assert applied(found, before, XYZ) == after
        exchanges = (AllToAll(own[n:], dim, 1 - dim) for dim, own in enumerate(before.dims) for n in range(len(own)))
        one = [move for move in exchanges if apply(move, before, XYZ) == after]
        assert not one or found == one, (before, after)


def test_a_result_is_scattered_over_as_many_axes_as_is_wanted_next_and_the_rest_is_summed():
    """Dim by dim: of `C[I, K]{U_XY}`, wanted as `C[I_X, K]`, X is scattered and Y summed."""
    wishes = [*all_shardings(XYZ, 1), None]
    for left, wish in itertools.product(all_shardings(XYZ, 1), wishes):
        wanted = Pattern((None,)) if wish is None else Pattern.exactly(wish)
        found, waiting = [*reduced(left, wanted, XYZ)], left.unreduced - wanted.unreduced
        (own,), (asked,) = left.dims, wanted.dims
        tail = asked[len(own) :] if asked and is_below(own, asked) else ()
        most = max((n for n in range(len(tail) + 1) if waiting.issuperset(tail[:n])), default=0)
        scattered, summed = tail[:most], XYZ.ordered(waiting.difference(tail[:most]))
        assert found == [ReduceScatter(scattered, 0)] * bool(scattered) + [AllReduce(summed)] * bool(summed)


@pytest.mark.instant
@pytest.mark.parametrize("sizes", [(1, 2), (2, 1)])
def test_operands_are_gathered_and_sliced_until_their_blocks_meet_and_the_smaller_goes_first(sizes):
    """Of every two operands, and every result wanted; a dim keeps all that both can have."""
    dims, left = (("I", "J"), ("J", "K")), ("I", "K")
    every = [Sharding(placed) for placed in placements(XY.names, 2)]
    for one, other, wish in itertools.product(every, every, every):
        wanted = Pattern.exactly(wish)
        found = before_product(dims, left, (one, other), wanted, sizes)
        assert isinstance(product_law(dims, found, left), Sharding)
        (rows, mine), (theirs, columns) = (each.dims for each in found)
        assert mine == theirs and is_below(mine, one.dims[1]) and is_below(mine, other.dims[0])
        assert is_below(rows, one.dims[0]) and is_below(columns, other.dims[1])
        outer = [dim for dim in (0, 1) if "X" in (one.dims[0], other.dims[1])[dim]]
        if len(outer) == 2 and one.dims[0] == other.dims[1] == ("X",) and not one.dims[1] and not other.dims[0]:
            asked = [dim for dim in (0, 1) if "X" in wish.dims[dim]]
            kept = asked[0] if asked else 1 - sizes.index(min(sizes))
            assert [bool(rows), bool(columns)] == [kept == 0, kept == 1]


def test_a_dim_that_both_operands_and_the_result_have_is_sliced_where_the_axis_is_free():
    dims, left = (("B", "I"), ("B", "K")), ("B", "I", "K")
    for own, other in itertools.product(placements(XY.names, 2), repeat=2):
        found = before_product(dims, left, (Sharding(own), Sharding(other)), Pattern.free(3), (1, 1))
        assert isinstance(product_law(dims, found, left), Sharding)
        if not other[0] and not {*own[0]} & {*other[1]}:
            assert [each.dims[0] for each in found] == [own[0], own[0]]
