"""Element types on devices: what only moves moves bit by bit, and mixed products are JAX's."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES, Kind, accumulator, promoted
from shardc.machines.run import Verdict, report_of, run

pytestmark = pytest.mark.devices

COMPUTES = [row for row in DTYPES.values() if not row.moves]


def mesh():
    return jax.make_mesh((2, 4), ("X", "Y"))


MOVED = [row for row in DTYPES.values() if not row.is_wide]


def bits(row, shape=(16, 8)):
    """Distinct bits, as far as the type has them, but for those that are no number."""
    numbers = np.arange(np.prod(shape)).reshape(shape) % {"bool": 2, "uint4": 16, "int4": 8}.get(row.name, 7)
    found = numbers.astype(jnp.dtype(row.jax))
    return found * (1 + 2j) if row.kind.value == "complex" else found


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=pytest.mark.exhaustive if place % 3 else (), id=str(row))
        for place, row in enumerate(MOVED)
    ],
)
def test_every_type_moves(row):
    whole = bits(row)
    with jax.set_mesh(mesh()):
        x = jax.device_put(whole, jax.P("X", "Y"))
        calls = shardc.reshard, jax.jit(shardc.reshard, static_argnums=1)
        for call, target in zip(calls, (jax.P(None, ("X", "Y")), jax.P("Y")), strict=True):
            found = call(x, target)
            assert found.dtype == whole.dtype
            for shard in found.addressable_shards:
                assert np.asarray(shard.data).tobytes() == whole[shard.index].tobytes()
    text = f"A: {row}[I_X, J_Y] → A[I_Y, J_X]"
    assert run(shardc.plan(text, mesh="X=2,Y=4", dims={"I": 16, "J": 8}).schedule).ok
    assert str(shardc.parse(str(shardc.parse(text, mesh="X=2,Y=4")))) == str(shardc.parse(text, mesh="X=2,Y=4"))


def test_partial_sums_of_complex_numbers_add_up():
    for text in ("A: c64[I, J]{U_X} → A[I_X, J]", "A: c64[I, J]{U_XY} → A[I, J]"):
        assert run(shardc.plan(text, mesh="X=2,Y=4", dims={"I": 16, "J": 8}).schedule).ok


@pytest.mark.parametrize("row", [row for row in DTYPES.values() if row.moves], ids=str)
def test_what_only_moves_is_not_computed_with(row):
    texts = [
        f"A: {row}[I, J] · B: {row}[J, K] → C[I, K]",
        f"A: {row}[I, J] + B: {row}[I, J] → C[I, J]",
        f"relu(A: {row}[I, J]) → C[I, J]",
        f"sum_J(A: {row}[I, J]) → C[I]",
        f"max_J(A: {row}[I, J]) → C[I]",
        f"-A: {row}[I, J] → C[I, J]",
    ]
    texts += [] if row.adds else [f"A: {row}[I, J]{{U_X}} → A[I, J]"]
    for text in texts:
        with pytest.raises(ShardcError) as caught:
            shardc.plan(text, mesh="X=2")
        assert caught.value.code == "SHC214", text
        assert caught.value.help


MIXED = [(a, b) for a, b in itertools.permutations(COMPUTES, 2) if promoted(a, b) and not (a.is_wide or b.is_wide)]
RUN = [(a, b) for a, b in MIXED if not promoted(a, b).is_wide]
FORMS = (
    "A: {a}[I_X, J] · B: {b}[J, K_Y] → C{c}[I_X, K_Y]",
    "A: {a}[I, J_X] · B: {b}[J_X, K_Y] → C{c}[I_X, K]",
    "A: {a}[I, J_XY] · B: {b}[J, K] → C{c}[I_Y, K]",
)


def declared(left, right):
    """A sum of narrow integers is to be declared."""
    found = promoted(left, right)
    return f": {accumulator(found)}" if found.is_narrow and found.kind.value == "int" else ""


def mixed(text, pair):
    left, right = pair
    return text.format(a=left, b=right, c=declared(left, right))


def planned(text):
    return shardc.plan(text, mesh="X=2,Y=4", dims={"I": 8, "J": 16, "K": 8}, objective="bytes")


@pytest.mark.exhaustive
@settings(max_examples=10)
@given(st.sampled_from(RUN), st.sampled_from(FORMS))
def test_mixed_products_are_numpys_and_typed_as_jnp_einsum_types_them(pair, text):
    text = mixed(text, pair)
    plan = planned(text)
    wholes = simulate.sample_inputs(plan.program)
    arrays = [w.astype(jnp.dtype(a.dtype.jax)) for w, a in zip(wholes, plan.program.inputs, strict=True)]
    found = plan.compile()(*arrays)
    like = jnp.einsum("ij,jk->ik", *arrays)
    if not declared(*pair):
        assert found.dtype == like.dtype
    np.testing.assert_array_equal(plan.simulate(*wholes), plan.reference(*wholes))
    verdict = run(plan.schedule).verdict  # of parts in f8 the rounding is as large as the values
    assert verdict is Verdict.EQUAL or (verdict is Verdict.NOT_CHECKABLE and found.dtype.itemsize == 1)
    assert shardc.parse(str(plan.program)) == plan.program
    assert plan.source()


def test_einsum_takes_the_types_of_its_arrays():
    text = "A[I_X, J] · B[J, K_Y] → C[I_X, K_Y]"
    a, b = np.arange(128).reshape(8, 16) % 5 - 2, np.arange(128).reshape(16, 8) % 3 - 1
    with jax.set_mesh(mesh()):
        for left, right, wanted in (("bfloat16", "float32", "float32"), ("int32", "bfloat16", "bfloat16")):
            given = a.astype(jnp.dtype(left)), b.astype(jnp.dtype(right))
            placed = [jax.device_put(x, spec) for x, spec in zip(given, (jax.P("X"), jax.P(None, "Y")), strict=True)]
            for found in (shardc.einsum(text, *given), jax.jit(lambda x, y: shardc.einsum(text, x, y))(*placed)):
                assert found.dtype.name == wanted
                np.testing.assert_array_equal(np.asarray(found, np.float64), a @ b)
        for left, right, code in (("int32", "uint32", "SHC216"), ("int8", "uint8", "SHC215")):
            with pytest.raises(ShardcError) as caught:
                shardc.einsum(text, a.astype(left), b.astype(right))
            assert caught.value.code == code


def test_a_mixed_product_moves_each_operand_in_its_own_type_and_multiplies_in_theirs():
    dims = {"I": 1024, "J": 1024, "K": 1024}
    plan = shardc.plan("A: bf16[I_X, J] · B: f32[J, K_X] → C[I, K_X]", mesh="X=4", dims=dims, objective="bytes")
    (gather,) = [step for step in plan.steps if step.op == "AllGather"]
    assert gather.wire_bytes == 3 * 1024 * 256 * 2  # a bf16 A in quarters
    plan = shardc.plan("A: f32[I_X, J] · B: bf16[J, K_X] → C[I_X, K]", mesh="X=4", dims=dims, objective="bytes")
    (gather,) = [step for step in plan.steps if step.op == "AllGather"]
    assert gather.wire_bytes == 3 * 1024 * 256 * 2
    (product,) = [step for step in plan.steps if step.op == "Einsum"]
    assert "(C_peak/2)" in product.formula  # the rate of f32
    assert plan.outputs[0].bytes == 256 * 1024 * 4
    assert "B.astype(jnp.float32)" in plan.source()


def test_what_conversion_rounds_is_allowed():
    """2049 is no bf16; f32 has it. 2049 − 2048 = 1 is one, so that nothing but the conversion rounds."""
    for kind, rounds in (("bf16", True), ("f32", False)):
        plan = shardc.plan(f"A: int32[I] · B: {kind}[I] → C[]", dims={"I": 2})
        wholes = [np.array([2049, -2048]), np.ones(2)]
        (allowed,) = simulate.allowed(plan.schedule, wholes, simulate.reference(plan.program, wholes))
        assert (allowed.largest.max() >= 8) == rounds
        assert (allowed.largest.max() == 0) != rounds


def test_sums_are_promoted():
    assert str(shardc.parse("A: bf16[I] + B: f32[I] → C[I]").statements[0].dtype) == "f32"


def test_partial_sums_of_two_types():
    for text in (
        "A: bf16[I, J]{U_X} · B: f32[J, K] → C[I_X, K]",
        "A: f32[I, J]{U_X} · B: bf16[J, K] → C[I_X, K]",
    ):
        assert run(planned(text).schedule).ok


def test_chains_of_several_types_are_within_their_bounds():
    for text in (
        "A: int32[I_X, J] · (B: bf16[J, K_Y] · D: bf16[K_Y, L]) → C[I, L]",
        "A: bf16[I_X, J] · B: bf16[J, K_Y] · D: f32[K_Y, L] → C[I_X, L]",
        "A: f16[I_X, J] · (B: bf16[J, K] · D: bf16[K, L_Y]) → C[I_X, L]",
    ):
        plan = shardc.plan(text, mesh="X=2,Y=4", dims={"I": 8, "J": 8, "K": 8, "L": 8})
        assert run(plan.schedule).ok


ROUNDED = [("int32", "bf16"), ("bf16", "f32"), ("f16", "int16"), ("f16", "bf16")]


@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([("int32", "bf16"), ("bf16", "f32"), ("f16", "int16"), ("f16", "bf16")])
)
def test_what_is_rounded_is_within_bounds_that_tell_one_part_of_a_sum_from_none(seed, pair):
    """Of values that the product's type does not have: 12 bits and a sign."""
    plan = planned(mixed(FORMS[1], [DTYPES[name] for name in pair]))
    random, wholes = np.random.default_rng(seed), []
    for array in plan.program.inputs:
        shape = plan.program.shape(array.dims)
        whole = random.integers(-4095, 4096, shape) / (1 if array.dtype.kind.value == "int" else 4096)
        wholes.append(whole.astype(jnp.dtype(array.dtype.jax)))
    program = plan.compile()
    assert report_of(plan.schedule, wholes, [program(*wholes)]).verdict is Verdict.EQUAL
    without = np.concatenate([np.zeros_like(wholes[1][:8]), wholes[1][8:]])
    assert report_of(plan.schedule, wholes, [program(wholes[0], without)]).verdict is Verdict.NOT_EQUAL


