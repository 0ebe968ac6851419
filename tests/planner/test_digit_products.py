"""Products in digits: as cheap as brute force over every digit, and right on every device."""

from __future__ import annotations

import itertools
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.api import parse
from shardc.cost import LinkModel, chip
from shardc.cost.rate import picoseconds
from shardc.interface.hardware import Hardware
from shardc.ir.collectives import CollectivePermute, DirectExchange, Slice, apply
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import operands
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding, spell
from shardc.planner import Objective
from shardc.planner.digits.products import _Task
from shardc.planner.problem import Problem
from shardc.planner.whole import digits as whole_digits
from shardc.planner.whole import plan as whole_plan
from shardc.rules.digit_products import Choices, Digits, Placement, choices, digits_of_dims, reductions
from shardc.rules.placements import placements
from shardc.simulate import reference, run, sample_inputs
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal

# Bits of I, J and K: 8 devices X, Y, Z of 2 each cut a dim at its first three bits at most.
BITS = {"I": 6, "J": 7, "K": 8}
BYTES = 2
AXES = "XYZ"
DEVICES = [dict(zip(AXES, place, strict=True)) for place in itertools.product((0, 1), repeat=3)]
SHARDINGS = [Sharding(dims) for dims in placements(tuple(AXES), 2)]


def bits(dims, sharding):
    """Which bit of which dim each axis cuts."""
    return frozenset(
        (axis, (dim, n)) for dim, axes in zip(dims, sharding.dims, strict=True) for n, axis in enumerate(axes)
    )


def total(dims):
    return BYTES << sum(BITS[dim] for dim in dims)


@cache
def needed(held, wanted, size):
    """The bytes that the busiest device needs and does not hold."""
    most = 0
    for device in DEVICES:
        has, wants = ({bit: device[axis] for axis, bit in side} for side in (held, wanted))
        apart = any(has[bit] != wants[bit] for bit in has.keys() & wants.keys())
        most = max(most, (size >> len(wants)) - (0 if apart else size >> len(has | wants)))
    return most


def reduced(left, summed, goal):
    """The least bytes from partial sums over `summed` to the goal: slice, scatter and exchange in every place."""

    @cache
    def least(left, summed):
        if not summed:
            return needed(left, goal, total("IK"))
        used, placed = {bit for _, bit in left}, {axis for axis, _ in left}
        free = [bit for bit in itertools.product("IK", range(4)) if bit not in used]
        half = total("IK") >> len(left) + 1
        options = [half + least(left | {(axis, bit)}, summed - {axis}) for axis in summed for bit in free]
        idle = [axis for axis in AXES if axis not in placed | summed]
        options += [least(left | {(axis, bit)}, summed) for axis in idle for bit in free]
        return min(options)

    return least(left, summed)


def every_way():
    places = list(itertools.product("IJK", range(4)))
    for count in range(4):
        for axes in itertools.combinations(AXES, count):
            for chosen in itertools.permutations(places, count):
                yield frozenset(zip(axes, chosen, strict=True))


WAYS = list(every_way())


def brute_force(a, b, c):
    """The least bytes of a product over every way to put axes on bits."""
    sides = bits("IJ", a), bits("JK", b)
    best = None
    for way in WAYS:
        on = {dims: frozenset(pair for pair in way if pair[1][0] in dims) for dims in ("IJ", "JK", "IK", "J")}
        cost = needed(sides[0], on["IJ"], total("IJ")) + needed(sides[1], on["JK"], total("JK"))
        if best is not None and cost >= best:
            continue
        cost += reduced(on["IK"], frozenset(axis for axis, _ in on["J"]), bits("IK", c))
        best = cost if best is None else min(best, cost)
    return best


def planned(text, mesh, dims, objective="bytes", dtype="bf16"):
    """A schedule that was seen to do what the text says, on every device."""
    schedule = shardc.plan(text, mesh=mesh, dims=dims, chip="v5p", objective=objective, dtype=dtype).schedule
    assert_schedule_legal(schedule)
    wholes = sample_inputs(schedule.program)
    expected = reference(schedule.program, wholes)
    for value, blocks, whole in zip(schedule.outputs, run(schedule, wholes), expected, strict=True):
        # Samples have so few bits that sums of products are exact in f64: nothing wrong passes.
        assert_equal_on_every_device(blocks, whole, schedule.values[value], schedule.mesh)
    return schedule


def wire_bytes(schedule):
    return sum(step.cost.wire_bytes for step in schedule.steps)


CUBE = {"X": 2, "Y": 2, "Z": 2}
SIZES = {dim: 1 << count for dim, count in BITS.items()}


