"""shardc.reshard and shardc.einsum on meshes whose axes are each Explicit, Auto, or Manual in a shard_map around them.

A case is drawn: a mesh and its kinds of axes, shardings over the axes that are free, and how the function is called.
The law: every device's shard is NumPy's, and the result lies as asked, wherever a sharding can be seen from outside:
of what is returned by an eager or jitted call. What a wrong axis, a lost one, or one in another order would leave
differs in both, since no two elements are alike.
"""

import pickle
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError
from shardc.ir.sharding import Sharding, spell
from shardc.rules.placements import placements

pytestmark = pytest.mark.devices

KINDS = {kind.name[0]: kind for kind in jax.sharding.AxisType}  # A, E and M
SIZES = ((2, 2, 2), (4, 2), (2, 4))
HOW = ("eager", "jit", "grad", "jit grad", "vmap", "jit vmap")


@dataclass(frozen=True)
class Case:
    """`kinds` is a letter for each axis: Explicit, Auto, Manual. `shardings` are over the axes that are free."""

    sizes: tuple[int, ...]
    kinds: str
    shardings: tuple[tuple[tuple[str, ...], ...], ...]
    how: str = "jit"
    batch: str = ""  # under vmap, the axis that the mapped dim is sharded over

    @property
    def names(self):
        return "XYZ"[: len(self.sizes)]

    @property
    def manual(self):
        return tuple(name for name, kind in zip(self.names, self.kinds, strict=True) if kind == "M")

    def mesh(self):
        """Manual axes are Explicit where the mesh is made: the shard_map makes them manual."""
        kinds = tuple(KINDS[kind if kind != "M" else "E"] for kind in self.kinds)
        return jax.make_mesh(self.sizes, tuple(self.names), axis_types=kinds)

    def whole(self, sharding):
        """With the manual axes on the first dim, before its own."""
        first, *rest = sharding
        return jax.P(self.manual + first, *(axes or None for axes in rest))

    def mapped(self, function, arrays):
        if not self.manual:
            return function
        specs = (jax.P(self.manual),) * arrays
        return jax.shard_map(function, in_specs=specs, out_specs=jax.P(self.manual), axis_names=set(self.manual))


def kinds_of(count):
    return st.text("EAM", min_size=count, max_size=count).filter(lambda kinds: set(kinds) != {"M"})


@st.composite
def cases(draw, arrays=2, how=HOW):
    sizes = draw(st.sampled_from(SIZES))
    kinds = draw(kinds_of(len(sizes)))
    names = "XYZ"[: len(sizes)]
    free = tuple(name for name, kind in zip(names, kinds, strict=True) if kind != "M")
    every = list(placements(free, 2))
    shardings = tuple(draw(st.sampled_from(every)) for _ in range(arrays))
    how = draw(st.sampled_from(how))
    used = {axis for dims in shardings for axes in dims for axis in axes}
    unused = ["", *sorted(set(free) - used)] if "vmap" in how else [""]
    return Case(sizes, kinds, shardings, how, draw(st.sampled_from(unused)))


def shards_equal(result, whole):
    for shard in result.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])


def lies(result, mesh, spec, how="eager"):
    """Out of jax.jit XLA may drop the Auto axes of a dim that has Explicit ones too: its type names those alone."""
    allowed = [spec] if how == "eager" else [spec, typed_alone(spec, mesh)]
    found = [result.sharding.is_equivalent_to(jax.NamedSharding(mesh, one), result.ndim) for one in allowed]
    assert any(found), (result.sharding, spec)


def typed_alone(spec, mesh):
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))

    def of_dim(part):
        axes = part if isinstance(part, tuple) else (part,) if part else ()
        typed = tuple(axis for axis in axes if kinds[axis] == KINDS["E"])
        return typed or axes

    return jax.P(*map(of_dim, spec))


@contextmanager
def rejected_where_jax_fails():
    """Of a vmap over an Explicit axis beside an Auto one JAX 0.10 batches the start of a slice as if it had dims."""
    try:
        yield
    except AssertionError as error:
        if str(error).startswith("(0, P("):
            reject()
        raise


def numbers(*shape):
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


WHOLE, WEIGHTS = numbers(16, 8), numbers(16, 8)[::-1, ::-1].copy()


