"""A memory limit that no plan keeps: refused with the smallest that one keeps, and with what no plan gets below."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError
from shardc.planner.bounds.held import least_held
from shardc.testing import matmuls, programs

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK = ("mlp", "layers", "zero_3")
LONGEST = ("llama_layer", "decode")
LONG = [path.stem for path in sorted(EXAMPLES.glob("*.shard")) if path.stem not in (*QUICK, *LONGEST)]
PLANNED = st.one_of(matmuls(max_axes=2), programs())


def refused(program, **options):
    """The smallest peak that a refusal names."""
    with pytest.raises(ShardcError) as found:
        shardc.plan(program, memory=1, **options)
    assert found.value.code == "SHC410", found.value
    assert f"alone are {least_held(program)} bytes" in str(found.value)
    return int(re.search(r"--memory (\d+)", found.value.help)[1])


@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in LONG),
        *(pytest.param(name, marks=pytest.mark.long) for name in LONGEST),
    ],
)
def test_what_a_refusal_advises_for_an_example_is_kept(name):
    """`llama_layer` ended in an IndexError: so many arrays at the price of a byte held were more than a word."""
    program = shardc.parse((EXAMPLES / f"{name}.shard").read_text())
    smallest = refused(program)
    assert least_held(program) <= shardc.plan(program, memory=smallest).cost.peak_bytes <= smallest


@settings(max_examples=15, deadline=None)
@given(PLANNED)
def test_no_plan_holds_less_than_inputs_and_outputs_that_differ(case):
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims)
    assert min(point.cost.peak_bytes for point in shardc.plan(program).pareto()) >= least_held(program)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("A[I_X, J] → A[I, J]", 8 * 16 // 4 * 4),  # the result may be what was given: its size is the same
        ("A[I_X, J] · B[J, K] → C[I_X, K]", (8 * 16 // 4 + 16 * 2 + 8 * 2 // 4) * 4),
        ("A[I_?, J_?] · B[J, K] → C[I, K]", (8 * 16 // 8 + 16 * 2 + 8 * 2) * 4),  # over X and Y at most
        ("A[I_X, J_?] · B[J, K] → C[I_?, K_Y]", (8 * 16 // 8 + 16 * 2 + 8 * 2 // 8) * 4),
    ],
)
def test_what_is_held_at_least_by_hand(text, held):
    program = shardc.parse(text, mesh={"X": 4, "Y": 2}, dims={"I": 8, "J": 16, "K": 2}, dtype="f32")
    assert least_held(program) == held
