"""Chains of products: every order that means the same is tried, and the cheapest is taken."""

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.cost import LinkModel, chip
from shardc.errors import ShardcError
from shardc.ir.chains import chain_of, orders, turned
from shardc.ir.expressions import Product, operands
from shardc.ir.laws import product_law
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Einsum, Schedule
from shardc.ir.sharding import Sharding, spell
from shardc.planner import Objective, plan_program
from shardc.planner.idle import Idle
from shardc.planner.planned import Planning
from shardc.planner.problem import Problem
from shardc.planner.program.loops import planned_at_once
from shardc.planner.statement.nodes import _can_afford
from shardc.planner.whole.plan import in_turn_joined
from shardc.testing import Case, all_shardings, assert_equal_on_every_device, assert_schedule_legal, meshes, shardings
from shardc.testing.oracles import _graph

NAMES = "ABCDE"


@st.composite
def chains(draw, min_operands=2, max_operands=5, max_axes=2, max_size=4, rank=2):
    """Products of arrays that share dims as they happen to, in any shardings; at times a loop, or a batched dim."""
    mesh = draw(meshes(max_axes, max_size))
    count = draw(st.integers(min_operands, max_operands))
    pool = "IJKLMN"[: count + 1]
    arrays = []
    for place in range(count):
        linked = draw(st.booleans()) or draw(st.booleans())
        dims = tuple(pool[place : place + rank]) if linked else tuple(draw(st.permutations(pool))[:rank])
        arrays.append((NAMES[place], dims, draw(shardings(mesh, rank, unreduced=False))))
    found = sorted({dim for _, dims, _ in arrays for dim in dims})
    result = tuple(draw(st.permutations(found))[: draw(st.integers(1, 2))])
    arrays.append(("R", result, draw(shardings(mesh, len(result), unreduced=False))))
    sizes = dict.fromkeys(found, 1)
    for _, dims, sharding in arrays:
        for dim, axes in zip(dims, sharding.dims, strict=True):
            sizes[dim] = math.lcm(sizes[dim], mesh.product(axes))
    sizes = {dim: size * draw(st.sampled_from([1, 2, 3, 8])) for dim, size in sizes.items()}
    *terms, target = (name + spell(dims, sharding) for name, dims, sharding in arrays)
    return Case(" · ".join(terms) + " → " + target, mesh, sizes)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A[I, J] · B[J, K] → y[I]", "A[I, J] · sum_K(B[J, K]) → y[I]"),
        ("sum_K(A[I, J] ·_J B[J, K]) → y[I]", "A[I, J] · sum_K(B[J, K]) → y[I]"),
        ("A[L, I, J] · B[J, K] → y[I]", "sum_L(A[L, I, J]) · sum_K(B[J, K]) → y[I]"),
        ("A[I, J] · B[J, K] · C[K, L] → y[I]", "A[I, J] · B[J, K] · sum_L(C[K, L]) → y[I]"),
        ("relu(A[I, J]) · C[J, L] → y[I]", "relu(A[I, J]) · sum_L(C[J, L]) → y[I]"),
        ("A[I, J] · (x[J, K] ⊙ z[J, K]) → y[I]", "A[I, J] · sum_K(x[J, K] ⊙ z[J, K]) → y[I]"),
    ],
)
def test_what_one_operand_alone_has_is_summed_before_the_product(text, said):
    """Summed with it, K would be multiplied as well: 2·I·J·K FLOPs for 2·I·J, and 471 µs for 137 where it was seen.
    With `_LOCAL` the product stays as it is written."""
    sizes = dict.fromkeys("IJKL", 8)
    plans = [shardc.plan(each, mesh="X=2,Y=2", dims={d: sizes[d] for d in sizes if d in each}) for each in (text, said)]
    assert plans[0].cost == plans[1].cost and plans[0].cost.flops <= 3 * 2 * 8**3
    assert [step.op for step in plans[0].steps] == [step.op for step in plans[1].steps]
    local = shardc.plan("A[I, J] ·_LOCAL B[J, K] → y[I]", mesh="X=2", dims="I=8,J=8,K=8")
    assert local.cost.flops == 2 * 8**3


