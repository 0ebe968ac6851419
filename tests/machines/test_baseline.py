"""What `jax.jit` alone is given means the same; and the tools beside it: times in turns, and a compiler's warnings."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import shardc
from shardc import simulate
from shardc.compiled.hlo.text import read_hlo
from shardc.cost import CHIPS, LinkModel
from shardc.emit.call import placing
from shardc.errors import ShardcError
from shardc.machines.baseline import compile_baseline, jitted, with_auto_axes
from shardc.machines.measure import interleaved, measured
from shardc.machines.run import report_of, simulated_mesh
from shardc.machines.stderr import caught_stderr

pytestmark = pytest.mark.devices

DIMS = {"I": 16, "J": 32, "K": 64, "B": 8, "D": 16, "F": 32}
PROGRAMS = [
    "A[I, J_X] · B[J_X, K_Y] → C[I_X, K_Y]",
    "A[I_XY, J] → A[I, J_YX]",
    "In[B_X, D_Y] ·_D W[D, F_Y] ·_F V[F_Y, D] → Out[B_X, D]",
    "T[B_X, F_Y] = In[B_X, D] · W[D, F_Y]; Out[B_X, D] = relu(T) ·_F V[F_Y, D]",
    "T[B_?, F_Y] = In[B_X, D] · W[D, F_Y]; Out[B_X, D] = T ·_F V[F_Y, D]",
    "S[I_X, J] = softmax_J(A[I_X, J_Y]); M[I] = max_J(S); D[J] = sum_I(S)",
    "R[I_X, J] = A[I_X, J] + b[J]; Q[J, I_Y] = neg(square(R))",
    "S[I_X, J]{U_Y} = A[I_X, K_Y] · B[K_Y, J]; R[I_X, J] = AllReduce_Y(S[I_X, J]{U_Y})",
    "AllGather_X(A[I_X, J]) → A[I, J]; A[I, J] ⊙ B[I, J_Y] → C[I_X, J_Y]",
]


def test_what_is_let_by_goes_where_it_was_going(capfd):
    with caught_stderr() as caught:
        os.write(2, b"caught")
        with caught.let_by():
            os.write(2, b"let by")
        os.write(2, b" too")
    assert caught.text == "caught too" and capfd.readouterr().err == "let by"


@pytest.fixture
def mesh():
    return jax.make_mesh((2, 4), ("X", "Y"), devices=jax.devices()[:8])


def planned(text, dtype="f32", **options):
    return shardc.plan(text, mesh={"X": 2, "Y": 4}, dims=DIMS, dtype=dtype, **options)


def on_devices(wholes, arrays, mesh):
    kinds = [jax.numpy.dtype(array.dtype.jax) for array in arrays]
    places = [jax.NamedSharding(mesh, placing.spec_of(array.sharding)) for array in arrays]
    placed = [jax.device_put(np.asarray(w).astype(k), p) for w, k, p in zip(wholes, kinds, places, strict=True)]
    return placed


INTEGERS = "A: int8[I, J_X] · B: int8[J_X, K_Y] → C: int32[I_X, K_Y]"


@pytest.mark.parametrize(
    ("text", "dtype"), [*((text, kind) for text in PROGRAMS for kind in ("f32", "bf16")), (INTEGERS, "int8")]
)
def test_every_shard_is_what_the_program_means(text, dtype, mesh):
    schedule = planned(text, dtype).schedule
    automatic = with_auto_axes(mesh)
    wholes = simulate.sample_inputs(schedule.program, 3)
    arrays = [schedule.values[number] for number in schedule.inputs]
    results = jitted(schedule, automatic)(*on_devices(wholes, arrays, automatic))
    results = results if isinstance(results, tuple) else (results,)
    report = report_of(schedule, wholes, results)
    assert report.ok, str(report)
    for result, number in zip(results, schedule.outputs, strict=True):
        assert placing.sharding_of(result.sharding.spec, result.ndim) == schedule.values[number].sharding


def test_a_written_intermediate_is_constrained_and_a_free_dim_is_not(mesh):
    text = "T[B{}, F] = In[B_X, D] · W[D, F_Y]; Out[B_X, D] = T ·_F V[F, D]"
    automatic = with_auto_axes(mesh)
    for spelled, wanted in (("_Y", '{"Y"}'), ("_?", "{?}")):
        schedule = planned(text.format(spelled)).schedule
        arrays = [
            jax.ShapeDtypeStruct(a.shape, "float32", sharding=jax.NamedSharding(automatic, placing.spec_of(a.sharding)))
            for a in (schedule.values[number] for number in schedule.inputs)
        ]
        lines = jitted(schedule, automatic).lower(*arrays).as_text().splitlines()
        (constraint,) = [line for line in lines if "sharding_constraint" in line]
        assert wanted in constraint


def test_bf16_partial_sums_travel_as_bf16_as_ours_do(mesh):
    """Asked to sum in f32, XLA would send f32; on the CPU it does anyway, so what was asked for is looked at."""
    schedule = planned("A[I, J_X] · B[J_X, K] → C[I, K]", "bf16").schedule
    automatic = with_auto_axes(mesh)
    arrays = [
        jax.ShapeDtypeStruct(a.shape, "bfloat16", sharding=jax.NamedSharding(automatic, placing.spec_of(a.sharding)))
        for a in (schedule.values[number] for number in schedule.inputs)
    ]
    text = jitted(schedule, automatic).lower(*arrays).as_text()
    assert "dot_general" in text and "xf32>" not in text


@pytest.mark.parametrize(
    "text", ["A[I]{U_X} → A[I]", "A[I, J_X] · B[J_X, K] → C[I, K]{U_X}"], ids=["an input", "an output"]
)
def test_unreduced_inputs_and_outputs_are_refused(text, mesh):
    with pytest.raises(ShardcError) as caught:
        compile_baseline(planned(text).schedule, mesh)
    assert caught.value.code == "SHC212"
    assert "jax.jit has no way to say so" in caught.value.message


def test_the_cpu_program_can_be_replayed(mesh):
    from shardc.compiled.replay.replay import replay

    schedule = planned("A[I, J_X] · B[J_X, K_Y] → C[I, K_Y]").schedule
    found = replay(read_hlo(compile_baseline(schedule, mesh).as_text()), LinkModel.of(schedule.mesh, CHIPS["v5p"]))
    assert found.communication_s > 0 and found.compute_s > 0
    assert found.step_s <= sum(event.duration_s for event in found.events) + 1e-12


def test_measuring_gives_both_times_round_by_round():
    schedule = planned("A[I, J_X] · B[J_X, K_Y] → C[I, K_Y]").schedule
    rounds = measured(schedule, schedule, simulated_mesh(schedule), rounds=3)
    assert len(rounds) == 3 and all(ours > 0 and theirs > 0 for ours, theirs in rounds)


def test_a_plan_is_compared_on_its_own_mesh_whichever_is_in_force():
    with jax.set_mesh(jax.make_mesh((2, 4), ("P", "Q"))):
        found = shardc.plan("A[I_X, J] → A[I, J_X]", mesh={"X": 4}, dims={"I": 8, "J": 8}).compare(rounds=1)
    assert found.measured is not None and found.theirs.wire_bytes


def test_rounds_take_turns():
    order = []
    interleaved(lambda: order.append("a"), lambda: order.append("b"), 3)
    assert "".join(order) == "abab" + "ab" + "ba" + "ab"


def test_what_is_written_past_python_is_caught():
    with caught_stderr() as caught:
        os.write(2, "from C, ünder Python\n".encode())
        print("from Python", file=sys.__stderr__)
    assert caught.text == "from C, ünder Python\nfrom Python\n"


def test_after_an_error_standard_error_is_as_before(capfd):
    with pytest.raises(KeyError), caught_stderr() as caught:
        os.write(2, b"inside\n")
        raise KeyError
    os.write(2, b"outside\n")
    assert caught.text == "inside\n" and capfd.readouterr().err == "outside\n"


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/null", "2>&1 | cat", ""])
def test_catching_works_whatever_standard_error_is(redirection):
    script = (
        "import os\nfrom shardc.machines.stderr import caught_stderr\n"
        "try:\n    os.fstat(2)\n    there = True\nexcept OSError:\n    there = False\n"
        "with caught_stderr() as caught:\n    there and os.write(2, b'inside')\n"
        "print(caught.text == ('inside' if there else ''))\n"
    )
    command = f'{sys.executable} -c "$SCRIPT" {redirection}'
    found = subprocess.run(
        ["/bin/sh", "-c", command], env=os.environ | {"SCRIPT": script}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "True" and found.stderr == ""


def test_the_compilers_warnings_are_caught():
    devices = np.array(jax.devices()[:8]).reshape(2, 2, 2)
    mesh = jax.sharding.Mesh(devices, ("X", "Y", "Z"))
    before, after = (jax.NamedSharding(mesh, spec) for spec in (jax.P(None, "X"), jax.P(("Z", "X"))))
    lowered = jax.jit(lambda x: x, in_shardings=before, out_shardings=after).lower(
        jax.ShapeDtypeStruct((64, 64, 64), "float32")
    )
    with caught_stderr() as caught:
        lowered.compile()
    assert "Involuntary full rematerialization" in caught.text
