"""From the states of a graph to a plan: a program that asks for every sharding, planned statement by statement.

Each operation is a statement of its own and each kept copy a reshard, so that a statement's plan is quick to find, and
digits of dims and all that is tried for one statement are tried here. The plan is then told by the statements as they
were written.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain

from shardc.cost.rate import PICO, picoseconds
from shardc.ir.expressions import Call, Expr, Pattern, Product, Use, uses
from shardc.ir.plan import Block, Loop, StatementNumber, Step, Strategy, ValueNumber
from shardc.ir.program import For, Input, Program, Statement, every_statement, read_by
from shardc.ir.sharding import Array, Sharding
from shardc.planner.options import Objective
from shardc.planner.planned import PlannedLoop, PlannedProgram, PlannedStatement, done_by, ranking
from shardc.planner.whole.arrays import Entity, Line, LoopLines, Lying, every_line
from shardc.planner.whole.rewrites import Rewritten, Told, bound_to_others, with_arrays

LISTED = 16  # alternatives of each operation, of a statement that has several


@dataclass(frozen=True, slots=True)
class Exact:
    """A program in which every sharding is given, and of each of its statements the one as written.

    `copies` are the names of arrays that are another's copy, with that one's name.
    """

    program: Program
    told: tuple[Told, ...]
    copies: dict[str, str]


def exact(
    rewritten: Rewritten,
    given: Mapping[str, tuple[Entity, Lying]],
    lines: Sequence[Line | LoopLines],
    states: Sequence[int],
    with_operands: bool,
) -> Exact:
    """What the states of the nodes say, as a program. `given` are its inputs; `with_operands` says as well how each
    operation takes its own."""
    program = rewritten.program
    inputs = _inputs(program.inputs, [given[array.name] for array in program.inputs], states)
    statements, told = _block(lines, [*given.values()], rewritten.told, states, with_operands)
    outputs = tuple(program.results[number].name for number in program.outputs)
    copies = {line.statement.name: line.copy_of for line in every_line(lines) if line.copy_of is not None}
    return Exact(replace(program, inputs=inputs, statements=statements, returns=outputs), told, copies)


def _inputs(inputs: Sequence[Input], given: Sequence[tuple[Entity, Lying]], states: Sequence[int]) -> tuple[Input, ...]:
    lies = [_sharding(entity, lying, states) for entity, lying in given]
    return tuple(replace(array, pattern=Pattern.exactly(found)) for array, found in zip(inputs, lies, strict=True))


def _block(
    lines: Sequence[Line | LoopLines],
    given: Sequence[tuple[Entity, Lying]],
    told: Sequence[Told],
    states: Sequence[int],
    with_operands: bool,
) -> tuple[tuple[Statement | For, ...], tuple[Told, ...]]:
    """The statements of a program, or of a loop's body; a copy that lies as the array does already is none."""
    held = {id(entity): {_sharding(entity, lying, states)} for entity, lying in given}
    statements, numbers = list[Statement | For](), list[Told]()
    for line in lines:
        own = told[line.number]
        if isinstance(line, LoopLines):
            body, inside = _block(line.lines, line.given, own.inside, states, with_operands)
            takes = _inputs(line.loop.takes, line.given, states)
            statements.append(replace(line.loop, body=body, takes=takes))
            numbers.append(replace(own, inside=inside))
            continue
        found, known = _sharding(line.entity, line.lying, states), held.setdefault(id(line.entity), set())
        if line.copy_of is None or found not in known:
            known.add(found)
            expr = _with_operands(line, states) if with_operands else line.statement.expr
            statements.append(replace(line.statement, pattern=Pattern.exactly(found), expr=expr))
            numbers.append(own)
    return tuple(statements), tuple(numbers)


def _with_operands(line: Line, states: Sequence[int]) -> Expr:
    """What a line binds, of arrays as its way takes them; in digits, of arrays as they are."""
    expr, made = line.statement.expr, line.entity
    if not isinstance(expr, Product | Call) or not made.takes or states[made.takes[0][1].node] >= made.plain:
        return expr
    taken = [_sharding(entity, lying, states) for entity, lying in made.takes]
    return replace(expr, operands=tuple(map(_lying, expr.operands, taken)))


def _lying(operand: Expr, sharding: Sharding) -> Expr:
    if not isinstance(operand, Use) or operand.pattern is not None:
        return operand
    return replace(operand, pattern=Pattern.exactly(sharding))


