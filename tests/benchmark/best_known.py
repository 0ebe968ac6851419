"""The best plans known of drawn programs, and the work of finding them: `tests/golden/best_known.json`.

    python tests/benchmark/best_known.py               # what differs from the table now, case by case
    python tests/benchmark/best_known.py --write       # the same, and the table is written: a plan got cheaper
    python tests/benchmark/best_known.py --draw 3000 --seed 1    # other cases, of so many that are drawn

Of each case the table has price, memory, bound, gap, steps with their rules, forms, other strategies, a hash of the
source, or the refusal in full; and the work: units of the budget, what `COUNTED` names, and all calls of functions.
None of it is timed, so that it is the same everywhere. The cases are those of all that are drawn which come to the most
parts of the code in the least time (`chosen.py`).
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cache_keys import forget

import shardc
from shardc.cost.model import picoseconds
from shardc.ir.legal import faults_of
from shardc.lowering.lower import lower
from shardc.lowering.spell import print_lowering
from shardc.planner.budget import Meter
from shardc.planner.planned import gaps_of
from shardc.planner.whole import plan as whole
from shardc.report.view import StatementView, StepView

TABLE = Path(__file__).parents[1] / "golden" / "best_known.json"
PACKAGE = f"{Path(shardc.__file__).parent}/"
COUNTED = {  # what is counted, each time that this function is called
    "plans": "planner/program/plan.py planned_at_once",
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
    "chains of moves": "planner/program/directly.py _chains",
    "orders": "planner/whole/rewrites.py Rewritten.of",
    "nodes": "planner/whole/nodes.py Nodes.node",
    "tables between nodes": "planner/whole/nodes.py Nodes.add",
    "nodes eliminated": "planner/whole/eliminate.py _without",
    "nodes shared": "planner/whole/prune.py _share",
    "prices closed": "planner/whole/prices.py _close",
    "local products": "rules/products.py local_product",
    "arrangements": "rules/products.py arrangements",
    "exchanges": "rules/moves.py exchange",
    "layouts compared": "rules/routes.py _less",
}
ROOMS = ("planner", "rules")  # whose calls are counted all together
MORE = 0.04  # of these that may come or go unnoticed
INLINED = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>")  # the latter by later Pythons
LABELS = {function: label for label, function in COUNTED.items()}
OWN = ("share", "dear", "front")  # options that `shardc.plan` does not have
OTHERS = 4  # strategies of a statement that are listed
Entry = dict[str, Any]


def found(text: str, options: dict[str, Any]) -> Entry:
    """What a program is planned as by a process that knows nothing yet, or what it is refused with."""
    forget()
    own = {name: value for name, value in options.items() if name not in OWN}
    with counted(options.get("dear", 1)) as work:
        try:
            plan = shardc.plan(text, **own)
            front = _front(plan, options.get("front", 0))
        except shardc.ShardcError as error:
            return {"refused": str(error).splitlines()} | work
    return figures(plan) | front | {key: dict(sorted(count.items())) for key, count in work.items()}


def figures(plan: shardc.Plan) -> Entry:
    schedule, cost = plan.schedule, plan.cost
    assert not list(faults_of(schedule)), "a plan that is not legal"
    lowered = print_lowering(schedule, lower(schedule)).splitlines()
    return {
        "time_ps": picoseconds(cost.time_s),
        "compute_ps": picoseconds(cost.compute_s),
        "wire_bytes": cost.wire_bytes,
        "flops": cost.flops,
        "peak_bytes": cost.peak_bytes,
        "bound_bytes": plan.bound.wire_bytes,
        "gaps": [str(gap) for each in plan._found.statements for gap in gaps_of(each)],
        "notes": [*plan.notes, *plan.warnings],
        "as_written": _as_written(plan),
        "totals": list(plan._view.totals),
        "cases": [statement.cases for statement in plan.statements],
        "steps": list(_steps(plan.steps)),
        "forms": [line.partition(" = ")[2] or line for line in lowered if not line.endswith(": plain")],
        "others": [other for statement in plan.statements for other in _others(statement)],
        "source": _hash(plan.source()),
    }


def _front(plan: shardc.Plan, points: int) -> Entry:
    """Leaner plans: what each brings, takes and needs."""
    if not points:
        return {}
    costs = [point.cost for point in plan.pareto(points)]
    return {"front": [f"{c.wire_bytes} B, {picoseconds(c.time_s)} ps, {c.peak_bytes} B at the peak" for c in costs]}


def _as_written(plan: shardc.Plan) -> list[str]:
    """What the book's own rules make of it."""
    written = plan._view.written
    if written is None:
        return []
    return [f"{written.wire_bytes} B, {picoseconds(written.time_s)} ps: {_named(written.steps)}"]


