"""A product with its dims seen as digits, where that is cheaper than with whole axes.

An operand goes from where it lies to where the product takes it, the result from there to where it is wanted, both in
digits, each by a route of `rules.routes`, which needs no search:

    A[I_Z, J] · B[J, K_YZ] → C[I_XYZ, K]     slice A[I0_Z, I1_X, J], gather Y of B[J, K_Z] …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from operator import itemgetter
from typing import NamedTuple

from shardc.cost.rate import picoseconds
from shardc.ir.digits import Reshape, reshaped, shape_after
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Product
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Dims, Sharding, ShardingNumber
from shardc.lowering.copies import copies_to_reshape
from shardc.planner.budget import PLACED, PRICED, Spent
from shardc.planner.digits.bounds import MovesBound
from shardc.planner.digits.chosen import Chosen, InDigits
from shardc.planner.paths.search import Search
from shardc.planner.paths.tables import Applied, Held, Moved, Multiplied, Table, Waypoint
from shardc.planner.problem import Problem
from shardc.planner.products.ways import Work
from shardc.rules.digit_products import Choices, Digit, Digits, Placement, choices, digits_of_dims
from shardc.rules.routes import Route

MAX_PLACEMENTS = 4096  # ways to put the axes on digits: three axes on three dims have at most 512
MAX_PRICED = 128  # and as many as may be as good as the last of them


def in_digits(
    problem: Problem, expr: Product, sources: tuple[Sharding, ...], goal: Sharding, below: int
) -> InDigits | None:
    """The cheapest product in digits of less than this price, from operands that lie so to a result that lies so.

    The best that is known where the budget ends.
    None as well where partial sums arrive or are wanted, and where an axis of one device stands.
    """
    if expr.local or goal.unreduced or any(source.unreduced for source in sources):
        return None
    if any(problem.mesh.size(axis) == 1 for sharding in (*sources, goal) for axis in sharding.sharded):
        return None
    most, work = problem.mesh.product(problem.pool), problem.work(expr)
    if below <= problem.product_price(work, most, [0] * len(sources), 0):
        return None  # not even shared by all devices, and with nothing moved
    placed = (*zip((operand.dims for operand in expr.operands), sources, strict=True), (expr.dims, goal))
    every = _every(placed, problem.mesh, problem.mesh.nontrivial(problem.pool))
    if every is None:
        return None
    found = _cheapest(_Task.of(problem, expr, placed, digits_of_dims(placed, problem.mesh), work), every, below)
    try:
        return None if found is None else _with_fewest_digits(problem, expr, placed, found)
    except Spent:
        return found


def chosen_below(problem: Problem, table: Table, number: ShardingNumber) -> Chosen:
    """Of the products that a table's sharding is made of, those in digits, where that is clearly cheaper."""
    found: dict[tuple[int, ShardingNumber], InDigits] = {}
    _choose(problem, table, number, found)
    return found


def _choose(
    problem: Problem, table: Table, number: ShardingNumber, found: dict[tuple[int, ShardingNumber], InDigits]
) -> None:
    seed, _ = table.paths(number).moves_to(number)
    origin = table.origins[seed]
    below = None
    # Where steps are limited, memory is short, and a reshape may be a copy.
    if isinstance(origin, Multiplied) and not table.fixed and problem.options.largest_step is None:
        below = _clearly_cheaper(problem, table, origin, number)
    if below is None or not isinstance(origin, Multiplied):
        _choose_for(problem, table, seed, found)
        return
    found[id(table), number] = below
    for operand, start in origin.seeds:
        _choose_for(problem, operand, start, found)


def _choose_for(
    problem: Problem, table: Table, seed: ShardingNumber, found: dict[tuple[int, ShardingNumber], InDigits]
) -> None:
    """For whatever makes a seed of a table."""
    match table.origins[seed]:
        case Waypoint(below, at) | Moved(below, at):
            _choose(problem, below, at, found)
        case Multiplied(tables, at) | Applied(tables, at):
            for below, number in zip(tables, at, strict=True):
                _choose(problem, below, number, found)
        case Held():
            pass


def _clearly_cheaper(problem: Problem, table: Table, origin: Multiplied, number: ShardingNumber) -> InDigits | None:
    """The product in digits, from where its operands lie to this sharding, if that is clearly cheaper."""
    assert isinstance(table.expr, Product)
    seeds = origin.seeds
    price = table.paths(number).price[number] - sum(below.seeds[seed] for below, seed in seeds)
    sources = tuple(below.sharding(seed) for below, seed in seeds)
    below = problem.objective.clearly_below(price)
    return in_digits(problem, origin.pair(table.expr), sources, table.sharding(number), below)


