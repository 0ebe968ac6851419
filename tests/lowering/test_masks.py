"""Which masks are made as wide as what they mask, and that it is proved, and the same on every device."""

import re

import pytest

import shardc
from shardc.compiled.compilers import slice_mesh
from shardc.emit import source
from shardc.ir.plan import Apply
from shardc.lowering.lower import lower
from shardc.machines import tpu
from shardc.machines.run import run
from shardc.machines.tpu import compile_schedule
from shardc.planner.program.chunkable import groups
from shardc.proving import Verdict, prove

V5E, V5P = "v5e:2x2", "v5p:2x2x1"
SIZES = {"B": 4, "H": 4, "T": 8, "S": 8, "E": 2, "D": 16}
SCORES = "P[B_X, H_Y, T, S] = where({}, A[B_X, H_Y, T, S], -inf)"
CAUSAL = "index_T >= index_S"


def planned(text, topology=V5E, **options):
    options = {"mesh": "X=2,Y=2", "dims": SIZES, "dtype": "f32", "idle": "keep"} | options
    return shardc.plan(text, topology=topology, **options)


def wide(plan):
    """The names of what is made wider."""
    block, lowering = plan.schedule.block, lower(plan.schedule)
    forms = zip(block.steps, lowering.forms, strict=True)
    return {step.name for step, form in forms if isinstance(step.op, Apply) and form.wide is not None}


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "made"),
    [
        (SCORES.format(CAUSAL), {"greater_equal"}),
        (SCORES.format("index_T - index_S < 3"), {"sub", "less"}),
        (SCORES.format("index_T >= index_S") + "; Q = where(index_T >= index_S, P, 0)", {"greater_equal"}),
        ("M[T, S] = index_T >= index_S; " + SCORES.format("M") + "; return P, M", set()),  # an output
        (SCORES.format("U: i32[B_X, T] == V: i32[B_X, S]"), {"equal"}),  # documents
        (SCORES.format("U: i32[T, S] == 1"), set()),  # as large as what it is made of
        (SCORES.format("index_T >= 3"), set()),  # of one dim
        (SCORES.format("U[T] >= V[S]"), {"greater_equal"}),
        ("P[T_X, S] = where(index_T >= index_S, A[T_X, S], -inf)", set()),  # as wide as what it masks
        ("P[B_X, H, T, S] = where(index_T >= index_S, A[B_X, H, T, S], -inf); Q[T] = sum_S(f32(index_T >= index_S))",
         set()),  # summed as well
        ("P[B_X, H, T, S] = where(index_T >= index_S, A[B_X, H, T, S], -inf);"
         "Q[B_X, T, S] = where(index_T >= index_S, C[B_X, T, S], 0)", set()),  # of two widths
        ("M[T, S] = index_T >= index_S; P[B_X, H, T, S] = where(M, A[B_X, H, T, S], 0);"
         "Q[B_X, H, K, L] = where(M[K, L], C[B_X, H, K, L], 0)", set()),  # under other names
        ("M[T, S] = index_T >= index_S; P[B_X, T, S, K] = where(M[T, K], A[B_X, T, S, K], 0)", set()),
        ("P[B, H, T_X, S] = where(U[T] >= V[S], A[B, H, T_X, S], 0)", {"greater_equal"}),
        ("dims L=3; for L { x[B_X, T, S] = where(index_T >= index_S, x[B_X, T, S], 0) }", set()),  # made before
    ],
)  # fmt: skip
def test_a_mask_of_fewer_dims_is_made_as_wide_as_what_it_masks(text, made):
    assert wide(planned(text)) == made


def test_where_no_slice_is_named_a_mask_stays_as_it_is():
    assert not wide(planned(SCORES.format(CAUSAL), topology=None))


TEXTS = (
    SCORES.format(CAUSAL),
    SCORES.format("index_T - index_S < 3"),
    SCORES.format("U: i32[B_X, T] == V: i32[B_X, S]"),
    "P[B_X, H, T_Y, S] = softmax_S(where(index_T >= index_S, A[B_X, H, T_Y, S], -inf))",
    "P[H_Y, B_X, S, T] = where(index_T >= index_S, A[H_Y, B_X, S, T], 0)",
)


@pytest.mark.parametrize("topology", [V5E, V5P])
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_written_means_the_program(text, topology):
    plan = planned(text, topology)
    assert wide(plan) and "jnp.broadcast_to(" in source(plan.schedule, topology[:3])
    assert prove(plan.schedule, source(plan.schedule, topology[:3])).verdict is Verdict.PROVED


@pytest.mark.devices
@pytest.mark.parametrize("text", TEXTS)
def test_every_device_masks_its_own_part(text):
    assert run(planned(text).schedule).ok


ATTENTION = """
P[B_X, H_Y, T, S] = softmax_S(where(index_T >= index_S, Q[B_X, T, H_Y, E] · K[B_X, S, H_Y, E] / sqrt(|E|), -inf))
O[B_X, T, H_Y, E] = P · V[B_X, S, H_Y, E]
"""


def test_a_mask_is_made_in_each_chunk():
    """Of a chunk of T its rows alone; along heads, which it has not, it is made before."""
    schedule = planned(ATTENTION, dims=SIZES | {"B": 2}).schedule
    every = groups(schedule.block, schedule.mesh)
    found = {group.dim: {group.block.steps[number].name for number in group.steps} for group in every}
    assert "greater_equal" in found["T"] and "greater_equal" not in found["H"]


@pytest.mark.tpu
@pytest.mark.skipif(not tpu.is_installed(), reason="no libtpu")
@pytest.mark.parametrize("topology", [V5E, V5P])
def test_no_mask_is_compiled_to_an_array(topology):
    """One of rows and columns alone is an instruction by itself, seen before."""
    plan = planned(ATTENTION, topology, dims={"B": 2, "H": 8, "T": 4096, "S": 4096, "E": 64}, dtype="bf16")
    text = compile_schedule(plan.schedule, slice_mesh(plan.schedule.mesh, plan._model)).as_text()
    assert not re.search(r"%\S+ = pred\[[\d,]*4096\]\S+ fusion", text)


MOVED = (
    "N[T, S] = index_T >= index_S; M[T, S_Y] = Slice_Y(N[T, S])",
    "N[S, T] = index_T >= index_S; M[S_Y, T] = Slice_Y(N[S, T])",
    "N[T, S] = index_T >= index_S; M[T_X, S] = N[T_X, S]",
    "N[T_X, S] = index_T >= index_S; M[T, S_X] = AllToAll_X(N[T_X, S])",
    "N[T_X, S] = index_T >= index_S; M[T, S] = AllGather_X(N[T_X, S])",
    "N[T, S] = not(index_T >= index_S); M[T_Y, S] = Slice_Y(N[T, S])",
)


@pytest.mark.instant
@pytest.mark.parametrize("topology", [V5E, V5P])
@pytest.mark.parametrize("order", ["B, {0}, {1}", "{1}, B, {0}", "{0}, {1}, B"])
@pytest.mark.parametrize("moved", MOVED)
def test_what_moves_a_mask_is_as_narrow_as_what_made_it(moved, order, topology):
    """A Slice is read by elements as a function is, and cut what was narrow as if it were wide."""
    dims = order.format(*moved.rpartition("M[")[2].partition("]")[0].split(", "))
    plan = planned(f"{moved}; P[{dims}] = where(M, A[{dims}], 0); return P", topology)
    proof = prove(plan.schedule, source(plan.schedule, topology[:3]))
    assert proof.holds, proof
    assert wide(plan) <= {"greater_equal", "not"}
