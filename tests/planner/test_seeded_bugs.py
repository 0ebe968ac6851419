"""Bugs planted in the rules, the planner and the prices while it runs: what is to refuse them is seen to refuse them.

Each test first sees the same comparison pass without the bug.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

import shardc
from shardc import simulate
from shardc.cost import LinkModel, chip, legs, model
from shardc.cost.memory import peak_bytes
from shardc.errors import ShardcError
from shardc.ir import calls, collectives, functions
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, JointScatter, ReduceScatter, Slice
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.plan import Block, Step, StepCost
from shardc.ir.sharding import Array, Sharding
from shardc.notation import parse_tree
from shardc.planner import Objective, budget, idle, problem
from shardc.planner.paths import graph, run
from shardc.planner.paths.search import Search
from shardc.planner.planned import Planning
from shardc.planner.products import functions as ways_of_functions
from shardc.planner.products import ways
from shardc.planner.program import finer, loops, progress
from shardc.planner.program.directly import Directly
from shardc.planner.program.loops import planned_at_once
from shardc.planner.program.plan import AsGiven
from shardc.planner.statement import build, nodes, strategies
from shardc.planner.whole import local
from shardc.rules import moves, products
from shardc.rules.functions import applied, reduced_across
from shardc.simulate import IllegalStep, ReplicaMismatch
from shardc.testing import (
    all_shardings,
    assert_equal_on_every_device,
    assert_schedule_legal,
    function_law,
    matmul_oracle,
    product_law,
    shortest_path_oracle,
)

MESH = Mesh.of({"X": 2, "Y": 4})
DIMS = {"I": 16, "J": 32, "K": 64}


KEPT = [
    (ways, "_every_way"),
    (ways, "_every_priced"),
    (ways_of_functions, "_function"),
    (local, "_every_lie"),
    (legs, "_told"),
    (model, "_emitted"),
]


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch):
    """What is worked out under a planted bug is not kept for the tests after it."""
    monkeypatch.setattr(problem, "sharding_graph", graph.Graph)
    monkeypatch.setattr(calls, "_linear_operands", calls._linear_operands.__wrapped__)
    for module, name in KEPT:
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)
    monkeypatch.setattr(ways, "local_products", products.local_products.__wrapped__)


def planned(text, mesh=MESH, dims=DIMS, **options):
    return shardc.plan(text, mesh=mesh, dims=dims, **{"dtype": "f32", "objective": "bytes"} | options)


def illegal(schedule):
    """Why a schedule is refused before anything runs; None if it is not."""
    try:
        assert_schedule_legal(schedule)
    except AssertionError as refusal:
        return str(refusal)
    return None


def computes_the_reference(schedule):
    wholes = simulate.sample_inputs(schedule.program)
    try:
        found = simulate.run(schedule, wholes)
        for blocks, number, whole in zip(
            found, schedule.outputs, simulate.reference(schedule.program, wholes), strict=True
        ):
            assert_equal_on_every_device(blocks, whole, schedule.values[number], schedule.mesh)
    except (AssertionError, IllegalStep, ReplicaMismatch):
        return False
    return True


# --- rules


def sums_are_forgotten(patch):
    right = products.local_product

    def local_product(operand_dims, result_dims, operands):
        left = right(operand_dims, result_dims, operands)
        return left and Sharding(left.dims, frozenset().union(*(operand.unreduced for operand in operands)))

    patch.setattr(products, "local_product", local_product)


def partial_operands_are_taken_for_sums(patch):
    right = products.local_product

    def local_product(operand_dims, result_dims, operands):
        left = right(operand_dims, result_dims, operands)
        return left and Sharding(left.dims, left.unreduced.difference(*(operand.unreduced for operand in operands)))

    patch.setattr(products, "local_product", local_product)


def every_function_is_linear(patch):
    def sloppy(function, over, operand_dims, result_dims, operands, numbers):
        whole = [Sharding(operand.dims) for operand in operands]
        left = applied(function, over, operand_dims, result_dims, whole)
        return left and Sharding(left.dims, operands[0].unreduced)

    patch.setattr(ways_of_functions, "applied", sloppy)


def functions_run_over_sharded_dims(patch):
    def blind(name, over, below, left, operands, numbers):
        return applied(name, (), below, left, operands)

    patch.setattr(ways_of_functions, "applied", blind)
    patch.setattr(build, "is_across", lambda *_: False)


def rewritten(patch, change):
    """The planner, and it alone, takes a move to leave another sharding."""
    right, edge = collectives.apply, graph.Graph._edge

    def apply(move, before, mesh):
        return change(move, before) or right(move, before, mesh)

    def wrong(self, move, before):
        found, left = edge(self, move, before), change(move, before)
        return found if left is None else replace(found, target=self.number(left))

    patch.setattr(legs, "apply", apply)
    patch.setattr(graph.Graph, "_edge", wrong)
    patch.setattr(build, "apply", apply)


def axes_of_a_scatter_come_first(patch):
    def change(move, before):
        if isinstance(move, ReduceScatter):
            dims = before.with_dim(move.dim, move.axes + before.dims[move.dim]).dims
            return Sharding(dims, before.unreduced.difference(move.axes))
        return None

    rewritten(patch, change)


def xy_is_yx(patch):
    def change(move, before):
        if isinstance(move, AllGather):
            return before.with_dim(move.dim, tuple(a for a in before.dims[move.dim] if a not in move.axes))
        return None

    def gathers(before, mesh, pool):
        for dim, axes in enumerate(before.dims):
            yield from (AllGather((axis,), dim) for axis in axes)

    rewritten(patch, change)
    patch.setattr(moves, "MOVES", (gathers,))


def one_axis_reduces_all(patch):
    def change(move, before):
        return Sharding(before.dims) if isinstance(move, AllReduce) and before.unreduced else None

    rewritten(patch, change)


RULES = [
    (sums_are_forgotten, "A[I, J_X] · B[J_X, K] → C[I, K]"),
    (partial_operands_are_taken_for_sums, "A[I, J]{U_X} · B[J, K_Y] → C[I, K_Y]"),
    (every_function_is_linear, "C[I] = sum_K(relu(A[I, J_X] · B[J_X, K]))"),
    (functions_run_over_sharded_dims, "B[I, J_X] = softmax_J(A[I, J_X])"),
    (axes_of_a_scatter_come_first, "A[I_X, J]{U_Y} → A[I_YX, J]"),
    (xy_is_yx, "A[I_XY, J] → A[I_Y, J]"),
    (one_axis_reduces_all, "A[I, J]{U_XY} → A[I, J]"),
]


@pytest.mark.parametrize("plant, text", RULES, ids=[plant.__name__ for plant, _ in RULES])
def test_a_wrong_rule_gives_plans_that_are_neither_legal_nor_right(plant, text, monkeypatch):
    right = planned(text).schedule
    assert illegal(right) is None
    assert "softmax" in text or computes_the_reference(right)
    plant(monkeypatch)
    wrong = planned(text).schedule
    assert illegal(wrong) is not None
    assert not computes_the_reference(wrong)


def test_a_function_marked_linear_by_mistake_computes_something_else(monkeypatch):
    """The table of functions is shared by planner and checker: values alone tell."""
    text = "C[I, K]{U_X} = relu(A[I, J_X] · B[J_X, K])"
    with pytest.raises(ShardcError, match="SHC220"):
        planned(text)
    object.__setattr__(functions.FUNCTIONS["relu"], "linear", (0,))
    try:
        wrong = planned(text).schedule
        assert not computes_the_reference(wrong)
    finally:
        object.__setattr__(functions.FUNCTIONS["relu"], "linear", ())


IJ, JK, IK = ("I", "J"), ("J", "K"), ("I", "K")
XY = Mesh.of({"X": 2, "Y": 2})


def test_the_rule_of_products_is_the_law_on_every_pair_of_shardings():
    """Also where the planner never asks, since it draws only pairs that meet."""
    refused = 0
    for pair in itertools.product(all_shardings(XY, 2), repeat=2):
        law = product_law((IJ, JK), pair, IK)
        assert products.local_product((IJ, JK), IK, pair) == (law if isinstance(law, Sharding) else None), pair
        refused += isinstance(law, str)
    assert refused > 0


FUNCTIONS = [
    ("relu", (), (IJ,), IJ, ()),
    ("neg", (), (IJ,), IJ, ()),
    ("softmax", ("J",), (IJ,), IJ, ()),
    ("max", ("J",), (IJ,), ("I",), ()),
    ("logsumexp", ("I", "J"), (IJ,), (), ()),
    ("add", (), (IJ, IJ), IJ, ()),
    ("add", (), (IJ, ("J",)), IJ, ()),
    ("div", (), (IJ, ("J",)), IJ, ()),
    ("div", (), (("I",), ("J",)), IJ, ()),
    ("mul", (), (IJ, ("J",)), IJ, ()),
    ("maximum", (), (("J",), IJ), IJ, ()),
    ("where", (), (IJ, ("J",), IJ), IJ, ()),
    ("less", (), (("I",), ("J",)), IJ, ()),
    ("mul", (), (IJ,), IJ, (2, None)),
    ("div", (), (IJ,), IJ, (None, 8)),
    ("div", (), (IJ,), IJ, (8, None)),
    ("add", (), (IJ,), IJ, (None, 1)),
    ("add", (), (IJ,), IJ, (0, None)),
    ("sub", (), (IJ,), IJ, (None, 0.0)),
    ("where", (), (IJ, IJ), IJ, (None, None, 0)),
    ("where", (), (IJ, ("J",)), IJ, (None, 2, None)),
    ("where", (), (("J",),), ("J",), (None, 0, 0)),
]


@pytest.mark.instant
@pytest.mark.parametrize("name, over, dims, left, numbers", FUNCTIONS)
def test_the_rule_of_functions_is_the_law_on_all_shardings(name, over, dims, left, numbers):
    for operands in itertools.product(*(list(all_shardings(XY, len(names))) for names in dims)):
        law = function_law(name, over, dims, operands, left, numbers)
        found = applied(name, over, dims, left, operands, numbers)
        if isinstance(law, Sharding) and law.reduction != "sum":  # to be followed by its AllReduce
            reduced = reduced_across(name, over, dims[0], left, operands[0], XY)
            assert found is None and reduced == (Sharding(law.dims), XY.ordered(law.unreduced)), operands
            continue
        assert found == (law if isinstance(law, Sharding) else None), operands


@pytest.mark.instant
@pytest.mark.parametrize(
    "move, before",
    [
        (AllGather(("Y", "X"), 0), Sharding.of(["XY", ""])),  # in the other order
        (AllGather(("X",), 0), Sharding.of(["XY", ""])),  # the major axis
        (AllToAll(("X",), 1, 0), Sharding.of(["X", ""])),  # from where it is not
        (AllReduce(("Y",)), Sharding.of(["", ""], "X")),
        (AllReduce(("X", "Y")), Sharding.of(["", ""], "X")),
        (ReduceScatter(("X",), 0), Sharding.of(["X", ""])),
        (JointScatter(((0, ("X",)), (1, ("Y",)))), Sharding.of(["", ""], "X")),
        (JointScatter(((0, ("X",)),)), Sharding.of(["", ""], "X")),  # one dim
        (Slice(("X",), 0), Sharding.of(["", ""], "X")),  # would keep a part of a part
        (Slice(("X",), 1), Sharding.of(["X", ""])),
    ],
)
def test_what_a_move_refuses(move, before):
    with pytest.raises(IllegalMove):
        collectives.apply(move, before, MESH)


# --- planner


def searched(text, mesh=MESH, dims=DIMS):
    """What the search finds. After it moves become one exchange in unequal pieces where that is cheaper, and so would
    many that a planted bug makes too dear."""
    program = shardc.parse(text, mesh=mesh, dims=dims, dtype="f32")
    planning = Planning(Objective.BYTES, idle.Idle.USE, planned_at_once)
    return AsGiven.of(program, LinkModel.of(program.mesh, chip("v5p")), planning).best


def wire_bytes(text, mesh=MESH, dims=DIMS):
    """Of what the search finds; None if that is nothing."""
    try:
        return searched(text, mesh, dims).cost.wire_bytes
    except ShardcError as refusal:
        assert refusal.code == "SHC220"
        return None


def fewest(text, mesh=MESH, dims=DIMS, uneven=False):
    """The same by brute force."""
    program = shardc.parse(text, mesh=mesh, dims=dims, dtype="f32")
    patterns = [array.pattern.exact for array in (*program.inputs, program.statements[0])]
    if len(patterns) == 2:
        return shortest_path_oracle(program.mesh, program.shape(program.inputs[0].dims), *patterns, 4, uneven)
    return matmul_oracle(program.mesh, dims, *patterns, 4, uneven=uneven)


SMALLEST = {  # the smallest program that needs each kind of move, by the generator's name
    "slices": "A[I] → A[I_X]",
    "gathers": "A[I_X] → A[I]",
    "joint_gathers": "A[I_X, J_Y] → A[I, J]",  # in one step
    "reductions": "A[N]{U_X} → A[N]",  # N = 5 cannot be scattered
    "scatters": "A[I]{U_X} → A[I_X]",
    "joint_scatters": "A[I, J]{U_XY} → A[I_X, J_Y]",
    "exchanges": "A[I_X, J] → A[I, J_X]",
    "permutes": "A[I_XY] → A[I_YX]",
    "changes_of_axes": "A[I_X] → A[I_Y]",  # in one step
    "pieces_exchanged": "A[I_X, J_Y] → A[I_YX, J]",
}


def test_every_move_has_a_program_that_needs_it():
    assert {rule.__name__ for rule in moves.MOVES} == set(SMALLEST)


@pytest.mark.instant
@pytest.mark.parametrize("name", SMALLEST)
def test_a_move_left_out_is_missed(name, monkeypatch):
    """By the oracle, in bytes; or the same bytes take more steps. What would make up for it is off: routes, which may
    have the move themselves, and sums that are scattered once all steps stand."""
    each = 4 if name == "changes_of_axes" else 2  # of two devices a gather brings as much as a change of axes
    text, mesh, dims = SMALLEST[name], Mesh.of({"X": each, "Y": each}), DIMS | {"N": 5}
    monkeypatch.setattr(Search, "shortcut", lambda self, seed, start, number, goal, found: found)
    monkeypatch.setattr(Search, "_routes", lambda *_: [])
    monkeypatch.setattr(loops, "with_sums_scattered", lambda block, statements, *_: (block, statements))

    def found():
        bytes_found = wire_bytes(text, mesh, dims)
        return bytes_found == fewest(text, mesh, dims) and len(searched(text, mesh, dims).schedule.steps)

    assert found() == 1
    monkeypatch.setattr(moves, "MOVES", tuple(rule for rule in moves.MOVES if rule.__name__ != name))
    assert found() != 1


TOGETHER = [
    "A[I_XY, J] → A[I, J]",
    "A[I, J]{U_XY} → A[I_XY, J]",
    "A[I, J]{U_XY} → A[I_YX, J]",
    "A[I_XY, J] → A[I, J_XY]",
    "A[N]{U_XY} → A[N]",
]


@pytest.mark.instant
@pytest.mark.parametrize("text", TOGETHER)
def test_axes_that_can_travel_together_do(text):
    """One step where two would bring as many bytes, or more: 2 · 7/8 · 20 B, not 2 · 1/2 · 20 B and 2 · 3/4 · 20 B."""
    plan = planned(text, dims=DIMS | {"N": 5})
    assert len(plan.steps) == 1
    assert plan.cost.wire_bytes == fewest(text, dims=DIMS | {"N": 5})


def first_found(patch):
    """Greedy: depth first, and the first way found is kept."""
    pop = SimpleNamespace(heapify=heapq.heapify, heappop=list.pop, heappush=list.append)
    patch.setattr(run, "heapq", pop)


def dearest_first(patch):
    def heappop(queue):
        return queue.pop(queue.index(max(queue)))

    patch.setattr(run, "heapq", SimpleNamespace(heapify=heapq.heapify, heappop=heappop, heappush=list.append))


def test_an_exchange_in_unequal_pieces_left_out_is_missed(monkeypatch):
    """2×3: a block of 6 elements is needed where nothing of it is held; without, half of I's 18 are exchanged first."""
    text, mesh, dims = "A[I_X, J_Y] → A[I_Y, J_X]", {"X": 2, "Y": 3}, {"I": 6, "J": 6}
    assert planned(text, mesh, dims).cost.wire_bytes == fewest(text, mesh, dims, uneven=True) == 6 * 4
    monkeypatch.setattr(finer, "directly", lambda *_: Directly(None, 0))
    assert planned(text, mesh, dims).cost.wire_bytes == fewest(text, mesh, dims) == 9 * 4


