"""`shardc memory`: a training step's memory by kind, and what making arrays again would save of it, and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardc.commands.expressions import Subcommand, completed
from shardc.commands.options import Options, one_way, with_options
from shardc.errors import ShardcError, in_lines
from shardc.io import streams
from shardc.io.text import json_text
from shardc.ir.program import Program

if TYPE_CHECKING:
    from shardc.results import Plan


@click.command(cls=Subcommand)
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@click.option("--wrt", metavar="W,V", help="The inputs whose gradients are asked for; else every input of floats.")
@click.option("--remat", is_flag=True, help="Show the step that makes again what lies between.")
@click.option("--selective", is_flag=True, help="Show the step that makes again what contracts nothing with a weight.")
@with_options
def memory(argument: str, wrt: str | None, remat: bool, selective: bool, **values: Any) -> int:
    """A training step's memory by kind: INPUT's, or of INPUT with its backward program, made in three ways."""
    from shardc.cost.kinds.held import held_by_kind
    from shardc.report.kinds import choices_table, kinds_fields, kinds_table

    one_way(remat, selective)
    options = Options.of(values)
    program = options.parse(argument)
    found = options.plan(program)
    own = held_by_kind(found.schedule)  # of an update with one output as well, which `plan` takes for a sum of arrays
    plans = {"as written": found} if own is not None else _ways(program, wrt, options)
    shown = plans.get("selectively" if selective else "all" if remat else "nothing", found)
    kinds = own or shown.memory
    if kinds is None:
        raise _no_weight(wrt)
    if options.json:
        costs = {way: {"peak_bytes": one.cost.peak_bytes, "time_s": one.cost.time_s} for way, one in plans.items()}
        streams.result(json_text({"memory": kinds_fields(kinds), "made_again": costs}, indent=1))
        return 0
    parts = [kinds_table(kinds)]
    if len(plans) > 1:
        parts.append(choices_table([(way, one.memory, one.cost) for way, one in plans.items()]))
    streams.show(in_lines("\n\n".join(parts)))
    return 0


def _no_weight(wrt: str | None) -> ShardcError:
    note, help = "each has a dim of the tokens", "name weights in --wrt"
    if wrt is not None:
        note = f"{wrt} has a dim of the tokens, or its gradient is not told from what it is made of"
        help = "the peak of all of it is said by `shardc plan` of what `shardc grad --whole` prints"
    return ShardcError("SHC217", "no input is a weight", note=note, help=help)


def _ways(program: Program, wrt: str | None, options: Options) -> dict[str, Plan]:
    """The plans of forward and backward as one, by what is made again."""
    from shardc.backward import REMATS, grad

    ways = zip(("nothing", "selectively", "all"), REMATS, strict=True)
    return {
        way: options.plan(grad(program, wrt, whole=True, remat=remat), what=f"planning with {way} made again")
        for way, remat in ways
    }
