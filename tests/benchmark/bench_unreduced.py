"""Programs with unreduced inputs, run: `python tests/benchmark/bench_unreduced.py --programs 741 --seed 0`.

Each is drawn (`shardc.testing.partial_programs`), planned by bytes and by time, simulated in NumPy, called through
`plan.compile()` and through the text of `plan.source()`; every device's shard is compared with NumPy. Printed is how
many programs ended how, and each that ended otherwise than equal.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter
from typing import Any

import jax
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

import shardc
from shardc import simulate
from shardc.emit.call.placing import from_blocks, make_mesh, spec_of
from shardc.ir.functions import FUNCTIONS
from shardc.machines.run import Verdict, report_of
from shardc.testing import Case, assert_equal_on_every_device, assert_schedule_legal, partial_programs

EQUAL, NOT_CHECKABLE = "equal on every shard", "not checkable in f32"
FLOATS = tuple(row.name for row in FUNCTIONS.values() if not row.integers and not row.truths)


def drawn(count: int, number: int) -> list[Case]:
    """That many programs from a seed, no two of them the same."""
    found: dict[tuple[str, str], Case] = {}

    @seed(number)
    @settings(
        max_examples=3 * count,  # small ones are drawn again and again
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(partial_programs())
    def draw(case: Case) -> None:
        found.setdefault((case.text, str(case.mesh)), case)

    draw()
    return list(found.values())[:count]


def outcome(case: Case) -> str:
    """`EQUAL`, `NOT_CHECKABLE`, the code that a program is refused with, or what goes wrong in which plan."""
    dtype = "f32" if any(f"{name}(" in case.text or f"{name}_" in case.text for name in FLOATS) else "int32"
    sources = set[str]()
    for objective in ("bytes", "time"):
        try:
            plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype=dtype, objective=objective)
            if plan.source() in sources:
                continue
            sources.add(plan.source())
            if not check(plan):
                return NOT_CHECKABLE
        except shardc.ShardcError as error:
            return f"refused, {error.code}" if error.exit_code != 70 else f"by {objective}: {error.code}"
        except AssertionError as error:
            return f"by {objective}: {str(error)[:300]}"
        except Exception as error:
            traceback.print_exc(limit=-1)
            return f"by {objective}: {type(error).__name__}"
    return EQUAL


def check(plan: shardc.Plan) -> bool:
    """AssertionError unless the steps are legal, and simulated, called and emitted give what NumPy does.

    False where floats leave the last two open: rounding is as large as what is to be told apart.
    """
    schedule, mesh, checkable = plan.schedule, plan.schedule.given_mesh, True
    assert_schedule_legal(schedule)
    wholes = simulate.sample_inputs(schedule.program, seed=3)
    wanted, found = simulate.reference(schedule.program, wholes), simulate.run(schedule, wholes)
    for blocks, whole, number in zip(found, wanted, schedule.outputs, strict=True):
        array = schedule.values[number]
        # Both in float64, in another order: a millionth of a millionth of what the values are.
        bound = 1e-12 * max(1.0, float(np.max(np.abs(whole), initial=0))) if array.dtype.unit else 0.0
        assert_equal_on_every_device(blocks, whole, array, schedule.mesh, bound)
    devices = make_mesh(mesh)
    placed = arguments(schedule, wholes, devices)
    called = results(plan.compile(devices), placed)
    scope: dict[str, Any] = {}
    exec(compile(plan.source(), "emitted", "exec"), scope)
    with jax.set_mesh(devices):
        emitted = results(scope["program"], placed)
    for way, got in (("called", called), ("emitted", emitted)):
        report = report_of(schedule, wholes, got)
        assert report.verdict is not Verdict.NOT_EQUAL, f"{way}: {report}"
        checkable = checkable and report.ok
    return checkable


def arguments(schedule: Any, wholes: Any, devices: Any) -> list[Any]:
    """Placed arrays; unreduced ones as partial sums that differ from device to device."""
    placed = []
    for whole, number in zip(wholes, schedule.inputs, strict=True):
        array = schedule.given(number)
        blocks = simulate.scatter(whole, array, schedule.given_mesh, 3).astype(array.dtype.jax)
        flat = blocks.reshape(-1, *blocks.shape[len(schedule.given_mesh.axes) :])
        sharding = jax.NamedSharding(devices, spec_of(array.sharding))
        placed.append(from_blocks(list(flat), array, devices, sharding))
    return placed


def results(program: Any, placed: list[Any]) -> tuple[Any, ...]:
    found = program(*placed)
    jax.block_until_ready(found)
    return found if isinstance(found, tuple) else (found,)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    counted, start = Counter[str](), time.perf_counter()
    for case in drawn(options.programs, options.seed):
        ended = outcome(case)
        counted[ended] += 1
        if ended != EQUAL:
            print(f"{ended}\n  mesh {case.mesh}; {case.dims}\n  " + case.text.replace("\n", "\n  "), flush=True)
    print(f"{sum(counted.values())} programs with unreduced inputs, {time.perf_counter() - start:.0f} s")
    for ended, count in counted.most_common():
        print(f"{count:6}  {ended}")
    return 0 if all(ended in (EQUAL, NOT_CHECKABLE) or ended.startswith("refused") for ended in counted) else 1


if __name__ == "__main__":
    raise SystemExit(main())
