"""What rings and chunks hold in place of whole arrays, counted by hand."""

from dataclasses import replace

import pytest

import shardc
from shardc.cost.grouped import Groups
from shardc.ir.plan import Einsum, How
from shardc.lowering.together import candidates

COMES, ADDED, GOES = "C[I, K_X] = A[I_X, J] · B[J, K_X]", "A[I_X, J] · B[J_X, K]", "A[I, J_X] · B[J_X, K]"
TO_ALL, COMPUTED = f"C[I, K] = {GOES}", f"T[J_X, K] = exp(B[J_X, K]); C[I_X, K] = {GOES.replace('B[J_X, K]', 'T')}"
GATHERS, ADDS, ADDS_FOR_ALL = (True, False), (False, False), (False, True)
# On four devices A has 512 MiB and a device's share 128, B 64 and 16, C 256 and 64 in bf16.
CASES = [
    # what it does, and the MiB of a block, how many there are at once and in all, MiB that a product leaves, that
    # blocks are cut from, and that each product reads whole
    pytest.param(COMES, How.RING, GATHERS, (16, 3, 4, 16, 0, (64,)), id="of 128 MiB half is brought"),
    pytest.param(f"C[I_X, K] = {ADDED}", How.RING, GATHERS, (16, 3, 4, 128, 0, (64,)), id="added up in f32"),
    pytest.param(f"C[I_X, K] = {ADDED}", How.CHUNKS, GATHERS, (8, 2, 8, 8, 14, (64,)), id="eight chunks, seven cut"),
    pytest.param(f"C[I_X, K] = {GOES}", How.RING, ADDS, (64, 5, 4, 64, 0, (16,)), id="sums, and all of B"),
    pytest.param(TO_ALL, How.RING, ADDS_FOR_ALL, (64, 5, 4, 64, 0, (16,)), id="sums that are gathered after"),
    pytest.param(COMPUTED, How.RING, ADDS, (64, 5, 4, 64, 0, ()), id="no argument, which is not brought"),
]


@pytest.mark.instant
@pytest.mark.parametrize(("text", "how", "does", "holds"), CASES)
def test_what_is_held_in_blocks_by_hand(text, how, does, holds):
    dims, options = {"I": 2**15, "J": 2**13, "K": 2**12}, {"idle": "keep", "overlap": "off", "dtype": "bf16"}
    schedule = shardc.plan(text, mesh="X=4", topology="v5e:2x2", dims=dims, **options).schedule
    ordered, group = next(each for each in candidates(schedule) if each[1].how is how)
    found = Groups.of(replace(ordered, together=(group,))).blocks
    (each,) = {id(each): each for each in found.values()}.values()
    assert found.keys() == {each.product.result, each.move.result}
    assert isinstance(each.product.op, Einsum) and each.move.is_collective and each.is_ring == (how is How.RING)
    assert (each.gathers, each.gathered_after) == does
    block, made, cut, *brought = (size / 2**20 for size in (each.block, each.made, each.cut, *each.brought))
    assert (block, each.at_once, each.in_all, made, cut, tuple(brought)) == holds
