"""Bugs planted in the emitter's description of a step: values, shapes, bytes or JAX's types are seen to refuse them."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import shardc
from shardc import simulate
from shardc.compiled.hlo.stablehlo import collectives
from shardc.emit.call import callable as emitter
from shardc.emit.call.placing import from_blocks, make_mesh, spec_of
from shardc.emit.exprs import Attr, BinOp, Call, Const, Index, Items, Keyword, Loop, Name
from shardc.emit.steps import moves as emitted_moves
from shardc.emit.steps.moves import slice_of
from shardc.machines.run import report_of

pytestmark = pytest.mark.devices

MESH = {"X": 2, "Y": 4}
SIZES = {"I": 16, "J": 16, "K": 16, "L": 512}  # square, so that a shape alone does not tell


def arguments(plan, wholes, devices):
    placed = []
    for whole, number in zip(wholes, plan.schedule.inputs, strict=True):
        array = plan.schedule.given(number)
        blocks = simulate.scatter(whole, array, plan.schedule.given_mesh).astype(array.dtype.jax)
        flat = blocks.reshape(-1, *blocks.shape[len(plan.mesh) :])
        placed.append(from_blocks(list(flat), array, devices, jax.NamedSharding(devices, spec_of(array.sharding))))
    return placed


def refused_by(text, dtype="int32", mesh=MESH):
    """What sees that a program is wrong: JAX's types, the shapes, the values, the bytes; None if nothing does."""
    plan = shardc.plan(text, mesh=mesh, dims=SIZES, dtype=dtype, objective="bytes")
    wholes = simulate.sample_inputs(plan.program, seed=1)
    devices = make_mesh(plan.schedule.given_mesh)
    program, placed = plan.compile(devices), arguments(plan, wholes, devices)
    try:
        result = program(*placed)
    except (TypeError, ValueError):
        return "types"
    if result.shape != plan.schedule.values[plan.schedule.outputs[0]].shape:
        return "shapes"
    if not report_of(plan.schedule, wholes, [result]).ok:
        return "values"
    lowered = sum(c.total_bytes for c in collectives(program.lower(*placed).as_text()))
    return None if lowered == plan.cost.wire_bytes else "bytes"


def named(called, function):
    """Whether a call is of that function, or of that `.method`."""
    return called == Name(function) or (isinstance(called, Attr) and f".{called.name}" == function)


def rewrite(patch, function, change):
    """Every call of that function in the description becomes what `change` makes of its arguments and keywords."""
    right = emitter.body

    def changed(line):
        if isinstance(line, Loop):
            return replace(line, lines=tuple(map(changed, line.lines)))
        if not isinstance(line.expr, Call) or not named(line.expr.function, function):
            return line
        plain = [arg for arg in line.expr.args if not isinstance(arg, Keyword)]
        keywords = {arg.name: arg.value for arg in line.expr.args if isinstance(arg, Keyword)}
        return replace(line, expr=change(line.expr.function, plain, keywords))

    def body(schedule):
        found = right(schedule)
        return replace(found, code=tuple(map(changed, found.code)))

    patch.setattr(emitter, "body", body)


def made(function, plain, keywords):
    return Call(function, (*plain, *(Keyword(name, value) for name, value in keywords.items())))


def left_out(function, plain, keywords):
    return plain[0]


def without(name):
    return lambda function, plain, keywords: made(function, plain, {k: v for k, v in keywords.items() if k != name})


def onto_dim_1(function, plain, keywords):
    return made(function, plain, keywords | {"scatter_dimension": Const(1)})


def axes_reversed(function, plain, keywords):
    return made(function, [plain[0], Items(plain[1].items[::-1])], keywords)


def first_axis_only(function, plain, keywords):
    return made(function, [plain[0], plain[1].items[0]], keywords)


def pairs_transposed(function, plain, keywords):
    pairs = tuple(Items(pair.items[::-1]) for pair in keywords["perm"].items)
    return made(function, plain, {"perm": Items(pairs, "[]")})


def split_and_concat_swapped(function, plain, keywords):
    swapped = {"split_axis": keywords["concat_axis"], "concat_axis": keywords["split_axis"]}
    return made(function, plain, keywords | swapped)


def operands_swapped(function, plain, keywords):
    return made(function, [plain[0], plain[2], plain[1]], keywords)


def summed_everywhere_then_sliced(function, plain, keywords):
    """Right, but twice the bytes."""
    everywhere = made(Name("jax.lax.psum"), plain, {})
    return slice_of(everywhere, (plain[1].value,), keywords["scatter_dimension"].value, MESH[plain[1].value])


def at_the_start(function, plain, keywords):
    """The last argument says where."""
    return made(function, [*plain[:-1], Const(0)], keywords)