def refused(code, call, *arguments):
    with pytest.raises(ShardcError) as caught:
        call(*arguments)
    assert caught.value.code == code
    assert caught.value.help
    return caught.value


def can_be_said(case, sharding):
    """JAX's types put the Explicit axes of a dim first; XLA's come after them."""
    kinds = dict(zip(case.names, case.kinds, strict=True))
    return all(sorted(axes, key=lambda axis: kinds[axis] != "E") == list(axes) for axes in sharding)


def seen_inside(case, result, sharding):
    """Inside a shard_map the type says what lies on Explicit axes."""
    kinds = dict(zip(case.names, case.kinds, strict=True))
    typed = [tuple(axis for axis in axes if kinds[axis] == "E") for axes in sharding]
    assert jax.typeof(result).sharding.spec == jax.P(*(axes or None for axes in typed))
    return result


def seen_outside(case):
    """JAX's own eager shard_map keeps no axis but the manual ones; a jitted one does, where none is Auto."""
    return not case.manual or (case.how == "jit" and "A" not in case.kinds)


def refuses(case, sharding, function):
    """Whether a result is refused, by name, because no type can say it."""
    if case.how == "eager" and not case.manual:
        return False
    if can_be_said(case, sharding):
        return False
    refused("SHC305", function)
    return True


def called(case, function, arrays):
    return jax.jit(function)(*arrays) if "jit" in case.how else function(*arrays)


def reshards(case):
    source, target = case.shardings
    mesh = case.mesh()
    inside = jax.P(*(axes or None for axes in target))
    with jax.set_mesh(mesh):
        jitted = case.how == "jit" and case.manual
        look = (lambda y: seen_inside(case, y, target)) if jitted else lambda y: y
        function = case.mapped(lambda x: look(shardc.reshard(x, inside)), 1)
        x = jax.device_put(WHOLE, case.whole(source))
        if refuses(case, target, lambda: jax.jit(function)(x)):
            return
        if "vmap" in case.how:
            xs = np.stack([WHOLE * k for k in range(1, 9)])
            spec = jax.P(case.batch or None, *case.whole(source))
            result = called(case, jax.vmap(function), [jax.device_put(xs, spec)])
            shards_equal(result, xs)
            return
        if "grad" in case.how:
            if case.how == "grad" and case.manual and "A" in case.kinds:
                return  # of JAX's eager shard_map, whose arguments and cotangents differ in type
            weights = jax.device_put(WEIGHTS, case.whole(target))
            result = called(case, jax.grad(lambda x: jnp.sum(function(x) * weights)), [x])
            shards_equal(result, WEIGHTS)
            return
        result = called(case, function, [x])
        shards_equal(result, WHOLE)
        if seen_outside(case):
            lies(result, mesh, case.whole(target), case.how)


EXAMPLES = (
    Case((2, 4), "EA", ((("X", "Y"), ()), (("Y",), ()))),
    Case((2, 2, 2), "AEE", (((), ()), (("Y",), ("X", "Z")))),
    Case((2, 4), "EA", ((("X", "Y"), ()), (("X",), ()))),
    Case((2, 4), "EA", ((("X", "Y"), ()), (("X",), ())), "grad"),
    Case((2, 4), "EA", ((("X", "Y"), ()), (("Y", "X"), ()))),
    Case((2, 4), "EA", ((("X", "Y"), ()), (("Y", "X"), ())), "eager"),
    Case((2, 2, 2), "MEE", (((), ("Y",)), (("Z",), ("Y",)))),
    Case((2, 2, 2), "MEA", (((), ("Y",)), (("Z", "Y"), ()))),
    Case((2, 2, 2), "MAA", (((), ("Y",)), (("Z",), ("Y",))), "eager"),
    Case((2, 2, 2), "EEE", (((), ("Y",)), (("Z",), ())), "jit vmap", "X"),
)

QUICK = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.instant
@pytest.mark.parametrize("case", EXAMPLES, ids=str)
def test_reshards_once_wrong(case):
    reshards(case)


@QUICK
@given(cases())
def test_reshards_on_any_kinds_of_axes(case):
    reshards(case)


@pytest.mark.exhaustive
@LONG
@given(cases())
def test_many_reshards_on_any_kinds_of_axes(case):
    reshards(case)


