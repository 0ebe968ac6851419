"""What is called from a train step, over the whole cross: what is called, how, in which mesh, and on which arrays.

The law: every device's shard is NumPy's, and a gradient that of the unsharded function; or a coded error with a remedy;
or JAX's own error, which what is no function of ours raises there too (`theirs`), or which says that the arrays of a
jitted call lie on other devices, which nobody knows while JAX traces. Where arrays lie as planned, or nowhere, and a
mesh is known from somewhere, it has to work.
"""

import contextlib
import copy
import functools
import pickle
import threading
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import ShardcError

pytestmark = [
    pytest.mark.devices,
    pytest.mark.filterwarnings("ignore:Some donated buffers were not usable"),  # results of other shapes
]

P, SIZES = jax.P, {"X": 4, "Y": 2}
KINDS = {kind.name[0]: kind for kind in jax.sharding.AxisType}
RNG = np.random.default_rng(0)
PRODUCT = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]"
CUT = "A[I_X, J] · B[J, K_X] → C[I_Y, K]"
LOOP = "for L { h[B_X, F_Y] = x[B_X, D] ·_D W[L, D, F_Y]; x[B_X, D] = x + h ·_F V[L, F_Y, D] }; return x"
DIMS = {"I": 16, "J": 8, "K": 24}
XY, YX = P("X", "Y"), P("Y", "X")


def numbers(*shape):
    return RNG.integers(-2, 3, shape).astype(np.float32)


def mesh_of(kinds, turned=False):
    devices = np.array(jax.devices()[:8])
    return jax.sharding.Mesh(
        (devices[::-1] if turned else devices).reshape(4, 2), ("X", "Y"), axis_types=tuple(KINDS[k] for k in kinds)
    )


def looped(x, w, v):
    for place in range(2):
        x = x + (x @ w[place]) @ v[place]
    return x


@functools.cache
def planned(text, **options):
    return shardc.plan(text, mesh=SIZES, dtype="f32", **options)


def backward():
    return shardc.plan(shardc.grad(shardc.parse(PRODUCT, mesh=SIZES, dims=DIMS, dtype="f32")))


@dataclass(frozen=True, eq=False)
class Called:
    """`make` gives the function; `lie` where its arrays are planned, `others` where they are not."""

    make: object
    arrays: tuple
    lie: tuple
    others: tuple
    meaning: object
    has_mesh: bool = True  # of its own

    def loss(self, function):
        return lambda *arrays: sum(jnp.sum(y * y) for y in jax.tree.leaves(function(*arrays))) / 2

    @functools.cached_property
    def gradients(self):
        found = jax.jit(jax.grad(self.loss(self.meaning), argnums=tuple(range(len(self.arrays)))))(*self.arrays)
        return tuple(map(np.asarray, found))


A, B, dC = numbers(16, 8), numbers(8, 24), numbers(16, 24)
CALLED = {
    "plan": Called(
        lambda: planned(PRODUCT, dims="I=16,J=8,K=24").compile(),
        (A, B),
        (XY, XY),
        (YX, YX),
        lambda a, b: a @ b,
    ),
    "plan that cuts axes": Called(
        lambda: planned(CUT, dims="I=16,J=64,K=16", objective="bytes").compile(),
        (numbers(16, 64), numbers(64, 16)),
        (P("X"), P(None, "X")),
        (P("Y"), P("Y")),
        lambda a, b: a @ b,
    ),
    "loop": Called(
        lambda: planned(LOOP, dims="L=2,B=16,D=8,F=8").compile(),
        (numbers(16, 8), numbers(2, 8, 8), numbers(2, 8, 8)),
        (P("X"), P(None, None, "Y"), P(None, "Y")),
        (P("Y"), P(None, "Y"), P(None, "X")),
        looped,
    ),
    "gradients": Called(
        lambda: backward().compile(),
        (dC, B, A),
        (XY, XY, XY),
        (YX, YX, YX),
        lambda d, b, a: (d @ b.T, a.T @ d),
    ),
    "einsum": Called(
        lambda: functools.partial(shardc.einsum, PRODUCT), (A, B), (XY, XY), (YX, YX), lambda a, b: a @ b, False
    ),
    "reshard": Called(lambda: lambda a: shardc.reshard(a, YX), (A,), (XY,), (P(None, "X"),), lambda a: a, False),
}
FORCED = ["", "EE", "AA", "EA"]
LYING = ["NumPy's", "JAX's", "on one device", "planned E", "planned A", "other E", "other A", "turned E"]


