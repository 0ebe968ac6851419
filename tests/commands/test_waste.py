"""`explain --fail-on-waste`: how much doing better would save, held against what is allowed."""

from dataclasses import replace

import pytest

from shardc import cli
from shardc.compiled.explain.explanation import Explanation
from shardc.compiled.explain.findings import Finding
from shardc.ir.mesh import Mesh


def test_waste_is_counted_once_and_is_an_error_where_more_than_allowed():
    """Two findings of one collective, and one of another: 30 and 5 bytes."""
    one = Finding("k", (), "w", ("a",), 40, 0.0, 10, 0.0, None, "s", "r")
    found = Explanation(Mesh.of({"X": 2}), "v5p", "cpu", (), (one, replace(one, better_bytes=20)), None)
    assert found.wasted_bytes == 30
    other = replace(one, collectives=("b",), better_bytes=35)
    assert replace(found, findings=(*found.findings, other)).wasted_bytes == 35
    assert replace(found, findings=()).wasted_bytes == 0


@pytest.mark.parametrize(("allowed", "status"), [("0", 1), ("75 MB", 1), ("76MB", 0), ("many", 2)])
def test_the_command_fails_on_waste(monkeypatch, capsys, allowed, status):
    """Of 75.5 MB; what is compiled is tested above."""
    finding = Finding("k", (), "w", ("a",), 100_663_296, 0.0, 25_165_824, 0.0, None, "s", "r")
    found = Explanation(Mesh.of({"X": 2}), "v5p", "cpu", (), (finding,), None)
    monkeypatch.setattr("shardc.api.explain", lambda *_, **__: found)
    monkeypatch.setattr("shardc.machines.simulated.load_on_devices", lambda *_, **__: (None, ()))
    assert cli._status(["explain", "model:step", "--fail-on-waste", allowed]) == status
    assert ("wasted: 75,497,472 bytes" in capsys.readouterr().err) == (status == 1)
