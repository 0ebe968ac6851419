"""Mutation testing: one thing in a module is changed, and the tests that come there are to see it.

    python tests/benchmark/mutate.py rules ir --sample 40 --seed 1        # forty mutants of each of two rooms
    python tests/benchmark/mutate.py ir --module exchange                 # every mutant of what is named so
    python tests/benchmark/mutate.py planner --minutes 5 --seed 2         # as many as five minutes allow
    python tests/benchmark/mutate.py rules --again printed --seconds 60   # those that survived, with more tests

A mutant has a comparison, a constant, an operator, a condition or two arguments changed; annotations, docstrings and
messages stay. First the tests of `TESTS` run with every block noting that it was entered, so that of each test it is
known where it comes, and how long it takes: one case of each test first, and of the `--minutes` that a room has for at
most half; `--kept FILE` keeps what was seen, and another run goes on from there. It is of no use once modules that it
tells of have changed. A mutant is given the tests that come to its block, the quickest first, until `--seconds` of
processor time are over; where few tests were seen, more survive than would with all. It is killed by the first that
fails, and by twice that time. A process that has loaded the tests is forked for each, and the functions are changed
there; what changes as a module is loaded, or is in no block that a test comes to, is written to a copy of the tree and
tried in a process of its own. What survives is printed with its place, to be judged: a test is missing, or the mutant
means the same.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import ctypes
import functools
import gc
import importlib
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

import hypothesis
import pytest
from mutants import ROOT, Mutant, compiled, functions, mutants, pairs, parsed, put
from seen import IN_FULL, Seen, Test, add, blocks, caches, forget, in_turn, noting, of_use, read, sum_of, test_of

SHARED = ("grammar", "tests", "examples", "pyproject.toml", "README.md")
ON_DEVICES = ("emit",)  # folders whose tests on simulated devices are taken too: there is little else
TESTS = {  # of each room: folders of tests
    "ir": "golden ir notation proving testing simulate planner",
    "rules": "golden proving testing planner simulate",
    "lowering": "golden lowering proving cost planner",
    "emit": "golden emit proving lowering",
    "cost": "golden cost planner lowering report",
    "planner": "golden planner cost lowering simulate notation",
}
NOT_FORKED = "tests/emit/test_wrong_arguments.py"  # starts JAX's threads as it is loaded, which no fork has
OPTIONS = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers --import-mode=importlib")
SURVIVED = "survived"
MEMORY = 16 << 30  # addresses of a child: more than this is a list without an end
WITH_ITS_PARENT = 1  # of prctl: a signal that comes as the parent ends, however that ends


@dataclass
class Tried:
    """A plugin of pytest, which has loaded the tests: in the place of running them it does what is asked for."""

    rooms: Sequence[str]
    options: argparse.Namespace
    items: dict[str, Any] = field(default_factory=dict)
    ended: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    functions: dict[str, list[FunctionType]] = field(default_factory=dict)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.items |= {item.nodeid: item for item in items if item.nodeid.startswith(IN_FULL)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()  # what the tests have loaded is looked through for functions
        self.items |= {item.nodeid: item for item in session.items}
        for path in (path for room in TESTS for path in modules(room, [])):  # some are loaded late
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        caches()
        self.functions = functions()
        gc.collect()
        gc.freeze()  # so that no child copies what it does not change
        for room in self.rooms:
            start = time.monotonic()
            tests = self.seen(room, start)
            every = [each for path in modules(room, self.options.module) for each in mutants(path)]
            every = [each for each in every if self.options.again is None or survived(each) in self.options.again]
            drawn = random.Random(self.options.seed).sample(every, min(len(every), self.options.sample or len(every)))
            self.try_all(room, drawn, of_use(tests), start)
            known = f"{len(tests)} of {len(self.of_room(room))} tests were seen"
            print(f"{room}: {score(self.ended[room])}; {len(every)} mutants there are; {known}", flush=True)
        return True

    def try_all(self, room: str, drawn: list[Mutant], seen: Seen, start: float) -> None:
        for mutant in drawn:
            found = self.verdict(mutant, seen)
            self.ended[room][found.partition(" by ")[0]] += 1
            print(survived(mutant) if found == SURVIVED else f"{found}: {mutant}", flush=True)
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
        return forked(lambda: (mutant.put_in_place(self.functions), self.failing(tests, seconds))[1], most)

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

    def seen(self, room: str, start: float) -> list[Test]:
        """Of a room's tests those that are known by now: what is kept is not run again, and of the minutes that there
        are the others are given half, so that mutants have the rest."""
        kept, names = self.options.kept, self.of_room(room)
        known = read(kept)
        left = in_turn([name for name in names if name not in known], (IN_FULL, f"tests/{room}/"))
        taken = {test_of(name): test.seconds for name, test in known.items()}
        left.sort(
            key=lambda name: taken.get(test_of(name), -1)
        )  # further cases of what was quick before those of others
        while left and time.monotonic() - start < 30 * self.options.minutes:
            forked(functools.partial(self.note, left, start), 36_000)
            known = read(kept)
            crashed = next((name for name in left if name not in known), None)
            if crashed is not None and time.monotonic() - start < 30 * self.options.minutes:
                add(kept, Test(crashed, 0, [], False, sum_of(crashed)))
            left = [name for name in left if name not in known and name != crashed]
        found = [known[name] for name in names if name in known]
        print("".join(f"{test.name} is of no use\n" for test in found if not test.is_of_use), end="", flush=True)
        return found

    def of_room(self, room: str) -> list[str]:
        return [name for folder in TESTS[room].split() for name in self.of_folder(folder)]

    def of_folder(self, folder: str) -> list[str]:
        with_devices = folder in ON_DEVICES
        found = [name for name in self.items if name.startswith(f"tests/{folder}/")]
        return [name for name in found if with_devices or not self.items[name].get_closest_marker("devices")]

    def note(self, tests: Sequence[str], start: float) -> None:
        """Each test alone, while there is time, with every block noting that it was entered."""
        reached = builtins.REACHED = set[str]()  # type: ignore[attr-defined]
        for path in (path for room in TESTS for path in modules(room, [])):
            found = put(dict(pairs(compiled(parsed(path), path), compiled(noting(path), path))), path, self.functions)
            assert found or not blocks(path), f"{path}: its functions are not found"
        signal.signal(signal.SIGVTALRM, ended_as_too_long)
        for test in tests:
            if time.monotonic() - start > 30 * self.options.minutes:
                break
            reached.clear()
            before = time.process_time()
            signal.setitimer(signal.ITIMER_VIRTUAL, self.options.seconds)
            fails = self.failing([test]) is not None
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            taken = time.process_time() - before
            add(self.options.kept, Test(test, taken, sorted(reached), not fails, sum_of(test)))


class TooLongError(BaseException):
    """A test takes longer than any mutant's tests may together."""


