"""What `--passes` says of a lowering: each form by its name, and what the calls of it are over."""

import pytest

import shardc
from shardc.lowering.lower import lower
from shardc.lowering.spell import print_lowering

SCATTER, TWO = "A[I, J_X] · B[J_X, K] → C[I_X, K]", {"X": 2, "Y": 2}
SIZES = {"I": 4096, "J": 65536, "K": 2048}
FORMS = [
    (SCATTER, {"X": 4}, "v5p:2x2x1", SIZES, "ReduceScatter: shares apart; over X of 16,777,216 B"),
    (SCATTER, {"X": 8}, "v5p:2x2x2", SIZES,
     "ReduceScatter: shares apart, in rounds; over X's major 4 of 16,777,216 B; over X's minor 2 of 4,194,304 B"),
    ("A[I, J_X] → A[I, J]", {"X": 64}, "v5p:4x4x4", SIZES,
     "AllGather: in rounds, equal on all devices; over X1 of 8,388,608 B; over X0 of 33,554,432 B"),
    ("A[I_X, J_Y] → A[I, J]", TWO, None, SIZES,
     "AllGather: plain, laid piece by piece, equal on all devices; over YX of 134,217,728 B"),
    ("A[I_X, J_Y] → A[I_YX, J]", TWO, None, SIZES, "CollectivePermute: in 2 turns; over XY of 2 × 67,108,864 B"),
    ("A[I_X, J_Y] → A[I_Y, J_X]", {"X": 4, "Y": 6}, None, {"I": 96, "J": 96},
     "CollectivePermute: in 4 rounds, by tables; over XY of 4 × 192 B"),
    ("A[I, J_X, K] → A[I, J, K_X]", {"X": 4}, "v5p:2x2x1", {"I": 1, "J": 2048, "K": 4096},
     "AllToAll: pieces to the front; over X of 4,194,304 B"),
    ("A[I] → A[I_X]", TWO, None, SIZES, "Slice: plain"),
]  # fmt: skip


@pytest.mark.instant
@pytest.mark.parametrize(("text", "mesh", "topology", "dims", "said"), FORMS, ids=[said for *_, said in FORMS])
def test_a_form_is_named_with_what_its_calls_are_over(text, mesh, topology, dims, said):
    schedule = shardc.plan(text, mesh=mesh, dims=dims, topology=topology, objective="bytes").schedule
    first, *lines = print_lowering(schedule, lower(schedule)).splitlines()
    assert first.startswith("for no slice" if topology is None else f"for {topology[:3]}, {topology[4:7]}")
    assert lines[-1].partition(" = ")[2] == said


def test_what_is_done_as_one_is_said():
    asked = {"mesh": "X=4,Y=4", "topology": "v5e:4x4", "overlap": "on"}
    dims = {"B": 8192, "D": 8192, "F": 8192}
    schedule = shardc.plan("A[B_X, D] · W[D, F_Y] → C[B, F_Y]", dims=dims, **asked).schedule
    assert print_lowering(schedule, lower(schedule)).splitlines()[-1] == "as one: Einsum, AllGather_X in chunks"


ROWS = [  # a reshard, its mesh, slice and dims, and whether a digit's elements are gathered as rows of the one above
    ("A[I, J_XY] → A[I_X, J]", "X=4,Y=2", "v5p:2x2x2", {"I": 4096, "J": 8192}, True),
    ("A[I, J_XY] → A[I_X, J]", "X=4,Y=2", "v5e:2x4", {"I": 4096, "J": 8192}, False),  # on v4 and v5p alone
    ("A[I, J_XY] → A[I_X, J]", "X=4,Y=2", None, {"I": 4096, "J": 8192}, False),
    ("A[I, J_XY] → A[I_X, J]", "X=4,Y=2", "v5p:2x2x2", {"I": 4096, "J": 1792}, False),  # of part of a tile's lanes
    ("A[H, I, J_X] → A[H, I, J]", "X=8", "v5p:2x2x2", {"H": 8, "I": 4096, "J": 8192}, False),  # of no digit
    ("A[J_XY, I] → A[J, I_X]", "X=4,Y=2", "v5p:2x2x2", {"I": 8192, "J": 4096}, False),  # not along the last dim
]


@pytest.mark.instant
@pytest.mark.parametrize(("text", "mesh", "topology", "dims", "as_rows"), ROWS)
def test_a_digit_that_is_gathered_along_the_last_dim_is_rows_of_the_digit_above(text, mesh, topology, dims, as_rows):
    schedule = shardc.plan(text, mesh=mesh, dims=dims, topology=topology, objective="bytes", idle="keep").schedule
    gathers = [line for line in print_lowering(schedule, lower(schedule)).splitlines() if "AllGather" in line]
    assert gathers and any("as rows" in line for line in gathers) == as_rows
