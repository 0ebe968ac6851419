"""`shardc fmt`: files in the canonical spelling."""

from __future__ import annotations

import click

from shardc.commands.expressions import Subcommand, completed
from shardc.commands.failures import refuse
from shardc.errors import MISMATCH, ShardcError, in_line, in_lines
from shardc.io import streams
from shardc.io.files import read_input, write_output


@click.command(cls=Subcommand)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, shell_complete=completed)
@click.option("--check", "only", is_flag=True, help="Write nothing; exit 1 if a file is spelt otherwise.")
@click.option("--json", "as_json", is_flag=True, help="Errors as JSON on stderr.")
def fmt(inputs: tuple[str, ...], only: bool, as_json: bool) -> int:
    """Rewrite files in the canonical spelling, comments kept; expressions and - go to stdout."""
    return max(_done(argument, only, as_json) for argument in inputs)


def _done(argument: str, only: bool, as_json: bool) -> int:
    from shardc.api import canonical

    try:
        text, name = read_input(argument)
        found = canonical(text, name)
        if name != argument and not only:
            streams.result(in_lines(found.removesuffix("\n")))
        if name != argument or found == text:
            return MISMATCH if only and found.strip() != text.strip() else 0
        streams.say(f"{'would rewrite' if only else 'rewritten'}: {in_line(argument)}")
        if not only:
            write_output(found, argument, sources=[], force=True)
    except ShardcError as error:
        return refuse(error, as_json)
    return MISMATCH if only else 0
