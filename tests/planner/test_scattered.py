"""Sums of which each device keeps its part are scattered, whatever the text says they are on the way."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.ir.collectives import AllReduce, Slice
from shardc.ir.mesh import Mesh
from shardc.ir.plan import every_block
from shardc.ir.sharding import Sharding, spell

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

DIMS = {"I": 16, "J": 32, "K": 64, "L": 3}
THEN = ("relu({})", "{} + G", "{} ⊙ G")
# The weight's gradient of a batch, pinned to where no device keeps it, and added to what each keeps.
MICRO_BATCHES = (
    "for M {\n    dW[D, F_Y] = A[M, B_X, D] ·_B H[M, B_X, F_Y]\n    G[D_X, F_Y] = G[D_X, F_Y] + dW\n}\nreturn G"
)


def wasted(schedule):
    """Sums for all of which every use is that each device takes its part by all of the sum's axes."""
    for _, block in every_block(schedule.block):
        for step in block.steps:
            readers = [other for other in block.steps if {*step.results} & {*other.operands}]
            is_sum = isinstance(step.op, AllReduce) and step.op.reduction == "sum"
            if is_sum and step.result not in block.outputs and len(readers) == 1:
                kept = readers[0].op
                if isinstance(kept, Slice) and {*kept.axes} == {*step.op.axes}:
                    yield step.name


@st.composite
def pinned(draw):
    """A sum over axes of the mesh that is pinned somewhere, then a function of it that ends as the sum or, often, with
    its axes along one of the dims; in a loop or not."""
    mesh = Mesh.of(draw(st.sampled_from(({"X": 4}, {"X": 2, "Y": 2}))))
    summed = tuple(draw(st.lists(st.sampled_from(mesh.names), min_size=1, unique=True)))
    others = [axis for axis in mesh.names if axis not in summed]
    rows, columns = (tuple(draw(st.sampled_from(([], others)))) for _ in "IK")
    columns = () if rows else columns
    end = draw(st.sampled_from(((rows, columns), (rows + summed, columns), (rows, columns + summed))))
    one, other = _spelt("IJ", rows, summed), _spelt("JK", summed, columns)
    whole, left = _spelt("IK", rows, columns), _spelt("IK", *end)
    in_loop = draw(st.booleans())
    then = draw(st.sampled_from(THEN[1:] if in_loop else THEN)).format("T").replace("G", f"G{left}")
    if in_loop:
        return mesh, f"for L {{ T{whole} = A{one.replace('[', '[L, ')} · B{other}; G{left} = {then} }}\nreturn G"
    return mesh, f"T{whole} = A{one} · B{other}\nS{left} = {then}\nreturn S"


def _spelt(dims, *axes):
    return spell(tuple(dims), Sharding(axes))


@settings(max_examples=60)
@given(pinned(), st.sampled_from(("time", "bytes")))
def test_no_sum_is_made_for_all_of_which_each_device_takes_its_part(drawn, objective):
    mesh, text = drawn
    dims = {dim: size for dim, size in DIMS.items() if dim != "L" or "for L" in text}
    program = shardc.parse(text, mesh=dict(mesh.axes), dims=dims, dtype="f32")
    found = shardc.plan(program, objective=objective, overlap="off")
    assert not list(wasted(found.schedule)), text
    assert_means_the_program(found.schedule)


@pytest.mark.instant
@pytest.mark.parametrize("chip", ["v5p", "v5e:2x4"])
def test_the_gradient_of_a_micro_batch_is_scattered(chip):
    """As without the brackets, and as the compiler does of `jax.jit`: half the bytes of a sum for all."""
    asked = {"mesh": "X=4,Y=2", "dims": "M=4,B=4096,D=2048,F=4096"}
    asked |= {"topology": chip} if ":" in chip else {"chip": chip}
    found, free = (shardc.plan(text, **asked) for text in (MICRO_BATCHES, MICRO_BATCHES.replace("dW[D, F_Y]", "dW")))
    assert found.cost.wire_bytes == free.cost.wire_bytes == 4 * 3 * 2 * 2048 // 4 * 2048
    assert found.cost.time_s == free.cost.time_s
    table = str(found)
    assert "ReduceScatter_X,D dW" in table and "AllReduce" not in table.split("instead")[0]


def test_a_sum_that_the_text_names_is_made():
    text = "T[I, K]{U_X} = A[I, J_X] · B[J_X, K]\nR[I, K] = AllReduce_X(T)\nS[I_X, K] = relu(R)\nreturn S"
    found = shardc.plan(text, mesh="X=4", dims="I=16,J=32,K=64", dtype="f32", chip="v5e")
    assert [step.name for step in found.schedule.steps] == ["Einsum", "AllReduce", "Slice", "relu"]


def test_a_sum_that_something_else_reads_is_made():
    text = "T[I, K] = A[I, J_X] · B[J_X, K]\nS[I_X, K] = relu(T)\nreturn T, S"
    found = shardc.plan(text, mesh="X=4", dims="I=16,J=32,K=64", dtype="f32", chip="v5e")
    assert "AllReduce" in [step.name for step in found.schedule.steps]
