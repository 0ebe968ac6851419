"""`shardc check`: every fault of an input, and its warnings."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from shardc.commands.expressions import Subcommand
from shardc.commands.failures import refuse
from shardc.commands.options import Options, with_options
from shardc.errors import SEMANTICS, ShardcError, in_line, in_lines
from shardc.io import streams
from shardc.io.files import read_input
from shardc.io.text import json_text


@click.command(cls=Subcommand)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@with_options
def check(inputs: tuple[str, ...], strict: bool, **values: Any) -> int:
    """Is it legal? Exit 0, or every fault of every input, each with a caret, and the worst one's status."""
    options = Options.of(values)
    return max(_checked(argument, options, strict) for argument in inputs)


def _checked(argument: str, options: Options, strict: bool) -> int:
    """The exit status of one input; `strict` makes warnings faults."""
    from shardc.api import faults_beside

    name = ""
    try:
        text, name = read_input(argument)
        program = options.parsed(text, name)
        found = options.plan(program)
    except ShardcError as error:
        faults = faults_beside(error, partial(options.parsed, name=name))
        return max(refuse(fault, options.json) for fault in faults)
    where = f"{name}: " if name == argument else ""  # of a file
    for warning in program.warnings:
        streams.say(f"{'error' if strict else 'warning'}: {where}{in_line(warning)}")
    fine = not (strict and program.warnings)
    if options.json:
        fields = {"ok": fine, "program": f"{program}\n", "warnings": list(found.notes)}
        streams.result(in_lines(json_text(fields, indent=None)))
    elif fine:
        streams.result(in_lines("\n".join(f"ok: {statement.text}" for statement in program.statements)))
    return 0 if fine else SEMANTICS
