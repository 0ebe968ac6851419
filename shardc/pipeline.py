"""The passes, in order, from text to code.

    read      text → tree         the statements as written, no name looked up
    resolve   tree → program      every name an array, a dim or an axis; every expression with its dims and its type
    size      program → program   dims without a size get one
    plan      program → schedule  what each device does, step by step; where axes are cut, on the finer mesh
    lower     schedule → forms    how each step will be written, for the chip at hand
    emit      forms → body        each step as the JAX calls that do it
    write     body → text         a module that stands alone

Each takes one form to the next and leaves a legal one behind: `ir.legal` says what is legal of a program and of a
schedule, `emit.allowed` of a module. `shardc plan --passes` prints what each leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.emit.steps.calls import Body, body
from shardc.emit.text.layout import block
from shardc.emit.text.source import source
from shardc.ir.legal import faults_of
from shardc.ir.plan import Schedule
from shardc.ir.program import Program
from shardc.lowering.lower import lower
from shardc.lowering.spell import print_lowering
from shardc.notation import parse_tree, print_program, print_tree
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
    lowering = lower(schedule)
    yield Stage("lower", print_lowering(schedule, lowering))
    yield Stage("emit", print_body(body(schedule, lowering)))
    yield Stage("write", source(schedule, chip))


def print_body(lowered: Body) -> str:
    """Parameters, lines and loops, results: what each device calls."""
    code = "\n".join(block(lowered.code, 0))
    return f"given {', '.join(lowered.parameters)}\n{code}\nreturn {', '.join(lowered.results)}"
