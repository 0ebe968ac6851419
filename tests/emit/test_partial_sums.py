"""Programs with unreduced inputs: every operation, function and reduction, and what comes after it, on every shard."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import shardc
from shardc.errors import RUNTIME, ShardcError
from shardc.ir.functions import FUNCTIONS, NAMED
from shardc.machines.run import run
from shardc.testing import Case, partial_programs

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from traced import called_otherwise

pytestmark = pytest.mark.devices

TWO, UNEVEN, THREE = {"X": 2, "Y": 2}, {"X": 2, "Y": 4}, {"X": 2, "Y": 2, "Z": 2}
SIZES = {"I": 16, "J": 24, "K": 8}
EXPLICIT, AUTO = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto


def ended(bench, text, mesh, dims=SIZES):
    return bench.outcome(Case(text, shardc.ir.mesh.Mesh.of(mesh), dims))


@pytest.mark.parametrize(
    "mesh, text",
    [
        (TWO, "A[I, J]{U_XY} → B[I_X, J_Y]; C[I_X, J_Y] = relu(B)"),
        (TWO, "A[I, J]{U_YX} · B[J_Y, K] → C[I_X, K]"),
        (TWO, "A[I, J]{U_XY} → B[I_X, J_Y]; C[I_X, J_Y] = B ⊙ B"),
        (TWO, "A[I, J]{U_XY} → B[I_X, J_Y]; C[I_X] = max_J(B)"),
        (TWO, "A[I, J]{U_XY} → B[I_X, J_Y]; C[I_X, J_Y] = softmax_I(B)"),
        (TWO, "A[I, J]{U_XY} → B[I_X, J_Y]; C[I_X, J_Y] = B + D[I_X, J_Y]"),
        (THREE, "A[I_Y, J_X]{U_Z} → C[I, J]{U_Z}"),
        (THREE, "A[I, J]{U_XY} → B[I_X, J_Y]; B → C[I_Z, J_Y]"),
        (THREE, "A[I_Z, J]{U_X} · B[J, K]{U_Y} → C[I_Z, K]{U_XY}"),  # both arrive unreduced
        (TWO, "A[I, J]{U_X} ·_LOCAL B[J, K]{U_Y} → C[I, K]{U_XY}"),
        (TWO, "C[I, J]{U_XY} = A[I, J]{U_X} ⊙ B[J]{U_Y}"),
        (TWO, "A[I, J]{U_X} → B[I, J]{U_X}"),  # no step
        (TWO, "S[]{U_X} = sum_I(A[I]{U_X}); T[] = S - B[]{U_X}"),  # of no dim
        ({"X": 1}, "A[I, J]{U_X} → B[J, I]{U_X}"),  # of one device
        ({"X": 1, "Y": 2}, "A[I, J]{U_X} → B[I_Y, J]{U_X}"),
    ],
)
def test_what_used_to_crash(bench, mesh, text):
    assert ended(bench, text, mesh) == bench.EQUAL


SHARED = [
    "A[I, J]{U_XY} → T[I_X, J_Y]",
    "A[I, J]{U_XY} → T[I, J_YX]",
    "A[I_Y, J]{U_X} → T[I_X, J_Y]",
    "A[I, J]{U_XY} → T[I, J]",
    "A[I, J]{U_XY} → T[I_XY, J]",
    "A[I, J]{U_XY} → T[I_Y, J_X]",
    "A[I, J_Y]{U_X} → T[I_?, J_?]",
    "T[I_X, J_Y] = ReduceScatter(A[I, J]{U_XY})",
]
OVER_I = [f"{name}_I(T)" for name, row in FUNCTIONS.items() if row.over_dims and name in NAMED]
ELEMENTWISE = [row for row in FUNCTIONS.values() if row.arity == 1 and not row.over_dims and row.name in NAMED]
OF_ONE = [f"{row.name}(T)" for row in ELEMENTWISE if not row.truths]
# Of drawn values these are not finite.
INFINITE = {f"{name}(T)" for name in ("log", "log1p", "sqrt", "rsqrt", "exp", "exp2")}
NEXT = [
    *(
        f"{name}[I_Y, J_X] = {text}"
        for name, text in zip("abcdefghijklm", OF_ONE, strict=False)
        if text not in INFINITE
    ),
    *(f"{name}[I_?, J_?] = {text}" for name, text in zip("nop", OVER_I, strict=False) if "softmax" in text),
    "q[J_X] = max_I(T)",
    "r[J_X] = sum_I(T)",
    "s[I_X] = max_J(T)",
    "t[I_X, J_Y] = -T",
    "u[I_X, J_Y] = T + D[I_X, J_Y]",
    "v[I_Y, J] = D[I_X, J_Y] - T",
    "w[I_X, J_Y] = T ⊙ T",
    "x[I_X, K_Y] = T · E[J_Y, K]",
    "y[J, I_Y] = T",
    "z[I_YX, J] = T ⊙ F[J_X]",
]


@pytest.mark.parametrize(
    "text",
    [text if place < 1 else pytest.param(text, marks=pytest.mark.exhaustive) for place, text in enumerate(SHARED)],
)
def test_every_step_after_partial_sums_were_shared_out(bench, text):
    """Of what comes next a third in one program, in turns: each is done after two or three ways to share out. Crashes
    were of what came next, whichever way was before it, or of one way, whatever came next."""
    assert {"relu(T)", "gelu(T)"} < set(OF_ONE), "the functions are those of the notation"
    assert ended(bench, "\n".join([text, *NEXT[SHARED.index(text) % 3 :: 3]]), TWO) == bench.EQUAL


LINEAR = [
    "B1[I, J]{U_X} = -A[I, J]{U_X}",
    "B2[I_Y, J]{U_X} = A + A",
    "B3[I, J_Y] = A - -A",
    "B4[J]{U_X} = sum_I(A)",
    "B5[I, K_Y]{U_X} = A · E[J, K_Y]",
    "B6[I, K]{U_XY} = A · F[J_Y, K]",
    "B7[J_Y, I]{U_X} = A ⊙ G[I]",
    "B8[I]{U_XY} = A · H[J]{U_Y}",
    "B9[I_X, J_Y] = relu(A) + A",
    "C1[I, J]{U_X} = A + L[I, J]{U_X}",
    "C2[I, J] = AllReduce_X(A[I, J]{U_X})",
    "C3[I, J] = A ⊙ A",
]


@pytest.mark.exhaustive
def test_every_linear_step_of_partial_sums(bench):
    assert ended(bench, "\n".join(LINEAR), UNEVEN) == bench.EQUAL


# Each a move of a value that stays unreduced over Z, or more of them.
MOVED = [
    "AllGather(A1[I_XY, J]{U_Z}) → B1[I, J]{U_Z}",
    "AllGather(A2[I_X, J_Y]{U_Z}) → B2[I, J]{U_Z}",
    "AllToAll(A3[I_X, J]{U_Z}) → B3[I, J_X]{U_Z}",
    "CollectivePermute(A4[I_XY, J]{U_Z}) → B4[I_YX, J]{U_Z}",
    "CollectivePermute(A5[I_X, J_Y]{U_Z}) → B5[I_Y, J_X]{U_Z}",
    "Slice(A6[I, J_X]{U_Z}) → B6[I_Y, J_X]{U_Z}",
    "A7[I_X, J_Y]{U_Z} → B7[I_YX, J]{U_Z}",
    "A8[I_YX, J]{U_Z} → B8[I, J_XY]{U_Z}",
    "A9[I_XY, J]{U_Z} → B9[I_Y, J]{U_Z}",  # in digits, if that were cheaper
    "ReduceScatter(A10[I, J]{U_XYZ}) → B10[I_X, J_Y]{U_Z}",
    "ReduceScatter(A11[I, J_X]{U_YZ}) → B11[I_Y, J_X]{U_Z}",
    "A12[I_X, J]{U_YZ} → B12[I, J]{U_Z}",
]


def test_every_move_of_what_stays_unreduced(bench):
    assert ended(bench, "\n".join(MOVED), THREE) == bench.EQUAL


@settings(max_examples=8)
@given(partial_programs())
def test_drawn_programs(bench, case):
    assert bench.outcome(case) == bench.EQUAL


@pytest.mark.exhaustive
@settings(max_examples=20)
@given(partial_programs())
def test_many_drawn_programs(bench, case):
    """Of a difference all may cancel, `A{U_X} - A`, and what is left by rounding says nothing."""
    found = bench.outcome(case)
    assert found == bench.EQUAL or (found == bench.NOT_CHECKABLE and " - " in case.text)


@pytest.mark.parametrize(
    "mesh, topology, dims, dtype, mark",
    [
        ("X=4", "v5p:2x2x1", {"I": 16, "J": 12}, "int32", "all_to_all"),
        ("X=4", "v5p:2x2x1", {"I": 260 * 4, "J": 256}, "f32", "jnp.stack"),
        ("X=8", "v5p:2x2x2", {"I": 1024, "J": 256}, "f32", "reshape(4, 2)"),
    ],
)
def test_partial_sums_are_scattered_as_a_products_are(mesh, topology, dims, dtype, mark):
    """In the forms that a TPU's compiler keeps: exchanged, stacked, in parts of an axis."""
    plan = shardc.plan(
        "A[I, J]{U_X} → A[I_X, J]", mesh=mesh, dims=dims, dtype=dtype, topology=topology, objective="bytes"
    )
    assert mark in plan.source()
    assert run(plan.schedule).ok


