"""`shardc report`: a plan as one page, or as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import click

from shardc.commands.expressions import Subcommand, completed
from shardc.commands.options import Options, telling, with_options
from shardc.commands.output import Output, with_output
from shardc.errors import in_line
from shardc.io import streams
from shardc.io.files import check_page

if TYPE_CHECKING:
    from shardc.results import Plan

XLA: Final = "xla"  # no expression, which has brackets; a file of that name is ./xla


@click.command(cls=Subcommand)
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@with_output("Write here instead of to stdout; FILE.svg is the steps' picture.")
@click.option("--pareto", is_flag=True, help="With time (or bytes) against memory: the plan, and leaner ones.")
@click.option(
    "--compare", "other", metavar="OTHER", help="Beside the plan of another INPUT; or, `xla`, beside XLA's own program."
)
@with_options
def report(argument: str, output: str | None, force: bool, pareto: bool, other: str | None, **values: Any) -> int:
    """One self-contained page: shardings, steps, alternatives, timeline, roofline, memory, code."""
    options = Options.of(values)
    if options.json:
        raise click.UsageError("report writes a page: `shardc plan --json` has the plan as JSON")
    is_picture = output is not None and output.endswith(".svg")
    if is_picture and (pareto or other is not None):
        raise click.UsageError("a picture is of one plan's steps: give a FILE.html")
    if other is not None and pareto:
        raise click.UsageError("--compare shows two plans, --pareto all of one: give one of them")
    sources = options.files(argument) + ([] if other is None or other == XLA else [other])
    to = Output.of(output, sources, force)
    if output is not None and not is_picture:
        check_page(output)
    program = options.parse(argument)
    found = options.plan(program, small=other == XLA and program.topology is None)
    beside = _beside(other, options)
    for warning in found.warnings:
        streams.say(f"warning: {in_line(warning)}")
    with telling("drawing") as progress:
        text = f"{found.picture().svg}\n" if is_picture else found.page(pareto=pareto, compare=beside, say=progress)
    if not to.takes(text):
        streams.result(text.removesuffix("\n"))
    return 0


def _beside(other: str | None, options: Options) -> Plan | Literal["xla"] | None:
    if other is None:
        return None
    return XLA if other == XLA else options.plan(options.parse(other))
