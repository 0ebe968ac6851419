"""Mutation testing: one thing in a module is changed, and the tests that come there are to see it.

    python tests/benchmark/mutate.py rules ir --sample 40 --seed 1        # forty mutants of each of two rooms
    python tests/benchmark/mutate.py ir --module exchange                 # every mutant of what is named so
    python tests/benchmark/mutate.py planner --minutes 5 --seed 2         # as many as five minutes allow

A mutant has a comparison, a constant, an operator, a condition or two arguments changed; annotations, docstrings and
messages stay. First the tests of `TESTS` run with every block noting that it was entered, so that of each test it is
known where it comes, and how long it takes; `--kept FILE` keeps that for another run. A mutant is given the tests that
come to its block, the quickest first, until `--seconds` of processor time are over; it is killed by the first that
fails, and by twice that time. A process that has loaded the tests is forked for each, and the functions are changed
there; what changes as a module is loaded, or is in no block that a test comes to, is written to a copy of the tree and
tried in a process of its own. What survives is printed with its place, to be judged: a test is missing, or the mutant
means the same.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import functools
import gc
import importlib
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from mutants import ROOT, Mutant, compiled, mutants, pairs, parsed, put

SHARED = ("grammar", "tests", "examples", "pyproject.toml", "README.md")
IN_FULL = "tests/golden/"  # whose exhaustive tests are taken too, each of one quick case that looks at all that is said
SOONER = 4  # times: they, and the room's own tests, come before others that take as long
ON_DEVICES = ("emit",)  # folders whose tests on simulated devices are taken too: there is little else
TESTS = {  # of each room: folders of tests
    "ir": "golden ir notation proving testing simulate planner",
    "rules": "golden proving testing planner simulate",
    "lowering": "golden lowering proving cost planner",
    "emit": "golden emit proving",
    "cost": "golden cost planner lowering report",
    "planner": "golden planner cost lowering simulate notation",
}
NOT_FORKED = "tests/emit/test_wrong_arguments.py"  # starts JAX's threads as it is loaded, which no fork has
OPTIONS = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers --import-mode=importlib")
MEMORY = 16 << 30  # addresses of a child: more than this is a list without an end
Reached = dict[str, list[str]]  # blocks, as module:line, and the tests that enter them


@dataclass(frozen=True)
class Seen:
    """What a run with nothing changed tells: each test's seconds, and to which blocks it comes."""

    seconds: dict[str, float]
    entered: Reached
    fails: list[str]  # with nothing changed, and so of no use

    def in_order(self, mutant: Mutant, most: float) -> list[str]:
        """The tests for a mutant that take no longer than that, the quickest first."""
        found = [test for test in self.entering(mutant) if self.seconds[test] <= most]
        return sorted(found, key=lambda test: self._counted(test, mutant))

    def of(self, mutant: Mutant, most: float) -> list[str]:
        """Those that a process of its own is given, where most of what a test took alone is in caches after another."""
        tests, spent = self.in_order(mutant, most), [0.0]
        for test in tests:
            spent.append(spent[-1] + self._counted(test, mutant))
        return [test for test, until in zip(tests, spent[1:], strict=True) if until <= most]

    def _counted(self, test: str, mutant: Mutant) -> float:
        return self.seconds[test] / SOONER ** test.startswith((IN_FULL, mutant.tests))

    def entering(self, mutant: Mutant) -> set[str]:
        """Those that come to its block; of what no function says, or one that only the loading module calls, any of the
        module's, and all of the room's own, which may look at a table and call nothing."""
        if not self.is_for_loading(mutant):
            return set(self.entered[self._block(mutant)])
        name = str(mutant.path)
        every = {test for key in self.entered if key.startswith(f"{name}:") for test in self.entered[key]}
        return every | {test for test in self.seconds if test.startswith(mutant.tests)}

    def is_for_loading(self, mutant: Mutant) -> bool:
        """Whether no test comes to its block: what is there is done as the module is loaded, if ever."""
        return mutant.is_loaded_anew or not self.entered.get(self._block(mutant))

    def _block(self, mutant: Mutant) -> str:
        inside = [first for first, last in blocks(mutant.path) if first <= mutant.line <= last]
        return f"{mutant.path}:{inside[-1]}" if inside else ""


