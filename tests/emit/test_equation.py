"""`shardc.einsum` while JAX traces: one equation, of the type that its steps leave, which is opened as it would be."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.emit.call.equation import Equation

pytestmark = pytest.mark.devices

EXPLICIT, AUTO = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto
KINDS = {"explicit": (EXPLICIT, EXPLICIT), "auto": (AUTO, AUTO), "mixed": (EXPLICIT, AUTO)}
PRODUCT = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]"
TEXTS = (
    PRODUCT,
    "A[I_X, J_Y] · B[J_Y, K] → C[I_XY, K]",
    "A[I_XY, J] · B[J, K_XY] → C[I, K]",
    "T = relu(A[I_X, J]) · B[J, K_Y]; S[I, K_Y] = softmax_I(T); U[J_X] = sum_I(A)",
)
RNG = np.random.default_rng(3)
A, B = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((16, 8), (8, 24)))


@pytest.fixture(params=KINDS)
def mesh(request):
    found = jax.make_mesh((4, 2), ("X", "Y"), axis_types=KINDS[request.param])
    with jax.set_mesh(found):
        yield found


def placed(text):
    return [jax.device_put(array, spec) for array, spec in zip((A, B), specs(text), strict=True)]


def specs(text):
    given = shardc.parse(text, mesh="X=4, Y=2").inputs
    return [jax.P(*(axes or None for axes in array.pattern.exact.dims)) for array in given]


def equations(function, *arrays):
    jaxpr = jax.make_jaxpr(function)(*arrays).jaxpr
    return [each for each in jaxpr.eqns if each.primitive.name == "shardc"]


def einsum(text):
    return lambda *arrays: shardc.einsum(text, *arrays)


@pytest.mark.instant
def test_a_shape_is_planned_for_and_no_array(mesh):
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (A, B)]
    assert shardc.einsum.plan(PRODUCT, *shapes).steps == shardc.einsum.plan(PRODUCT, A, B).steps
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.einsum(PRODUCT, *shapes)
    assert caught.value.code == "SHC001" and "array 1" in str(caught.value)


@pytest.mark.instant
@pytest.mark.parametrize("text", TEXTS)
def test_its_type_is_that_of_its_steps(mesh, text):
    (found,) = equations(einsum(text), *placed(text))
    program = found.params["program"]
    assert isinstance(program, Equation)
    opened = jax.make_jaxpr(program.whole)(*placed(text)).out_avals
    assert [each.aval for each in found.outvars] == opened
    assert str(program).replace("; ", "\n") == "\n".join(
        each.text for each in shardc.parse(text, mesh="X=4,Y=2").statements
    )


@pytest.mark.instant
def test_it_is_lowered_as_its_steps_are(mesh):
    arrays = placed(PRODUCT)
    (found,) = equations(einsum(PRODUCT), *arrays)
    opened = found.params["program"].whole

    def text(function):
        def g(a, b):
            return function(a, b) + function(a, b)

        return jax.jit(g).lower(*arrays).as_text()

    assert text(einsum(PRODUCT)) == text(opened)
    assert text(opened).count("func.func private") == 1  # of two equal equations


def test_what_it_is_lowered_to_names_the_line_that_calls_it(mesh):
    lowered = jax.jit(einsum(PRODUCT)).lower(*placed(PRODUCT)).as_text(debug_info=True)
    line = einsum.__code__.co_firstlineno + 1
    assert re.search(rf'"{re.escape(__file__)}":{line}:', lowered)
    assert "step0/all_gather" in lowered


def loss(call):
    return lambda a, b: jnp.sum(call(a, b) ** 2) / 2


GRADIENT = (A @ B @ B.T, A.T @ (A @ B))


@pytest.mark.parametrize(
    "through",
    [
        lambda call: jax.grad(loss(call), (0, 1)),
        lambda call: jax.grad(loss(jax.checkpoint(call)), (0, 1)),
        lambda call: lambda a, b: jax.vjp(call, a, b)[1](call(a, b)),
        lambda call: lambda a, b: (jax.grad(loss(call))(a, b), jax.grad(loss(call), 1)(a, b)),
        lambda call: lambda a, b: jax.vmap(jax.grad(loss(call), (0, 1)), (0, None))(a[None], b),
        lambda call: (
            lambda a, b: jax.grad(lambda a, b: jnp.sum(jax.vmap(loss(call), (None, 0))(a, b[None])), (0, 1))(a, b)
        ),
        lambda call: jax.grad(
            lambda a, b: jax.lax.scan(lambda s, _: (s + loss(call)(a, b), None), 0.0, length=1)[0], (0, 1)
        ),
    ],
    ids=["grad", "checkpoint", "vjp", "one by one", "vmap of grad", "grad of vmap", "scan"],
)
def test_its_gradient_under_transformations(mesh, through):
    for found, wanted in zip(jax.jit(through(einsum(PRODUCT)))(*placed(PRODUCT)), GRADIENT, strict=True):
        np.testing.assert_array_equal(np.asarray(found).reshape(wanted.shape), wanted)


def test_its_gradient_is_planned_when_one_is_asked_for(mesh, monkeypatch):
    from shardc.emit.call import transforms

    asked = []
    halves = transforms.halves
    monkeypatch.setattr(transforms, "halves", lambda *given: asked.append(0) or halves(*given))
    transforms._einsum.cache_clear()
    transforms._halves.cache_clear()
    jax.jit(einsum(PRODUCT)).lower(*placed(PRODUCT))
    assert not asked
    jax.jit(jax.grad(loss(einsum(PRODUCT)))).lower(*placed(PRODUCT))
    assert asked == [0]


def test_it_is_done_where_nobody_traces(mesh):
    jaxpr = jax.make_jaxpr(einsum(PRODUCT))(*placed(PRODUCT))
    (found,) = jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *placed(PRODUCT))
    for shard in found.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), (A @ B)[shard.index])


def test_arrays_of_several_types_are_what_they_are(mesh):
    """The text is read with all types at once: a mask before floats makes no mask of these."""
    mask = A > 0
    found = shardc.einsum("where(M[I_X, J], A[I_X, J], -A) → C[I_X, J]", mask, A)
    np.testing.assert_array_equal(np.asarray(found), np.abs(A))
