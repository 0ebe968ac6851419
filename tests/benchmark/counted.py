"""The work of planning, counted: how often its functions are called, and what the prices and bounds are that they find.

Nothing is timed, so that a plan that takes more to find is seen wherever it is looked for. What is summed tells of a
price or a bound that changed where nothing else did: not of the cheapest way, but of another.
"""

from __future__ import annotations

import cProfile
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import shardc
from shardc.planner.budget import Meter
from shardc.planner.digits.bounds import MovesBound
from shardc.planner.paths.search import Search
from shardc.planner.problem import Problem
from shardc.planner.products.ways import Towards
from shardc.planner.whole import plan as whole
from shardc.planner.whole.prices import NEVER

PACKAGE = f"{Path(shardc.__file__).parent}/"
COUNTED = {  # what is counted, each time that this function is called
    "plans": "planner/program/loops.py AtOnce.__call__",
    "programs seen anew": "planner/program/finer.py Finer._tried",
    "tables": "planner/statement/nodes.py table_of",
    "entries of tables": "planner/paths/tables.py Table.add",
    "tables spread": "planner/paths/tables.py Table._spread",
    "searches": "planner/paths/run.py Run.paths",
    "shardings settled": "planner/paths/run.py Run._successors",
    "shardings met": "planner/paths/run.py Run._meet",
    "paths kept": "planner/paths/run.py Run._keep",
    "moves found": "planner/paths/graph.py Graph._edge",
    "ends compared": "planner/paths/graph.py Graph._compared",
    "pairs bounded": "planner/paths/search.py Search._bound_at",
    "routes": "planner/paths/graph.py EdgeCosts.route",
    "routes along": "planner/paths/graph.py EdgeCosts.along",
    "routes priced": "planner/paths/search.py Search._price_along",
    "products priced": "planner/problem.py Problem.product_price",
    "ways moved": "planner/products/ways.py Towards._priced",
    "ways placed": "planner/products/placing.py _Placing._price",
    "digits bounded": "planner/digits/products.py _bounded",
    "digits priced": "planner/digits/products.py _Task.priced",
    "moves in digits bounded": "planner/digits/bounds.py MovesBound.bound",
    "strategies kept": "planner/statement/strategies.py _Strategies._push",
    "strategies met": "planner/statement/strategies.py _Strategies._meet",
    "steps built": "planner/statement/build.py Builder.append",
    "chains of moves": "planner/program/directly.py chains",
    "orders": "planner/whole/rewrites.py Rewritten.of",
    "nodes": "planner/whole/nodes.py Nodes.node",
    "tables between nodes": "planner/whole/nodes.py Nodes.add",
    "nodes eliminated": "planner/whole/eliminate.py _without",
    "nodes shared": "planner/whole/prune.py _Shared._handed_on",
    "prices closed": "planner/whole/prices.py _close",
    "local products": "rules/products.py local_product",
    "arrangements": "rules/placements.py arrangements",
    "exchanges": "rules/moves.py exchange",
    "layouts compared": "rules/routes.py _less",
}
ROOMS = ("planner", "rules")  # whose calls are counted all together
MORE = 0.04  # of these that may come or go unnoticed
SUMMED: dict[str, tuple[Any, str]] = {  # of what is summed, by which method it is found
    "sum of bounds of paths": (Search, "_bound_at"),
    "sum of prices of routes": (Search, "price_of"),
    "sum of prices of products": (Problem, "product_price"),
    "sum of bounds in digits": (MovesBound, "bound"),
    "sum of bounds of ways": (Towards, "_bounds"),
}
PRIME = 999_999_937  # modulo which prices are summed
INLINED = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>")  # the latter by later Pythons
LABELS = {function: label for label, function in COUNTED.items()}


@contextmanager
def counted(dear: int) -> Iterator[Counter[str]]:
    """The work that is done meanwhile. Each unit is paid so many times over, so that the budget of a small program ends
    as a large one's does."""
    work, profile = Counter[str](), cProfile.Profile(subcalls=False, builtins=False)
    with _watched(work, dear):
        profile.enable()
        try:
            yield work
        finally:
            profile.disable()
    for entry in profile.getstats():  # type: ignore[attr-defined]
        place, name = _place(entry.code)
        if place.startswith(ROOMS) and name not in INLINED:
            work["calls"] += entry.callcount
            work.update({LABELS[f"{place} {name}"]: entry.callcount} if f"{place} {name}" in LABELS else {})


def _place(code: Any) -> tuple[str, str]:
    """A function's module within the package, and its name; of what is built in none."""
    file = "" if isinstance(code, str) else code.co_filename
    return (file.removeprefix(PACKAGE), code.co_qualname) if file.startswith(PACKAGE) else ("", "")


@contextmanager
def _watched(work: Counter[str], dear: int) -> Iterator[None]:
    """What is paid, what is left to be eliminated, and what is summed, is noted."""
    instead: list[tuple[Any, str, Any]] = [(Meter, "pay", _paying(work, dear))]
    instead += [(whole, name, _tables(work, name)) for name in ("solve", "solve_pruned")]
    instead += [(owner, name, _adding(work, label, owner, name)) for label, (owner, name) in SUMMED.items()]
    were = [(owner, name, getattr(owner, name)) for owner, name, _ in instead]
    for owner, name, does in instead:
        setattr(owner, name, does)
    try:
        yield
    finally:
        for owner, name, did in were:
            setattr(owner, name, did)


def _paying(work: Counter[str], dear: int) -> Callable[..., None]:
    pay = Meter.pay

    def paying(self: Meter, units: int) -> None:
        work["units"] += units
        pay(self, units * dear)

    return paying


def _tables(work: Counter[str], name: str) -> Callable[..., Any]:
    does = getattr(whole, name)

    @functools.wraps(does)
    def counting(sizes: Any, factors: Any, *rest: Any, **more: Any) -> Any:
        for table in (factor.table for factor in factors):
            work[f"entries to {name}"] += table.size
            _add(work, f"sum of prices to {name}", int(table[table < NEVER].sum()))
        return does(sizes, factors, *rest, **more)

    return counting


def _adding(work: Counter[str], label: str, owner: Any, name: str) -> Callable[..., Any]:
    does = getattr(owner, name)

    @functools.wraps(does)
    def adding(*given: Any, **named: Any) -> Any:
        found = does(*given, **named)
        _add(work, label, sum(found) if isinstance(found, list) else -1 if found is None else found)
        return found

    return adding


def _add(work: Counter[str], label: str, price: int) -> None:
    work[label] = (work[label] + price) % PRIME
