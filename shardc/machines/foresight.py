"""What a run will take, before it starts: memory and time, of the devices, the reference and the runs that round.

Memory is what the process holds at most at once: whole arrays in NumPy (8 bytes an element), what all devices hold in
the step that needs most, or the same step in NumPy with the copies that rounding makes; whichever is more. Time is
operations over the machine's own rates, which are measured in a few milliseconds where it matters. Both are meant
within a factor of 2 and 4.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shardc.errors import ShardcError
from shardc.ir.digits import Reshape
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Block, Done, Einsum, Loop, Schedule, Step, last_uses, single_steps
from shardc.ir.program import Program
from shardc.ir.sharding import Array
from shardc.machines.smaller import smaller_sizes
from shardc.simulate import Coins, pairs_of

Planned = Callable[[Mapping[str, int]], Schedule]  # with these sizes in place of those that were given

STARTED = 300_000_000  # bytes of a process with NumPy, JAX and its compiler, before any array
MOST_SECONDS = 600.0
_LEFT = 0.9  # of the memory that is free may be taken
_ASIDE = 2  # as often what is advised must have room: what is free and how fast the machine is changes
_WIDE = 8  # bytes of a NumPy element
_COPIES = 4  # of a result, while it is rounded
_START, _PER_STEP = 1.0, 0.04  # seconds of JAX's start, and of compiling a step
_OF_PRODUCT, _OF_FUNCTION = 3.0, 12.0  # passes over a step's result; of a move, 1
_EXACT_SHARE = 0.3  # of a pass that rounds, one that does not


@dataclass(frozen=True, slots=True)
class Rates:
    """What the machine does in a second: multiplications and additions, and elements rounded at random."""

    flops: float = 3e10
    rounded: float = 1e8

    @classmethod
    def measured(cls) -> Rates:
        """The better of two, of a tenth of a second at most."""
        one, values = np.ones((384, 384)), np.linspace(0.1, 3.0, 1 << 18)
        multiplying = min(_seconds(lambda: np.matmul(one, one)) for _ in range(3))
        rounding = min(_seconds(lambda: Coins(0, False).rounded(values, DTYPES["bf16"])) for _ in range(2))
        return cls(2 * 384**3 / multiplying, values.size / rounding)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Bytes that the process holds at most, and seconds."""

    memory_bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s, {self.memory_bytes / 1e9:.1f} GB"


def foresee(schedule: Schedule, rates: Rates | None = None) -> Foreseen:
    """What `run` will take; the machine is measured if that is more than a second at the usual rates."""
    usual = _seconds_of(schedule, Rates() if rates is None else rates)
    seconds = usual if rates is not None or usual < _START + 1.0 else _seconds_of(schedule, Rates.measured())
    return Foreseen(STARTED + _bytes_of(schedule), seconds)


def check_room(
    foreseen: Foreseen, program: Program, most_seconds: float = MOST_SECONDS, anew: Planned | None = None
) -> None:
    """SHC411 where the run would take more memory than there is, or longer than is asked for.

    With `anew`, which plans the program with other sizes, the help names some with which it would take half of both.
    """
    room = free_memory()
    if room is not None and foreseen.memory_bytes > _LEFT * room:
        smaller = _smaller(program, room, (most_seconds, math.inf), anew)
        raise ShardcError(
            "SHC411",
            f"the run would take {foreseen.memory_bytes / 1e9:.1f} GB of memory; {room / 1e9:.1f} GB are free",
            help=f"give {smaller}, or a smaller mesh" if smaller else "give a smaller mesh",
        )
    if foreseen.seconds > most_seconds:
        smaller = _smaller(program, room, (most_seconds,), anew)
        raise ShardcError(
            "SHC411",
            f"the run would take {foreseen.seconds:.0f} s; at most {most_seconds:.0f} s are spent",
            help=(f"give {smaller}, or " if smaller else "") + f"allow it: {_allowing(foreseen)}",
        )


def _allowing(foreseen: Foreseen) -> str:
    return f"--seconds {math.ceil(_ASIDE * foreseen.seconds)}"


def _smaller(program: Program, room: int | None, limits: Sequence[float], anew: Planned | None) -> str:
    """Which smaller sizes to give, by the first of these limits of seconds that any keep; nothing where none do."""
    if anew is None:
        return "smaller --dims"
    for seconds in limits:
        sizes = smaller_sizes(program, partial(_has_room, anew, room, seconds))
        if sizes:
            dims = ",".join(f"{dim}={size}" for dim, size in sizes.items())
            more = f" and {_allowing(foresee(anew(sizes)))}" if seconds == math.inf else ""
            return f"smaller --dims ({dims}, say){more}"
    return ""


def _has_room(anew: Planned, room: int | None, seconds: float, sizes: Mapping[str, int]) -> bool:
    try:
        found = foresee(anew(sizes))
    except ShardcError:
        return False
    return _ASIDE * found.seconds <= seconds and (room is None or _ASIDE * found.memory_bytes <= _LEFT * room)


