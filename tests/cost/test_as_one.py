"""Products done as one with their collectives take as long as they are priced: the compiled program, replayed."""

from dataclasses import replace

import pytest

import shardc
from shardc.compiled.compilers import verify
from shardc.cost.prefetch import time_of
from shardc.ir.plan import How
from shardc.lowering.together import candidates

BOTH = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]"
SCATTERED = "A[I, J_X] · B[J_X, K] → C[I_X, K]"
SCATTERED_OVER_ALL = "T[I, K]{U_XY} = A[I, J_XY] · B[J_XY, K]; C[I_XY, K] = ReduceScatter(T[I, K]{U_XY})"

CASES = [
    # text, I × J × K, of the groups that there are which one, and what is between price and replay
    pytest.param(BOTH, (8192, 8192, 16384), How.RING, -1, id="a ring whose other operand's gather takes long"),
    pytest.param(BOTH, (16384, 8192, 16384), How.RING, 0, id="a ring that waits for the other gather"),
    pytest.param(BOTH, (32768, 8192, 32768), How.RINGS, 0, id="two rings whose sum does not fit on the chip"),
    pytest.param(BOTH, (16384, 8192, 16384), How.RINGS, 0, id="two rings whose sum fits"),
    pytest.param(SCATTERED, (8192, 8192, 8192), How.RING, 0, id="a ring that scatters"),
    pytest.param(SCATTERED_OVER_ALL, (8192, 32768, 4096), How.RING, 0, id="sums go round all devices"),
    pytest.param("A[I, J_XY] · B[J, K_XY] → C[I, K_XY]", (4096, 4096, 32768), How.RING, 0, id="its result, at last"),
    pytest.param(BOTH, (32768, 8192, 32768), How.CHUNKS, 0, id="chunks that hide their gather"),
    pytest.param(BOTH, (16384, 2048, 8192), How.CHUNKS, -1, id="chunks that read the other operand again"),
    pytest.param("A[I, J] · B[J, K_X] → C[I, K]", (8192, 8192, 8192), How.CHUNKS, 0, id="chunks gathered after"),
]


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize(("text", "shape", "how", "which"), CASES)
def test_a_group_is_replayed_as_it_is_priced(text, shape, how, which):
    """Within an eighth, which is what a form must gain to be chosen (`CLEARLY`)."""
    plan = shardc.plan(
        text, mesh="X=4,Y=4", topology="v5e:4x4", dims=dict(zip("IJK", shape, strict=True)), dtype="bf16",
        idle="keep", overlap="off",
    )  # fmt: skip
    found = [(ordered, group) for ordered, group in candidates(plan.schedule) if group.how is how]
    ordered, group = found[which]
    schedule = replace(ordered, together=(group,))
    replayed = verify(replace(plan._found, schedule=schedule), plan._model).replayed
    assert replayed.step_s == pytest.approx(time_of(schedule, plan._model), rel=0.125)


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (4096, 8192, 8192), (2048, 4096, 4096)])
def test_a_ring_beside_an_exchange_over_the_same_axis_is_priced_as_replayed(shape):
    """X=16 on v5e:4x4 is cut in 4·4: A is exchanged over the part over which B goes round, and permutes there take half
    as long again as the gather. Priced as if the exchange went on beside the turns, the first took 1.28 of that."""
    dims = dict(zip("IJK", shape, strict=True))
    plan = shardc.plan(SCATTERED, mesh="X=16", topology="v5e:4x4", dims=dims, dtype="bf16", overlap="off")
    assert plan.schedule.by is not None
    found = [(ordered, group) for ordered, group in candidates(plan.schedule) if group.how is How.RING]
    assert found
    for ordered, group in found:
        schedule = replace(ordered, together=(group,))
        replayed = verify(replace(plan._found, schedule=schedule), plan._model).replayed
        assert replayed.step_s == pytest.approx(time_of(schedule, plan._model), rel=0.125), group


