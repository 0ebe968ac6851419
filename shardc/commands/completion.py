"""`shardc completion`: the script that a shell reads to complete our commands and options; click's own."""

from __future__ import annotations

import os
import sys

import click

from shardc.commands.expressions import Subcommand
from shardc.io import streams

_ASKED = "_SHARDC_COMPLETE"  # what the scripts set when they ask for completions


def complete(command: click.Command) -> None:
    """Answers a shell that asks, and ends; does nothing otherwise."""
    asked = os.environ.get(_ASKED)
    if asked:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(command, {}, "shardc", _ASKED, asked))


@click.command(cls=Subcommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """The completion of a shell, to be read by it: eval "$(shardc completion bash)"; in fish, pipe it to source."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "one of click's own"
    streams.result(found(context.find_root().command, {}, "shardc", _ASKED).source().strip("\n"))
    return 0
