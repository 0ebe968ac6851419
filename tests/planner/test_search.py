"""What a search skips: what bounds rule out, products that cannot be best, axes that a program leaves idle."""

import math
import random
from contextlib import contextmanager

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import LinkModel, chip
from shardc.ir.bundle import Bundle
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding, spell
from shardc.planner import Objective, idle
from shardc.planner.digits import products as in_digit_products
from shardc.planner.paths.graph import Graph
from shardc.planner.paths.search import Search
from shardc.planner.problem import Problem
from shardc.planner.statement.nodes import table_of
from shardc.planner.statement.strategies import cheapest
from shardc.rules.placements import placements
from shardc.simulate import reference, run, sample_inputs
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal, meshes, shardings

BF16 = DTYPES["bf16"]
CHIPS = st.sampled_from(["v5e", "v5p", "H100"])
OBJECTIVES = st.sampled_from(list(Objective))
SHAPES = st.sampled_from([(12, 24), (1728, 3456), (3456 * 64, 1728 * 64)])


@st.composite
def searches(draw):
    """A search, and two shardings of its array, the second without partial sums."""
    mesh = draw(meshes(max_axes=3, max_size=4))
    source, target = draw(shardings(mesh, 2)), draw(shardings(mesh, 2, unreduced=False))
    shape = draw(SHAPES)
    made = Search(
        Graph(mesh, 2, mesh.names), shape, DTYPES["bf16"], LinkModel.of(mesh, chip(draw(CHIPS))), draw(OBJECTIVES)
    )
    graph = made.graph
    assume(made.divides(graph.number(source)) and made.divides(graph.number(target)))
    return made, graph.number(source), graph.number(target)


@settings(max_examples=100)
@given(searches())
def test_no_path_is_cheaper_than_its_floor(case):
    search, source, goal = case
    prices = search.paths({source: 0}).price
    assert all(search.bound(source, number) <= price for number, price in prices.items())
    assert search.bound(source, goal) <= search.paths({source: 0}, goal).price.get(goal, math.inf)


@pytest.mark.instant
@settings(max_examples=100)
@given(searches())
def test_a_move_saves_no_more_than_it_costs(case):
    """So a search towards a goal settles each sharding once."""
    search, source, goal = case
    for edge in search.graph.edges(source):
        if search.divides(edge.target):
            assert search.bound(source, goal) <= search.price(source, edge) + search.bound(edge.target, goal)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("source", "goal"),
    [(("Z", "X", ""), ("Y", "X", "")), (("Z", "X", ""), ("", "ZX", "Y")), (("", "Z", "YX"), ("", "YZ", ""))],
)
def test_a_search_towards_a_goal_leaves_aside_what_takes_as_long_but_brings_more(source, goal):
    """A bound that is a little too low makes a search look at every path of the same time: 11 to 20 shardings here."""
    mesh = Mesh.of({"X": 4, "Y": 4, "Z": 4})
    search = Search(
        Graph(mesh, 3, mesh.names), (2304, 2304, 2304), BF16, LinkModel.of(mesh, chip("v5p")), Objective.TIME
    )
    before, after = (search.graph.number(Sharding.of(dims)) for dims in (source, goal))
    settled = search.paths({before: 0}, after).price
    assert after in settled
    assert len(settled) <= 8