def partial(whole, axis_parts, mesh, spec):
    """A whole array as unequal partial sums along X."""
    drawn = np.random.default_rng(1).integers(-3, 4, (axis_parts - 1, *whole.shape)).astype(whole.dtype)
    parts = [*drawn, whole - drawn.sum(0)]
    sharding = jax.NamedSharding(mesh, spec)
    blocks = [jax.device_put(parts[at[0]], device) for at, device in np.ndenumerate(mesh.devices)]
    return jax.make_array_from_single_device_arrays(whole.shape, sharding, blocks)


@pytest.mark.parametrize("result", ["C[I, K]", "C[I_X, K]", "C[I_X, K_Y]"])
def test_the_gradient_of_partial_sums_is_that_of_the_sum(result):
    """JAX's own, of the function whose types it does not check, would be it times the devices along X."""
    a, b = (np.random.default_rng(n).integers(-3, 4, s).astype(np.float32) for n, s in ((2, (8, 12)), (3, (12, 4))))
    plan = shardc.plan(f"A[I, J]{{U_X}} · B[J, K] → {result}", mesh=UNEVEN, dims={"I": 8, "J": 12, "K": 4}, dtype="f32")
    mesh = jax.make_mesh((2, 4), ("X", "Y"))
    assert not called_otherwise(plan.schedule, plan.source())
    program = plan.compile()

    def loss(a, b):
        return jnp.sum(program(a, b) ** 2) / 2

    with jax.set_mesh(mesh):
        given_a, given_b = partial(a, 2, mesh, jax.P(None, None, unreduced={"X"})), jax.device_put(b, jax.P(None, None))
        for gradient in (jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))):
            da, db = gradient(given_a, given_b)
            assert jax.typeof(da).sharding.spec.reduced == {"X"}
            for shard in da.addressable_shards:
                np.testing.assert_array_equal(shard.data, a @ b @ b.T)
            np.testing.assert_array_equal(db, a.T @ (a @ b))
        _, tangent = jax.jvp(loss, (given_a, given_b), (given_a, jnp.zeros_like(given_b)))
        assert tangent == np.sum((a @ b) ** 2)


