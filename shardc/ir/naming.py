"""Programs under names by place, so that those which differ in names alone are planned once.

Q[B, H] = x[B, D] · Wq[D, H]      K[B, H] = x[B, D] · Wk[D, H]      are both      @2[B, H] = @0[B, D] · @1[D, H]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from shardc.ir.expressions import renamed, uses
from shardc.ir.plan import Schedule
from shardc.ir.program import For, Program, Statement

Names: TypeAlias = Mapping[str, str]
_BY_PLACE = re.compile(r"@\d+")


def by_place(program: Program) -> tuple[Program, Names]:
    """The program with each array named by where it is first written, which no text can say, and what the text calls
    them. One with a loop as it is."""
    if any(isinstance(statement, For) for statement in program.statements):
        return program, {}
    arrays = [array.name for array in program.inputs]
    for statement in program.statements:
        assert isinstance(statement, Statement)
        arrays += [*(use.name for use in uses(statement.expr)), statement.name]
    places = {name: f"@{place}" for place, name in enumerate(dict.fromkeys(arrays))}
    found = _under(program, places, [""] * len(program.statements))
    return replace(found, warn=tuple, spans=()), {place: name for name, place in places.items()}


def named(schedule: Schedule, program: Program, names: Names) -> Schedule:
    """What was planned of a program by place, under the names of this one: its arrays' and those made of them."""
    if not names:
        return schedule
    texts = [statement.text for statement in program.statements]
    values = tuple(replace(value, name=_named(value.name, names)) for value in schedule.values)
    block = replace(schedule.block, values=values)
    return replace(schedule, program=_under(schedule.program, names, texts), block=block)


def _named(name: str, names: Names) -> str:
    """`d@1` is `dW`, `@2_1` is `Q_1`."""
    return _BY_PLACE.sub(lambda found: names[found[0]], name)


def _under(program: Program, names: Names, texts: list[str]) -> Program:
    inputs = tuple(replace(array, name=names[array.name]) for array in program.inputs)
    statements = list[Statement | For]()
    for statement, text in zip(program.statements, texts, strict=True):
        assert isinstance(statement, Statement)
        expr = renamed(statement.expr, names)
        statements.append(replace(statement, name=names[statement.name], expr=expr, text=text))
    returns = None if program.returns is None else tuple(names[name] for name in program.returns)
    return replace(program, inputs=inputs, statements=tuple(statements), returns=returns)
