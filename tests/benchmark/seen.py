"""To which blocks of the code each test comes, and how long it takes: what a run with nothing changed tells."""

from __future__ import annotations

import ast
import functools
import gc
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

from mutants import ROOT, Mutant, parsed

IN_FULL = "tests/golden/"  # whose exhaustive tests are taken too, each of one quick case that looks at all that is said
SOONER = 4  # times: they, and the room's own tests, come before others that take as long


@dataclass(frozen=True)
class Test:
    """One test, with nothing changed. One that fails is of no use, and neither is one that was ended as too long."""

    name: str
    seconds: float
    entered: list[str]  # blocks, as module:line
    is_of_use: bool
    file: int  # a sum of its text, by which it is known whether it is still the same

    @property
    def is_as_it_was(self) -> bool:
        return self.file == sum_of(self.name)


@functools.cache
def _sum(path: Path) -> int:
    return crc32(path.read_bytes()) if path.exists() else 0


def sum_of(test: str) -> int:
    return _sum(ROOT / test.partition("::")[0])


def read(kept: Path) -> dict[str, Test]:
    """What is kept of tests whose files are as they were, one a line."""
    lines = kept.read_text("utf-8").splitlines() if kept.exists() else []
    every = [Test(**json.loads(line)) for line in lines]
    return {test.name: test for test in every if test.is_as_it_was}


def add(kept: Path, test: Test) -> None:
    with kept.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(test)) + "\n")


def test_of(name: str) -> str:
    return name.partition("[")[0]


def in_turn(names: Sequence[str], sooner: tuple[str, ...]) -> list[str]:
    """First one case of each test, then a second, so that where it ends early all have come as far."""
    cases: dict[str, int] = defaultdict(int)
    ranked = list[tuple[int, bool, str]]()
    for name in names:
        ranked.append((cases[test_of(name)], not name.startswith(sooner), name))
        cases[test_of(name)] += 1
    return [name for *_, name in sorted(ranked, key=lambda each: each[:2])]


def of_use(tests: Sequence[Test]) -> Seen:
    entered = defaultdict[str, list[str]](list)
    for test in (test for test in tests if test.is_of_use):
        for block in test.entered:
            entered[block].append(test.name)
    return Seen({test.name: test.seconds for test in tests if test.is_of_use}, dict(entered))


@dataclass(frozen=True)
class Seen:
    """Of tests that are of use: the seconds of each, and which come to a block."""

    seconds: dict[str, float]
    entered: dict[str, list[str]]

    def in_order(self, mutant: Mutant, most: float) -> list[str]:
        """The tests for a mutant that take no longer than that, the quickest first. The n-th case of one test counts as
        √n times as long, and so does the n-th that comes to the same blocks of the module, so that many quick ones
        which see the same do not take the time that others would have. Cases of a table are programs of all kinds, so
        that of these only the second holds."""
        found = [test for test in self.entering(mutant) if self.seconds[test] <= most]
        comes_to = self._of_module(mutant)
        cases, alike, counted = Counter[str](), Counter[frozenset[str]](), dict[str, float]()
        for test in sorted(found, key=lambda test: (self._counted(test, mutant), test)):
            cases[test_of(test)] += not test.startswith(IN_FULL)
            alike[comes_to[test]] += 1
            times = max(1, cases[test_of(test)]) * alike[comes_to[test]]
            counted[test] = self._counted(test, mutant) * math.sqrt(times)
        return sorted(found, key=lambda test: (counted[test], test))

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

    def _of_module(self, mutant: Mutant) -> dict[str, frozenset[str]]:
        """Of each test the blocks of the mutant's module to which it comes."""
        found: dict[str, set[str]] = {test: set() for test in self.seconds}
        for block in (block for block in self.entered if block.startswith(f"{mutant.path}:")):
            for test in self.entered[block]:
                found[test].add(block)
        return {test: frozenset(blocks) for test, blocks in found.items()}

    def _block(self, mutant: Mutant) -> str:
        inside = [first for first, last in blocks(mutant.path) if first <= mutant.line <= last]
        return f"{mutant.path}:{inside[-1]}" if inside else ""


def bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Of each function, branch, loop and case what is done there."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for part in ast.walk(node):
            every = [getattr(part, name, []) for name in ("body", "orelse", "finalbody")]
            yield from (body for body in every if isinstance(body, list) and body)


def starts(body: Sequence[ast.stmt]) -> list[int]:
    """Where a block begins in a body: at its first statement, and after each that may leave it, as a guard does."""
    return [0, *(place for place, before in enumerate(body[:-1], 1) if may_leave(before))]


def may_leave(statement: ast.stmt) -> bool:
    return any(isinstance(part, ast.Return | ast.Raise | ast.Continue | ast.Break) for part in ast.walk(statement))


@functools.cache
def blocks(path: Path) -> list[tuple[int, int]]:
    """The first and the last line of each block, outer ones first."""
    every = [(body[start], body[-1]) for body in bodies(parsed(path)) for start in starts(body)]
    found = {(first.lineno, last.end_lineno or 0) for first, last in every}
    return sorted(found, key=lambda lines: (lines[0], -lines[1]))


def noting(path: Path) -> ast.Module:
    """The module, each block noting in `REACHED` that it was entered."""
    tree = parsed(path)
    for body in {id(body): body for body in bodies(tree)}.values():
        has_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        for start in reversed(starts(body)):
            note = ast.parse(f"REACHED.add({f'{path}:{body[start].lineno}'!r})").body[0]
            body.insert(start or int(has_docstring), ast.copy_location(note, body[start]))
    return ast.fix_missing_locations(tree)


@functools.cache
def caches() -> list[functools._lru_cache_wrapper]:
    """Of the package, those of all its modules' functions."""
    every = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
    return [each for each in every if str(each.__module__).startswith("shardc")]


def forget() -> None:
    """What the package keeps from call to call."""
    for each in caches():
        each.cache_clear()