def test_types_are_checked_but_where_partial_sums_come_apart():
    plan = shardc.plan("A[I, J]{U_X} · B[J, K] → C[I_X, K]", mesh=UNEVEN, dims=SIZES, dtype="f32")
    assert plan.source().count("check_vma=False") == 2
    steps = plan.source().split("def apart")[0]
    assert "check_vma" not in steps
    assert "jnp.einsum" in steps
    assert "check_vma" not in shardc.plan("A[I, J_X] · B[J_X, K] → C[I, K]{U_X}", mesh=UNEVEN, dims=SIZES).source()


def test_the_emitted_functions_take_no_name_of_an_array(bench):
    text = "steps[I, J]{U_X} → apart[I_X, J]; together[I_X, J] = apart + apart"
    assert ended(bench, text, TWO) == bench.EQUAL


@pytest.mark.instant
@pytest.mark.parametrize("kinds", [(AUTO, AUTO), (EXPLICIT, AUTO)])
@pytest.mark.parametrize("text", ["A[I, J_X] · B[J_X, K] → C[I, K]{U_X}", "A[I, J]{U_X} · B[J, K] → C[I_X, K]"])
def test_partial_sums_are_refused_where_jax_has_none(kinds, text):
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"), axis_types=kinds)):
        plan = shardc.plan(text, mesh=UNEVEN, dims=SIZES, dtype="f32")
        inside = (jax.jit(plan.compile()),) if kinds[0] == AUTO else ()  # over an Explicit axis JAX types them there
        for call in (plan.compile(), *inside):
            with pytest.raises(ShardcError, match="unreduced") as caught:
                call(np.ones((16, 24), np.float32), np.ones((24, 8), np.float32))
            assert (caught.value.code, caught.value.exit_code) == ("SHC306", RUNTIME)
            assert ("`X`" if kinds[0] == AUTO else "`Y`") in caught.value.message
            assert "make_mesh" in caught.value.help


