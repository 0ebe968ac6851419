"""The cheapest paths from sharding to sharding, of one array.

Dijkstra's algorithm over the moves of a Graph. Towards one goal by bytes it is A*: from a sharding on, at least the
bytes that a device needs and does not hold are still to come. Where whole axes do not get there in those, a
route of `rules.routes` does, and is one more edge.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardc.cost.legs import Leg
from shardc.cost.model import CostModel
from shardc.cost.rate import Rate
from shardc.ir.digits import Reshape, reshaped, shape_after
from shardc.ir.dtypes import DType
from shardc.ir.exchange import received_to_add
from shardc.ir.sharding import Axes, Sharding, ShardingNumber
from shardc.lowering.scatters import LocalBlock, depends_on_share
from shardc.planner.budget import EDGE, MOVE, NODE, ROUTE, UNEQUAL, Meter, Spent
from shardc.planner.options import CHEAPEST, Method, Objective, Options
from shardc.planner.paths.graph import CostedRoute, Edge, Graph, Remaining, edge_costs, sharding_graph
from shardc.planner.paths.run import Arrival, Paths, Run, Successor
from shardc.rules.routes import Route, aligned, plainly, route


class Search:
    """Searches over one array: a space, its global shape and bytes, and how moves are priced."""

    def __init__(
        self,
        graph: Graph,
        shape: tuple[int, ...],
        dtype: DType,
        model: CostModel,
        objective: Objective,
        options: Options = CHEAPEST,
        meter: Meter | None = None,
        given: frozenset[Sharding] = frozenset(),
    ) -> None:
        """`given` is where the array lies in any case, so that a step from there takes no room for it."""
        self.graph = graph
        self.shape = shape
        self.model = model
        self.objective = objective
        self.options = options
        self._cap = options.largest_step
        self._meter = Meter.unlimited() if meter is None else meter
        self._given = frozenset(map(graph.number, given))
        self.dtype = dtype
        self.may_exchange = depends_on_share(shape, dtype, model.target)
        self.array = LocalBlock(shape, dtype) if self.may_exchange else None
        self._costs = edge_costs(graph, model, self.array)
        self.total_bytes = math.prod(shape) * dtype.bytes
        self.in_digits: dict[Axes, dict[int, int]] = {}  # of these axes by their roles, as `digits.bounds` has them
        self._bound_of: dict[int, int] = {}  # of each of the graph's remainders
        self._always_divides = self._cap is None and all(size % graph.mesh.devices == 0 for size in shape)
        self._routed: dict[tuple[ShardingNumber, ShardingNumber], tuple[int, Route] | None] = {}
        self._closed: dict[tuple[ShardingNumber, ShardingNumber], tuple[int, Route] | None] = {}
        self._divides: dict[ShardingNumber, bool] = {}
        self._priced: dict[ShardingNumber, list[Successor]] = {}
        self._from: dict[ShardingNumber, Paths] = {}

    def divides(self, number: ShardingNumber) -> bool:
        """Whether the array can lie so: its dims divide, and a block is no larger than the cap."""
        if self._always_divides:
            return True
        found = self._divides.get(number)
        if found is None:
            fits = self._cap is None or self.local_bytes(number) <= self._cap
            sizes = zip(self.shape, self.graph.blocks[number], strict=True)
            found = self._divides[number] = fits and all(size % parts == 0 for size, parts in sizes)
        return found

    def local_bytes(self, number: ShardingNumber) -> int:
        return self.total_bytes // self.graph.counts[number]

    def paths(
        self, seeds: dict[ShardingNumber, int], goal: ShardingNumber | None = None, limit: int | None = None
    ) -> Paths:
        """From priced seeds; up to `goal` if there is one, and if a path there can cost at most the limit.

        Equal prices are broken by the order of discovery, which is that of seeds, dims and mesh axes. Where the budget
        ends first, the best path to the goal that is known; raises Spent where none is.
        """
        if not self.options.searches:
            return self._closed_paths(seeds, goal)
        masked = self.options.masks and (goal is None or bool(self.graph.shardings[goal].unreduced))
        if goal in seeds and len(seeds) == 1 and not masked and (limit is None or seeds[goal] <= limit):
            return Paths(dict(seeds), {goal: None})  # it is there
        found = Run(self, seeds, None if masked else goal, None if masked else limit).paths()
        if found is None:
            raise Spent
        return self._with_masks(found) if masked else found

    def _with_masks(self, found: Paths) -> Paths:
        """Whatever is reached, and from there partial sums over further axes, which are reached no other way."""
        price, last = dict(found.price), dict(found.last)
        for number in sorted(price, key=lambda each: len(self.graph.shardings[each].unreduced)):
            waiting = [number]
            while waiting:
                before = waiting.pop()
                for edge in self.graph.masks(before):
                    cost = price[before] + self.price(before, edge)
                    if cost < price.get(edge.target, cost + 1):
                        price[edge.target], last[edge.target] = cost, (before, (edge.move,))
                        waiting.append(edge.target)
        return Paths(price, last, found.bound)

    def successors(
        self, number: ShardingNumber, goal: ShardingNumber | None, last: Arrival | None
    ) -> list[Successor] | None:
        """The route to the goal, and every move; None where the budget ends first."""
        try:
            return [*self._routes(number, goal, last), *self._scattered(number, goal), *self._steps(number)]
        except Spent:
            return None

    def brings_too_much(self, price: int) -> bool:
        limit = self.options.most_wire
        return limit is not None and self.objective.wire_bytes(price) > limit

    def paths_from(self, number: ShardingNumber) -> Paths:
        """The paths from one sharding at price 0; searched once."""
        found = self._from.get(number)
        if found is None:
            found = self._from[number] = self.paths({number: 0})
        return found

    def price(self, number: ShardingNumber, edge: Edge) -> int:
        size = self.local_bytes(number)
        return self.objective.price(self._costs.rate(number, edge.move).time_ps(size), edge.wire * size // edge.parts)

    def needed(self, number: ShardingNumber, goal: ShardingNumber) -> int:
        """The bytes that some device needs and does not hold, to come from one sharding to another."""
        return self._needed(self.graph.remainders[self.graph.remaining(number, goal)])

    def _needed(self, left: Remaining) -> int:
        return self.total_bytes // left.block - (self.total_bytes // left.kept if left.kept else 0)

    def bound(self, number: ShardingNumber, goal: ShardingNumber | None) -> int:
        """What no path from a sharding to the goal gets below; 0 without a goal."""
        if goal is None:
            return 0
        left = self.graph.remaining(number, goal)
        found = self._bound_of.get(left)
        if found is None:
            rate = self._costs.bound_at(left) if self.objective is Objective.TIME else None
            found = self._bound_of[left] = self._bound_at(rate, self.graph.remainders[left])
        return found

    def bound_of(self, left: Remaining) -> int:
        """What all that is left to do costs at least."""
        return self._bound_at(self._costs.rate_bound(left) if self.objective is Objective.TIME else None, left)

    def _bound_at(self, rate: Rate | None, left: Remaining) -> int:
        wire = self._needed(left)
        if left.summed:
            summed, devices = map(self.graph.mesh.product, (left.summed, left.axes))
            wire = max(wire, received_to_add(self.total_bytes, summed, left.block, devices))
        return self.objective.price(0 if rate is None else rate.time_ps(self.total_bytes), wire, steps=0)

    def _routes(self, number: ShardingNumber, goal: ShardingNumber | None, last: Arrival | None) -> list[Successor]:
        """The route to the goal. In pieces it saves nothing but from a seed, or from what a reduction left."""
        if goal is None:
            return []
        first = last is None or last[1][-1].facts.reduces
        found = self._shorter(number, goal) if first or self.graph.needs_digits(number, goal) else None
        return [] if found is None else [(goal, *found)]

    def _scattered(self, number: ShardingNumber, goal: ShardingNumber | None) -> list[Successor]:
        """Of partial sums over many axes the scatter onto the goal, which is no step for itself."""
        edge = None if goal is None else self.graph.scatter_onto(number, goal)
        if edge is None or not self.divides(edge.target) or not self._fits(number, edge.target):
            return []
        return [(edge.target, self.price(number, edge), (edge.move,))]

    def _shorter(self, number: ShardingNumber, goal: ShardingNumber) -> tuple[int, Route] | None:
        """A route that no path of moves replaces, and its price; None where paths do as well."""
        if number == goal or not (self.graph.is_large or self.graph.needs_digits(number, goal)):
            return None
        return self.route(number, goal)

    def shortcut(
        self, seed: ShardingNumber, start: int, number: ShardingNumber, goal: ShardingNumber | None, found: Successor
    ) -> Successor:
        """A route from the seed of a path to the sharding that it just met, if that is cheaper.

        Only for pairs that the search meets, so that of two searches the wider may find a cheaper path; only where the
        path found brings more bytes than are needed; and in large graphs not on the way to a goal.
        """
        large, flat = self.graph.is_large, self.graph.flat
        if (large and goal is not None) or (not large and seed in flat and number in flat):
            return found
        if found[1] <= start + self.bound(seed, number):
            return found
        if self.objective.wire_bytes(found[1] - start) <= self.needed(seed, number):
            return found
        if not (large or self.graph.needs_digits(seed, number)):
            return found
        way = self._shorter(seed, number)
        return found if way is None or start + way[0] >= found[1] else (seed, start + way[0], way[1])

    def from_seeds(
        self, number: ShardingNumber, seeds: dict[ShardingNumber, int], price: int
    ) -> Iterator[tuple[ShardingNumber, tuple[int, Route]]]:
        """The routes in digits from any of several seeds that are cheaper than this, each than those before."""
        self._meter.spend(EDGE * len(seeds))
        graph = self.graph
        if graph.shardings[number].unreduced:
            return  # no route in digits leads to partial sums
        flat = graph.flat if number in graph.flat else frozenset[ShardingNumber]()
        for seed, start in seeds.items():
            if start >= price or seed in flat or start + self.bound(seed, number) >= price:
                continue
            if graph.needs_digits(seed, number):
                found = self.route(seed, number)
                if found is not None and start + found[0] < price:
                    price = start + found[0]
                    yield seed, found

    def route(self, number: ShardingNumber, goal: ShardingNumber) -> tuple[int, Route] | None:
        """The price of the route of `rules.routes`, and the route; None if there is none, or it does not fit."""
        if (number, goal) not in self._routed:
            self._meter.spend(ROUTE)
            found = self._costs.route(number, goal, self.shape)
            price = None if found is None else self._price_along(number, found)
            self._routed[number, goal] = None if found is None or price is None else (price, found.route)
        return self._routed[number, goal]

    def closed(self, number: ShardingNumber, goal: ShardingNumber) -> tuple[int, Route] | None:
        """The cheapest of the route and of plain ones, which there always are, unless sums are to be made."""
        if (number, goal) not in self._closed:
            source, target = self.graph.shardings[number], self.graph.shardings[goal]
            routes = [None if number == goal else self.route(number, goal)]
            for moves in (*plainly(source, target, self.graph.mesh), *self._further(source, target)):
                found = self._costs.along(number, moves)
                price = None if found is None else self._price_along(number, found)
                routes.append(None if price is None else (price, moves))
            self._closed[number, goal] = min(filter(None, routes), key=operator.itemgetter(0), default=None)
        return self._closed[number, goal]

    def _further(self, source: Sharding, target: Sharding) -> Iterator[Route]:
        """The routes in digits that both have, if there are any; and in unequal pieces, if these are asked for."""
        if self.options.method is Method.UNEQUAL_ROUTES:
            from shardc.rules.unequal import in_unequal_pieces  # few plans do

            self._meter.spend(UNEQUAL)
            yield from in_unequal_pieces(source, target, self.shape, self.graph.mesh, self.graph.pool)
        mesh, split = self.graph.mesh, aligned(source, target, self.shape, self.graph.mesh)
        if not any(split.sizes):
            return
        before, after = (reshaped(split, sharding, mesh) for sharding in (source, target))
        self._meter.spend(2 * ROUTE)
        found = route(before, after, shape_after(split, self.shape), mesh)
        for moves in (*plainly(before, after, mesh), *([] if found is None else [found])):
            if not any(isinstance(move, Reshape) for move in moves):
                yield (split, *moves, replace(split, joins=True))

    def deeper(self, number: ShardingNumber, goal: ShardingNumber, limit: int) -> tuple[int, Route] | None:
        """The cheapest path of moves in the digits that both have, if it is found and costs no more than the limit."""
        mesh = self.graph.mesh
        source, target = self.graph.shardings[number], self.graph.shardings[goal]
        split = aligned(source, target, self.shape, mesh)
        shape = shape_after(split, self.shape)
        graph = sharding_graph(mesh, len(shape), self.graph.pool, is_typed=self.graph.is_typed)
        options = replace(self.options, method=Method.SEARCH)
        inner = Search(graph, shape, self.dtype, self.model, self.objective, options, self._meter)
        start, end = (graph.number(reshaped(split, sharding, mesh)) for sharding in (source, target))
        try:
            found = inner.paths({start: 0}, end, limit)
        except Spent:
            return None
        moves = tuple(found.moves_to(end)[1]) if end in found.price else ()
        if not moves or any(isinstance(move, Reshape) for move in moves):
            return None
        joined = (split, *moves, replace(split, joins=True)) if any(split.sizes) else moves
        return found.price[end], joined

    def _closed_paths(self, seeds: dict[ShardingNumber, int], goal: ShardingNumber | None) -> Paths:
        """The seeds; and the goal, by a closed route from one of them."""
        price, last = dict(seeds), dict[ShardingNumber, Arrival | None].fromkeys(seeds)
        for seed, start in seeds.items():
            found = None if goal is None else self.closed(seed, goal)
            if goal is not None and found is not None and start + found[0] < price.get(goal, start + found[0] + 1):
                price[goal], last[goal] = start + found[0], (seed, found[1]) if found[1] else None
        if goal is None or goal in seeds or len(seeds) != 1 or self.options.method is not Method.ROUTES_IN_DIGITS:
            return Paths(price, last)
        ((seed, start),) = seeds.items()
        better = self.deeper(seed, goal, price.get(goal, start) - start - 1)
        if better is not None:
            price[goal], last[goal] = start + better[0], (seed, better[1])
        return Paths(price, last)

    def reductions(
        self, left: ShardingNumber, goal: ShardingNumber, rests: Sequence[int]
    ) -> Iterator[tuple[int, CostedRoute]]:
        """The prices of the ways to make partial sums sums, on the way to the goal."""
        for found in self._costs.reductions(left, goal, rests):
            self._meter.spend(ROUTE)
            price = self._price_along(left, found)
            if price is not None:
                yield price, found

    def _price_along(self, number: ShardingNumber, found: CostedRoute) -> int | None:
        """The price of a route; None if blocks do not divide, or it needs more memory than the cap."""
        if any(map(operator.mod, self.shape, found.divisors)):
            return None
        if self._cap is not None:
            held = 0 if number in self._given else self.local_bytes(number)
            for count in found.blocks:
                if held + self.total_bytes // count > self._cap:
                    return None
                held = self.total_bytes // count
        return self.price_of(found.legs, len(found.route))

    def price_of(self, legs: Sequence[Leg], steps: int) -> int:
        """The price of moves one after another, so many with those that bring nothing."""
        time = wire = 0
        for rate, blocks, brings, parts in legs:
            size = self.total_bytes // blocks
            time += rate.time_ps(size)
            wire += brings * size // parts
        return self.objective.price(time, wire, steps)

    def _fits(self, number: ShardingNumber, target: ShardingNumber) -> bool:
        """Whether the blocks before and after a move are within the cap together; what is given is there anyway."""
        before = 0 if number in self._given else self.local_bytes(number)
        return self._cap is None or before + self.local_bytes(target) <= self._cap

    def _steps(self, number: ShardingNumber) -> list[Successor]:
        found = self._priced.get(number)
        if found is None:
            self._meter.spend(NODE)
            edges, size, price = self._costs.edges(number), self.local_bytes(number), self.objective.price
            prices = [price(rate.time_ps(size), wire * size // parts) for rate, wire, parts in edges.prices]
            found = [(target, prices[kind], route) for target, kind, route in edges.moves]
            if not self._always_divides:
                found = [step for step in found if self.divides(step[0])]
            if self._cap is not None:
                found = [step for step in found if self._fits(number, step[0])]
            self._meter.spend(MOVE * len(edges.moves))
            self._priced[number] = found
        self._meter.spend(EDGE * len(found))
        return found