def lying(called, where):
    """The arrays; those of JAX that are made in a mesh lie on it, as a user's would."""
    if where == "NumPy's":
        return called.arrays
    if where == "JAX's":
        return tuple(map(jnp.asarray, called.arrays))
    if where == "on one device":
        return tuple(jax.device_put(array, jax.devices()[1]) for array in called.arrays)
    how, kind = where.split()
    mesh, specs = mesh_of(kind * 2, how == "turned"), called.others if how == "other" else called.lie
    placed = [jax.device_put(a, jax.NamedSharding(mesh, s)) for a, s in zip(called.arrays, specs, strict=True)]
    return tuple(jax.block_until_ready(placed))


def equal(found, wanted):
    found, wanted = jax.block_until_ready(jax.tree.leaves(found)), jax.tree.leaves(wanted)
    assert len(found) == len(wanted)
    for one, whole in zip(found, wanted, strict=True):
        whole = np.asarray(whole)
        assert one.shape == whole.shape
        for shard in one.addressable_shards:
            np.testing.assert_allclose(np.asarray(shard.data), whole[shard.index], rtol=1e-5, atol=1e-4)


def again(whole, array, *more):
    """A NumPy array where another array lies, which may lack dims in front."""
    if not isinstance(array, jax.Array):
        return whole
    if isinstance(array.sharding, jax.NamedSharding):
        return jax.device_put(whole, jax.NamedSharding(array.sharding.mesh, P(*more, *array.sharding.spec)))
    return jax.device_put(whole, array.sharding) if array.committed else jnp.asarray(whole)


def stacked(array):
    return again(np.stack([np.asarray(array), 2 * np.asarray(array)]), array, None)


def pair_of(called):
    one, two = called.meaning(*called.arrays), called.meaning(*(2 * array for array in called.arrays))
    return jax.tree.map(lambda *both: np.stack(both), one, two)


def shapes(arrays):
    def shape(array):
        lies = array.sharding if isinstance(array, jax.Array) and array.committed else None
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=lies)

    return [shape(array) for array in arrays]


def eager(called, function, arrays):
    equal(function(*arrays), called.meaning(*called.arrays))


def jit(called, function, arrays):
    equal(jax.jit(function)(*arrays), called.meaning(*called.arrays))


def between_others(called, function, arrays):
    def step(*arrays):
        return jax.tree.map(lambda y: 2 * y + 1, function(*(2 * x for x in arrays)))

    wanted = called.meaning(*(2 * array for array in called.arrays))
    equal(jax.jit(step)(*arrays), jax.tree.map(lambda y: 2 * y + 1, wanted))


def grad(called, function, arrays):
    equal(jax.grad(called.loss(function), argnums=tuple(range(len(arrays))))(*arrays), called.gradients)


def jit_grad(called, function, arrays):
    equal(jax.jit(jax.grad(called.loss(function), argnums=tuple(range(len(arrays)))))(*arrays), called.gradients)


def value_and_grad_of_the_first(called, function, arrays):
    """The others are there when it is traced."""
    value, change = jax.value_and_grad(lambda first: called.loss(function)(first, *arrays[1:]))(arrays[0])
    equal((value, change), (called.loss(called.meaning)(*called.arrays), called.gradients[0]))


def pulled_back(called, function, arrays):
    """Without a word of JAX's between: no sum, whose gradient asks for a mesh."""
    results, pull = jax.vjp(function, *arrays)
    equal(pull(results), called.gradients)


def vmap(called, function, arrays):
    equal(jax.vmap(function)(*map(stacked, arrays)), pair_of(called))


def jit_vmap(called, function, arrays):
    equal(jax.jit(jax.vmap(function))(*map(stacked, arrays)), pair_of(called))


def checkpoint(called, function, arrays):
    step = called.loss(jax.checkpoint(lambda *arrays: function(*arrays)))
    equal(jax.jit(jax.grad(step, argnums=tuple(range(len(arrays)))))(*arrays), called.gradients)


def scan(called, function, arrays):
    """Of arrays that are there, and within a jitted function of arrays that are traced."""

    def twice(*arrays):
        return jax.lax.scan(lambda turn, _: (turn + 1, function(*arrays)), 0, None, length=2)[1]

    wanted = jax.tree.map(lambda y: np.stack([y, y]), called.meaning(*called.arrays))
    for do in (twice, jax.jit(twice)):
        equal(do(*arrays), wanted)


def constants_under_jit(called, function, arrays):
    equal(jax.jit(lambda: function(*arrays))(), called.meaning(*called.arrays))


def donated(called, function, arrays):
    arrays = [again(np.asarray(array).copy(), array) for array in arrays]
    equal(jax.jit(function, donate_argnums=tuple(range(len(arrays))))(*arrays), called.meaning(*called.arrays))


