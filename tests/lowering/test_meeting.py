"""Two rings at once: every device multiplies each pair of blocks once, and has both at hand when it does."""

import itertools

import pytest

import shardc
from shardc.ir.mesh import Mesh
from shardc.ir.plan import How, Together
from shardc.lowering.meeting import Meeting, meeting_of

SIZES = [(2, 1), (3, 1), (4, 1), (2, 2), (2, 4), (3, 2), (4, 3)]


def sent(blocks, pairs):
    """What each device has when each has sent its own: every one sends once and receives once."""
    senders, takers = zip(*pairs, strict=True)
    assert sorted(senders) == sorted(takers) == list(range(len(blocks)))
    found = dict(zip(takers, (blocks[sender] for sender in senders), strict=True))
    return [found[device] for device in range(len(blocks))]


def along(blocks, pairs, places):
    """The same along one axis: `places` has for each device its place there and which group of devices it is of."""
    found = list(blocks)
    for group in {group for _, group in places}:
        members = sorted((place, device) for device, (place, other) in enumerate(places) if other == group)
        for (_, device), block in zip(members, sent([blocks[device] for _, device in members], pairs), strict=True):
            found[device] = block
    return found


@pytest.mark.instant
@pytest.mark.parametrize("is_first", [True, False], ids=["many first", "few first"])
@pytest.mark.parametrize(("rounds", "within"), SIZES)
def test_every_block_meets_its_own_on_every_device(rounds, within, is_first):
    """Of K in `count` blocks, of which the other operand has `within` together: on device (x, y) each once."""
    names = ("Y", "X") if is_first else ("X", "Y")
    sizes = {"X": rounds, "Y": rounds * within}
    mesh, found = Mesh.of([(name, sizes[name]) for name in names]), Meeting(0, ("Y", "X"), rounds, within, "K")
    assert found.over(mesh) == names and found.count == rounds * within
    at = [(place["X"], place["Y"]) for place in mesh.coordinates()]
    fine = sent([y for _, y in at], found.fine_turned(mesh))
    coarse = sent([x for x, _ in at], found.coarse_turned(mesh))
    met = [[] for _ in at]
    for number, turn in itertools.product(range(rounds), range(within)):
        if number and not turn:
            fine = along(fine, found.fine_sent_on, [(y, x) for x, y in at])
            coarse = along(coarse, found.coarse_sent_on, [(x, y) for x, y in at])
        elif turn:
            fine = along(fine, found.passed, [(y, x) for x, y in at])
        for device, (_, y) in enumerate(at):
            assert fine[device] // within == coarse[device], "the larger block has the smaller one"
            assert fine[device] % within == (y - number + turn) % within, "where the module says that it is"
            met[device].append(fine[device])
    assert all(sorted(blocks) == list(range(found.count)) for blocks in met)


MESH = "X=2,Y=4,Z=4,V=3,W=32"
TOGETHER = {  # two gathers and their product, and whether they are two rings
    "AllGather_Y(A[I_X, J_Y]) · AllGather_X(B[J_X, K_Y]) → C[I_X, K_Y]": True,
    "AllGather_X(A[I_Y, J_X]) · AllGather_Y(B[J_Y, K_X]) → C[I_Y, K_X]": True,
    "AllGather_Y(A[I_Z, J_Y]) · AllGather_Z(B[J_Z, K_Y]) → C[I_Z, K_Y]": True,
    "AllGather_V(A[I_X, J_V]) · AllGather_X(B[J_X, K_V]) → C[I_X, K_V]": False,  # three blocks do not hold two
    "AllGather_W(A[I_X, J_W]) · AllGather_X(B[J_X, K_W]) → C[I_X, K_W]": False,  # more than 16 devices round
    "AllGather_ZX(A[I_Y, J_ZX]) · AllGather_Y(B[J_Y, K_XZ]) → C[I_Y, K_XZ]": False,  # over two axes
    "AllGather_X(A[I, J_X]) · AllGather_X(B[J_X, K]) → C[I, K]": False,  # over one
    "AllGather_Y(A[I_XY, J]) · AllGather_Z(B[J, K_Z]) → C[I_X, K]": False,  # of no dim that both have
    "AllGather_Y(A[B_Y, I_X, J]) · AllGather_X(D[B_X, J, K_Y]) → C[B, I_X, K_Y]": False,  # nor that is summed
    "AllGather_Y(A[I_X, J_Y]) · AllGather_X(B[J_X, K]) → C[I_X, K]": False,  # the result is equal along Y
    "relu(A[I, J]) · AllGather_X(B[J_X, K]) → C[I, K]": False,
}


@pytest.mark.instant
@pytest.mark.parametrize("text", TOGETHER)
def test_operands_over_an_axis_each_that_fit_one_another_are_two_rings(text):
    program = shardc.parse(text, mesh=MESH, dims=dict.fromkeys("BIJK", 96))
    schedule = shardc.plan(program, objective="bytes", idle="keep").schedule
    assert schedule.steps[2].name == "Einsum" and len(schedule.steps) == 3
    found = meeting_of(schedule, Together(0, 2, How.RINGS))
    assert (found is not None) == TOGETHER[text]
    if found is not None:
        few, many = sorted(schedule.mesh.size(axis) for axis in found.axes)
        assert (found.rounds, found.count, found.dim) == (few, many, "J")
        assert schedule.mesh.size(found.axes[0]) == many
        fine = schedule.values[schedule.steps[2].operands[found.fine]]
        gather = next(step for step in schedule.steps[:2] if schedule.values[step.result] == fine)
        assert gather.op.axes == found.axes[:1]
