"""`shardc tune`: the plan, the form, or XLA's own program that replays fastest."""

from __future__ import annotations

import json
from typing import Any

import click

from shardc.commands.expressions import Subcommand, completed
from shardc.commands.options import Options, telling, with_options
from shardc.commands.output import Output, force_option
from shardc.errors import in_lines
from shardc.io import streams
from shardc.io.text import json_text


@click.command(cls=Subcommand)
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@click.option("-o", "--output", metavar="FILE", help="Write the module that is kept here.")
@force_option
@click.option("--few", type=click.IntRange(min=0, max=32), default=4, show_default=True, help="Plans beside the first.")
@with_options
def tune(argument: str, output: str | None, force: bool, few: int, **values: Any) -> int:
    """Compile the best plans and forms, and XLA's own, for --topology; replay each, keep the fastest."""
    options = Options.of(values)
    to = Output.of(output, options.files(argument), force)
    found = options.plan(options.parse(argument))
    with telling("compiling") as progress:
        tuning = found.tune(few, progress)
    if output is not None:
        to.takes(tuning.plan.source())
    if options.json:
        fields = {"plan": json.loads(tuning.plan.to_json(1)), "tuned": tuning.tried.to_json()}
        text = json_text(fields, indent=1)
    else:
        text = f"{tuning.plan.table(1)}\n\n{tuning}"
    (streams.result if options.json else streams.show)(in_lines(text))
    return 0
