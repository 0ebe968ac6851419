"""The table of error codes: each is raised somewhere, and what is raised is in it."""

import ast
import re
from pathlib import Path

from shardc.errors import CODES

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"SHC[0-9]{3}")


def raised(tree: ast.AST) -> set[str]:
    """The codes that a module's calls, tables and parameters name; what is only compared with, or said, is not."""
    compared = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in compared and isinstance(node.value, str)
        if CODE.fullmatch(node.value)
    }


def test_every_code_is_raised_somewhere_and_stands_in_the_table():
    """By the package, or by an example: of processes that are gone the launcher says so."""
    files = [*ROOT.glob("shardc/**/*.py"), *ROOT.glob("examples/*.py")]
    found = [raised(ast.parse(path.read_text("utf-8"))) for path in files if path.name != "errors.py"]
    assert set().union(*found) == set(CODES)


def test_a_code_that_is_only_compared_or_explained_is_not_raised():
    text = '"""SHC101 is no code here."""\nif error.code == "SHC102": raise Error("SHC103", "SHC104: text")\n'
    assert raised(ast.parse(text)) == {"SHC103"}
