"""`shardc grad`: a program's backward program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardc.commands.expressions import Subcommand, completed
from shardc.commands.options import Options, one_way, telling, with_options
from shardc.commands.output import Output, with_output
from shardc.errors import in_lines
from shardc.io import streams
from shardc.io.text import json_text

if TYPE_CHECKING:
    from shardc.backward import Remat
    from shardc.ir.program import Program


@click.command(cls=Subcommand)
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@with_output("Write the program here instead of to stdout.")
@click.option(
    "--wrt",
    metavar="W,V",
    help="The inputs whose gradients are asked for, as W[D_X, F] so sharded; else all of floats.",
)
@click.option("--whole", is_flag=True, help="Forward and backward as one program.")
@click.option("--remat", is_flag=True, help="Make what lies between again from the inputs, instead of keeping it.")
@click.option("--selective", is_flag=True, help="In loops, keep products with weights and make the rest again.")
@with_options
def grad(
    argument: str,
    output: str | None,
    force: bool,
    wrt: str | None,
    whole: bool,
    remat: bool,
    selective: bool,
    **values: Any,
) -> int:
    """The backward program, in the notation: a statement for each gradient, in its array's sharding."""
    one_way(remat, selective)
    options = Options.of(values)
    to = Output.of(output, options.files(argument), force)
    text = str(_backward(options.parse(argument), options, wrt, whole, "selective" if selective else remat))
    is_written = to.takes(f"{text}\n")
    if options.json:
        streams.result(in_lines(json_text({"output": output} if is_written else {"program": text}, indent=None)))
    elif not is_written:
        streams.result(in_lines(text))
    return 0


def _backward(program: Program, options: Options, wrt: str | None, whole: bool, made: Remat) -> Program:
    """With what `made` says made again; or, where it says nothing, the least that keeps the limit of memory."""
    from shardc.backward import REMATS
    from shardc.backward import grad as backward

    if options.hardware["memory"] is not None and not made:
        made = options.first_within((each, backward(program, wrt, whole=True, remat=each)) for each in REMATS)
    with telling("differentiating"):
        found = backward(program, wrt, whole=whole, remat=made)
    if made and found == backward(program, wrt, whole=whole):
        flag = "--selective" if made == "selective" else "--remat"
        streams.say(f"note: {flag} changes nothing: backward reads no array that forward makes between")
    return found