AT_ONCE, OTHER, SUMMED = "A[I_X, J] · B[J, K_X]", "A[I_X, J] · B[J_X, K]", "A[I_X, J_Y] · B[J_Y, K_X]"
ON_16, ON_8, ON_2_4 = ("v5e:4x4", "X=16"), ("v5e:2x4", "X=8"), ("v5e:2x4", "X=2,Y=4")
SEVERAL = "F = relu(T); G = exp(F)\nreturn F, G"
READ = [
    # what reads the product, how it is done, I × J × K (× L), and the slice with its mesh
    pytest.param("F = max_K(T)", AT_ONCE, How.RING, (16384, 1024, 4096), ON_16, id="the largest"),
    pytest.param("F = sum_K(abs(T))", OTHER, How.CHUNKS, (16384, 1024, 16384), ON_16, id="a sum"),
    pytest.param("F = relu(T)", OTHER, How.CHUNKS, (16384, 1024, 16384), ON_8, id="elements"),
    pytest.param(SEVERAL, AT_ONCE, How.RING, (16384, 1024, 8192), ON_16, id="two outputs"),
    pytest.param("O[I_Y, L] = softmax_I(T) · C[K, L]", SUMMED, How.CHUNKS, (16384, 8192, 4096, 4096), ON_2_4, id="cut"),
]


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize(("read", "product", "how", "shape", "on"), READ)
def test_what_reads_a_product_in_parts_is_priced_as_replayed(read, product, how, shape, on):
    """Done whole, its tiles would be at hand: `T = A · B; F = relu(T)` writes F alone. Priced as if they were, the
    first three took 1.75 times as long as their price, and 1.25 times as long as step by step."""
    topology, mesh = on
    plan = shardc.plan(
        f"T = {product}\n{read}", mesh=mesh, topology=topology, dims=dict(zip("IJKL", shape, strict=False)),
        dtype="bf16", overlap="off",
    )  # fmt: skip
    ordered, group = next(each for each in candidates(plan.schedule) if each[1].how is how)
    schedule = replace(ordered, together=(group,))
    replayed = verify(replace(plan._found, schedule=schedule), plan._model).replayed
    assert replayed.step_s == pytest.approx(time_of(schedule, plan._model), rel=0.125)


COMPUTED = [
    pytest.param("P = softmax_K(T[I, K]); F[I, L] = P · C[K, L_X]", (4096, 8192, 8192), ON_16, id="shares"),
    pytest.param("P = softmax_K(T[I, K]); F[I, L] = P · C[K, L_X]", (16384, 8192, 8192), ON_16, id="off the chip"),
    pytest.param("P = relu(T[I, K]); F[I, L] = P · C[K, L_X]", (4096, 8192, 8192), ON_8, id="elements"),
    pytest.param("P = exp(T[I, K]); F[I, L] = P · C[K, L_X]", (2048, 8192, 8192), ON_8, id="one instruction"),
    pytest.param("P = exp(T[I, K]); F[I, L] = P · C[K, L_X]", (8192, 8192, 8192), ON_8, id="that is off the chip"),
]


@pytest.mark.long
@pytest.mark.tpu
@pytest.mark.parametrize(("text", "shape", "on"), COMPUTED)
def test_what_a_product_in_parts_would_compute_as_it_reads_is_priced_as_replayed(text, shape, on):
    """Done whole, `P = softmax_K(T); F = P · C` leaves P nowhere; in chunks it is made before them."""
    topology, mesh = on
    dims = dict(zip("IKL", shape, strict=True))
    plan = shardc.plan(text, mesh=mesh, topology=topology, dims=dims, dtype="bf16", overlap="off", idle="keep")
    ordered, group = next(each for each in candidates(plan.schedule) if each[1].how is How.CHUNKS)
    schedule = replace(ordered, together=(group,))
    replayed = verify(replace(plan._found, schedule=schedule), plan._model).replayed
    assert replayed.step_s == pytest.approx(time_of(schedule, plan._model), rel=0.125)


@pytest.mark.tpu
@pytest.mark.parametrize("rows", [1024, 3072, 8192])
def test_what_is_copied_to_an_output_on_the_chip_goes_through_memory_once(rows):
    """48 MiB and its copy have room on a v5e's chip, 128 MiB have not, whose copy takes five times as long a byte."""
    plan = shardc.plan("A[I, J_X] → A[I, J]", mesh="X=4", topology="v5e:2x2", dims={"I": rows, "J": 8192}, dtype="bf16")
    assert plan.verify().replayed.step_s == pytest.approx(plan.cost.time_s, rel=0.03)
    assert ("W_copy" in plan.steps[0].formula) == (rows == 8192)
