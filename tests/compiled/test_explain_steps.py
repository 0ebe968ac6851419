"""Drawn steps of training, explained: every byte judged or said not to be, what is planted is found, and no more."""

import sys
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, given, settings

from shardc.compiled import collectives
from shardc.compiled.explain.explain import explanation_of
from shardc.compiled.explain.findings import GATHERED, REMATERIALIZED, SUMMED
from shardc.cost import CHIPS, LinkModel
from shardc.machines.jitted import lower, mesh_of

sys.path.insert(0, str(Path(__file__).parent))
from steps import KINDS, PLANTED, Step, steps

pytestmark = pytest.mark.devices

few = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def explained(step):
    """What is said of a step, and the program's collectives as the counter reads them."""
    mesh = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    function, *args = step.made(mesh)
    lowered = lower(function, args)
    return explanation_of(lowered, LinkModel.of(mesh_of(args), CHIPS["v5p"])), collectives(lowered.text, mesh_of(args))


def every_byte_is_accounted_for(found, counted):
    total = sum(one.total_bytes for one in counted)
    assert found.judged_bytes + sum(left.wire_bytes for left in found.not_judged) == total == found.wire_bytes
    for row in found.collectives:
        assert sum(array.wire_bytes for array in row.arrays) == row.wire_bytes
        assert all(array.why for array in row.arrays)
    fields = found.to_json()["judged"]
    assert fields["wire_bytes"] + sum(left["wire_bytes"] for left in fields["not_judged"]) == fields["of_wire_bytes"]
    if not found.findings:
        short = "" if found.judged_bytes == total else f" in {found.judged_bytes:,} of {total:,} bytes"
        assert str(found).endswith(f"nothing wasteful found{short}")
    for left in found.not_judged:
        assert left.why in str(found)


def what_is_planted_is_found(step, found):
    """Each kind plants one waste, at one line: for as many arrays as it has, in as many trips."""
    assert {finding.kind for finding in found.findings} <= {SUMMED, GATHERED, REMATERIALIZED}
    assert sum(finding.count for finding in found.findings) == step.planted, str(found)
    assert len(found.findings) == bool(step.wasteful), str(found)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_all_bytes_of_every_kind_are_judged(kind):
    """Where nothing is planted nothing is found, and all bytes are judged."""
    found, counted = explained(Step(kind, (8, 16, 24), ("X", "Y"), 3, False))
    every_byte_is_accounted_for(found, counted)
    what_is_planted_is_found(Step(kind, (8, 16, 24), ("X", "Y"), 3, False), found)
    assert found.not_judged == () and found.wire_bytes > 0


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_waste_of_every_kind_is_found(kind):
    step = Step(kind, (8, 16, 24), ("X", "Y"), 3, True)
    found, counted = explained(step)
    every_byte_is_accounted_for(found, counted)
    what_is_planted_is_found(step, found)


@few
@given(steps(True) | steps(False))
def test_every_byte_is_judged_or_said_not_to_be(step):
    laws_hold(step)


@pytest.mark.exhaustive
@many
@given(steps(True) | steps(False))
def test_every_byte_is_judged_or_said_not_to_be_of_many_steps(step):
    laws_hold(step)


def laws_hold(step):
    found, counted = explained(step)
    every_byte_is_accounted_for(found, counted)
    what_is_planted_is_found(step, found)
