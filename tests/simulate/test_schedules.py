"""Whole schedules against the reference, and the reference against formulas."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from shardc.api import parse
from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, ReduceScatter, Slice
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Call, Named, Pattern, Product, Use
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Block, Einsum, Schedule, Step, StepCost
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Array, Sharding
from shardc.simulate import gather, reference, run, sample_inputs, trace
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal

SIZES = {"I": 24, "J": 48, "K": 72, "L": 96}


def program(inputs, statements, mesh, sizes=None, dtype="f32"):
    """Inputs as (name, dims, sharding), statements as (name, dims, sharding, expr)."""
    kind = DTYPES[dtype]
    return Program(
        mesh,
        tuple((SIZES if sizes is None else sizes).items()),
        kind,
        tuple(Input(name, tuple(dims), Pattern.exactly(s), kind) for name, dims, s in inputs),
        tuple(Statement(n, tuple(dims), Pattern.exactly(s), e, e.dtype, "…") for n, dims, s, e in statements),
    )


def use(name, dims, dtype="f32"):
    return Use(name, tuple(dims), None, DTYPES[dtype])


def times(left, right, dims, dtype="f32"):
    return Product((left, right), tuple(dims), DTYPES[dtype])


def schedule(of, inputs, steps, outputs):
    """Steps as (op, operands, name, dims, sharding); values are numbered in order, inputs first."""
    values = [Array(n, tuple(d), of.shape(tuple(d)), s, of.dtype) for n, d, s in inputs]
    made = []
    for op, operands, name, dims, sharding in steps:
        made.append(Step(op, operands, (len(values),), 0, StepCost()))
        values.append(Array(name, tuple(dims), of.shape(tuple(dims)), sharding, of.dtype))
    return Schedule(of, Block(tuple(values), tuple(range(len(inputs))), tuple(outputs), tuple(made)))


def s(*dims, u=""):
    return Sharding.of(dims, u)


def mlp(mesh, dtype="f32"):
    """`T[I_X, K] = relu(A[I_X, J] · B[J_Y, K]); Out[I_X, L_Y] = T · C[K, L]`, with steps of five kinds."""
    inputs = [("A", "IJ", s("X", "")), ("B", "JK", s("Y", "")), ("C", "KL", s("", ""))]
    relu = Call("relu", (times(use("A", "IJ", dtype), use("B", "JK", dtype), "IK", dtype),), ("I", "K"), DTYPES[dtype])
    out = times(use("T", "IK", dtype), use("C", "KL", dtype), "IL", dtype)
    meant = program(inputs, [("T", "IK", s("X", ""), relu), ("Out", "IL", s("X", "Y"), out)], mesh, dtype=dtype)
    steps = [
        (Slice(("Y",), 1), (0,), "A", "IJ", s("X", "Y")),
        (Einsum(), (3, 1), "T", "IK", s("X", "", u="Y")),
        (ReduceScatter(("Y",), 1), (4,), "T", "IK", s("X", "Y")),
        (Apply("relu"), (5,), "T", "IK", s("X", "Y")),
        (AllGather(("Y",), 1), (6,), "T", "IK", s("X", "")),
        (Slice(("Y",), 1), (2,), "C", "KL", s("", "Y")),
        (Einsum(), (7, 8), "Out", "IL", s("X", "Y")),
    ]
    return schedule(meant, inputs, steps, [9])


@pytest.mark.instant
@pytest.mark.parametrize("sizes", [{"X": 2, "Y": 4}, {"X": 4, "Y": 2}, {"X": 3, "Y": 2, "Z": 2}], ids=str)
@pytest.mark.parametrize("dtype", ["f32", "int32"])
def test_a_schedule_is_equal_to_the_reference_on_every_device(sizes, dtype):
    plan = mlp(Mesh.of(sizes), dtype)
    assert_schedule_legal(plan)
    wholes = sample_inputs(plan.program)
    (expected,) = reference(plan.program, wholes)
    (blocks,) = run(plan, wholes)
    np.testing.assert_array_equal(expected, np.maximum(wholes[0] @ wholes[1], 0) @ wholes[2])
    assert expected.dtype == blocks.dtype == (np.int64 if dtype == "int32" else np.float64)
    assert_equal_on_every_device(blocks, expected, plan.values[9], plan.mesh)
    np.testing.assert_array_equal(gather(blocks, plan.values[9], plan.mesh), expected)


def test_trace_yields_every_step_with_what_it_leaves():
    plan = mlp(Mesh.of({"X": 2, "Y": 4}))
    wholes = sample_inputs(plan.program)
    traced = list(trace(plan, wholes))
    assert [current.name for current, _ in traced] == [current.name for current in plan.steps]
    product = gather(traced[1][1], plan.values[4], plan.mesh)
    np.testing.assert_array_equal(product, wholes[0] @ wholes[1])
    np.testing.assert_array_equal(traced[-1][1], run(plan, wholes)[0])


def test_an_unreduced_input_and_output():
    mesh = Mesh.of({"X": 2, "Y": 4})
    inputs = [("A", "IJ", s("", "", u="X")), ("B", "JK", s("", "Y"))]
    meant = program(inputs, [("C", "IK", s("", "Y", u="X"), times(use("A", "IJ"), use("B", "JK"), "IK"))], mesh)
    plan = schedule(meant, inputs, [(Einsum(), (0, 1), "C", "IK", s("", "Y", u="X"))], [2])
    assert_schedule_legal(plan)
    wholes = sample_inputs(meant)
    for seed in (0, 1):
        (blocks,) = run(plan, wholes, seed)
        assert_equal_on_every_device(blocks, reference(meant, wholes)[0], plan.values[2], mesh)


def test_a_step_may_use_one_value_twice_and_an_input_may_be_an_output():
    mesh = Mesh.of({"X": 2})
    inputs = [("A", "IJ", s("X", ""))]
    meant = program(inputs, [("C", "I", s("X"), times(use("A", "IJ"), use("A", "IJ"), "I"))], mesh)
    plan = schedule(meant, inputs, [(Einsum(), (0, 0), "C", "I", s("X"))], [1, 0])
    (whole,) = sample_inputs(meant)
    squares, same = run(plan, [whole])
    np.testing.assert_array_equal(gather(squares, plan.values[1], mesh), (whole**2).sum(axis=1))
    np.testing.assert_array_equal(gather(same, plan.values[0], mesh), whole)


def test_512_devices_are_no_trouble():
    plan = mlp(Mesh.of({"X": 8, "Y": 8, "Z": 8}))
    wholes = sample_inputs(plan.program)
    begun = time.perf_counter()
    (blocks,) = run(plan, wholes)
    assert time.perf_counter() - begun < 2
    assert blocks.shape == (8, 8, 8, 3, 12)
    assert_equal_on_every_device(blocks, reference(plan.program, wholes)[0], plan.values[9], plan.mesh)


@pytest.mark.exhaustive
def test_512_devices_with_every_collective_over_every_axis():
    mesh = Mesh.of({"X": 8, "Y": 8, "Z": 8})
    inputs = [("A", "IJ", s("", "", u="XYZ"))]
    meant = program(inputs, [("C", "IJ", s("", ""), use("A", "IJ"))], mesh, sizes={"I": 512, "J": 64})
    steps = [
        (ReduceScatter(("Z", "X"), 0), (0,), "A", "IJ", s("ZX", "", u="Y")),
        (AllReduce(("Y",)), (1,), "A", "IJ", s("ZX", "")),
        (AllToAll(("X",), 0, 1), (2,), "A", "IJ", s("Z", "X")),
        (AllGather(("Z",), 0), (3,), "A", "IJ", s("", "X")),
        (AllGather(("X",), 1), (4,), "C", "IJ", s("", "")),
    ]
    plan = schedule(meant, inputs, steps, [5])
    assert_schedule_legal(plan)
    wholes = [np.arange(512 * 64).reshape(512, 64)]
    begun = time.perf_counter()
    (blocks,) = run(plan, wholes)
    assert time.perf_counter() - begun < 20
    np.testing.assert_array_equal(blocks[7, 3, 1], wholes[0])
    np.testing.assert_array_equal(gather(blocks, plan.values[5], mesh), wholes[0])


def test_arguments_are_counted_and_checked():
    plan = mlp(Mesh.of({"X": 2, "Y": 4}))
    wholes = sample_inputs(plan.program)
    for call in (lambda w: run(plan, w), lambda w: reference(plan.program, w)):
        with pytest.raises(ShardcError, match="2 arrays given for 3 inputs") as caught:
            call(wholes[:2])
        assert caught.value.code == "SHC309" and "A, B, C" in caught.value.help
        with pytest.raises(ShardcError, match=r"`A` has the shape \(48, 24\), not \(24, 48\)"):
            call([wholes[0].T, *wholes[1:]])


def test_an_unknown_size_is_a_coded_error():
    meant = program(
        [("A", "IJ", s("", ""))],
        [("C", "I", s(""), times(use("A", "IJ"), use("A", "IJ"), "I"))],
        Mesh.of({"X": 2}),
        sizes={"I": 4},
    )
    with pytest.raises(ShardcError, match="the size of dim `J` is unknown"):
        sample_inputs(meant)


# The reference


def meaning(expr, dims, wholes, inputs):
    mesh = Mesh.of({"X": 2})
    named = [(name, names, Sharding.replicated(len(names))) for name, names in inputs]
    return reference(
        program(
            named, [("Out", dims, Sharding.replicated(len(dims)), expr)], mesh, sizes={"I": 4, "J": 6, "K": 8, "L": 2}
        ),
        wholes,
    )[0]


def test_the_reference_of_each_kind_of_expression():
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((4, 6)), generator.standard_normal((6, 8))
    both = [("A", "IJ"), ("B", "JK")]
    f32 = DTYPES["f32"]
    left, right = use("A", "IJ"), use("B", "JK")
    cases = [
        (times(left, right, "KI"), "KI", (a @ b).T),
        (times(left, right, "KI"), "IK", a @ b),
        (times(left, right, "JK"), "JK", a.sum(0)[:, None] * b),
        (Product((left,), ("J",), f32), "J", a.sum(axis=0)),
        (Named("AllGather", ("X",), "I", times(left, right, "IK"), ("I", "K"), f32), "IK", a @ b),
        (Call("max", (left,), ("J",), f32, ("I",)), "J", a.max(axis=0)),
        (Call("add", (left, Call("max", (right,), ("J",), f32, ("K",))), ("I", "J"), f32), "IJ", a + b.max(axis=1)),
        (Call("sub", (Call("max", (right,), ("J",), f32, ("K",)), left), ("I", "J"), f32), "IJ", b.max(axis=1) - a),
        (Call("softmax", (left,), ("I", "J"), f32, ("I",)), "JI", (np.exp(a) / np.exp(a).sum(axis=0)).T),
    ]
    for expr, dims, expected in cases:
        # Both in f64; of values drawn at random, one taken for another is off by its own size.
        np.testing.assert_allclose(meaning(expr, dims, [a, b], both), expected, rtol=1e-12)


def test_outputs_come_in_order_and_a_name_may_be_bound_again():
    a = np.arange(24.0).reshape(4, 6)
    one = Call("neg", (use("A", "IJ"),), ("I", "J"), DTYPES["f32"])
    again = Named("AllGather", ("X",), "I", use("A", "IJ"), ("I", "J"), DTYPES["f32"])
    square = Call("square", (use("A", "IJ"),), ("I", "J"), DTYPES["f32"])
    flat = s("", "")
    meant = program(
        [("A", "IJ", s("X", ""))],
        [("N", "IJ", flat, one), ("A", "IJ", flat, again), ("S", "IJ", flat, square)],
        Mesh.of({"X": 2}),
        sizes={"I": 4, "J": 6},
    )
    negative, squared = reference(meant, [a])
    np.testing.assert_array_equal(negative, -a)
    np.testing.assert_array_equal(squared, a**2)


def test_the_reference_computes_integers_exactly():
    big = np.full((4, 6), 2**26 + 1)  # too many digits for f32, and no sum past the end of int32
    expr = Product((use("A", "IJ", "int32"),), (), DTYPES["int32"])
    meant = program(
        [("A", "IJ", s("", ""))],
        [("Out", "", Sharding(()), expr)],
        Mesh.of({"X": 2}),
        sizes={"I": 4, "J": 6},
        dtype="int32",
    )
    assert reference(meant, [big])[0] == 24 * (2**26 + 1)


# Samples


def test_samples_are_a_few_units_of_a_power_of_two_and_never_one_value():
    plan = mlp(Mesh.of({"X": 2, "Y": 4}))
    for sample in sample_inputs(plan.program):
        unit = np.abs(sample[sample != 0]).min()
        assert np.frexp(unit)[0] == 0.5 and np.array_equal(sample / unit, np.rint(sample / unit))
        assert np.abs(sample / unit).max() <= 15 and len(np.unique(sample)) > 4
    tiny = program([("A", "I", s(""))], [("C", "I", s(""), use("A", "I"))], Mesh.of({"X": 2}), sizes={"I": 2})
    assert all(len(np.unique(sample_inputs(tiny, seed)[0])) == 2 for seed in range(40))


@pytest.mark.instant
@pytest.mark.parametrize("over", ["E", "T"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("function", ["max", "min"])
def test_no_two_samples_tie_along_a_dim_whose_largest_is_looked_for(function, dtype, over):
    text = f"m[T, E] = where(x[T, E] == {function}_{over}(x), x, 0)"
    meant = parse(text, mesh="X=2", dims="T=24,E=40", dtype=dtype)
    for seed in range(10):
        (sample,) = sample_inputs(meant, seed)
        axis = "TE".index(over)
        assert (np.diff(np.sort(sample, axis=axis), axis=axis) > 0).all()
        assert np.abs(np.mean(sample)) < 1 and np.std(sample) > 0.3


@pytest.mark.instant
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f8_e4m3fn", "int32", "uint8", "bool", "c64"])
def test_a_sample_of_one_value_is_not_0(dtype):
    """Of a gradient that is multiplied by dLoss[] nothing is compared where that is 0."""
    meant = parse(f"A: {dtype}[] → C[]; B: {dtype}[I] → D[I]", mesh="X=2", dims="I=1")
    assert all(sample.all() for seed in range(40) for sample in sample_inputs(meant, seed))


@pytest.mark.instant
@pytest.mark.parametrize("function, positive", [("log", True), ("rsqrt", True), ("exp", False), ("relu", False)])
def test_samples_are_positive_under_a_root_and_no_further(function, positive):
    expr = Call(function, (use("A", "IJ"),), ("I", "J"), DTYPES["f32"])
    meant = program([("A", "IJ", s("", ""))], [("C", "IJ", s("", ""), expr)], Mesh.of({"X": 2}))
    (sample,) = sample_inputs(meant)
    assert (sample.min() > 0) == positive


def test_samples_under_a_root_of_squares_keep_both_signs():
    a = use("A", "IJ")
    expr = Call(
        "rsqrt",
        (Product((Call("square", (a,), ("I", "J"), DTYPES["f32"]),), ("I",), DTYPES["f32"]),),
        ("I",),
        DTYPES["f32"],
    )
    meant = program([("A", "IJ", s("", ""))], [("C", "I", s(""), expr)], Mesh.of({"X": 2}))
    (sample,) = sample_inputs(meant)
    assert sample.min() < 0 < sample.max()


@pytest.mark.instant
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("inner", [2, 64, 4096])
def test_samples_make_products_of_about_1(inner, dtype):
    expr = times(use("A", "IJ", dtype), use("B", "JK", dtype), "IK", dtype)
    meant = program(
        [("A", "IJ", s("", "")), ("B", "JK", s("", ""))],
        [("C", "IK", s("", ""), expr)],
        Mesh.of({"X": 2}),
        sizes={"I": 16, "J": inner, "K": 16},
        dtype=dtype,
    )
    (found,) = reference(meant, sample_inputs(meant))
    assert 0.25 < found.std() < 4


def test_simulate_imports_no_jax_no_networkx_and_no_lark():
    text = "import sys, shardc.simulate; print({'jax', 'networkx', 'lark', 'hypothesis'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
