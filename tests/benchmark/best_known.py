"""The best plans known of drawn programs, and the work of finding them: `tests/golden/best_known.json`.

    python tests/benchmark/best_known.py               # what differs from the table now, case by case
    python tests/benchmark/best_known.py --write       # the same, and the table is written: a plan got cheaper
    python tests/benchmark/best_known.py --draw 3000 --seed 1    # other cases, of so many that are drawn

Of each case the table has price, memory, bound, gap, steps with their rules, forms, other strategies, a hash of the
source, or the refusal in full; and the work: units of the budget, entries of the tables that are eliminated, and calls
of functions, by folder. All of it is counted and nothing timed, so that it is the same everywhere. The cases are those
of all that are drawn which come to the most parts of the code in the least time.
"""

from __future__ import annotations

import argparse
import builtins
import cProfile
import hashlib
import json
import math
import random
import signal
import time
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
COUNTED = ("planner", "rules")  # rooms whose calls are counted
MORE = 0.03  # of the work of a folder, and so many calls, that may come or go unnoticed
FEW = 30
INLINED = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>")  # the latter by later Pythons
OTHERS = 4  # strategies of a statement that are listed
Entry = dict[str, Any]


def found(text: str, options: dict[str, Any]) -> Entry:
    """What a program is planned as by a process that knows nothing yet, or what it is refused with."""
    forget()
    with counted() as work:
        try:
            plan = shardc.plan(text, **options)
        except shardc.ShardcError as error:
            return {"refused": str(error).splitlines()} | work
    return figures(plan) | {key: dict(sorted(count.items())) for key, count in work.items()}


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
        "cases": [statement.cases for statement in plan.statements],
        "steps": list(_steps(plan.steps)),
        "forms": [line.partition(" = ")[2] or line for line in lowered if not line.endswith(": plain")],
        "others": [other for statement in plan.statements for other in _others(statement)],
        "source": hashlib.sha256(plan.source().encode()).hexdigest()[:12],
    }


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
        names = ", ".join(f"{step.op} {step.result}" for step in other.steps)
        yield f"{other.wire_bytes} B, {picoseconds(other.time_s)} ps: {names}"