def planned(case, objective="bytes", dtype="f32", **options):
    return shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype=dtype, objective=objective, **options)


def searched(case, text, objective):
    """The plan over whole axes, before axes are cut and moves become one exchange in unequal pieces."""
    program = shardc.parse(text, mesh=case.mesh, dims=case.dims, dtype="f32")
    return plan_program(program, LinkModel.of(program.mesh, chip("v5p")), Objective(objective))


def is_in_digits(plan):
    return any(step.name == "Reshape" for step in plan.schedule.steps)


def chain(text, mesh=None, **sizes):
    expr = shardc.parse(text, mesh=mesh or {}, dims=sizes).statements[0].expr
    assert isinstance(expr, Product)
    return chain_of(expr)


def assert_simulates(schedule: Schedule):
    wholes = simulate.sample_inputs(schedule.program, 0)
    blocks, expected = simulate.run(schedule, wholes), simulate.reference(schedule.program, wholes)
    for block, number, whole in zip(blocks, schedule.outputs, expected, strict=True):
        # Samples have so few bits that short sums of products are exact; five in a row are not, by some 2^-50.
        bound = 1e-12 * max(1.0, float(np.abs(whole).max(initial=0)))
        assert_equal_on_every_device(block, whole, schedule.values[number], schedule.mesh, bound)


# --- the price: brute force over bracketings, written apart from the planner


def bracketings(members):
    """Every way to take pairs of these, as nested tuples."""
    if len(members) == 1:
        return [members[0]]
    found = []
    first, *rest = members
    for chosen in product((False, True), repeat=len(rest)):
        left = [first, *(m for m, take in zip(rest, chosen, strict=True) if take)]
        right = [m for m, take in zip(rest, chosen, strict=True) if not take]
        if right:
            found += [(x, y) for x in bracketings(left) for y in bracketings(right)]
    return found


def leaves(tree):
    return [tree] if not isinstance(tree[0], tuple) else [leaf for part in tree for leaf in leaves(part)]


def value_dims(tree, every, result):
    """The dims of a bracketing's value: those that the result or an array outside has."""
    inside = leaves(tree)
    if len(inside) == 1:
        return inside[0][1]
    if len(inside) == len(every):
        return result
    outside = set(result) | {dim for leaf in every if leaf not in inside for dim in leaf[1]}
    return tuple(dim for dim in dict.fromkeys(dim for leaf in inside for dim in leaf[1]) if dim in outside)


def wire_bytes(tree, every, result, mesh, sizes, known, uneven=False):
    """Of each sharding of a bracketing's value the fewest wire bytes, over the moves of the oracle."""
    key = tuple(name for name, *_ in leaves(tree)), str(tree)
    if key in known:
        return known[key]
    dims = value_dims(tree, every, result)
    if not isinstance(tree[0], tuple):
        seeds = {tree[2]: 0}
    else:
        below = [wire_bytes(part, every, result, mesh, sizes, known, uneven) for part in tree]
        names = [value_dims(part, every, result) for part in tree]
        seeds = {}
        for (left, a), (right, b) in product(below[0].items(), below[1].items()):
            left_by = product_law(names, (left, right), dims)
            if isinstance(left_by, Sharding):
                seeds[left_by] = min(seeds.get(left_by, math.inf), a + b)
    graph = _graph(mesh, tuple(sizes[dim] for dim in dims), 4, uneven).copy()
    graph.add_weighted_edges_from(("seed", sharding, price) for sharding, price in seeds.items() if sharding in graph)
    found = nx.single_source_dijkstra_path_length(graph, "seed")
    known[key] = {sharding: price for sharding, price in found.items() if sharding != "seed"}
    return known[key]