@pytest.mark.exhaustive
@settings(max_examples=6, deadline=None)
@given(*[st.sampled_from(SHARDINGS)] * 3)
@example(  # slices on digits below what is exchanged: the order on a dim's rest decides
    Sharding((("Y",), ("X",))), Sharding(((), ("Y",))), Sharding(((), ("X", "Y")))
)
def test_no_way_over_digits_is_cheaper(a, b, c):
    text = f"A{spell('IJ', a)} · B{spell('JK', b)} → C{spell('IK', c)}"
    assert wire_bytes(planned(text, CUBE, SIZES)) == brute_force(a, b, c)


@st.composite
def products(draw):
    mesh = draw(st.sampled_from([CUBE, {"X": 4, "Y": 2}, {"X": 2, "Y": 3}, {"X": 2, "Y": 4, "Z": 2}, {"X": 1, "Y": 4}]))
    options = [Sharding(dims) for dims in placements(tuple(mesh), 2)]
    a, b, c = (draw(st.sampled_from(options)) for _ in range(3))
    result = draw(st.sampled_from(["IK", "KI"]))
    return f"A{spell('IJ', a)} · B{spell('JK', b)} → C{spell(result, c)}", mesh


@settings(max_examples=40, deadline=None)
@given(products(), st.sampled_from(["bytes", "time"]))
def test_plans_are_right_and_no_dearer_than_any_alternative(case, objective):
    text, mesh = case
    dims = dict.fromkeys("IJK", 96)
    schedule = planned(text, mesh, dims, objective, "int32")
    plan = shardc.plan(text, mesh=mesh, dims=dims, chip="v5p", objective=objective, dtype="int32")
    best = plan.statements[0].alternatives[0]
    if objective == "bytes":
        assert wire_bytes(schedule) == min(other.wire_bytes for other in plan.statements[0].alternatives)
        assert best.wire_bytes == wire_bytes(schedule)


def test_an_inner_product_of_a_chain_is_done_in_digits_too():
    text = "A[I_Z, J] · B[J, K_YZ] · D[K, L_Y] → C[I_XYZ, L]"
    schedule = planned(text, CUBE, {**SIZES, "L": 16})
    assert wire_bytes(schedule) > 0


def test_sums_are_scattered_below_an_axis_that_the_goal_has_above():
    """K_X{U_Y} → K_XY → K_YX: a permute of the result is cheaper than one of A, gathered after."""
    schedule = planned("A[I, J_XY] · B[J, K_X] → C[I, K_YX]", {"X": 2, "Y": 3}, {"I": 1, "J": 6, "K": 6}, dtype="f32")
    assert wire_bytes(schedule) == 16


def test_partial_sums_within_a_chain_are_scattered_in_digits():
    """T[J]{U_X} → T[J0_X, J1_Y]: of many shardings that T is made in, this one needs digits to get where it is used."""
    text, sizes = "A[I, J_XY] · B[J, K_X] · D[K_X, L] → C[I]", {"I": 1, "J": 6, "K": 2, "L": 1}
    assert wire_bytes(planned(text, {"X": 2, "Y": 3}, sizes, dtype="f32")) == 10


def test_digits_bear_the_same_names_on_all_arrays():
    """I0 is a dim of the program, so I's digits are called otherwise, and alike on A and on C."""
    text = "A[I_Z, J] · B[J, I0_YZ] → C[I_XYZ, I0]"
    schedule = planned(text, CUBE, {"I": 64, "J": 128, "I0": 256})
    product = next(step for step in schedule.steps if step.name == "Einsum")
    a, b, c = (schedule.values[value].dims for value in (*product.operands, product.result))
    assert a == ("Id0", "Id1", "J") and b == ("J", "I0") and c == ("Id0", "Id1", "I0")


def test_digits_are_cut_where_every_array_ends():
    mesh = Mesh.of({"X": 2, "Y": 2, "Z": 4})
    placed = ((("I",), Sharding((("X", "Y"),))), (("I",), Sharding((("Z",),))))
    assert digits_of_dims(placed, mesh).sizes == {"I": (4,)}
    placed += ((("I",), Sharding((("Y",),))),)
    assert digits_of_dims(placed, mesh).sizes == {"I": (4,)}  # Z fills no digit of 2


