"""No call of `shardc.einsum`, `shardc.reshard` or a plan's callable does anything else, wherever it is, unnoticed.

What is meant to change: `python tests/benchmark/known_calls.py --write`, which prints what differs. That a call does
what is right is for `test_meshes.py` and `test_transforms.py`, which run it.
"""

import sys
from collections import Counter
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_calls import calls, key, known, said

pytestmark = pytest.mark.devices
AT_ONCE = 16
KNOWN, CALLS = known(), [*calls()]
OTHER = KNOWN["jax"] != [jax.__version__]


@pytest.mark.instant
@pytest.mark.skipif(OTHER, reason="another version of JAX traces the same in another way")
@pytest.mark.parametrize("first", range(0, len(CALLS), AT_ONCE))
def test_calls_are_as_known(first):
    for call in CALLS[first : first + AT_ONCE]:
        assert said(call) == KNOWN[key(call)], call


def test_most_calls_are_done_and_each_refusal_is_met():
    said = Counter(
        lines[0].partition(" ")[0] if lines[0].startswith(("SHC", "JAX")) else "" for lines in KNOWN.values()
    )
    assert said[""] > len(KNOWN) / 3 and said["JAX:"] < len(KNOWN) / 8
    codes = {"SHC201", "SHC202", "SHC204", "SHC206", "SHC303", "SHC304", "SHC305", "SHC306", "SHC309"}
    assert codes <= said.keys()