def free_memory() -> int | None:
    """Bytes that the process may still take, with what it has; None where the system does not say."""
    found = []
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
        with open("/proc/self/statm", encoding="ascii") as numbers:
            found[0] += int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit:
            found += [int(text) for text in [limit.read().strip()] if text.isdigit()]
    except (OSError, ValueError, IndexError):
        pass
    return min(found, default=None)


def _seconds(call: object) -> float:
    assert callable(call)
    begun = time.perf_counter()
    call()
    return max(time.perf_counter() - begun, 1e-6)


# Memory


def _bytes_of(schedule: Schedule) -> int:
    mesh, program = schedule.mesh, schedule.program
    inputs = [schedule.values[number] for number in schedule.inputs]
    outputs = [schedule.values[number] for number in schedule.outputs]
    whole = sum(_WIDE * math.prod(array.shape) for array in inputs)
    results = sum(_on_devices(array, mesh) for array in outputs)
    named = sum(_WIDE * math.prod(program.shape(bound.dims)) for bound in program.results)
    devices = sum(_on_devices(array, mesh) for array in inputs) + _most_alive(schedule, _on_devices_working)
    placing = max((3 * _on_devices(array, mesh) for array in inputs), default=0)
    expected = 2 * sum(_WIDE * math.prod(array.shape) for array in outputs)
    rounding = expected + _most_alive(schedule, _in_numpy) if any(array.dtype.unit for array in outputs) else 0
    others = whole + expected // 2 if inputs else 0  # by which a result is told from a wrong one
    return whole + max(placing, devices, results + others + 2 * named, results + rounding)


def _on_devices(array: Array, mesh: Mesh) -> int:
    return mesh.devices * array.local_bytes(mesh)


def _on_devices_working(array: Array, mesh: Mesh) -> int:
    """What is narrow is also held in f32, in which the CPU computes."""
    return _on_devices(array, mesh) * max(4, array.dtype.bytes) // array.dtype.bytes


def _in_numpy(array: Array, mesh: Mesh) -> int:
    """Copies along a mesh axis are held once."""
    return _WIDE * _distinct(array, mesh)


def _distinct(array: Array, mesh: Mesh) -> int:
    return math.prod(array.shape) * math.prod(mesh.size(axis) for axis in array.sharding.unreduced)


def _most_alive(schedule: Schedule, size: object) -> int:
    """The most that values and the copies made in a step take at once."""
    assert callable(size)
    sizes = {number: int(size(array, schedule.mesh)) for number, array in enumerate(schedule.values)}
    last = last_uses(schedule.block)
    alive, most = set(schedule.inputs), sum(sizes[value] for value in schedule.inputs)
    for number, step in enumerate(schedule.steps):
        alive.update(step.results)
        working = (_COPIES - 1) * sum(sizes[value] for value in step.results) if size is _in_numpy else 0
        if isinstance(step.op, Loop):
            working = _most_alive(schedule.inside(step.op), size)
        copied = sum(sizes[value] for value in step.operands) if isinstance(step.op, Einsum) else 0
        most = max(most, sum(sizes[value] for value in alive) + working + copied)
        alive -= {value for value in step.operands if last[value] == number}
    return most


# Time


def _seconds_of(schedule: Schedule, rates: Rates) -> float:
    done, mesh = list(single_steps(schedule.block)), schedule.mesh
    outputs = [schedule.values[number] for number in schedule.outputs]
    products = sum(each.times * _flops(each.step, each.block, mesh) for each in done) / rates.flops
    on_devices = sum(each.times * mesh.devices * each.step.cost.flops for each in done) / rates.flops
    passes = sum(each.times * _passes(each.step) * _left(each, mesh) for each in done) / rates.rounded
    held = sum(mesh.devices * math.prod(schedule.values[v].local_shape(mesh)) for v in _ends(schedule)) / rates.rounded
    runs = 2 * pairs_of(schedule) if any(array.dtype.unit for array in outputs) else 0
    exact = products + _EXACT_SHARE * passes
    start = _START + _PER_STEP * len(done)
    return start + 4 * held + on_devices + (3 if runs else 2) * exact + runs * (products + passes)


def _ends(schedule: Schedule) -> Sequence[int]:
    return (*schedule.inputs, *schedule.outputs)


def _passes(step: Step) -> float:
    match step.op:
        case Einsum():
            return _OF_PRODUCT
        case Apply():
            return _OF_FUNCTION
        case Reshape() | Loop():
            return 1.0
        case _:
            assert step.op.facts.is_move, step.op
            return 1.0


def _left(done: Done, mesh: Mesh) -> int:
    return _distinct(done.block.values[done.step.result], mesh)


def _flops(step: Step, block: Block, mesh: Mesh) -> float:
    """In NumPy what devices do alike is done once."""
    axes = {axis for value in step.operands for axis in block.values[value].sharding.used}
    return step.cost.flops * math.prod(mesh.size(axis) for axis in axes)