def every_array(plan):
    return [(a.name, a.dims, a.sharding) for a in (plan.schedule.values[n] for n in plan.schedule.inputs)]


def pieces(arrays):
    """Arrays that hang together by dims."""
    graph = nx.Graph()
    graph.add_nodes_from(name for name, *_ in arrays)
    graph.add_edges_from((a, b) for a, d, _ in arrays for b, e, _ in arrays if set(d) & set(e))
    return [frozenset(piece) for piece in nx.connected_components(graph)]


def allowed(tree, every):
    """Whether each part of a bracketing hangs together, or falls apart no more than all arrays do, or is written."""
    if not isinstance(tree[0], tuple):
        return True
    inside = leaves(tree)
    hangs = len(pieces(inside)) == 1 or set(pieces(inside)) <= set(pieces(every))
    return (hangs or set(inside) == set(every[: len(inside)])) and all(allowed(part, every) for part in tree)


def sums_first(case):
    """Whether an array has a dim that no other has, nor the result."""
    counts = Counter(letter for letter in re.sub(r"_[A-Z]+|\b[A-Z](?=\[)", "", case.text) if letter.isalpha())
    return 1 in counts.values()


@settings(max_examples=40, deadline=None)
@given(chains(max_operands=4, max_size=3))
def test_a_chain_costs_what_the_cheapest_bracketing_costs(case):
    """Of what the search finds. Where moves become one exchange in unequal pieces the plan is cheaper than that, but
    not than the cheapest bracketing with such exchanges anywhere. Nor is any bracketing, of dims that one array alone
    has, below the plan that sums these first.
    """
    plan, search = planned(case), searched(case, case.text, "bytes")
    arrays = every_array(plan)
    goal = plan.schedule.values[plan.schedule.outputs[0]]
    trees = [tree for tree in bracketings(arrays) if allowed(tree, arrays)]

    def fewest(uneven):
        given = (arrays, goal.dims, case.mesh, case.dims, {}, uneven)
        return min(wire_bytes(tree, *given).get(goal.sharding, math.inf) for tree in trees)

    expected = fewest(uneven=False)
    assert plan.cost.wire_bytes <= search.cost.wire_bytes <= expected
    if sums_first(case):
        return
    assert search.cost.wire_bytes == expected or is_in_digits(search)
    assert plan.schedule.by is not None or is_in_digits(plan) or fewest(uneven=True) <= plan.cost.wire_bytes


def by_hand(case, tree, arrays, result, between):
    """The chain as statements, one a pair; `between` tells the shardings of the values in between."""
    lines, names = [], iter("TSVW")

    def spelled(part):
        if not isinstance(part[0], tuple):
            return part[0] + spell(part[1], part[2])
        terms = " · ".join(spelled(below) for below in part)
        if part is tree:
            lines.append(f"{terms} → {case.text.split(' → ')[1]}")
            return ""
        dims = value_dims(part, arrays, result)
        name = next(names) + spell(dims, between(dims))
        lines.append(f"{terms} → {name}")
        return name

    spelled(tree)
    return "\n".join(lines)


def price_by_hand(case, text, objective):
    """Infinite for a plan in digits: of a chain, digits are looked at where whole axes are cheapest, not everywhere."""
    try:
        plan = searched(case, text, objective)
    except ShardcError as error:
        assert error.code in ("SHC204", "SHC220")  # this value does not divide so, or cannot be had so
        return math.inf
    if is_in_digits(plan):
        return math.inf
    return plan.cost.time_s if objective == "time" else plan.cost.wire_bytes


