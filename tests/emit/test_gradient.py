"""The gradient of `shardc.einsum` moves what forward and backward planned as one move, and is the gradient."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.api import _planner, planned
from shardc.compiled.hlo.stablehlo import collectives
from shardc.emit.call.gradient import may_be_planned
from shardc.emit.call.transforms import einsum
from shardc.ir.dtypes import Kind
from shardc.ir.mesh import Mesh
from shardc.rules.placements import placements
from shardc.testing import Case, loops, mixed_programs, programs

pytestmark = pytest.mark.devices

SIZES = {"B": 16, "D": 8, "F": 32, "L": 2, "T": 24}
LISTINGS = json.loads((Path(__file__).parents[1] / "data" / "strategies.json").read_text(encoding="utf-8"))
TEXTS = {
    **{entry["strategy"]: entry["program"] for entry in LISTINGS["strategies"]},
    "a gather, then partial sums": "In[B, D_X] · W[D, F_Y] → Out[B, F_Y]",
    "used twice": "y[B_X, D] = x[B_X, D] ⊙ g[D]; z[B_X, D] = square(y) ⊙ g",
    "cut again": "In[B_X, D_Y] · W[D_Y, F_X] → Out[B_YX, F]",
    "a loop": "dims L=2; for L { x[B_X, D] = x[B_X, D] + relu(x ·_D W[L, D, F_Y]) ·_F V[L, F_Y, D] }",
    "integers too": "y[B_X, D] = where(M: int32[B_X, D] > 0, x[B_X, D_Y], 0) · W[D, D']",
    "two outputs": "y[B_X, F_Y] = x[B_X, D_Y] · W[D_Y, F]; z[B_Y, D] = square(x)",
}
PLACED = list(placements(("X", "Y"), 2))


def drawn(seed):
    rng = np.random.default_rng(seed)
    arrays = []
    for name, dims in (("In", "BD"), ("W", "DF"), ("Out", "BF")):
        axes = PLACED[rng.integers(len(PLACED))]
        inside = ", ".join(f"{dim}_{''.join(of)}" if of else dim for dim, of in zip(dims, axes, strict=True))
        arrays.append(f"{name}[{inside}]")
    return "{} · {} → {}".format(*arrays)


def program_of(text):
    mesh = {"X": 4, "Y": 2}
    dims = shardc.parse(text, mesh=mesh).dims
    return shardc.parse(text, mesh=mesh, dims={dim: SIZES.get(dim, 8) for dim in dims}, dtype="f32")


def placed(array, seed):
    whole = np.random.default_rng(seed).integers(-2, 3, array[0]).astype({"f32": "float32"}.get(array[1], array[1]))
    return jax.device_put(whole, jax.P(*(axes or None for axes in array[2])))


def arrays_of(program):
    outputs = [program.results[number] for number in program.outputs]
    found = [
        (program.shape(each.dims), each.dtype.name, each.pattern.exact.dims) for each in (*program.inputs, *outputs)
    ]
    every = [placed(each, seed) for seed, each in enumerate(found)]
    return every[: len(program.inputs)], every[len(program.inputs) :]


@pytest.mark.parametrize("text", [*TEXTS.values(), *map(drawn, range(8))])
def test_it_moves_what_is_planned_and_is_the_gradient(text):
    """Of JAX's own ten of these twenty move more: it turns steps around, and cannot choose others."""
    program = program_of(text)
    whole = shardc.grad(program, whole=True)
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        given, incoming = arrays_of(program)
        floats = [place for place, array in enumerate(program.inputs) if array.dtype.name == "f32"]

        def both(given, incoming):
            def of_floats(*some):
                now = dict(zip(floats, some, strict=True))
                return shardc.einsum(text, *(now.get(place, each) for place, each in enumerate(given)))

            left, back = jax.vjp(of_floats, *(given[place] for place in floats))
            return left, back(tuple(incoming) if len(incoming) > 1 else incoming[0])

        jitted = jax.jit(both)
        moved = sum(each.total_bytes for each in collectives(jitted.lower(given, incoming)))
        _, found = jitted(given, incoming)
    assert moved <= planned(whole, may_cut=False).cost.wire_bytes
    names = [array.name for array in program.inputs] + [f"d{program.results[n].name}" for n in program.outputs]
    known = dict(zip(names, map(np.asarray, (*given, *incoming)), strict=True))
    wanted = simulate.reference(whole, [known[array.name] for array in whole.inputs])
    for one, gradient in zip(found, wanted[len(incoming) :], strict=True):
        np.testing.assert_array_equal(np.asarray(one), gradient)


