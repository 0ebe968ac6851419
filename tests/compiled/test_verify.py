"""A plan's steps and the collectives that were compiled for them."""

from dataclasses import replace

import pytest

import shardc
from shardc.compiled.hlo.collectives import Collective, wire_bytes
from shardc.compiled.verify import match
from shardc.ir.plan import How
from shardc.lowering.together import candidates

MESH = {"X": 2, "Y": 2, "Z": 2}
PLAN = shardc.plan(
    "A[I, J_X] · B[J_X, K] → C[I_X, K]; C[I_X, K] → D[I, K]",
    mesh=MESH,
    dims={"I": 1024, "J": 1024, "K": 1024},
    idle="keep",
)
STEPS = [(number, step) for number, step in enumerate(PLAN.schedule.steps) if step.cost.wire_bytes]


def compiled(step, number, kind=None, times=1, **fields):
    """What a faithful compiler makes of a step; `times` as many bytes."""
    local = PLAN.schedule.values[step.operands[0]].local_bytes(PLAN.schedule.mesh) * times
    n = PLAN.schedule.mesh.product(step.op.axes)
    kind = kind or step.name
    found = Collective(kind, f"{kind}.{number}", local, wire_bytes(kind, n, local), n, (), step.op.axes)
    return replace(found, scope=f"jit(program)/shard_map/step{number}/op", **fields)


@pytest.fixture
def faithful():
    return [compiled(step, number) for number, step in STEPS]


def test_the_plan_has_two_collectives():
    assert [step.name for _, step in STEPS] == ["ReduceScatter", "AllGather"]


def test_a_faithful_program_agrees(faithful):
    matches, left = match(PLAN.schedule, faithful)
    assert all(found.agrees for found in matches) and not left and not any(found.remark for found in matches)


def test_one_left_out_is_seen(faithful):
    matches, _ = match(PLAN.schedule, faithful[:1])
    assert [found.agrees for found in matches] == [True, False] and matches[1].remark == "not there"


def test_one_too_many_is_left_over(faithful):
    extra = replace(faithful[1], scope="jit(other)/op", name="extra")
    assert match(PLAN.schedule, [*faithful, extra])[1] == [extra]


def test_other_bytes_are_seen(faithful):
    number, step = STEPS[1]
    matches, _ = match(PLAN.schedule, [faithful[0], compiled(step, number, times=2)])
    assert [found.agrees for found in matches] == [True, False]


def test_a_scatter_summed_whole_is_named_and_does_not_agree(faithful):
    number, step = STEPS[0]
    summed = replace(compiled(step, number, "AllReduce"), scope="")  # the compiler forgets its name
    matches, left = match(PLAN.schedule, [summed, faithful[1]])
    assert matches[0].remark == "summed whole" and not matches[0].agrees and matches[0].rewrite.why
    assert matches[1].agrees and not left


def test_two_that_add_up_are_in_parts(faithful):
    half = replace(faithful[1], local_bytes=0, wire_bytes=faithful[1].wire_bytes // 2)
    matches, _ = match(PLAN.schedule, [faithful[0], half, replace(half, name="other")])
    assert matches[1].agrees and matches[1].remark == "in parts"


def test_two_steps_in_one_are_combined():
    plan = shardc.plan("A[I_X, J] → A2[I, J]; B[I_X, J] → B2[I, J]", mesh=MESH, dims={"I": 64, "J": 64})
    step = plan.schedule.steps[0]
    one = Collective("AllGather", "ag", 0, 2 * step.cost.wire_bytes, 2, (), ("X",), scope="jit(f)/step0/all_gather")
    matches, left = match(plan.schedule, [one])
    assert [found.remark for found in matches] == ["combined"] and matches[0].agrees and not left


def test_what_moves_nothing_is_left_out(faithful):
    idle = replace(faithful[0], wire_bytes=0, name="idle")
    matches, left = match(PLAN.schedule, [idle, *faithful])
    assert all(found.agrees for found in matches) and not left


@pytest.mark.parametrize(
    ("dtype", "after", "is_narrow"),
    [("f32", "B", True), ("f32", "relu(B)", True), ("bf16", "B", False), ("f32", "square(B)", False)],
)
def test_half_the_bytes_are_those_of_what_products_round(dtype, after, is_narrow):
    """Of f32 that a product reads, and neither more nor less; not of bf16, nor of what a function needs whole."""
    text = f"B[J, K] = AllGather_X(W[J_X, K]); C[I_X, K] = A[I_X, J] · {after}"
    plan = shardc.plan(text, mesh={"X": 2}, dims={"I": 8, "J": 8, "K": 8}, dtype=dtype)
    ((number, step),) = [(n, step) for n, step in enumerate(plan.schedule.steps) if step.cost.wire_bytes]
    for size in (step.cost.wire_bytes, step.cost.wire_bytes // 2):
        scope = f"jit(program)/shard_map/step{number}/op"
        found = Collective("AllGather", "g", size, size, 2, (), ("X",), scope=scope)
        (only,), left = match(plan.schedule, [found])
        assert not left and only.agrees == ((size < step.cost.wire_bytes) == is_narrow)


# --- what is expected is what the lowering says


def scatter(slice_):
    mesh, topology = slice_
    plan = shardc.plan(
        "A[I, J_X] · B[J_X, K] → C[I_X, K]",
        mesh=mesh,
        topology=topology,
        dims={"I": 12, "J": 2048, "K": 5},
        dtype="f32",
        idle="keep",
        overlap="off",
    )
    ((number, step),) = [(n, step) for n, step in enumerate(plan.schedule.steps) if step.name == "ReduceScatter"]
    return plan.schedule, number, step


@pytest.mark.parametrize(
    ("slice_", "kind", "remark"),
    [
        (("X=4", "v5e:2x2"), "AllToAll", "exchanged"),  # of small shares: emitted so
        (("X=4", "v5e:2x2"), "ReduceScatter", "compiled as ReduceScatter"),
        (("X=4", None), "ReduceScatter", ""),
        (("X=4", None), "AllToAll", "compiled as AllToAll"),  # the same kind, and nobody has emitted it
        (("X=4", None), "AllReduce", "summed whole"),  # the compiler's own
    ],
)
def test_a_rewrite_is_the_emitters_where_the_lowering_says_so(slice_, kind, remark):
    schedule, number, step = scatter(slice_)
    scope, size = f"jit(program)/shard_map/step{number}/op", step.cost.wire_bytes
    (only,), _ = match(schedule, [Collective(kind, "c", size, size, 4, (), ("X",), scope=scope)])
    assert only.remark == remark


BOTH_GATHERED = shardc.plan(
    "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]", mesh={"X": 2, "Y": 2}, dims=dict.fromkeys("IJK", 64), idle="keep"
)
GROUPS = list(candidates(BOTH_GATHERED.schedule))


@pytest.mark.parametrize("how", How)
def test_what_is_done_as_one_has_the_collectives_of_its_form(how):
    ordered, group = next(each for each in GROUPS if each[1].how is how)
    schedule = replace(ordered, together=(group,))
    size = sum(schedule.steps[place].cost.wire_bytes for place in group.places)
    for kind in ("CollectivePermute", "AllGather"):
        scope = f"jit(program)/shard_map/step{group.first}/op"
        matches, left = match(schedule, [Collective(kind, "c", size, size, 4, (), ("X",), scope=scope)])
        (only,) = (each for each in matches if each.compiled)
        named = only.remark == f"as one: {how.value}"
        assert only.agrees and not left
        assert named == (how is How.PARTITIONER or (kind == "AllGather") == (how is How.CHUNKS))
