"""`shardc chips`: the hardware table."""

from __future__ import annotations

import click

from shardc.commands.expressions import Subcommand
from shardc.commands.options import profile_option
from shardc.errors import in_lines
from shardc.io import streams
from shardc.io.text import json_text


@click.command(cls=Subcommand)
@profile_option
@click.option("--json", "as_json", is_flag=True, help="With the source of every constant.")
def chips(profile: str, as_json: bool) -> int:
    """The hardware table: peak rates, memory, links."""
    from shardc.cost import CHIPS
    from shardc.report.chips import as_fields, chip_table

    rows = [row.in_profile(profile) for row in CHIPS.values()]
    shown = json_text([as_fields(row) for row in rows], indent=None) if as_json else chip_table(rows)
    (streams.result if as_json else streams.show)(in_lines(shown))
    return 0