def test_digits_seen_as_one():
    mesh, digits = Mesh.of(CUBE), Digits({"I": (2, 2)})
    assert digits.without("I", 0).sizes == {"I": (4,)}
    assert digits.without("I", 1).sizes == {"I": (2,)}
    assert Placement({"I": (("X",), ("Y",), ())}).joined(digits, "I", 0, mesh) == Placement({"I": (("X", "Y"), ())})
    assert Placement({"I": ((), ("Y",), ())}).joined(digits, "I", 0, mesh) is None
    assert Placement({"I": ((), ("Y",), ())}).joined(digits, "I", 1, mesh) == Placement({"I": ((), ("Y",))})
    array = Array("A", ("I0", "I1", "I2", "J"), (2, 2, 16, 8), Sharding((("X",), (), ("Z",), ("Y",))), DTYPES["bf16"])
    whole = Digits({"I": (2, 2), "J": ()}).joined(array, ("I", "J"))
    assert str(whole) == "A[I_XZ, J_Y]" and whole.shape == (64, 8)


@st.composite
def summed(draw):
    """What a product left, with partial sums, and where it is wanted, on two places."""
    axes = draw(st.permutations("XYZ"))
    homes = [draw(st.sampled_from((0, 1, "summed", "free"))) for _ in axes]
    left = [tuple(axis for axis, home in zip(axes, homes, strict=True) if home == place) for place in (0, 1)]
    sums = frozenset(axis for axis, home in zip(axes, homes, strict=True) if home == "summed")
    goal = draw(st.sampled_from(SHARDINGS))
    return Sharding(tuple(left), sums), goal, draw(st.sampled_from(([], [0], [1], [0, 1])))


@pytest.mark.instant
@settings(max_examples=100)
@given(summed())
def test_sums_are_made_in_every_sensible_place_with_what_takes_no_part_sliced_first(case):
    left, goal, rests = case
    ways = list(reductions(left, goal, rests, Mesh.of(dict.fromkeys("XYZ", 2))))
    assert len(ways) == len(set(ways)) and (ways or not {*goal.sharded} >= left.unreduced)
    for way in ways:
        lies, kinds = left, [isinstance(move, Slice) for move in way]
        for move in way:
            lies = apply(move, lies, Mesh.of(dict.fromkeys("XYZ", 2)))
        assert not lies.unreduced and kinds == sorted(kinds, reverse=True)
        for place, (old, here, wanted) in enumerate(zip(left.dims, lies.dims, goal.dims, strict=True)):
            behind = wanted[len(old) :] if wanted[: len(old)] == old else ()
            free = tuple(itertools.takewhile(lambda axis: axis not in left.used, behind))
            added = here[len(old) + len(free) :]
            assert here[: len(old) + len(free)] == old + free and {*added} <= left.unreduced
            assert all(axis in wanted or place in rests for axis in added)


@pytest.mark.instant
@pytest.mark.parametrize("text", ["A[I_X, J]{U_Y} · B[J, K] → C[I, K]", "A[I, J_X] · B[J_X, K] → C[I, K]{U_X}"])
def test_partial_sums_given_or_wanted_are_left_to_whole_axes(text):
    schedule = shardc.plan(text, mesh=CUBE, dims=SIZES, objective="bytes").schedule
    assert not any(step.name == "Reshape" for step in schedule.steps)


@st.composite
def tasks(draw):
    """A product in digits, and where each axis may stand."""
    text, sizes = draw(products())
    program = parse(
        text, mesh=Mesh.of(sizes), dims=dict.fromkeys("IJK", draw(st.sampled_from([96, 2304]))), dtype="bf16"
    )
    model = LinkModel.of(program.mesh, chip(draw(st.sampled_from(["v5e", "v5p", "H100"]))))
    problem = Problem(program, model, draw(st.sampled_from(list(Objective))), program.mesh.names)
    (statement,) = program.statements
    arrays = [
        *((use.dims, use.pattern.exact) for use in operands(statement.expr)),
        (statement.dims, statement.pattern.exact),
    ]
    assume(all(program.mesh.size(axis) > 1 for _, sharding in arrays for axis in sharding.sharded))
    task = _Task.of(problem, statement.expr, arrays, digits_of_dims(tuple(arrays), program.mesh))
    wide = tuple(axis for axis in program.mesh.names if program.mesh.size(axis) > 1)
    return task, choices(task.placed, task.digits, wide)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ("A[I_XY, J] · B[J, K] → C[I, K_X]", [1]),
        ("A[I_X, J_YZ] · B[J, K_ZY] → C[I_ZX, K]", [2]),
        ("A[I, J_XYZ] · B[J_ZYX, K] → C[I_YX, K]", []),
    ],
)
def test_to_see_an_array_in_digits_takes_as_long_as_to_copy_those_that_are_cut_anew(text, copied):
    program = shardc.parse(text, mesh="X=2,Y=2,Z=2", dims="I=4096,J=8192,K=2048", topology="v5e:2x4", dtype="bf16")
    problem = Problem(program, Hardware().model(program), Objective.TIME, program.mesh.names)
    (statement,) = program.statements
    arrays = [(each.dims, each.pattern.exact) for each in (*operands(statement.expr), statement)]
    task = _Task.of(problem, statement.expr, arrays, digits_of_dims(tuple(arrays), program.mesh))
    sizes = [
        Array("", dims, program.shape(dims), lies, DTYPES["bf16"]).local_bytes(program.mesh) for dims, lies in arrays
    ]
    rate, price = problem.model.alone.copy_s_per_byte, problem.objective.price
    times = [picoseconds(size * rate) if place in copied else 0 for place, size in enumerate(sizes)]
    assert rate and task.reshapes == sum(price(time, 0) for time in times)


