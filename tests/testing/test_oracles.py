"""The brute-force oracles against costs worked by hand."""

from __future__ import annotations

import itertools

import pytest

from shardc.ir.collectives import CollectivePermute, apply
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.testing import all_moves, all_shardings, matmul_oracle, needed_bytes, shortest_path_oracle

MESH = Mesh.of({"X": 2, "Y": 4})
SHAPE = (16, 32)  # 512 elements


def s(*dims, u=""):
    return Sharding.of(dims, u)


def test_there_are_3_11_49_and_261_shardings_of_rank_2():
    for axes, count in ((1, 3), (2, 11), (3, 49), (4, 261)):
        mesh = Mesh.of({name: 2 for name in "XYZW"[:axes]})
        found = list(all_shardings(mesh, 2, unreduced=False))
        assert len(found) == len(set(found)) == count


def test_moves_keep_the_law_and_are_distinct():
    mesh = Mesh.of({"X": 2, "Y": 2, "Z": 4})
    for before in all_shardings(mesh, 2):
        moves = list(all_moves(before, mesh))
        assert len(moves) == len(set(moves))
        for move in moves:
            after = apply(move, before, mesh)
            assert after.unreduced <= before.unreduced and after != before


def test_permutes_go_where_local_shapes_stay():
    square = Mesh.of({"X": 2, "Y": 2})
    found = {m.dims for m in all_moves(s("X", "Y"), square) if isinstance(m, CollectivePermute)}
    assert found == {(("Y",), ("X",))}
    assert not [m for m in all_moves(s("X", "Y"), MESH) if isinstance(m, CollectivePermute)]
    assert {m.dims for m in all_moves(s("XY", ""), MESH) if isinstance(m, CollectivePermute)} == {(("Y", "X"), ())}