def test_gradients_have_the_types_of_the_operands():
    a, b = np.arange(128).reshape(8, 16) % 5 - 2, np.arange(128).reshape(16, 8) % 3 - 1
    with jax.set_mesh(mesh()):
        x, w = (
            jax.device_put(a.astype(jnp.bfloat16), jax.P("X")),
            jax.device_put(b.astype(np.float32), jax.P(None, "Y")),
        )

        def loss(x, w):
            return jnp.sum(shardc.einsum("A[I_X, J] · B[J, K_Y] → C[I_X, K_Y]", x, w) ** 2) / 2

        dx, dw = jax.jit(jax.grad(loss, argnums=(0, 1)))(x, w)
    assert (dx.dtype, dw.dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_array_equal(np.asarray(dx, np.float64), a @ b @ b.T)
    np.testing.assert_array_equal(np.asarray(dw), a.T @ (a @ b))


CAST = [row for row in DTYPES.values() if row.kind is not Kind.COMPLEX]


@pytest.mark.parametrize("row", CAST, ids=lambda row: row.name)
def test_an_array_has_a_gradient_where_there_is_a_cast_to_its_type(row):
    """Which ends it: `dA = f8_e5m2(…)`, a name with an underscore as any other. What only moves has none."""
    text = f"C[I_X, K] = f32(A: {row.name}[I_X, J]) · B: f32[J, K]"
    found = shardc.grad(shardc.parse(text, mesh={"X": 2}, dims={"I": 4, "J": 4, "K": 4}))
    names = [found.results[number].name for number in found.outputs]
    assert names == (["dA", "dB"] if row in COMPUTES and row.kind is Kind.FLOAT else ["dB"])
    if row in COMPUTES:
        assert shardc.parse(f"C[I] = {row.name}(A: f64[I])").statements[0].dtype == row


EXPRESSIONS = [
    ("a: {0}[I, J]", False), ("relu(a: {0}[I, J])", False), ("a: {0}[I, J] + b: {0}[I, J]", False),
    ("square(a: {0}[I, J])", False), ("where(a: {0}[I, J] > 0, a, 0)", False), ("-(a: {0}[I, J])", False),
    ("sum_K(a: {0}[I, J, K])", True), ("a: {0}[I, K] · b: {0}[K, J]", True), ("a: {0}[I, J] ⊙ b: {0}[I, J]", True),
]  # fmt: skip


@pytest.mark.instant
@pytest.mark.parametrize(("text", "adds_up"), EXPRESSIONS)
@pytest.mark.parametrize(("narrow", "wide"), [("bf16", "f32"), ("int8", "int32")])
def test_a_wider_type_is_declared_of_products_and_sums_alone_in_whatever_order_of_dims(text, adds_up, narrow, wide):
    """`z: f32[J, I] = relu(a[I, J])` of bf16 was taken, and came out as bf16."""
    for result in ("I, J", "J, I", "J_X, I"):
        written = f"z: {wide}[{result}] = {text.format(narrow)}"
        if adds_up:
            plan = shardc.plan(written, mesh={"X": 2}, dims={"I": 4, "J": 4, "K": 4})
            assert plan.program.results[-1].dtype.name == wide and plan.prove().holds
            continue
        with pytest.raises(shardc.ShardcError, match=f"is declared {wide}, and its expression is {narrow}") as refused:
            shardc.parse(written, mesh={"X": 2})
        assert refused.value.code == "SHC214" and f"cast it: `{wide}(…)`" in (refused.value.help or "")