@pytest.mark.exhaustive
@settings(max_examples=8, deadline=None)
@given(chains(3, 3, max_size=3), st.sampled_from(["time", "bytes"]))
def test_a_chain_costs_what_the_best_statements_by_hand_cost(case, objective):
    plan = searched(case, case.text, objective)
    arrays = every_array(plan)
    result = plan.schedule.values[plan.schedule.outputs[0]].dims
    prices = []
    for tree in (tree for tree in bracketings(arrays) if allowed(tree, arrays)):
        inner = next(part for part in tree if isinstance(part[0], tuple))
        rank = len(value_dims(inner, arrays, result))
        for sharding in all_shardings(case.mesh, rank):
            prices.append(
                price_by_hand(case, by_hand(case, tree, arrays, result, lambda dims, found=sharding: found), objective)
            )
    found = plan.cost.time_s if objective == "time" else plan.cost.wire_bytes
    slack = 1e-11 if objective == "time" else 0
    assert found <= min(prices) + slack
    written = {axis for _, _, sharding in arrays for axis in sharding.used}
    if objective == "bytes" or written >= set(case.mesh.names):  # by time only the axes written are searched
        assert found >= min(prices) - slack or is_in_digits(plan)


# --- the meaning


@settings(max_examples=60, deadline=None)
@given(chains(), st.sampled_from(["time", "bytes"]))
def test_every_chain_means_the_program(case, objective):
    plan = planned(case, objective)
    assert_schedule_legal(plan.schedule)
    assert_simulates(plan.schedule)


def inputs_of(strategy, program):
    """The numbers of the arguments among the strategy's own values: the first of an array's name that no step leaves.
    Others were on a way that one exchange has taken the place of."""
    made, given = {step.result for step in strategy.steps}, {}
    for number, value in enumerate(strategy.values):
        if number not in made:
            given.setdefault(value.name, number)
    return tuple(given[array.name] for array in program.inputs)


@pytest.mark.exhaustive
@example(
    Case(
        "A[I, J] · B[J_Y, K] · C[I, J_X] · D[L_Y, M] → R[I, M_Y]",
        Mesh.of({"X": 2, "Y": 4}),
        {"I": 1, "J": 4, "K": 1, "L": 8, "M": 8},
    )
)
@settings(max_examples=25, deadline=None)
@given(chains(3, 4))
def test_every_alternative_of_a_chain_means_the_program_and_costs_no_less(case):
    plan = planned(case)
    found = plan._found.statements[0].alternatives
    # Dims are seen as digits on the way from one sharding, not yet from the many that a part of a chain is made in.
    assert found[0].steps == plan.schedule.steps or any(step.name == "Reshape" for step in found[0].steps)
    assert [s.wire_bytes for s in found] == sorted(s.wire_bytes for s in found)
    for strategy in found[:3] + found[-3:]:
        result = strategy.steps[-1].result if strategy.steps else plan.schedule.outputs[0]
        block = Block(strategy.values, inputs_of(strategy, plan.program), (result,), strategy.steps)
        schedule = Schedule(plan.program, block)
        assert_schedule_legal(schedule)
        assert_simulates(schedule)


# --- the order


def order_of(plan):
    """Which arrays each product of a plan takes, by their names."""
    held = {number: plan.schedule.values[number].name for number in plan.schedule.inputs}
    found = []
    for step in plan.schedule.steps:
        names = "·".join(held[number] for number in step.operands)
        if isinstance(step.op, Einsum):
            found.append(names)
            names = f"({names})"
        held[step.result] = names
    return found


MESH = {"X": 2, "Y": 2}
THIN = {"I": 4096, "J": 4096, "K": 4096, "L": 8}