def together(every: Sequence[Seen]) -> Seen:
    seconds = {test: taken for seen in every for test, taken in seen.seconds.items()}
    keys = {key for seen in every for key in seen.entered}
    entered = {key: [test for seen in every for test in seen.entered.get(key, [])] for key in keys}
    return Seen(seconds, entered, [test for seen in every for test in seen.fails])


def bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """The blocks of its functions: of each function, branch, loop and case what is done there."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for part in ast.walk(node):
            every = [getattr(part, name, []) for name in ("body", "orelse", "finalbody")]
            yield from (body for body in every if isinstance(body, list) and body)


@functools.cache
def blocks(path: Path) -> list[tuple[int, int]]:
    """The first and the last line of each block, outer ones first."""
    found = {(body[0].lineno, body[-1].end_lineno or 0) for body in bodies(parsed(path))}
    return sorted(found, key=lambda lines: (lines[0], -lines[1]))


def noting(path: Path) -> ast.Module:
    """The module, each block noting in `REACHED` that it was entered."""
    tree = parsed(path)
    for body in {id(body): body for body in bodies(tree)}.values():
        has_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        note = ast.parse(f"REACHED.add({f'{path}:{body[0].lineno}'!r})").body[0]
        body.insert(int(has_docstring), ast.copy_location(note, body[0]))
    return ast.fix_missing_locations(tree)


def forget() -> None:
    """What the package keeps from call to call."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper) and str(each.__module__).startswith("shardc"):
            each.cache_clear()


@dataclass
class Tried:
    """A plugin of pytest, which has loaded the tests: in the place of running them it does what is asked for."""

    rooms: Sequence[str]
    options: argparse.Namespace
    items: dict[str, Any] = field(default_factory=dict)
    ended: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.items |= {item.nodeid: item for item in items if item.nodeid.startswith(IN_FULL)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()  # what the tests have loaded is looked through for functions
        self.items |= {item.nodeid: item for item in session.items}
        for path in (path for room in TESTS for path in modules(room, [])):  # some are loaded late
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        for room in self.rooms:
            seen = together([self.seen(folder) for folder in TESTS[room].split()])
            print("".join(f"{test} fails with nothing changed\n" for test in seen.fails), end="", flush=True)
            every = [each for path in modules(room, self.options.module) for each in mutants(path)]
            drawn = random.Random(self.options.seed).sample(every, min(len(every), self.options.sample or len(every)))
            self.try_all(room, drawn, seen)
            print(f"{room}: {score(self.ended[room])}; {len(every)} mutants there are", flush=True)
        return True

    def try_all(self, room: str, drawn: list[Mutant], seen: Seen) -> None:
        start = time.monotonic()
        for mutant in drawn:
            found = self.verdict(mutant, seen)
            self.ended[room][found.partition(" by ")[0]] += 1
            print(f"{found}: {mutant}", flush=True)
            if time.monotonic() - start > 60 * self.options.minutes:
                break

    def verdict(self, mutant: Mutant, seen: Seen) -> str:
        seconds = self.options.seconds
        if seen.is_for_loading(mutant):
            tests = seen.of(mutant, seconds)
            return in_a_process(mutant, tests, int(2 * sum(map(seen.seconds.__getitem__, tests))) + 20)
        tests = seen.in_order(mutant, seconds)
        longest = max(map(seen.seconds.__getitem__, tests), default=0)
        most = int(2 * (seconds + longest)) + 5
        return forked(lambda: (mutant.put_in_place(), self.failing(tests, seconds))[1], most)

    def failing(self, tests: Sequence[str], seconds: float = math.inf) -> str | None:
        """The first that fails, of those that so many seconds allow. With what others have left in caches a test takes
        less than it did alone."""
        forget()
        start = time.process_time()
        for test, after in zip(tests, [*tests[1:], None], strict=True):
            if time.process_time() - start > seconds:
                break
            item = self.items[test]
            failed = item.session.testsfailed
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=self.items[after] if after else None)
            if item.session.testsfailed > failed:
                return test
        return None

    def seen(self, folder: str) -> Seen:
        """Of a folder of tests, with nothing changed; what is kept is not run again."""
        kept = Path(f"{self.options.kept}.{folder}.json") if self.options.kept else None
        if kept is not None and kept.exists():
            return Seen(**json.loads(kept.read_text("utf-8")))
        said = forked(lambda: json.dumps(self.noted(folder)), 3600)
        if kept is not None:
            kept.write_text(said, "utf-8")
        return Seen(**json.loads(said))

    def of_folder(self, folder: str) -> list[str]:
        with_devices = folder in ON_DEVICES
        found = [name for name in self.items if name.startswith(f"tests/{folder}/")]
        return [name for name in found if with_devices or not self.items[name].get_closest_marker("devices")]

    def noted(self, folder: str) -> dict[str, Any]:
        reached = builtins.REACHED = set[str]()  # type: ignore[attr-defined]
        for path in (path for room in TESTS for path in modules(room, [])):
            found = put(dict(pairs(compiled(parsed(path), path), compiled(noting(path), path))), path)
            assert found or not blocks(path), f"{path}: its functions are not found"
        seconds, entered, fails = dict[str, float](), defaultdict[str, list[str]](list), list[str]()
        for test in self.of_folder(folder):
            reached.clear()
            start = time.process_time()
            if self.failing([test]):
                fails.append(test)
                continue
            seconds[test] = time.process_time() - start
            for each in reached:
                entered[each].append(test)
        return {"seconds": seconds, "entered": entered, "fails": fails}