def _named(steps: tuple[StepView, ...]) -> str:
    """The operations, and a hash of what they take and leave."""
    said = [f"{step.op}({', '.join(step.operands)}) → {step.result}" for step in steps]
    return f"{', '.join(step.op for step in steps)} ({_hash(said)})"


def _hash(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()[:12]


def _steps(steps: tuple[StepView, ...], indent: str = "") -> Iterator[str]:
    for step in steps:
        said = f"{step.result} = {step.op}({', '.join(step.operands)})"
        price = f"{step.wire_bytes} B, {step.flops} FLOP, {picoseconds(step.time_s)} ps"
        words = ("; ".join(filter(None, (step.rule, step.formula, step.form))), "  off the critical path")
        yield f"{indent}{said}: {price}; {words[0]}{words[1] if step.off_critical_path else ''}"
        yield from _steps(step.steps, indent + "  ")


def _others(statement: StatementView) -> Iterator[str]:
    for inner in statement.statements:
        yield from _others(inner)
    for other in statement.cheapest(OTHERS)[1:]:
        yield f"{other.wire_bytes} B, {picoseconds(other.time_s)} ps: {_named(other.steps)}"


@contextmanager
def counted(dear: int) -> Iterator[dict[str, Counter[str]]]:
    """The work that is done meanwhile. Each unit is paid so many times over, so that the budget of a small program ends
    as a large one's does."""
    units = Counter[str]()
    pay, solve, prune = Meter.pay, whole.solve, whole.prune

    def paying(self: Meter, spent: int) -> None:
        units["units"] += spent
        pay(self, spent * dear)

    def seen(name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def counting(sizes: Any, factors: Any, *rest: Any, **more: Any) -> Any:
            units[name] += sum(factor.table.size for factor in factors)
            return does(sizes, factors, *rest, **more)

        return counting

    profile = cProfile.Profile(subcalls=False, builtins=False)
    Meter.pay, whole.solve, whole.prune = paying, seen("solved", solve), seen("pruned", prune)  # type: ignore[method-assign]
    profile.enable()
    try:
        yield {"work": units}
    finally:
        profile.disable()
        Meter.pay, whole.solve, whole.prune = pay, solve, prune  # type: ignore[method-assign]
        for entry in profile.getstats():  # type: ignore[attr-defined]
            place, name = _place(entry.code)
            if place.startswith(ROOMS) and name not in INLINED:
                units["calls"] += entry.callcount
                units.update({LABELS[f"{place} {name}"]: entry.callcount} if f"{place} {name}" in LABELS else {})


def _place(code: Any) -> tuple[str, str]:
    """A function's module within the package, and its name; of what is built in none."""
    file = "" if isinstance(code, str) else code.co_filename
    return (file.removeprefix(PACKAGE), code.co_qualname) if file.startswith(PACKAGE) else ("", "")


# --- what differs


def differences(known: Entry, now: Entry, objective: str) -> list[str]:
    """Which figures of a case differ, and how; the price first, and whether it is dearer."""
    price, lines = "wire_bytes" if objective == "bytes" else "time_ps", list[str]()
    for key in sorted(known.keys() | now.keys(), key=lambda each: (each != price, each)):
        before, after = known.get(key), now.get(key)
        if key == "work" or before == after:
            continue
        word = _word(key == price, before, after) if isinstance(before, int) and isinstance(after, int) else ""
        lines += [f"{key}{word}:", *_apart(before, after)]
    return [*lines, *_work(known["work"], now["work"])]


def _word(is_price: bool, before: int, after: int) -> str:
    return (" DEARER" if after > before else " cheaper") if is_price else " rose" if after > before else " fell"


def _apart(before: Any, after: Any) -> Iterator[str]:
    if not (isinstance(before, list) and isinstance(after, list)):
        yield from (f"  known {before}", f"  now   {after}")
        return
    yield from (f"  known {line}" for line in before if line not in after)
    yield from (f"  now   {line}" for line in after if line not in before)
    yield from ["  in another order"] if sorted(map(str, before)) == sorted(map(str, after)) else []


def _work(before: dict[str, int], after: dict[str, int]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name, 0), after.get(name, 0)
        if abs(other - one) > (MORE * one if name == "calls" else 0):
            yield f"{'MORE' if other > one else 'less'} work: {name}, {one} known, {other} now"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--draw", type=int)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    cases = json.loads(TABLE.read_text("utf-8"))
    if asked.draw:
        from chosen import chosen

        written(chosen(asked.draw, asked.seed, cases))
        return
    for case in cases:
        now = found(case["text"], case["options"])
        lines = differences(case["found"], now, case["options"].get("objective", "time"))
        if lines:
            print(f"{case['name']}: {case['text']!r} {case['options']}", *lines, sep="\n  ")
        case["found"] = now
    if asked.write:
        written(cases)


def written(cases: list[Entry]) -> None:
    every = [case if "found" in case else case | {"found": found(case["text"], case["options"])} for case in cases]
    TABLE.write_text(json.dumps(every, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
