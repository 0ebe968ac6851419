"""`shardc report`: a plan as one page, or as a picture."""

from __future__ import annotations

from typing import Any

import click

from shardc.commands.expressions import Subcommand
from shardc.commands.options import Options, with_options
from shardc.errors import in_line
from shardc.io import streams
from shardc.io.files import check_output, write_output


@click.command(cls=Subcommand)
@click.argument("argument", metavar="INPUT")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of to stdout; FILE.svg is the steps' picture.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--pareto", is_flag=True, help="With time (or bytes) against memory: the plan, and leaner ones.")
@with_options
def report(argument: str, output: str | None, force: bool, pareto: bool, **values: Any) -> int:
    """One self-contained page: shardings, steps, alternatives, timeline, roofline, memory, code."""
    options = Options.of(values)
    if options.json:
        raise click.UsageError("report writes a page: `shardc plan --json` has the plan as JSON")
    if output is not None:
        check_output(output, sources=options.files(argument), force=force)
    elif force:
        streams.say("warning: --force does nothing without -o")
    found = options.plan(options.parse(argument))
    for warning in found.warnings:
        streams.say(f"warning: {in_line(warning)}")
    is_picture = output is not None and output.endswith(".svg")
    text = f"{found.picture().svg}\n" if is_picture else found.page(pareto=pareto)
    if output is None:
        streams.result(text.removesuffix("\n"))
    else:
        write_output(text, output, sources=options.files(argument), force=force)
    return 0