@contextmanager
def without_shortcuts():
    """Routes in digits are tried where a search comes by, so they are no part of what it must find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "shortcut", lambda self, seed, start, number, goal, found: found)
        yield


@settings(max_examples=100)
@given(searches())
def test_a_search_towards_a_goal_is_no_dearer_than_one_of_everything_and_keeps_its_limit(case):
    search, source, goal = case
    with without_shortcuts():
        best = search.paths({source: 0}).price[goal]
        found = search.paths({source: 0}, goal).price[goal]
    assert found <= best
    assert search.paths({source: 0}, goal).price[goal] <= best
    assert search.paths({source: 0}, goal, found).price[goal] <= found
    below = search.paths({source: 0}, goal, search.bound(source, goal) - 1).price
    assert goal == source or goal not in below


def replayed(search, paths, number, seeds):
    """What the seed and the moves cost by which a sharding is reached."""
    seed, moves = paths.moves_to(number)
    return seeds[seed] + (search.price_of(search._costs.along(seed, tuple(moves)).legs, len(moves)) if moves else 0)


@settings(max_examples=30)
@given(searches(), st.integers(0, 8), st.integers(0, 8))
def test_from_several_priced_shardings_each_is_reached_as_from_the_best_of_them(case, here, there):
    """The price is that of the moves, and from no seed, nor by its route in digits, is there a cheaper way."""
    search, one, other = case
    assume(one != other)
    with without_shortcuts():
        alone = {seed: search.paths({seed: 0}).price for seed in (one, other)}
    seeds = {one: alone[one][other] * here // 8, other: alone[one][other] * there // 8}
    least = {n: min(start + alone[seed].get(n, math.inf) for seed, start in seeds.items()) for n in alone[one]}
    found = search.paths(seeds)
    for number, price in found.price.items():
        assert price == replayed(search, found, number, seeds)
        assert price <= least[number]
        for seed in seeds:
            by = search.route(seed, number) if search.graph.needs_digits(seed, number) else None
            assert by is None or price <= seeds[seed] + by[0]
    goal = max(found.price, key=found.price.__getitem__)
    towards = search.paths(seeds, goal)
    assert replayed(search, towards, goal, seeds) == towards.price[goal] <= least[goal]


@st.composite
def products(draw, most=3):
    mesh = draw(meshes(max_axes=most, max_size=4))
    arrays = [draw(shardings(mesh, 2, unreduced=False)) for _ in range(3)]
    a, b, c = (name + spell(dims, lies) for name, dims, lies in zip("ABC", ("IJ", "JK", "IK"), arrays, strict=True))
    return shardc.parse(f"{a} · {b} → {c}", mesh=mesh, dims=dict.fromkeys("IJK", 1728), dtype="bf16")


@settings(max_examples=60)
@given(products(), OBJECTIVES, CHIPS)
def test_a_product_towards_its_goal_is_no_dearer_than_the_best_of_all_local_products(program, objective, name):
    (statement,) = program.statements
    problem = Problem(program, LinkModel.of(program.mesh, chip(name)), objective, program.mesh.names)
    for each in program.inputs:
        array = Array(each.name, each.dims, program.shape(each.dims), each.pattern.exact, each.dtype)
        problem = problem.given(problem.environment.with_value(array))
    with without_shortcuts():
        every = table_of(problem, statement.expr)
        goal = cheapest(every, statement)
        best = every.paths(goal).price[goal]
    few = table_of(problem, statement.expr, statement.pattern.exact)
    assert few.paths(goal).price[goal] <= best
    assert len(few.seeds) < len(every.seeds) or len(every.seeds) == 1 or program.mesh.devices == 1


@settings(max_examples=15)
@given(products(most=2), st.integers(2, 3))
def test_idle_axes_together_save_bytes_and_mean_the_same(program, count):
    names = "STU"[:count]
    wide = Mesh((*program.mesh.axes, *((name, 2) for name in names)))
    text, in_digits = program.statements[0].text, []

    def noted(*arguments):
        in_digits.append(found_in_digits(*arguments))
        return in_digits[-1]

    found_in_digits = in_digit_products.in_digits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle, "MAX_APART", 1)
        patch.setattr(in_digit_products, "in_digits", noted)
        beside = shardc.plan(text, mesh=wide, dims=dict.fromkeys("IJK", 1728), dtype="int32", objective="bytes")
    alone = shardc.plan(text, mesh=program.mesh, dims=dict.fromkeys("IJK", 1728), dtype="int32", objective="bytes")
    assert beside.cost.wire_bytes <= alone.cost.wire_bytes
    assert any(" as one" in note for note in beside.notes)
    assert_schedule_legal(beside.schedule)
    if any(found is not None for found in in_digits):
        return  # on digits each axis stands for itself
    for array in beside.schedule.values:
        places = [[axis for axis in axes if axis in names] for axes in array.sharding.dims]
        assert sorted(places)[-1] in ([], list(names))


def test_axes_that_move_as_one_are_seen_as_one():
    bundle = Bundle(Mesh.of({"X": 2, "S": 2, "T": 4}), ("S", "T"))
    assert bundle.coarse == Mesh.of({"X": 2, "S": 8})
    together, apart = Sharding.of([["X", "S", "T"], []]), Sharding.of([["S"], ["T"]])
    assert bundle.coarsened(together) == Sharding.of([["X", "S"], []])
    assert bundle.refined(bundle.coarsened(together)) == together
    assert bundle.coarsened(apart) is None


def test_an_idle_axis_that_no_dim_has_room_for_is_left_out():
    mesh = {"X": 2, "Y": 2, "S": 2, "T": 2, "U": 7}
    plan = shardc.plan(
        "A[I_X, J_Y] · B[J, K] → C[I, K]", mesh=mesh, dims=dict.fromkeys("IJK", 64), dtype="bf16", objective="bytes"
    )
    assert any("over S, T as one; not over U" in note for note in plan.notes)


def test_plans_with_axes_as_one_compute_the_reference():
    text, mesh = "A[I, J_X] · B[J_X, K] → C[I, K]", {"X": 2, "R": 2, "S": 2, "T": 2, "U": 2}
    plan = shardc.plan(text, mesh=mesh, dims=dict.fromkeys("IJK", 32), dtype="int32", objective="bytes")
    assert "R, S, T, U" in " ".join(plan.notes)
    wholes = sample_inputs(plan.program)
    (blocks,) = run(plan.schedule, wholes)
    assert (blocks[0] == wholes[0] @ wholes[1]).all()


BESIDE = ("X=4,Y=4,Z=4", "X=2,Y=4,Z=8", "X=2,Y=3,Z=4")


@pytest.mark.instant
@pytest.mark.parametrize("mesh", BESIDE)
@pytest.mark.parametrize("seed", range(8))
def test_no_reshard_by_time_is_slower_than_the_one_by_bytes(mesh, seed):
    """By bytes idle axes are always moved; by time, where that takes less time and no more bytes."""
    drawn, shape = random.Random(seed), dict.fromkeys("IJ", 6144)
    ways = list(placements(("X", "Y"), 2))
    source, target = (Sharding(drawn.choice(ways)) for _ in range(2))
    text = f"A{spell(('I', 'J'), source)} → A{spell(('I', 'J'), target)}"
    fast, small = (
        shardc.plan(text, mesh=mesh, dims=shape, dtype="int32", chip="v5p", objective=each)
        for each in ("time", "bytes")
    )
    assert 0.98 * fast.cost.time_s <= small.cost.time_s * (1 + 1e-9)
    assert fast.cost.wire_bytes >= small.cost.wire_bytes
    assert_schedule_legal(fast.schedule)


def test_by_time_an_array_also_moves_over_an_idle_axis_where_that_brings_no_more_bytes():
    """`A[I_X, J] → A[I_Y, J]`: sliced over Z, 1/16 of A is permuted, and two axes' links gather it."""
    given = dict(mesh="X=4,Y=4,Z=4", dims={"I": 4096, "J": 4096}, dtype="bf16", chip="v5p")
    beside = shardc.plan("A[I_X, J] → A[I_Y, J]", **given)
    alone = shardc.plan("A[I_X, J] → A[I_Y, J]", **given | {"mesh": "X=4,Y=4"})
    assert any("Z" in step.op.axes for step in beside.schedule.steps)
    assert beside.cost.time_s < 0.5 * alone.cost.time_s
    assert beside.cost.wire_bytes <= alone.cost.wire_bytes
    gathered = shardc.plan("A[I_X, J] → A[I, J]", **given)  # over Y and Z as well it would bring more
    assert [(step.name, step.op.axes) for step in gathered.schedule.steps] == [("AllGather", ("X",))]