def operands_stay_where_they_are(patch):
    """Pruned too early: operands are never moved before a product."""
    right = nodes._products

    def in_place(problem, expr, tables, search, goal):
        fixed = tuple(nodes.Table(t.expr, t.search, t.seeds, t.origins, fixed=True) for t in tables)
        return right(problem, expr, fixed, search)

    patch.setattr(nodes, "_products", in_place)


PLANNERS = [
    (first_found, "A[I_X, J] → A[I_Y, J]"),
    (dearest_first, "A[I_X, J] → A[I_Y, J]"),
    (operands_stay_where_they_are, "A[I, J_X] · B[J, K] → C[I, K]"),
]


@pytest.mark.instant
@pytest.mark.parametrize("plant, text", PLANNERS, ids=[plant.__name__ for plant, _ in PLANNERS])
def test_a_planner_that_is_not_optimal_is_seen_by_the_oracle(plant, text, monkeypatch):
    assert wire_bytes(text) == fewest(text)
    plant(monkeypatch)
    assert wire_bytes(text) != fewest(text)


def test_max_for_min_at_the_root_is_seen(monkeypatch):
    """`C[I_?, K_?]` of a product of case 1 is free."""
    text = "C[I_?, K_?] = A[I_X, J] · B[J, K]"
    assert wire_bytes(text) == 0
    monkeypatch.setattr(strategies, "min", max, raising=False)
    assert wire_bytes(text) != 0