EXCHANGED = (((), ("X",)), (("X",), ("Y",)))  # an AllToAll reads x, so that x is laid along Auto axes before


@pytest.mark.instant
@pytest.mark.parametrize("kinds", ("EA", "AE"))
def test_what_is_exchanged_has_a_gradient_outside_jit(kinds):
    """Step by step JAX differentiates outside jax.jit: what a constraint there leaves is of another type."""
    source, target = EXCHANGED
    reshards(Case((2, 4), kinds, EXCHANGED, "grad"))
    multiplies(Case((2, 4), kinds, (source, ((), ()), target), "grad"))


@QUICK
@given(cases(how=("grad",)))
def test_gradients_outside_jit_of_reshards(case):
    reshards(case)


@pytest.mark.exhaustive
@LONG
@given(cases(how=("grad",)))
def test_many_gradients_outside_jit_of_reshards(case):
    reshards(case)


A, B = numbers(16, 8) % 7 - 3, numbers(8, 16) % 5 - 2
DIMS = ("I", "J"), ("J", "K"), ("I", "K")


def multiplies(case):
    a, b, c = case.shardings
    mesh = case.mesh()
    left, right, result = (
        name + spell(dims, Sharding(sharding)) for name, dims, sharding in zip("ABC", DIMS, (a, b, c), strict=True)
    )
    text = f"{left} · {right} → {result}"
    rows = numbers(16, 16) % 11
    if case.manual and "jit" not in case.how:
        return  # JAX's eager shard_map types its arguments by no axis that is not manual
    # B comes whole to each of the manual axes, so that it is sharded over the free ones alone.
    with jax.set_mesh(mesh):
        specs = (jax.P(case.manual), jax.P())
        function = lambda x, w: shardc.einsum(text, x, w)  # noqa: E731
        if case.manual:
            function = jax.shard_map(function, in_specs=specs, out_specs=specs[0], axis_names=set(case.manual))
        x, w = jax.device_put(A, case.whole(a)), jax.device_put(B, jax.P(*(axes or None for axes in b)))
        if refuses(case, c, lambda: jax.jit(function)(x, w)):
            return
        if "vmap" in case.how:
            xs = np.stack([k * A for k in range(1, 9)])
            placed = jax.device_put(xs, jax.P(case.batch or None, *case.whole(a)))
            shards_equal(called(case, jax.vmap(function, in_axes=(0, None)), [placed, w]), xs @ B)
            return
        if "grad" in case.how:
            weights = jax.device_put(rows, case.whole(c))
            gradient = jax.grad(lambda x, w: jnp.sum(function(x, w) * weights), argnums=(0, 1))
            dx, dw = called(case, gradient, [x, w])
            shards_equal(dx, rows @ B.T)
            shards_equal(dw, A.T @ rows)
            return
        found = called(case, function, [x, w])
        shards_equal(found, A @ B)
        if seen_outside(case):
            lies(found, mesh, case.whole(c), case.how)


@QUICK
@given(cases(arrays=3))
@example(Case((2, 4), "EA", ((("X", "Y"), ()), ((), ()), ((), ())), "eager"))
def test_products_on_any_kinds_of_axes(case):
    with rejected_where_jax_fails():
        multiplies(case)


@pytest.mark.exhaustive
@LONG
@given(cases(arrays=3))
def test_many_products_on_any_kinds_of_axes(case):
    with rejected_where_jax_fails():
        multiplies(case)


@pytest.mark.exhaustive
@LONG
@given(cases(arrays=3, how=("grad",)))
def test_many_gradients_outside_jit_of_products(case):
    multiplies(case)


def test_a_manual_axis_is_refused_by_name():
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"))):
        x = jax.device_put(WHOLE, jax.P("X"))

        def inside(call):
            return jax.jit(jax.shard_map(call, in_specs=jax.P("X"), out_specs=jax.P("X"), axis_names={"X"}))

        error = refused("SHC201", inside(lambda x: shardc.reshard(x, jax.P("X"))), x)
        assert "shard_map" in error.help
        refused("SHC201", inside(lambda x: shardc.einsum("A[I_X, J] → A[I, J]", x)), x)


def test_where_every_axis_is_manual_there_is_none_to_move():
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"))):
        call = jax.shard_map(lambda x: shardc.reshard(x, jax.P()), in_specs=jax.P("X"), out_specs=jax.P("X"))
        refused("SHC306", call, jax.device_put(WHOLE, jax.P("X")))


