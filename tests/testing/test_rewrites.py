"""Rewrites of collectives: right ones hold on every mesh, wrong ones are found on the smallest mesh that shows them."""

import re
import subprocess
import sys
from collections import Counter
from typing import get_args

import jax
import pytest
from hypothesis import HealthCheck, find, given, seed, settings

import shardc
import shardc.testing.laws
from shardc import simulate
from shardc.cost import CHIPS, LinkModel
from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, Move, ReduceScatter, Slice, apply
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array
from shardc.testing import (
    IDENTITIES,
    LAWS,
    TRANSPOSES,
    Law,
    Moves,
    all_moves,
    all_shardings,
    assert_cost_model,
    assert_equivalent,
    assert_matches_reference,
    assert_rewrite,
    chips,
    conditions,
    counterexample,
    found_when,
    is_transpose,
    paths,
)
from shardc.testing.letters import names_of

GATHER_SLICE = "B[I, J] = AllGather_X(A[I_X, J]); C[I, J_X] = Slice_X(B[I, J])"
ALL_TO_ALL = "C[I, J_X] = AllToAll_X(A[I_X, J])"


def failure(check, *given, **options):
    with pytest.raises(AssertionError) as caught:
        check(*given, **options)
    return str(caught.value)


# --- rewrites


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (GATHER_SLICE, ALL_TO_ALL),
        (GATHER_SLICE, Moves("A[I_X, J]", AllToAll(("X",), 0, 1))),
        (Moves("A[I_XY]", AllGather(("Y",), 0), AllGather(("X",), 0)), Moves("A[I_XY]", AllGather(("X", "Y"), 0))),
        ("B[I] = AllReduce_X(A[I]{U_X}); C[I_X] = Slice_X(B[I])", "C[I_X] = ReduceScatter_X(A[I]{U_X})"),
        ("A[I_X, J] → A[I, J_X]", ALL_TO_ALL),
        ("C[I_X, K] = A[I_X, J] · B[J, K]", "C[I_X, K] = A[I_X, J] · B[J, K]"),
    ],
)
def test_a_right_rewrite_holds_on_every_mesh(before, after):
    assert_rewrite(before, after)
    assert conditions(before, after) == "always"


# Each is wrong in one way: the order of axes, the dim, a sum doubled, a sum left out, a scale dropped.
WRONG = [
    ("B[I_X] = AllGather_Y(A[I_XY])", Moves("A[I_YX]", AllGather(("X",), 0))),
    ("A[I_YX] = A[I_XY]", Moves("A[I_XY]")),
    (GATHER_SLICE, Moves("A[I_X, J]", AllGather(("X",), 0), Slice(("X",), 0))),
    ("B[I] = AllReduce_X(A[I]{U_X})", "B[I] = AllReduce_X(A[I]{U_X}); C[I] = B + B"),
    ("B[I] = AllReduce_X(A[I]{U_X})", "B[I]{U_X} = A[I]{U_X}"),
    ("C[I_X] = ReduceScatter_X(A[I]{U_X})", "B[I] = AllReduce_X(A[I]{U_X}); C[I_X] = neg(B[I_X])"),
]


@pytest.mark.instant
@pytest.mark.parametrize(("before", "after"), WRONG)
def test_a_wrong_rewrite_is_found_on_at_most_two_by_two_and_four_elements(before, after):
    said = failure(assert_rewrite, before, after)
    sizes = [int(size) for size in re.findall(r"[A-Z]=(\d+)", said.split(": ")[0])]
    assert max(sizes) <= 4
    mesh = re.search(r"mesh ([^;:]*)", said)[1]
    assert all(int(size) <= 2 for size in re.findall(r"=(\d+)", mesh))
    assert "before:" in said and "after:" in said


def test_the_device_the_element_and_both_values_are_named():
    said = failure(assert_rewrite, "A[I_YX] = A[I_XY]", Moves("A[I_XY]"), mesh={"X": 2, "Y": 2})
    assert "device (X=0, Y=1) at (0,) of A[I_YX]: 3 before, -2 after" in said