def merged(asked: Exact, lines: Sequence[Line | LoopLines]) -> Exact:
    """The same with what is open made within the one statement that uses it, which then is planned as a whole; but not
    where that gives its dims other names, which are none of what it is made of, or where other arrays would be read."""
    dims = {line.statement.name: line.statement.dims for line in every_line(lines) if line.is_open}
    used = [use for each in every_statement(asked.program) for use in uses(each.expr)]
    opened = dims.keys() & {use.name for use in used}  # what nothing uses has inputs that are to be read
    opened -= {use.name for use in used if use.dims != dims.get(use.name, use.dims)}
    statements = asked.program.statements
    statements, told = _merged(statements, asked.told, opened - _outlived(statements, opened))
    return replace(asked, program=replace(asked.program, statements=statements), told=told)


def _outlived(statements: Sequence[Statement | For], opened: AbstractSet[str]) -> set[str]:
    """What is used after a name that it reads is bound to another array: `t = relu(x); x = x + b; S[L, B] = t`."""
    waiting, found = dict[str, set[str]](), set[str]()
    for each in statements:
        read = set(read_by(each))
        for name in read & waiting.keys():
            read |= waiting.pop(name)
        anew = bound_to_others(each)
        found |= {name for name, before in waiting.items() if not anew.isdisjoint(before)}
        if isinstance(each, For):
            found |= _outlived(each.body, opened)
        elif each.name in opened:
            waiting[each.name] = read
    return found


def _merged(
    statements: Sequence[Statement | For], told: Sequence[Told], opened: AbstractSet[str]
) -> tuple[tuple[Statement | For, ...], tuple[Told, ...]]:
    made, kept, numbers = dict[str, Expr](), list[Statement | For](), list[Told]()
    for each, own in zip(statements, told, strict=True):
        if isinstance(each, For):
            body, inside = _merged(each.body, own.inside, opened)
            kept.append(replace(each, body=body))
            numbers.append(replace(own, inside=inside))
            continue
        expr = with_arrays(each.expr, made)
        if each.name in opened:
            made[each.name] = expr
        else:
            kept.append(replace(each, expr=expr))
            numbers.append(own)
    return tuple(kept), tuple(numbers)


def _sharding(entity: Entity, lying: Lying, states: Sequence[int]) -> Sharding:
    return entity.search.graph.shardings[entity.states.numbers[int(lying.places[states[lying.node]])]]


def as_written(program: Program, found: PlannedProgram, asked: Exact, objective: Objective) -> PlannedProgram:
    """The plan of such a program, told by the statements as they were written."""
    block = _told_block(found.schedule.block, asked.told, asked.copies)
    teller = _Teller(asked.copies, objective)
    statements = teller.statements(program.statements, found.statements, found.schedule.block, asked.told)
    told = replace(found.schedule, program=program, block=block)
    return replace(found, schedule=told, statements=statements)


def _told_block(block: Block, told: Sequence[Told], copies: Mapping[str, str]) -> Block:
    steps = list[Step]()
    for step in block.steps:
        own, op = told[step.statement], step.op
        if isinstance(op, Loop):
            inside = told if op.is_of_chunks else own.inside  # its trips do steps of statements outside
            op = replace(op, body=_told_block(op.body, inside, copies))
        steps.append(replace(step, op=op, statement=own.number))
    return replace(block, steps=tuple(steps), values=_named(block.values, copies))


def _named(values: Sequence[Array], copies: Mapping[str, str]) -> tuple[Array, ...]:
    return tuple(replace(array, name=copies.get(array.name, array.name)) for array in values)


_NOTHING = Block((), (), (), ())


