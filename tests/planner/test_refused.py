"""A memory limit that no plan keeps: refused with the smallest that one keeps, and with what no plan gets below."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError
from shardc.planner.bounds.held import least_held, least_peak
from shardc.planner.program.plan import _OnAnyMesh
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


ONE_SIZE = [  # arrays of one size, some of which may be others
    "B = relu(A[I_X, J])",
    "A[I_X, J] → B[I_?, J_?]",
    "A[I_X, J] → B[I_Y, J]",
    "B[J, I_X] = A[I_X, J]",
    "B[J, I_X] = A[I_X, J]; C[I_?, J_?] = B; return B, C",
    "B = AllGather_X(A[I_X, J]); C[I_X, J] = B",
    "B = A[I_X, J] + C[I_X, J]; D = C + A; return B, D",
    "B = A[I_X, J] ⊙ C[I_X, J] ⊙ D[I_X, J]; E = D ⊙ (A ⊙ C); return B, E",
    "B = relu(A[I_X, J]); C[I, J_X] = relu(A); return B, C",
    "B = again(A[I_X, J])",
    "B = f32(A[I_X, J])",
    "B = 1 ⊙ A[I_X, J] + 0",
    "B = where(A[I_X, J] > 0, A, 0); C = relu(A); return B, C",
    "B = sum_K(A[I_X, J, K])",
    "B = max_K(A[I_X, J, K])",
    "h = A[I_X, J]; for K { h = h }; return h",
    "h = A[I_X, J]; for K { h = relu(h) }; g = A[I_X, J]; for K { g = relu(g) }; return h, g",
    "h[I_X, J] = 0; g[I_X, J] = 0; return h, g",
    "A[I_X, J] → B[I_X, J]",
    "A[I_X, J] · B[J, K] → C[I_?, K_?]",
    "C[I_?, J] = A[I_X, J] · B[J_?, K] · D[K, J]; E[J, I_?] = C; return C, E",
]


@pytest.mark.parametrize("text", ONE_SIZE)
@pytest.mark.parametrize("options", [{}, {"topology": "v5e:2x4"}, {"topology": "v5p:2x2x2"}], ids=["", "v5e", "v5p"])
def test_a_limit_that_is_said_to_be_impossible_is(text, options):
    program = shardc.parse(text, mesh={"X": 4, "Y": 2}, dims={"I": 512, "J": 1024, "K": 1}, dtype="f32", **options)
    least = min(point.cost.peak_bytes for point in shardc.plan(program).pareto())
    assert least_held(program) <= least_peak(program) <= least


AT_LEAST = {"text": "A[I_X, J] · B[J, K_X] → C[I_X, K]", "mesh": {"X": 4}, "dims": {"I": 64, "J": 64, "K": 64}}


@pytest.mark.instant
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1", "v4:2x2x1"])
def test_what_needs_no_temporary_takes_what_no_plan_is_below(topology):
    plan = shardc.plan("B[J, I_X] = A[I_X, J]", mesh={"X": 4}, dims={"I": 64, "J": 64}, topology=topology)
    assert plan.cost.peak_bytes == least_peak(plan.program)


def test_where_no_plan_takes_less_none_is_looked_for(monkeypatch):
    program = shardc.parse(**AT_LEAST, topology="v5e:2x2")
    least = shardc.plan(program).cost.peak_bytes
    assert least == least_peak(program)
    looked_for = []
    monkeypatch.setattr(_OnAnyMesh, "_in_chunks", lambda self, memory: looked_for.append(memory))
    assert refused(program) == least
    assert not looked_for


@pytest.mark.instant
@pytest.mark.parametrize("text", ["A[I_X, J] · B[J, K_X] → C[I_X, K]", "B[I, J] = relu(A[I_X, J])"])
def test_a_refusal_is_planned_without_a_limit_once(monkeypatch, text):
    made, free = [], _OnAnyMesh.of
    monkeypatch.setattr(_OnAnyMesh, "of", lambda *given: made.append(given) or free(*given))
    refused(shardc.parse(text, mesh={"X": 4}, dims={"I": 64, "J": 64, "K": 64}))
    assert len(made) == 1


def test_the_note_of_a_function_is_of_both_ends():
    with pytest.raises(ShardcError) as found:
        shardc.plan("B[I_X] = relu(A[I_X])", mesh={"X": 4}, dims={"I": 4096}, memory=1000)
    assert found.value.note == "its inputs and outputs alone are 4096 bytes on each device"


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("A[I_X, J] → A[I, J]", (8 * 16 // 4 + 8 * 16) * 4),
        ("A[I_X, J] → A[I_?, J]", 8 * 16 // 4 * 4),  # the result may be what was given
        ("B[I_X, J] = relu(A[I_X, J])", 2 * 8 * 16 // 4 * 4),
        ("B[I_X, J] = relu(A[I_X, J]); C[I_X, J] = exp(B); return B, C", 3 * 8 * 16 // 4 * 4),
        ("B[I_X, J] = relu(A[I_X, J]); C[I_X, J] = relu(A); return B, C", 2 * 8 * 16 // 4 * 4),  # one array
        ("B[I_X, J] = A[I_X, J] + C[I_X, J]", 3 * 8 * 16 // 4 * 4),
        ("A[I_X, J] · B[J, K] → C[I_X, K]", (8 * 16 // 4 + 16 * 2 + 8 * 2 // 4) * 4),
        ("A[I_?, J_?] · B[J, K] → C[I, K]", (8 * 16 // 8 + 16 * 2 + 8 * 2) * 4),  # over X and Y at most
        ("A[I_X, J_?] · B[J, K] → C[I_?, K_Y]", (8 * 16 // 8 + 16 * 2 + 8 * 2 // 8) * 4),
    ],
)
def test_what_is_held_at_least_by_hand(text, held):
    program = shardc.parse(text, mesh={"X": 4, "Y": 2}, dims={"I": 8, "J": 16, "K": 2}, dtype="f32")
    assert least_held(program) == held
