"""The passes, in order, from text to code.

    read      text → tree         the statements as written, no name looked up
    resolve   tree → program      every name an array, a dim or an axis; every expression with its dims and its type
    size      program → program   dims without a size get one
    plan      program → schedule  what each device does, step by step; where axes are cut, on the finer mesh
    lower     schedule → forms    how each step will be written, for the chip at hand
    emit      forms → body        each step as the JAX calls that do it
    write     body → text         a module that stands alone

Each takes one form to the next and leaves a legal one behind: `ir.legal` says what is legal of a program and of a
schedule, `emit.allowed` of a module. `shardc plan --passes` prints what each leaves, and `wrong_after` proves that it
means what the one before it left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardc.emit.steps.calls import Body, body
from shardc.emit.steps.parts import is_in_parts, parts
from shardc.emit.text.layout import block
from shardc.emit.text.source import source
from shardc.ir.legal import faults_of
from shardc.ir.plan import Schedule
from shardc.ir.program import Program
from shardc.lowering.lower import lower
from shardc.lowering.spell import print_lowering
from shardc.notation import parse, parse_tree, print_program, print_tree
from shardc.proving import prove
from shardc.proving.passes import Code, InSmall, wrong_of_code, wrong_of_forms, wrong_of_plan, wrong_of_program
from shardc.report.steps import print_schedule


@dataclass(frozen=True, slots=True)
class Stage:
    """What a pass leaves, as text."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"== {self.name} ==\n{self.text.rstrip()}\n"


def stages(text: str, unsized: Program, schedule: Schedule, chip: str) -> Iterator[Stage]:
    """What each pass left on the way from a text to its plan's module. AssertionError for a form that is not legal."""
    for form in (unsized, schedule.program, schedule):
        fault = next(faults_of(form), None)
        assert fault is None, str(fault)
    yield Stage("read", print_tree(parse_tree(text)))
    yield Stage("resolve", print_program(unsized))
    yield Stage("size", print_program(schedule.program))
    yield Stage("plan", print_schedule(schedule))
    yield Stage("lower", print_lowering(schedule, lower(schedule)))
    yield Stage("emit", "\n\n".join(map(print_code, codes_of(schedule))))
    yield Stage("write", source(schedule, chip))


def codes_of(schedule: Schedule) -> tuple[Code, ...]:
    """What `emit` leaves: one function; of a program in parts one for each."""
    if not is_in_parts(schedule):
        return (_code(body(schedule), schedule, left=False),)
    return tuple(_code(part.body, part.schedule, part.left) for part in parts(schedule).parts)


def _code(lowered: Body, schedule: Schedule, left: bool) -> Code:
    return Code("\n".join(block(lowered.code, 0)), lowered.parameters, lowered.results, schedule, left)


def print_code(code: Code) -> str:
    """Parameters, lines and loops, results: what each device calls, or what XLA is left to split."""
    text = f"given {', '.join(code.parameters)}\n{code.text}\nreturn {', '.join(code.results)}"
    return f"left to XLA:\n{text}" if code.left else text


def wrong_after(text: str, unsized: Program, schedule: Schedule, chip: str) -> Iterator[tuple[str, str]]:
    """Each pass that did not leave what the one before it did, and how: on all devices, for every value.

    Of `read` and `resolve` it is seen that what they leave, printed and read again, means the same.
    """
    sized = unsized.with_sizes(dict(schedule.program.sizes))
    asked: dict[str, Any] = {"mesh": unsized.mesh, "dims": dict(sized.sizes), "dtype": unsized.dtype.name}
    small, proof = InSmall.of(schedule), prove(schedule, source(schedule, chip))
    found = {
        "read": wrong_of_program(small, parse(print_tree(parse_tree(text)), **asked), sized),
        "resolve": wrong_of_program(small, parse(print_program(unsized), **asked), sized),
        "size": wrong_of_program(small, schedule.program, sized),
        "plan": wrong_of_plan(small),
        "lower": wrong_of_forms(small, lower(schedule)),
        "emit": wrong_of_code(small, codes_of(schedule)),
        "write": [] if proof.holds else [proof.why],
    }
    return ((name, what) for name, faults in found.items() for what in faults)
