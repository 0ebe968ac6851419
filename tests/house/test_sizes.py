"""How long modules and functions are: what grows past these is two things, or is not yet understood."""

import ast
import subprocess
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2] / "shardc"
MODULE, FUNCTION, MEDIAN = 350, 45, 7
ENTERED = 55  # 64 before modules that answer one question were one; what is planned so far, and what is chosen, are two


def lengths(text: str) -> dict[str, int]:
    """The lines of each function, those within functions and classes too."""
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {f"{node.name}:{node.lineno}": (node.end_lineno or 0) - node.lineno + 1 for node in found}


def texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


def too_long(found: dict[str, str]) -> list[str]:
    """The modules and functions that are too long."""
    modules = [name for name, text in found.items() if len(text.splitlines()) > MODULE]
    functions = ((name, each, lines) for name, text in found.items() for each, lines in lengths(text).items())
    return modules + [f"{name}:{each} has {lines} lines" for name, each, lines in functions if lines > FUNCTION]


def test_no_module_and_no_function_is_too_long():
    assert too_long(texts()) == []


def test_functions_are_short():
    every = [lines for text in texts().values() for lines in lengths(text).values()]
    assert median(every) <= MEDIAN


def test_a_line_too_many_is_seen():
    body = "def f():\n" + "    pass\n" * FUNCTION
    assert too_long({"one.py": body}) == [f"one.py:f:1 has {FUNCTION + 1} lines"]
    assert too_long({"one.py": "\n" * MODULE, "two.py": "\n" * (MODULE + 1)}) == ["two.py"]


def test_planning_one_product_enters_few_files():
    """What `tests/benchmark/walk.py` counts: a newcomer reads as many."""
    walk = Path(__file__).parents[1] / "benchmark" / "walk.py"
    said = subprocess.run([sys.executable, str(walk)], capture_output=True, text=True, check=True).stdout
    room, files, _ = said.splitlines()[-1].split()
    assert room == "all" and 30 < int(files) <= ENTERED, said