@dataclass(frozen=True, slots=True)
class _Teller:
    """What the statements as written are told by."""

    copies: Mapping[str, str]
    objective: Objective

    def statements(
        self,
        written: Sequence[Statement | For],
        planned: Sequence[PlannedStatement | PlannedLoop],
        block: Block,
        told: Sequence[Told],
    ) -> tuple[PlannedStatement | PlannedLoop, ...]:
        found, named = list[PlannedStatement | PlannedLoop](), _named(block.values, self.copies)
        for number, each in enumerate(written):
            parts = [at for at, own in enumerate(told) if own.number == number]
            if isinstance(each, For) and not parts:  # it leads to no output
                found.append(PlannedLoop(each.text, self.statements(each.body, (), _NOTHING, ())))
            elif isinstance(each, For):
                found.append(self._loop(each, parts[-1], planned, block, told))  # rows are brought before
            else:
                found.append(self._statement(StatementNumber(number), each, parts, planned, block.steps, named))
        return tuple(found)

    def _loop(
        self,
        loop: For,
        part: int,
        planned: Sequence[PlannedStatement | PlannedLoop],
        block: Block,
        told: Sequence[Told],
    ) -> PlannedLoop:
        own = planned[part]
        assert isinstance(own, PlannedLoop)
        bodies = (step.op.body for step in block.steps if step.statement == part and isinstance(step.op, Loop))
        body = next(bodies, _NOTHING)  # of no steps, if nothing that is left is needed
        return PlannedLoop(loop.text, self.statements(loop.body, own.statements, body, told[part].inside))

    def _statement(
        self,
        number: StatementNumber,
        written: Statement,
        parts: list[int],
        every: Sequence[PlannedStatement | PlannedLoop],
        steps: tuple[Step, ...],
        values: tuple[Array, ...],
    ) -> PlannedStatement:
        planned = [each for at in parts if isinstance(each := every[at], PlannedStatement)]
        cases: dict[str, int] = {}
        for each in planned:
            cases |= {axis: max(case, cases.get(axis, 1)) for axis, case in each.cases.items()}
        gap = next((each.gap for each in planned if each.gap is not None), None)
        listed = _Listed(number, steps, values, parts, planned)
        return PlannedStatement(written.text, cases, listed.every, ranking(self.objective), gap=gap)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A statement's own steps, then these with one of its operations done another way, the cheapest first."""

    number: StatementNumber  # of the statement as written
    steps: tuple[Step, ...]  # of all statements beside this one
    values: tuple[Array, ...]
    parts: list[int]
    planned: list[PlannedStatement]

    def every(self) -> Iterator[Strategy]:
        own = self._strategy(self.values, self._own)
        others = (self._others(at, planned) for at, planned in zip(self.parts, self.planned, strict=True))
        listed = list[object]()  # of two operations done another way that leads to the same one is listed
        for each in chain([own], heapq.merge(*others, key=lambda other: (other.time_s, other.wire_bytes))):
            if (done := done_by(each)) not in listed:
                listed.append(done)
                yield each

    @property
    def _own(self) -> list[Step]:
        return [step for step in self.steps if step.statement in self.parts]

    def _others(self, part: int, planned: PlannedStatement) -> Iterator[Strategy]:
        mine = [step for step in self._own if step.statement == part]
        for count in range(2, LISTED + 1):
            found = planned.cheapest(count)
            if len(found) < count:
                return
            yield self._instead(mine, found[-1])

    def _instead(self, mine: list[Step], other: Strategy) -> Strategy:
        """The own steps, but for one operation's those of another strategy; its values come after all others."""
        own = self._own
        made, count = {step.result for step in other.steps}, len(self.values)
        number = {value: ValueNumber(count + place) for place, value in enumerate(sorted(made))}
        values = (*self.values, *(other.values[value] for value in sorted(made)))
        steps = [_renumbered(step, number) for step in other.steps]
        first = own.index(mine[0]) if mine else len(own)
        after = [step for step in own[first:] if step not in mine]
        if mine and steps:
            after = [_renumbered(step, {mine[-1].result: steps[-1].result}) for step in after]
        return self._strategy(values, [*own[:first], *steps, *after])

    def _strategy(self, values: tuple[Array, ...], steps: Sequence[Step]) -> Strategy:
        wire = sum(step.cost.wire_bytes for step in steps)
        time = sum(picoseconds(step.cost.time_s) for step in steps) / PICO
        return Strategy(values, tuple(_told_by(self.number, step) for step in steps), wire, time)


def _told_by(number: StatementNumber, step: Step) -> Step:
    """A step as that of one statement, and of a loop over chunks all that its trips do."""
    if not isinstance(step.op, Loop):
        return replace(step, statement=number)
    body = replace(step.op.body, steps=tuple(_told_by(number, each) for each in step.op.body.steps))
    return replace(step, op=replace(step.op, body=body), statement=number)


def _renumbered(step: Step, number: dict[ValueNumber, ValueNumber]) -> Step:
    operands = tuple(number.get(value, value) for value in step.operands)
    return replace(step, operands=operands, results=tuple(number.get(value, value) for value in step.results))