@pytest.mark.parametrize("kinds", [(EXPLICIT, AUTO), (AUTO, EXPLICIT)])
def test_partial_sums_over_an_explicit_axis_go_from_one_program_to_the_next(kinds):
    left, right = np.arange(16 * 8).reshape(16, 8) % 7 - 3, np.arange(8 * 8).reshape(8, 8) % 5 - 2
    with jax.set_mesh(jax.make_mesh((2, 2), ("X", "Y"), axis_types=kinds)):
        own = "XY"[kinds.index(EXPLICIT)]
        product = f"A[I, J_{own}] · B[J_{own}, K] → C[I, K]{{U_{own}}}"

        def function(a, b):
            return shardc.einsum(
                f"C[I, K]{{U_{own}}} → D[I_{own}, K]; E[I_{own}, K] = D ⊙ D", shardc.einsum(product, a, b)
            )

        a, b = jax.device_put(left, jax.P(None, own)), jax.device_put(right, jax.P(own))
        found = jax.jit(function)(a.astype(jnp.float32), b.astype(jnp.float32))
        np.testing.assert_array_equal(np.asarray(found), (left @ right) ** 2)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_no_reshard_makes_partial_sums(kind):
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"), axis_types=(kind, kind))):
        for x in (np.ones((8, 8), np.float32), jax.device_put(np.ones((8, 8), np.float32), jax.P())):
            with pytest.raises(ShardcError) as caught:
                shardc.reshard(x, jax.P(None, None, unreduced={"X"}))
            assert caught.value.code == "SHC220"


@pytest.mark.instant
@pytest.mark.parametrize("mesh", [{"X": 2, "Y": 1}, {"X": 1, "Y": 4}, {"X": 2, "Y": 4}], ids=str)
def test_an_array_that_is_given_whole_is_one_partial_sum_and_zeros(mesh):
    """On the first devices along the axes that it is unreduced over, axes of one device among them."""
    plan = shardc.plan("A[I, J]{U_XY} → B[I, J]{U_Y}; C[I, J] = B", mesh=mesh, dims={"I": 4, "J": 8}, dtype="f32")
    whole = np.arange(32, dtype=np.float32).reshape(4, 8) - 7
    assert np.array_equal(np.asarray(plan.compile()(whole)), whole)


PARTIAL = "A[I, J_X] · B[J_X, K] → C[I, K]{U_X}"


def test_vmap_of_partial_sums_is_refused_wherever_it_maps():
    """JAX's own error says nothing. A call, a plan's program, what was jitted before, and a gradient within."""
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        x = jax.device_put(np.ones((3, 8, 16), "float32"), jax.P(None, None, "X"))
        w = jax.device_put(np.ones((16, 8), "float32"), jax.P("X"))
        program = shardc.plan(PARTIAL, mesh="X=4,Y=2", dims="I=8,J=16,K=8", dtype="f32").compile()

        def partial(x):
            return shardc.einsum(PARTIAL, x, w)

        def summed(x):
            return shardc.einsum("C[I, K]{U_X} → C[I, K]", partial(x))

        def change(x):
            return jax.grad(lambda x: (summed(x) ** 2).sum())(x)

        for call in (partial, jax.jit(partial), summed, change, jax.checkpoint(summed), lambda x: program(x, w)):
            for mapped in (jax.vmap(call), jax.jit(jax.vmap(call))):
                with pytest.raises(ShardcError, match="vmap maps no arrays of partial sums") as error:
                    mapped(x)
                assert error.value.code == "SHC306"
        for call in (change, jax.jit(change), jax.checkpoint(change)):
            np.testing.assert_array_equal(call(x[0]), np.full((8, 16), 2.0 * 16 * 8))


def test_what_is_whole_is_told_what_leaves_partial_sums():
    """It was told to reshard, which is refused; what it is told now is done, and right."""
    mesh = jax.make_mesh((2, 2), ("X", "Y"), axis_types=(EXPLICIT, EXPLICIT))
    one, other = np.arange(24.0).reshape(4, 6), np.arange(36.0).reshape(6, 6)
    with jax.set_mesh(mesh):
        text = "A[I, J]{U_X} → A[I, J]"
        with pytest.raises(ShardcError, match="asks for") as refused:
            jax.jit(lambda a: shardc.einsum(text, a))(jax.reshard(jnp.asarray(one), jax.P()))
        assert refused.value.code == "SHC305"
        assert refused.value.help.endswith("by out_sharding=jax.P(None, None, unreduced={'X'})")

        def product(a, b):
            sums = jnp.einsum("ij,jk->ik", a, b, out_sharding=jax.P(None, None, unreduced={"X"}))
            return shardc.einsum(text, sums)

        found = jax.jit(product)(jax.reshard(one, jax.P(None, "X")), jax.reshard(other, jax.P("X")))
    for shard in found.addressable_shards:
        assert np.array_equal(np.asarray(shard.data), (one @ other)[shard.index])
