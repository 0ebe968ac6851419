"""`is` compares what is one object in a process: None, types, members of an enum, and no text or number.

Of two equal texts one may have come from a file or from another process: `shape is RING` was false of a plan that had
been pickled, and a ring was priced as a line.
"""

import ast
import importlib
from pathlib import Path

import shardc

ROOT = Path(shardc.__file__).parent
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if path.name != "__main__.py"]


def compared(code, names):
    """Each comparison by identity with a text, a number or a tuple that the module's names give."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Compare):
            continue
        for symbol, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
            found = [names.get(side.id) for side in (left, right) if isinstance(side, ast.Name)]
            if isinstance(symbol, ast.Is | ast.IsNot) and any(type(each) in (str, int, float, tuple) for each in found):
                yield ast.unparse(node)


def test_no_value_is_compared_by_identity():
    for path in MODULES:
        code = path.read_text()
        if " is " in code:
            module = importlib.import_module(".".join(("shardc", *path.relative_to(ROOT).with_suffix("").parts)))
            assert not [*compared(code, vars(module))], path


def test_such_a_comparison_is_seen():
    names = {"RING": "ring", "NOTHING": None, "Kind": str}
    assert [*compared("a if shape is RING else b is not RING", names)] == ["shape is RING", "b is not RING"]
    assert not [*compared("shape == RING, x is None, x is NOTHING, y is Kind", names)]
