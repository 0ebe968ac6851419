"""Whether a plan, and the text that is emitted for it, are the program, for every value: translation validation.

    program  on whole arrays of symbols          what is meant
    plan     legal, and its values on whole arrays   after the pass `plan`
    text     on the blocks of all devices        after `lower`, `emit` and `write`: what is printed, read again

Every element of every input is a symbol (`field`), the arrays are the smallest that keep every pattern (`reduced`), and
every device's block of every output is compared. Rounding is not asked here, `run` compares that; nor gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from shardc.ir.legal import faults_of
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array, Sharding
from shardc.lowering.lower import lower
from shardc.proving.calls import Fault
from shardc.proving.devices import Devices, Held, laid_out
from shardc.proving.laid import Laid
from shardc.proving.meaning import drawn, plan_on, program_on
from shardc.proving.reduced import Reduced, reduced
from shardc.proving.tensors import Tensor, sum_of
from shardc.proving.text import Module, Unread

UNASKED = 300_000  # products and moves of elements, of a proof that nobody asked for: a few hundredths of a second
ASKED = 100_000_000
_AGAIN = 10  # of what may be done, as little as this part is done twice
# Code whose shapes do not fit, or that asks for what is not there.
_DOES_NOT_RUN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


class Verdict(Enum):
    """`NOT_PROVED`: nothing is known, and why."""

    PROVED = "proved"
    WRONG = "wrong"
    NOT_PROVED = "not proved"


@dataclass(frozen=True, slots=True)
class Proof:
    """`why` says where plan or text differ from the program, or why that is not known; `sizes` are those looked at."""

    verdict: Verdict
    sizes: dict[str, int]
    why: str = ""
    followed: bool = True  # to the end; a text that is not may be wrong, or say what is not known here

    @property
    def holds(self) -> bool:
        return self.verdict is Verdict.PROVED

    def __str__(self) -> str:
        small = ", ".join(f"{dim}={size}" for dim, size in self.sizes.items())
        if self.holds:
            return f"proved for every value: program, plan and emitted text agree on every device ({small})"
        return f"{self.verdict.value}: {self.why} ({small})"


def prove(schedule: Schedule, text: str, most: int = ASKED) -> Proof:
    """`text` is what was emitted for the schedule. No more than `most` steps of work are done.

    With room for it, arrays are looked at in two sizes: see `reduced`.
    """
    fault = next(faults_of(schedule), None)
    if fault is not None:
        return Proof(Verdict.WRONG, {}, f"the plan is not legal: {fault}")
    lowering = lower(schedule)
    small, larger = (reduced(schedule, lowering, least) for least in (2, 3))
    if small.work > most:
        why = f"it takes {small.work:,} steps of work, and {most:,} may be done"
        return Proof(Verdict.NOT_PROVED, small.sizes, why)
    found = _proved(schedule, text, small)
    return found if not found.holds or larger.work > most // _AGAIN else _proved(schedule, text, larger, small)


def _proved(schedule: Schedule, text: str, small: Reduced, first: Reduced | None = None) -> Proof:
    sizes = (small if first is None else first).sizes
    try:
        differs = next(_differences(schedule, text, small), None)
    except Unread as unread:
        return Proof(Verdict.NOT_PROVED, sizes, f"the emitted text says {unread}, which is not followed")
    except Fault as wrong:
        return Proof(Verdict.WRONG, sizes, f"the emitted text: {wrong}")
    except _DOES_NOT_RUN as wrong:
        return Proof(Verdict.WRONG, sizes, f"the emitted text: {wrong}", followed=False)
    return Proof(Verdict.PROVED, sizes) if differs is None else Proof(Verdict.WRONG, sizes, differs)


def _differences(schedule: Schedule, text: str, small: Reduced) -> Iterator[str]:
    program, devices = schedule.program, Devices(schedule.given_mesh)
    arrays = [schedule.given(number) for number in schedule.inputs]
    wholes = [drawn(place, small.shape(array.dims)) for place, array in enumerate(program.inputs)]
    meant = program_on(program, wholes, small.sizes)
    planned = plan_on(schedule.block, wholes, small.sizes)
    for array, wanted, number in zip(schedule.results, meant, schedule.outputs, strict=True):
        if planned[number].items != wanted.items:
            yield f"the plan: `{array}` at {_place(planned[number], wanted)} is not what the program means"
    given = [_given(whole, array, devices) for whole, array in zip(wholes, arrays, strict=True)]
    found = Module(devices, small.literals).loaded(text)(*given)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(meant):
        yield f"the emitted text: {len(results)} results, and {len(meant)} outputs"
    for array, wanted, result in zip(schedule.results, meant, results, strict=True):
        yield from _unlike(array, wanted, result, devices)


def _given(whole: Tensor, array: Array, devices: Devices) -> Laid | Held:
    """On one device there is no mesh, and an array is a block."""
    held = laid_out(whole, array.sharding, array.dtype, devices, array.name)
    return Laid(held, array.sharding, devices) if devices.mesh.axes else held


def _unlike(array: Array, wanted: Tensor, result: Laid | Held, devices: Devices) -> Iterator[str]:
    held = result
    if isinstance(result, Laid):
        held = result.held
        if not result.lies_as(array.sharding, devices):
            yield f"the emitted text: `{array}` lies as {result.sharding.dims}"
    assert isinstance(held, Held)
    if held.dtype != array.dtype:
        yield f"the emitted text: `{array}` is of {held.dtype}, not of {array.dtype}"
    reduced_array = Sharding(array.sharding.dims)
    expected = laid_out(wanted, reduced_array, array.dtype, devices, array.name)
    blocks = _summed(held, array.sharding, devices)
    for device, (one, other) in enumerate(zip(blocks, expected.blocks, strict=True)):
        if one is not other and (one.shape, one.items) != (other.shape, other.items):
            at = ", ".join(f"{axis}={n}" for axis, n in devices.places[device].items())
            yield f"the emitted text: device ({at}) at {_place(one, other)} of `{array}` is not what the program means"


def _summed(held: Held, sharding: Sharding, devices: Devices) -> Sequence[Tensor]:
    """Of partial sums what they add up to, on every device."""
    if not sharding.unreduced:
        return held.blocks
    groups = devices.groups(devices.mesh.ordered(sharding.unreduced))
    return devices.gathered(held, groups, lambda blocks: [sum_of(blocks)] * len(blocks)).blocks


def _place(found: Tensor, wanted: Tensor) -> tuple[int, ...]:
    """The first element that differs."""
    if found.shape != wanted.shape:
        return ()
    number = next(n for n, (one, other) in enumerate(zip(found.items, wanted.items, strict=True)) if one != other)
    place = list[int]()
    for size in reversed(found.shape):
        number, index = divmod(number, size)
        place.insert(0, index)
    return tuple(place)
