"""The command line: `shardc check | plan | emit | run | …`. Results to stdout, errors to stderr."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardc.errors import BUG, FILES, INTERRUPTED, LIMIT, MISMATCH, ShardcError
from shardc.files import check_output, read_input, write_output
from shardc.jsontext import json_text

if TYPE_CHECKING:
    from shardc.api import Plan
    from shardc.ir.program import Program

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Options:
    """What every command takes; None leaves it to the text's declarations."""

    program: dict[str, Any]  # of shardc.parse
    hardware: dict[str, Any]  # of hardware.Hardware
    objective: str
    json: bool

    @classmethod
    def of(cls, values: dict[str, Any]) -> Options:
        from shardc.hardware import Hardware  # not for `--help`

        program = {name: values[name] for name in ("mesh", "dims", "dtype", "chip", "topology")}
        hardware = {name: values[name] for name in Hardware.OPTIONS}
        return cls(program, hardware, values["objective"], values["as_json"])

    def parse(self, argument: str) -> Program:
        from shardc.api import parse

        text, name = read_input(argument)
        return parse(text, name=name, **self.program, dcn=self.hardware["dcn"])

    def plan(self, program: Program, *, small: bool = False) -> Plan:
        """The plan; sizes that are missing become 4096, or `small` ones."""
        from shardc.api import planned
        from shardc.hardware import Hardware
        from shardc.planner import sizes

        sized = sizes.small(program) if small else sizes.large(program)
        return planned(sized, Hardware.of(**self.hardware), self.objective)


_SHARED = (
    click.option("--mesh", metavar="X=4,Y=2", help="Mesh axes and their sizes."),
    click.option("--dims", metavar="I=1024,J=4096", help="Sizes of dims."),
    click.option("--dtype", metavar="bf16", help="Element type of arrays that declare none."),
    click.option("--chip", metavar="v5p", help="The chip that prices the plan, or a TOML file with its constants."),
    click.option("--topology", metavar="v5p:4x4x4", help="The slice: its chip, its shape, which axes are rings."),
    click.option("--map", metavar="X=0,Y=1+2", help="The physical axes on which mesh axes lie."),
    click.option("--dcn", metavar="P=2", help="Axes over the data-centre network."),
    click.option("--wraparound", metavar="X=ring,Y=line", help="Rings and lines, against the chip's rule."),
    click.option("--profile", type=click.Choice(["book", "spec"]), default="book", show_default=True),
    click.option("--formula", type=click.Choice(["exact", "book"]), default="exact", show_default=True),
    click.option("--memory", metavar="16GB", help="The most bytes that a device may hold at once."),
    click.option("--objective", type=click.Choice(["time", "bytes"]), default="time", show_default=True),
    click.option("--json", "as_json", is_flag=True, help="JSON on stdout; errors as JSON on stderr."),
)


