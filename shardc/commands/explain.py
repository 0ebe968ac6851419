"""`shardc explain`: what an existing JAX function communicates, and what of it is wasteful."""

from __future__ import annotations

import click

from shardc.commands.completing import chips
from shardc.commands.expressions import Subcommand, completed
from shardc.commands.options import telling
from shardc.errors import MISMATCH, in_lines
from shardc.io import streams
from shardc.io.text import json_text


@click.command(cls=Subcommand)
@click.argument("target", metavar="MODULE:FUNCTION", shell_complete=completed)
@click.option(
    "--chip", metavar="v5p", shell_complete=chips, help="The chip that prices it, or a TOML file with its constants."
)
@click.option("--topology", metavar="v5p:2x2x2", help="Compile for this slice, with no TPU, instead.")
@click.option(
    "--devices", type=click.IntRange(min=1, max=512), help="Simulate so many; else as many as its mesh needs."
)
@click.option(
    "--fail-on-waste", "most", metavar="BYTES", help="Exit 1 where doing better would save more, as in 0 or 10MB."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; errors as JSON on stderr.")
def explain(
    target: str, chip: str | None, topology: str | None, devices: int | None, most: str | None, as_json: bool
) -> int:
    """What a jitted JAX function communicates, what of it is wasteful, and what would do better.

    FUNCTION takes nothing and returns (jitted, *arguments), or is a jitted function with its arguments in `.args`.
    MODULE is a module, or a Python file, as in model.py:step.
    """
    from shardc.machines import heard  # before what loads JAX

    heard.jax_warns()
    from shardc.api import explain as explained
    from shardc.interface.hardware import parse_bytes
    from shardc.machines.simulated import load_on_devices

    allowed = None if most is None else parse_bytes(most)
    jitted, args = load_on_devices(target, devices, on_slice=topology is not None)
    with telling("compiling, and looking for what would do better"):
        found = explained(jitted, *args, chip=chip, topology=topology)
    if as_json:
        streams.result(in_lines(json_text(found.to_json(), indent=1)))
    else:
        streams.show(in_lines(str(found)))
    if allowed is None or found.wasted_bytes <= allowed:
        return 0
    streams.say(f"wasted: {found.wasted_bytes:,} bytes per device; allowed are {allowed:,}")
    return MISMATCH
