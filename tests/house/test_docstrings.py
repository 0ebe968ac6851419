"""Every example of every docstring is run, and every dotted name that a docstring or a comment mentions exists."""

import ast
import doctest
import importlib
import io
import pkgutil
import re
import textwrap
import tokenize
from pathlib import Path

import jax
import pytest

import shardc
from shardc import api

pytestmark = pytest.mark.devices

ROOT = Path(shardc.__file__).parent
MODULES = ["shardc", *sorted(found.name for found in pkgutil.walk_packages([str(ROOT)], "shardc."))]
FINDER = doctest.DocTestFinder(exclude_empty=True)


def examples():
    """Every docstring with a `>>>`, of whatever stands in the package: modules, classes, methods, functions."""
    for name in MODULES:
        if name == "shardc.__main__" or ">>>" not in source_of(name):
            continue
        for test in FINDER.find(importlib.import_module(name), name):
            if test.examples:
                yield pytest.param(test, id=test.name)


def source_of(name):
    path = ROOT.joinpath(*name.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def devices():
    """Started before an example starts as many as it needs."""
    assert len(jax.devices()) == 8


@pytest.mark.page
@pytest.mark.parametrize("test", list(examples()))
def test_an_example_of_a_docstring(test):
    said = io.StringIO()
    failed, tried = doctest.DocTestRunner().run(test, out=said.write)
    assert (failed, tried) == (0, len(test.examples)), said.getvalue()


def test_an_example_that_is_wrong_is_seen():
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner().run(wrong, out=lambda _: None).failed == 1


# --- what has no example, and what only looks like one

NEEDS_A_COMPILER = {"Plan.verify", "Plan.tune"}  # libtpu, which is not everywhere: tests/tpu


def public():
    for name in shardc.__all__:
        made = getattr(shardc, name)
        if getattr(made, "__module__", "") not in ("shardc.api", "shardc.results"):
            continue
        yield name, made
        members = vars(made) if isinstance(made, type) else {}
        yield from ((f"{name}.{key}", member) for key, member in members.items() if key[0] != "_" and callable(member))


def test_every_public_function_and_method_has_an_example():
    whole = api.__doc__ + "".join(member.__doc__ or "" for _, member in public())
    lacking = [name for name, member in public() if ">>>" not in (member.__doc__ or "") and name != "Front.to_json"]
    assert set(lacking) == NEEDS_A_COMPILER and whole


def docstrings(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def unrun(docstring):
    """Indented blocks that are Python with a call in it, and are no doctest."""
    for block in re.split(r"\n\s*\n", docstring):
        lines = block.strip("\n").split("\n")
        if ">>>" in block or not all(line.startswith("    ") for line in lines):
            continue
        try:
            parsed = ast.parse(textwrap.dedent(block))
        except SyntaxError:
            continue
        if any(isinstance(node, ast.Call) for node in ast.walk(parsed)):
            yield textwrap.dedent(block)


@pytest.mark.page
@pytest.mark.parametrize("name", MODULES)
def test_an_example_in_python_can_be_run(name):
    assert [block for text in docstrings(source_of(name)) for block in unrun(text)] == []


def test_an_example_that_cannot_be_run_is_seen():
    assert list(unrun("Words.\n\n    with jax.set_mesh(mesh):\n        y = f(x)\n")) != []
    assert list(unrun("Words.\n\n    A[I, J] · B[J, K] → C[I, K]\n")) == []


# --- names

DOTTED = re.compile(r"(?<![\w.])(?:jax|jnp|np|numpy|shardc)(?:\.[A-Za-z_]\w*)+")
FILES = [*sorted(ROOT.rglob("*.py")), *sorted(Path(__file__).parents[1].rglob("*.py"))]


def mentioned(text):
    """The dotted names in comments and in docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from DOTTED.findall(token.string)
    for docstring in docstrings(text):
        yield from DOTTED.findall(docstring)


def exists(name):
    first, *rest = name.split(".")
    path = {"jnp": "jax.numpy", "np": "numpy"}.get(first, first)
    found = importlib.import_module(path)
    for part in rest:
        path = f"{path}.{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(path)
            except ImportError:
                return False
        found = getattr(found, part, None) or importlib.import_module(path)
    return True


@pytest.mark.page
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_name_that_is_mentioned_exists(path):
    names = {name.removesuffix("s") if not exists(name) else name for name in mentioned(path.read_text("utf-8"))}
    assert {name for name in names if not exists(name)} == set()


def test_a_name_that_does_not_exist_is_seen():
    text = 'def f():\n    """As jax.setmesh_of says."""\n    # np.no_such_thing and jax.set_mesh\n'
    assert {name for name in mentioned(text) if not exists(name)} == {"jax.setmesh_of", "np.no_such_thing"}