def _options(command: _Command) -> _Command:
    """The options that all commands share."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


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
    from shardc.notation import print_program

    options = Options.of(values)
    for argument in inputs:
        program = options.parse(argument)
        found = options.plan(program)
        for warning in program.warnings:
            click.echo(f"warning: {warning}", err=True)
        if options.json:
            click.echo(json_text({"ok": True, "program": print_program(program), "warnings": list(found.notes)}))
        else:
            click.echo("\n".join(f"ok: {statement.text}" for statement in program.statements))
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT")
@click.option("--top", type=click.IntRange(min=1, max=10**6), help="How many strategies of each statement to show.")
@click.option("--pareto", is_flag=True, help="Time (or bytes) against memory: the plan, and leaner ones.")
@click.option("--gantt", is_flag=True, help="Show the plan's predicted timeline.")
@_options
def plan(argument: str, top: int | None, pareto: bool, gantt: bool, **values: Any) -> int:
    """Steps, cases, costs, alternatives, bound."""
    if pareto and (top is not None or gantt):
        other = "--gantt the steps" if gantt else "--top the strategies"
        raise click.UsageError(f"--pareto shows plans, {other} of one: give one of them")
    options = Options.of(values)
    found = options.plan(options.parse(argument))
    if pareto:
        front = found.pareto()
        click.echo(front.to_json() if options.json else front)
        return 0
    click.echo(found.to_json(top) if options.json else found.table(top or 3))
    if gantt and not options.json:
        from shardc.compiled.replay.gantt import gantt as drawn
        from shardc.compiled.replay.predicted import predicted

        click.echo(f"\n{drawn(predicted(found.schedule))}")
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT")
@click.option("-o", "--output", metavar="FILE", help="Write the module here instead of to stdout.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@_options
def emit(argument: str, output: str | None, force: bool, **values: Any) -> int:
    """The JAX source; the function is called `program`."""
    if output is not None:
        check_output(output, source=argument, force=force)
    options = Options.of(values)
    found = options.plan(options.parse(argument))
    for note in () if options.json else found.notes:
        click.echo(f"note: {note}", err=True)
    text = found.source()
    if output is None:
        click.echo(json_text({"source": text}) if options.json else text, nl=options.json)
        return 0
    write_output(text, output, source=argument, force=force)
    if options.json:
        click.echo(json_text({"output": output}))
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the inputs' values.")
@click.option("--seconds", type=click.IntRange(min=1), default=600, show_default=True, help="The most it may take.")
@_options
def run(argument: str, seed: int, seconds: int, **values: Any) -> int:
    """Run on simulated devices and compare every shard with NumPy; exit 1 on a mismatch, 6 if not checkable."""
    from shardc.backend.run import run as run_schedule

    options = Options.of(values)
    found = options.plan(options.parse(argument), small=True)

    report = run_schedule(found.schedule, seed, seconds, lambda line: click.echo(line, err=True))
    if options.json:
        fields = {"plan": json.loads(found.to_json(1)), "run": report.to_json()}
        click.echo(json_text(fields, indent=1))
    else:
        click.echo(f"{found.table(1)}\n\n{report}")
    return {"equal": 0, "not equal": MISMATCH, "not checkable": LIMIT}[report.verdict.value]


@shardc.command()
@click.argument("argument", metavar="INPUT")
@click.option("--gantt", is_flag=True, help="Show the compiled program's timeline.")
@click.option("--trace", metavar="FILE", help="Write the timeline as a Perfetto trace.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@_options
def verify(argument: str, gantt: bool, trace: str | None, force: bool, **values: Any) -> int:
    """Compile for a TPU slice, with no TPU: predicted beside compiled; exit 1 where collectives differ."""
    from shardc.compiled.replay.gantt import gantt as drawn
    from shardc.compiled.replay.gantt import trace as traced
    from shardc.report.verification import verification_fields, verification_table

    if trace is not None:
        check_output(trace, source=argument, force=force)
    options = Options.of(values)
    found = options.plan(options.parse(argument))
    verified = found.verify()
    if trace is not None:
        write_output(traced(verified.replayed), trace, source=argument, force=force)
    if options.json:
        fields = {"plan": json.loads(found.to_json(1)), "verification": verification_fields(verified, found.steps)}
        click.echo(json_text(fields, indent=1))
    else:
        click.echo(f"{found.table(1)}\n\n{verification_table(verified, found.steps)}")
        if gantt:
            click.echo(f"\n{drawn(verified.replayed)}")
    return 0 if verified.agrees else MISMATCH


@shardc.command()
@click.argument("argument", metavar="INPUT")
@click.option("--rounds", type=click.IntRange(min=1, max=10**4), default=15, show_default=True, help="Timed runs.")
@_options
def compare(argument: str, rounds: int, **values: Any) -> int:
    """Beside what jax.jit alone does: on a TPU slice with --topology, else on simulated devices, timed."""
    options = Options.of(values)
    program = options.parse(argument)
    found = options.plan(program, small=program.topology is None)
    compared = found.compare(rounds)
    if options.json:
        fields = {"plan": json.loads(found.to_json(1)), "comparison": compared.to_json()}
        click.echo(json_text(fields, indent=1))
    else:
        click.echo(f"{found.table(1)}\n\n{compared}")
    return 0


@shardc.command()
@click.argument("target", metavar="MODULE:FUNCTION")
@click.option("--chip", metavar="v5p", help="The chip that prices it, or a TOML file with its constants.")
@click.option("--topology", metavar="v5p:2x2x2", help="Compile for this slice, with no TPU, instead.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; errors as JSON on stderr.")
def explain(target: str, chip: str | None, topology: str | None, as_json: bool) -> int:
    """What a jitted JAX function communicates, what of it is wasteful, and what would do better.

    FUNCTION takes nothing and returns (jitted, *arguments), or is a jitted function with its arguments in `.args`.
    """
    from shardc.api import explain as explained
    from shardc.backend.target import load_target

    jitted, args = load_target(target)
    found = explained(jitted, *args, chip=chip, topology=topology)
    click.echo(json_text(found.to_json(), indent=1) if as_json else str(found))
    return 0


@shardc.command()
@click.option("--profile", type=click.Choice(["book", "spec"]), default="book", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="With the source of every constant.")
def chips(profile: str, as_json: bool) -> int:
    """The hardware table: peak rates, memory, links."""
    from shardc.cost import CHIPS
    from shardc.report.chips import as_fields, chip_table

    rows = [row.in_profile(profile) for row in CHIPS.values()]
    click.echo(json_text([as_fields(row) for row in rows]) if as_json else chip_table(rows))
    return 0


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
        if "--json" not in arguments:
            error.show()
            return error.exit_code
        return _refuse(ShardcError("SHC001", error.format_message(), help="shardc --help"), True)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more to flush at exit
        return FILES
    except OSError as error:
        return _refuse(ShardcError("SHC506", f"cannot write the result: {error.strerror or error}"), False)
    except MemoryError:
        return _refuse(
            ShardcError("SHC308", "out of memory", help="give smaller --dims, or a smaller mesh"), "--json" in arguments
        )
    except RecursionError:
        return _refuse(ShardcError("SHC403", "nested too deeply", help="split the statement"), "--json" in arguments)
    except Exception as error:
        return _bug(error, arguments)


def _refuse(error: ShardcError, as_json: bool) -> int:
    text = json_text({"error": error.to_json()}) if as_json else error.render()
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