def ended_as_too_long(*_: Any) -> None:
    raise TooLongError


def end_with(parent: int) -> None:
    """This process ends when its parent does, even where that is killed: on Linux, which alone has a means."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(WITH_ITS_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def forked(does: Any, most: int) -> str:
    """What a child says; `killed by` a test that it names, `survived` if it names none, `killed by time`."""
    out, write = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        end_with(parent)
        os.close(out)
        _alone(does, write, most)
    os.close(write)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(20 * most)  # one that sleeps
    with os.fdopen(out) as pipe:
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
        said = f"killed by {found}" if found else SURVIVED
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
                command,
                cwd=place,
                env={**os.environ, "PYTHONPATH": name},
                capture_output=True,
                timeout=10 * most,
                preexec_fn=functools.partial(end_with, os.getpid()),
            )
        except subprocess.TimeoutExpired:
            return "killed by time"
    return "killed by a process" if done.returncode else SURVIVED


def survived(mutant: Mutant) -> str:
    """The line that is printed of it."""
    return f"{SURVIVED}: {mutant}"


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
    parser.add_argument(
        "--again", type=argparse.FileType(), help="those alone that this file, which a run printed, says survived"
    )
    parser.add_argument("--sample", type=int, help="so many of each room, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20, help="of processor time for a mutant's tests")
    parser.add_argument("--minutes", type=float, default=1e9, help="of each room, half of them to see where tests come")
    parser.add_argument("--kept", type=Path, help="the file that keeps where tests come, from run to run")
    options = parser.parse_args()
    options.kept = options.kept and options.kept.resolve()
    options.again = options.again and options.again.read()
    with tempfile.TemporaryDirectory() as place:
        options.kept = options.kept or Path(place, "kept")
        return tried(options)


def tried(options: argparse.Namespace) -> int:
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
    arguments = [*OPTIONS, "-m", "not tpu", f"--ignore={NOT_FORKED}", "--hypothesis-profile=mutants", *folders]
    status = pytest.main(arguments, plugins=[Tried(options.rooms, options)])
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
