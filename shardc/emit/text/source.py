"""The emitted module: stand-alone, formatted, one line per step with the sharding that it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shardc.emit.allowed import IMPORT_LAID, LAID, LARGEST, REFINED, STEPS, check_source
from shardc.emit.exprs import Call as CallExpr
from shardc.emit.exprs import Expr, Keyword, Name, lines_of, names_in
from shardc.emit.steps import extremes
from shardc.emit.steps.calls import Body, body
from shardc.emit.steps.partial_sums import Border, border, helpers
from shardc.emit.steps.parts import is_in_parts, parts
from shardc.emit.steps.spec import in_specs, out_specs
from shardc.emit.text.layout import block, lay_out, written
from shardc.emit.text.refined import program_lines
from shardc.ir.plan import Schedule


def source(schedule: Schedule, chip: str) -> str:
    """The text of a module whose function `program` does what the schedule says, on the mesh of `jax.set_mesh`."""
    if is_in_parts(schedule):
        return check_source("\n".join(_in_parts(schedule, chip)) + "\n")
    described = body(schedule)
    around = border(schedule, described.parameters, described.results)
    lines = [
        *_docstring(schedule, chip),
        "",
        *_imports([described], schedule),
        "",
        "",
        *_defined(extremes.helpers() if _has_extremes([described]) else ()),
        *_decorators(schedule, is_program=not around),
        *_signature(_name(schedule, around), described.parameters),
        *block(described.code),
        *lay_out_return(described.results),
    ]
    lines += _helpers(around)
    if schedule.by is not None:
        lines += ["", "", *program_lines(schedule, schedule.by, described, around)]
    elif around:
        lines += _program_around(around, described)
    return check_source("\n".join(lines) + "\n")


def _in_parts(schedule: Schedule, chip: str) -> Iterator[str]:
    """A function for each part, and `program`, which calls them."""
    whole = parts(schedule)
    bodies = [part.body for part in whole.parts]
    yield from [*_docstring(schedule, chip), "", *_imports(bodies, schedule), "", ""]
    yield from _defined(extremes.helpers() if _has_extremes(bodies) else ())
    for part in whole.parts:
        yield from _decorators(part.schedule, is_program=False) if not part.left else _left(part.schedule)
        yield from _signature(part.name, part.body.parameters)
        yield from [*block(part.body.code), *lay_out_return(part.body.results), "", ""]
    yield from ["@jax.jit", *_signature("program", whole.parameters)]
    for part in whole.parts:
        called = CallExpr(Name(part.name), tuple(map(Name, part.body.parameters)))
        yield from lay_out(called, 4, f"{', '.join(part.body.results)} = ", f"  # {part.done}" if part.done else "")
    yield from lay_out_return(whole.results)


def _left(schedule: Schedule) -> list[str]:
    """`@jax.sharding.auto_axes(out_sharding=P("X", "Y"))`."""
    leaves = Keyword("out_sharding", out_specs(schedule))
    return lay_out(CallExpr(Name("jax.sharding.auto_axes"), (leaves,)), 0, "@", "")


def _has_extremes(bodies: Sequence[Body]) -> bool:
    return any(LARGEST in names_in(line.expr) for described in bodies for line in lines_of(described.code))


def _defined(functions: Iterable[tuple[str, tuple[str, ...], Expr]]) -> list[str]:
    """`def name(parameters):` and what it returns, of each."""
    lines = list[str]()
    for name, names, result in functions:
        lines += [f"def {name}({', '.join(names)}):", *lay_out(result, 4, "return ", ""), "", ""]
    return lines


def _docstring(schedule: Schedule, chip: str) -> list[str]:
    mesh = f"mesh {schedule.given_mesh}" if schedule.mesh.axes else "one device"
    mesh += f"; {schedule.by}" if schedule.by is not None else ""
    first, *rest = [statement.text for statement in schedule.program.statements]
    if not rest and "\n" not in first:
        return [f'"""{first}, planned for {chip}, {mesh}."""']
    return [f'"""Planned for {chip}, {mesh}.', "", *"\n".join([first, *rest]).split("\n"), '"""']


def _imports(bodies: Sequence[Body], schedule: Schedule) -> list[str]:
    every = [line for described in bodies for line in lines_of(described.code)]
    names = {name for line in every for name in names_in(line.expr)}
    used = {name.split(".")[0] for name in names if "." in name}
    lines = ["import jax"]
    lines += ["import jax.numpy as jnp"] if "jnp" in used or schedule.by is not None else []
    lines += ["import numpy as np"] if "np" in used else []
    lines += ["from jax import P"] if schedule.mesh.axes else []
    lines += [IMPORT_LAID] if LAID in names else []
    return lines


def _name(schedule: Schedule, around: Border) -> str:
    """Of the function that holds the steps."""
    return REFINED if schedule.by is not None else STEPS if around else "program"


def _helpers(around: Border) -> list[str]:
    lines = list[str]()
    for name, names, result in helpers(around):
        lines += ["", "", f"def {name}({', '.join(names)}):", *lay_out(result, 4, "return ", "")]
    return lines


def _program_around(around: Border, described: Body) -> list[str]:
    """`program`, which takes and leaves partial sums, and calls what does: see `partial_sums`."""
    lines = ["", "", "@jax.jit", *_signature("program", described.parameters)]
    lines += [text for line in around.before for text in written(line)]
    called = CallExpr(Name(STEPS), tuple(map(Name, described.parameters)))
    if not around.after:
        return lines + lay_out(called, 4, "return ", "")
    lines += lay_out(called, 4, f"{', '.join(described.results)} = ", "")
    return [*lines, *(text for line in around.after for text in written(line)), *lay_out_return(described.results)]


def _decorators(schedule: Schedule, is_program: bool) -> list[str]:
    if schedule.by is not None:
        return []  # it is called by `program`
    if not schedule.mesh.axes:
        return ["@jax.jit"]
    specs = (Keyword("in_specs", in_specs(schedule)), Keyword("out_specs", out_specs(schedule)))
    return ["@jax.jit"] * is_program + lay_out(CallExpr(Name("jax.shard_map"), specs), 0, "@", "")


def _signature(name: str, parameters: tuple[str, ...]) -> list[str]:
    names = tuple(Name(parameter) for parameter in parameters)
    return lay_out(CallExpr(Name(name), names), 0, "def ", ":")


def lay_out_return(results: tuple[str, ...]) -> list[str]:
    single = f"    return {', '.join(results)}"
    if len(single) <= 88:
        return [single]
    return ["    return (", *(f"        {name}," for name in results), "    )"]