def test_a_thin_operand_is_multiplied_first():
    text = "A[I_X, J_Y] · B[J, K_Y] · V[K, L] → C[I_X, L]"
    assert order_of(shardc.plan(text, mesh=MESH, dims=THIN)) == ["B·V", "A·(B·V)"]
    assert order_of(shardc.plan(text, mesh=MESH, dims=THIN | {"I": 8, "L": 4096})) == ["A·B", "(A·B)·V"]
    both = [shardc.plan(text, mesh=MESH, dims=THIN, objective=name).cost for name in ("time", "bytes")]
    written = shardc.plan("T[I_?, K_?] = A[I_X, J_Y] · B[J, K_Y]; C[I_X, L] = T · V[K, L]", mesh=MESH, dims=THIN).cost
    kept = shardc.plan("T[I_X, K] = A[I_X, J_Y] · B[J, K_Y]; C[I_X, L] = T · V[K, L]", mesh=MESH, dims=THIN).cost
    assert written == both[0]  # where a statement ends makes no difference, unless T is asked for
    assert both[0].flops * 50 < kept.flops
    assert both[0].time_s < kept.time_s


def test_long_chains_find_the_order_of_the_textbook():
    """Sizes 30, 35, 15, 5, 10, 20, 25: 15,125 multiplications (Cormen and others, matrix-chain order)."""
    sizes = dict(zip("IJKLMNO", (30, 35, 15, 5, 10, 20, 25), strict=True))
    text = "A[I, J] · B[J, K] · C[K, L] · D[L, M] · E[M, N] · F[N, O] → G[I, O]"
    plan = shardc.plan(text, dims={name: size * 512 for name, size in sizes.items()}, dtype="bf16")
    assert plan.cost.flops == 2 * 15_125 * 512**3
    assert order_of(plan) == ["B·C", "A·(B·C)", "D·E", "(D·E)·F", "(A·(B·C))·((D·E)·F)"]


def test_other_orders_are_alternatives():
    plan = shardc.plan("A[I_X, J_Y] · B[J, K_Y] · V[K, L] → C[I_X, L]", mesh=MESH, dims=THIN)
    made = {
        tuple(step.result for step in other.steps if step.op == "Einsum") for other in plan.statements[0].alternatives
    }
    assert {len(steps) for steps in made} == {2}
    assert any(first.startswith("C_1[I") for first, _ in made)
    assert any(first.startswith("C_1[J") for first, _ in made)


def of_length(count):
    letters = "IJKLMNOPQRST"[: count + 1]
    terms = [f"{name}[{row}, {column}]" for name, row, column in zip("ABCDEFGHVWU", letters, letters[1:], strict=False)]
    return " · ".join(terms) + f" → X[I, {letters[-1]}]", dict.fromkeys(letters, 64) | {letters[-1]: 1}


@pytest.mark.exhaustive
def test_a_chain_of_ten_is_searched_and_of_a_longer_one_the_plan_says_what_was_tried():
    text, dims = of_length(10)
    plan = shardc.plan(text, dims=dims)
    assert order_of(plan)[0] == "V·W" and not plan.notes
    text, dims = of_length(11)
    assert any(
        "of 11 arrays there are too many orders to try all" in note for note in shardc.plan(text, dims=dims).notes
    )


def test_a_dim_that_ended_and_began_again_is_a_barrier():
    mlp = "In[B_X, D] ·_D Win[D, F] ·_F Wout[F, D] → Out[B_X, D]"
    found = chain(mlp, {"X": 2}, B=4096, D=8, F=64)
    assert len(found.operands) == 2
    assert isinstance(found.operands[0], Product)
    plan = shardc.plan(mlp, mesh={"X": 2}, dims={"B": 4096, "D": 8, "F": 64})
    assert order_of(plan) == ["In·Win", "(In·Win)·Wout"]
    assert_simulates(plan.schedule)