def test_ties_are_broken_by_the_order_of_dims():
    """`A[I, J] → A[I_X, J_Y]` is two slices in either order; the first dim goes first."""
    steps = planned("A[I, J] → A[I_X, J_Y]").steps
    assert [(step.op, step.dim) for step in steps] == [("Slice", "I"), ("Slice", "J")]


def test_each_type_is_priced_by_its_own_bytes(monkeypatch):
    """`A · B → C` with I = J = K = 48 on X=3, A and B int8, C int32.

    Exchange A (2/3 · 768 B) and gather B (2 · 768 B): 2,048 B. Reducing and scattering C is
    2/3 · 9,216 B; counted as int8 it would seem 1,536 B, and be taken.
    """
    text, sizes = "C: int32[I_X, K] = A: int8[I, J_X] · B: int8[J_X, K]", {"I": 48, "J": 48, "K": 48}
    assert wire_bytes(text, {"X": 3}, sizes) == 2048
    right = problem.Search

    def one_for_all(graph, shape, dtype, *others):
        return right(graph, shape, DTYPES["int8"], *others)

    monkeypatch.setattr(problem, "Search", one_for_all)
    assert wire_bytes(text, {"X": 3}, sizes) == 6144


@pytest.mark.instant
@pytest.mark.parametrize("first, second", [({"X": 2, "Y": 4}, {"X": 4, "Y": 2}), ({"X": 2, "Y": 4}, {"Y": 4, "X": 2})])
def test_a_plan_does_not_depend_on_the_meshes_planned_for_before(first, second, monkeypatch):
    """Sizes and order of the axes are part of what is remembered."""
    monkeypatch.setattr(problem, "sharding_graph", graph.sharding_graph)
    text = "A[I_X, J_Y] · B[J_Y, K] → C[I, K_X]"
    graph.sharding_graph.cache_clear()
    alone = planned(text, second).to_json()
    graph.sharding_graph.cache_clear()
    planned(text, first)
    assert planned(text, second).to_json() == alone


