"""Partial sums that are added up beside a gather, on v5e.

    dW{U_PX} = In · dOut; W = AllGather W; dW = AllReduce dW; y = Q · W

The gather begins before the first product and ends after its sum: what it runs beside keeps its buffer, and the sum has
one of its own. As an output the sum is where the partial sums were.
"""

import pytest

import shardc

SUM = "dW[D, F]{U_PX} = In[B_PX, D] ·_B dOut[B_PX, F]\ndW[D, F] = dW\n"
GATHERED = "dIn[B_PX, D] = W[D_X, F] ·_F Q[B_PX, F]\n"
SLICED, READ = "R[D_X, F] = dW\n", "R[B_PX, D] = V[B_PX, F] ·_F dW\n"
DIMS = {"B": 8192, "D": 4096, "F": 16384}
WHOLE = 2 * DIMS["D"] * DIMS["F"]  # bytes of the sum


def planned(text, returned, topology="v5e:4x4"):
    names = returned if "dIn" not in text else f"{returned}, dIn"
    options = {"mesh": "P=4,X=4", "dims": DIMS, "dtype": "bf16", "idle": "keep", "overlap": "off"}
    return shardc.plan(f"{text}return {names}", topology=topology, **options)


def peak(plan):
    return plan.cost.peak_bytes


@pytest.mark.instant
@pytest.mark.parametrize("after", [SLICED, READ])
def test_the_sum_has_a_buffer_of_its_own_where_something_is_gathered(after):
    beside, alone = planned(SUM + after + GATHERED, "R"), planned(SUM + after, "R")
    assert sum(step.op == "AllReduce" for step in beside.steps) == 1
    given = sum(array.bytes for array in beside.inputs) - sum(array.bytes for array in alone.inputs)
    left = sum(array.bytes for array in beside.outputs) - sum(array.bytes for array in alone.outputs)
    assert peak(beside) - peak(alone) - given - left >= WHOLE


@pytest.mark.tpu
@pytest.mark.parametrize(
    ("text", "returned", "topology"),
    [
        (SUM + SLICED + GATHERED, "R", "v5e:4x4"),
        (SUM + GATHERED, "dW", "v5e:4x4"),
        (SUM + READ + GATHERED, "R", "v5e:4x4"),
        (SUM + SLICED, "R", "v5e:4x4"),
        (SUM + SLICED + GATHERED, "R", "v5p:4x4x1"),
    ],
)
def test_the_compiler_takes_as_much(text, returned, topology):
    found = planned(text, returned, topology).verify()
    assert found.predicted_memory.total_bytes == pytest.approx(found.compiled_memory.total_bytes, rel=0.01)
