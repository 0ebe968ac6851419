"""Mutation testing: one thing in a module is changed, and the room's own tests are to see it.

    python tests/benchmark/mutate.py rules ir --sample 40 --seed 1        # forty mutants of two rooms
    python tests/benchmark/mutate.py --module shardc/ir/exchange.py       # every mutant of a module
    python tests/benchmark/mutate.py planner --minutes 5 --seed 2         # as many as five minutes allow

A mutant has a comparison, a constant, an operator, a condition or two arguments changed; annotations, docstrings and
messages stay. It is written to a copy of the tree, in a process that has JAX and pytest loaded already, and the tests
of `TESTS` run until one fails, `--seconds` of processor time at the most: one that never ends is killed as well. First
they are seen to pass with nothing changed. What survives is printed with its place, to be judged: a test is missing, or
the mutant means the same.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHARED = ("grammar", "tests", "examples", "pyproject.toml", "README.md")


def _of(room: str, names: str) -> tuple[str, ...]:
    return tuple(f"tests/{room}/test_{name}.py" for name in names.split())


TESTS = {  # of each room, the quickest first
    "ir": ("tests/ir", "tests/proving", "tests/testing/test_checkers.py", "tests/simulate/test_steps.py"),
    "rules": ("tests/proving", "tests/testing", "tests/planner/test_laws.py", "tests/planner/test_exchange.py"),
    "lowering": ("tests/proving/test_passes.py", *_of("lowering", "scatters tpu fusion lower")),
    "emit": ("tests/proving", *_of("emit", "text allowed uneven wrong_arguments seeded_bugs transforms")),
    "cost": (
        *_of("cost", "together book_costs allocation received carried ways alone cost memory"),
        *_of("planner", "laws overlap"),
    ),
    "planner": _of(
        "planner", "triples shared seeded_bugs whole_cuts whole_run whole_loops bounds uneven search laws planner"
    ),
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Pow: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
_ENDED = {0: "survived", -signal.SIGXCPU: "killed by time"}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
Change = Callable[[Any], None]


@dataclass(frozen=True)
class Mutant:
    """One changed thing of a module: which node in order, what is done to it, and the line as it was."""

    path: Path
    node: int
    kind: str
    line: int
    was: str

    @property
    def text(self) -> str:
        """The module, changed."""
        tree = ast.parse((ROOT / self.path).read_text("utf-8"))
        node = next(other for place, other in enumerate(ast.walk(tree)) if place == self.node)
        dict(_changes(node))[self.kind](node)
        return ast.unparse(ast.fix_missing_locations(tree))

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.was}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a module."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    left_out = {id(part) for node in ast.walk(tree) for part in _left_out(node)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in left_out:
            continue
        for kind, _ in _changes(node):
            yield Mutant(path, number, kind, getattr(node, "lineno", 0), ast.unparse(node)[:80])


def _left_out(node: ast.AST) -> Iterator[ast.AST]:
    """Annotations, decorators, docstrings, messages, types, and what is asserted."""
    parts: list[ast.AST | None] = []
    match node:
        case ast.FunctionDef():
            parts = [node.returns, *node.decorator_list]
        case ast.ClassDef():
            parts = list(node.decorator_list)
        case ast.arg() | ast.AnnAssign():
            parts = [node.annotation]
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            parts = [node]
        case ast.Expr(value=ast.Constant()):
            parts = [node]
        case ast.keyword(arg="strict" | "maxsize"):
            parts = [node]
    for part in parts:
        yield from () if part is None else ast.walk(part)


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            yield "comparison", _set("ops", lambda _: [_COMPARED[type(op)]()])
        case ast.Constant(value=bool(value)):
            yield "constant", _set("value", lambda _: not value)
        case ast.Constant(value=int(value)):
            yield "constant", _set("value", lambda _: value + 1)
        case ast.BinOp(op=op) if type(op) in _COMPUTED:
            yield "operator", _set("op", lambda _: _COMPUTED[type(op)]())
        case ast.BoolOp(op=op):
            yield "operator", _set("op", lambda _: ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield "operator", _set("op", lambda _: ast.UAdd())
        case ast.If() | ast.IfExp():
            yield "condition", _set("test", lambda old: ast.UnaryOp(ast.Not(), old))
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            yield "function", _set("func", lambda _: ast.Name(_CALLED[name], ast.Load()))
        case ast.Call(args=[_, _, *_]):
            yield "arguments", _set("args", lambda old: [old[1], old[0], *old[2:]])


def _set(field: str, value: Callable[[Any], Any]) -> Change:
    return lambda node: setattr(node, field, value(getattr(node, field)))


def tree_of(place: Path) -> None:
    """A copy of the package, beside what its tests read."""
    shutil.copytree(ROOT / "shardc", place / "shardc", ignore=shutil.ignore_patterns("__pycache__"))
    for name in SHARED:
        (place / name).symlink_to(ROOT / name)


def verdict(mutant: Mutant, place: Path, tests: Sequence[str], seconds: int) -> str:
    """Of one mutant, the tree left as it was."""
    target = place / mutant.path
    target.write_text(mutant.text, "utf-8")
    try:
        return tested(place, tests, seconds)
    finally:
        target.write_text((ROOT / mutant.path).read_text("utf-8"), "utf-8")


def tested(place: Path, tests: Sequence[str], seconds: int) -> str:
    """`killed` by a test, `killed by time`, or `survived`."""
    child = os.fork()
    if child == 0:
        _run(place, tests, seconds)
    return _waited(child, 10 * seconds)


def _run(place: Path, tests: Sequence[str], seconds: int) -> None:
    """In a child: pytest on the changed tree, in silence."""
    os.setpgrp()
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.chdir(place)
    sys.path.insert(0, str(place))
    os.environ["PYTHONPATH"] = str(place)
    import pytest

    options = ["-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", "--rootdir", str(place)]
    options += ["-o", "addopts=--strict-markers --import-mode=importlib", "--hypothesis-seed=0"]
    os._exit(int(pytest.main([*options, *tests])))


def _waited(child: int, most: int) -> str:
    """`most`: seconds of waiting, for one that sleeps; its time to compute is limited where it runs."""
    end = time.monotonic() + most
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return _ENDED.get(os.waitstatus_to_exitcode(status), "killed")
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "killed by time"


def modules(rooms: Sequence[str], named: Sequence[str]) -> list[Path]:
    found = [path for room in rooms for path in sorted((ROOT / "shardc" / room).rglob("*.py"))]
    return [path.relative_to(ROOT) for path in found] + [Path(name) for name in named]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", choices=sorted(TESTS))
    parser.add_argument("--module", action="append", default=[])
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--minutes", type=float, default=1e9)
    options = parser.parse_args()
    every = [mutant for path in modules(options.rooms, options.module) for mutant in mutants(path)]
    drawn = random.Random(options.seed).sample(every, min(len(every), options.sample or len(every)))
    import hypothesis  # noqa: F401  # loaded once, for every child
    import jax  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401

    counted, start = Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        tree_of(place)
        for room in sorted({mutant.path.parts[1] for mutant in drawn}):
            assert tested(place, TESTS[room], 3 * options.seconds) == "survived", f"the tests of {room} do not pass"
        for mutant in drawn:
            found = verdict(mutant, place, TESTS[mutant.path.parts[1]], options.seconds)
            counted[found] += 1
            print(f"{found}: {mutant}", flush=True)
            if time.monotonic() - start > 60 * options.minutes:
                break
    tried, killed = counted.total(), counted.total() - counted["survived"]
    print(f"{killed} of {tried} killed, {100 * killed / max(1, tried):.0f} %; {len(every)} mutants there are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
