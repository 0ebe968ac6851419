"""One word for one idea: no two modules make a public class of one name, but for those that are listed."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "shardc"

# Most are of rooms that do not meet: the text's tree and what it means, a program of ours and the compiler's, marks of
# a picture. The list may only become shorter.
NAMES = """
Along Around Array Beside Call Candidate Carried Case Chain Choice Comparison Compiled Dim Done Edge Einsum
Factor Fault Flow For Front Group Held Index Kept Kind Known Laid Line Loop Looped Lowering Lying Made Module
Moved Moves Named Options Part Product Rates Reader Refused Reshard Round Row Run Scale Scope Search Side Size
Statement Taken Told Use Verdict Walk Work
"""
TWICE = {*NAMES.split()}


def public_classes():
    found = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for made in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(made, ast.ClassDef) and not made.name.startswith("_"):
                found[made.name].add(path.relative_to(PACKAGE).as_posix())
    return found


def test_no_two_classes_have_one_name_but_for_those_listed():
    assert {name for name, paths in public_classes().items() if len(paths) > 1} == TWICE