def test_both_sides_may_use_a_dim_name_of_their_own():
    text = "(A[I, J] ·_J B[J, K]) · (C[K, J] ·_J D[J, L]) → R[I, L]"
    found = chain(text, I=4, J=8, K=16, L=2)
    assert [type(operand).__name__ for operand in found.operands] == ["Use", "Use", "Product"]
    plan = shardc.plan(text, mesh={"X": 2}, dims={"I": 4, "J": 8, "K": 16, "L": 2})
    assert_simulates(plan.schedule)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "(A[I, J_X] ·_LOCAL B[J_X, K]) · C[K, L] → D[I, L]",
        "relu(A[I, J] · B[J, K]) · C[K, L] → D[I, L]",
        "AllReduce_X(A[I, J_X] ·_LOCAL B[J_X, K]) · C[K, L] → D[I, L]",
        "sum_M(A[I, J, M]) · C[J, L] → D[I, L]",
    ],
)
def test_what_is_not_a_plain_product_is_a_barrier(text):
    expr = shardc.parse(text, mesh={"X": 2}, dims=dict.fromkeys("IJKLM", 8)).statements[0].expr
    assert len(chain_of(expr).operands) == 2
    assert_simulates(shardc.plan(text, mesh={"X": 2}, dims=dict.fromkeys("IJKLM", 8)).schedule)


def test_a_product_of_another_type_is_a_barrier():
    """int8 adds up in int32, so that of the three arrays only the first two may meet first."""
    text = "(A: int8[I, J] · B: int8[J, K]) · C: int32[K, L] → R: int32[I, L]"
    found = chain(text, I=8, J=8, K=8, L=1)
    assert [type(operand).__name__ for operand in found.operands] == ["Product", "Use"]
    plan = shardc.plan(text, dims={"I": 8, "J": 8, "K": 8, "L": 1})
    assert order_of(plan) == ["A·B", "(A·B)·C"]
    assert_simulates(plan.schedule)


def test_arrays_that_share_no_dim_are_multiplied_last():
    found = chain("A[I] · B[J] · C[I] · D[J] → R[I, J]", I=4, J=8)
    made = {pair.whole for pair in found.pairs()}
    assert made == {0b0011, 0b0111, 0b0101, 0b1010, 0b1111}  # A·B and (A·B)·C as written
    plan = shardc.plan("A[I] · B[J] · C[I] · D[J] → R[I, J]", dims={"I": 4096, "J": 4096})
    assert order_of(plan)[-1] == "(A·C)·(B·D)"
    assert_simulates(
        shardc.plan("A[I_X] · B[J] · C[K] → R[I, J, K_X]", mesh={"X": 2}, dims={"I": 4, "J": 2, "K": 6}).schedule
    )


def test_the_written_order_is_among_the_orders_and_comes_first():
    text = "A[I, J] · B[J, K] · C[K, L] · D[L, M] → R[I, M]"
    found = chain(text, I=2, J=2, K=2, L=2, M=2)
    every = list(orders(found))
    assert every[0] == found.product
    assert len(every) == len(set(every)) == 5
    assert all(operands(order) for order in every)


CHAINS = ["A[I, J] · B[J, K] · C[K, L] · D[L, M] → R[I, M]", "A[I] · B[I] · C[I] · D[I] · E[I] → R[I]"]
APART = ["A[I] · B[J] · C[I] · D[J] → R[I, J]", "A[I] · B[J] · C[K] · D[L] · E[L, M] → R[I, J, K, M]"]


@pytest.mark.instant
@pytest.mark.parametrize("text", CHAINS + APART)
def test_the_parts_of_a_chain_are_those_that_may_be_made(text):
    """By the definition, of every set of operands."""
    found = chain(text, **dict.fromkeys(sorted(set(text) & set("IJKLM")), 2))
    made = {part for pair in found.pairs() for part in (pair.left, pair.right, pair.whole)}
    every = {part for part in range(1, found.whole + 1) if found.may_be_made(part)}
    assert every <= made | {found.whole} and made <= every | {pair.whole for pair in found.written}


@pytest.mark.instant
@pytest.mark.parametrize("text", CHAINS)
def test_every_order_is_reached_by_turning_pairs(text):
    """And nothing else is: a turn that multiplied parts that may not be would leave the set."""
    found = chain(text, **dict.fromkeys(sorted(set(text) & set("IJKLM")), 2))
    reached, waiting = set(), [found.product]
    while waiting:
        order = waiting.pop()
        if tree_of(order) not in reached:
            reached.add(tree_of(order))
            waiting += turned(chain_of(order))
    assert reached == {tree_of(order) for order in orders(found)}


