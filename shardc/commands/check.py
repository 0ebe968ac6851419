"""`shardc check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardc.commands.expressions import Subcommand, completed
from shardc.commands.options import Options, with_options

if TYPE_CHECKING:
    from shardc.commands.checking import Format


@click.command(cls=Subcommand)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, shell_complete=completed)
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github", "sarif"]),
    default="text",
    show_default=True,
    help="For a reader; or JSON, annotations of GitHub's workflows, SARIF 2.1.0.",
)
@with_options
def check(inputs: tuple[str, ...], strict: bool, form: Format, **values: Any) -> int:
    """Is it legal? Exit 0, or every fault of every input, each with a caret, and the worst one's status."""
    from shardc.commands.checking import check as checked

    return checked(inputs, Options.of(values), strict, "json" if values["as_json"] else form)