@pytest.mark.instant
@pytest.mark.parametrize(
    "source, target, cost",
    [
        (s("X", "Y"), s("X", "Y"), 0),
        (s("", ""), s("YX", ""), 0),  # two slices
        (s("X", ""), s("", ""), 256 * 4),  # (2 − 1) · 256 elements
        (s("XY", ""), s("", ""), 7 * 64 * 4),
        (s("Y", ""), s("", "Y"), 3 * 128 * 4 // 4),
        (s("XY", ""), s("YX", ""), 64 * 4),
        (s("XY", ""), s("Y", ""), 64 * 4 + 64 * 4),  # permute to I_YX, gather X
        (s("X", ""), s("Y", ""), 64 * 4 + 64 * 4),  # slice to I_XY, permute to I_YX, gather X
        # Since X holds copies, slice over X, reduce half the bytes, and gather X again.
        (s("", "", u="Y"), s("Y", ""), (3 * 256 // 4 + 64) * 4),
        (s("", "", u="Y"), s("", ""), (2 * 3 * 256 // 4 + 256) * 4),
        (s("", "X", u="Y"), s("Y", "X"), 3 * 256 * 4 // 4),
        (s("", "X", u="Y"), s("", "X"), 2 * 3 * 256 * 4 // 4),
        (s("", "", u="XY"), s("XY", ""), 7 * 512 * 4 // 8),
        (s("", "", u="XY"), s("", "", u="Y"), 2 * 512 * 4 // 2),
        (s("", ""), s("", "", u="X"), None),
    ],
)
def test_reshards_worked_by_hand(source, target, cost):
    assert shortest_path_oracle(MESH, SHAPE, source, target, 4) == cost


def test_only_shardings_that_divide_the_shape_are_on_the_way():
    # A[I_X, J] → A[I_Y, J] with I = 4 has no I_XY to pass through: gather X, slice Y.
    assert shortest_path_oracle(MESH, (4, 3), s("X", ""), s("Y", ""), 1) == 6


def test_axes_reduced_together_travel_together():
    # 3 × 5 divides by nothing: an AllReduce over X and Y at once, 2 · 7/8 · 15, not 2 · 1/2 · 15 + 2 · 3/4 · 15.
    assert shortest_path_oracle(MESH, (3, 5), s("", "", u="XY"), s("", ""), 4) == 2 * 7 * 60 // 8


def test_exchanges_in_unequal_pieces_bring_what_is_needed():
    """2×3, 6×6 elements: some device needs a block of 6 and holds nothing of it. No two exchanges bring less than one,
    and none makes a partial sum.
    """
    mesh, before, after = Mesh.of({"X": 2, "Y": 3}), s("X", "Y"), s("Y", "X")
    assert shortest_path_oracle(mesh, (6, 6), before, after, 1) == 9
    assert shortest_path_oracle(mesh, (6, 6), before, after, 1, uneven=True) == 6
    assert shortest_path_oracle(mesh, (6, 6), before, s("Y", "", u="X"), 1, uneven=True) is None
    every = list(all_shardings(mesh, 2, unreduced=False))
    for source, target in itertools.product(every, repeat=2):
        if source.divides((6, 6), mesh) and target.divides((6, 6), mesh):
            found = shortest_path_oracle(mesh, (6, 6), source, target, 1, uneven=True)
            assert found == needed_bytes(mesh, (6, 6), source, target, 1)


def test_the_oracle_is_a_metric_on_reduced_shardings():
    mesh = Mesh.of({"X": 2, "Y": 2})
    every = list(all_shardings(mesh, 2, unreduced=False))
    cost = {(a, b): shortest_path_oracle(mesh, (8, 8), a, b, 1) for a in every for b in every}
    for a, b, c in itertools.product(every, repeat=3):
        assert cost[a, c] <= cost[a, b] + cost[b, c]
    assert all((cost[a, b] == 0) == (a == b) for a in every for b in every if len(a.sharded) == len(b.sharded) == 2)


SIZES = {"I": 16, "J": 32, "K": 64}


@pytest.mark.instant
@pytest.mark.parametrize(
    "a, b, c, cost",
    [
        (s("X", ""), s("", "Y"), s("X", "Y"), 0),  # case 1
        (s("", "Y"), s("", ""), s("", ""), 3 * 128),  # case 2: gather A; reducing C costs 2 · 3/4 · 1024
        (s("", "X"), s("X", ""), s("", ""), 2 * 1024 // 2),  # case 3: AllReduce C, as dear as gathering B's 1024
        (s("", "X"), s("X", ""), s("X", ""), 1024 // 2),  # ReduceScatter C; moving A to I_X costs 128 + 1024
        (s("", "X"), s("X", ""), s("", "", u="X"), 0),
        (s("X", ""), s("", "X"), s("X", ""), 1024),  # case 4: gather B, (2 − 1) · 1024, or A: see below
        (s("", "", u="X"), s("", ""), s("", "", u="X"), 0),
        (s("", "", u="X"), s("", "", u="X"), s("", ""), None),
    ],
)
def test_matmuls_worked_by_hand(a, b, c, cost):
    found = matmul_oracle(MESH, SIZES, a, b, c, 1)
    if cost is None:
        assert found is not None and found > 0  # one operand is reduced first
    elif (a, b) == (s("X", ""), s("", "X")):
        # Gather A's 256 elements, multiply to C[I, K_X], exchange C's 512 to I_X: 256 + 256.
        assert found == 256 + 512 // 2 < cost
    else:
        assert found == cost


def test_the_remedy_of_case_2_depends_on_the_sizes():
    """`A[I, J_Y] · B[J, K] → C[I, K]`: gather A (I·J), or slice B and reduce C (I·K)."""
    a, b, c = s("", "Y"), s("", ""), s("", "")
    mesh = Mesh.of({"Y": 4})
    assert matmul_oracle(mesh, {"I": 16, "J": 1024, "K": 4}, a, b, c, 1) == 2 * 3 * 64 // 4
    assert matmul_oracle(mesh, {"I": 16, "J": 4, "K": 1024}, a, b, c, 1) == 3 * 16


def test_the_transpose_costs_the_same():
    mesh = Mesh.of({"X": 2, "Y": 2})
    flip = {"I": 16, "J": 32, "K": 8}
    back = {"I": 8, "J": 32, "K": 16}
    every = list(all_shardings(mesh, 2, unreduced=False))[::2]
    for a, b, c in itertools.product(every, every, every[:2]):
        turned = [Sharding(x.dims[::-1]) for x in (b, a, c)]
        assert matmul_oracle(mesh, flip, a, b, c, 2) == matmul_oracle(mesh, back, *turned, 2)


def test_other_dims_than_those_of_a_matmul():
    """A batched product `A[L_X, I] · B[L_X, K] → C[L_X, I, K]` is free; gathering its L is not."""
    dims = (("L", "I"), ("L", "K"), ("L", "I", "K"))
    sizes = {"L": 4, "I": 8, "K": 16}
    assert matmul_oracle(Mesh.of({"X": 2}), sizes, s("X", ""), s("X", ""), s("X", "", ""), 1, dims) == 0
    assert matmul_oracle(Mesh.of({"X": 2}), sizes, s("X", ""), s("X", ""), s("", "", ""), 1, dims) == 16 + 32
