"""What a call of shardc.einsum and shardc.reshard asks of its plan: every option of shardc.plan but those that arrays
and mesh answer, each of which changes the plan as it changes shardc.plan's, and what is done."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.api import PlanOptions, _planner
from shardc.emit.call.transforms import einsum
from shardc.errors import ShardcError
from shardc.interface.called import CallOptions
from shardc.ir.plan import How, Schedule
from shardc.lowering.together import candidates

pytestmark = pytest.mark.devices

GATHERED = "A[I_X, J] · B[J, K_X] → C[I, K_X]"
SCATTERED = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]"
# Of each option: what it is given beside, and what is asked. One value, which changes the plan.
OPTIONS = {
    "chip": ({}, {"chip": "v6e"}),
    "topology": ({}, {"topology": "v5e:2x4"}),
    "objective": ({"chip": "v5e"}, {"objective": "bytes"}),
    "memory": ({"chip": "v5e"}, {"memory": "100MB"}),
    "formula": ({}, {"formula": "book"}),
    "profile": ({"chip": "v5e"}, {"profile": "spec"}),
    "map": ({"topology": "v5e:2x4"}, {"map": {"X": 0, "Y": 1}}),
    "dcn": ({}, {"dcn": "Y"}),
    "wraparound": ({}, {"wraparound": {"X": "ring"}}),
    "idle": ({}, {"idle": "keep"}),
    "overlap": ({"chip": "v5e"}, {"overlap": "on"}),
}


def shapes(mesh, *specs):
    return [
        jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16, sharding=jax.NamedSharding(mesh, jax.P(*spec)))
        for spec in specs
    ]


def test_a_call_takes_every_option_that_arrays_and_mesh_do_not_answer():
    answered = {"mesh", "dims", "dtype", "name", "tuned"}  # what is tuned takes minutes, at each trace
    assert set(OPTIONS) == set(CallOptions.__annotations__) == set(PlanOptions.__annotations__) - answered


@pytest.mark.parametrize("option", OPTIONS)
def test_its_plan_is_the_one_that_the_same_option_gives(option):
    beside, asked = OPTIONS[option]
    mesh = jax.make_mesh((4, 2), ("X", "Y"))
    sizes = {"mesh": mesh, "dims": dict.fromkeys("IJK", 8192), "dtype": "bf16"}
    with jax.set_mesh(mesh):
        arrays = shapes(mesh, ("X",), (None, "X"))
        found, without = (said(shardc.einsum.plan, *arrays, **beside, **more) for more in (asked, {}))
    assert found == said(shardc.plan, **sizes, **beside, **asked) != without


def said(plan, *arrays, **options):
    """The plan, or why there is none."""
    try:
        return str(plan(GATHERED, *arrays, **options))
    except ShardcError as error:
        return f"{error.code}: {error.message}"


@pytest.mark.parametrize("kind", [jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto])
def test_what_overlaps_is_a_ring_where_it_is_done_and_in_its_gradient(kind):
    mesh = jax.make_mesh((8,), ("X",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        for overlap, rings in (("on", True), ("off", False)):

            def product(a, b, overlap=overlap):
                return shardc.einsum(GATHERED, a, b, chip="v5e", overlap=overlap)

            def gradient(a, b, product=product):
                return jax.grad(lambda a, b: product(a, b).astype("float32").sum(), (0, 1))(a, b)

            for done in (product, gradient):
                text = jax.jit(done).lower(*shapes(mesh, ("X",), (None, "X"))).as_text()
                assert ("collective_permute" in text) == rings


def test_a_reshard_takes_them_too():
    """By time in exchanges, which use more links; by bytes in one permute."""
    mesh = jax.make_mesh((4, 2), ("X", "Y"))
    with jax.set_mesh(mesh):
        for objective, permutes in (("time", False), ("bytes", True)):

            def there(x, objective=objective):
                return shardc.reshard(x, jax.P("Y", "X"), chip="v5e", objective=objective)

            assert ("ppermute" in str(jax.make_jaxpr(there)(*shapes(mesh, ("X",))))) == permutes
        small = jax.device_put(jnp.arange(64.0).reshape(8, 8), jax.P("X"))
        assert (shardc.reshard(small, jax.P(), idle="keep", overlap="on") == np.arange(64.0).reshape(8, 8)).all()


@pytest.mark.parametrize("call", [shardc.einsum, shardc.einsum.plan, shardc.reshard])
def test_what_is_no_option_is_refused(call):
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        x = jnp.ones((8, 8))
        arguments = (x, jax.P("X")) if call is shardc.reshard else ("A[I_X, J] → A[I, J]", x)
        for slip in ({"objective": "byte"}, {"idle": "kept"}, {"overlap": 1}, {"memory": "lots"}, {"topology": 4}):
            with pytest.raises(ShardcError, match="SHC001"):
                call(*arguments, **slip)
        for name in ("mesh", "overlapp"):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
                call(*arguments, **{name: "X=4"})


@dataclass(frozen=True)
class As:
    """A planner whose plans have their first such group, if there is one, done as one."""

    how: How | None

    @dataclass(frozen=True)
    class Found:
        schedule: Schedule

    def __call__(self, program, may_cut):
        schedule = _planner({"overlap": "off", "idle": "keep"})(program, may_cut).schedule
        for ordered, group in candidates(schedule):
            if group.how is self.how:
                return self.Found(replace(ordered, together=(group,)))
        return self.Found(schedule)

    def whole(self, program):
        return _planner({}).whole(program)


@pytest.mark.parametrize("how", [How.RING, How.RINGS, How.CHUNKS, How.PARTITIONER])
def test_gradients_of_what_is_done_as_one_are_those_of_the_steps(how):
    texts = [GATHERED.replace("X", "XY"), "A[I, J_X] · B[J, K_XY] → C[I, K_XY]", SCATTERED]
    rng, tried = np.random.default_rng(1), 0
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        for text in texts:
            specs = [each.pattern.exact.dims for each in shardc.parse(text, mesh="X=4,Y=2").inputs]
            x, w = (
                jax.device_put(rng.normal(size=(16, 16)).astype("f"), jax.P(*(d or None for d in s))) for s in specs
            )
            tried += (
                As(how)(shardc.parse(text, mesh="X=4,Y=2", dims="I=16,J=16,K=16", dtype="f32"), True).schedule.together
                != ()
            )
            (value, found), (known, wanted) = (
                jax.jit(
                    jax.value_and_grad(
                        lambda x, w, way=way, text=text: (einsum(text, x, w, planner=As(way)) ** 2).sum(), (0, 1)
                    )
                )(x, w)
                for way in (how, None)
            )
            for one, other in zip((value, *found), (known, *wanted), strict=True):
                assert one.sharding.spec == other.sharding.spec
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * abs(other).max())
    assert tried