def test_a_gradient_of_the_gradient_and_one_of_many():
    """By differences of integers: of (x·W)³ the second derivative is six times it."""
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        text = "In[B, D_X] · W[D, F_Y] → Out[B, F_Y]"
        x = jax.device_put(jnp.ones((4, 8)), jax.P(None, "X"))
        w = jax.device_put(jnp.ones((8, 4)), jax.P(None, "Y"))

        def loss(x):
            return (shardc.einsum(text, x, w) ** 3).sum()

        second = jax.jit(jax.grad(lambda x: jax.grad(loss)(x).sum()))(x)
        np.testing.assert_array_equal(second, np.full((4, 8), 4 * 8 * 6 * 8.0))
        several = jax.vmap(jax.grad(loss))(jnp.stack([x, 2 * x]))
        np.testing.assert_array_equal(several, np.stack([np.full((4, 8), 3 * 4 * s * s) for s in (8.0, 16.0)]))


MOVED = [  # of A and w: the output has the name of an array that lies elsewhere
    ("A[I_X, J_Y] → A[I, J_X]", lambda a, w: a),
    ("w[J_Y] ⊙ A[I_X, J_Y] → B[I_X, J_Y]; B → B[I_Y, J_X]", lambda a, w: a * w),
    ("A[I_X, J_Y] → A[I, J_X]; B[I] = sum_J(A); return A, B", lambda a, w: (a, a.sum(1))),
    ("A[I_X, J] = AllGather_Y(A[I_X, J_Y])", lambda a, w: a),
    ("A[I_X, J_Y] → A[I, J_?]; C[I, J_X] = A ⊙ w[J_Y]; return A, C", lambda a, w: (a, a * w)),
]


@pytest.mark.parametrize("kind", [jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto])
@pytest.mark.parametrize(("text", "meaning"), MOVED, ids=[text for text, _ in MOVED])
def test_the_gradient_of_what_is_moved_under_its_own_name_comes_in_where_it_lies(text, meaning, kind):
    """Not where the array lay before."""
    rng = np.random.default_rng(0)
    a, w = (rng.integers(1, 4, shape).astype("float32") for shape in ((8, 16), (16,)))

    def loss(call):
        def squares(a, w):
            left = call(*((w, a) if text.startswith("w") else (a, w))) if call is not meaning else meaning(a, w)
            return sum((jax.reshard(each, jax.P()) ** 2).sum() for each in jax.tree.leaves(left))

        return jax.grad(squares, (0, 1))

    def called(*arrays):
        return shardc.einsum(text, *arrays[: 1 + ("w" in text)])

    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"), axis_types=(kind,) * 2)):
        placed = jax.device_put(a, jax.P("X", "Y")), jax.device_put(w, jax.P("Y"))
        found, wanted = jax.jit(loss(called))(*placed), loss(meaning)(a, w)
        for one, other, array in zip(found, wanted, placed, strict=True):
            np.testing.assert_array_equal(one, other)
            assert not one.any() or one.sharding.is_equivalent_to(array.sharding, one.ndim)


NAMED = {  # text, and the gradient of y + 3·z
    "y'[I, J] = x[I, J] ⊙ x": lambda x: 2 * x,
    "y[I, J] = x[I, J] ⊙ x; y'[I, J] = x + 1; return y, y'": lambda x: 2 * x + 3,
    "dy[I, J] = 2 * x[I, J]; y[I, J] = dy ⊙ dy; return y, dy": lambda x: 8 * x + 6,
    "y[I, J] = 2 * dy[I, J]; y'[I, J] = dy; return y, y'": lambda x: 0 * x + 5,
    "y[I, J] = floor(x[I, J]); y'[I, J] = 2 * x; return y, y'": lambda x: 0 * x + 6,
}


@pytest.mark.parametrize("text", NAMED)
def test_each_outputs_gradient_comes_in_by_its_name(text):
    """`dy'` may be that of y', or of y where an array is `dy`."""
    x = jnp.asarray(np.random.default_rng(0).integers(-3, 4, (8, 4)), jnp.float32)

    def loss(x):
        found = shardc.einsum(text, x)
        return sum((1 + 2 * n) * each.sum() for n, each in enumerate(found if isinstance(found, tuple) else (found,)))

    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        np.testing.assert_array_equal(jax.grad(loss)(x), NAMED[text](x))