@contextmanager
def counted() -> Iterator[dict[str, Counter[str]]]:
    """The work that is done meanwhile: units of the budget, entries of tables, and calls of functions by folder."""
    calls, units = Counter[str](), Counter[str]()
    pay, solve, prune = Meter.pay, whole.solve, whole.prune

    def paying(self: Meter, spent: int) -> None:
        units["units"] += spent
        pay(self, spent)

    def seen(name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def counting(sizes: Any, factors: Any, *rest: Any, **more: Any) -> Any:
            units[name] += sum(factor.table.size for factor in factors)
            return does(sizes, factors, *rest, **more)

        return counting

    profile = cProfile.Profile(subcalls=False, builtins=False)
    Meter.pay, whole.solve, whole.prune = paying, seen("solved", solve), seen("pruned", prune)  # type: ignore[method-assign]
    profile.enable()
    try:
        yield {"work": units, "calls": calls}
    finally:
        profile.disable()
        Meter.pay, whole.solve, whole.prune = pay, solve, prune  # type: ignore[method-assign]
        for entry in profile.getstats():  # type: ignore[attr-defined]
            folder = "" if isinstance(entry.code, str) else _folder(entry.code.co_filename)
            if folder and entry.code.co_name not in INLINED:
                calls[folder] += entry.callcount


def _folder(file: str) -> str:
    if not file.startswith(PACKAGE):
        return ""
    parts = Path(file.removeprefix(PACKAGE)).parent.parts
    return "/".join(parts) if parts and parts[0] in COUNTED else ""


# --- what differs


def differences(known: Entry, now: Entry, objective: str) -> list[str]:
    """Which figures of a case differ, and how; the price first, and whether it is dearer."""
    price, lines = f"{'wire_bytes' if objective == 'bytes' else 'time_ps'}", list[str]()
    for key in sorted(known.keys() | now.keys(), key=lambda each: (each != price, each == "calls", each)):
        before, after = known.get(key), now.get(key)
        if key == "calls" or before == after:
            continue
        word = _word(key == price, before, after) if isinstance(before, int) and isinstance(after, int) else ""
        lines += [f"{key}{word}:", *_apart(before, after)]
    return [*lines, *_work(known.get("calls") or {}, now.get("calls") or {})]


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
    for folder in sorted(before.keys() | after.keys()):
        one, other = before.get(folder, 0), after.get(folder, 0)
        if abs(other - one) > FEW + MORE * one:
            yield f"{'MORE' if other > one else 'less'} work in {folder}: {one} calls known, {other} now"


# --- what is drawn

MESHES = (
    ("X=2,Y=3,Z=4", "v5p"),
    ("X=4,Y=4,Z=4", "v5p"),
    ("X=4,Y=6", "v5e"),
    ("X=8,Y=4", "v5e"),
    ("X=2,Y=4", "v5e:2x4"),
)
MESHES += (
    ("X=2,Y=2,Z=2", "v5p:2x2x2"),
    ("X=4,Y=2", "v5e:4x2"),
    ("X=4,Y=4,Z=4", "v5p:4x4x4"),
    ("X=2,Y=2,Z=2,W=2", "v4"),
)
MESHES += (("X=8", "v6e"), ("X=2,Y=6", "H100"), ("X=16,Y=2", "v3"), ("X=4,Y=4", "v5e:4x4"), ("X=1,Y=4", "v5e"))
ASKED: tuple[dict[str, Any], ...] = (
    *({},) * 5,
    {"overlap": "off"},
    {"overlap": "on"},
    {"overlap": "on"},
    {"idle": "keep"},
    {"idle": "keep", "overlap": "off"},
    {"formula": "book"},
    {"profile": "spec"},
    {"wraparound": "Y=line"},
    {"wraparound": "X=one-way"},
    {"dcn": "Y=2"},
    {"share": 0.6},
    {"share": 0.85},
    {"share": 0.97},
)


def drawn(count: int, seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, text and options of so many programs, and of what other tests plan."""
    from cache_keys import one_apart
    from same_plans import MESHES as PLAIN
    from same_plans import golden, programs

    choice = random.Random(f"best known {seed}")
    for text, options in programs(count // 4, seed, PLAIN + MESHES):
        yield "drawn", text, options | choice.choice(ASKED)
        yield "slip", slip(choice, text), options
    for name, case in _by_strategies(count * 3 // 4, seed):
        times = choice.choice((1, 1, 16, 256))
        options = {"mesh": str(case.mesh), "dims": {dim: size * times for dim, size in case.dims.items()}}
        options |= {"dtype": choice.choice(("bf16", "f32")), "objective": choice.choice(("bytes", "time"))}
        yield name, case.text, options | choice.choice(({"chip": "v5e"}, {"chip": "v5p"}, {})) | choice.choice(ASKED)
    for text, options in golden():
        yield "written", text, options
        yield "written", text, options | {"objective": "bytes"}
    for text, options, share in one_apart():
        yield "one apart", text, options | ({"share": share} if share else {})


def slip(choice: random.Random, text: str) -> str:
    """With one character in the place of another, or none, as somebody may write it."""
    place = choice.randrange(len(text))
    return text[:place] + choice.choice(("", *text, *"XYZ[]{}_,·U?")) + text[place + 1 :]


def _by_strategies(count: int, seed: int) -> Iterator[tuple[str, Any]]:
    from four_ways import drawn as draw

    from shardc.testing import backward_programs, loops, matmuls, partial_programs, programs, reshards

    strategies = {"reshard": reshards(max_rank=4), "product": matmuls(), "program": programs(), "loop": loops()}
    strategies |= {"partial": partial_programs(), "backward": backward_programs()}
    for name, strategy in strategies.items():
        yield from ((name, case) for case in draw(strategy, count // len(strategies), seed))


def with_limit(text: str, options: dict[str, Any]) -> dict[str, Any]:
    """A share of a plan's own peak as its limit, in bytes."""
    share = options.pop("share", None)
    if share is not None:
        try:
            with _at_most(MOST[True]):
                options["memory"] = int(share * shardc.plan(text, **options).cost.peak_bytes)
        except (shardc.ShardcError, TimeoutError):
            pass
    return options


MOST = {False: 0.2, True: 0.8}  # seconds of a case of a plain run, and of an exhaustive one
TOGETHER = {False: 11.0, True: 40.0}
ENOUGH = {False: 6, True: 20}  # cases that come to each block


def chosen(count: int, seed: int) -> list[Entry]:
    """Of those drawn the ones that come to the most blocks in the least time, so that to each there come several."""
    cases, blocks, seconds = list[Entry](), list[set[str]](), list[float]()
    every = [(kind, text, with_limit(text, dict(options))) for kind, text, options in drawn(count, seed)]
    reached = _noting()
    for kind, text, options in every:
        reached.clear()
        start = time.process_time()
        try:
            with _at_most(3 * MOST[True]):
                found(text, options)
        except TimeoutError:
            continue
        seconds.append(time.process_time() - start)
        cases.append({"name": kind, "text": text, "options": options})
        blocks.append(set(reached))
    picked: dict[int, bool] = {}
    come = Counter[str]()
    for is_long in (False, True):
        for place in _picked(blocks, seconds, come, is_long, picked):
            picked[place] = is_long
    print(f"{len(picked)} of {len(cases)} cases, to {sum(v >= 3 for v in come.values())} of {len(come)} blocks three")
    number = Counter[str]()
    made = list[Entry]()
    for place, is_long in sorted(picked.items()):
        case = cases[place]
        number[case["name"]] += 1
        made.append(case | {"name": f"{case['name'].replace(' ', '-')}-{number[case['name']]}", "exhaustive": is_long})
    return made


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TimeoutError after so much processor time."""

    def end(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _picked(
    blocks: list[set[str]], seconds: list[float], come: Counter[str], is_long: bool, taken: dict[int, bool]
) -> Iterator[int]:
    left, enough = TOGETHER[is_long], ENOUGH[is_long]
    open_ = {place for place in range(len(blocks)) if seconds[place] < MOST[is_long] and place not in taken}

    def worth(place: int) -> float:
        return sum(1 / (1 + come[block]) for block in blocks[place] if come[block] < enough) / (seconds[place] + 0.01)

    values = {place: math.inf for place in open_}
    while open_:
        ranked = sorted(open_, key=lambda place: -values[place])
        best, most = -1, 0.0
        for place in ranked:  # what a case is worth only falls
            if values[place] <= most:
                break
            values[place] = worth(place)
            if values[place] > most:
                best, most = place, values[place]
        if best < 0 or left < seconds[best]:
            return
        open_.remove(best)
        left -= seconds[best]
        come.update(blocks[best])
        yield best


def _noting() -> set[str]:
    """The blocks of all rooms that are tried by mutation, as they are entered."""
    import importlib

    import mutate
    from mutants import compiled, pairs, parsed, put

    reached: set[str] = set()
    builtins.REACHED = reached  # type: ignore[attr-defined]
    for path in (path for room in mutate.TESTS for path in mutate.modules(room, [])):
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    for path in (path for room in mutate.TESTS for path in mutate.modules(room, [])):
        noting = put(dict(pairs(compiled(parsed(path), path), compiled(mutate.noting(path), path))), path)
        assert noting or not mutate.blocks(path), f"{path}: its functions are not found; is PYTHONPATH set?"
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--draw", type=int)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.draw:
        TABLE.parent.mkdir(exist_ok=True)
        written(chosen(asked.draw, asked.seed))
        return
    cases = json.loads(TABLE.read_text("utf-8"))
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