@pytest.mark.instant
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_axes_on_a_digit_come_in_every_order_or_in_the_one_that_an_array_has(count):
    axes, digits, place = AXES[:count], Digits({"I": (4,), "J": ()}), ("I", 0)
    for known in itertools.permutations(axes):
        orders = {(place, frozenset(axes)): known}
        (one,) = Choices(tuple(axes), ((place,),) * count, orders).placements([place] * count, digits)
        assert one.axes == {"I": (known, ()), "J": ((),)}
    every = [each.axes["I"] for each in Choices(tuple(axes), (), {}).placements([place] * count, digits)]
    assert every == [(order, ()) for order in itertools.permutations(axes)]


@settings(max_examples=40, deadline=None)
@given(tasks(), st.randoms(use_true_random=False))
def test_a_bound_is_the_price_of_the_route_and_never_above_it(case, random):
    task, every = case
    bounds = task.bounds(every.axes)[::-1]
    for _ in range(20):
        chosen = tuple(map(random.choice, every.places))
        lowest = [bound.bound(chosen, *bound.joined(tuple((place,) for place in chosen))) for bound in bounds]
        for way in every.placements(chosen, task.digits) if None not in lowest else ():
            for number, (least, (dims, lies)) in enumerate(zip(lowest, task.placed, strict=True)):
                found = task._moved(number, way)
                if found is None:
                    continue
                price, moves = found
                assert least <= price
                at = way.operand(dims)
                one_each = all(len(old) < 2 and len(new) < 2 for old, new in zip(lies.dims, at.dims, strict=True))
                if (
                    number < 2
                    and one_each
                    and not any(isinstance(m, CollectivePermute | DirectExchange) for m in moves)
                ):
                    assert least == price - task.problem.objective.price(0, 0, steps=len(moves))


@pytest.mark.instant
@pytest.mark.parametrize(("axes", "each"), [(1, 1), (3, 1), (4, 8), (5, 64)])
def test_ways_in_digits_are_counted_by_axes_and_looked_for_while_some_are_left(axes, each, monkeypatch):
    """Of 2 · 3 choices of where operand and result lie; of an equal product no more."""
    monkeypatch.setattr(whole_digits.DigitWays, "_found", lambda *given: iter(["a way"]))
    problem = SimpleNamespace(mesh=Mesh.of(dict.fromkeys("STUVW"[:axes], 2)))
    expr = shardc.parse("A[I, J] · B[J, K] → C[I, K]").statements[0].expr
    ends = [SimpleNamespace(search=SimpleNamespace(shape=(4, 4), dtype="bf16"), places=range(n)) for n in (2, 3)]
    ways, none = SimpleNamespace(prices=[1]), SimpleNamespace(prices=[])

    def found(left, most):
        monkeypatch.setattr(whole_digits, "MOST_OF_ONE", most)
        searched = whole_digits.DigitWays(None, left)
        return *(searched.of(problem, expr, ends, some) for some in (none, ways, ways)), searched.left

    count = 6 * each
    assert found(count, count) == ([], ["a way"], ["a way"], 0)
    assert found(2 * count, count)[-1] == count
    assert found(count - 1, count) == found(count - 1, count - 1) == ([], [], [], count - 1)
    assert found(count, count - 1) == ([], [], [], count)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text", ["A[I_X, J] · B[J, K_X] · C[K, L] → D[I, L_X]", "T = A[I_X, J] · B[J, L]; D[I, L] = T + T"]
)
def test_of_the_orders_of_a_chain_one_is_looked_at_in_digits(text, monkeypatch):
    """The one that is cheapest without; where there is but one order, that one."""
    looked, found_of = [], whole_digits.DigitWays

    class Counted(found_of):
        def __init__(self, *given):
            looked.append(self)
            super().__init__(*given)

    monkeypatch.setattr(whole_plan, "DigitWays", Counted)
    shardc.plan(text, mesh="X=2, Y=2", dims="I=512,J=512,K=512,L=8", dtype="f32", idle="keep")
    assert len(looked) == 1