@pytest.mark.instant
@pytest.mark.parametrize(
    ("before", "after", "when"),
    [
        ("A[I_YX] = A[I_XY]", Moves("A[I_XY]"), "X = 1 or Y = 1"),
        ("B[I, J] = AllGather_X(A[I_X, J])", Moves("A[I_X, J]", AllGather(("X",), 0), Slice(("X",), 1)), "X = 1"),
        ("B[I] = AllReduce_X(A[I]{U_X})", Moves("A[I]{U_X}", AllReduce(("X",))), "always"),
        ("B[I] = neg(A[I_X])", "B[I] = A[I_X]", "never"),
        ("A[I_X, J_Y] → A[I_Y, J_X]", Moves("A[I_X, J_Y]", CollectivePermute(("X", "Y"), (("Y",), ("X",)))), "X = Y"),
    ],
)
def test_when_a_rewrite_holds_is_found(before, after, when):
    assert conditions(before, after, max_size=3) == when


def test_axes_of_more_than_one_letter_are_named():
    assert_rewrite(
        "B[I, J] = AllGather_data(A[I_data, J]); C[I, J_data] = Slice_data(B[I, J])",
        "C[I, J_data] = AllToAll_data(A[I_data, J])",
        mesh=["data"],
    )


# --- drawn paths

SETTINGS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


FEW = settings(SETTINGS, max_examples=40)


@FEW
@given(paths())
def test_a_path_divides_its_shape_and_says_the_same_as_itself(path):
    assert all(size % path.mesh.product(axes) == 0 for size, axes in zip(path.shape, path.source.dims, strict=True))
    assert_rewrite(path.given, path.by(*path.moves), mesh=path.mesh)


def test_paths_reach_every_kind_of_move():
    counted = Counter()

    @seed(1)
    @settings(SETTINGS, max_examples=300, derandomize=True)
    @given(paths())
    def draw(path):
        counted.update(type(move).__name__ for move in path.moves)

    draw()
    assert set(counted) == {kind.__name__ for kind in get_args(Move)}, counted


def test_paths_shrink_to_the_smallest_mesh():
    found = find(paths(), lambda path: any(isinstance(move, ReduceScatter) for move in path.moves), settings=SETTINGS)
    assert found.mesh.devices == 1 and len(found.moves) == 1


def fused(moves):
    """A user's rewrite: an AllGather, then a Slice by the same axes along another dim, is an AllToAll."""
    match moves:
        case [AllGather(axes, source), Slice(same, dim), *rest] if axes == same and source != dim:
            return [AllToAll(axes, source, dim), *fused(rest)]
        case [AllGather(axes, source), Slice(same, dim), *rest] if axes == same:
            return fused(rest)
        case [first, *rest]:
            return [first, *fused(rest)]
        case _:
            return []


@FEW
@given(paths())
def test_a_rewrite_of_ones_own_over_drawn_paths(path):
    assert_rewrite(path.given, path.by(*fused(list(path.moves))), mesh=path.mesh)


def test_a_wrong_rewrite_of_ones_own_is_found_over_drawn_paths():
    def wrong(moves):
        return [Slice(move.axes, 0) if isinstance(move, Slice) else move for move in moves]

    def differs(path):
        try:
            assert_rewrite(path.given, path.by(*wrong(path.moves)), mesh=path.mesh)
        except AssertionError:
            return True
        return False

    drawn = paths(max_axes=2, max_rank=2, max_moves=2)
    found = find(drawn, differs, settings=settings(SETTINGS, max_examples=200))
    # One device tells a Slice along another dim by the move after it, which it makes illegal; two tell it by itself.
    assert found.mesh.devices <= 4 and max(found.shape) <= 4 and len(found.moves) <= 2


# --- the library of laws


SMALL = [Mesh.of({"X": 2, "Y": 2}), Mesh.of({"X": 1, "Y": 2})]


def quick(laws):
    """Those of three dims take a second each."""
    return [pytest.param(law, marks=pytest.mark.exhaustive if "f" in names_of(law.before) else ()) for law in laws]


@pytest.mark.parametrize("law", quick(LAWS), ids=str)
def test_a_law_holds_where_it_says_and_nowhere_else_is_claimed(law):
    small = [Mesh.of({"X": 2, "Y": 2, "Z": 2})] if "r" in names_of(law.before) else SMALL
    assert found_when(law.before, law.after, small) == law.when