def test_a_search_may_do_as_much_work_as_its_budget_and_no_more(monkeypatch):
    """`A[I_X] → A[I]`: to settle `[I_X]`, its one move found and taken, and `[I]` is the goal."""
    exact = budget.NODE + budget.MOVE + budget.EDGE

    def notes():
        return " ".join(planned("A[I_X] → A[I]", {"X": 2}).notes)

    monkeypatch.setattr(progress, "PLAN", exact)
    assert "budget" not in notes()
    monkeypatch.setattr(progress, "PLAN", exact - 1)
    assert "budget" in notes()


def test_a_search_over_as_many_placements_as_the_limit_is_not_narrowed(monkeypatch):
    """Two axes have 11 placements on two dims, three have 49."""

    def note(*axes):
        return " ".join(planned("A[I_X, J] → A[I, J]", mesh=dict.fromkeys(axes, 2)).notes)

    monkeypatch.setattr(idle, "MAX_APART", 49)
    assert "searched over" not in note("X", "Y", "Z")
    monkeypatch.setattr(idle, "MAX_APART", 48)
    assert "and over Y, Z as one" in note("X", "Y", "Z")
    monkeypatch.setattr(idle, "MAX_APART", 10)
    monkeypatch.setattr(idle, "MAX_PLACEMENTS", 11)
    assert "searched over" not in note("X", "Y")
    monkeypatch.setattr(idle, "MAX_PLACEMENTS", 10)
    assert "not over Y" in note("X", "Y")


