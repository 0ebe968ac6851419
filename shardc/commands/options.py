"""The options that the commands share, and what they ask of the interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardc.commands.completing import chips, dtypes
from shardc.errors import ShardcError
from shardc.io import streams
from shardc.io.files import read_input
from shardc.machines.platforms import PLATFORMS, SIMULATED

if TYPE_CHECKING:
    from shardc.ir.program import Program
    from shardc.results import Plan

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Choice = TypeVar("_Choice")


@contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """Says what is being done on standard error, if that is a terminal and it takes more than a second; and what is
    done after it, wherever it is read."""
    from shardc.machines.progress import Progress  # with threads, which `--help` does not need

    with streams.aside() as say, Progress(lambda line: say(f"… {line}")) as now:
        if streams.is_watched():
            now(what)
        yield now


def one_way(remat: bool, selective: bool) -> None:
    """Of two ways to make arrays again one."""
    if remat and selective:
        raise click.UsageError("--remat makes all again, --selective what costs little: give one of them")


@dataclass(frozen=True, slots=True)
class Options:
    """What every command takes; None leaves it to the text's declarations."""

    program: dict[str, Any]  # of shardc.parse
    hardware: dict[str, Any]  # of hardware.Hardware
    objective: str
    idle: str | None
    overlap: str
    json: bool

    @classmethod
    def of(cls, values: dict[str, Any]) -> Options:
        from shardc.interface.hardware import Hardware  # not for `--help`

        program = {name: values[name] for name in ("mesh", "dims", "dtype", "chip", "topology")}
        hardware = {name: values[name] for name in Hardware.OPTIONS}
        return cls(program, hardware, values["objective"], values["idle"], values["overlap"], values["as_json"])

    def parse(self, argument: str) -> Program:
        return self.parsed(*read_input(argument))

    def parsed(self, text: str, name: str) -> Program:
        from shardc.api import parse

        return parse(text, name=name, **self.program, dcn=self.hardware["dcn"])

    def files(self, argument: str) -> list[str]:
        """What may be read: no output may take its place."""
        return [argument, self.hardware["chip"] or ""]

    def plan(self, program: Program, *, small: bool = False, what: str = "planning") -> Plan:
        """The plan; sizes that are missing become 4096, or `small` ones. `what` is said where it takes long."""
        from shardc.api import planned
        from shardc.interface.hardware import Hardware
        from shardc.planner.program import sizes

        sized = sizes.small(program) if small else sizes.large(program)
        with telling(what):
            return planned(sized, Hardware.of(**self.hardware), self.objective, self.idle, self.overlap)

    def first_within(self, choices: Iterable[tuple[_Choice, Program]]) -> _Choice:
        """Of programs, each of which computes more than the one before, the first that keeps the limit of memory. Below
        what they are given and leave, which they all hold, none does: the last says what the least is."""
        from shardc.interface.hardware import Hardware
        from shardc.planner.bounds.held import least_held
        from shardc.planner.program import sizes

        memory, waiting = Hardware.of(**self.hardware).memory, [*choices]
        _, first = waiting[0]
        if memory is not None and memory < least_held(sizes.large(first)):
            waiting = waiting[-1:]
        while waiting:
            choice, program = waiting.pop(0)
            try:
                self.plan(program)
            except ShardcError as error:
                if error.code != "SHC410":
                    raise
                over = error
            else:
                return choice
        raise over


profile_option = click.option(
    "--profile",
    type=click.Choice(["book", "spec"]),
    default="book",
    show_default=True,
    help="Whose link speeds: the scaling book's, or the vendor's.",
)


def with_platform(command: _Command) -> _Command:
    return click.option(
        "--platform",
        type=click.Choice(PLATFORMS),
        default=SIMULATED,
        show_default=True,
        help="On simulated devices (cpu), or on this machine's GPUs or TPUs.",
    )(command)


_SHARED = (
    click.option("--mesh", metavar="X=4,Y=2", help="Mesh axes and their sizes."),
    click.option("--dims", metavar="I=1024,J=4k", help="Sizes of dims; k, M and G are 1024, 1024² and 1024³."),
    click.option("--dtype", metavar="bf16", shell_complete=dtypes, help="Element type of arrays that declare none."),
    click.option(
        "--chip",
        metavar="v5p",
        shell_complete=chips,
        help="The chip that prices the plan, or a TOML file with its constants.",
    ),
    click.option("--topology", metavar="v5p:4x4x4", help="The slice: its chip, its shape, which axes are rings."),
    click.option("--map", metavar="X=0,Y=1+2", help="The physical axes on which mesh axes lie."),
    click.option("--dcn", metavar="P=2", help="Axes over the data-centre network."),
    click.option("--wraparound", metavar="X=ring,Y=line", help="Rings and lines, against the chip's rule."),
    profile_option,
    click.option(
        "--formula",
        type=click.Choice(["exact", "book"]),
        default="exact",
        show_default=True,
        help="`book` prices V/W, without (n-1)/n.",
    ),
    click.option("--memory", metavar="16GB", help="The most bytes that a device may hold at once."),
    click.option(
        "--objective",
        type=click.Choice(["time", "bytes"]),
        default="time",
        show_default=True,
        help="The least time, or the fewest wire bytes.",
    ),
    click.option(
        "--idle",
        type=click.Choice(["use", "keep"]),
        help="Whether axes that the text does not name may be used.  [default: use; with --formula book keep]",
    ),
    click.option(
        "--overlap",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        show_default=True,
        help="Products and collectives as one, and steps in chunks to save time: on, by price; auto, where that is "
        "known to be right; off, never.",
    ),
    click.option("--json", "as_json", is_flag=True, help="JSON on stdout; errors as JSON on stderr."),
)


def with_options(command: _Command) -> _Command:
    """The options that all commands share."""
    for option in reversed(_SHARED):
        command = option(command)
    return command