def test_a_memory_limit_is_kept_over_idle_axes_or_by_a_permute():
    """And one that nothing keeps names the smallest peak: of a permute of whole blocks."""
    text, given = "A[I_X, J] → A[I_Y, J]", dict(mesh="X=4,Y=4,Z=4", dims={"I": 4096, "J": 4096}, chip="v5p")
    beside, alone = shardc.plan(text, **given), shardc.plan(text, **given | {"mesh": "X=4,Y=4"})
    assert beside.cost.peak_bytes < alone.cost.peak_bytes
    assert shardc.plan(text, **given, memory=beside.cost.peak_bytes).cost == beside.cost
    leanest = shardc.plan(text, **given, memory=beside.cost.peak_bytes - 1)
    assert [(step.op, step.axes) for step in leanest.steps] == [("CollectivePermute", ("X", "Y"))]
    with pytest.raises(shardc.ShardcError, match=f"smallest peak found is {leanest.cost.peak_bytes}"):
        shardc.plan(text, **given, memory=leanest.cost.peak_bytes - 1)


@pytest.mark.instant
@pytest.mark.parametrize("text", ["A[I_X, J]{U_Y} → A[I_Y, J]", "A[I_X, J] → A[I_Y, J]"])
def test_what_moves_over_an_idle_axis_is_the_reference(text):
    plan = shardc.plan(text, mesh="X=4,Y=2,Z=4", dims={"I": 512, "J": 1024}, dtype="int32", chip="v5e")
    assert any("Z" in step.op.axes for step in plan.schedule.steps)
    wholes = sample_inputs(plan.program)
    (blocks,), (wanted,) = run(plan.schedule, wholes), reference(plan.program, wholes)
    assert_equal_on_every_device(blocks, wanted, plan.schedule.values[plan.schedule.outputs[0]], plan.schedule.mesh)


@pytest.mark.instant
@settings(max_examples=60)
@given(st.sampled_from(list(Objective)), st.data())
def test_what_a_search_found_a_price_to_be_above_bounds_it(objective, data):
    """And no bound is above the price. Towards one goal there are routes that a search for all does not go."""
    program = shardc.parse("A[I_X, J_Y] · B[J, K_Y] → C[I, K_X]", mesh="X=2,Y=2", dims="I=8,J=8,K=8", dtype="f32")
    problem = Problem(program, LinkModel.of(program.mesh, chip("v5p")), objective, program.mesh.names)
    expr = program.statements[0].expr
    prices = dict(table_of(problem, expr).paths().price)
    goal, table = data.draw(st.sampled_from(sorted(prices))), table_of(problem, expr)
    before, limit = table.bound(goal), prices[goal] - data.draw(st.integers(0, 2))
    assert before <= prices[goal]
    found = table.price(goal, limit)
    assert before <= found <= limit if found is not None else limit < prices[goal]
    assert (prices[goal] if found is None else found) >= table.bound(goal) >= (limit + 1 if found is None else before)
