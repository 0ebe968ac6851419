"""Each pass by itself: what it leaves is held against what the pass before it left, in symbols.

    plan     every output on whole arrays          the program's
    lower    every value on all devices            the plan's, laid out: so the first step that is wrong is named
    emit     the bodies' code, on all devices      the plan's outputs
    write    the module's text                     the program's outputs: `prove` does this one for every user

A form is done by `forms`, code and text are read again by `text`. Read, resolve and size are passes from program to
program; `pipeline` holds them against each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.ir.plan import Schedule, ValueNumber
from shardc.ir.program import Program
from shardc.ir.sharding import Array
from shardc.lowering.flow import untyped_along
from shardc.lowering.forms import Lowering
from shardc.lowering.lower import lower
from shardc.lowering.target import Target
from shardc.proving.compared import unlike
from shardc.proving.devices import Devices, Held, laid_out
from shardc.proving.forms import Known, forms_on
from shardc.proving.laid import Laid
from shardc.proving.meaning import drawn, plan_on, program_on
from shardc.proving.reduced import Reduced, reduced
from shardc.proving.tensors import Tensor, shaped
from shardc.proving.text import Module


@dataclass(frozen=True, slots=True)
class Code:
    """What `emit` leaves: a function's lines as text, and the schedule that it is of; `left` to XLA's partitioner."""

    text: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    schedule: Schedule
    left: bool


@dataclass(frozen=True, slots=True)
class InSmall:
    """A schedule in small: its inputs, and what its plan says of each value."""

    schedule: Schedule
    devices: Devices
    reduced: Reduced
    wholes: list[Tensor]
    planned: Mapping[ValueNumber, Tensor]

    @staticmethod
    def of(schedule: Schedule) -> InSmall:
        program, small = schedule.program, reduced(schedule, lower(schedule))
        wholes = [drawn(place, small.shape(array.dims)) for place, array in enumerate(program.inputs)]
        return InSmall(schedule, Devices(schedule.mesh), small, wholes, plan_on(schedule.block, wholes, small.sizes))

    def outputs(self, program: Program) -> list[Tensor]:
        return program_on(program, self.wholes, self.reduced.sizes)

    def held(self) -> list[Held]:
        """The inputs, on the mesh of the steps."""
        values = [self.schedule.values[number] for number in self.schedule.inputs]
        return [self.laid(whole, array) for whole, array in zip(self.wholes, values, strict=True)]

    def laid(self, whole: Tensor, array: Array) -> Held:
        return laid_out(whole, array.sharding, array.dtype, self.devices, array.name)

    def on_blocks(self, code: Code, known: Known) -> list[Held]:
        """Partial sums come in, and what is of a wider type leaves, as a block of an array of one more dim."""
        schedule = code.schedule
        partial = {number for number in schedule.inputs if schedule.values[number].sharding.unreduced}
        given = [known[n].each(_one_more) if n in partial else known[n] for n in schedule.inputs]
        left = zip(_results(self._module(), code, given), schedule.outputs, strict=True)
        untyped = untyped_along(schedule.block)
        return [each.each(_one_fewer) if untyped[number] else each for each, number in left]

    def on_whole_arrays(self, code: Code, known: Known) -> list[Held]:
        """What is left to XLA is one of whole arrays, whatever XLA moves."""
        schedule = code.schedule
        lies = [(known[number], schedule.values[number]) for number in schedule.inputs]
        given = [Held((Laid(held, array.sharding, self.devices).whole(),), array.dtype) for held, array in lies]
        made = zip(_results(self._module().on_whole_arrays(), code, given), schedule.outputs, strict=True)
        return [self.laid(each.blocks[0], schedule.values[number]) for each, number in made]

    def _module(self) -> Module:
        return Module(self.devices, self.reduced.literals, Target.of(self.schedule.program).names_slice)


def wrong_of_program(small: InSmall, found: Program, sized: Program) -> Iterator[str]:
    """Each output that a program leaves otherwise than `sized`, of the sizes that a schedule is looked at in."""
    pairs = zip(sized.outputs, *(small.outputs(each) for each in (found, sized)), strict=True)
    for number, one, other in pairs:
        if (one.shape, one.items) != (other.shape, other.items):
            yield f"`{sized.results[number].name}` means something else"


def wrong_of_plan(small: InSmall) -> Iterator[str]:
    """Each output of a plan that is not its program's."""
    schedule = small.schedule
    for array, wanted, number in zip(schedule.results, small.outputs(schedule.program), schedule.outputs, strict=True):
        if small.planned[number].items != wanted.items:
            yield f"`{array}` is not what the program means"


def wrong_of_forms(small: InSmall, lowering: Lowering) -> Iterator[str]:
    """Each value that the steps in their forms leave otherwise than the plan says."""
    known = forms_on(small.schedule, lowering, small.held(), small.reduced.sizes)
    for number, held in known.items():
        yield from unlike(small.schedule.values[number], small.planned[number], held, small.devices)


def wrong_of_code(small: InSmall, codes: Sequence[Code]) -> Iterator[str]:
    """Each output that the code leaves otherwise than the plan says."""
    schedule = small.schedule
    known = dict(zip(schedule.inputs, small.held(), strict=True))
    for code in codes:
        left = small.on_whole_arrays(code, known) if code.left else small.on_blocks(code, known)
        known |= dict(zip(code.schedule.outputs, left, strict=True))
    for number in schedule.outputs:
        yield from unlike(schedule.values[number], small.planned[number], known[number], small.devices)


def _results(module: Module, code: Code, arguments: Sequence[Held]) -> list[Held]:
    """Of lines that stand alone: what `write` puts around them is one function, which has a gradient."""
    module.names["largest"] = module.names["jax.lax.pmax"]
    known = dict(zip(code.parameters, arguments, strict=True))
    module.done(ast.parse(code.text).body, known)
    return [known[name] for name in code.results]


def _one_more(block: Tensor) -> Tensor:
    return shaped(block, (1, *block.shape))


def _one_fewer(block: Tensor) -> Tensor:
    return shaped(block, block.shape[1:])
