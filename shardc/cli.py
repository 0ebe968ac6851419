"""The command line: `shardc check | plan | emit | run | …`. Results to stdout, errors to stderr."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from shardc.commands.check import check
from shardc.commands.chips import chips
from shardc.commands.completion import complete, completion
from shardc.commands.explain import explain
from shardc.commands.expressions import Commands, completed
from shardc.commands.failures import bug, refuse, usage
from shardc.commands.fmt import fmt
from shardc.commands.grad import grad
from shardc.commands.help import help_
from shardc.commands.memory import memory
from shardc.commands.options import Options, telling, with_options, with_platform
from shardc.commands.output import Output, force_option, with_output
from shardc.commands.proving import in_fields, proved, shown, with_proof
from shardc.commands.report import report
from shardc.commands.tune import tune
from shardc.errors import BUG, FILES, INTERRUPTED, LIMIT, MISMATCH, USAGE, ShardcError, in_line, in_lines
from shardc.io import streams
from shardc.io.files import read_input
from shardc.io.text import json_text
from shardc.machines.platforms import SIMULATED

if TYPE_CHECKING:
    from shardc.ir.program import Program
    from shardc.results import Plan

_EXIT_STATUS = (
    "Exit status: 0 fine; 1 a check found a mismatch; 2 usage; 3 syntax; 4 semantics; 5 runtime; 6 a limit; 7 files, "
    "or a result that cannot be written; 70 a bug of ours; 130 interrupted. A message that cannot be written is lost."
)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EXIT_STATUS,
)
@click.version_option(package_name="shardc")
@click.pass_context
def shardc(context: click.Context) -> int:
    """Sharded einsums in the books' notation: checked, planned, priced, compiled to JAX.

    INPUT is an expression, a .shard file, or - for standard input.
    """
    if context.invoked_subcommand is None:
        streams.say(context.get_help())
        return USAGE
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@click.option("--top", type=click.IntRange(min=1, max=10**6), help="How many strategies of each statement to show.")
@click.option("--pareto", is_flag=True, help="Time (or bytes) against memory: the plan, and leaner ones.")
@click.option("--gantt", is_flag=True, help="Show the plan's predicted timeline.")
@click.option("--passes", is_flag=True, help="Show what each pass leaves, from the text to the code.")
@click.option(
    "--sweep",
    "swept",
    multiple=True,
    metavar="B=1k..16M",
    help="Plan at each of these sizes, or at each split X*Y=64 of devices among axes; twice for every combination.",
)
@click.option("--csv", "as_csv", is_flag=True, help="The rows of a sweep as CSV.")
@with_proof
@with_options
def plan(
    argument: str,
    top: int | None,
    pareto: bool,
    gantt: bool,
    passes: bool,
    swept: tuple[str, ...],
    as_csv: bool,
    prove: bool,
    **values: Any,
) -> int:
    """Steps, cases, costs, alternatives, bound."""
    if prove and (swept or pareto or passes):
        raise click.UsageError("--prove is of one plan, shown as one: give no --sweep, --pareto or --passes")
    if swept:
        if top is not None or pareto or gantt or passes:
            raise click.UsageError("--sweep shows a row for each plan: give no --top, --pareto, --gantt or --passes")
        if as_csv and values["as_json"]:
            raise click.UsageError("a sweep is printed as CSV or as JSON: give one of --csv and --json")
        return _show_sweep(argument, swept, as_csv, Options.of(values))
    _idle("--csv", as_csv, "without --sweep")
    if pareto and (top is not None or gantt):
        other = "--gantt the steps" if gantt else "--top the strategies"
        raise click.UsageError(f"--pareto shows plans, {other} of one: give one of them")
    if passes and (pareto or gantt or top is not None):
        raise click.UsageError("--passes shows one plan on its way to code: give no --top, --pareto or --gantt")
    options = Options.of(values)
    text, name = read_input(argument)
    program = options.parsed(text, name)
    found = options.plan(program)
    if passes:
        return _show_passes(text, program, found, options.json)
    if pareto:
        with telling("looking for leaner plans") as progress:
            front = found.pareto(say=progress)
        (_print if options.json else _show)(front.to_json() if options.json else str(front))
        return 0
    (_print if options.json else _show)(shown(found, top, options.json, prove))
    if gantt and not options.json:
        from shardc.compiled.replay.gantt import gantt as drawn

        _show(f"\n{drawn(found.timeline, columns=streams.width())}")
    return 0


def _show_sweep(argument: str, swept: tuple[str, ...], as_csv: bool, options: Options) -> int:
    from shardc.sweeping import sweep

    text, name = read_input(argument)
    with telling("planning") as progress:
        asked = {**options.hardware, **options.program}
        asked |= {"objective": options.objective, "idle": options.idle, "overlap": options.overlap}
        found = sweep(text, *swept, say=progress, name=name, **asked)
    if as_csv:
        _print(found.to_csv().rstrip("\n"))
    else:
        (_print if options.json else _show)(found.to_json() if options.json else str(found))
    return 0


def _show_passes(text: str, program: Program, found: Plan, as_json: bool) -> int:
    from shardc.pipeline import stages

    after = list(stages(text, program, found.schedule, found.chip))
    if as_json:
        _print_json([{"pass": stage.name, "text": stage.text} for stage in after])
    else:
        _print("\n".join(map(str, after)))
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@with_output("Write the module here instead of to stdout.")
@with_proof
@with_options
def emit(argument: str, output: str | None, force: bool, prove: bool, **values: Any) -> int:
    """The JAX source; the function is called `program`."""
    options = Options.of(values)
    to = Output.of(output, options.files(argument), force)
    found = options.plan(options.parse(argument))
    for note in () if options.json else found.notes:
        streams.say(f"note: {in_line(note)}")
    for warning in () if options.json else found.warnings:
        streams.say(f"warning: {in_line(warning)}")
    text = found.source()
    proof = proved(found, text, asked=prove)
    if prove:
        streams.say(f"note: {proof}")
    is_written = to.takes(text)
    if options.json:
        _print_json({"output": output} if is_written else {"source": text}, indent=None)
    elif not is_written:
        _print(text.removesuffix("\n"))
    return 0


@shardc.command()
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the inputs' values.")
@click.option("--seconds", type=click.IntRange(min=1), default=600, show_default=True, help="The most it may take.")
@with_platform
@with_proof
@with_options
def run(argument: str, seed: int, seconds: int, platform: str, prove: bool, **values: Any) -> int:
    """Run on simulated devices and compare every shard with NumPy; exit 1 on a mismatch, 6 if not checkable."""
    from shardc.machines.run import run as run_schedule

    options = Options.of(values)
    found = options.plan(options.parse(argument), small=True)
    proof = proved(found, found.source(), asked=prove)

    def anew(sizes: Mapping[str, int]) -> Any:
        return options.plan(found.program.with_sizes(sizes), small=True).schedule

    report = run_schedule(found.schedule, seed, seconds, streams.say, platform, anew)
    if options.json:
        fields = {"plan": json.loads(found.to_json(1)), "run": report.to_json()}
        _print_json(in_fields(fields, proof) if prove else fields)
    else:
        _show("\n\n".join([found.table(1), str(report), *([str(proof)] if prove else [])]))
    return {"equal": 0, "not equal": MISMATCH, "not checkable": LIMIT}[report.verdict.value]


@shardc.command()
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@click.option("--gantt", is_flag=True, help="Show the compiled program's timeline.")
@click.option("--trace", metavar="FILE", help="Write the timeline as a Perfetto trace.")
@force_option
@with_options
def verify(argument: str, gantt: bool, trace: str | None, force: bool, **values: Any) -> int:
    """Compile for a TPU slice, with no TPU: predicted beside compiled; exit 1 where collectives differ."""
    from shardc.compiled.replay.gantt import gantt as drawn
    from shardc.compiled.replay.gantt import trace as traced
    from shardc.report.verification import verification_fields, verification_table

    options = Options.of(values)
    to = Output.of(trace, options.files(argument), force, "--trace")
    _idle("--gantt", gantt and options.json, "with --json")
    found = options.plan(options.parse(argument))
    with telling(f"compiling for {found.program.topology}"):
        verified = found.verify()
    if trace is not None:
        to.takes(traced(verified.replayed))
    if options.json:
        fields = {"plan": json.loads(found.to_json(1)), "verification": verification_fields(verified, found.steps)}
        _print_json(fields)
    else:
        _show(f"{found.table(1)}\n\n{verification_table(verified, found.steps)}")
        if gantt:
            _show(f"\n{drawn(verified.replayed, columns=streams.width())}")
    return 0 if verified.agrees else MISMATCH


@shardc.command()
@click.argument("argument", metavar="INPUT", shell_complete=completed)
@click.option("--rounds", type=click.IntRange(min=1, max=10**4), default=15, show_default=True, help="Timed runs.")
@with_platform
@with_options
def compare(argument: str, rounds: int, platform: str, **values: Any) -> int:
    """Beside what jax.jit alone does: on a TPU slice with --topology, else on simulated devices, timed."""
    options = Options.of(values)
    program = options.parse(argument)
    _idle("--platform", program.topology is not None and platform != SIMULATED, "with --topology")
    found = options.plan(program, small=program.topology is None)
    with telling("compiling both programs"):
        compared = found.compare(rounds, platform)
    if options.json:
        fields = {"plan": json.loads(found.to_json(1)), "comparison": compared.to_json()}
        _print_json(fields)
    else:
        _show(f"{found.table(1)}\n\n{compared}")
    return 0


for each in (check, chips, completion, explain, fmt, grad, help_, memory, report, tune):
    shardc.add_command(each)


def _idle(flag: str, given: bool, where: str) -> None:
    if given:
        streams.say(f"warning: {flag} does nothing {where}")


def _print(text: str) -> None:
    """What other programs read, or a file may hold."""
    streams.result(in_lines(text))


def _show(text: str) -> None:
    """What a person reads."""
    streams.show(in_lines(text))


def _print_json(fields: object, *, indent: int | None = 1) -> None:
    _print(json_text(fields, indent=indent))


def main() -> None:
    """The entry point. No traceback reaches a user."""
    streams.prepare()
    complete(shardc)
    sys.exit(_status(sys.argv[1:]))


def _status(arguments: list[str]) -> int:
    as_json = "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)
    try:
        with shardc.make_context("shardc", list(arguments)) as context:
            return int(shardc.invoke(context) or 0)
    except ShardcError as error:
        return bug(error, arguments, as_json) if error.exit_code == BUG else refuse(error, as_json)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return refuse(usage(error), as_json)
    except (KeyboardInterrupt, click.Abort):
        streams.say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads has read enough
        streams.silence("stdout")
        return FILES
    except OSError as error:
        streams.silence("stdout")
        return refuse(
            ShardcError(
                "SHC506", f"cannot write the result: {error.strerror or error}", help="check where standard output goes"
            ),
            as_json,
        )
    except MemoryError:
        return refuse(ShardcError("SHC308", "out of memory", help="give smaller --dims, or a smaller mesh"), as_json)
    except RecursionError:
        return refuse(ShardcError("SHC403", "nested too deeply", help="split the statement"), as_json)
    except Exception as error:
        return bug(error, arguments, as_json)
