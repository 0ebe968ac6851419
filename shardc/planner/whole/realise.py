"""From the states of a graph to a plan: a program that asks for every sharding, planned statement by statement.

Each operation is a statement of its own and each kept copy a reshard, so that a statement's plan is quick to find, and
digits of dims and all that is tried for one statement are tried here. The plan is then told by the statements as they
were written.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.cost.model import PICO, picoseconds
from shardc.ir.plan import Schedule, Step, Strategy
from shardc.ir.program import Expr, Pattern, Program, Statement, straight
from shardc.ir.sharding import Array, Sharding
from shardc.planner.objective import Objective
from shardc.planner.planned import PlannedProgram, PlannedStatement, ranking
from shardc.planner.whole.arrays import Entity, Line, Lying
from shardc.planner.whole.rewrites import Rewritten, with_arrays

LISTED = 16  # alternatives of each operation, of a statement that has several


@dataclass(frozen=True, slots=True)
class Exact:
    """A program in which every sharding is given, and of each of its statements the one as written.

    `copies` are the names of arrays that are another's copy, with that one's name.
    """

    program: Program
    numbers: tuple[int, ...]
    copies: dict[str, str]


def exact(
    rewritten: Rewritten, given: Mapping[str, tuple[Entity, Lying]], lines: Sequence[Line], states: Sequence[int]
) -> Exact:
    """What the states of the nodes say, as a program. `given` are its inputs."""
    program, held = rewritten.program, dict[int, set[Sharding]]()
    inputs = []
    for array in program.inputs:
        entity, lying = given[array.name]
        found = _sharding(entity, lying, states)
        held[id(entity)] = {found}
        inputs.append(replace(array, pattern=Pattern.exactly(found)))
    statements, numbers = list[Statement](), list[int]()
    for line in lines:
        found, known = _sharding(line.entity, line.lying, states), held.setdefault(id(line.entity), set())
        if line.copy_of is not None and found in known:
            continue
        known.add(found)
        statements.append(replace(line.statement, pattern=Pattern.exactly(found)))
        numbers.append(rewritten.numbers[line.number])
    outputs = tuple(program.results[number].name for number in program.outputs)
    copies = {line.statement.name: line.copy_of for line in lines if line.copy_of is not None}
    asked = replace(program, inputs=tuple(inputs), statements=tuple(statements), returns=outputs)
    return Exact(asked, tuple(numbers), copies)


def merged(asked: Exact, lines: Sequence[Line]) -> Exact:
    """The same with what is open made within the one statement that uses it, which then is planned as a whole."""
    opened = {line.statement.name for line in lines if line.is_open}
    made: dict[str, Expr] = {}
    statements, numbers = list[Statement](), list[int]()
    for statement, number in zip(straight(asked.program), asked.numbers, strict=True):
        expr = with_arrays(statement.expr, made)
        if statement.name in opened:
            made[statement.name] = expr
        else:
            statements.append(replace(statement, expr=expr))
            numbers.append(number)
    return replace(asked, program=replace(asked.program, statements=tuple(statements)), numbers=tuple(numbers))


def _sharding(entity: Entity, lying: Lying, states: Sequence[int]) -> Sharding:
    return entity.search.graph.shardings[entity.states.numbers[int(lying.places[states[lying.node]])]]


def as_written(program: Program, found: PlannedProgram, asked: Exact, objective: Objective) -> PlannedProgram:
    """The plan of such a program, told by the statements as they were written."""
    block, numbers = found.schedule.block, asked.numbers
    steps = tuple(replace(step, statement=numbers[step.statement]) for step in block.steps)
    values = tuple(replace(array, name=asked.copies.get(array.name, array.name)) for array in block.values)
    told = replace(found.schedule, program=program, block=replace(block, steps=steps, values=values))
    statements = tuple(
        _statement(statement, [at for at, n in enumerate(numbers) if n == number], found, told, objective)
        for number, statement in enumerate(straight(program))
    )
    return replace(found, schedule=told, statements=statements)


def _statement(
    written: Statement, parts: list[int], found: PlannedProgram, told: Schedule, objective: Objective
) -> PlannedStatement:
    planned = [each for at in parts if isinstance(each := found.statements[at], PlannedStatement)]
    cases: dict[str, int] = {}
    for each in planned:
        cases |= {axis: max(case, cases.get(axis, 1)) for axis, case in each.cases.items()}
    gap = next((each.gap for each in planned if each.gap is not None), None)
    listed = _Listed(found.schedule, told, parts, planned)
    return PlannedStatement(written.text, cases, listed.every, ranking(objective), False, gap)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A statement's own steps, then these with one of its operations done another way, the cheapest first."""

    schedule: Schedule
    told: Schedule
    parts: list[int]
    planned: list[PlannedStatement]

    def every(self) -> Iterator[Strategy]:
        yield self._strategy(self.told.values, self._own)
        others = (self._others(at, planned) for at, planned in zip(self.parts, self.planned, strict=True))
        yield from heapq.merge(*others, key=lambda strategy: (strategy.time_s, strategy.wire_bytes))

    @property
    def _own(self) -> list[Step]:
        return [step for step in self.schedule.steps if step.statement in self.parts]

    def _others(self, part: int, planned: PlannedStatement) -> Iterator[Strategy]:
        mine = [step for step in self._own if step.statement == part]
        for other in planned.cheapest(LISTED)[1:]:
            yield self._instead(mine, other)

    def _instead(self, mine: list[Step], other: Strategy) -> Strategy:
        """The own steps, but for one operation's those of another strategy; its values come after all others."""
        own = self._own
        made, count = {step.result for step in other.steps}, len(self.told.values)
        number = {value: count + place for place, value in enumerate(sorted(made))}
        values = (*self.told.values, *(other.values[value] for value in sorted(made)))
        steps = [_renumbered(step, number) for step in other.steps]
        first = own.index(mine[0]) if mine else len(own)
        after = [step for step in own[first:] if step not in mine]
        if mine and steps:
            after = [_renumbered(step, {mine[-1].result: steps[-1].result}) for step in after]
        return self._strategy(values, [*own[:first], *steps, *after])

    def _strategy(self, values: tuple[Array, ...], steps: Sequence[Step]) -> Strategy:
        wire = sum(step.cost.wire_bytes for step in steps)
        time = sum(picoseconds(step.cost.time_s) for step in steps) / PICO
        return Strategy(values, tuple(steps), wire, time)


def _renumbered(step: Step, number: dict[int, int]) -> Step:
    operands = tuple(number.get(value, value) for value in step.operands)
    return replace(step, operands=operands, results=tuple(number.get(value, value) for value in step.results))
