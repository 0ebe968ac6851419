"""What is planned of a program so far: its values, its steps, and what names hold. Nothing here chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.cost.memory import peak_bytes, peak_of
from shardc.ir.digits import Reshape
from shardc.ir.plan import Block, Op, Rule, Schedule, StatementNumber, Step, StepCost, ValueNumber
from shardc.ir.program import Program, Statement, read_by, same_array
from shardc.ir.sharding import SUM, Array
from shardc.planner.digits.chosen import Chosen
from shardc.planner.problem import Environment, Problem, Seen, StepKey, is_done_again, key_of
from shardc.planner.statement.build import Builder


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """The plan so far: what is added gives another, and leaves this one as it is."""

    problem: Problem  # what the next statement is planned with: its environment has the values so far
    steps: tuple[Step, ...] = ()
    given: Mapping[str, ValueNumber] = field(default_factory=dict)  # the value of each input
    results: tuple[ValueNumber, ...] = ()  # the value of each result
    done: Mapping[StepKey, ValueNumber] = field(default_factory=dict)  # as of Builder
    sources: Mapping[ValueNumber, ValueNumber] = field(default_factory=dict)  # of what moves left, what was moved first
    peaks: tuple[int, ...] = ()  # up to each statement but the last, if memory is limited

    @property
    def values(self) -> tuple[Array, ...]:
        return self.problem.environment.values

    def schedule(self) -> Schedule:
        """The whole plan."""
        return self._schedule(self.values, self.steps, self.given, self.results)

    def _schedule(
        self,
        values: Sequence[Array],
        steps: Sequence[Step],
        given: Mapping[str, ValueNumber],
        results: Sequence[ValueNumber],
    ) -> Schedule:
        program = self.problem.program
        inputs = tuple(given[array.name] for array in program.inputs)
        outputs = tuple(results[number] for number in program.outputs)
        return Schedule(program, Block(tuple(values), inputs, outputs, needed(steps, outputs)))

    # --- a statement

    def begin(self, number: StatementNumber, problem: Problem, name: str, in_digits: Chosen) -> Builder:
        """What builds the steps of a statement, after those that there are."""
        names = taken_names(problem.program, self.values)
        found = Builder(problem, list(self.values), list(self.steps), number, name, names)
        found.in_digits, found.done = in_digits, dict(self.done)
        found.left.update(result for place, result in enumerate(self.results) if place in problem.program.outputs)
        return found

    # --- memory

    def peak_with(self, builder: Builder, value: ValueNumber, number: StatementNumber) -> int:
        """The bytes alive at most, once a statement leaves this value: of the last one the whole program's peak."""
        if number == len(self.problem.program.statements) - 1:
            given = {**self.given, **builder.chosen}
            return peak_of(self._schedule(builder.values, builder.steps, given, (*self.results, value)))
        return self._peak_before(builder, value, number)

    def _peak_before(self, builder: Builder, value: ValueNumber, number: StatementNumber) -> int:
        """What later statements use stays alive, and inputs always do."""
        program, results = self.problem.program, [*self.results, value]
        later = {name for statement in program.statements[number + 1 :] for name in read_by(statement)}
        kept = [r for k, r in enumerate(results) if k in program.outputs or program.results[k].name in later]
        inputs = [*self.given.values(), *builder.chosen.values()]
        waiting = sum(
            Array(array.name, array.dims, program.shape(array.dims), exact, array.dtype).local_bytes(program.mesh)
            for array in program.inputs
            if array.name not in self.given and (exact := array.pattern.exact) is not None
        )
        block = Block(tuple(builder.values), tuple(inputs), tuple(kept), tuple(builder.steps))
        return waiting + peak_bytes(block, program.mesh)

    # --- inputs

    def declared(self, wanted: set[str]) -> PartialPlan:
        """Inputs with a written sharding are values from their first use on."""
        program = self.problem.program
        arrays = [
            Array(each.name, each.dims, program.shape(each.dims), exact, each.dtype)
            for each in program.inputs
            if each.name in wanted and each.name not in self.given and (exact := each.pattern.exact) is not None
        ]
        return self.holding(*arrays) if arrays else self

    def holding(self, *arrays: Array) -> PartialPlan:
        """With inputs that lie so."""
        environment, given = self.problem.environment, dict(self.given)
        for array in arrays:
            given[array.name] = ValueNumber(len(environment.values))
            environment = environment.with_value(array)
        return replace(self, problem=self.problem.given(environment), given=given)

    # --- steps

    def adopted(self, builder: Builder) -> PartialPlan:
        """With the steps of a builder, which began where this plan ends."""
        return self.with_steps(builder, lambda there: there)

    def with_steps(self, builder: Builder, bound: Callable[[Environment], Environment]) -> PartialPlan:
        """The same, and then with what is bound to a name."""
        before = self.problem.environment
        environment, sources = Environment(tuple(builder.values), before.held, before.alike), dict(self.sources)
        for step in builder.steps[len(self.steps) :]:
            moved = step.operands[0] if step.is_collective or isinstance(step.op, Reshape) else None
            if moved is None or builder.values[moved].sharding.reduction != SUM:  # the largest of parts is no array
                continue
            after = step.result
            source = sources[after] = sources.get(moved, moved)
            if builder.values[after].dims == builder.values[source].dims:  # not in digits
                environment = environment.same(source, after)
        for name, value in builder.chosen.items():
            environment = environment.holding_first(name, value)
        return replace(
            self,
            problem=self.problem.given(bound(environment)),
            steps=tuple(builder.steps),
            done=builder.done,
            sources=sources,
            given={**self.given, **builder.chosen},
        )

    def append(
        self,
        op: Op,
        operands: tuple[ValueNumber, ...],
        arrays: Sequence[Array],
        number: StatementNumber,
        cost: StepCost,
        rule: Rule,
        seen: Seen = (),
    ) -> tuple[PartialPlan, tuple[ValueNumber, ...]]:
        """With a step that no search found, done once like any other; and the values that it leaves."""
        done = dict(self.done)
        if len(arrays) == 1 and not is_done_again(op, rule):
            key = key_of(op, operands, seen, arrays[0])
            if key in done:
                return self, (done[key],)
            done[key] = ValueNumber(len(self.values))
        left = tuple(ValueNumber(len(self.values) + place) for place in range(len(arrays)))
        problem = self.problem.given(replace(self.problem.environment, values=(*self.values, *arrays)))
        step = Step(op, operands, left, number, cost, rule, seen)
        return replace(self, problem=problem, steps=(*self.steps, step), done=done), left

    def bound_anew(self, name: str, value: ValueNumber) -> PartialPlan:
        """With the next result: its name holds this value alone."""
        problem = self.problem.given(self.problem.environment.holding(name, (value,)))
        return replace(self, problem=problem, results=(*self.results, value))


def binding(environment: Environment, statement: Statement, value: ValueNumber) -> Environment:
    """What a name holds is one array, in some shardings; bound to another array, in a loop, it holds that alone."""
    held = environment.held.get(statement.name, ()) if same_array(statement) else ()
    return environment.holding(statement.name, held if value in held else (*held, value))


def taken_names(program: Program, values: Sequence[Array]) -> set[str]:
    """The names that a new value must not bear."""
    named = {bound.name for bound in program.results} | {array.name for array in program.inputs}
    return named | {array.name for array in values}


def needed(steps: Sequence[Step], outputs: tuple[ValueNumber, ...]) -> tuple[Step, ...]:
    """Those that an output depends on: a name may be bound again and never used."""
    used = set(outputs)
    kept = []
    for step in reversed(steps):
        if used.intersection(step.results):
            used.update(step.operands)
            kept.append(step)
    return tuple(reversed(kept))