# --- bounds and prices


def bound(text):
    return planned(text)._found.bound_bytes


def test_the_bound_is_of_the_device_that_holds_the_least():
    """`A[I_X, J] → A[I_Y, J]`: device (0, 3) holds nothing of its block of 4 × 32 elements; (0, 0) holds all."""
    assert bound("A[I_X, J] → A[I_Y, J]") == 4 * 32 * 4 == fewest("A[I_X, J] → A[I_Y, J]")


def test_what_serves_two_outputs_need_come_only_once():
    once = 8 * 32 * 4  # the half of A that a device lacks
    assert bound("B[I, J] = A[I_X, J]") == bound("B[I, J] = A[I_X, J]\nC[I, J] = A[I_X, J]") == once


def test_an_all_reduce_priced_as_one_gather_is_seen_by_the_law_of_its_parts(monkeypatch):
    """AllReduce = ReduceScatter, then AllGather; the planner's wire bytes must agree with that."""

    def priced(name):
        return planned(f"{name}(A[I, J]{{U_X}}) → A[I, J]").cost.wire_bytes

    parts = planned("A[I_X, J] = ReduceScatter_X(A[I, J]{U_X})\nA[I, J] = AllGather_X(A)").cost.wire_bytes
    assert priced("AllReduce_X") == parts
    right = AllReduce.wire_bytes
    monkeypatch.setattr(AllReduce, "wire_bytes", lambda self, *rest: right(self, *rest) // 2)
    assert priced("AllReduce_X") != parts


def test_operations_are_counted_per_device():
    """2·I·J·K over the eight devices, each axis once though J_Y is on both operands; a bare sum adds, and no more."""
    assert planned("A[I_X, J_Y] · B[J_Y, K] → C[I_X, K]{U_Y}").cost.flops == 2 * 16 * 32 * 64 // 8
    assert planned("C[I_X] = sum_J(A[I_X, J])").cost.flops == 16 * 32 // 2
    assert planned("C[J, I_X] = A[I_X, J]").cost.flops == 0  # turned


def test_the_peak_is_not_the_end():
    """`A[I_XY] → [I] → [I_X] → [I_XY]` of 64 B: 8 held, 64 gathered, 32 sliced from them: 104; then less."""
    f32 = DTYPES["f32"]
    cuts = ("XY", "", "X", "XY")
    values = [Array("A", ("I",), (16,), Sharding.of([axes]), f32) for axes in cuts]
    ops = (AllGather(("X", "Y"), 0), Slice(("X",), 0), Slice(("Y",), 0))
    steps = [Step(op, (place,), (place + 1,), 0, StepCost()) for place, op in enumerate(ops)]
    assert peak_bytes(Block(tuple(values), (0,), (3,), tuple(steps)), MESH) == 8 + 64 + 32


def test_times_of_steps_add_up():
    cost = planned("A[I, J_X] · B[J_X, K] → C[I, K]").cost
    assert min(cost.compute_s, cost.communication_s) > 0
    assert cost.time_s == pytest.approx(cost.compute_s + cost.communication_s)


def test_wide_types_multiply_slower_and_narrow_ones_faster():
    known = chip("v5p")
    f32, bf16, int8 = (known.peak(DTYPES[name]) for name in ("f32", "bf16", "int8"))
    assert f32 < bf16 < int8


# --- the parser


@pytest.mark.instant
@pytest.mark.parametrize("space", ["\\ ", "\\,", "\\;", "\\:", "\\!", "&"])
def test_every_space_of_latex_is_a_space(space):
    assert parse_tree(f"A[I]{space}·{space}B[I] → C[]") == parse_tree("A[I] · B[I] → C[]")


def test_the_span_of_a_quoted_axis_is_inside_its_quotes():
    with pytest.raises(ShardcError, match="SHC203") as caught:
        shardc.parse("Mesh({'X': 2, 'XY': 2, 'X': 4})\nA[I_X] → A[I]")
    assert caught.value.span.text == "X"


def test_chips_have_the_names_that_clouds_give_them():
    for alias, name in (("v4", "v4p"), ("v5litepod", "v5e"), ("tpu7x", "v7x")):
        assert chip(alias) is chip(name)
