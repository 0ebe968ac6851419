"""The planner's floors and folders: how long its longest chain of imports is, and that folders import one way."""

from __future__ import annotations

import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_imports import ROOT, imported_modules, name_of

MOST = 8


def texts() -> dict[str, str]:
    """The planner's modules; those that only re-export are no floor."""
    paths = [path for path in (ROOT / "planner").rglob("*.py") if path.name != "__init__.py"]
    return {name_of(path): path.read_text(encoding="utf-8") for path in paths}


def longest_chain(found: dict[str, str]) -> list[str]:
    """Each imports the one before."""
    known = set(found)

    @cache
    def below(name: str) -> tuple[str, ...]:
        others = imported_modules(found[name], known) - {name}
        return (*max((below(other) for other in others), key=len, default=()), name)

    return list(max(map(below, found), key=len))


def folder_of(name: str) -> str:
    """A folder, or a module that lies beside the folders."""
    return ".".join(name.split(".")[:3])


def folders_in_order(found: dict[str, str]) -> list[str]:
    """Each behind those that it imports; CycleError for a circle."""
    known, above = set(found), dict[str, set[str]]()
    for name, text in found.items():
        above.setdefault(folder_of(name), set()).update(map(folder_of, imported_modules(text, known)))
    return list(TopologicalSorter({name: others - {name} for name, others in above.items()}).static_order())


def test_the_planner_has_no_more_floors_than_are_known():
    chain = longest_chain(texts())
    print(*chain, sep="\n")
    assert len(chain) <= MOST, chain


def test_a_floor_more_is_seen():
    found = texts()
    top = longest_chain(found)[-1]
    planted = {"shardc.planner.above": f"from {top} import plan_program\n"}
    assert len(longest_chain(found | planted)) == len(longest_chain(found)) + 1


def test_the_planners_folders_import_one_way():
    found = texts()
    assert folders_in_order(found)[-1] == "shardc.planner.program"
    graph = "shardc.planner.paths.graph"
    with pytest.raises(CycleError):
        folders_in_order(found | {graph: found[graph] + "\nfrom shardc.planner.statement.nodes import table_of\n"})
