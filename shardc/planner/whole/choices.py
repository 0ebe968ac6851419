"""What of a program leaves a choice that its statements, planned one after another, cannot make well."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.ir.expressions import Call, Expr, Pattern, Product, operands
from shardc.ir.program import For, Program, every_statement, read_by
from shardc.planner.objective import Objective
from shardc.planner.planning import Planning


def may_gain(program: Program, planning: Planning) -> bool:
    """Whether statements planned together may cost less than one after another.

    Where one leaves open how its result lies for a later one, or several use an array. And by time, where something
    lies open and some axes are written nowhere, but may be used: what is shared over those takes less.
    """
    if any(_shared(each) or _open_between(each) for each in _blocks(program)):
        return True
    if planning.objective is not Objective.TIME or not computed(program):
        return False
    return (computed(program) > 1 or _has_holes(program)) and planning.has_idle(program)


def computed(program: Program) -> int:
    """How many products and functions a program has."""
    return sum(
        isinstance(expr, Product | Call) for statement in every_statement(program) for expr in _every(statement.expr)
    )


def _every(expr: Expr) -> Iterator[Expr]:
    waiting = [expr]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += operands(found)


def _blocks(program: Program) -> Iterator[Program]:
    """The program, and the bodies of its loops as programs of their own."""
    yield program
    for each in program.statements:
        if isinstance(each, For):
            yield from _blocks(program.inside(each))


def _shared(program: Program) -> bool:
    names = [name for each in program.statements for name in read_by(each)]
    return len(names) > len(set(names))


def _open_between(program: Program) -> bool:
    return any(
        bound.pattern.exact is None and number not in program.outputs for number, bound in enumerate(program.results)
    )


def _has_holes(program: Program) -> bool:
    patterns: list[Pattern] = [array.pattern for array in program.inputs]
    return any(pattern.exact is None for pattern in (*patterns, *(made.pattern for made in program.results)))
