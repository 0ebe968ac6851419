"""Reshards at their lower bound: exchanges in pieces, dims as digits, and the routes made of them."""

from dataclasses import replace
from itertools import permutations, product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.cost import LinkModel, chip
from shardc.cost.formulas import evaluate
from shardc.ir.collectives import DirectExchange, JointExchange, apply
from shardc.ir.digits import Reshape, digits_of, names_after, reshaped, shape_after
from shardc.ir.dtypes import DTYPES
from shardc.ir.exchange import needed, pieces, tails
from shardc.ir.expressions import Pattern, Use
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Array, Sharding, spell
from shardc.planner import Objective, plan_program
from shardc.planner.program import directly
from shardc.rules.moves import (
    MAX_ARRANGEMENTS,
    MAX_PERMUTED,
    _orders_of_product,
    exchange,
    permutes,
    pieces_exchanged,
)
from shardc.rules.placements import arrangements, count_arrangements, count_placements, placements
from shardc.rules.routes import route
from shardc.simulate import IllegalStep, step
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal, needed_bytes, reshape_law

INT = DTYPES["int32"]
FEW = settings(max_examples=60, deadline=None)
UNEQUAL = Mesh.of({"X": 2, "Y": 4, "Z": 8})
MESHES = st.sampled_from(
    [
        UNEQUAL,
        Mesh.of({"X": 4, "Y": 2}),
        Mesh.of({"X": 2, "Y": 3}),
        Mesh.of({"X": 6, "Y": 2}),
        Mesh.of({"X": 2, "Y": 2, "Z": 2}),
        Mesh.of({"X": 2, "Y": 1, "Z": 4}),
    ]
)
POWERS = st.sampled_from([UNEQUAL, Mesh.of({"X": 4, "Y": 2}), Mesh.of({"W": 2, "X": 2, "Y": 4, "Z": 2})])


def s(*dims):
    return Sharding.of(dims)


def program(mesh, shape, source, target):
    dims = ("I", "J", "K", "L")[: len(shape)]
    before, sizes = Pattern.exactly(source), tuple(zip(dims, shape, strict=False))
    text = f"A{spell(dims, source)} → A{spell(dims, target)}"
    statement = Statement("A", dims, Pattern.exactly(target), Use("A", dims, before, INT), INT, text)
    return Program(mesh, sizes, INT, (Input("A", dims, before, INT),), (statement,))


def planned(mesh, shape, source, target, objective=Objective.BYTES):
    return plan_program(program(mesh, shape, source, target), LinkModel.of(mesh, chip("v5p")), objective)


def assert_means_the_array(schedule):
    """Legal, and NumPy's block on every device."""
    assert_schedule_legal(schedule)
    (whole,) = simulate.sample_inputs(schedule.program)
    (blocks,) = simulate.run(schedule, [whole])
    assert_equal_on_every_device(blocks, whole, schedule.values[schedule.outputs[0]], schedule.mesh)


@st.composite
def pairs(draw, meshes=MESHES, room=False):
    """Two shardings of one array: of sizes that just divide, or with room for every axis on every dim."""
    mesh, rank = draw(meshes), draw(st.integers(1, 3))
    every = list(placements(mesh.names, rank))
    source, target = (Sharding(draw(st.sampled_from(every))) for _ in range(2))
    if room:
        return mesh, tuple(mesh.devices * (n + 1) for n in range(rank)), source, target
    needs = [np.lcm(a, b) for a, b in zip(source.blocks(mesh), target.blocks(mesh), strict=True)]
    return mesh, tuple(int(need) * draw(st.integers(1, 4)) for need in needs), source, target


@settings(max_examples=150, deadline=None)
@given(pairs(), st.sampled_from(list(Objective)))
def test_a_reshard_gives_every_device_its_block(case, objective):
    found = planned(*case, objective)
    assert found.cost.wire_bytes >= found.bound_bytes
    assert_means_the_array(found.schedule)


@settings(max_examples=150, deadline=None)
@given(pairs(POWERS, room=True))
def test_a_reshard_moves_what_devices_need_and_do_not_hold(case):
    mesh, shape, source, target = case
    found = planned(*case)
    assert found.cost.wire_bytes == needed_bytes(mesh, shape, source, target, INT.bytes) == found.bound_bytes
    assert_means_the_array(found.schedule)


@pytest.mark.parametrize(
    "dims",
    [
        ("ZV YX   ", "V XW Z Y"),
        ("  VWXYZ ", "Z Y X W"),
        ("VX WY Z ", "YW  XV "),
        (" Z  ZYX"[2:], "Y   XZ"),
    ],
)
def test_four_dims_over_five_axes_too(dims):
    mesh = Mesh.of(dict.fromkeys("VWXYZ", 2))
    source, target = (Sharding.of([*text.split(" "), "", "", ""][:4]) for text in dims)
    found = planned(mesh, (64, 64, 64, 64), source, target)
    assert found.cost.wire_bytes == found.bound_bytes == needed_bytes(mesh, (64,) * 4, source, target, INT.bytes)
    assert_means_the_array(found.schedule)


