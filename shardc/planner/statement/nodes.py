"""The cheapest way to have each expression in each sharding.

A statement is a tree. From the leaves up, each node gets a Table: for every sharding its value can be in,
the price, and where it came from. A node's own operation gives seeds, moves spread them:

    Use       the sharding written (or held)                     seeds {[I, J_X]: 0}
    Product   every local product of two priced operand shardings; of a chain, of every pair of its parts
    Call      every sharding that the function allows
    Named     one move of the kind that the user wrote

Prices add up along the tree, so the least price at the root is the least over all plans of these moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from shardc.cost.model import CostModel, picoseconds
from shardc.errors import ShardcError
from shardc.ir.chains import Chain, Pair, chain_of
from shardc.ir.collectives import COLLECTIVE_NAMES, AllReduce, JointGather, JointScatter
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.program import Call, Expr, Named, Pattern, Product, Program, Use, operands
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.budget import NODE, QUICK, WAY, Budget
from shardc.planner.meshes.idle import idle_together
from shardc.planner.objective import Objective
from shardc.planner.paths.graph import Edge, sharding_graph
from shardc.planner.paths.search import Search
from shardc.planner.paths.tables import (
    Applied,
    Held,
    Moved,
    Multiplied,
    Origin,
    Table,
    Waypoint,
    as_written,
)
from shardc.planner.products.placing import quick_choices, quick_ways
from shardc.planner.products.ways import Towards, Way, every_price, every_way
from shardc.planner.products.work import Work
from shardc.planner.statement.functions import function_ways
from shardc.rules.products import count_placements, placements

FEW = 8  # shardings that an operand is held in, at most, for its product to be searched towards a goal
MAX_WAYS = 200  # for the dims to lie that meet in a product, where none that is written has more


@dataclass(slots=True)
class Planner:
    """What the nodes of one program share: sizes, the cost model, the objective, the axes to search over."""

    program: Program
    model: CostModel
    objective: Objective
    pool: Axes
    held: dict[str, list[int]] = field(default_factory=dict)  # per name, the values that hold it
    shardings: list[Sharding] = field(default_factory=list)  # of the values
    alike: dict[int, tuple[int, ...]] = field(default_factory=dict)  # per value, all that are the same array
    cap: int | None = None  # the most bytes per device of a step
    limit: int | None = None  # the highest price that a product of two given arrays, or a reshard, may have
    most_wire: int | None = None  # the most wire bytes that the moves of an array may bring
    budget: Budget = field(default_factory=Budget.unlimited)
    quick: bool = False  # whether nothing is searched: a few of the ways, each with its routes
    deep: bool = False  # whether then a route is held against a search in digits
    _searches: dict[tuple[tuple[int, ...], int], Search] = field(default_factory=dict)
    _products_of: dict[tuple[Product, tuple[frozenset[str], ...]], list[tuple[Way, int]]] = field(default_factory=dict)

    together: Axes = field(init=False)  # axes of the pool that move as one

    def __post_init__(self) -> None:
        self.together = idle_together(self.program, self.pool)

    @property
    def mesh(self) -> Mesh:
        return self.program.mesh

    def over(self, pool: Axes) -> Planner:
        """The same planner, moving only these axes."""
        return replace(self, pool=pool, limit=None, most_wire=None, _searches={}, _products_of={})

    def within(self, body: Program) -> Planner:
        """A planner of a loop's body, which searches as this one does."""
        fresh = replace(self, held={}, shardings=[], alike={}, limit=None, most_wire=None)
        found = replace(fresh, program=body, _searches={}, _products_of={})
        found.together = self.together
        return found

    def hurried(self) -> Planner:
        """The same planner, where there is no time for a search."""
        return replace(
            self,
            quick=True,
            limit=None,
            most_wire=None,
            budget=Budget(QUICK, QUICK, is_soft=True),
            _searches={},
            _products_of={},
        )

    def search(self, dims: tuple[str, ...], dtype: DType) -> Search:
        return self.search_of(self.program.shape(dims), dtype)

    def search_of(self, shape: tuple[int, ...], dtype: DType) -> Search:
        key = (shape, dtype.bytes)
        if key not in self._searches:
            graph = sharding_graph(self.mesh, len(shape), self.pool, self.together)
            self._searches[key] = Search(
                graph,
                shape,
                dtype.bytes,
                self.model,
                self.objective,
                self.cap,
                self.most_wire,
                self.budget,
                self.quick,
                self.deep,
            )
        return self._searches[key]

    def table(self, expr: Expr, wanted: Sharding | None = None) -> Table:
        """The table of an expression, all strategies and all orders of its products together.

        With `wanted`, of a product of two given arrays only what leads to that sharding most cheaply.
        """
        if isinstance(expr, Product) and len(expr.operands) > 1:
            return self._chain(chain_of(expr), wanted)
        return self.combine(expr, tuple(self.table(operand) for operand in operands(expr)))

    def as_written(self, expr: Expr) -> Table:
        """The table of an expression with its products in the order as written."""
        return self.combine(expr, tuple(self.as_written(operand) for operand in operands(expr)))

    def _chain(self, chain: Chain, wanted: Sharding | None) -> Table:
        """Of each part of a chain one table, which has the best of all pairs that make it."""
        tables = {1 << place: self.table(operand) for place, operand in enumerate(chain.operands)}
        for pair in chain.pairs():
            if pair.left not in tables or pair.right not in tables or not self._can_afford(chain, pair):
                continue
            if self.quick and self.budget.is_spent and pair not in chain.written:
                continue
            below = (tables[pair.left], tables[pair.right])
            expr = chain.multiply(pair, *(table.expr for table in below))
            made = tables.get(pair.whole) or Table(expr, self.search(expr.dims, expr.dtype), {}, {})
            whole = wanted if pair.whole == chain.whole else None
            self._seed(made, expr, below, self._goal(chain, below, made.search, whole))
            if made.seeds:
                tables[pair.whole] = made
        if chain.whole not in tables:
            raise _impossible(chain.product)
        return tables[chain.whole]

    def _goal(self, chain: Chain, below: tuple[Table, ...], search: Search, wanted: Sharding | None) -> int | None:
        """The only sharding to be asked of a product, if it is one of two arrays that lie in a few ways."""
        alone = len(chain.operands) == 2 and not chain.product.local
        searched = alone and self.cap is None and all(len(table.seeds) <= FEW for table in below)
        if wanted is None or not (searched or (self.quick and not chain.product.local)):
            return None
        goal = search.graph.number(wanted)
        return goal if search.divides(goal) else None

    def _can_afford(self, chain: Chain, pair: Pair) -> bool:
        """Whether a pair that nobody wrote is as easy to search as one that is written, and its numbers to add."""
        if pair in chain.written:
            return True
        size = math.prod(self.program.shape(chain.dims(pair.whole))) * chain.product.dtype.bytes
        if size >= 2**63 or math.prod(self.program.shape(chain.meeting(pair))) >= 2**80:
            return False
        widest = max(len(chain.meeting(other)) for other in chain.written)
        meeting = len(chain.meeting(pair))
        return (
            meeting <= widest or count_placements(len(self.pool) - max(0, len(self.together) - 1), meeting) <= MAX_WAYS
        )

    def combine(self, expr: Expr, tables: tuple[Table, ...]) -> Table:
        """The table of an expression from its operands' tables."""
        found = self.table_or_none(expr, tables)
        if found is None:
            raise _impossible(expr)
        return found

    def table_or_none(self, expr: Expr, tables: tuple[Table, ...]) -> Table | None:
        found = Table(expr, self.search(expr.dims, expr.dtype), {}, {})
        self._seed(found, expr, tables)
        return found if found.seeds else None

    def _seed(self, found: Table, expr: Expr, tables: tuple[Table, ...], goal: int | None = None) -> None:
        for number, price, origin in self.ways(expr, tables, found.search, goal):
            if self.cap is not None and not isinstance(expr, Use) and not found.search.divides(number):
                continue
            found.add(number, price, origin)

    def ways(
        self, expr: Expr, tables: tuple[Table, ...], search: Search, goal: int | None = None
    ) -> Iterator[tuple[int, int, Origin]]:
        """Every (sharding, price, origin) that the expression's own operation gives; of a product, towards a goal."""
        match expr:
            case Use():
                return self._leaf(expr, search)
            case Product():
                return self._products(expr, tables, search, goal)
            case Call():
                return function_ways(expr, tables, search) if tables else self._anywhere(expr, search)
            case Named():
                return self._named(expr, tables[0], search)
            case _:
                assert_never(expr)

    def _leaf(self, use: Use, search: Search) -> Iterator[tuple[int, int, Origin]]:
        values = self.held.get(use.name)
        wanted = use.pattern.exact if use.pattern is not None else None
        if values is None:
            assert use.pattern is not None
            yield from ((number, 0, Held(None)) for number in self.choices(use.pattern, search))
        elif wanted is None:
            newest = {search.graph.number(self.shardings[value]): value for value in values}
            search.given.update(newest)
            yield from ((number, 0, Held(value)) for number, value in newest.items())
            alike = dict.fromkeys(other for value in values for other in self.alike.get(value, ()))
            others = [other for other in alike if other not in values]
            yield from ((search.graph.number(self.shardings[value]), 0, Held(value, is_copy=True)) for value in others)
        else:
            bare = Use(use.name, use.dims, None, use.dtype, use.span)
            held = self.combine(bare, ())
            number = search.graph.number(wanted)
            price = held.paths(number).price.get(number)
            if price is not None:
                yield number, price, Waypoint(held, number)

    def choices(self, pattern: Pattern, search: Search) -> Iterator[int]:
        """The shardings that match a pattern and divide the array."""
        exact = pattern.exact
        for sharding in [exact] if exact is not None else self._matching(pattern):
            number = search.graph.number(sharding)
            if search.divides(number):
                yield number

    def _matching(self, pattern: Pattern) -> list[Sharding]:
        graph = sharding_graph(self.mesh, len(pattern.dims), self.pool, self.together)
        if self.quick:
            return list(map(graph.refined, quick_choices(pattern, graph.mesh, graph.coarse_pool)))
        self.budget.spend(NODE * count_placements(len(graph.coarse_pool), graph.rank))
        free = tuple(axis for axis in graph.coarse_pool if axis not in pattern.unreduced)
        every = (graph.refined(Sharding(dims, pattern.unreduced)) for dims in placements(free, len(pattern.dims)))
        return [sharding for sharding in every if pattern.matches(sharding)]

    def _products(
        self, expr: Product, tables: tuple[Table, ...], search: Search, goal: int | None = None
    ) -> Iterator[tuple[int, int, Origin]]:
        usable = tuple(as_written(table) if expr.local else table for table in tables)
        found: Iterable[tuple[Way, int]]
        if self.quick and not expr.local:
            work = Work.of(self.program, expr)
            price = partial(self.product_price, work, tables=tables, search=search)
            found = quick_ways(expr, tables, search, goal, price, self.budget)
        elif goal is None:
            found = every_price(self.local_products(expr, usable, search), usable)
        else:
            towards = Towards(expr, usable, search, goal, self.budget)
            found = towards.best(self.local_products(expr, usable, search), self.limit)
        return ((way.result, price, Multiplied(usable, way.at)) for way, price in found)

    def local_products(self, expr: Product, tables: tuple[Table, ...], search: Search) -> list[tuple[Way, int]]:
        """Each local product that the seeds' partial sums allow, and the price of the product itself."""
        partials = tuple(
            frozenset(axis for number in table.seeds for axis in table.sharding(number).unreduced) for table in tables
        )
        if (expr, partials) not in self._products_of:
            self._products_of[expr, partials] = self._priced_products(expr, tables, search, partials)
        return self._products_of[expr, partials]

    def _priced_products(
        self, expr: Product, tables: tuple[Table, ...], search: Search, partials: tuple[frozenset[str], ...]
    ) -> list[tuple[Way, int]]:
        meeting = len({dim for operand in expr.operands for dim in operand.dims})
        self.budget.begin_on(WAY * count_placements(len(search.graph.coarse_pool), meeting))
        graphs = tuple(table.search.graph for table in tables)
        ways = every_way(tuple(o.dims for o in expr.operands), expr.dims, graphs, search.graph, partials)
        work = Work.of(self.program, expr)
        return [(way, self.product_price(work, way, tables, search)) for way in ways]

    def product_price(self, work: Work, way: Way, tables: tuple[Table, ...], search: Search) -> int:
        """The price of the product itself."""
        moved = sum(table.search.local_bytes(n) for table, n in zip(tables, way.at, strict=True))
        time = self.model.local_s(work.total // way.parts, moved + search.local_bytes(way.result), work.dtype)
        return self.objective.price(picoseconds(time), 0)

    def _anywhere(self, expr: Call, search: Search) -> Iterator[tuple[int, int, Origin]]:
        """The positions along a dim: each device counts its own, wherever they are to lie."""
        return ((number, 0, Applied((), ())) for number in self.choices(Pattern.free(len(expr.dims)), search))

    def _named(self, expr: Named, table: Table, search: Search) -> Iterator[tuple[int, int, Origin]]:
        source = as_written(table)
        dim = None if expr.dim is None else expr.dims.index(expr.dim)
        for number, price in source.paths().price.items():
            for edge in self._edges_of(expr, dim, number, search):
                if search.divides(edge.target):
                    yield edge.target, price + search.price(number, edge), Moved(source, number, edge.move)

    def named_moves(self, expr: Named, number: int, search: Search) -> Iterator[tuple[int, int]]:
        """What a collective's name allows from a sharding: where to, and the price of the move."""
        dim = None if expr.dim is None else expr.dims.index(expr.dim)
        edges = self._edges_of(expr, dim, number, search)
        return ((edge.target, search.price(number, edge)) for edge in edges if search.divides(edge.target))

    def _edges_of(self, expr: Named, dim: int | None, number: int, search: Search) -> Iterator[Edge]:
        for edge in search.graph.named_edges(number, COLLECTIVE_NAMES[expr.collective]):
            move = edge.move
            axes_fit = (
                expr.axes is None
                or move.axes == expr.axes
                or (isinstance(move, AllReduce | JointGather | JointScatter) and set(move.axes) == set(expr.axes))
            )
            if axes_fit and (dim is None or getattr(move, "dim", None) == dim):
                yield edge


def _impossible(expr: Expr) -> ShardcError:
    match expr:
        case Named(collective=collective):
            return ShardcError(
                "SHC219",
                f"`{collective}` cannot be done to its operand",
                span=expr.span,
                help="check that the operand is sharded, or unreduced, over the axes named",
            )
        case Product(local=True):
            return ShardcError(
                "SHC211",
                "the operands' shardings do not allow a local product",
                span=expr.span,
                help="drop `_LOCAL`, or shard the contracted dim alike on both operands",
            )
        case _:
            return ShardcError(
                "SHC220", "no sharding of the operands allows this", span=expr.span, help="reduce or gather first"
            )