def from_the_start(function, plain, keywords):
    return made(function, [plain[0], Const(0), *plain[2:]], keywords)


def digits_swapped(function, plain, keywords):
    """Rows are dealt out to the digits like cards."""
    if len(plain) != 2:
        return made(function, plain, keywords)
    turned = Call(Attr(function.value, "transpose"), (Const(1), Const(0), Const(2)))
    return Call(Attr(turned, "reshape"), (BinOp(Const(2), "*", Index(Attr(function.value, "shape"), 1)), plain[1]))


def stale(function, plain, keywords):
    return made(function, [*plain[:2], Const(4)], keywords)


REDUCED = "A[I, J_X] · B[J_X, K] → C[I, K]"
SCATTERED = "A[I, J_X] · B[J_X, K] → C[I_X, K]"
GATHERED = "A[I_XY, J] → A[I, J]"
SPREAD = "A[I_X, J_Y] → A[I, J]"
IN_ROUNDS = "A[I_X, J_Y] → A[I_YX, J]"
EXCHANGED = "A[I_X, J] → A[I, J_X]"
PERMUTED = "A[I_XY, J] → A[I_YX, J]"
INT8 = "C: int32[I, K] = A: int8[I, L] · B: int8[L, K]"
BUGS = {
    "a sum left out": (REDUCED, "jax.lax.psum", left_out, "types"),
    "a sum over one axis of two": ("A[I, J]{U_XY} → A[I, J]", "jax.lax.psum", first_axis_only, "types"),
    "a scatter on the wrong dim": (SCATTERED, "jax.lax.psum_scatter", onto_dim_1, "shapes"),
    "a scatter that is not tiled": (SCATTERED, "jax.lax.psum_scatter", without("tiled"), "types"),
    "a scatter dearer than it need be": (SCATTERED, "jax.lax.psum_scatter", summed_everywhere_then_sliced, "bytes"),
    "a gather in the other order": (GATHERED, "jax.lax.all_gather", axes_reversed, "values"),
    "a gather that is not tiled": (GATHERED, "jax.lax.all_gather", without("tiled"), "shapes"),
    "a gather typed as varying": (GATHERED, "jax.lax.all_gather", without("to"), "types"),
    "an exchange swapped": (EXCHANGED, "jax.lax.all_to_all", split_and_concat_swapped, "shapes"),
    "an exchange that is not tiled": (EXCHANGED, "jax.lax.all_to_all", without("tiled"), "types"),
    "a permute backwards": (PERMUTED, "jax.lax.ppermute", pairs_transposed, "values"),
    "a permute left out": (PERMUTED, "jax.lax.ppermute", left_out, "values"),
    "pieces not sent": (IN_ROUNDS, "jax.lax.ppermute", left_out, "values"),
    "the first piece sent in each turn": (IN_ROUNDS, "jax.lax.dynamic_slice_in_dim", from_the_start, "values"),
    "pieces put one on the other": (IN_ROUNDS, "jax.lax.dynamic_update_slice_in_dim", at_the_start, "values"),
    "pieces of a gather put one on the other": (SPREAD, "jax.lax.dynamic_update_slice_in_dim", at_the_start, "values"),
    "pieces sent where they were": ("A[I_YX, J] → A[I, J_XY]", "jax.lax.all_to_all", left_out, "values"),
    "blocks not sent": ("A[I_XY, J] → A[I, J_X]", "jax.lax.all_to_all", left_out, "values"),
    "digits in the other order": ("A[I_XY, J] → A[I, J_X]", ".reshape", digits_swapped, "values"),
    "operands swapped": ("A[I, J] · B[J, K_X] → C[I, K_X]", "jnp.einsum", operands_swapped, "types"),
    "square operands swapped": ("A[I, J] · B[J, K] → C[I, K]", "jnp.einsum", operands_swapped, "values"),
    "the type of a sum left out": (INT8, "jnp.einsum", without("preferred_element_type"), "values"),
    "a stale size": ("A[I, J] → A[I_X, J]", "jax.lax.dynamic_slice_in_dim", stale, "shapes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_refused(name, monkeypatch):
    text, function, change, seen = BUGS[name]
    assert refused_by(text) is None
    rewrite(monkeypatch, function, change)
    assert refused_by(text) == seen


def test_swapped_specs_are_refused(monkeypatch):
    text = "A[I_X, J] · B[J, K_Y] → C[I_X, K_Y]"
    assert refused_by(text) is None
    right = emitter.in_specs
    monkeypatch.setattr(emitter, "in_specs", lambda schedule: Items(right(schedule).items[::-1]))
    assert refused_by(text) is not None


def test_the_outputs_keep_their_order():
    plan = shardc.plan("B[I_X, J] = A[I, J]; C[I, J_Y] = -A", mesh=MESH, dims=SIZES, dtype="int32")
    devices = make_mesh(plan.schedule.given_mesh)
    wholes = simulate.sample_inputs(plan.program)
    results = plan.compile(devices)(*arguments(plan, wholes, devices))
    assert report_of(plan.schedule, wholes, results).ok
    assert [result.sharding.spec for result in results] == [jax.P("X", None), jax.P(None, "Y")]


@pytest.mark.parametrize("dtype", ["bf16", "int32"])
def test_a_result_has_the_type_of_the_plan(dtype):
    plan = shardc.plan("A[I, J_X] · B[J_X, K] → C[I, K]", mesh=MESH, dims=SIZES, dtype=dtype)
    devices = make_mesh(plan.schedule.given_mesh)
    result = plan.compile(devices)(*arguments(plan, simulate.sample_inputs(plan.program), devices))
    assert result.dtype.name == plan.schedule.values[plan.schedule.outputs[0]].dtype.jax


def test_a_permute_of_many_devices_is_that_of_few(monkeypatch):
    """Above eight devices the pairs are written as a formula; here already at eight."""
    monkeypatch.setattr(emitted_moves, "_FEW", 0)
    assert refused_by(PERMUTED) is None
    assert refused_by("A[I_X, J_Y] → A[I_Y, J_X]") is None
    # Three axes, since turning them round is not its own inverse.
    assert refused_by("A[I_XYZ, J] → A[I_ZXY, J]", mesh={"X": 2, "Y": 2, "Z": 2}) is None


def test_where_types_are_not_checked_the_values_still_tell(monkeypatch):
    """`check_vma=False` lets a dropped sum through to the comparison with NumPy."""
    right = jax.shard_map
    monkeypatch.setattr(jax, "shard_map", lambda *args, **keywords: right(*args, **keywords, check_vma=False))
    assert refused_by(REDUCED) is None
    rewrite(monkeypatch, "jax.lax.psum", left_out)
    assert refused_by(REDUCED) == "values"


def test_types_are_checked_of_partial_sums_that_arrive(monkeypatch):
    text = "A[I, J]{U_X} → A[I, J]"
    assert refused_by(text) is None
    rewrite(monkeypatch, "jax.lax.psum", left_out)
    rewrite(monkeypatch, "jax.lax.psum_scatter", left_out)
    assert refused_by(text) in ("types", "shapes")


def test_types_are_checked():
    """Of the callable and of the emitted text, which says nothing of it: it is JAX's default."""
    plan = shardc.plan(REDUCED, mesh=MESH, dims=SIZES, dtype="int32")
    devices = make_mesh(plan.schedule.given_mesh)
    placed = arguments(plan, simulate.sample_inputs(plan.program), devices)
    with jax.set_mesh(devices):
        traced = jax.make_jaxpr(emitter.function(plan.schedule))(*placed)
    assert "check_vma=True" in str(traced)
    assert "check_vma" not in plan.source()


@pytest.mark.instant
@pytest.mark.parametrize("device", range(8))
def test_one_wrong_shard_is_seen(device):
    """Every device's copy is compared, not only the first."""
    plan = shardc.plan("A[I_X, J] → A[I_X, J]", mesh=MESH, dims=SIZES, dtype="int32")
    (whole,) = wholes = simulate.sample_inputs(plan.program)
    devices, array = make_mesh(plan.schedule.given_mesh), plan.schedule.values[0]
    blocks = simulate.expected_blocks(whole, array, plan.schedule.mesh).astype(np.int32).reshape(8, 8, 16).copy()
    sharding = jax.NamedSharding(devices, spec_of(array.sharding))
    assert report_of(plan.schedule, wholes, [from_blocks(list(blocks), array, devices, sharding)]).ok
    blocks[device, 3, 5] += 1
    assert not report_of(plan.schedule, wholes, [from_blocks(list(blocks), array, devices, sharding)]).ok


def test_a_reshard_is_remembered_by_type_as_well():
    whole = np.arange(256).reshape(16, 16)
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"))):
        for dtype in (np.float32, np.int32, np.float32):
            moved = shardc.reshard(jax.device_put(whole.astype(dtype), jax.P("X", None)), jax.P(None, "Y"))
            assert moved.dtype == dtype
            np.testing.assert_array_equal(moved, whole)


def test_an_einsum_is_remembered_by_mesh_as_well():
    a, b = np.arange(256, dtype=np.int32).reshape(16, 16), np.arange(256, dtype=np.int32)[::-1].reshape(16, 16)
    for sizes in ((2, 4), (4, 2)):
        with jax.set_mesh(jax.make_mesh(sizes, ("X", "Y"))):
            np.testing.assert_array_equal(shardc.einsum(SCATTERED, a, b), a @ b)
