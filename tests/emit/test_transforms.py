"""shardc.einsum, shardc.reshard and plan.compile() inside ordinary JAX: jit, grad, vmap, Explicit and Auto axes."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import RUNTIME, SEMANTICS, ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.rules.placements import placements

pytestmark = pytest.mark.devices

EXPLICIT, AUTO = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto
TEXT = "In[B_X, D_Y] · W[D_X, F_Y] → Out[B_X, F_Y]"
RNG = np.random.default_rng(7)
X = RNG.integers(-3, 4, (16, 8)).astype(np.float32)
W = RNG.integers(-3, 4, (8, 24)).astype(np.float32)


def mesh_of(kind, sizes=(4, 2), names=("X", "Y")):
    return jax.make_mesh(sizes, names, axis_types=(kind,) * len(names))


def put(array, *spec):
    return jax.device_put(array, jax.P(*spec))


def shards_equal(result, whole):
    for shard in result.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])


@pytest.fixture(params=[EXPLICIT, AUTO], ids=["explicit", "auto"])
def mesh(request):
    found = mesh_of(request.param)
    with jax.set_mesh(found):
        yield found


def test_einsum_eagerly_and_under_jit(mesh):
    x, w = put(X, "X", "Y"), put(W, "X", "Y")
    for call in (shardc.einsum, jax.jit(shardc.einsum, static_argnums=0)):
        y = call(TEXT, x, w)
        assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, jax.P("X", "Y")), 2)
        shards_equal(y, X @ W)


def test_einsum_places_numpy_arrays(mesh):
    shards_equal(shardc.einsum(TEXT, X, W), X @ W)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("In[B_data, D] · W[D, F] → Out[B, F]", "SHC201", "data"),
        ("In[B_x, D] · W[D, F] → Out[B, F]", "SHC201", "did you mean `X`?"),
        ("In[B, D] · W[D_y, F_Y] → Out[B, F]", "SHC201", "did you mean `Y`?"),
        (f"mesh X=2, Y=2; {TEXT}", "SHC203", "`X` is declared 2, and is 4"),
        (f"dims B=32; {TEXT}", "SHC206", "`B` is declared 32, and is 16"),
        (f"dtype bf16; {TEXT}", "SHC214", "declared bf16, and is f32"),
        (TEXT.replace("W[", "W: int8["), "SHC214", "`W` is declared int8, and is f32"),
    ],
)
def test_einsum_refuses_what_its_arrays_or_its_mesh_contradict(mesh, text, code, word):
    for call in (shardc.einsum, jax.jit(shardc.einsum, static_argnums=0)):
        with pytest.raises(ShardcError) as caught:
            call(text, X, W)
        assert caught.value.code == code and word in str(caught.value)
    agreed = f"mesh X=4, Y=2; dims B=16, D=8; dtype f32; {TEXT}"
    for text in (agreed, TEXT.replace("W[", "W: f32[")):
        shards_equal(shardc.einsum(text, X, W), X @ W)


def test_einsum_between_other_operations(mesh):
    @jax.jit
    def layer(x, w):
        return jnp.sum(jax.nn.relu(shardc.einsum(TEXT, 2 * x, w)))

    assert layer(put(X, "X", "Y"), put(W, "X", "Y")) == np.maximum(2 * X @ W, 0).sum()


def test_the_gradient_is_numpys(mesh):
    def loss(x, w):
        return jnp.sum(shardc.einsum(TEXT, x, w) ** 2) / 2

    x, w = put(X, "X", "Y"), put(W, "X", "Y")
    for gradient in (jax.grad(loss, argnums=(0, 1)), jax.jit(jax.grad(loss, argnums=(0, 1)))):
        dx, dw = gradient(x, w)
        np.testing.assert_array_equal(np.asarray(dx), X @ W @ W.T)
        np.testing.assert_array_equal(np.asarray(dw), X.T @ (X @ W))


# Cheaper in digits at these sizes.
IN_DIGITS = (
    "In[B_Z, D] · W[D, F_YZ] → Out[B_XYZ, F]",
    "In[B_ZYX, D] · W[D_Y, F_Z] → Out[B_Y, F_Z]",
    "In[B_Z, D_X] · W[D_ZY, F_X] → Out[B, F_YXZ]",
    "In[B_YX, D_Z] · W[D_X, F] → Out[B_XY, F_Z]",
)


@pytest.mark.parametrize("text", IN_DIGITS)
@pytest.mark.parametrize("kind", [EXPLICIT, AUTO], ids=["explicit", "auto"])
def test_products_in_digits_and_their_gradients(kind, text):
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((16, 16), (16, 32)))
    plan = shardc.plan(text, mesh="X=2,Y=2,Z=2", dims={"B": 16, "D": 16, "F": 32}, dtype="f32", objective="bytes")
    assert "Reshape" in [step.name for step in plan.schedule.steps]
    with jax.set_mesh(mesh_of(kind, (2, 2, 2), ("X", "Y", "Z"))):
        program, schedule = plan.compile(), plan.schedule
        placed = [
            put(array, *(axes or None for axes in schedule.values[value].sharding.dims))
            for array, value in zip((x, w), schedule.inputs, strict=True)
        ]
        shards_equal(program(*placed), x @ w)
        shards_equal(jax.jit(program)(*placed), x @ w)
        dx, dw = jax.jit(jax.grad(lambda x, w: jnp.sum(program(x, w) ** 2) / 2, argnums=(0, 1)))(*placed)
    np.testing.assert_array_equal(np.asarray(dx), x @ w @ w.T)
    np.testing.assert_array_equal(np.asarray(dw), x.T @ (x @ w))


ALL = [Sharding(dims) for dims in placements(("X", "Y"), 2)]


@pytest.mark.parametrize("place", range(0, 1331, 83))
def test_gradients_of_sampled_triples(place):
    a, b, c = list(itertools.product(ALL, repeat=3))[place]
    names = (("B", "D"), ("D", "F"), ("B", "F"))
    from shardc.ir.sharding import spell

    text = "In{} · W{} → Out{}".format(*(spell(d, s) for d, s in zip(names, (a, b, c), strict=True)))
    with jax.set_mesh(mesh_of(EXPLICIT)):
        from shardc.emit.call.placing import spec_of

        def loss(x, w):
            return jnp.sum(shardc.einsum(text, x, w) ** 2) / 2

        dx, dw = jax.jit(jax.grad(loss, argnums=(0, 1)))(put(X, *spec_of(a)), put(W, *spec_of(b)))
        np.testing.assert_array_equal(np.asarray(dx), X @ W @ W.T)
        np.testing.assert_array_equal(np.asarray(dw), X.T @ (X @ W))


def test_vmap_over_a_batch():
    with jax.set_mesh(mesh_of(EXPLICIT)):
        xs = jnp.stack([X, 2 * X, 3 * X])
        batched = jax.device_put(xs, jax.P(None, "X", "Y"))
        ys = jax.jit(jax.vmap(lambda x: shardc.einsum(TEXT, x, put(W, "X", "Y"))))(batched)
        np.testing.assert_array_equal(np.asarray(ys), np.asarray(xs) @ W)


def test_reshard_under_jit_and_eagerly(mesh):
    x = put(X, "X", "Y")
    for target in (jax.P(), jax.P("Y", "X"), jax.P(None, ("X", "Y")), jax.P(("Y", "X"))):
        for call in (shardc.reshard, jax.jit(shardc.reshard, static_argnums=1)):
            y = call(x, target)
            assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, target), 2)
            shards_equal(y, X)


def test_reshard_of_what_is_there_already_is_the_array_itself():
    with jax.set_mesh(mesh_of(EXPLICIT)):
        x = put(X, "X", None)
        assert shardc.reshard(x, jax.P("X")) is x


def test_reshard_places_numpy_arrays(mesh):
    shards_equal(shardc.reshard(X, jax.P("Y", "X")), X)


def test_the_gradient_of_reshard(mesh):
    gradient = jax.grad(lambda x: jnp.sum(shardc.reshard(x, jax.P("Y", "X")) ** 2) / 2)(put(X, "X", "Y"))
    np.testing.assert_array_equal(np.asarray(gradient), X)


def test_reshard_moves_fewer_bytes_than_a_replica():
    """`A[B_y, S, H_x] → A[B, S_xy, H]`, for which compilers replicate: two exchanges do."""
    with jax.set_mesh(mesh_of(EXPLICIT, (2, 4), ("x", "y"))):
        a = jax.device_put(np.arange(16 * 64 * 32, dtype=np.float32).reshape(16, 64, 32), jax.P("y", None, "x"))
        text = jax.jit(lambda a: shardc.reshard(a, jax.P(None, ("x", "y"), None))).lower(a).as_text()
        assert "all_to_all" in text
        assert "all_gather" not in text


def test_an_unreduced_gradient_is_reduced_where_one_wants_it():
    with jax.set_mesh(mesh_of(EXPLICIT)):
        dw = shardc.einsum("In[B_X, D] ·_B dOut[B_X, F] → dW[D, F]{U_X}", put(X, "X"), put(X @ W, "X"))
        assert dw.sharding.spec.unreduced == {"X"}
        summed = shardc.reshard(dw, jax.P("X"))
        shards_equal(summed, X.T @ (X @ W))


def refused(code, call, *arguments):
    with pytest.raises(ShardcError) as caught:
        call(*arguments)
    assert caught.value.code == code
    assert caught.value.help
    return caught.value


def test_einsum_refuses_what_does_not_fit():
    with jax.set_mesh(mesh_of(EXPLICIT)):
        x = put(X, "X", "Y")
        refused("SHC305", shardc.einsum, TEXT, x, put(W, "Y", "X"))
        refused("SHC309", shardc.einsum, TEXT, x)
        refused("SHC303", shardc.einsum, TEXT, x, jnp.ones(8))
        refused("SHC206", shardc.einsum, TEXT, x, put(W.T, "X", "Y"))
        refused("SHC214", shardc.einsum, TEXT, x, put(W.astype(jnp.float8_e5m2), "X", "Y"))
        refused("SHC204", shardc.einsum, TEXT, jnp.ones((6, 8)), W)
        assert refused("SHC201", shardc.einsum, "A[I_Z] → A[I]", X[0]).exit_code == SEMANTICS
        refused("SHC201", shardc.reshard, x, jax.P("Z"))


def test_reshard_refuses_what_is_no_spec_of_the_array():
    with jax.set_mesh(mesh_of(EXPLICIT)):
        x = put(X, "X", "Y")
        refused("SHC303", shardc.reshard, x, jax.P("X", None, None))
        refused("SHC303", shardc.reshard, 1.0, jax.P("X"))
        refused("SHC202", shardc.reshard, x, jax.P("X", "X"))
        refused("SHC204", shardc.reshard, np.ones((6, 6)), jax.P("X"))
        refused("SHC001", shardc.reshard, x, ("X", None))
        refused("SHC001", shardc.reshard, x, jax.P(jax.P.UNCONSTRAINED))


def test_arrays_on_other_devices_are_refused():
    small = jax.make_mesh((2,), ("X",), devices=jax.devices()[:2])
    away = jax.device_put(X, jax.NamedSharding(small, jax.P("X")))
    alone = jax.device_put(W, jax.devices()[3])
    with jax.set_mesh(mesh_of(EXPLICIT)):
        refused("SHC306", shardc.reshard, away, jax.P())
        refused("SHC305", shardc.einsum, TEXT, X, alone)
        refused("SHC305", shardc.plan(TEXT, **PLAN).compile(), away, W)


@pytest.mark.parametrize("number", [0.5, 3, -2.5, True])
def test_pythons_numbers_are_of_the_types_that_jax_gives_them(mesh, number):
    x, text = put(X, "X", "Y"), "a[] ⊙ In[B_X, D_Y] → Out[B_X, D_Y]"
    assert shardc.einsum("a[] → b[]", number).dtype == jnp.asarray(number).dtype
    for call in (shardc.einsum, jax.jit(shardc.einsum, static_argnums=(0, 1))):
        shards_equal(call(text, number, x), np.float32(number) * X)
    rows = [number] * 8
    shards_equal(shardc.einsum("a[D_Y] ⊙ In[B_X, D_Y] → Out[B_X, D_Y]", rows, x), np.float32(number) * X)


def test_pythons_numbers_that_int32_has_no_room_for_are_refused(mesh):
    for number in (2**40, -(2**31) - 1, [0, 2**40]):
        with pytest.raises(ShardcError, match="64-bit mode") as error:
            shardc.einsum("a[] → b[]" if isinstance(number, int) else "a[I] → b[I]", number)
        assert error.value.code == "SHC216"


WIDE = [np.float64, np.int64, np.uint64, np.complex128]


@pytest.mark.parametrize("wide", WIDE)
def test_numpys_wide_arrays_are_narrowed_as_jnp_narrows_them(mesh, wide):
    """Eagerly, as constants of a jitted function, and of shapes; without a word, as from jnp.asarray."""
    text = "A[I_X, J] → A[I, J_X]"
    whole = RNG.integers(0, 9, (8, 8)).astype(wide)
    narrow = jnp.asarray(whole).dtype
    assert narrow != wide
    for call in (lambda: shardc.einsum(text, whole), lambda: shardc.reshard(whole, jax.P(None, "X"))):
        for done in (call, jax.jit(call)):
            found = done()
            assert found.dtype == narrow
            shards_equal(found, whole.astype(narrow))
    if wide in (np.float64, np.int64):  # in which something is computed
        text = "A[I_X, J] · B[J_X, K] → C[I_X, K]"
        assert shardc.einsum(text, whole, whole).dtype == jnp.einsum("ij,jk->ik", whole, whole).dtype
        shards_equal(shardc.einsum(text, whole, whole), (whole @ whole).astype(narrow))
        shape = jax.ShapeDtypeStruct((8, 8), wide)
        assert str(shardc.einsum.plan(text, shape, shape)) == str(shardc.einsum.plan(text, whole, whole))


def test_numpys_wide_arrays_stay_wide_in_64_bit_mode(mesh):
    with jax.enable_x64(True):
        for wide in WIDE:
            whole = np.full((8, 8), 3, wide)
            for found in (shardc.einsum("A[I_X, J] → A[I, J_X]", whole), shardc.reshard(whole, jax.P("X"))):
                assert found.dtype == wide
                shards_equal(found, whole)


def test_whole_numbers_that_int32_has_no_room_for_are_refused(mesh):
    """Where jnp.asarray would wrap them around."""
    for number in (2**40, -(2**31) - 1):
        for call in (lambda x: shardc.einsum("a[I] → b[I]", x), lambda x: shardc.reshard(x, jax.P())):
            with pytest.raises(ShardcError, match="64-bit mode") as error:
                call(np.array([0, number]))
            assert error.value.code == "SHC216"


@pytest.mark.parametrize("wide", [np.longdouble, np.clongdouble])
def test_numbers_wider_than_those_of_jax_are_refused(mesh, wide):
    if wide(1).itemsize <= np.dtype(np.complex128).itemsize // (2 if wide is np.longdouble else 1):
        pytest.skip("no wider than those of JAX here")
    for given in (wide(1), np.ones(2, wide), [wide(2)]):
        for call in (lambda x: shardc.reshard(x, jax.P()), lambda x: shardc.einsum("A[I] → A[I]", np.ravel(x))):
            with pytest.raises(ShardcError, match=f"is of type {np.dtype(wide).name}") as error:
                call(given)
            assert error.value.code == "SHC001"


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_are_resharded(mesh, impl):
    """By their numbers, which have a dim more."""
    keys = jax.random.split(jax.random.key(0, impl=impl), 8)
    first = shardc.reshard(keys, jax.P("X"))
    for found in (first, shardc.reshard(first, jax.P("Y")), jax.jit(lambda k: shardc.reshard(k, jax.P("Y")))(first)):
        assert found.dtype == keys.dtype
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(keys))
    assert first.sharding.is_equivalent_to(jax.NamedSharding(mesh, jax.P("X")), 1)
    with pytest.raises(ShardcError, match="longer than the array's 1 dims"):
        shardc.reshard(keys, jax.P("X", None))
    with pytest.raises(ShardcError, match=r"array 1 is of type key<\w+>") as error:
        shardc.einsum("A[I] → A[I_X]", keys)
    assert error.value.code == "SHC001" and "jax.random.key_data" in str(error.value)


@pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
def test_an_abstract_mesh_has_no_devices(kind):
    abstract = jax.sharding.AbstractMesh((4, 2), ("X", "Y"), axis_types=(kind,) * 2)
    with jax.sharding.use_abstract_mesh(abstract):
        for call in (lambda: shardc.einsum(TEXT, X, W), lambda: shardc.reshard(X, jax.P("X"))):
            with pytest.raises(ShardcError, match="abstract one, which has no devices") as error:
                call()
            assert error.value.code == "SHC306"
    with jax.set_mesh(mesh_of(kind)), jax.sharding.use_abstract_mesh(abstract):
        shards_equal(shardc.einsum(TEXT, X, W), X @ W)


def test_without_a_mesh_both_say_so():
    assert refused("SHC306", shardc.einsum, TEXT, X, W).exit_code == RUNTIME
    refused("SHC306", shardc.reshard, X, jax.P("X"))


PLAN = {"mesh": {"X": 4, "Y": 2}, "dims": {"B": 16, "D": 8, "F": 24}, "dtype": "f32"}


def test_compile_makes_its_own_mesh_and_places_numpy():
    program = shardc.plan(TEXT, **PLAN).compile()
    shards_equal(program(X, W), X @ W)


def test_compile_takes_the_mesh_in_force(mesh):
    program = shardc.plan(TEXT, **PLAN).compile()
    shards_equal(program(put(X, "X", "Y"), put(W, "X", "Y")), X @ W)
    shards_equal(jax.jit(program)(put(X, "X", "Y"), put(W, "X", "Y")), X @ W)


def test_compile_takes_a_jax_mesh_for_planning():
    plan = shardc.plan(TEXT, **(PLAN | {"mesh": mesh_of(EXPLICIT)}))
    assert plan.mesh == {"X": 4, "Y": 2}
    shards_equal(plan.compile()(X, W), X @ W)


@pytest.mark.parametrize("how", ["raise", "warn"])
@pytest.mark.parametrize(
    "text",
    [
        "y[I_X, J] = A[I_X, J] + b[J]",
        "y[I_X, J] = A[I_X, J] / b[J]",
        "y[I_X, J] = where(A[I_X, J] > b[J], A, b)",
        "y[I_X, J] = where(index_I >= index_J, A[I_X, J], 0) + b[J]",
        "for L { A = A[I_X, J] + b[J] ⊙ R[L, J] }",
    ],
)
def test_what_the_notation_repeats_is_no_rank_promotion_of_the_users(text, how, recwarn):
    """Who has JAX refuse `A + b` in their own code has it from a text that says which dims they share."""
    given = [RNG.uniform(1, 2, shape).astype("float32") for shape in ((8, 4), (4,), (3, 4))]
    plan = shardc.plan(text, mesh="X=4,Y=2", dims="I=8,J=4" + ",L=3" * ("R" in text), dtype="f32")

    def loss(call):
        return jax.grad(lambda *arrays: jnp.sum(call(*arrays) ** 2), (0, 1))

    with jax.set_mesh(mesh_of(EXPLICIT)):
        arrays = [put(given[0], "X"), *map(jnp.asarray, given[1 : 2 + ("R" in text)])]
        calls = (lambda *arrays: shardc.einsum(text, *arrays), plan.compile())
        wanted = [(call(*arrays), *loss(call)(*arrays)) for call in calls]
        with jax.numpy_rank_promotion(how):
            for call, known in zip(calls, wanted, strict=True):
                for one, other in zip((call(*arrays), *loss(call)(*arrays)), known, strict=True):
                    np.testing.assert_array_equal(one, other)
    assert not [each for each in recwarn if "rank" in str(each.message)]


def test_several_outputs_come_as_a_tuple_in_order():
    plan = shardc.plan("S[B_X, D] = A[B_X, D] + A\nT[B_X, D_Y] = square(A)", **PLAN)
    first, second = plan.compile()(X)
    assert [array.name for array in plan.outputs] == ["S", "T"]
    shards_equal(first, 2 * X)
    shards_equal(second, X**2)


@pytest.mark.parametrize(
    "text", ["A[B, D]{U_XY} → A[B_X, D]", "A[B, D]{U_X} → A[B_X, D]", "A[B_Y, D]{U_X} → A[B_Y, D_X]"]
)
def test_an_unreduced_argument_given_whole_is_one_partial_sum_and_zeros(text):
    plan = shardc.plan(text, **PLAN)
    shards_equal(plan.compile()(X), X)


def test_compile_refuses_what_does_not_fit():
    plan = shardc.plan(TEXT, **PLAN)
    program = plan.compile()
    refused("SHC309", program, X)
    refused("SHC303", program, X.T, W)
    refused("SHC304", program, X.astype(np.float64), W)
    with jax.set_mesh(mesh_of(EXPLICIT)):
        refused("SHC305", program, put(X, "Y", "X"), W)
    with jax.set_mesh(mesh_of(EXPLICIT, (2, 4))):
        refused("SHC306", program, X, W)
    with jax.set_mesh(mesh_of(EXPLICIT, (4, 2), ("Y", "X"))):
        refused("SHC306", program, X, W)
    error = refused("SHC301", shardc.plan(TEXT, **(PLAN | {"mesh": {"X": 8, "Y": 2}})).compile(), X, W)
    assert "16" in error.message
    assert "8" in error.message
    refused("SHC216", shardc.plan(TEXT, **(PLAN | {"dtype": "f64"})).compile)


def test_a_loop_goes_round_as_often_as_its_arrays_have_rows(mesh):
    """No size is declared, and that of a loop is none to declare; each trip's rows have a gradient of their own."""
    text = "for L { x = x[B_X, D_Y] + w[B_X] · R[L, D_Y] }"
    x, w, rows = put(X, "X", "Y"), put(X[:, 0], "X"), put(W.T[:3], None, "Y")
    shards_equal(
        jax.jit(lambda *arrays: shardc.einsum(text, *arrays))(x, w, rows), X + np.outer(X[:, 0], W.T[:3].sum(0))
    )
    slope = jax.jit(jax.grad(lambda rows: shardc.einsum(text, x, w, rows).sum()))(rows)
    shards_equal(slope, np.full((3, 8), X[:, 0].sum()))


