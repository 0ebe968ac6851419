"""Plans that keep a memory limit: among the strategies, then without the largest steps, then over all axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from shardc.cost.model import CostModel
from shardc.errors import ShardcError
from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Step, single_steps
from shardc.ir.program import Program, every_statement
from shardc.lowering.target import Target
from shardc.planner.bounds.held import least_held
from shardc.planner.budget import Budget
from shardc.planner.options import Options
from shardc.planner.planned import PlannedProgram, Planning, Refused, budget_of

MAX_LEANER = 16  # plans, each leaner before the last statement, that a memory limit is tried with
LONG = 10  # statements: a program of so many is planned in turn only where no plan of all statements keeps a limit
MOST_STATEMENTS = 160  # that are planned then, in all attempts together
FEW = 3  # attempts at least, and at most with steps of one size


@dataclass(slots=True)
class Left:
    """What all attempts together may still take."""

    units: int

    @classmethod
    def of(cls, program: Program) -> Left:
        return cls(budget_of(program).total)


@dataclass(frozen=True, slots=True)
class Limited:
    """A program to be planned within `memory` bytes per device."""

    program: Program
    model: CostModel
    memory: int
    planning: Planning
    left: Left

    @classmethod
    def of(
        cls, program: Program, model: CostModel, memory: int, planning: Planning, left: Left | None = None
    ) -> Limited:
        """With as much work as is left, or as all plans of the program may take."""
        return cls(program, model, memory, planning, left or Left.of(program))

    @property
    def is_long(self) -> bool:
        return self._count >= LONG

    @property
    def most(self) -> int | None:
        """How many plans are tried in turn."""
        return max(FEW, MOST_STATEMENTS // self._count) if self.is_long else None

    @property
    def _count(self) -> int:
        return len(list(every_statement(self.program)))

    def within(self, free: PlannedProgram, smallest: int) -> PlannedProgram | Refused:
        """A plan that keeps the limit. `free` is the one without it, `smallest` the smallest peak that is known.

        What is tried does not depend on the limit, but where it ends: so a larger limit finds a plan as well, and
        what a refusal names as the smallest is found under it.
        """
        for found in islice(self._leaner(free), self.most):
            if found.cost.peak_bytes <= self.memory:
                return found
            smallest = min(smallest, found.cost.peak_bytes)
        return Refused(smallest)

    def keeping(self, options: Options) -> Iterator[PlannedProgram]:
        """Plans whose last statement keeps the limit if it can, each leaner before that than the one before.

        What is alive before the last statement bounds the whole where no slice is named; there what is above the
        limit is left out. Nothing where the options leave no plan.
        """
        before = None if Target.of(self.program).names_slice else self.memory
        for _ in range(MAX_LEANER):
            found = self._attempt(replace(options, memory=self.memory, memory_before=before))
            if found is None:
                return
            yield found
            to_lower = [peak for peak in found.peaks if before is None or peak <= before]
            if not to_lower:
                return
            before = max(to_lower) - 1

    def _attempt(self, options: Options) -> PlannedProgram | None:
        options = replace(options, must_plan=options.must_plan and not self.is_long)
        if self.left.units <= 0:
            return None
        budget = Budget.of(1) if self.is_long else budget_of(self.program)
        planned, left = self.planning.attempt(self.program, self.model, options, budget)
        self.left.units -= 0 if self.is_long else budget.total - left.total
        return planned

    def _leaner(self, free: PlannedProgram) -> Iterator[PlannedProgram]:
        """What may keep the limit: over the axes of the search, then over all."""
        yield from self._smaller_steps(free, Options())
        planning = self.planning
        if planning.axes(self.program, planning.uses_idle_first) != planning.axes(self.program):
            over_idle = self._attempt(Options(idle=True, must_plan=False))
            if over_idle is not None:
                yield over_idle
                yield from self._smaller_steps(over_idle, Options(idle=True))

    def _smaller_steps(self, free: PlannedProgram, options: Options) -> Iterator[PlannedProgram]:
        """Plans that may keep the limit, with steps ever smaller than the largest of the one before."""
        while True:
            yield from islice(self.keeping(options), FEW if self.is_long else None)
            largest, limit = _largest_on_the_way(free), options.largest_step
            if not largest or (limit is not None and largest > limit):
                return
            options = replace(options, largest_step=largest - 1)
            found = self._attempt(replace(options, must_plan=False))
            if found is None:
                return
            free = found
            yield free


def _largest_on_the_way(planned: PlannedProgram) -> int:
    """The bytes per device of the largest step: what it leaves and, of a move, what it moves if that is not given."""
    mesh = planned.schedule.mesh
    return max((_size(done.step, done.block, mesh) for done in single_steps(planned.schedule.block)), default=0)


def _size(step: Step, block: Block, mesh: Mesh) -> int:
    held = [n for n in step.operands if _moves(step) and n not in block.inputs]
    return sum(block.values[number].local_bytes(mesh) for number in (step.result, *held))


def _moves(step: Step) -> bool:
    """Whether a step is part of a reshard: the search then knows what it holds meanwhile."""
    return step.is_collective or isinstance(step.op, Reshape)


class TooLarge(ShardcError):
    """SHC410, the smallest peak that is known, and the plan without a limit."""

    smallest: int
    free: PlannedProgram


def too_large(program: Program, memory: int, refused: Refused, free: PlannedProgram) -> TooLarge:
    held = least_held(program)
    error = TooLarge(
        "SHC410",
        f"no plan found keeps {memory} bytes per device; the smallest peak found is {refused.smallest}",
        span=program.statements[0].span if len(program.statements) == 1 else None,
        note=f"its inputs and outputs alone are {held} bytes on each device" if memory < held else "",
        help=f"--memory {refused.smallest}, or shard the arrays over more axes",
    )
    error.smallest, error.free = refused.smallest, free
    return error