class _Every(NamedTuple):
    """Where the axes of a pool may stand on the digits of a product's arrays, whatever their sizes: each way, and into
    how many the product is shared by it."""

    choices: Choices
    chosen: tuple[tuple[Digit, ...], ...]
    parts: tuple[int, ...]


@lru_cache(maxsize=1024)
def _every(whole: tuple[tuple[Dims, Sharding], ...], mesh: Mesh, pool: Axes) -> _Every | None:
    """Of arrays that lie so; None where there are too many ways."""
    digits = digits_of_dims(whole, mesh)
    placed = [(dims, reshaped(digits.op(dims), sharding, mesh)) for dims, sharding in whole]
    found = choices(placed, digits, pool)
    if found.count > MAX_PLACEMENTS:
        return None
    return _Every(found, tuple(product(*found.places)), tuple(found.parts(mesh)))


def _cheapest(task: _Task, every: _Every, below: int) -> InDigits | None:
    """In order of what they cost at least, until that is no less than the best."""
    best = None
    try:
        task.problem.meter.spend(PLACED * len(every.chosen))
        bounded = sorted(_bounded(task, every, below), key=itemgetter(0))
        first = bounded[:MAX_PRICED]
        last = first[-1][0] if first else below
        for bound, parts, chosen in bounded:
            if bound >= below or bound > last:
                break
            for placement in every.choices.placements(chosen, task.digits):
                task.problem.meter.spend(PRICED)
                found = task.priced(placement, parts, below)
                if found is not None:
                    best, below = found, found.price
    except Spent:
        pass
    return best


def _bounded(task: _Task, every: _Every, below: int) -> Iterator[tuple[int, tuple[int, ...], tuple[Digit, ...]]]:
    """The choices that may cost less than that: what they cost at least, and of that each array's part.

    First what the result's moves cost, which rules out most.
    """
    result, *operands = task.bounds(every.choices.axes)
    least = {parts: task.arithmetic(parts) for parts in set(every.parts)}
    fit = list[tuple[int, int, int]]()
    for place, (parts, code) in enumerate(zip(every.parts, result.joined(every.choices.places), strict=True)):
        bound = result.prices.get(code)
        if bound is None:
            bound = result.bound(every.chosen[place], code)
        if bound is not None and (total := least[parts] + bound) < below:
            fit.append((total, bound, place))
    codes = [moves.joined(every.choices.places) for moves in operands] if fit else []
    for total, *each, place in fit:
        for moves, own in zip(operands, codes, strict=True):
            bound = moves.bound(every.chosen[place], own[place])
            if bound is None or (total := total + bound) >= below:
                break
            each.append(bound)
        else:
            yield total, tuple(each[::-1]), every.chosen[place]


def _with_fewest_digits(
    problem: Problem, expr: Product, placed: Sequence[tuple[Dims, Sharding]], found: InDigits
) -> InDigits:
    """The same with digits seen as one wherever that costs nothing, for the reader and for the compiler.

    All that can be, if that does; else one after another.
    """

    def without(cuts: Iterable[Digit]) -> InDigits | None:
        digits, placement = found.digits, found.placement
        for dim, upper in cuts:
            fewer = placement.joined(digits, dim, upper, problem.mesh)
            if fewer is not None:
                digits, placement = digits.without(dim, upper), fewer
        if digits == found.digits:
            return found
        task = _Task.of(problem, expr, placed, digits)
        return task.priced(placement, (0,) * len(placed), found.price + 1)

    cuts = found.digits.cuts[::-1]
    at_once = without(cuts)
    if at_once is not None:
        return at_once
    for cut in cuts:
        found = without([cut]) or found
    return found