def in_shardings(called, function, arrays):
    for kind in "EA":
        set_to = jax.sharding.get_abstract_mesh()
        mesh = mesh_of(kind * 2) if set_to.empty else jax.sharding.get_mesh()
        given = tuple(jax.NamedSharding(mesh, spec) for spec in called.lie)
        equal(jax.jit(function, in_shardings=given)(*arrays), called.meaning(*called.arrays))


def evaluated_shapes(called, function, arrays):
    found, wanted = jax.eval_shape(function, *arrays), called.meaning(*called.arrays)
    assert [each.shape for each in jax.tree.leaves(found)] == [each.shape for each in jax.tree.leaves(wanted)]


def lowered(called, function, arrays):
    """`program.lower` too, where it has one."""
    for whole in (jax.jit(lambda *arrays: function(*arrays)), function):
        if hasattr(whole, "lower"):
            equal(whole.lower(*shapes(arrays)).compile()(*arrays), called.meaning(*called.arrays))


def threads(called, function, arrays):
    set_to, found = None if jax.sharding.get_abstract_mesh().empty else jax.sharding.get_mesh(), []

    def one():
        try:
            with contextlib.nullcontext() if set_to is None else jax.set_mesh(set_to):
                found.append(jax.block_until_ready(function(*arrays)))
        except Exception as error:
            found.append(error)

    both = [threading.Thread(target=one) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    for result in found:
        if isinstance(result, Exception):
            raise result
        equal(result, called.meaning(*called.arrays))


HOW = [eager, jit, between_others, grad, jit_grad, value_and_grad_of_the_first, pulled_back, vmap, jit_vmap, checkpoint]
HOW += [scan, constants_under_jit, donated, in_shardings, evaluated_shapes, lowered, threads]


def outcome(how, called, function, arrays):
    try:
        how(called, function, arrays)
    except (AssertionError, ShardcError):
        raise
    except Exception as error:
        return error
    return None


def theirs(how, called, arrays):
    """What JAX itself says where a function does nothing but double its arrays."""
    doubled = Called(None, called.arrays, called.lie, called.others, lambda *arrays: tuple(x + x for x in arrays))
    try:
        return outcome(how, doubled, doubled.meaning, arrays)
    except AssertionError as error:  # JAX has some
        return error


UNKNOWN_DEVICES = ("Received incompatible devices", "Computation was compiled for input shardings that disagree")


def check(how, called, where, set_to):
    with contextlib.nullcontext() if not set_to else jax.set_mesh(mesh_of(set_to)):
        arrays, function = lying(called, where), called.make()
        known = bool(set_to) or called.has_mesh or where.split()[0] in ("planned", "other", "turned")
        has_to = known and (where in ("NumPy's", "planned E", "planned A") or (where == "JAX's" and "E" not in set_to))
        try:
            error = outcome(how, called, function, arrays)
        except ShardcError as refused:
            assert refused.code in ("SHC305", "SHC306") and refused.help, refused
            between = how is between_others and "E" in set_to  # doubled, NumPy's arrays are copies on every device
            assert not has_to or between or theirs(how, called, arrays) is not None, refused
            return
        if error is None:
            return
        is_of_devices = not has_to and str(error).startswith(UNKNOWN_DEVICES)
        if not is_of_devices and theirs(how, called, arrays) is None:
            raise error


@pytest.mark.parametrize("set_to", FORCED)
@pytest.mark.parametrize("how", HOW, ids=lambda how: how.__name__)
@pytest.mark.parametrize("name", CALLED)
def test_a_result_is_numpys_or_an_error_says_what_to_do(name, how, set_to):
    for where in LYING:
        if how is not in_shardings or where != "turned E":  # JAX 0.10 ends the process when it is called again so
            check(how, CALLED[name], where, set_to)


NESTED = "A[I, J_Y] · B[J_Y, K] → C[I_Y, K]"


@pytest.mark.parametrize("kinds", ["EE", "AA", "EA", "AE"])
@pytest.mark.parametrize("how", ["with the mesh set", "with the mesh given to shard_map"])
@pytest.mark.parametrize("name", ["plan", "einsum", "reshard"])
def test_inside_a_shard_map_over_another_axis(name, how, kinds):
    """In jax.jit, since JAX's eager shard_map types its arguments by no axis that is not manual."""
    mesh, given = mesh_of(kinds), None if how == "with the mesh set" else mesh_of(kinds)
    program = shardc.plan(NESTED, mesh={"Y": 2}, dims={"I": 4, "J": 8, "K": 8}, dtype="f32").compile()
    function = {
        "plan": program,
        "einsum": functools.partial(shardc.einsum, NESTED),
        "reshard": lambda x, w: shardc.reshard(x @ w, P("Y")),
    }[name]
    left, right = A[:16], numbers(8, 8)
    lies = P("X", None if name == "reshard" else "Y"), P(None if name == "reshard" else "Y")
    arrays = [jax.device_put(a, jax.NamedSharding(mesh, spec)) for a, spec in zip((left, right), lies, strict=True)]
    with jax.set_mesh(mesh) if given is None else contextlib.nullcontext():
        inside = jax.shard_map(function, mesh=given, in_specs=(P("X"), P()), out_specs=P("X"), axis_names={"X"})
        equal(jax.jit(inside)(*arrays), left @ right)
        change = jax.jit(jax.grad(lambda x, w: jnp.sum(inside(x, w)), argnums=1))(*arrays)
        equal(change, left.T @ np.ones_like(left @ right))


def test_a_compiled_plan_is_sent_elsewhere_as_its_plan_is():
    """Without what was compiled, and without devices that may not be there."""
    program = planned(PRODUCT, dims="I=16,J=8,K=24").compile()
    program(A, B)
    for found in (pickle.loads(pickle.dumps(program)), copy.deepcopy(program)):
        equal(found(A, B), A @ B)
        equal(jax.jit(found)(A, B), A @ B)


def test_the_mesh_of_the_arrays_has_the_kinds_of_its_axes_in_the_result():
    for kind in "EA":
        mesh = mesh_of(kind * 2, turned=True)
        x, w = lying(CALLED["plan"], f"turned {kind}")
        for call in (CALLED["plan"].make(), CALLED["einsum"].make()):
            assert call(x, w).sharding == jax.NamedSharding(mesh, XY)


def test_devices_that_are_named_hold_against_those_of_the_arrays():
    program = planned(PRODUCT, dims="I=16,J=8,K=24").compile(mesh_of("EE"))
    turned = lying(CALLED["plan"], "turned E")
    with pytest.raises(ShardcError, match=r"SHC306.*the devices 7, 6"):
        program(*turned)


WRONG = {
    "too few arrays": ((A,), "SHC309"),
    "too many": ((A, B, B), "SHC309"),
    "another shape": ((A, B[:, :16]), "SHC303"),
    "another rank": ((A, B[0]), "SHC303"),
    "another type": ((A, B.astype(np.int32)), "SHC304"),
    "no numbers": ((A, np.full((8, 24), "x")), "SHC001"),
    "axes of other names": ((A, "P", "XQ", (4, 2)), "SHC306"),
    "axes of other sizes": ((A, "P", "XY", (2, 4)), "SHC306"),
    "fewer axes": ((A, "P", "X", (8,)), "SHC306"),
    "arrays of two meshes": ((A, "two", "XY", (2, 4)), "SHC306"),
}
CALLS = {
    "eager": lambda program, arrays: program(*arrays),
    "jit": lambda program, arrays: jax.jit(program)(*arrays),
    "jit of constants": lambda program, arrays: jax.jit(lambda: program(*arrays))(),
    "grad": lambda program, arrays: jax.grad(lambda *a: jnp.sum(program(*a)))(*arrays),
    "lower of arrays": lambda program, arrays: program.lower(*arrays),
    "lower of shapes": lambda program, arrays: program.lower(*shapes(arrays)),
}


@pytest.mark.instant
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("set_to", ["", "EE", "AA"])
def test_what_does_not_fit_is_told_with_a_remedy(wrong, call, set_to):
    arrays, code = WRONG[wrong]
    if len(arrays) > 3:
        first, how, names, sizes = arrays
        mesh = jax.make_mesh(sizes, tuple(names))
        placed = jax.device_put(B, jax.NamedSharding(mesh, P(names[0])))
        there = mesh if how == "P" else mesh_of("EE")
        arrays = jax.device_put(first, jax.NamedSharding(there, P("X"))), placed
        if set_to and call != "eager" and "lower" not in call:
            return  # the arrays of a jitted call lie on the mesh that is set, or JAX refuses them
    if wrong == "no numbers" and call in ("jit", "grad", "lower of shapes"):
        return  # JAX takes none
    program = CALLED["plan"].make()
    with jax.set_mesh(mesh_of(set_to)) if set_to else contextlib.nullcontext(), pytest.raises(ShardcError) as caught:
        CALLS[call](program, arrays)
    told = caught.value
    assert told.code == code or (told.code == "SHC305" and code == "SHC306"), told
    assert told.help
