"""The passes, in order, from text to code: `PASSES` lists them, each with what it takes and leaves.

Each takes one form to the next and leaves a legal one behind: `ir.legal` says what is legal of a program and of a
schedule, `lowering.legal` of a lowering, `emit.allowed` of a module (`source` asks it). `shardc plan --passes` prints
what each leaves, and `wrong_after` proves that it means what the one before it left.

Inside `plan` there are more, each from a plan to one, in `planner/program/`, in the order in which they are done:

    with_sums_scattered    scattered.py   sums for all, of which each device keeps its part, as a ReduceScatter
    with_shares_computed   sliced.py      shares of what lies nowhere, computed of shares
    or_as_written          written.py     the program by the book's rules, where the budget ended and that costs less
    Finer                  finer.py       on meshes on which an axis is cut
    directly               directly.py    moves one after another as one exchange in unequal pieces; where that is too
                                          long, a shorter one with moves beside it, on a mesh of shorter.py
    Reshards               apart.py       arrays that move beside other statements, each as it is planned alone
    in_rounds              respelled.py   on a large slice, what is gathered over all of it by one axis, by its parts
    overlapped             overlap.py     products as one with the collectives beside them: as_one.py
    fastest                others.py      another strategy of a statement; steps in chunks of a dim: chunked.py

The first three are done in `loops.py` to each plan that the search leaves, the next three in `finer.py`, `in_rounds` in
`plan.py`, and the last two in `interface/chosen.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from shardc.emit.steps.calls import Body, body
from shardc.emit.steps.parts import is_in_parts, parts
from shardc.emit.text.layout import block
from shardc.emit.text.source import source
from shardc.ir.legal import Fault, faults_of
from shardc.ir.plan import Schedule
from shardc.ir.program import Program
from shardc.lowering.forms import Lowering
from shardc.lowering.legal import faults_of_lowering
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


@dataclass(frozen=True)
class Made:
    """A text, and what the passes made of it: its program, without sizes and with them, the schedule, the forms."""

    text: str
    unsized: Program
    schedule: Schedule
    chip: str

    @property
    def program(self) -> Program:
        return self.schedule.program

    @cached_property
    def lowering(self) -> Lowering:
        return lower(self.schedule)

    @cached_property
    def codes(self) -> tuple[Code, ...]:
        return codes_of(self.schedule)

    @cached_property
    def module(self) -> str:
        return source(self.schedule, self.chip)

    @cached_property
    def in_small(self) -> InSmall:
        return InSmall.of(self.schedule)

    @cached_property
    def sized(self) -> Program:
        """The program as it was, with the sizes that the schedule is for."""
        return self.unsized.with_sizes(dict(self.program.sizes))


def _nothing(_: Made) -> Iterator[Fault]:
    """Of what is legal as soon as it is there: a tree, a body, a module."""
    yield from ()


@dataclass(frozen=True, slots=True)
class Pass:
    """One form to the next: what is said of it, what it leaves as text, and each way in which that is not what the form
    before means, or is not legal."""

    name: str
    forms: str
    says: str
    text: Callable[[Made], str]
    wrong: Callable[[Made], Iterable[str]]
    legal: Callable[[Made], Iterator[Fault]] = _nothing


def _wrong_printed(made: Made, text: str) -> Iterator[str]:
    """What a text, read again, means otherwise than the program."""
    asked = made.unsized
    found = parse(text, mesh=asked.mesh, dims=dict(made.sized.sizes), dtype=asked.dtype.name)
    return wrong_of_program(made.in_small, found, made.sized)


def _wrong_module(made: Made) -> Iterator[str]:
    proof = prove(made.schedule, made.module)
    yield from [] if proof.holds else [proof.why]


def _read(made: Made) -> str:
    return print_tree(parse_tree(made.text))


def _resolved(made: Made) -> str:
    return print_program(made.unsized)


PASSES = (
    Pass(
        "read",
        "text → tree",
        "the statements as written, no name looked up",
        _read,
        lambda made: _wrong_printed(made, _read(made)),
    ),
    Pass(
        "resolve",
        "tree → program",
        "every name an array, a dim or an axis; every expression with its dims and its type",
        _resolved,
        lambda made: _wrong_printed(made, _resolved(made)),
        lambda made: faults_of(made.unsized),
    ),
    Pass(
        "size",
        "program → program",
        "dims without a size get one",
        lambda made: print_program(made.program),
        lambda made: wrong_of_program(made.in_small, made.program, made.sized),
        lambda made: faults_of(made.program),
    ),
    Pass(
        "plan",
        "program → schedule",
        "what each device does, step by step; where axes are cut, on the finer mesh",
        lambda made: print_schedule(made.schedule),
        lambda made: wrong_of_plan(made.in_small),
        lambda made: faults_of(made.schedule),
    ),
    Pass(
        "lower",
        "schedule → forms",
        "how each step will be written, for the chip at hand",
        lambda made: print_lowering(made.schedule, made.lowering),
        lambda made: wrong_of_forms(made.in_small, made.lowering),
        lambda made: faults_of_lowering(made.schedule, made.lowering),
    ),
    Pass(
        "emit",
        "forms → body",
        "each step as the JAX calls that do it",
        lambda made: "\n\n".join(map(print_code, made.codes)),
        lambda made: wrong_of_code(made.in_small, made.codes),
    ),
    Pass("write", "body → text", "a module that stands alone", lambda made: made.module, _wrong_module),
)


def stages(text: str, unsized: Program, schedule: Schedule, chip: str) -> Iterator[Stage]:
    """What each pass left on the way from a text to its plan's module. AssertionError for a form that is not legal."""
    made = Made(text, unsized, schedule, chip)
    for each in PASSES:
        fault = next(each.legal(made), None)
        assert fault is None, str(fault)
        yield Stage(each.name, each.text(made))


def wrong_after(text: str, unsized: Program, schedule: Schedule, chip: str) -> Iterator[tuple[str, str]]:
    """Each pass that did not leave what the one before it did, and how: on all devices, for every value.

    Of `read` and `resolve` it is seen that what they leave, printed and read again, means the same.
    """
    made = Made(text, unsized, schedule, chip)
    return ((each.name, what) for each in PASSES for what in chain(map(str, each.legal(made)), each.wrong(made)))


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