def tree_of(expr):
    """An order, whichever of two operands stands first."""
    return frozenset(map(tree_of, expr.operands)) if isinstance(expr, Product) and expr.operands else str(expr)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "is_searched"),
    [
        ("A[a_XYZ, b] · B[b, c, d] · C[d, e, f] → D[a_XYZ, c, e, f]", True),  # four dims meet in A · B, then five
        ("A[a_XYZ] · B[a, b, c] · C[c, d, e] → D[b, d, e]", False),  # three, then four, and five in B · C
    ],
)
def test_a_pair_that_nobody_wrote_is_searched_if_it_is_no_wider_than_the_widest_written(text, is_searched):
    """Over three axes five dims lie in 316 ways: too many for a pair that is wider than those."""
    program = shardc.parse(text, mesh="X=2,Y=2,Z=2", dims=dict.fromkeys("abcdef", 16))
    problem = Problem(program, LinkModel.of(program.mesh, chip("v5p")), Objective.TIME, program.mesh.names)
    chain = chain_of(program.statements[0].expr)
    wide = [each for each in chain.pairs() if len(chain.meeting(each)) == 5 and each not in chain.written]
    assert {_can_afford(problem, chain, pair) for pair in wide} == {is_searched}
    as_one = replace(problem, as_one=("Y", "Z"))  # two of the axes move together: few ways again
    assert all(_can_afford(as_one, chain, pair) for pair in wide)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("sizes", "is_searched"),
    [
        ({"J": 2**31, "K": 8, "L": 2**31}, False),  # B · C has 2**63 bytes
        ({"J": 2**31 - 2, "K": 8, "L": 2**31}, True),
        ({"J": 2**27, "K": 2**26, "L": 2**27}, False),  # and multiplies 2**80 times
        ({"J": 2**27 - 2, "K": 2**26, "L": 2**27}, True),
    ],
)
def test_a_pair_that_nobody_wrote_is_searched_if_its_numbers_can_be_had(sizes, is_searched):
    text, dims = "A[I, J] · B[J, K] · C[K, L] → R[I, L]", sizes | {"I": 1}
    program = shardc.parse(text, mesh={"X": 2}, dims=dims)
    problem = Problem(program, LinkModel.of(program.mesh, chip("v5p")), Objective.TIME, program.mesh.names)
    chain = chain_of(program.statements[0].expr)
    (pair,) = (each for each in chain.pairs() if chain.dims(each.whole) == ("J", "L"))
    assert _can_afford(problem, chain, pair) == is_searched


@pytest.mark.instant
@pytest.mark.parametrize("objective", Objective)
def test_a_chain_that_is_planned_in_one_is_told_by_its_statements(objective):
    text = "T = A[I_X, J] · B[J, K]; U = T · C[K, L]; D[I, M_X] = U · E[L, M]"
    program = shardc.parse(text, mesh="X=2,Y=2", dims="I=64,J=8,K=32,L=16,M=64", dtype="bf16")
    planning = Planning(objective, Idle.USE, planned_at_once)
    found = in_turn_joined(program, LinkModel.of(program.mesh, chip("v5e")), planning, with_short=True)
    assert found.schedule.program == program
    assert {step.statement for step in found.schedule.steps} <= {0, 1, 2}
    assert len(found.statements) == len(program.statements)
    alone = shardc.parse("D[I, M_X] = A[I_X, J] · B[J, M]", mesh="X=2", dims="I=64,J=8,M=64", dtype="bf16")
    assert in_turn_joined(alone, LinkModel.of(alone.mesh, chip("v5e")), planning, with_short=True) is None