def forked(does: Any, most: int) -> str:
    """What a child says; `killed by` a test that it names, `survived` if it names none, `killed by time`."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _alone(does, write, most)
    os.close(write)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(20 * most)  # one that sleeps
    with os.fdopen(read) as pipe:
        said = pipe.read()
    signal.alarm(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return said
    return "killed by time" if code in (-signal.SIGXCPU, -signal.SIGKILL) else "killed by its end"


def _alone(does: Any, write: int, most: int) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 2))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    status = 1
    try:
        found = does()
        said = found if found and found.startswith("{") else f"killed by {found}" if found else "survived"
        with os.fdopen(write, "w") as pipe:
            pipe.write(said)
        status = 0
    finally:
        os._exit(status)


def in_a_process(mutant: Mutant, tests: Sequence[str], most: int) -> str:
    """The same in a tree that has the mutant written to it, from the start."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copytree(ROOT / "shardc", place / "shardc", ignore=shutil.ignore_patterns("__pycache__"))
        for shared in SHARED:
            (place / shared).symlink_to(ROOT / shared)
        (place / mutant.path).write_text(ast.unparse(mutant.tree), "utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "--exhaustive", *OPTIONS, "--rootdir", name, *tests]
        try:
            done = subprocess.run(
                command, cwd=place, env={**os.environ, "PYTHONPATH": name}, capture_output=True, timeout=10 * most
            )
        except subprocess.TimeoutExpired:
            return "killed by time"
    return "killed by a process" if done.returncode else "survived"


def modules(room: str, named: Sequence[str]) -> list[Path]:
    found = sorted((ROOT / "shardc" / room).rglob("*.py"))
    return [path.relative_to(ROOT) for path in found if not named or path.stem in named]


def score(ended: Counter[str]) -> str:
    tried, killed = ended.total(), ended["killed"]
    return f"{killed} of {tried} killed, {100 * killed / max(1, tried):.0f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--module", action="append", default=[], help="of files whose name has this")
    parser.add_argument("--sample", type=int, help="so many of each room, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20, help="of processor time for a mutant's tests")
    parser.add_argument("--minutes", type=float, default=1e9, help="for mutants, after the tests have run once")
    parser.add_argument("--kept", help="the file that keeps what that run found, which takes minutes itself")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    hypothesis.settings.register_profile(  # what fails need not be small
        "mutants",
        deadline=None,
        max_examples=30,
        derandomize=True,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    folders = sorted({f"tests/{name}" for room in options.rooms for name in TESTS[room].split()})
    tried = Tried(options.rooms, options)
    arguments = [*OPTIONS, "-m", "not tpu", f"--ignore={NOT_FORKED}", "--hypothesis-profile=mutants", *folders]
    status = pytest.main(arguments, plugins=[tried])
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
