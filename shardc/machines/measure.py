"""Two programs timed beside each other on the devices that are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from shardc import simulate
from shardc.emit.call import placing
from shardc.emit.call.callable import on_steps_mesh
from shardc.ir.plan import Schedule
from shardc.machines.baseline import lower_baseline, with_auto_axes

Rounds = tuple[tuple[float, float], ...]
_WARM_UPS = 2


def measured(schedule: Schedule, whole: Schedule, mesh: Any, rounds: int = 15, seed: int = 0) -> Rounds:
    """Seconds of the plan's program and of `jax.jit`'s own, round by round, on small integer-valued inputs.

    `mesh` is that of the plan's steps; where axes are cut, `whole` is a schedule on the mesh as given, which is what
    `jax.jit` gets. SHC212 for unreduced inputs and outputs.
    """
    automatic = with_auto_axes(placing.coarser(mesh, schedule.by))
    ours = jax.jit(on_steps_mesh(schedule))
    wholes = simulate.sample_inputs(schedule.program, seed)
    with jax.set_mesh(mesh):
        planned = ours.lower(*_arguments(schedule, wholes, mesh)).compile()
    theirs = lower_baseline(whole, automatic).compile()
    return interleaved(
        _call(planned, _arguments(schedule, wholes, mesh)),
        _call(theirs, _arguments(whole, wholes, automatic)),
        rounds,
    )


def interleaved(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> Rounds:
    """Each round times both, in turns the one or the other first, so that a drift of the machine cancels."""
    for _ in range(_WARM_UPS):
        one()
        other()
    found = []
    for number in range(rounds):
        if number % 2:
            second, first = _seconds(other), _seconds(one)
        else:
            first, second = _seconds(one), _seconds(other)
        found.append((first, second))
    return tuple(found)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _call(program: Callable[..., Any], arguments: list[Any]) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(program(*arguments))


def _arguments(schedule: Schedule, wholes: Sequence[Any], mesh: Any) -> list[Any]:
    arrays = [schedule.values[number] for number in schedule.inputs]
    return [
        jax.device_put(
            jnp.asarray(whole, jnp.dtype(array.dtype.jax)), jax.NamedSharding(mesh, placing.spec_of(array.sharding))
        )
        for whole, array in zip(wholes, arrays, strict=True)
    ]
