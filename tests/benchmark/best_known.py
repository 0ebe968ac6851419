"""The best plans known of drawn programs, and the work of finding them: `tests/golden/best_known.json`.

    python tests/benchmark/best_known.py               # what differs from the table now, case by case
    python tests/benchmark/best_known.py --write       # the same, and the table is written: a plan got cheaper
    python tests/benchmark/best_known.py --draw 3000 --seed 1    # other cases, of so many that are drawn

Of each case the table has price, memory, bound, gap, steps with their rules, forms, other strategies, a hash of the
source, or the refusal in full; and the work: units of the budget, and what `counted.py` names. None of it is timed, so
that it is the same everywhere. The cases are those of all that are drawn which come to the most parts of the code in
the least time (`chosen.py`), and of the programs that other tests plan (`tested-`) those which come to parts where few
that are drawn do: what is written twice, shares of what lies nowhere, moves beside other statements, large slices.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asked import asked
from cache_keys import forget
from counted import MORE, counted
from traced import called_otherwise

import shardc
from shardc.cost.rate import picoseconds
from shardc.ir.legal import faults_of
from shardc.lowering.lower import lower
from shardc.lowering.spell import print_lowering
from shardc.planner.planned import gaps_of
from shardc.report.view import StatementView, StepView

TABLE = Path(__file__).parents[1] / "golden" / "best_known.json"
PLANNERS = ("SHC220", "SHC4")  # codes of what a planner refuses, whose texts are its own
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
            return {"refused": _refused(error), "work": dict(sorted(work.items()))}
    return figures(plan) | front | {"work": dict(sorted(work.items()))}


def figures(plan: shardc.Plan) -> Entry:
    schedule, cost = plan.schedule, plan.cost
    assert not list(faults_of(schedule)), "a plan that is not legal"
    text = plan.source()
    assert not (apart := called_otherwise(schedule, text)), "\n".join(["called otherwise than written", *apart])
    lowered = print_lowering(schedule, lower(schedule)).splitlines()
    return {
        "time_ps": picoseconds(cost.time_s),
        "compute_ps": picoseconds(cost.compute_s),
        "wire_bytes": cost.wire_bytes,
        "flops": cost.flops,
        "peak_bytes": cost.peak_bytes,
        "bound_bytes": plan.bound.wire_bytes,
        "gaps": [str(gap) for each in plan._found.statements for gap in gaps_of(each)],
        "notes": [*plan._found.notes, *plan.warnings],
        "as_written": _as_written(plan),
        "totals": list(plan._view.totals),
        "cases": [statement.cases for statement in plan.statements],
        "steps": list(_steps(plan.steps)),
        "forms": [line.partition(" = ")[2] or line for line in lowered if not line.endswith(": plain")],
        "others": [other for statement in plan.statements for other in _others(statement)],
        "source": _hash(text),
    }


def _refused(error: shardc.ShardcError) -> list[str]:
    """In full what the planner says; of what is wrong with a text, the code."""
    return str(error).splitlines() if error.code.startswith(PLANNERS) else [error.code]


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
            word = "another" if name.startswith("sum") else "MORE" if other > one else "less"
            yield f"{word} work: {name}, {one} known, {other} now"


def main() -> None:
    options = asked(__doc__, draws=True)
    cases = json.loads(TABLE.read_text("utf-8"))
    if options.draw:
        from chosen import chosen

        written(chosen(options.draw, options.seed, cases))
        return
    for case in cases:
        now = found(case["text"], case["options"])
        lines = differences(case["found"], now, case["options"].get("objective", "time"))
        if lines:
            print(f"{case['name']}: {case['text']!r} {case['options']}", *lines, sep="\n  ")
        case["found"] = now
    if options.write:
        written(cases)


def written(cases: list[Entry]) -> None:
    every = [case if "found" in case else case | {"found": found(case["text"], case["options"])} for case in cases]
    TABLE.write_text(json.dumps(every, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