def test_an_axis_that_vmap_runs_over_is_refused_by_name():
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"))):
        xs = jax.device_put(np.stack([WHOLE, WHOLE]), jax.P("X"))
        for call in (jax.vmap, lambda function: jax.jit(jax.vmap(function))):
            whole = jax.jit(lambda xs: shardc.reshard(xs, jax.P(None, "X")))(xs)  # which is remembered, and no matter
            lies(whole, jax.sharding.get_mesh(), jax.P(None, "X"))
            error = refused("SHC201", call(lambda x: shardc.reshard(x, jax.P("X"))), xs)
            assert "vmap" in error.help


def test_an_array_that_lies_over_an_axis_that_vmap_runs_over_is_refused_by_name():
    """One from outside, which is no part of what is mapped."""
    text, sizes = "A[I_Y, J] + B[I_Y, J] → C[I_Y, J]", {"I": 16, "J": 8}
    program = shardc.plan(text, mesh="Y=4", dims=sizes, dtype="f32").compile()
    mesh = jax.make_mesh((2, 4), ("X", "Y"))
    with jax.set_mesh(mesh):
        xs = jax.device_put(np.stack([WHOLE, WHOLE]), jax.P("X", "Y"))
        other, inside = (jax.device_put(WHOLE, spec) for spec in (jax.P("Y", "X"), jax.P("Y")))
        assert np.array_equal(jax.vmap(lambda x: program(x, inside))(xs), 2 * np.stack([WHOLE, WHOLE]))
        error = refused("SHC201", jax.vmap(lambda x: program(x, other)), xs)
        assert "`B`[I_Y, J_X]" in str(error) and "vmap" in error.help


def test_a_named_sharding_is_taken_where_a_spec_is():
    mesh = jax.make_mesh((2, 4), ("X", "Y"))
    wanted = jax.NamedSharding(mesh, jax.P("Y", "X"))
    with jax.set_mesh(mesh):
        for call in (shardc.reshard, jax.jit(shardc.reshard, static_argnums=1)):
            result = call(jax.device_put(WHOLE, jax.P("X")), wanted)
            shards_equal(result, WHOLE)
            lies(result, mesh, jax.P("Y", "X"))
        other = jax.make_mesh((4, 2), ("X", "Y"))
        refused("SHC306", shardc.reshard, WHOLE, jax.NamedSharding(other, jax.P("X")))
        turned = jax.sharding.Mesh(mesh.devices[::-1], ("X", "Y"))
        refused("SHC306", shardc.reshard, WHOLE, jax.NamedSharding(turned, jax.P("X")))
        refused("SHC306", shardc.reshard, jax.device_put(WHOLE, jax.NamedSharding(turned, jax.P("X"))), jax.P("X"))


@pytest.mark.parametrize("kind", ["Explicit", "Auto"])
def test_a_named_sharding_brings_its_mesh_where_none_is_in_force(kind):
    mesh = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(KINDS[kind[0]],) * 2)
    wanted = jax.NamedSharding(mesh, jax.P("Y", "X"))
    x = jax.device_put(WHOLE, jax.NamedSharding(mesh, jax.P("X")))
    for call in (shardc.reshard, jax.jit(shardc.reshard, static_argnums=1)):
        result = call(x, wanted)
        shards_equal(result, WHOLE)
        lies(result, mesh, jax.P("Y", "X"))


def test_arrays_of_a_mesh_with_other_kinds_of_axes_are_retyped():
    explicit, auto = (jax.make_mesh((2, 4), ("X", "Y"), axis_types=(KINDS[kind],) * 2) for kind in "EA")
    for here, there in ((explicit, auto), (auto, explicit)):
        x = jax.device_put(A, jax.NamedSharding(there, jax.P("X")))
        with jax.set_mesh(here):
            for spec in (jax.P("X"), jax.P("Y", "X")):
                result = shardc.reshard(x, spec)
                shards_equal(result, A)
                lies(result, here, spec)
                assert result.sharding.mesh == here
            shards_equal(shardc.einsum("A[I_X, J] · B[J, K] → C[I_X, K]", x, B), A @ B)


