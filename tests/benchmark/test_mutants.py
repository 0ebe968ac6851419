"""Which mutants a module has, which are none, and in which order the tests are tried that are to kill them."""

import importlib
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def mutants():
    return loaded("mutants")


@pytest.fixture(scope="module")
def seen():
    return loaded("seen")


def loaded(name):
    """A module of this folder, whose own modules it finds beside it."""
    sys.path.insert(0, str(HERE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(HERE))


def said(mutants, tmp_path, monkeypatch, text):
    """Of each mutant of a text its kind, and the line that became another."""
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "one.py").write_text(text, encoding="utf-8")
    before = mutants.ast.unparse(mutants.parsed(Path("one.py"))).splitlines()
    for each in mutants.mutants(Path("one.py")):
        after = mutants.ast.unparse(each.tree).splitlines()
        yield each.kind, next(now.strip() for was, now in zip(before, after, strict=True) if was != now)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("a = b < c", [("comparison", "a = b <= c")]),
        ("a = b not in c", [("comparison", "a = b in c")]),
        ("a = b // 2", [("operator", "a = b * 2"), ("constant", "a = b // 3")]),
        ("a = b and c", [("operator", "a = b or c")]),
        ("a = not b", [("operator", "a = +b")]),
        ("a = True", [("constant", "a = False")]),
        ("a = b if c else d", [("condition", "a = b if not c else d")]),
        ("if b:\n    a()", [("condition", "if not b:")]),
        ("a = min(b, c)", [("function", "a = max(b, c)")]),
        ("a = f(b, c)", [("arguments", "a = f(c, b)")]),
        ("a = math.lcm(b, c, d)", [("arguments", "a = math.lcm(c, b, d)")]),
    ],
)
def test_one_thing_is_changed(mutants, tmp_path, monkeypatch, text, changed):
    assert list(said(mutants, tmp_path, monkeypatch, text)) == changed


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "a = f(b, b)",
        "a = np.minimum(b, c)",
        "a = np.multiply(b, c)",
        "np.add(a, b, out=c)",
        "a = math.lcm(b, c)",
        "a: Literal[1] = b",
        "raise Fault(1 < 2)",
        "assert a < 1",
        "@cache(maxsize=2)\ndef f(): pass",
        "a = zip(b, strict=True)",
        "if TYPE_CHECKING:\n    import a",
    ],
)
def test_what_no_test_could_tell_or_nothing_promises_is_no_mutant(mutants, tmp_path, monkeypatch, text):
    assert list(said(mutants, tmp_path, monkeypatch, text)) == []


def test_one_case_of_each_test_is_seen_before_a_second(seen):
    names = ["tests/b/t.py::f[1]", "tests/b/t.py::f[2]", "tests/b/t.py::g", "tests/a/t.py::h[1]", "tests/a/t.py::h[2]"]
    assert seen.in_turn(names, ("tests/a/",)) == [names[3], names[0], names[2], names[4], names[1]]


def test_what_is_kept_of_a_test_counts_while_its_file_is_as_it_was(seen, tmp_path, monkeypatch):
    monkeypatch.setattr(seen, "ROOT", tmp_path)
    kept, name = tmp_path / "kept", "t.py::f"
    (tmp_path / "t.py").write_text("1", encoding="utf-8")
    seen.add(kept, seen.Test(name, 0.5, ["one.py:3"], True, seen.sum_of(name)))
    seen.add(kept, seen.Test("t.py::fails", 0.5, ["one.py:3"], False, seen.sum_of(name)))
    known = seen.read(kept)
    assert set(known) == {name, "t.py::fails"}
    assert seen.of_use(list(known.values())) == seen.Seen({name: 0.5}, {"one.py:3": [name]})
    seen._sum.cache_clear()
    (tmp_path / "t.py").write_text("2", encoding="utf-8")
    assert seen.read(kept) == {}


@pytest.mark.instant
def test_what_is_like_others_comes_later_than_its_time_alone_says(mutants, seen, tmp_path, monkeypatch):
    """As one more case of a test does, and one that comes to the blocks to which others come."""
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(seen, "ROOT", tmp_path)
    path = Path("shardc", "ir", "one.py")
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("def f():\n    return 1\n\ndef g():\n    pass\n", encoding="utf-8")
    seen.blocks.cache_clear()
    seconds = {f"t.py::many[{n}]": 1.0 + n / 100 for n in range(5)}
    seconds |= {"t.py::one": 1.9, "t.py::apart": 2.9, "t.py::long": 9.0}
    (mutant,) = mutants.mutants(path)
    order = seen.Seen(seconds, {f"{path}:2": [*seconds], f"{path}:5": ["t.py::apart"]}).in_order(mutant, 5)
    wanted = ("many[0]", "many[1]", "apart", "many[2]", "many[3]", "one", "many[4]")
    assert order == [f"t.py::{name}" for name in wanted]
