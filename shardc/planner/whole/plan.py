"""The plan of a program whose free shardings are chosen together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from shardc.cost.cheaper import beside_products, hidden_beside_products
from shardc.cost.model import CostModel
from shardc.errors import ShardcError
from shardc.ir.operations import Kind
from shardc.ir.program import For, Program, Statement, repeated_statements
from shardc.planner.idle import width
from shardc.planner.options import Objective, Options
from shardc.planner.planned import PlannedProgram, Planning, computed
from shardc.planner.problem import Problem, Scratch
from shardc.planner.statement.gaps import arithmetic
from shardc.planner.whole.arrays import Entity, Lying, every_line, says_nothing
from shardc.planner.whole.changes import changes
from shardc.planner.whole.digits import DigitWays
from shardc.planner.whole.doubles import without_doubles
from shardc.planner.whole.eliminate import Factor, Solved, easier, price_of, solve
from shardc.planner.whole.factor_graph import FactorGraph
from shardc.planner.whole.nodes import Known, TooWide
from shardc.planner.whole.prices import NEVER, Scale
from shardc.planner.whole.prune import solve_pruned
from shardc.planner.whole.realise import Exact, as_written, exact, merged
from shardc.planner.whole.rewrites import Rewritten, every_path, in_other_orders, joined
from shardc.planner.whole.scale import scale_of
from shardc.planner.whole.spaces import Spaces, spaces_of
from shardc.rules.placements import count_placements

COMPARED, MOST_COMPARED = 4, 600_000  # plans, the first of which is by time alone; entries of all tables
MOST_MERGED = 300  # operations, times in how many ways the dims lie that meet in one
MOST_PERMUTED = 8  # operations of a program that is planned again as if permutes took less
LEANER = range(-6, 9)  # the price of a byte held, as a power of two of what the plan pays for each that it needs
TIE = 2.0**-10  # of the price, for as many bytes as a plan holds: of choices as cheap the one that holds less
FEW = 20_000  # entries of all tables, that are gone through as they are where no price is known
MANY = 50_000  # entries, beyond which orders of products that take more arithmetic are not tried
MOST_ENTRIES = 600_000  # of all orders of products that are tried in one program


def plan_whole(program: Program, model: CostModel, planning: Planning) -> Iterator[PlannedProgram]:
    """The plan, then others that hold less; nothing where the program is too much for tables.

    Tables know of no step what is around it. Where products hide gathers, what is hidden depends on that, and whole
    gathered arrays, which are large, are more than products can hide; where the text says how an array lies on the way,
    a move to there is none if nothing reads it there. So the cheapest of the first few is the plan.
    """
    pool = planning.axes(program)
    spaces = spaces_of(program, pool)
    if spaces is None:
        return
    try:
        options = Options(is_typed=planning.says_types(program))
        task = _Task.of(Problem(program, model, planning.objective, pool, options), spaces, model, planning)
        best = task.best()
    except (TooWide, KeyError, ShardcError):
        return
    found = _or_beside_products(task, best, task.planned(best))
    if found is None or not found.cost.peak_bytes:
        yield from [] if found is None else [found]
        return
    every = chain([found], _leaner(task, best, best.solved.price / found.cost.peak_bytes))
    if (_hides(task) or _says_between(program)) and best.graph.nodes.entries < MOST_COMPARED:
        first = sorted(islice(every, COMPARED), key=lambda each: each.price(planning.objective))
        every = chain(first, every)
    yield from every


def _leaner(task: _Task, best: Choice, per_byte: float) -> Iterator[PlannedProgram]:
    """Plans of choices in which each byte that is held has a price, up from very little."""
    met = {best.solved.states}
    every = changes(lambda power: task.leaner(best, per_byte * 2.0**power), LEANER, _are_alike)
    for leaner in every:
        if leaner.solved.states not in met and (found := task.planned(leaner)) is not None:
            yield found
        met.add(leaner.solved.states)


def _or_beside_products(task: _Task, chosen: Choice, found: PlannedProgram | None) -> PlannedProgram | None:
    """The plan, or the one by tables in which AllGathers take what is left of them beside products, if that is cheaper:
    tables know of no step what is around it.

    A[I_X, J_Y] · B[J_Y, K] → T[I_X, K], read by two products: an AllReduce takes what a ReduceScatter takes and two
    AllGathers of half the bytes, which v5e's compiler begins beside the products (976 µs and 874 of such a program).
    """
    model, objective = task.model, task.planning.objective
    if not _hides(task) or found is None or not found.cost.peak_bytes:
        return found
    other = task.by(beside_products(model))
    try:
        known = other.priced(chosen)
        hidden = other.planned(other.leaner(known, TIE * known.solved.price / found.cost.peak_bytes))
    except (TooWide, KeyError, ShardcError):
        return found
    return min((found, hidden or found), key=lambda each: each.price(objective))


def _has_loops(program: Program) -> bool:
    return any(isinstance(each, For) for each in program.statements)


def _hides(task: _Task) -> bool:
    """Whether plans are made of moves that the compiler does beside products. For permutes alone few are made again."""
    if task.planning.objective is not Objective.TIME:
        return False
    kinds, few = hidden_beside_products(task.model.target), computed(task.problem.program) <= MOST_PERMUTED
    return Kind.GATHER in kinds or (Kind.PERMUTE in kinds and few and not task.problem.options.is_typed)


def _says_between(program: Program) -> bool:
    """Whether the text says how an array lies that is no output."""
    made, left = enumerate(program.statements), program.leaving
    found = ((number, each) for number, each in made if isinstance(each, Statement) and not says_nothing(each.pattern))
    return any((number, each.name) not in left for number, each in found)


def in_turn_joined(program: Program, model: CostModel, planning: Planning, with_short: bool) -> PlannedProgram | None:
    """The statements in turn, after the products of each chain are joined in one; None where no chain is in several.

    Of a short chain the tables know every order: it is joined only where there are none.
    """
    together = joined(program, with_short)
    if together is None:
        return None
    found = planning.attempt(together.program, model, Options()).planned
    return found and as_written(program, found, Exact(together.program, together.told, {}), planning.objective)


@dataclass(frozen=True, slots=True)
class Choice:
    """A program, its nodes, and their states."""

    rewritten: Rewritten
    graph: FactorGraph
    solved: Solved


def _are_alike(one: Choice, other: Choice) -> bool:
    return one.solved.states == other.solved.states


@dataclass(frozen=True, slots=True)
class _Task:
    """What the rewritings of one program share. Tables are of the problem's prices, plans are priced by the model."""

    problem: Problem
    spaces: Spaces
    model: CostModel
    planning: Planning
    scale: Scale
    known: Known
    plans: dict[tuple[Program, bool], PlannedProgram | None] = field(default_factory=dict)  # of choices so far

    @classmethod
    def of(cls, problem: Problem, spaces: Spaces, model: CostModel, planning: Planning) -> _Task:
        scale = scale_of(problem)
        if scale is None:
            raise TooWide
        return cls(problem, spaces, model, planning, scale, Known())

    def by(self, prices: CostModel) -> _Task:
        """The same with tables by which moves have other prices; what operations do is priced alike."""
        problem = replace(self.problem, model=prices, scratch=Scratch())
        other = _Task.of(problem, self.spaces, self.model, self.planning)
        return replace(other, known=Known(ways=self.known.ways), plans=self.plans)

    def best(self) -> Choice:
        """The best order of products, where these may be done in digits as well: of that order alone they are priced
        in digits, which takes longer than all else."""
        written = Rewritten.of(self.problem.program)
        plain = self._graph(written) if self._has_other_orders(written) else None
        if plain is None or plain.nodes.entries > MOST_ENTRIES:
            return self.in_digits(written)
        best = self.best_order(Choice(written, plain, _solved(plain)))
        graph = self._in_digits(best.rewritten)
        if graph.nodes.entries == best.graph.nodes.entries:  # no product has further ways
            return best
        return Choice(best.rewritten, graph, _solved(graph, known=best.solved.price))

    def solved(self, rewritten: Rewritten, known: int = NEVER) -> Choice:
        graph = self._graph(rewritten)
        return Choice(rewritten, graph, _solved(graph, known=known))

    def _graph(self, rewritten: Rewritten, digits: DigitWays | None = None) -> FactorGraph:
        problem = replace(self.problem, program=rewritten.program)
        return FactorGraph.of(problem, self.scale, self.spaces, self.known, digits)

    def in_digits(self, rewritten: Rewritten) -> Choice:
        """The best of one order of products."""
        graph = self._in_digits(rewritten)
        return Choice(rewritten, graph, _solved(graph))

    def priced(self, choice: Choice) -> Choice:
        """What was chosen by other prices, by these; the best by these where their tables are of other states."""
        graph, states = self._in_digits(choice.rewritten), choice.solved.states
        if graph.nodes.sizes != choice.graph.nodes.sizes:
            return Choice(choice.rewritten, graph, _solved(graph))
        price = price_of(graph.nodes.factors, states)
        return Choice(choice.rewritten, graph, Solved(states, price, 0))

    def _in_digits(self, rewritten: Rewritten) -> FactorGraph:
        return self._graph(rewritten, DigitWays(self.scale))

    def _has_other_orders(self, written: Rewritten) -> bool:
        """Whether there is an order of products but the one written."""
        paths = every_path(self.problem.program.statements)
        return any(True for path in paths for _ in in_other_orders(written, path))

    def best_order(self, written: Choice) -> Choice:
        """The order of each statement's products that costs least, one statement after another, each as long as another
        order costs less."""
        best, left = written, MOST_ENTRIES
        for path in every_path(self.problem.program.statements):
            known = NEVER
            while best.solved.price < known and left > 0:
                known = best.solved.price
                for other in self._promising(in_other_orders(best.rewritten, path), best):
                    left -= best.graph.nodes.entries
                    found = self.solved(other, best.solved.price) if left >= 0 else best
                    best = found if found.solved.price < best.solved.price else best
        return best

    def leaner(self, choice: Choice, per_byte: float) -> Choice:
        """The best states where each byte that a device holds has a price: of inputs, results, and what is taken."""
        graph = choice.graph
        holding = [
            *graph.given.values(),
            *((line.entity, line.lying) for line in every_line(graph.lines)),
            *graph.taken,
        ]
        held = [(lying.node, _local_bytes(entity, lying)) for entity, lying in holding]
        per_byte = min(per_byte, NEVER / 8 / sum(int(size.max()) for _, size in held))  # what is dear can still be had
        priced = [Factor((node,), (per_byte * size).astype(np.int64)) for node, size in held]
        known = choice.solved.price + price_of(priced, choice.solved.states)
        return replace(choice, solved=replace(_solved(graph, priced, known), price=0, bound=0))

    def _promising(self, others: Iterator[Rewritten], best: Choice) -> list[Rewritten]:
        """By their arithmetic, the least first; by time none that takes longer for that alone than what is known.

        Where tables are large, none of more arithmetic than is known.
        """
        found = sorted(((self._arithmetic(other), at, other) for at, other in enumerate(others)), key=itemgetter(0, 1))
        most = self.scale.first(best.solved.price) if self.problem.objective is Objective.TIME else None
        if best.graph.nodes.entries > MANY:
            most = self._arithmetic(best.rewritten) + 1
        return [other for time, _, other in found if most is None or time < most]

    def _arithmetic(self, rewritten: Rewritten) -> int:
        """Picoseconds of all products at least."""
        every = repeated_statements(rewritten.program)
        return sum(times * arithmetic(self.problem, statement.expr) for statement, times in every)

    def planned(self, choice: Choice) -> PlannedProgram | None:
        """The plan of a choice, told by the statements as written."""
        program, planning = self.problem.program, self.planning
        graph, states = choice.graph, choice.solved.states
        apart = exact(choice.rewritten, graph.given, graph.lines, states, with_operands=self.spaces.are_part)
        once = _once(apart)
        plans = [(self._realised(once, idle=False), once)]
        if self.planning.has_idle(once.program):  # a state may be reached over axes that no sharding names
            plans.append((self._realised(once, idle=True), once))
        if self._may_be_merged():
            together = _once(merged(apart, graph.lines))
            plans.append((self._realised(together, idle=True), together))
        made = [(found, asked) for found, asked in plans if found is not None]
        if not made:
            return None
        found, asked = min(made, key=lambda each: each[0].price(planning.objective))
        if _has_loops(apart.program) and not self.spaces.are_part:  # a trip alone would bring anew what all have
            brought = _once(exact(choice.rewritten, graph.given, graph.lines, states, with_operands=True))
            limit = planning.objective.clearly_below(found.price(planning.objective))  # sums are best left as told
            if (other := self._realised(brought, idle=False)) and other.price(planning.objective) <= limit:
                found, asked = other, brought
        told = as_written(program, found, asked, planning.objective)
        return replace(told, notes=(*told.notes, *self.spaces.notes, *_gap(choice, self.scale)))

    def _realised(self, asked: Exact, idle: bool) -> PlannedProgram | None:
        """Planned statement by statement; where it would be much to search, with operands as they are told. Choices
        that differ in nothing that is asked have one plan."""
        options = Options(idle=idle, masks=True, as_asked=self.spaces.are_part)
        if (asked.program, idle) not in self.plans:
            found = self.planning.attempt(asked.program, self.model, options).planned
            self.plans[asked.program, idle] = found
        return self.plans[asked.program, idle]

    def _may_be_merged(self) -> bool:
        """Whether statements with several operations each are quick to plan: some products gain by digits of dims
        only together with what follows them."""
        program = self.problem.program
        return computed(program) * count_placements(len(self.problem.pool), width(program)) <= MOST_MERGED