@pytest.mark.exhaustive
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_law_holds_on_every_small_mesh(law):
    """The condition that is found is one under which all cases agree: of it there is no counterexample either."""
    assert found_when(law.before, law.after) == law.when


@pytest.mark.instant
@pytest.mark.parametrize(
    "wrong",
    [
        Law("AllGather_q(d); AllGather_p(d)", "AllGather_qp(d)"),
        Law("AllGather_p(d); Slice_p(e)", "AllToAll_p(d,e)"),
        Law("AllReduce_p; Slice_p(d)", "AllReduce_p"),
        Law("ReduceScatter_p(d); ReduceScatter_q(d)", "ReduceScatter_qp(d)"),
        Law("AllToAll_p(d,e); AllToAll_p(e,d)", "AllGather_p(d)"),
        Law("AllReduce_p; AllGather_p(d)", ""),
        Law("Slice_p(d); Slice_q(d)", "Slice_q(d); Slice_p(d)"),
    ],
    ids=str,
)
def test_a_wrong_law_has_a_counterexample_if_its_left_side_is_ever_legal(wrong):
    if next(shardc.testing.laws.cases(wrong, [Mesh.of({"X": 2, "Y": 2})], 2), None) is None:
        with pytest.raises(ShardcError, match="is legal on none of the meshes"):
            counterexample(wrong)
    else:
        assert counterexample(wrong) is not None


@pytest.mark.parametrize("mesh", [{"X": 2, "Y": 2}, {"X": 2, "Y": 3}], ids=str)
def test_what_moves_leave_is_said_by_where_they_lead(mesh):
    """So a reshard of a reshard is the last one, and two sequences between the same shardings are a law: by all pairs
    of moves from every sharding."""
    import numpy as np

    mesh, tried = Mesh.of(mesh), 0
    whole = np.arange(12 * 12).reshape(12, 12)
    arrays = {s: Array("A", ("I", "J"), (12, 12), s, DTYPES["int32"]) for s in all_shardings(mesh, 2)}
    for array in arrays.values():
        held = simulate.scatter(whole, array, mesh)
        for first in all_moves(array.sharding, mesh):
            between = arrays[apply(first, array.sharding, mesh)]
            half = simulate.step(first, (held,), (array,), between, mesh)
            for second in all_moves(between.sharding, mesh):
                after = arrays[apply(second, between.sharding, mesh)]
                found = simulate.step(second, (half,), (between,), after, mesh)
                assert np.array_equal(simulate.gather(found, after, mesh), whole), (str(array), first, second)
                tried += 1
    assert tried > 300


@pytest.mark.parametrize(("move", "transpose"), TRANSPOSES.items())
def test_a_transpose_is_the_transpose_of_what_the_devices_do(move, transpose):
    assert is_transpose(move, transpose)
    others = {other for other in TRANSPOSES.values() if names_of(other) == names_of(transpose)} - {transpose}
    assert [other for other in others if is_transpose(move, other)] == []


@pytest.mark.parametrize("most", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("identity", IDENTITIES, ids=str)
def test_an_identity_holds_where_it_says(identity, most):
    assert conditions(identity.before, identity.after, max_size=most) == identity.when


def test_a_text_that_is_no_notation_is_no_rewrite_that_never_holds():
    with pytest.raises(ShardcError) as caught:
        conditions(GATHER_SLICE, "C[I, J_X = A[I_X, J]")
    assert caught.value.exit_code == 3


# --- functions, programs and prices


def local(a, b):
    return jax.lax.psum_scatter(a @ b, "X", scatter_dimension=0, tiled=True)


def mapped(body, **specs):
    return lambda *arrays: jax.shard_map(body, **specs)(*arrays)


MATMUL = "A[I, J_X] · B[J_X, K] → C[I_X, K]"
SPECS = {"in_specs": (jax.P(None, "X"), jax.P("X")), "out_specs": jax.P("X")}


@pytest.mark.devices
def test_a_hand_written_function_matches_its_program():
    assert_matches_reference(mapped(local, **SPECS), MATMUL)
    assert_matches_reference(mapped(local, **SPECS), MATMUL, dtype="int32")


@pytest.mark.devices
@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b: 2 * local(a, b),
        lambda a, b: local(-a, b),
        lambda a, b: (
            jax.lax.ppermute(local(a, b), "X", [(0, 1), (1, 0)]) if jax.lax.axis_size("X") == 2 else local(a, b)
        ),
    ],
)
def test_a_wrong_function_is_found_with_its_device_and_element(wrong):
    said = failure(assert_matches_reference, mapped(wrong, **SPECS), MATMUL, dtype="int32")
    assert re.search(
        r"on mesh X=[12]; .*device \(X=[01]\) at \(\d+, \d+\) of C\[I_X, K\] has .* where .* is wanted", said
    )