def test_four_ways_agree():
    """NumPy reference, NumPy simulator, compiled callable; the emitted file is held against it in test_run."""
    plan = shardc.plan(TEXT, **PLAN)
    expected = plan.reference(X, W)
    np.testing.assert_array_equal(expected, X.astype(np.float64) @ W)
    np.testing.assert_array_equal(plan.simulate(X, W), expected)
    np.testing.assert_array_equal(plan.compile()(X, W), expected)


def test_local_shapes_and_indices_are_those_foreseen():
    plan = shardc.plan("A[B_X, D_Y] → A[B, D_YX]", **PLAN)
    result = plan.compile()(X)
    array = plan.schedule.values[plan.schedule.outputs[0]]
    mesh = Mesh.of(plan.mesh)
    assert plan.outputs[0].bytes == result.addressable_shards[0].data.nbytes
    for shard, place in zip(result.addressable_shards, mesh.coordinates(), strict=True):
        assert shard.data.shape == plan.outputs[0].local_shape
        block = array.sharding.block_of(place, mesh)
        starts = [index * size for index, size in zip(block, shard.data.shape, strict=True)]
        assert [part.start or 0 for part in shard.index] == starts


@pytest.mark.parametrize(("declared", "unused"), [("dims Q=4, I=8", "`Q`, and its size 4"), ("dims I=8", None)])
def test_a_size_that_nothing_uses_is_named_once_where_it_is_called(declared, unused):
    text, x = f"{declared}\nA[I, J] → B[I_X, J]", jnp.ones((8, 8))
    with jax.set_mesh(jax.make_mesh((4,), ("X",))), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        jax.jit(lambda x: shardc.einsum(text, x))(x)
        shardc.einsum(text, x)
    assert [str(each.message) for each in told] == ([f"no array has a dim {unused} is not used"] if unused else [])
    assert all(each.filename == __file__ for each in told)
