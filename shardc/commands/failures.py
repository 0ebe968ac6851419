"""How a command that fails says so, on standard error: as text with a caret, or, with `--json`, as fields."""

from __future__ import annotations

import os
import sys

import click

from shardc.errors import BUG, ShardcError, in_lines
from shardc.io import streams
from shardc.io.text import json_text


def usage(error: click.ClickException) -> ShardcError:
    context = getattr(error, "ctx", None)
    command = "shardc" if context is None else context.command_path
    elsewhere = _elsewhere(error, context) if isinstance(error, click.NoSuchOption) and context is not None else ""
    return ShardcError("SHC001", error.format_message(), help=f"{elsewhere}{command} --help")


def _elsewhere(error: click.NoSuchOption, context: click.Context) -> str:
    """The commands that have an option which this one has not."""
    group = context.find_root().command
    commands = group.commands if isinstance(group, click.Group) else {}
    found = [name for name, each in commands.items() if any(error.option_name in option.opts for option in each.params)]
    names = ", ".join(f"`shardc {name}`" for name in found)
    return f"{names} {'have' if len(found) > 1 else 'has'} it; " if found else ""


def refuse(error: ShardcError, as_json: bool) -> int:
    fields = {"error": error.to_json()}
    streams.say(in_lines(json_text(fields)) if as_json else error.render())
    return error.exit_code


def bug(error: Exception, arguments: list[str], as_json: bool) -> int:
    """What is needed to replay a fault of ours, on stderr, without a traceback."""
    facts = {
        "replay": " ".join(map(_quoted, ["shardc", *arguments])),
        "versions": f"shardc {installed_version()}, Python {sys.version.split()[0]}",
        "where": " > ".join(_frames(error)[-6:]),
    }
    what = error.message if isinstance(error, ShardcError) else f"{type(error).__name__}: {error}"
    refused = ShardcError("SHC900", f"a bug in shardc: {what}", help="please report these lines")
    if as_json:
        refused.note = "; ".join(f"{name}: {fact}" for name, fact in facts.items())
        return refuse(refused, True)
    first, last = refused.render().splitlines()
    streams.say("\n".join([first, *(f"  = {name}: {fact}" for name, fact in facts.items()), last]))
    return BUG


def installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("shardc")
    except PackageNotFoundError:
        return "(not installed)"


def _frames(error: Exception) -> list[str]:
    frames = []
    step = error.__traceback__
    while step is not None:
        frames.append(f"{step.tb_frame.f_code.co_qualname}:{step.tb_lineno}")
        step = step.tb_next
    return frames


def _quoted(argument: str) -> str:
    """For a shell; what a terminal would act on in the spelling of bash, `$'\\x1b'`."""
    if argument.isprintable():
        import shlex

        return shlex.quote(argument)
    data = os.fsencode(argument)
    return "$'" + "".join(chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\x{b:02x}" for b in data) + "'"
