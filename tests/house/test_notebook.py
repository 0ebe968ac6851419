"""The example notebook: its cells run in order, and what ends one is shown as a notebook shows it. Without Jupyter."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import jax
import pytest

pytestmark = pytest.mark.devices

PATH = Path(__file__).parents[2] / "examples" / "first_hour.ipynb"
DEVICES = 'jax.config.update("jax_num_cpu_devices", 8)'


def run(code: str, names: dict[str, Any]) -> Any:
    """The value of the last line, if it is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(PATH), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(PATH), "eval"), names)


def shown(value: Any) -> str:
    html = getattr(value, "_repr_html_", None) or getattr(value, "_repr_svg_", None)
    return "" if value is None else html() if html else repr(value)


def test_every_cell_of_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads(PATH.read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebook["nbformat"] == 4 and len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert sum(DEVICES in cell for cell in cells) == 1 and len(jax.devices()) == 8  # they are there
    names: dict[str, Any] = {}
    pages = [shown(run(cell.replace(DEVICES, ""), names)) for cell in cells]
    assert sum("<svg" in page for page in pages) >= 4
    told = capsys.readouterr().out
    assert "ReduceScatter_X,K C" in told and "error[SHC204]" in told


def test_a_cell_that_is_wrong_is_seen() -> None:
    with pytest.raises(NameError):
        run("x = 1\ny\n", {})
    assert run("x = 1\nx + 1", {}) == 2
