"""What is moved along an axis though every device there holds it: found where it is so, and nowhere else."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P, lax

from shardc.compiled.explain.explain import explanation_of
from shardc.compiled.explain.findings import HELD
from shardc.cost import CHIPS, LinkModel
from shardc.machines.jitted import lower, mesh_of

pytestmark = pytest.mark.devices

MESH = {"X": 2, "Y": 4}
AXES = (("X",), ("Y",), ("X", "Y"))
SIZE = 8


def mesh():
    return jax.make_mesh(tuple(MESH.values()), tuple(MESH), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def given(spec):
    values = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    return jax.device_put(values, jax.NamedSharding(mesh(), spec))


def mapped(function, arrays, out):
    specs = tuple(array.sharding.spec for array in arrays)
    return jax.jit(jax.shard_map(function, mesh=mesh(), in_specs=specs, out_specs=out, check_vma=False))


REPLICATED = P()


def found(function, *arrays, out=REPLICATED):
    explained = explanation_of(
        lower(mapped(function, arrays, out), arrays), LinkModel.of(mesh_of(arrays), CHIPS["v5p"])
    )
    return explained, [finding for finding in explained.findings if finding.kind == HELD]


# --- a law: it is found exactly where the devices' values are equal


def some_axes(draw):
    return draw.choice(AXES)


def from_group(value, axes):
    return lax.all_gather(value, axes).max(0)


def carried(value, other, axes):
    def trip(_, pair):
        return lax.psum(pair[0], axes) + pair[1], jnp.tanh(pair[1])

    return lax.fori_loop(0, 3, trip, (value, other))[0]


def chosen(value, other, axis):
    return lax.cond(lax.axis_index(axis) > 0, lambda pair: pair[0], lambda pair: pair[1] * 2, (value, other))


def kept(value, axes):
    """A part, repeated until it is as large as before; no two parts of that are equal."""
    return jnp.tile(lax.psum_scatter(value, axes, tiled=True), (lax.axis_size(axes), 1)) + jnp.arange(SIZE)[:, None]


def turned(value, axis):
    count = MESH[axis]
    return lax.ppermute(value, axis, [(place, (place + 1) % count) for place in range(count)])


def placed(value, axis):
    return value * (1.0 + lax.axis_index(axis))


OPERATIONS = (
    lambda draw, values: jnp.tanh(draw.choice(values)),
    lambda draw, values: draw.choice(values) + draw.choice(values),
    lambda draw, values: lax.psum(draw.choice(values), some_axes(draw)),
    lambda draw, values: from_group(draw.choice(values), some_axes(draw)),
    lambda draw, values: carried(draw.choice(values), draw.choice(values), some_axes(draw)),
    lambda draw, values: chosen(draw.choice(values), draw.choice(values), draw.choice("XY")),
    lambda draw, values: kept(draw.choice(values), some_axes(draw)),
    lambda draw, values: turned(draw.choice(values), draw.choice("XY")),
    lambda draw, values: placed(draw.choice(values), draw.choice("XY")),
)


def exchanged(draw, values):
    """Done twice it undoes itself, which is not seen."""
    return lax.all_to_all(draw.choice(values), some_axes(draw), 0, 0, tiled=True)


def drawn(seed, operations):
    """A function of blocks that are of one size, and where they lie."""
    draw = random.Random(seed)
    specs = [draw.choice([P(), P("X"), P(None, "Y"), P("X", "Y"), P(("X", "Y"))]) for _ in range(2)]
    state, steps = draw.getstate(), draw.randint(1, 4)

    def function(*arrays):
        again = random.Random()
        again.setstate(state)
        values = [array[:SIZE, :SIZE] for array in arrays]
        for _ in range(steps):
            values.append(again.choice(operations)(again, values))
        return values[-1]

    return function, [given(spec) for spec in specs]


def equal_along(values, axis):
    """`values` of every device, along which axis they are the same."""
    grid = np.asarray(values).reshape(*MESH.values(), SIZE, SIZE)
    return bool((grid == grid.take([0], axis=list(MESH).index(axis))).all())


def needless_and_equal(seed, operations):
    """Of a sum over all axes, those over which it is found needless, and those along which its operand is equal."""
    function, arrays = drawn(seed, operations)
    values = mapped(lambda *given: function(*given)[None], arrays, P(("X", "Y")))(*arrays)

    def summed(*given):
        value = function(*given)
        with jax.named_scope("last"):
            return lax.psum(value, ("X", "Y"))

    explained, needless = found(summed, *arrays)
    (last,) = [row.name for row in explained.collectives if row.scope.endswith("last/psum")]
    told = [finding.what for finding in needless if last in finding.collectives]
    over = {axis for axis in MESH if told and axis in told[0].partition(" along ")[2].partition(" ")[0]}
    return over, {axis for axis in MESH if equal_along(values, axis)}


@pytest.mark.parametrize("seed", range(40))
def test_a_sum_is_found_needless_exactly_where_the_values_are_equal(seed):
    over, equal = needless_and_equal(seed, OPERATIONS)
    assert over == equal


def rotated(value):
    count = MESH["X"] * MESH["Y"]
    return lax.ppermute(value, ("X", "Y"), [(place, (place + 3) % count) for place in range(count)])


def spread(value):
    return lax.all_to_all(value, ("X", "Y"), 0, 0, tiled=True)


def sent_to_one(value):
    """All others have zeros."""
    return lax.ppermute(value, "Y", [(1, 0)])


SENT = {"ppermute": rotated, "all_to_all": spread, "to one": sent_to_one}


@pytest.mark.parametrize("name", SENT)
@pytest.mark.parametrize("seed", range(16))
def test_what_is_sent_is_found_needless_where_the_values_are_equal(seed, name):
    """Along all of its axes, and all devices get something."""
    function, arrays = drawn(seed, OPERATIONS)
    values = mapped(lambda *given: function(*given)[None], arrays, P(("X", "Y")))(*arrays)

    def last(*given):
        value = function(*given)
        with jax.named_scope("last"):
            return SENT[name](value)

    explained, needless = found(last, *arrays, out=P(("X", "Y")))
    sent = [row.name for row in explained.collectives if "last/" in row.scope]
    told = [finding for finding in needless if set(sent) & {*finding.collectives}]
    is_equal = all(equal_along(values, axis) for axis in MESH)
    assert bool(told) == (is_equal and name != "to one" and bool(sent))
    assert all(finding.better_bytes == 0 for finding in told)


@pytest.mark.parametrize("seed", range(20))
def test_a_sum_is_found_needless_only_where_the_values_are_equal(seed):
    over, equal = needless_and_equal(seed, (*OPERATIONS, exchanged))
    assert over <= equal


# --- what is said


def halves(value):
    return lax.psum(value, "X") / 2


TOLD = {  # a function of a block, what it should have been, where its result lies, and words of the remedy
    "a gradient summed twice": (
        lambda x: lax.psum(halves(x), "X"),
        lambda x: 2 * halves(x),
        P(None, "Y"),
        ("multiplies it by 2", "leave out the sum over X", "2 * the array"),
    ),
    "a mean of a mean": (
        lambda x: lax.pmean(lax.pmean(x, "X"), "X"),
        lambda x: lax.pmean(x, "X"),
        P(None, "Y"),
        ("leave out the sum over X",),
    ),
    "a maximum of a maximum": (
        lambda x: lax.pmax(lax.pmax(x, "X"), "X"),
        lambda x: lax.pmax(x, "X"),
        P(None, "Y"),
        ("which is the result", "leave out the reduction over X"),
    ),
    "a sum over one axis too many": (
        lambda x: lax.psum(halves(x), ("X", "Y")),
        lambda x: 2 * lax.psum(halves(x), "Y"),
        P(),
        ("multiplies it by 2", "leave out the sum over X"),
    ),
    "what is gathered again": (
        lambda x: lax.all_gather(lax.all_gather(x, "Y", tiled=True), "Y", tiled=True),
        lambda x: jnp.tile(lax.all_gather(x, "Y", tiled=True), (4, 1)),
        P("X"),
        ("4 copies", "jnp.tile"),
    ),
    "a sum that is sent on": (
        lambda x: turned(lax.psum(x, "Y"), "Y"),
        lambda x: lax.psum(x, "Y"),
        P("X"),
        ("is sent the same", "leave out the permute"),
    ),
    "parts of a sum, sent to those that have them": (
        lambda x: lax.all_to_all(lax.psum(x, "X"), "X", 0, 0, tiled=True),
        lambda x: jnp.tile(lax.dynamic_slice_in_dim(lax.psum(x, "X"), lax.axis_index("X") * 16, 16), (2, 1)),
        P("X", "Y"),
        ("2 times its own part", "slice its part"),
    ),
    "a sum of it scattered": (
        lambda x: lax.psum_scatter(halves(x), "X", tiled=True),
        lambda x: 2 * lax.dynamic_slice_in_dim(halves(x), lax.axis_index("X") * 16, 16),
        P("X", "Y"),
        ("each keeps a part", "slice"),
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_remedy_gives_the_same_and_moves_what_is_promised(name):
    wasteful, better, out, words = TOLD[name]
    array = given(P("X", "Y"))
    explained, (finding,) = found(wasteful, array, out=out)
    assert all(word in finding.what + finding.remedy for word in words), (finding.what, finding.remedy)
    mended, left = found(better, array, out=out)
    assert left == []
    assert mended.wire_bytes == explained.wire_bytes - finding.saved_bytes
    results = [np.asarray(mapped(one, [array], out)(array)) for one in (wasteful, better)]
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_what_a_loop_sums_anew_in_each_trip_is_counted_as_often():
    def function(x):
        return lax.fori_loop(0, 5, lambda _, sums: lax.psum(sums * sums, "Y"), lax.psum(x, "Y"))

    _, (finding,) = found(function, given(P("X", "Y")), out=P("X"))
    assert finding.count == 5 and finding.better_bytes == 0
