"""A name may be bound again to what it holds, which another name holds too: gathered, thrown away, gathered again."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

ASKED = {"mesh": {"X": 4}, "dims": {"D": 16}, "chip": "v5e"}
MOVES = ("AllGather_X({0}[D_X])", "{0}")


@st.composite
def bindings(draw):
    """Statements that bind names by moving others, with of each name the input that it is; then one more."""
    is_of, lines = {"A": "A", "B": "B"}, ["a[D] = relu(A[D_X])", "b[D] = relu(B[D_X])"]
    for _ in range(draw(st.integers(1, 4))):
        read = draw(st.sampled_from(sorted(is_of)))
        bound = draw(st.sampled_from([name for name in "ABTUV" if is_of.get(name, is_of[read]) == is_of[read]]))
        lines.append(f"{bound}[D] = {draw(st.sampled_from(MOVES)).format(read)}")
        is_of[bound] = is_of[read]
        lines.append(f"r{len(lines)} = relu({bound}[D])")
    return is_of, lines, draw(st.sampled_from(sorted(is_of))), draw(st.sampled_from(sorted(is_of)))


@pytest.mark.instant
@given(bindings())
def test_a_name_is_bound_again_to_the_same_array_alone(case):
    """`W2 = AllGather(W)` twice was refused."""
    is_of, lines, bound, read = case
    text = "\n".join([*lines, f"{bound}[D] = {read}", f"r = relu({bound}) + a + b"])
    if is_of[bound] != is_of[read]:
        with pytest.raises(ShardcError, match="bound to another array"):
            shardc.plan(text, **ASKED)
    else:
        assert_means_the_program(shardc.plan(text, **ASKED).schedule)


@pytest.mark.instant
def test_what_is_gathered_twice_by_two_names_is_gathered_twice():
    gathered = "W2[D, F] = AllGather_X(W[D_X, F])"
    text = f"{gathered}; a[B, F] = x[B, D] · W2; {gathered}; b[B, F] = z[B, D] · W2; return a, b"
    found = shardc.plan(text, mesh="X=4", dims={"B": 16, "D": 16, "F": 8}, chip="v5e")
    assert [step.op for step in found.steps if step.wire_bytes] == ["AllGather", "AllGather"]


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "t = x[D]; for N { y = t; x = x + 1; y = x; s[N, D] = y }; return s",  # from the second trip on
        "t = x[D]; for N { y = x; x = x + 1; y = x; s[N, D] = y }; return s",
        "t = x[D]; for N { x = x + 1; y = x; y = t; s[N, D] = y }; return s",
    ],
)
def test_what_a_loop_binds_anew_is_another_array(text):
    with pytest.raises(ShardcError, match="bound to another array"):
        shardc.plan(text, mesh="X=4", dims={"D": 16, "N": 3})
