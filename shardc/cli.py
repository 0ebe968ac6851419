"""The command line: `shardc check | plan | emit | run`. Results to stdout, errors to stderr."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from shardc.errors import BUG, FILES, INTERRUPTED, MISMATCH, ShardcError
from shardc.files import read_input, write_output

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Options:
    """What every command takes; None leaves it to the text's declarations."""

    mesh: str | None
    dims: str | None
    dtype: str | None
    chip: str | None
    topology: str | None
    objective: str
    json: bool

    def parse(self, argument: str) -> Any:
        from shardc.api import parse

        text, name = read_input(argument)
        return parse(
            text,
            mesh=self.mesh,
            dims=self.dims,
            dtype=self.dtype,
            chip=self.chip,
            topology=self.topology,
            name=name,
        )


def _options(command: _Command) -> _Command:
    """The options that all commands share, handed over as one `options`."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


_SHARED = (
    click.option("--mesh", metavar="X=4,Y=2", help="Mesh axes and their sizes."),
    click.option("--dims", metavar="I=1024,J=4096", help="Sizes of dims."),
    click.option("--dtype", metavar="bf16", help="Element type of arrays that declare none."),
    click.option("--chip", metavar="v5p", help="The chip whose bandwidths and peak rates price the plan."),
    click.option("--topology", metavar="v5p:4x4x4", help="The slice; it names the chip."),
    click.option("--objective", type=click.Choice(["time", "bytes"]), default="time", show_default=True),
    click.option("--json", "as_json", is_flag=True, help="JSON on stdout; errors as JSON on stderr."),
)


def _collect(values: dict[str, Any]) -> Options:
    return Options(
        values["mesh"],
        values["dims"],
        values["dtype"],
        values["chip"],
        values["topology"],
        values["objective"],
        values["as_json"],
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="shardc")
def shardc() -> None:
    """Sharded einsums in the books' notation: checked, planned, priced, compiled to JAX.

    INPUT is an expression, a .shard file, or - for standard input.
    """


@shardc.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@_options
def check(inputs: tuple[str, ...], **values: Any) -> int:
    """Is it legal? Exit 0, or an error with a caret."""
    from shardc.api import plan
    from shardc.notation import print_program

    options = _collect(values)
    for argument in inputs:
        program = options.parse(argument)
        found = plan(program, chip=options.chip, objective=options.objective)
        for warning in program.warnings:
            click.echo(f"warning: {warning}", err=True)
        if options.json:
            click.echo(json.dumps({"ok": True, "program": print_program(program), "warnings": list(found.notes)}))
        else:
            click.echo("\n".join(f"ok: {statement.text}" for statement in program.statements))
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT")
@click.option("--top", type=click.IntRange(min=1), help="How many strategies of each statement to show.")
@_options
def plan(argument: str, top: int | None, **values: Any) -> int:
    """Steps, cases, costs, alternatives, bound."""
    from shardc.api import plan as make_plan

    options = _collect(values)
    found = make_plan(options.parse(argument), chip=options.chip, objective=options.objective)
    click.echo(found.to_json(top) if options.json else found.table(top or 3))
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT")
@click.option("-o", "--output", metavar="FILE", help="Write the module here instead of to stdout.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@_options
def emit(argument: str, output: str | None, force: bool, **values: Any) -> int:
    """The JAX source; the function is called `program`."""
    from shardc.api import plan as make_plan

    options = _collect(values)
    found = make_plan(options.parse(argument), chip=options.chip, objective=options.objective)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    text = found.source()
    if output is None:
        click.echo(json.dumps({"source": text}, ensure_ascii=False) if options.json else text, nl=options.json)
        return 0
    write_output(text, output, source=argument, force=force)
    if options.json:
        click.echo(json.dumps({"output": output}, ensure_ascii=False))
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the inputs' values.")
@_options
def run(argument: str, seed: int, **values: Any) -> int:
    """Run on simulated devices and compare every shard with NumPy; exit 1 on a mismatch."""
    from shardc.api import planned
    from shardc.planner.sizes import small

    options = _collect(values)
    found = planned(small(options.parse(argument)), options.chip, options.objective)
    from shardc.backend.run import run as run_schedule

    report = run_schedule(found.schedule, seed=seed)
    if options.json:
        fields = {"plan": json.loads(found.to_json(1)), "run": report.to_json()}
        click.echo(json.dumps(fields, ensure_ascii=False, indent=1))
    else:
        click.echo(f"{found.table(1)}\n\n{report}")
    return 0 if report.ok else MISMATCH


def main() -> None:
    """The entry point. No traceback reaches a user."""
    sys.exit(_status(sys.argv[1:]))


def _status(arguments: list[str]) -> int:
    try:
        with shardc.make_context("shardc", list(arguments)) as context:
            status = shardc.invoke(context)
        sys.stdout.flush()
        return int(status or 0)
    except ShardcError as error:
        return _refuse(error, "--json" in arguments)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to flush at exit
        return FILES
    except OSError as error:
        return _refuse(ShardcError("SHC506", f"cannot write the result: {error.strerror or error}"), False)
    except RecursionError:
        return _refuse(ShardcError("SHC403", "nested too deeply", help="split the statement"), "--json" in arguments)
    except Exception as error:
        return _bug(error, arguments)


def _refuse(error: ShardcError, as_json: bool) -> int:
    text = json.dumps({"error": error.to_json()}, ensure_ascii=False) if as_json else error.render()
    click.echo(text, err=True)
    return error.exit_code


def _bug(error: Exception, arguments: list[str]) -> int:
    """What is needed to replay a fault of ours, on stderr, without a traceback."""
    from importlib.metadata import version

    frames = []
    step = error.__traceback__
    while step is not None:
        frames.append(f"{step.tb_frame.f_code.co_qualname}:{step.tb_lineno}")
        step = step.tb_next
    lines = [
        f"error[SHC900]: a bug in shardc: {type(error).__name__}: {error}",
        f"  = replay: {shlex.join(['shardc', *arguments])}",
        f"  = versions: shardc {version('shardc')}, Python {sys.version.split()[0]}",
        f"  = where: {' > '.join(frames[-6:])}",
        "  = help: please report these lines",
    ]
    click.echo("\n".join(lines), err=True)
    return BUG