@pytest.mark.instant
@FEW
@given(pairs())
def test_what_is_needed_is_counted_device_by_device(case):
    mesh, shape, source, target = case
    block, kept = needed(source, target, mesh)
    total = INT.bytes * int(np.prod(shape))
    assert total // block - (total // kept if kept else 0) == needed_bytes(mesh, shape, source, target, INT.bytes)


# --- moves


def array(sharding, shape):
    return Array("A", ("I", "J", "K")[: len(shape)], shape, sharding, INT)


@pytest.mark.parametrize("sizes, rank", [((2, 4, 8), 2), ((2, 3), 2), ((6, 2), 2), ((2, 2, 2), 3), ((4, 1, 2), 2)])
def test_an_exchange_between_any_two_arrangements(sizes, rank):
    """It is right on every device, and brings what the busiest needs; of one piece it is a CollectivePermute."""
    mesh = Mesh.of(dict(zip("XYZ", sizes, strict=False)))
    shape = (mesh.devices, 2 * mesh.devices, 3 * mesh.devices)[:rank]
    whole = np.arange(np.prod(shape)).reshape(shape)
    kinds = set()
    every = list(arrangements(mesh.names, rank))
    for before, after in permutations(every[:: 1 + len(every) // 24], 2):
        move = exchange(before, after, mesh)
        if move is None:
            assert pieces(tails(before, after, mesh)) in (None, 1)
            continue
        old, new = array(Sharding(before), shape), array(apply(move, Sharding(before), mesh), shape)
        assert new.sharding.dims == after
        blocks = step(move, [simulate.expected_blocks(whole, old, mesh)], [old], new, mesh)
        assert_equal_on_every_device(blocks, whole, new, mesh)
        wire = move.wire_bytes(old.sharding, mesh, old.local_bytes(mesh))
        assert wire == needed_bytes(mesh, shape, old.sharding, new.sharding, INT.bytes)
        kinds.add(type(move).__name__)
    assert {"DirectExchange", "CollectivePermute"} <= kinds


XY = Mesh.of({"X": 2, "Y": 4})


@pytest.mark.instant
@pytest.mark.parametrize(
    "move, before",
    [
        (JointExchange(("X", "Y"), (("Y", "X"), ())), s("X", "Y")),  # devices keep nothing
        (JointExchange(("X",), (("Y",), ("X",))), s("XY", "")),  # Y moves as well
        (JointExchange(("X", "Y"), ((), ("X",))), s("XY", "")),  # Y is lost
        (JointExchange(("X", "Y"), ((), ("Y", "X"))), Sharding.of(["XY", ""], "Z")),
        (DirectExchange(("X", "Y"), (("Y", "X"), ()), 2), s("X", "Y")),  # blocks come in four pieces
        (DirectExchange(("X", "Y"), ((), ("X", "Y")), 8), s("XY", "")),  # an AllToAll does
        (DirectExchange(("X", "Y"), (("Y", "X"), ()), 1), s("XY", "")),  # a CollectivePermute does
    ],
)
def test_what_an_exchange_refuses(move, before):
    with pytest.raises(IllegalMove):
        apply(move, before, Mesh.of({"X": 2, "Y": 4, "Z": 2}))


def test_blocks_that_do_not_fit_are_not_exchanged():
    """Two blocks do not become three, and a block of one row is not cut."""
    mesh = Mesh.of({"X": 2, "Y": 3})
    assert exchange((("X",), ("Y",)), (("Y",), ("X",)), mesh) is None
    assert route(s("X", "Y"), s("Y", "X"), (6, 6), mesh) is None
    old, new = array(s("X", ""), (2, 4)), array(s("", "X"), (2, 4))
    blocks = simulate.expected_blocks(np.arange(8).reshape(2, 4), old, mesh)
    with pytest.raises(IllegalStep):
        step(JointExchange(("X", "Y"), (("Y",), ("X",))), [blocks], [old], new, mesh)


def test_rounds_are_priced_as_permutes_of_a_piece_each():
    """`A[I_X, J_Y] → A[I_YX, J]` on a 4×4 torus: four rounds; a block in all, and its latency four times."""
    mesh, dims = {"X": 4, "Y": 4}, {"I": 4096, "J": 8192}
    plan = shardc.plan("A[I_X, J_Y] → A[I_YX, J]", mesh=mesh, dims=dims, objective="bytes")
    (only,) = plan.steps
    assert (only.op, only.axes, only.wire_bytes) == ("CollectivePermute", ("X", "Y"), 1024 * 2048 * 2)
    assert only.time_s == pytest.approx(2 * 1024 * 2048 * 2 / 1.8e11)  # two hops over both links of an axis
    assert evaluate(only.formula, plan.symbols) == pytest.approx(only.time_s)
    assert only.rule == "reshard, 4 rounds"
    small = shardc.plan("A[I_X, J_Y] → A[I_YX, J]", mesh=mesh, dims={"I": 16, "J": 16}, objective="bytes").steps[0]
    one = shardc.plan("A[I_XY, J] → A[I_YX, J]", mesh=mesh, dims={"I": 16, "J": 16}, objective="bytes").steps[0]
    assert small.time_s == pytest.approx(4 * one.time_s)
    assert evaluate(small.formula, plan.symbols) == pytest.approx(small.time_s)


def test_a_plan_of_whole_axes_is_kept_where_it_moves_no_more():
    """And the one AllToAll of several dims names the dims that it leads to."""
    plan = shardc.plan("A[I_YX, J] → A[I_Y, J_X]", mesh={"X": 2, "Y": 4}, dims={"I": 16, "J": 16}, objective="bytes")
    assert [step.op for step in plan.steps] == ["AllToAll"]
    plan = shardc.plan("A[I_YX, J] → A[I, J_YX]", mesh={"X": 2, "Y": 4}, dims={"I": 16, "J": 16}, objective="bytes")
    assert "JointExchange" not in str(plan.schedule.steps)
    plan = shardc.plan("A[I_YX, J] → A[I, J_XY]", mesh={"X": 2, "Y": 4}, dims={"I": 16, "J": 16}, objective="bytes")
    assert [(step.op, step.dim) for step in plan.steps] == [("AllToAll", "J")]
    assert "AllToAll_XY,J A" in str(plan)


# --- digits


@st.composite
def splits(draw):
    """A sharding, a shape, and digits that its axes fill."""
    mesh = draw(MESHES)
    sharding = Sharding(draw(st.sampled_from(list(placements(mesh.names, 2)))))
    sizes = []
    for axes in sharding.dims:
        cuts = sorted(draw(st.sets(st.integers(1, len(axes)), max_size=2))) if axes else []
        digits = [axes[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
        spare = draw(st.booleans()) and cuts[-1:] == [len(axes)][: len(axes)]
        sizes.append((*map(mesh.product, digits), *([2] if spare else [])))
    shape = tuple(mesh.product(axes) * 2 * int(np.prod(some)) for axes, some in zip(sharding.dims, sizes, strict=True))
    return mesh, shape, sharding, Reshape(tuple(sizes), joins=False)


@pytest.mark.instant
@FEW
@given(splits())
def test_digits_stay_on_their_devices_and_join_again(case):
    mesh, shape, sharding, split = case
    whole = np.arange(np.prod(shape)).reshape(shape)
    before = array(sharding, shape)
    names = names_after(split, before.dims, mesh.names)
    after = Array("A", names, shape_after(split, shape), reshaped(split, sharding, mesh), INT)
    blocks = step(split, [simulate.expected_blocks(whole, before, mesh)], [before], after, mesh)
    assert_equal_on_every_device(blocks, whole.reshape(after.shape), after, mesh)
    assert reshape_law(before, after, split.sizes, mesh) is None
    joined = replace(split, joins=True)
    assert reshaped(joined, after.sharding, mesh) == sharding
    assert shape_after(joined, after.shape) == shape
    assert len(digits_of(before.dims, split)) == len(names) == len(set(names))


@pytest.mark.instant
@pytest.mark.parametrize(
    "op, before",
    [
        (Reshape(((4,), ()), joins=True), s("", "X", "")),  # the digit above X is not cut
        (Reshape(((4,), ()), joins=True), s("X", "Y", "")),  # cut, but not into single elements
        (Reshape(((3,), ()), joins=False), s("XY", "")),  # no number of axes fills 3
    ],
)
def test_what_a_reshape_refuses(op, before):
    with pytest.raises(IllegalMove):
        reshaped(op, before, XY)


def test_the_checker_sees_digits_that_are_none():
    whole, good = array(s("XY", ""), (16, 8)), Array("A", ("I0", "I1", "J"), (2, 8, 8), s("X", "Y", ""), INT)
    assert reshape_law(whole, good, ((2,), ()), XY) is None
    for bad in (
        replace(good, sharding=s("", "XY", "")),
        replace(good, sharding=s("Y", "X", "")),
        replace(good, shape=(4, 4, 8)),
        replace(good, dtype=DTYPES["f32"]),
    ):
        assert reshape_law(whole, bad, ((2,), ()), XY) is not None


def test_names_of_digits_are_no_others():
    assert names_after(Reshape(((2, 2), ()), joins=False), ("I", "J"), ("I1",)) == ("Id0", "Id1", "Id2", "J")


def test_sums_are_scattered_where_they_belong():
    """`A[I, J_Y]{U_X} → A[I_YX, J]`, L = 64 B a device: scatter X below Y's digit, 32 B; exchange Y, 3/4 · 32 B.

    Over whole axes X would be scattered over J and exchanged with Y: 32 B, then 7/8 · 32 B.
    """
    dims = {"I": 8, "J": 8}
    plan = shardc.plan("A[I, J_Y]{U_X} → A[I_YX, J]", mesh=XY, dims=dims, dtype="int32", objective="bytes")
    assert [step.op for step in plan.steps] == ["Reshape", "ReduceScatter", "AllToAll", "Reshape"]
    assert [step.wire_bytes for step in plan.steps] == [0, 32, 24, 0]
    assert_means_the_array(plan.schedule)


def test_digits_are_in_the_table_and_formulas_are_of_dims():
    plan = shardc.plan("A[I_XY, J] → A[I, J_X]", mesh={"X": 4, "Y": 4}, dims={"I": 4096, "J": 8192}, objective="bytes")
    assert [step.result for step in plan.steps] == [
        "A[I0_X, I1_Y, J]",
        "A[I0, I1_Y, J_X]",
        "A[I0, I1, J_X]",
        "A[I, J_X]",
    ]
    assert [step.op for step in plan.steps] == ["Reshape", "AllToAll", "AllGather", "Reshape"]
    for found in plan.steps:
        assert evaluate(found.formula, plan.symbols) == pytest.approx(found.time_s)
    assert plan.cost.wire_bytes == plan.bound.wire_bytes


@pytest.mark.instant
@pytest.mark.parametrize(("axes", "rank"), [(axes, rank) for axes in range(2, 6) for rank in range(1, 5)])
def test_all_permutes_and_pieces_are_offered_where_there_are_few_and_none_where_there_are_many(axes, rank):
    """Of as many as there are ways to put the axes on the dims, each in every order."""
    mesh = Mesh(tuple((f"X{place}", 2) for place in range(axes)))
    ways = list(arrangements(mesh.names, rank))
    before = Sharding((mesh.names, *[()] * (rank - 1)))
    assert len(ways) == len(set(ways)) and before.dims in ways
    permuted = {move.dims for move in permutes(before, mesh, mesh.names)}
    wanted = {dims for dims in ways if dims != before.dims and len(dims[0]) == axes}
    assert permuted == (wanted if len(ways) <= MAX_PERMUTED else set())
    pieces = list(pieces_exchanged(before, mesh, mesh.names))
    assert bool(pieces) == (rank > 1 and len(ways) <= MAX_ARRANGEMENTS)


def test_placements_and_arrangements_are_as_many_as_are_counted():
    for axes, rank in product(range(5), range(4)):
        names = "UVWXY"[:axes]
        assert count_arrangements(axes, rank) == len(list(arrangements(tuple(names), rank)))
        assert count_placements(axes, rank) == len(list(placements(tuple(names), rank)))


@pytest.mark.instant
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.booleans()), max_size=5))
def test_of_exchanges_the_one_that_saves_most_is_taken_and_what_cannot_be_written_is_told(every):
    """Of each what it saves at best, what it does save, and whether it can be written."""
    lie = SimpleNamespace
    parts = [
        lie(at_best=best, saves=min(best, saves), before=lie(sharding=can), after=lie(sharding=lie(dims=())))
        for best, saves, can in every
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(directly, "parts", lambda *_: iter(parts))
        patched.setattr(directly, "uneven_exchange", lambda can, *_: "a move" if can else None)
        patched.setattr(directly, "_run", lambda part, *_: lie(saved=lambda _: part.saves) if part.saves else None)
        run, unwritten = directly._best((), lie(mesh=None), None, Objective.BYTES)
    saved = max((part.saves for part in parts if part.before.sharding), default=0)
    lost = max((part.at_best for part in parts if not part.before.sharding), default=0)
    assert (run.saved(Objective.BYTES) if run else 0) == saved
    assert unwritten == max(0, lost - saved)


@pytest.mark.instant
@given(st.lists(st.sampled_from([2, 3, 4, 6]), max_size=4), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]))
@example([4], 6)
@example([2, 3, 2], 12)
def test_orders_of_axes_with_a_product_are_all_that_there_are(sizes, product):
    mesh = Mesh.of({f"a{n}": size for n, size in enumerate(sizes)})
    every = (some for count in range(len(sizes) + 1) for some in permutations(mesh.names, count))
    assert sorted(_orders_of_product(mesh.names, product, mesh)) == sorted(
        axes for axes in every if mesh.product(axes) == product
    )
