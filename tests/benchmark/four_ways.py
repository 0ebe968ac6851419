"""Four ways of executing, and the proof, of drawn statements and programs: on every device's shard the same.

    python tests/benchmark/four_ways.py --statements 200 --programs 50 --seed 0
    python tests/benchmark/four_ways.py --statements 10000 --programs 1000 --minutes 90     # and how far it came

Statements are drawn by `matmuls` and `reshards`, programs by `programs`, `partial_programs`, `loops`,
`backward_programs` and `mixed_programs`. Each is planned by bytes, in int32 where all its functions are of integers,
else in f32; then it is NumPy's meaning on whole arrays, the simulator, `plan.compile()`, the emitted text, and the
proof in symbols. Printed is how many ended how, and how often each rule and each form was among them. Kinds take
turns, so that each has its share of what is reached in `--minutes`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import jax
from bench_unreduced import EQUAL, FLOATS, NOT_CHECKABLE, check
from hypothesis import HealthCheck, Phase, given, seed, settings

import shardc
from shardc.ir.plan import every_step
from shardc.lowering.forms import Looped, Lowering
from shardc.lowering.lower import lower
from shardc.testing import backward_programs, loops, matmuls, mixed_programs, partial_programs, programs, reshards

STATEMENTS = {"matmuls": matmuls(max_axes=2), "reshards": reshards(max_axes=2)}
PROGRAMS = {
    "programs": programs(max_size=3),
    "partial programs": partial_programs(),
    "loops": loops(),
    "backward programs": backward_programs(),
    "mixed programs": mixed_programs(max_size=3),
}
CLEARED = 100  # cases, after which what JAX compiled is thrown away
Counts = dict[str, Counter[str]]


def drawn(strategy: Any, count: int, number: int) -> list[Any]:
    """That many cases for at most eight devices, no two of them the same."""
    found: dict[tuple[str, str], Any] = {}

    @seed(number)
    @settings(
        max_examples=4 * count + 20,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(case: Any) -> None:
        if case.mesh.devices <= 8:
            found.setdefault((case.text, str(case.mesh)), case)

    draw()
    return list(found.values())[:count]


def outcome(case: Any, counts: Counts) -> str:
    """`EQUAL`, `NOT_CHECKABLE`, the code that a program is refused with, or what goes wrong."""
    dtype = "f32" if any(f"{name}(" in case.text or f"{name}_" in case.text for name in FLOATS) else "int32"
    try:
        plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype=dtype, objective="bytes")
        proof, is_checkable = plan.prove(), check(plan)
    except shardc.ShardcError as error:
        return f"refused, {error.code}" if error.exit_code != 70 else error.code
    except AssertionError as error:
        return str(error)[:300]
    counted(plan, counts)
    if not proof.holds:
        return str(proof)
    return EQUAL if is_checkable else NOT_CHECKABLE


def counted(plan: shardc.Plan, counts: Counts) -> None:
    counts["rule"].update(str(done.step.rule) or done.step.name for done in every_step(plan.schedule.block))
    counts["form"].update(forms_of(lower(plan.schedule)))


def forms_of(lowering: Lowering) -> Iterable[str]:
    for form in lowering.forms:
        if isinstance(form, Looped):
            yield from forms_of(form.body)
        yield f"{type(form).__name__} {type(getattr(form, 'op', None)).__name__}".removesuffix(" NoneType")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=40)
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    start, is_fine = time.perf_counter(), True
    counts: Counts = {"rule": Counter(), "form": Counter()}
    ended: Counts = {name: Counter() for name in STATEMENTS | PROGRAMS}
    for number, (name, case) in enumerate(in_turns(options.statements, options.programs, options.seed), 1):
        what = outcome(case, counts)
        ended[name][what] += 1
        if what not in (EQUAL, NOT_CHECKABLE) and not what.startswith("refused"):
            is_fine = False
            print(f"{what}\n  mesh {case.mesh}; {case.dims}\n  " + case.text.replace("\n", "\n  "), flush=True)
        if number % CLEARED == 0:
            jax.clear_caches()
            print(f"after {time.perf_counter() - start:.0f} s: {counted_of(ended)}", flush=True)
        if time.perf_counter() - start > 60 * options.minutes:
            break
    for name, found in ended.items():
        print(f"{name}: " + ", ".join(f"{number} {what[:40]}" for what, number in found.most_common()))
    for kind, found in counts.items():
        print(f"each {kind}: " + "; ".join(f"{what} {number}" for what, number in found.most_common()))
    print(f"{counted_of(ended)}; {time.perf_counter() - start:.0f} s")
    return 0 if is_fine else 1


def in_turns(statements: int, count: int, number: int) -> Iterator[tuple[str, Any]]:
    """Cases beside the names of their kinds: of each as many at any time as its share."""
    parts = [
        [(place / share, name, case) for place, case in enumerate(drawn(strategy, share, number))]
        for kinds, total in ((STATEMENTS, statements), (PROGRAMS, count))
        for name, strategy in kinds.items()
        if (share := -(-total // len(kinds)))
    ]
    yield from ((name, case) for _, name, case in sorted(chain(*parts), key=lambda each: each[0]))


def counted_of(ended: Counts) -> str:
    statements = sum(ended[name].total() for name in STATEMENTS)
    return f"{statements} statements, {sum(ended[name].total() for name in PROGRAMS)} programs"


if __name__ == "__main__":
    raise SystemExit(main())
