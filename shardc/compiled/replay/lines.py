"""Which line of a program an event of its timeline comes from: `mlp.shard:6`, by the name of its step's scope."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from shardc.compiled.replay.timeline import Timeline
from shardc.errors import Span
from shardc.ir.plan import Block, Loop, Schedule
from shardc.ir.program import For, Statement

_SCOPE = re.compile(r"(?:^|/)step(\d+)(?=/|$)")


def with_lines(timeline: Timeline, schedule: Schedule) -> Timeline:
    """The same events, each with its statement, and where that is written; the compiler's own have neither."""
    program, block = schedule.program, schedule.block
    found = []
    for event in timeline.events:
        statement = statement_at(program.statements, block, path_of(event.scope))
        at = "" if statement is None else _line(statement.span)
        found.append(replace(event, source=at, statement="" if statement is None else statement.text))
    return replace(timeline, events=tuple(found))


def statement_at(statements: Sequence[Statement | For], block: Block, path: Sequence[int]) -> Statement | For | None:
    """The statement of the step at a path; of what is done once before a loop, though its body says it, the loop."""
    found: Statement | For | None = None
    for place in path:
        if not place < len(block.steps):
            return found
        step = block.steps[place]
        found = statements[step.statement]
        if isinstance(step.op, Loop) and isinstance(found, For):
            block, statements = step.op.body, found.body
    return found


def path_of(scope: str) -> tuple[int, ...]:
    """The place of the step that a scope names, after those of the loops around: `step3/while/body/step0`."""
    return tuple(map(int, _SCOPE.findall(scope)))


def _line(span: Span | None) -> str:
    return "" if span is None else f"{span.source.name}:{span.source.position(span.start)[0]}"
