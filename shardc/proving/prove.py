"""Whether a plan, and the text that is emitted for it, are the program, for every value: translation validation.

    program  on whole arrays of symbols          what is meant
    plan     legal, and its values on whole arrays   after the pass `plan`
    text     on the blocks of all devices        after `lower`, `emit` and `write`: what is printed, read again

Every element of every input is a symbol (`field`), the arrays are the smallest that keep every pattern (`reduced`), and
every device's block of every output is compared. Rounding is not asked here, `run` compares that; nor gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from shardc.errors import ShardcError
from shardc.ir.legal import faults_of
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array
from shardc.lowering.lower import lower
from shardc.lowering.target import Target
from shardc.proving.compared import place_of, unlike
from shardc.proving.devices import Devices, Held, laid_out
from shardc.proving.faults import Fault, Unread
from shardc.proving.laid import Laid
from shardc.proving.meaning import drawn, plan_on, program_on
from shardc.proving.reduced import Reduced, reduced
from shardc.proving.tensors import Tensor
from shardc.proving.text import Module

BESIDE_A_COMPILATION = 3_000_000  # which takes seconds
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


def refuse_wrong(proof: Proof, asked: bool = False) -> None:
    """SHC900 for a text that is wrong; unasked only for one that was followed to its end."""
    if proof.verdict is Verdict.WRONG and (asked or proof.followed):
        raise ShardcError("SHC900", f"the program emitted is wrong: {proof.why}", help="please report the program")


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
            yield f"the plan: `{array}` at {place_of(planned[number], wanted)} is not what the program means"
    given = [_given(whole, array, devices) for whole, array in zip(wholes, arrays, strict=True)]
    found = Module(devices, small.literals, Target.of(program).names_slice).loaded(text)(*given)
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
    yield from (f"the emitted text: {what}" for what in unlike(array, wanted, held, devices))
