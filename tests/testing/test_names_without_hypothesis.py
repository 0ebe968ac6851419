"""Where hypothesis is not installed the checkers can be had, all at once too, and a strategy says what it needs."""

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['hypothesis'] = None\n"


def printed(code):
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, timeout=120)


@pytest.mark.instant
def test_all_names_that_can_be_had_are_imported():
    found = printed(
        "from shardc.testing import *\n"
        "assert_rewrite('B[I] = AllGather_X(A[I_X])', 'B[I] = A[I_X]')\n"
        "assert_equivalent('C[I] = A[I] + A', 'C[I] = 2 ⊙ A[I]')\n"
        "print(len(LAWS) > 70, 'paths' in dir())"
    )
    assert found.stdout == "True False\n", found.stderr


@pytest.mark.instant
def test_a_strategy_says_what_it_needs():
    found = printed("from shardc.testing import paths")
    assert found.returncode and "pip install hypothesis" in found.stderr.splitlines()[-1]


@pytest.mark.instant
def test_with_hypothesis_all_names_are_there():
    from shardc import testing

    assert all(getattr(testing, name) is not None for name in testing.__all__)
    assert {"assert_rewrite", "paths", "programs", "Case"} <= set(testing.__all__)