def test_a_plan_takes_any_mesh_and_runs_on_it():
    mesh = jax.make_mesh((2, 4), ("X", "Y"))
    text, sizes = "A[I_X, J] · B[J, K] → C[I_X, K_Y]", {"I": 16, "J": 8, "K": 16}
    first = shardc.plan(text, mesh=mesh, dims=sizes, dtype="f32")
    given = (mesh, mesh.abstract_mesh, jax.NamedSharding(mesh, jax.P("X")), first.mesh, first.schedule.mesh, first)
    for one in given:
        plan = shardc.plan(text, mesh=one, dims=sizes, dtype="f32")
        assert plan.mesh == first.mesh
        shards_equal(plan.compile(one)(A, B), A @ B)
    refused("SHC306", first.compile(jax.make_mesh((4, 2), ("X", "Y"))), A, B)


@pytest.mark.parametrize("some", [slice(4, 6), slice(5, 3, -1)])
def test_a_plan_made_for_some_devices_runs_on_these(some):
    """Given as a mesh or within a sharding, tuned or sent elsewhere; not on the first that there are."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[some]), ("X",))
    whole = jax.device_put(np.arange(4, dtype="float32"), jax.NamedSharding(mesh, jax.P()))
    for one in (mesh, jax.NamedSharding(mesh, jax.P())):
        program = shardc.plan("A[I] → A[I_X]", mesh=one, dims="I=4", dtype="f32").compile()
        for array in (whole, np.asarray(whole)):
            assert list(program(array).sharding.mesh.devices) == list(mesh.devices)
    elsewhere = pickle.loads(pickle.dumps(shardc.plan("A[I] → A[I_X]", mesh=mesh, dims="I=4", dtype="f32")))
    assert list(elsewhere.compile()(np.asarray(whole)).sharding.mesh.devices) == jax.devices()[:2]


def test_a_numpy_array_inside_a_shard_map_is_there_whole():
    for kinds in ("EE", "EA"):
        with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"), axis_types=tuple(KINDS[kind] for kind in kinds))):

            def inside(x):
                return shardc.einsum("A[I, J_Y] · B[J_Y, K] → C[I, K]", shardc.reshard(x, jax.P(None, "Y")), B)

            mapped = jax.shard_map(inside, in_specs=jax.P("X"), out_specs=jax.P("X"), axis_names={"X"})
            shards_equal(jax.jit(mapped)(jax.device_put(A, jax.P("X"))), A @ B)
            assert jax.jit(lambda: 1)() == 1
            mapped = jax.shard_map(
                lambda x: x + shardc.reshard(WHOLE[:8], jax.P("Y")),
                in_specs=jax.P("X"),
                out_specs=jax.P("X"),
                axis_names={"X"},
            )
            shards_equal(jax.jit(mapped)(jax.device_put(A, jax.P("X"))), A + np.tile(WHOLE[:8], (2, 1)))


@pytest.mark.instant
@pytest.mark.parametrize("kinds", ["AA", "EA", "AE"])
def test_partial_sums_over_an_auto_axis_have_no_type(kinds):
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"), axis_types=tuple(KINDS[kind] for kind in kinds))):
        auto = "XY"[kinds.index("A")]
        text = f"A[I, J_{auto}] · B[J_{auto}, K] → C[I, K]{{U_{auto}}}"
        refused("SHC306", shardc.einsum, text, jax.device_put(A, jax.P(None, auto)), jax.device_put(B, jax.P(auto)))
        refused("SHC220", shardc.reshard, A, jax.P(unreduced={auto}))


@pytest.mark.parametrize("kinds", ["EA", "AE"])
def test_partial_sums_over_an_explicit_axis_beside_an_auto_one(kinds):
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"), axis_types=tuple(KINDS[kind] for kind in kinds))):
        own = "XY"[kinds.index("E")]
        other = "XY"[kinds.index("A")]
        text = f"A[I, J_{own}] · B[J_{own}, K] → C[I, K]{{U_{own}}}"
        x, w = jax.device_put(A, jax.P(None, own)), jax.device_put(B, jax.P(own))
        refused("SHC306", shardc.einsum, text, x, w)  # JAX's own jit cannot return it
        for spec in (jax.P(own), jax.P((own, other)), jax.P(None, other)):
            found = jax.jit(lambda x, w, spec=spec: shardc.reshard(shardc.einsum(text, x, w), spec))(x, w)
            shards_equal(found, A @ B)
            lies(found, jax.sharding.get_mesh(), spec)


@pytest.mark.parametrize("kinds", ["EA", "AE", "AA", "EE"])
def test_a_plan_that_cuts_axes_has_its_gradient_and_no_place_inside_a_shard_map(kinds):
    text, dims = "A[I_X, J] · B[J, K_X] → C[I_Y, K]", {"I": 16, "J": 64, "K": 16}
    program = shardc.plan(text, mesh="X=4,Y=2", dims=dims, dtype="f32", objective="bytes").compile()
    left, right, weights = numbers(16, 64) % 7 - 3, numbers(64, 16) % 5 - 2, numbers(16, 16) % 11
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"), axis_types=tuple(KINDS[kind] for kind in kinds))):
        x, w = jax.device_put(left, jax.P("X")), jax.device_put(right, jax.P(None, "X"))
        dx, dw = jax.jit(jax.grad(lambda x, w: jnp.sum(program(x, w) * weights), argnums=(0, 1)))(x, w)
        shards_equal(dx, weights @ right.T)
        shards_equal(dw, left.T @ weights)
        inside = jax.shard_map(program, in_specs=(jax.P(), jax.P()), out_specs=jax.P(), axis_names={"Y"})
        refused("SHC306", jax.jit(inside), x, w)


def test_a_compiled_plan_inside_a_shard_map_is_one_for_the_free_axes():
    dims = {"I": 8, "J": 8, "K": 16}
    program = shardc.plan("A[I, J_Y] · B[J_Y, K] → C[I_Y, K]", mesh="Y=4", dims=dims, dtype="f32").compile()
    whole = shardc.plan("A[I, J_Y] · B[J_Y, K] → C[I_Y, K]", mesh="X=2,Y=4", dims=dims, dtype="f32").compile()
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"))):
        x, w = jax.device_put(A, jax.P("X", "Y")), jax.device_put(B, jax.P("Y"))

        def mapped(function):
            return jax.shard_map(function, in_specs=(jax.P("X"), jax.P()), out_specs=jax.P("X"), axis_names={"X"})

        found = jax.jit(mapped(program))(x, w)
        shards_equal(found, A @ B)
        lies(found, jax.sharding.get_mesh(), jax.P(("X", "Y")))
        refused("SHC306", jax.jit(mapped(whole)), x, w)


@pytest.mark.parametrize("kind", ["E", "A"])
@pytest.mark.parametrize("check_vma", [True, False])
def test_inside_two_shard_maps_and_inside_loops(kind, check_vma):
    mesh = jax.make_mesh((2, 2, 2), ("X", "Y", "Z"), axis_types=(KINDS[kind],) * 3)
    with jax.set_mesh(mesh):
        x = jax.device_put(WHOLE, jax.P(("X", "Y"), "Z"))

        def moved(x):
            def turn(carry, _):
                return shardc.reshard(shardc.reshard(carry, jax.P("Z")), jax.P(None, "Z")) + 1, None

            return jax.lax.scan(turn, shardc.reshard(x, jax.P(None, "Z")), None, length=2)[0]

        inner = jax.shard_map(moved, in_specs=jax.P("Y"), out_specs=jax.P("Y"), axis_names={"Y"}, check_vma=check_vma)
        outer = jax.shard_map(inner, in_specs=jax.P("X"), out_specs=jax.P("X"), axis_names={"X"}, check_vma=check_vma)
        shards_equal(jax.jit(outer)(x), WHOLE + 2)


@pytest.mark.instant
def test_inside_a_shard_map_a_move_has_a_gradient_of_its_own():
    """JAX's own would not be compiled there; on a mesh whose axes are all free it is JAX's."""
    mesh = jax.make_mesh((2, 4), ("X", "Y"))
    with jax.set_mesh(mesh):
        x = jax.device_put(WHOLE, jax.P("X", "Y"))
        moved = lambda x: shardc.reshard(x, jax.P("Y"))  # noqa: E731
        inside = jax.shard_map(moved, in_specs=jax.P("X"), out_specs=jax.P("X"), axis_names={"X"})
        assert "custom_vjp_call" in str(jax.make_jaxpr(inside)(x))
        assert "custom_vjp_call" not in str(jax.make_jaxpr(moved)(x))
        gradient = jax.jit(jax.grad(lambda x: (inside(x) * WEIGHTS).sum()))(x)
        shards_equal(gradient, WEIGHTS)


def test_a_number_needs_no_path():
    for kinds in ("EE", "EA", "AA"):
        with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"), axis_types=tuple(KINDS[kind] for kind in kinds))):
            for call in (shardc.reshard, jax.jit(shardc.reshard, static_argnums=1)):
                assert call(jnp.float32(3), jax.P()) == 3


@pytest.mark.parametrize("kinds", ["EE", "EA", "AE", "AA"])
def test_constants_under_jit_lie_as_asked(kinds):
    mesh = jax.make_mesh((2, 4), ("X", "Y"), axis_types=tuple(KINDS[kind] for kind in kinds))
    with jax.set_mesh(mesh):
        for constant in (WHOLE, jax.device_put(WHOLE, jax.P("X", "Y")), jax.device_put(WHOLE, jax.P("Y", "X"))):
            found = jax.jit(lambda constant=constant: shardc.reshard(constant, jax.P("Y", "X")))()
            shards_equal(found, WHOLE)
            lies(found, mesh, jax.P("Y", "X"))
        outside = jax.device_put(WHOLE, jax.P("X", "Y"))
        inside = jax.shard_map(
            lambda y: y + shardc.reshard(outside, jax.P(None, "Y"))[:8],
            in_specs=jax.P("X"),
            out_specs=jax.P("X"),
            axis_names={"X"},
        )
        refused("SHC305", jax.jit(inside), jax.device_put(WHOLE, jax.P("X")))


@pytest.mark.parametrize("names", ["XY", "YX"])
@pytest.mark.parametrize("kinds", ["EE", "EA", "AE", "AA"])
def test_an_axis_of_one_device_may_stand_in_a_sharding_or_not(names, kinds):
    """It cuts nothing. The result lies as the text says, and a gradient as the array that it is of."""
    mesh = jax.make_mesh(
        tuple({"X": 4, "Y": 1}[name] for name in names), tuple(names), axis_types=tuple(KINDS[kind] for kind in kinds)
    )
    a, b = np.arange(64.0, dtype="float32").reshape(8, 8), np.arange(32.0, dtype="float32").reshape(8, 4)
    written = ["A[I_X, J_Y] · B[J_Y, K] → C[I_X, K_Y]", "A[I_XY, J] · B[J, K_Y] → C[I_XY, K]"]
    lying = [jax.P("X"), jax.P("X", "Y"), jax.P(("X", "Y")), jax.P(("Y", "X"))]
    with jax.set_mesh(mesh):
        for text, spec in product(written, lying):
            plan = shardc.plan(text, mesh=mesh, dims="I=8,J=8,K=4", dtype="f32")
            result = jax.P(
                *(
                    {"I_X": "X", "I_XY": ("X", "Y"), "K_Y": "Y", "K": None}[dim]
                    for dim in text.split("C[")[1][:-1].split(", ")
                )
            )
            for call in (lambda a, b, text=text: shardc.einsum(text, a, b), plan.compile()):
                for done in (call, jax.jit(call)):
                    found = done(jax.device_put(a, spec), b)
                    shards_equal(found, a @ b)
                    assert found.sharding.is_equivalent_to(jax.NamedSharding(mesh, result), 2)

                change = jax.jit(jax.grad(lambda a, call=call: jnp.sum(call(a, b) ** 2)))(jax.device_put(a, spec))
                np.testing.assert_array_equal(change, 2 * a @ b @ b.T)
                if kinds == "EE":  # beside an Auto axis jax.jit leaves an axis of one device out of a type
                    assert jax.typeof(change) == jax.typeof(jax.device_put(a, spec))


def test_an_axis_of_more_devices_may_not():
    with jax.set_mesh(jax.make_mesh((4, 1, 2), ("X", "Y", "Z"))):
        for spec in (jax.P(None, "Y"), jax.P("X", "Z"), jax.P(("X", "Z", "Y"))):
            with pytest.raises(ShardcError) as error:
                shardc.einsum("A[I_X, J_Y] → C[I, J]", jax.device_put(np.ones((8, 8)), spec))
            assert error.value.code == "SHC305"