def gradients(function, arrays, floats):
    """The value and the gradients, by those that are floats, of sines of what is left."""

    def loss(*some):
        now = dict(zip(floats, some, strict=True))
        left = function(*(now.get(place, array) for place, array in enumerate(arrays)))
        left = left if isinstance(left, tuple) else (left,)
        return sum((n + 1) * jax.reshard(jnp.sin(each), jax.P()).sum() for n, each in enumerate(left))

    return jax.value_and_grad(loss, tuple(range(len(floats))))(*(arrays[place] for place in floats))


FIRST_ROWS = Case("for L { w = W[L, D]; x[B, D] = x[B, D] ⊙ w }; return x", Mesh.of({"X": 2}), {"L": 2, "B": 2, "D": 2})
FREE = Case(
    "T = A[I_X, J_Y] · B[J_Y, K]; C = relu(T); return C, T", Mesh.of({"X": 2, "Y": 2}), {"I": 4, "J": 4, "K": 4}
)
OF_ROWS = Case("T[L_X, B] = relu(V[L, B_X]); for L { x[B] = x[B] ⊙ T }; return x", Mesh.of({"X": 2}), {"L": 4, "B": 4})
OF_NOTHING = Case("for L { x[B, D] = sign(x[B, D]) }; return x", Mesh.of({"X": 2}), {"L": 2, "B": 2, "D": 2})


@pytest.mark.exhaustive
@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(st.one_of(loops(), mixed_programs(), programs()))
def test_of_any_program_it_is_what_jax_makes_of_its_plan(case):
    program = of(case)
    assume(program.mesh.axes and program.mesh.devices <= 8 and may_be_planned(program))
    is_of_its_plan(program)


@pytest.mark.parametrize("case", [FIRST_ROWS, FREE, OF_ROWS, OF_NOTHING], ids=str)
def test_of_what_once_was_wrong_it_is_what_jax_makes_of_its_plan(case):
    is_of_its_plan(of(case))


def of(case):
    return shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32")


def is_of_its_plan(program):
    """Values and gradients, by a thousandth of the largest of each array: JAX's adds up in another order. What is taken
    for another input, or for another output's, is another number."""
    rng = np.random.default_rng(0)
    with jax.set_mesh(jax.make_mesh([size for _, size in program.mesh.axes], program.mesh.names)):
        specs = [each.pattern.exact for each in program.inputs]
        arrays = [
            jax.device_put(
                rng.uniform(0.5, 1.5, program.shape(each.dims)).astype(each.dtype.jax),
                jax.P(*(axes or None for axes in lies.dims)) if lies else jax.P(),
            )
            for each, lies in zip(program.inputs, specs, strict=True)
        ]
        floats = [place for place, each in enumerate(program.inputs) if each.dtype.kind is Kind.FLOAT]
        value, found = gradients(lambda *arrays: shardc.einsum(str(program), *arrays), arrays, floats)
        known, wanted = gradients(shardc.plan(program).compile(), arrays, floats)
    for one, other in zip((value, *found), (known, *wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6 + 1e-3 * float(np.abs(np.asarray(other)).max()))


class Asked:
    """The planner of a call, and what it is asked: of which outputs, and whether it may cut axes."""

    def __init__(self):
        self.planner, self.asked = _planner({}), []

    def __call__(self, program, may_cut):
        names = [program.results[number].name for number in program.outputs]
        self.asked.append((" ".join(names), may_cut))
        return self.planner(program, may_cut)

    def whole(self, program):
        return self.planner.whole(program)


def test_forward_may_be_planned_on_a_finer_mesh_and_its_gradient_on_the_mesh_as_it_is():
    """Arguments and results of the two lie alike: what is kept from one for the other has no axes that are cut."""
    planner = Asked()
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        x, w = (jax.device_put(jnp.ones((16, 16)), spec) for spec in (jax.P("X"), jax.P(None, "Y")))
        jax.grad(lambda w: einsum("A[I_X, J] · B[J, K_Y] → C[I_X, K_Y]", x, w, planner=planner).sum())(w)
    assert planner.asked == [("@2", True), ("C dA dB", False)]
