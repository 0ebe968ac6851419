"""Four ways of executing, and the proof, of drawn statements and programs: on every device's shard the same.

    python tests/benchmark/four_ways.py --statements 200 --programs 50 --seed 0

Statements are drawn by `matmuls` and `reshards`, programs by `programs`, `partial_programs`, `loops` and
`backward_programs`. Each is planned by bytes, in int32 where all its functions are of integers, else in f32; then it is
NumPy's meaning on whole arrays, the simulator, `plan.compile()`, the emitted text, and the proof in symbols. Printed
is how many ended how, and how often each rule and each form was among them.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax
from bench_unreduced import EQUAL, FLOATS, NOT_CHECKABLE, check
from hypothesis import HealthCheck, Phase, given, seed, settings

import shardc
from shardc.ir.plan import every_step
from shardc.lowering.forms import Looped, Lowering
from shardc.lowering.lower import lower
from shardc.testing import backward_programs, loops, matmuls, partial_programs, programs, reshards

STATEMENTS = {"matmuls": matmuls(max_axes=2), "reshards": reshards(max_axes=2)}
PROGRAMS = {
    "programs": programs(max_size=3),
    "partial programs": partial_programs(),
    "loops": loops(),
    "backward programs": backward_programs(),
}
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
    counts["rule"].update(done.step.rule or done.step.name for done in every_step(plan.schedule.block))
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
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    start, is_fine = time.perf_counter(), True
    counts: Counts = {"rule": Counter(), "form": Counter()}
    for kinds, count in ((STATEMENTS, options.statements), (PROGRAMS, options.programs)):
        for name, strategy in kinds.items():
            ended = Counter[str]()
            for case in drawn(strategy, -(-count // len(kinds)), options.seed):
                what = outcome(case, counts)
                ended[what] += 1
                if what not in (EQUAL, NOT_CHECKABLE) and not what.startswith("refused"):
                    is_fine = False
                    print(f"{what}\n  mesh {case.mesh}; {case.dims}\n  " + case.text.replace("\n", "\n  "), flush=True)
            print(f"{name}: " + ", ".join(f"{number} {what[:40]}" for what, number in ended.most_common()), flush=True)
    for kind, found in counts.items():
        print(f"each {kind}: " + "; ".join(f"{what} {number}" for what, number in found.most_common()))
    print(f"{time.perf_counter() - start:.0f} s")
    return 0 if is_fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