@pytest.mark.devices
def test_two_functions_are_a_rewrite_of_each_other():
    gathered = mapped(
        lambda a: jax.lax.all_gather(a, "X", tiled=True)[:, : a.shape[1] // jax.lax.axis_size("X")],
        in_specs=jax.P("X"),
        out_specs=jax.P(None, "X"),
    )
    exchanged = mapped(
        lambda a: jax.lax.all_to_all(a, "X", 1, 0, tiled=True), in_specs=jax.P("X"), out_specs=jax.P(None, "X")
    )
    assert_rewrite(exchanged, ALL_TO_ALL, max_size=2)
    assert_rewrite(exchanged, exchanged, inputs=["A[I_X, J]"], mesh={"X": 4})
    said = failure(assert_rewrite, GATHER_SLICE, gathered)  # the slice of device 0, on every device
    assert "on mesh X=2; I=2, J=2: device (X=1)" in said


@pytest.mark.devices
def test_a_function_that_keeps_its_mesh_is_a_coded_error():
    kept = jax.shard_map(local, **SPECS)
    with pytest.raises(ShardcError) as caught:
        assert_matches_reference(kept, MATMUL)
    assert caught.value.code == "SHC306" and "inside the function" in caught.value.help


def test_programs_that_mean_the_same_are_told_from_those_that_do_not():
    assert_equivalent("C[I, K] = A[I, J] · B[J, K]; D[I] = sum_K(C)", "D[I] = A[I, J] · sum_K(B[J, K])")
    assert_equivalent(
        "C[I_X, K] = A[I_X, J] · B[J, K]", shardc.plan(MATMUL, mesh={"X": 4}, dtype="f32", dims="I=8,J=8,K=8")
    )
    said = failure(assert_equivalent, "C[I] = A[I]", "C[I] = neg(A[I])")
    assert re.search(r"with I=\d: C at \(\d,\) is (-?[\d.]+), and (-?[\d.]+) in the other", said)
    assert "the inputs differ" in failure(assert_equivalent, "C[I] = A[I]", "C[I] = B[I]")


@SETTINGS
@given(chips())
def test_every_chips_prices_obey_the_laws(chip):
    for mesh in (Mesh.of({"X": 4, "Y": 2}), Mesh.of({"X": 3})):
        model = LinkModel.of(mesh, chip)
        assert_cost_model(lambda move, size, model=model: model.rate(move).seconds(size), mesh)


def scaled(kind, times):
    return lambda model, move, size: model.rate(move).seconds(size) * (times if isinstance(move, kind) else 1)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        (lambda model, move, size: -1.0, "not negative"),
        (lambda model, move, size: 1 / (1 + size), "less time"),
        (lambda model, move, size: (size * 1e-9) ** 2, "at most twice as long"),
        (lambda model, move, size: 1e-6 + model.rate(move).seconds(size), "alone is free"),
        (scaled(AllReduce, 3), "AllReduce"),
        (scaled(AllToAll, 9), "AllToAll"),
        (scaled(AllGather, 2), "AllGather"),
    ],
)
def test_a_wrong_price_is_named(wrong, law):
    mesh = Mesh.of({"X": 4, "Y": 2})
    model = LinkModel.of(mesh, CHIPS["v5p"])
    assert law in failure(assert_cost_model, lambda move, size: wrong(model, move, size), mesh)


def test_the_checkers_work_without_hypothesis():
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from shardc.testing import Moves, assert_rewrite, assert_equivalent, assert_cost_model, conditions\n"
        f"assert_rewrite({GATHER_SLICE!r}, {ALL_TO_ALL!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