def _once(asked: Exact) -> Exact:
    found = without_doubles(asked.program, asked.told)
    return replace(asked, program=found.program, told=found.told)


def _local_bytes(entity: Entity, lying: Lying) -> NDArray[np.int64]:
    """Of each state of a node the bytes per device."""
    found: NDArray[np.int64] = entity.search.total_bytes // entity.states.blocks[lying.places]
    return found


def _solved(graph: FactorGraph, more: Sequence[Factor] = (), known: int = NEVER) -> Solved:
    """The best states; of many, after those are gone that no best assignment has.

    Where it is seen that none is as cheap as what is known, no states, at the price of what cannot be.
    """
    nodes, factors = graph.nodes, [*graph.nodes.factors, *more]
    if nodes.entries < FEW and known == NEVER:
        return solve(nodes.sizes, factors)
    left = easier(nodes.sizes, factors)
    return left.with_states(solve_pruned(left.sizes, left.factors, known - left.price))


def _gap(choice: Choice, scale: Scale) -> tuple[str, ...]:
    """How far the choice may be from the best, where the tables were too large to say."""
    price, bound = (scale.first(each) for each in (choice.solved.price, choice.solved.bound))
    if price == bound:
        return ()
    ratio = f"gap {price / bound:.2f}, its price over the proved bound" if bound else "no bound is proved"
    return (f"the shardings of all statements together are too many to go through; {ratio}",)
