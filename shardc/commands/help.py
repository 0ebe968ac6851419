"""`shardc help`: what an error code means, with an example; what a command takes."""

from __future__ import annotations

import shlex

import click

from shardc.commands.completing import topics
from shardc.commands.expressions import Subcommand
from shardc.errors import CODES, ShardcError, in_lines, nearest
from shardc.io import streams


@click.command(cls=Subcommand, name="help")
@click.argument("topic", metavar="[CODE|COMMAND]", required=False, shell_complete=topics)
@click.pass_context
def help_(context: click.Context, topic: str | None) -> int:
    """Explain an error code, as in `shardc help SHC204`; or a command; or list all codes: `shardc help codes`."""
    root = context.find_root()
    group = root.command
    assert isinstance(group, click.Group), "the command line"
    if topic is None:
        streams.result(root.get_help())
    elif topic == "codes":
        streams.result("\n".join(f"{code}  {meaning}" for code, meaning in CODES.items()))
    elif (command := group.get_command(root, topic)) is not None:
        streams.result(command.get_help(click.Context(command, info_name=topic, parent=root)))
    else:
        streams.show(in_lines(explained(_code(topic, [*CODES, *group.commands]), group)))
    return 0


def _code(topic: str, known: list[str]) -> str:
    """`SHC204`, however it is spelt."""
    code = topic.upper() if topic.upper().startswith("SHC") else f"SHC{topic}"
    if code in CODES:
        return code
    near = nearest(topic, known)
    remedy = "shardc help codes" if near is None else f"did you mean `{near}`? `shardc help codes` lists the codes"
    raise ShardcError("SHC001", f"no error code or command `{topic[:200]}`", help=remedy)


def explained(code: str, group: click.Group) -> str:
    """What a code means, an example, and, of an expression that is checked, what is said of it."""
    from shardc.commands.codes import MEANINGS

    status = ShardcError(code, "").exit_code
    meaning = MEANINGS[code]
    told = f", where {meaning.where}" if meaning.where else ""
    example = [f"example{told}:", "", *_example(meaning.example)]
    if meaning.example.startswith("shardc check ") and not meaning.where:
        example += [f"    {line}" for line in _refusal(meaning.example, group).splitlines()]
    return "\n".join([f"{code}: {CODES[code]} (exit status {status})", "", meaning.why, "", *example])


def _example(text: str) -> list[str]:
    prompt = "$ " if text.startswith(("shardc ", "python ")) else ""
    return [f"    {prompt}{line}" for line in text.splitlines()]


def _refusal(command: str, group: click.Group) -> str:
    """What `shardc check` says of the example."""
    from shardc.commands.checking import checked
    from shardc.commands.options import Options

    try:
        context = group.commands["check"].make_context("check", shlex.split(command)[2:])
        (argument,) = context.params["inputs"]
        return checked(argument, Options.of(context.params), False).faults[0].render()
    except ShardcError as error:
        return error.render()
