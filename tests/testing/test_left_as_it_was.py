"""Whatever is checked, JAX is left in the modes in which it was."""

import jax
import pytest

import shardc
from shardc.machines.run import run
from shardc.testing import Moves, assert_matches_reference, assert_rewrite, conditions, holds_on

WIDE = ("f64", "int64", "uint64", "c128")


def planned(kind):
    return shardc.plan("B[I] = A[I_X]", mesh={"X": 2}, dtype=kind, dims="I=4")


CHECKS = {
    "assert_matches_reference": lambda kind: assert_matches_reference(lambda a: a, "B[I_X] = A[I_X]", dtype=kind),
    "assert_rewrite": lambda kind: assert_rewrite(Moves(f"A: {kind}[I_X]"), lambda a: a, max_size=2),
    "conditions": lambda kind: conditions(lambda a: a, f"B[I_X] = A: {kind}[I_X]", max_size=2),
    "holds_on": lambda kind: holds_on(lambda a: a, f"dtype {kind}; B[I_X] = A[I_X]", {"X": 2}),
    "run": lambda kind: run(planned(kind).schedule),
    "compare": lambda kind: planned(kind).compare(rounds=1),
}


@pytest.mark.devices
@pytest.mark.instant
@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("name", CHECKS)
def test_the_modes_of_jax_are_left_as_they_were(name, kind):
    before = dict(jax.config.values)
    assert not before["jax_enable_x64"]
    CHECKS[name](kind)
    assert jax.config.values == before


@pytest.mark.devices
def test_they_are_also_where_a_check_fails():
    with pytest.raises(AssertionError):
        assert_matches_reference(lambda a: -a, "B[I_X] = A[I_X]", dtype="f64")
    with pytest.raises(ZeroDivisionError):
        assert_matches_reference(lambda a: 1 // 0, "B[I_X] = A[I_X]", dtype="f64")
    assert not jax.config.values["jax_enable_x64"]
