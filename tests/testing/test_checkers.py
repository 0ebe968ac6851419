"""The checkers are seen to fail: every seeded wrong plan is caught, and the right ones pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter, Slice
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Call, Pattern, Product, Use
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Block, Einsum, Schedule, Step, StepCost
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Array, Sharding
from shardc.simulate import IllegalStep, ReplicaMismatch, expected_blocks, reference, run, sample_inputs, scatter
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal, function_law, product_law

MESH = Mesh.of({"X": 2, "Y": 3})
SIZES = {"I": 12, "J": 36, "K": 24}
F32 = DTYPES["f32"]


def s(*dims, u=""):
    return Sharding.of(dims, u)


def product():
    left, right = (Use(name, tuple(dims), None, F32) for name, dims in (("A", "IJ"), ("B", "JK")))
    return Product((left, right), ("I", "K"), F32)


def plan(a, b, c, steps, expr=None):
    """`A[I, J] · B[J, K] → C[I, K]`; steps as (op, operands, dims, sharding), the last of which is the output."""
    inputs = [("A", "IJ", a), ("B", "JK", b)]
    program = Program(
        MESH,
        tuple(SIZES.items()),
        F32,
        tuple(Input(n, tuple(d), Pattern.exactly(x), F32) for n, d, x in inputs),
        (Statement("C", ("I", "K"), Pattern.exactly(c), expr or product(), F32, "…"),),
    )
    values = [Array(n, tuple(d), program.shape(tuple(d)), x, F32) for n, d, x in inputs]
    made = []
    for op, operands, dims, sharding in steps:
        made.append(Step(op, operands, (len(values),), 0, StepCost()))
        values.append(Array("C", tuple(dims), program.shape(tuple(dims)), sharding, F32))
    return Schedule(program, Block(tuple(values), (0, 1), (len(values) - 1,), tuple(made)))


def computes_the_reference(schedule):
    wholes = sample_inputs(schedule.program)
    (expected,), (blocks,) = reference(schedule.program, wholes), run(schedule, wholes)
    try:
        assert_equal_on_every_device(blocks, expected, schedule.values[schedule.outputs[0]], schedule.mesh)
    except (AssertionError, ReplicaMismatch):
        return False
    return True


RELU = Call("relu", (product(),), ("I", "K"), F32)
PARTIAL = (Einsum(), (0, 1), "IK", s("", "", u="XY"))  # of A[I, J_XY] · B[J_XY, K]
RIGHT = {
    "all reduce": plan(s("", "XY"), s("XY", ""), s("", ""), [PARTIAL, (AllReduce(("X", "Y")), (2,), "IK", s("", ""))]),
    "reduce scatter": plan(
        s("", "XY"), s("XY", ""), s("XY", ""), [PARTIAL, (ReduceScatter(("X", "Y"), 0), (2,), "IK", s("XY", ""))]
    ),
    "all gather": plan(
        s("XY", ""),
        s("", ""),
        s("", ""),
        [(AllGather(("X", "Y"), 0), (0,), "IJ", s("", "")), (Einsum(), (2, 1), "IK", s("", ""))],
    ),
    "all to all": plan(
        s("X", ""),
        s("", ""),
        s("", "X"),
        [(Einsum(), (0, 1), "IK", s("X", "")), (AllToAll(("X",), 0, 1), (2,), "IK", s("", "X"))],
    ),
    "permute": plan(
        s("XY", ""),
        s("", ""),
        s("YX", ""),
        [
            (Einsum(), (0, 1), "IK", s("XY", "")),
            (CollectivePermute(("X", "Y"), (("Y", "X"), ())), (2,), "IK", s("YX", "")),
        ],
    ),
    "slice": plan(
        s("", ""),
        s("", ""),
        s("Y", ""),
        [(Einsum(), (0, 1), "IK", s("", "")), (Slice(("Y",), 0), (2,), "IK", s("Y", ""))],
    ),
    "function": plan(
        s("", "X"),
        s("X", ""),
        s("", ""),
        [
            (Einsum(), (0, 1), "IK", s("", "", u="X")),
            (AllReduce(("X",)), (2,), "IK", s("", "")),
            (Apply("relu"), (3,), "IK", s("", "")),
        ],
        RELU,
    ),
}

WRONG = {
    "AllReduce dropped": plan(s("", "XY"), s("XY", ""), s("", ""), [(*PARTIAL[:3], s("", ""))]),
    "AllReduce dropped, and said so": plan(s("", "XY"), s("XY", ""), s("", ""), [PARTIAL]),
    "AllReduce doubled": plan(
        s("", "XY"),
        s("XY", ""),
        s("", ""),
        [
            PARTIAL,
            (AllReduce(("X", "Y")), (2,), "IK", s("", "")),
            (AllReduce(("X",)), (3,), "IK", s("", "")),
        ],
    ),
    "AllReduce on the wrong axis": plan(
        s("", "X"),
        s("X", ""),
        s("", ""),
        [(Einsum(), (0, 1), "IK", s("", "", u="X")), (AllReduce(("Y",)), (2,), "IK", s("", ""))],
    ),
    "AllReduce over one axis of two": plan(
        s("", "XY"), s("XY", ""), s("", ""), [PARTIAL, (AllReduce(("X",)), (2,), "IK", s("", ""))]
    ),
    "ReduceScatter in the other order": plan(
        s("", "XY"), s("XY", ""), s("XY", ""), [PARTIAL, (ReduceScatter(("Y", "X"), 0), (2,), "IK", s("XY", ""))]
    ),
    "AllGather reversed": plan(
        s("XY", ""),
        s("", ""),
        s("", ""),
        [(AllGather(("Y", "X"), 0), (0,), "IJ", s("", "")), (Einsum(), (2, 1), "IK", s("", ""))],
    ),
    "permute forgotten": plan(s("XY", ""), s("", ""), s("YX", ""), [(Einsum(), (0, 1), "IK", s("YX", ""))]),
    "unreduced taken for replicated": plan(
        s("", "", u="X"), s("", ""), s("", ""), [(Einsum(), (0, 1), "IK", s("", ""))]
    ),
    "product of two unreduced": plan(
        s("", "", u="X"),
        s("", "", u="X"),
        s("", ""),
        [(Einsum(), (0, 1), "IK", s("", "", u="X")), (AllReduce(("X",)), (2,), "IK", s("", ""))],
    ),
    "a sum moved past a function": plan(
        s("", "X"),
        s("X", ""),
        s("", ""),
        [
            (Einsum(), (0, 1), "IK", s("", "", u="X")),
            (Apply("relu"), (2,), "IK", s("", "", u="X")),
            (AllReduce(("X",)), (3,), "IK", s("", "")),
        ],
        RELU,
    ),
    "a slice of what is not copied": plan(
        s("X", ""),
        s("", ""),
        s("", "X"),
        [(Einsum(), (0, 1), "IK", s("X", "")), (Slice(("X",), 1), (2,), "IK", s("X", "X"))],
    ),
    "contracted dims in another order": plan(
        s("", "XY"),
        s("YX", ""),
        s("", ""),
        [PARTIAL, (AllReduce(("X", "Y")), (2,), "IK", s("", ""))],
    ),
}
# The first is right but for what the user asked; of the second the sharding itself is none.
UNSEEN = ("AllReduce dropped, and said so", "a slice of what is not copied")
# What cannot even run: a block would have another shape than the plan says.
IMPOSSIBLE = {
    "ReduceScatter on the wrong dim": plan(
        s("", "X"),
        s("X", ""),
        s("X", ""),
        [(Einsum(), (0, 1), "IK", s("", "", u="X")), (ReduceScatter(("X",), 1), (2,), "IK", s("X", ""))],
    ),
    "AllToAll swapped": plan(
        s("X", ""),
        s("", ""),
        s("", "X"),
        [(Einsum(), (0, 1), "IK", s("X", "")), (AllToAll(("X",), 1, 0), (2,), "IK", s("", "X"))],
    ),
    "AllGather forgotten": plan(s("X", ""), s("", ""), s("", ""), [(Einsum(), (0, 1), "IK", s("", ""))]),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_plan_passes(name):
    assert_schedule_legal(RIGHT[name])
    assert computes_the_reference(RIGHT[name])


@pytest.mark.instant
@pytest.mark.parametrize("name", {**WRONG, **IMPOSSIBLE})
def test_a_wrong_plan_is_not_legal(name):
    with pytest.raises(AssertionError):
        assert_schedule_legal({**WRONG, **IMPOSSIBLE}[name])


@pytest.mark.instant
@pytest.mark.parametrize("name", [name for name in WRONG if name not in UNSEEN])
def test_a_wrong_plan_computes_something_else(name):
    assert not computes_the_reference(WRONG[name])


@pytest.mark.instant
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_plan_does_not_run(name):
    with pytest.raises(IllegalStep):
        computes_the_reference(IMPOSSIBLE[name])


def test_a_dropped_reduction_that_is_owned_up_to_is_an_undeclared_output():
    with pytest.raises(AssertionError, match=r"output C: .* does not lie as \[I, K\]"):
        assert_schedule_legal(WRONG["AllReduce dropped, and said so"])


def broken(schedule, **changes):
    return replace(schedule, block=replace(schedule.block, **changes))


def test_structure_is_checked_too():
    right = RIGHT["all reduce"]
    first, second = right.steps
    values = right.values
    wide = replace(values[3], sharding=s("X", "X"))
    odd = replace(values[3], shape=(12, 25), sharding=s("", "X"))
    wrong = {
        "before it is written": broken(right, steps=(second, first)),
        "is written twice": broken(right, steps=(first, second, second)),
        "there is no value 9": broken(right, steps=(first, replace(second, results=(9,)))),
        "is used twice": broken(right, values=(*values[:3], wide)),
        "do not divide": broken(right, values=(*values[:3], odd)),
        "not of the mesh": broken(right, values=(*values[:3], replace(values[3], sharding=s("", "", u="Q")))),
        "has the sizes": broken(right, values=(*values[:3], replace(values[3], shape=(12, 48)))),
        "keeps the dims and the type": broken(right, values=(*values[:3], replace(values[3], dtype=DTYPES["bf16"]))),
        "has the dims": broken(right, outputs=(0,)),
        "does not lie as": broken(right, outputs=(2,)),
        "of the schedule": broken(right, outputs=()),
        "never written": broken(right, steps=(first,)),
        "2 dims, 1 sizes": broken(right, values=(*values[:3], replace(values[3], shape=(12,)))),
    }
    for message, schedule in wrong.items():
        with pytest.raises(AssertionError, match=message):
            assert_schedule_legal(schedule)
    other = replace(right.program.inputs[0], pattern=Pattern.exactly(s("", "YX")))
    program = replace(right.program, inputs=(other, right.program.inputs[1]))
    with pytest.raises(AssertionError, match=r"input A: A\[I, J_XY\] does not lie as \[I, J_YX\]"):
        assert_schedule_legal(replace(right, program=program))


# assert_equal_on_every_device


def copies(sharding, dtype="f32", shape=(12, 24)):
    array = Array("C", ("I", "K"), shape, sharding, DTYPES[dtype])
    whole = np.arange(float(np.prod(shape))).reshape(shape)
    if dtype == "int32":
        whole = whole.astype(int)
    return array, whole, scatter(whole, array, MESH).copy()


@pytest.mark.instant
@pytest.mark.parametrize("dtype", ["f32", "int32"])
@pytest.mark.parametrize("device", [(0, 0), (1, 2), (0, 1)])
def test_one_wrong_element_on_one_device_is_named(dtype, device):
    array, whole, blocks = copies(s("X", ""), dtype)
    assert_equal_on_every_device(blocks, whole, array, MESH)
    blocks[(*device, 2, 3)] += 1
    with pytest.raises(AssertionError, match=rf"device \(X={device[0]}, Y={device[1]}\) at \(2, 3\) .* 1 of 864"):
        assert_equal_on_every_device(blocks, whole, array, MESH)


def test_a_bound_is_elementwise_and_kept_to():
    array, whole, blocks = copies(s("X", "Y"))
    bound = np.zeros(whole.shape)
    bound[6, 8] = 0.5  # the first element of device (1, 1)
    blocks[1, 1, 0, 0] += 0.5
    assert_equal_on_every_device(blocks, whole, array, MESH, bound)
    blocks[1, 1, 0, 0] += 0.1
    with pytest.raises(AssertionError, match="X=1, Y=1"):
        assert_equal_on_every_device(blocks, whole, array, MESH, bound)
    blocks[1, 1, 0, 0] -= 0.6
    blocks[1, 1, 0, 1] += 0.1
    with pytest.raises(AssertionError, match="X=1, Y=1"):
        assert_equal_on_every_device(blocks, whole, array, MESH, bound)


def test_large_integers_are_compared_exactly():
    array, whole, _ = copies(s("X", ""), "int32")
    whole = whole + 2**60
    blocks = expected_blocks(whole, array, MESH).copy()
    blocks[0, 0, 0, 0] += 1
    with pytest.raises(AssertionError):
        assert_equal_on_every_device(blocks, whole, array, MESH)


@pytest.mark.instant
@pytest.mark.parametrize(
    "value, other", [(np.nan, 0.0), (np.inf, -np.inf), (np.inf, 1e30), (0.0, np.nan), (1.0, np.inf)]
)
def test_what_is_not_finite_is_so_in_both(value, other):
    array, whole, _ = copies(s("X", ""))
    whole[3, 3] = value
    blocks = expected_blocks(whole, array, MESH).copy()
    assert_equal_on_every_device(blocks, whole, array, MESH, 0.1)
    blocks[0, 0, 3, 3] = other
    with pytest.raises(AssertionError, match="is wanted"):
        assert_equal_on_every_device(blocks, whole, array, MESH, 0.1)


@pytest.mark.instant
@pytest.mark.parametrize("bound", [np.inf, np.nan, 1e6, "a seventh", "one element"])
def test_a_bound_that_tells_nothing_is_refused(bound):
    """Also where the blocks are right."""
    array, whole, blocks = copies(s("X", "Y"))
    if bound == "a seventh":
        bound = whole.std() / 7
    elif bound == "one element":
        bound = np.zeros(whole.shape)
        bound[0, 0] = np.inf
    with pytest.raises(AssertionError, match="tells nothing of values that are spread by"):
        assert_equal_on_every_device(blocks, whole, array, MESH, bound)
    assert_equal_on_every_device(blocks, whole, array, MESH, whole.std() / 9)


def test_a_bound_of_values_all_alike_is_a_small_part_of_their_size():
    array, whole, blocks = copies(s("X", "Y"))
    blocks, whole = np.full_like(blocks, 3.0), np.full_like(whole, 3.0)
    assert_equal_on_every_device(blocks, whole, array, MESH, 1e-4)
    with pytest.raises(AssertionError, match="tells nothing"):
        assert_equal_on_every_device(blocks, whole, array, MESH, 1e-2)
    assert_equal_on_every_device(0 * blocks, 0 * whole, array, MESH, 1e-9)


def test_of_an_unreduced_array_the_sum_is_compared():
    array, whole, blocks = copies(s("", "", u="Y"))
    assert_equal_on_every_device(blocks, whole, array, MESH)
    blocks[:, 1, 4, 5] += 1
    with pytest.raises(AssertionError, match=r"the sum over devices at \(4, 5\)"):
        assert_equal_on_every_device(blocks, whole, array, MESH)


def test_blocks_of_another_shape_are_not_equal():
    array, whole, blocks = copies(s("X", ""))
    with pytest.raises(AssertionError, match="the blocks have the shape"):
        assert_equal_on_every_device(blocks[..., :3], whole, array, MESH)


# The laws of local steps

IJ, JK, IK = ("I", "J"), ("J", "K"), ("I", "K")


@pytest.mark.instant
@pytest.mark.parametrize(
    "a, b, left",
    [
        (s("X", ""), s("", "Y"), s("X", "Y")),
        (s("X", "Y"), s("Y", ""), s("X", "", u="Y")),
        (s("", "", u="X"), s("", "Y"), s("", "Y", u="X")),
        (s("", "Y", u="X"), s("Y", ""), s("", "", u="XY")),
        (s("", "XY"), s("YX", ""), "dim J"),
        (s("", "X"), s("", ""), "dim J"),
        (s("X", ""), s("", "X"), "axis X is on two dims"),
        (s("", "", u="X"), s("", "", u="X"), "unreduced over"),
        (s("", "", u="X"), s("", "X"), "unreduced over"),
        (s("X", ""), s("", "", u="X"), "unreduced over"),
    ],
)
def test_the_law_of_products(a, b, left):
    found = product_law((IJ, JK), (a, b), IK)
    assert found == left if isinstance(left, Sharding) else left in str(found)


def test_the_law_of_sums_and_of_missing_dims():
    assert product_law((IJ,), (s("X", "Y"),), ("I",)) == s("X", u="Y")
    assert product_law((IJ,), (s("X", "Y"),), ("J", "I")) == s("Y", "X")
    assert "dim L" in str(product_law((IJ,), (s("X", "Y"),), ("L",)))


@pytest.mark.instant
@pytest.mark.parametrize(
    "name, over, dims, operands, result, left",
    [
        ("relu", (), (IJ,), (s("X", "Y"),), IJ, s("X", "Y")),
        ("relu", (), (IJ,), (s("X", "", u="Y"),), IJ, "not linear"),
        ("neg", (), (IJ,), (s("X", "", u="Y"),), IJ, s("X", "", u="Y")),
        ("add", (), (IJ, IJ), (s("X", "", u="Y"), s("X", "", u="Y")), IJ, s("X", "", u="Y")),
        ("add", (), (IJ, IJ), (s("X", "", u="Y"), s("X", "")), IJ, "different axes"),
        ("add", (), (IJ, IJ), (s("X", ""), s("", "")), IJ, "dim I"),
        ("add", (), (IJ, ("J",)), (s("X", "Y"), s("Y")), IJ, s("X", "Y")),
        ("add", (), (IJ, ("J",)), (s("X", ""), s("X")), IJ, "dim J"),
        ("add", (), (("I",), ("J",)), (s("X"), s("X")), IJ, "axis X is on two dims"),
        ("max", ("J",), (IJ,), (s("X", ""),), ("I",), s("X")),
        ("max", ("J",), (IJ,), (s("", "X"),), ("I",), Sharding(((),), frozenset("X"), "max")),
        ("max", ("J",), (IJ,), (Sharding(((), ()), frozenset("X"), "max"),), ("I",), "not linear"),
        ("neg", (), (IJ,), (Sharding(((), ()), frozenset("X"), "max"),), IJ, "partial maximum"),
        ("div", (), (IJ, ("J",)), (s("X", "", u="Y"), s("")), IJ, s("X", "", u="Y")),
        ("div", (), (IJ, ("J",)), (s("X", ""), s("", u="Y")), IJ, "not linear"),
        ("max", ("J",), (IJ,), (s("X", ""),), IJ, "leaves the dims"),
        ("softmax", ("J",), (IJ,), (s("X", "Y"),), IJ, "runs over J"),
        ("softmax", ("J",), (IJ,), (s("X", ""),), IJ, s("X", "")),
        ("relu", (), (IJ, IJ), (s("", ""), s("", "")), IJ, "takes 1 operands"),
    ],
)
def test_the_law_of_functions(name, over, dims, operands, result, left):
    found = function_law(name, over, dims, operands, result)
    assert found == left if isinstance(left, Sharding) else left in str(found)
