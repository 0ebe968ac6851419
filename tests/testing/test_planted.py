"""Wrong rewrites, planted: each checker finds each, on at most 2×2 devices and four elements a dim, and says where."""

from __future__ import annotations

import copy
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter, Slice
from shardc.testing import Moves, assert_equivalent, assert_matches_reference, assert_rewrite, conditions
from shardc.testing.rewrites import axes_in

P = jax.P
X, Y, XY, YX = ("X",), ("Y",), ("X", "Y"), ("Y", "X")
VALUES = r"(device \(.*\) at \([\d, ]*\) of .*: .*-?\d+ before, -?\d+ after|the results differ: .* before, .* after)"


def failure(check, *given, **options):
    """What is said of a difference, which is small."""
    with pytest.raises(AssertionError) as caught:
        check(*given, **options)
    said = str(caught.value)
    mesh = re.match(r"(?:on mesh ([^;:]*); |with |on one device; )([^:]*):", said)
    assert mesh, said
    assert all(int(size) <= 2 for size in re.findall(r"=(\d+)", mesh[1] or "")), said
    assert all(int(size) <= 4 for size in re.findall(r"=(\d+)", mesh[2])), said
    return said


# --- assert_rewrite: text beside text

GATHERED = "B[I, J] = AllGather_X(A[I_X, J]); C[I, J_X] = Slice_X(B[I, J])"
TEXTS = {  # right, wrong
    "the order of axes": ("B[I_YX] = A[I_XY]", "B[I_XY] = A[I_XY]"),
    "the dim of a slice": (GATHERED, "B[I, J] = AllGather_X(A[I_X, J]); C[I_X, J] = Slice_X(B[I, J])"),
    "a sum doubled": ("B[I] = AllReduce_X(A[I]{U_X})", "B[I] = AllReduce_X(A[I]{U_X}); C[I] = B + B"),
    "a sum left out": ("B[I] = AllReduce_X(A[I]{U_X})", "B[I]{U_X} = A[I]{U_X}"),
    "a sum over one axis too few": ("B[I] = AllReduce_XY(A[I]{U_XY})", "B[I]{U_Y} = AllReduce_X(A[I]{U_XY})"),
    "a slice along another axis": ("C[I_X] = Slice_X(A[I])", "C[I_Y] = Slice_Y(A[I])"),
    "a scatter along another dim": (
        "B[I, J] = AllReduce_X(A[I, J]{U_X}); C[I_X, J] = Slice_X(B[I, J])",
        "C[I, J_X] = ReduceScatter_{X,J}(A[I, J]{U_X})",
    ),
    "a scale dropped": ("B[I_X] = A[I_X] * 8", "B[I_X] = A[I_X]"),
    "a mean for a sum": ("B[I_X] = sum_J(A[I_X, J])", "B[I_X] = mean_J(A[I_X, J])"),
    "a maximum for a sum": ("B[I_X] = sum_J(A[I_X, J])", "B[I_X] = max_J(A[I_X, J])"),
    "the other operand first": ("C[I_X] = A[I_X] - B[I_X]", "C[I_X] = B[I_X] - A[I_X]"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_between_texts(name):
    before, after = TEXTS[name]
    said = failure(assert_rewrite, before, after)
    assert f"  before: {before}\n  after:  {after}" in said
    assert conditions(before, after, max_size=2) != "always"
    assert_rewrite(before, before)


# --- Moves beside Moves

MOVES = {  # the array, right moves, wrong ones
    "the order of axes": ("A[I_XY]", [AllGather(XY, 0)], [AllGather(X, 0), AllGather(Y, 0)]),
    "the order of axes that are scattered": ("A[I]{U_XY}", [ReduceScatter(XY, 0)], [ReduceScatter(YX, 0)]),
    "the dim of a slice": ("A[I_X, J]", [AllToAll(X, 0, 1)], [AllGather(X, 0), Slice(X, 0)]),
    "the dims of an exchange": ("A[I_X, J]", [AllToAll(X, 0, 1)], [AllToAll(X, 1, 0)]),
    "a sum left out": ("A[I]{U_X}", [AllReduce(X)], []),
    "a sum doubled": ("A[I]{U_X}", [AllReduce(X)], [AllReduce(X), AllReduce(X)]),
    "a sum over one axis too few": ("A[I]{U_XY}", [AllReduce(XY)], [AllReduce(X)]),
    "a scatter along another dim": ("A[I, J]{U_X}", [AllReduce(X), Slice(X, 0)], [ReduceScatter(X, 1)]),
    "a slice along another axis": ("A[I]", [Slice(X, 0)], [Slice(Y, 0)]),
    "a permute left out": ("A[I_XY]", [CollectivePermute(XY, (YX,))], []),
    "a gather left out": ("A[I_X]", [AllGather(X, 0)], []),
    "a dim that is not there": ("A[I_X]", [AllGather(X, 0)], [AllGather(X, 1)]),
}


@pytest.mark.parametrize("name", MOVES)
def test_between_moves(name):
    array, right, wrong = MOVES[name]
    said = failure_of_moves(Moves(array, *right), Moves(array, *wrong))
    assert f"\n  after:  {Moves(array, *wrong)}" in said
    assert_rewrite(Moves(array, *right), Moves(array, *right))


def failure_of_moves(before, after):
    """Of an illegal move no sizes are known."""
    with pytest.raises(AssertionError) as caught:
        assert_rewrite(before, after)
    said = str(caught.value)
    if re.match(r"on mesh X=1(, Y=1)?: \w+\(.*\) of A\[.*\]", said):
        return said
    assert re.search(VALUES, said), said
    return failure(assert_rewrite, before, after)


# --- a function beside a text


def mapped(body, ins, outs):
    """Made for the mesh in force; what a body says of copies is not checked, as it is wrong."""
    return jax.jit(lambda *arrays: jax.shard_map(body, in_specs=ins, out_specs=outs, check_vma=False)(*arrays))


def size(axis):
    return jax.lax.axis_size(axis)


def turned(by):
    return lambda a: jax.lax.ppermute(a, "X", [(n, (n + by) % size("X")) for n in range(size("X"))])


def block(at):
    """Device `at(place, count)`'s part of what all have, of the first dim."""

    def taken(a):
        rows = a.shape[0] // size("X")
        return jax.lax.dynamic_slice_in_dim(a, at(jax.lax.axis_index("X"), size("X")) * rows, rows)

    return taken


def gathered(axes):
    return lambda a: jax.lax.all_gather(a, axes, tiled=True)


def summed(axes, times=1):
    return lambda a: times * jax.lax.psum(a, axes)


ROWS, PARTIAL = P("X"), P(unreduced={"X"})
FUNCTIONS = {  # the text, in_specs, out_specs, right, wrong
    "the order of axes": ("B[I] = AllGather_XY(A[I_XY])", P(XY), P(), gathered(XY), gathered(YX)),
    "one axis too few": ("B[I] = AllReduce_XY(A[I]{U_XY})", P(unreduced={*XY}), P(), summed(XY), summed("X")),
    "a sum doubled": ("B[I] = AllReduce_X(A[I]{U_X})", PARTIAL, P(), summed("X"), summed("X", 2)),
    "a sum left out": ("B[I] = AllReduce_X(A[I]{U_X})", PARTIAL, P(), summed("X"), lambda a: a),
    "a slice of the wrong device": (
        "B[I_X] = Slice_X(A[I])", P(), ROWS, block(lambda n, _: n), block(lambda n, of: (n + 1) % of),
    ),
    "a slice of the first device": (
        "B[I_X] = Slice_X(A[I])", P(), ROWS, block(lambda n, _: n), block(lambda n, _: 0 * n),
    ),
    "a scale dropped": ("B[I_X] = A[I_X] * 8", ROWS, ROWS, lambda a: a * 8, lambda a: a),
    "off by one device": ("B[I_X] = A[I_X]", ROWS, ROWS, turned(0), turned(1)),
    "a cast dropped": ("B[I_X] = A[I_X]", ROWS, ROWS, lambda a: a, lambda a: a.astype(jnp.float32)),
    "a maximum for a sum": (
        "B[I] = AllReduce_X(A[I]{U_X})", PARTIAL, P(), summed("X"), lambda a: jax.lax.pmax(a, "X"),
    ),
    "an exchange in another order": (
        "C[I, J_X] = AllToAll_X(A[I_X, J])", ROWS, P(None, "X"),
        lambda a: jax.lax.all_to_all(a, "X", 1, 0, tiled=True),
        lambda a: jax.lax.all_to_all(turned(1)(a), "X", 1, 0, tiled=True),
    ),
    "left lying otherwise": ("B[I] = AllGather_X(A[I_X])", ROWS, ROWS, None, lambda a: a),
}  # fmt: skip


@pytest.mark.devices
@pytest.mark.parametrize("name", FUNCTIONS)
def test_between_a_function_and_a_text(name):
    text, ins, outs, right, wrong = FUNCTIONS[name]
    said = failure(assert_rewrite, text, mapped(wrong, ins, outs), max_size=2)
    assert re.search(VALUES, said), said
    if right is not None:
        assert_rewrite(text, mapped(right, ins, outs), max_size=2)
        both = (mapped(right, ins, outs), mapped(wrong, ins, outs))
        failure(assert_rewrite, *both, inputs=given_in(text), mesh=axes_in([text]), max_size=2)


def given_in(text):
    """The first input of a text."""
    return re.findall(r"A\[[^\]]*\](?:\{[^}]*\})?", text)[-1]


@pytest.mark.devices
def test_an_exchange_with_swapped_dims_is_refused_by_jax_and_noted():
    swapped = mapped(lambda a: jax.lax.all_to_all(a, "X", 0, 1, tiled=True), ROWS, P(None, "X"))
    with pytest.raises(ValueError, match="all_to_all") as caught:
        assert_rewrite(swapped, "C[I, J_X] = AllToAll_X(A[I_X, J])")
    assert "on mesh X=2; I=2, J=2, given A[I_X, J]" in caught.value.__notes__[-1]


# --- a function beside a program

MATMUL = "A[I, J_X] · B[J_X, K] → C[I_X, K]"
INS = (P(None, "X"), P("X"))


def scattered(a, b):
    return jax.lax.psum_scatter(a @ b, "X", scatter_dimension=0, tiled=True)


PROGRAMS = {  # the program, in_specs, out_specs, right, wrong
    "a sum doubled": (MATMUL, INS, ROWS, scattered, lambda a, b: 2 * scattered(a, b)),
    "a mean for a sum": (MATMUL, INS, ROWS, scattered, lambda a, b: scattered(a, b) / size("X")),
    "a sum left out": (
        "A[I, J_X] · B[J_X, K] → C[I, K]", INS, P(), lambda a, b: jax.lax.psum(a @ b, "X"), lambda a, b: a @ b,
    ),
    "one axis too few": (
        "A[I, J_XY] · B[J_XY, K] → C[I, K]", (P(None, XY), P(XY)), P(),
        lambda a, b: jax.lax.psum(a @ b, XY), lambda a, b: jax.lax.psum(a @ b, "X"),
    ),
    "the order of axes": ("A[I_XY] → A[I]", P(XY), P(), gathered(XY), gathered(YX)),
    "the dim of a scatter": (
        MATMUL, INS, P(None, "X"), None,
        lambda a, b: jax.lax.psum_scatter(a @ b, "X", scatter_dimension=1, tiled=True),
    ),
    "a gather left out": ("A[I_X] → A[I]", ROWS, ROWS, None, lambda a: a),
    "a slice of the wrong device": (
        "A[I] → A[I_X]", P(), ROWS, block(lambda n, _: n), block(lambda n, of: (n + 1) % of),
    ),
    "off by one device": ("A[I_X] → A[I_X]", ROWS, ROWS, turned(0), turned(1)),
    "a scale dropped": ("B[I_X] = A[I_X] * 0.125", ROWS, ROWS, lambda a: a * 0.125, lambda a: a),
    "a cast dropped": (
        "A: bf16[I_X, J] · B: bf16[J, K] → C: f32[I_X, K]", (ROWS, P()), ROWS,
        lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.float32), lambda a, b: a @ b,
    ),
    "not a number": ("A[I_X] → A[I_X]", ROWS, ROWS, lambda a: a, lambda a: a * jnp.nan),
    "the transpose": ("A[I_X, J] → A[I_X, J]", ROWS, ROWS, None, lambda a: a.T),
}  # fmt: skip
WANTED = r"device \(.*\) at \([\d, ]*\) of .* (has|sums to) -?[\d.na]+ where -?[\d.]+ is wanted"
LIES = r"the result (is \w+ of \([\d, ]*\)|lies as .*, blocks \([\d, ]*\)), where .* is wanted"


@pytest.mark.devices
@pytest.mark.parametrize("name", PROGRAMS)
def test_between_a_function_and_a_program(name):
    program, ins, outs, right, wrong = PROGRAMS[name]
    said = failure(assert_matches_reference, mapped(wrong, ins, outs), program)
    assert re.search(f"{WANTED}|{LIES}", said), said
    assert said.endswith(f"\n  function: <lambda>\n  program:  {program}")
    if right is not None:
        assert_matches_reference(mapped(right, ins, outs), program)


@pytest.mark.devices
def test_a_wrong_element_that_four_a_dim_do_not_show_is_found_on_more():
    """Of blocks of four by three the last column is left out; no sizes of at most four leave one."""

    def spoiled(a):
        return a if a.shape[0] < 4 or a.shape[1] < 3 else a.at[:, 2].set(0)

    with pytest.raises(AssertionError, match=r"on mesh X=2; I=\d+, J=\d+: device"):
        assert_matches_reference(mapped(spoiled, P(None, "X"), P(None, "X")), "A[I, J_X] → A[I, J_X]")


@pytest.mark.devices
def test_partial_sums_are_compared_by_what_they_add_up_to():
    program = "A[I]{U_X} → A[I]{U_X}"
    assert_matches_reference(lambda a: a, program)
    said = failure(assert_matches_reference, lambda a: a + a, program)
    assert re.search(r"device \(X=0\) at \(\d,\) of A\[I\]\{U_X\} sums to -?[\d.]+ where -?[\d.]+ is wanted", said), (
        said
    )


@pytest.mark.devices
def test_a_program_of_several_lines_is_shown_whole():
    program = "B[I_X] = A[I_X] * 2\nC[I_X] = B[I_X] + A[I_X]"
    said = failure(assert_matches_reference, lambda a: a, program)
    assert said.endswith("\n  program:\n    B[I_X] = A[I_X] * 2\n    C[I_X] = B[I_X] + A[I_X]")


# --- programs and plans

EQUIVALENTS = {
    "a sum doubled": ("B[I] = AllReduce_X(A[I]{U_X})", "B[I] = AllReduce_X(A[I]{U_X}); C[I] = B + B"),
    "a sum along another dim": ("B[J] = sum_I(A[I, J] · C[I, J])", "B[J] = max_I(A[I, J] ⊙ C[I, J])"),
    "a scale dropped": ("B[I_X] = A[I_X] * 0.125", "B[I_X] = A[I_X]"),
    "a mean for a sum": ("B[I] = sum_J(A[I, J])", "B[I] = mean_J(A[I, J])"),
    "the other operand first": ("C[I] = A[I] - B[I]", "C[I] = B[I] - A[I]"),
    "a function left out": ("C[I_XY, K] = relu(A[I_XY, J] · B[J, K])", "C[I_XY, K] = A[I_XY, J] · B[J, K]"),
    "a transpose": ("B[I, J] = A[I, J]", "B[J, I] = A[I, J]"),
    "five dims": ("C[I, J, K, L, M] = A[I, J, K] · B[K, L, M]", "C[I, J, K, L, M] = -A[I, J, K] · B[K, L, M]"),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", EQUIVALENTS)
def test_between_programs(name):
    one, other = EQUIVALENTS[name]
    said = failure(assert_equivalent, one, other)
    assert said.endswith(f"\n  one:   {one}\n  other: {other}")
    assert " in the other" in said
    assert_equivalent(one, one)


def test_a_renamed_dim_changes_nothing():
    assert_equivalent("C[I, J] = A[I, J]", "C[K, L] = A[K, L]")


def test_a_plan_that_means_something_else_is_named_with_its_mesh_and_device():
    plan = shardc.plan("C[I_X, K] = A[I_X, J] · B[J, K]", mesh={"X": 2}, dims="I=4,J=3,K=2", dtype="f32")
    said = failure(assert_equivalent, "C[I, K] = A[I, J] · B[J, K] * 2", plan)
    place = r"C at \([\d, ]+\), device \(X=\d\) at \([\d, ]+\) of C\[I_X, K\], is -?[\d.]+, and -?[\d.]+ in the other"
    assert re.match(rf"on mesh X=2; I=4, J=3, K=2: {place}\n", said), said


PLANTED = {
    "the order of axes": (AllGather(YX, 0), "the axes|is .*, and .* in the other"),
    "one axis too few": (AllGather(Y, 0), r"on mesh X=2, Y=2; I=4: "),
    "a slice": (Slice(XY, 0), r"on mesh X=2, Y=2; I=4: "),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", PLANTED)
def test_a_plan_with_a_wrong_step_is_found(name):
    move, said = PLANTED[name]
    plan = shardc.plan("A[I_XY] → A[I]", mesh={"X": 2, "Y": 2}, dims="I=4", dtype="f32")
    assert_equivalent(plan, "A[I] → A[I]")
    wrong = copy.copy(plan)
    (step,), schedule = plan.schedule.steps, plan.schedule
    block = replace(schedule.block, steps=(replace(step, op=move),))
    wrong._found = replace(plan._found, schedule=replace(schedule, block=block))
    assert re.search(said, failure(assert_equivalent, wrong, "A[I] → A[I]"))


def test_two_plans_of_other_sizes_are_no_equals():
    one, other = (shardc.plan("C[I_X] = A[I_X]", mesh={"X": 2}, dims={"I": size}, dtype="f32") for size in (4, 2))
    said = failure(assert_equivalent, one, other)
    assert "the inputs differ: A has the shape (4,), and (2,) in the other" in said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("B[I_X] = A[I_X]", "B[I_X] = relu(A[I_X])"),
        ("B[I_X] = A[I_X]", "B[I_X] = abs(A[I_X])"),
        ("C[I, K] = relu(A[I, J_X] · B[J_X, K])", "C[I, K] = A[I, J_X] · B[J_X, K]"),
        ("C[I, K] = relu(A[I, J_X] · B[J_X, K])", "C[I, K] = relu(A[I, J_X]) · relu(B[J_X, K])"),
    ],
)
def test_what_positive_numbers_do_not_show_is_found(before, after):
    with pytest.raises(AssertionError, match="device"):
        assert_rewrite(before, after)
    assert conditions(before, after) == "never"


@pytest.mark.parametrize("program", ["B[I_X] = relu(A[I_X])", "B[I_X] = abs(A[I_X])", "B[I_X] = where(A > 0, A, 0)"])
def test_a_function_that_is_left_out_is_found(program):
    program = program.replace("where(A > 0, A, 0)", "where(A[I_X] > 0, A, 0)")
    with pytest.raises(AssertionError, match="is wanted"):
        assert_matches_reference(lambda a: a, program)
    with pytest.raises(AssertionError, match="in the other"):
        assert_equivalent("B[I_X] = A[I_X] + 0", program)


def matmul_around(turned):
    """A[I, J_X] · B[J, K_X] → C[I, K_X] as a ring: each turn multiplies what came from the next device."""

    def local(a, b):
        count, place, width = jax.lax.axis_size("X"), jax.lax.axis_index("X"), a.shape[1]
        out = jax.lax.pcast(jnp.zeros((a.shape[0], b.shape[1]), a.dtype), ("X",), to="varying")
        for turn in range(count):
            at = (place + turned * turn) % count
            out = out + a @ jax.lax.dynamic_slice_in_dim(b, at * width, width, 0)
            a = jax.lax.ppermute(a, "X", [(i, (i - 1) % count) for i in range(count)])
        return out

    return mapped(local, (P(None, "X"), P(None, "X")), P(None, "X"))


@pytest.mark.devices
def test_a_ring_that_goes_the_other_way_round_is_found():
    """On two devices both ways are one."""
    text = "A[I, J_X] · B[J, K_X] → C[I, K_X]"
    assert_matches_reference(matmul_around(1), text)
    with pytest.raises(AssertionError, match="on mesh X=4"):
        assert_matches_reference(matmul_around(-1), text)


@pytest.mark.devices
def test_a_text_and_a_program_are_taken_at_their_word():
    met = set()

    def doubled(a):
        met.add((a.shape, a.dtype.name))
        return 2 * a

    assert_matches_reference(doubled, "mesh X=4; dims I=16; dtype bf16; C[I_X] = 2 * A[I_X]")
    assert met == {((16,), "bfloat16")}
    with pytest.raises(ShardcError, match="SHC001"):
        assert_matches_reference(doubled, shardc.parse("C[I_X] = 2 * A[I_X]", mesh="X=2"), mesh={"X": 4})
    with pytest.raises(ShardcError, match="SHC103"):
        assert_matches_reference(doubled, "A[")


@pytest.mark.devices
def test_a_mesh_of_jax_is_taken_and_one_that_proves_nothing_is_not():
    gather = "B[I] = AllGather_X(A[I_X])"
    assert_rewrite(gather, gather, mesh=jax.make_mesh((4,), ("X",)))
    for call in (assert_rewrite, conditions):
        with pytest.raises(ShardcError, match="no mesh can tell"):
            call("A[I_YX] = A[I_XY]", Moves("A[I_XY]"), max_size=1)


@pytest.mark.devices
def test_devices_that_are_not_there_are_no_wrong_rewrite():
    def local(a):
        return jax.lax.all_gather(a, "X", tiled=True)

    def gathered(a):
        return jax.shard_map(local, in_specs=P("X"), out_specs=P(), check_vma=False)(a)

    with pytest.raises(ShardcError, match="SHC301"):
        assert_rewrite("B[I] = AllGather_X(A[I_X])", gathered, mesh={"X": 16})


@pytest.mark.devices
def test_a_function_is_traced_once_on_each_mesh_and_called_as_it_is_where_it_cannot_be():
    traced, called = [], []

    def counted(a):
        (traced if isinstance(a, jax.core.Tracer) else called).append(a.shape)
        return 2 * a

    def by_numpy(a):
        called.append(np.asarray(a).shape)
        return a + a

    text = "C[I_X] = 2 * A[I_X]"
    assert_matches_reference(counted, text, mesh={"X": 2}, dims={"I": 4})
    assert traced == [(4,)] and not called
    assert_matches_reference(by_numpy, text, mesh={"X": 2}, dims={"I": 4})
    assert set(called) == {(4,)}
    said = failure(assert_matches_reference, lambda a: by_numpy(a) + 1, text, mesh={"X": 2}, dims={"I": 4})
    assert "device (X=0)" in said