@dataclass(slots=True)
class _Task:
    """One product in given digits. `placed` are its operands and its goal in these."""

    problem: Problem
    expr: Product
    digits: Digits
    placed: Sequence[tuple[Dims, Sharding]]
    searches: tuple[Search, ...]
    work: Work
    reshapes: int = 0  # the price of seeing the arrays in digits
    _arithmetic: dict[int, int] = field(default_factory=dict)
    _known: dict[tuple[int, Sharding], tuple[int, Route] | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        problem: Problem,
        expr: Product,
        whole: Sequence[tuple[Dims, Sharding]],
        digits: Digits,
        work: Work | None = None,
    ) -> _Task:
        splits, arrays = [digits.op(dims) for dims, _ in whole], (*expr.operands, expr)
        placed, searches = list[tuple[Dims, Sharding]](), list[Search]()
        for (dims, lies), split, array in zip(whole, splits, arrays, strict=True):
            placed.append((dims, reshaped(split, lies, problem.mesh)))
            shape = shape_after(split, problem.program.shape(dims))
            searches.append(problem.search_of(shape, array.dtype, problem.is_rounded(array)))
        found = cls(problem, expr, digits, placed, tuple(searches), work or problem.work(expr))
        found.reshapes = sum(map(found._reshape, whole, splits, (array.dtype for array in arrays)))
        return found

    def _reshape(self, whole: tuple[Dims, Sharding], split: Reshape, dtype: DType) -> int:
        """The price of seeing an array of the whole in digits."""
        (dims, lies), problem, mesh = whole, self.problem, self.problem.mesh
        if not any(split.sizes):
            return 0
        rate = problem.model.alone.copy_s_per_byte
        if not rate:
            return problem.objective.price(0, 0)
        before = Array("", dims, problem.program.shape(dims), lies, dtype)
        after = replace(before, shape=shape_after(split, before.shape), sharding=reshaped(split, lies, mesh))
        seconds = before.local_bytes(mesh) * rate if copies_to_reshape(before, after, mesh) else 0.0
        return problem.objective.price(picoseconds(seconds), 0)

    def bounds(self, axes: Axes) -> list[MovesBound]:
        """What each array costs at least, the result first."""
        every = self.digits.places(tuple(self.digits.sizes))
        result = len(self.placed) - 1
        found = [
            MovesBound.of(search, axes, self.digits.places(dims), every, lies, number == result)
            for number, (search, (dims, lies)) in enumerate(zip(self.searches, self.placed, strict=True))
        ]
        return found[::-1]

    def arithmetic(self, parts: int) -> int:
        """The least price of the product itself, shared by so many devices."""
        if parts not in self._arithmetic:
            self._arithmetic[parts] = self.problem.product_price(self.work, parts, [0] * len(self.expr.operands), 0)
        return self._arithmetic[parts]

    def _product(self, placement: Placement) -> int:
        shardings = [placement.operand(dims) for dims, _ in self.placed[:-1]]
        blocks = [*shardings, placement.result(self.expr.dims)]
        *read, written = (s.local_bytes(s.graph.number(block)) for s, block in zip(self.searches, blocks, strict=True))
        return self.problem.product_price(self.work, self.work.parts(shardings, self.problem.mesh), read, written)

    def priced(self, placement: Placement, bounds: tuple[int, ...], below: int) -> InDigits | None:
        """A placement with its moves; None if an exchange does not fit, or needs digits of digits, or it is no cheaper.

        `bounds` are of the moves of each array.
        """
        total = self._product(placement) + self.reshapes + sum(bounds)
        routes = list[Route]()
        for number, bound in enumerate(bounds):
            found = None if total >= below else self._moved(number, placement)
            if found is None:
                return None
            total += found[0] - bound
            routes.append(found[1])
        return None if total >= below else InDigits(self.digits, tuple(routes[:-1]), placement, routes[-1], total)

    def _moved(self, number: int, placement: Placement) -> tuple[int, Route] | None:
        """What an operand's moves to the product cost, or the result's from it, and these; worked out once."""
        dims, lies = self.placed[number]
        is_result = number == len(self.placed) - 1
        at = placement.result(dims) if is_result else placement.operand(dims)
        if (number, at) not in self._known:
            search = self.searches[number]
            there, here = search.graph.number(at), search.graph.number(lies)
            found = self._from_product(search, there, here) if is_result else self._route(search, here, there)
            self._known[number, at] = found
        return self._known[number, at]

    def _route(self, search: Search, source: ShardingNumber, target: ShardingNumber) -> tuple[int, Route] | None:
        found = (0, ()) if source == target else search.route(source, target)
        return None if found is None or any(isinstance(move, Reshape) for move in found[1]) else found

    def _from_product(self, search: Search, left: ShardingNumber, goal: ShardingNumber) -> tuple[int, Route] | None:
        """From the product to the goal: partial sums are reduced, then a route. Those that may be best are priced."""
        found = search.reductions(left, goal, self.digits.rests(self.expr.dims))
        bounded = [
            (price + search.bound(first.end, goal), place, price, first) for place, (price, first) in enumerate(found)
        ]
        best: tuple[int, Route] | None = None
        for bound, _, price, first in sorted(bounded, key=itemgetter(0, 1)):
            if best is not None and bound >= best[0]:
                break
            rest = self._route(search, first.end, goal)
            if rest is not None and (best is None or price + rest[0] < best[0]):
                best = price + rest[0], (*first.route, *rest[1])
        return best
