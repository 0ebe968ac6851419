"""What all nodes of a program's expressions share while it is planned."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shardc.cost.model import CostModel, picoseconds
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Product
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.budget import QUICK, Budget
from shardc.planner.idle import idle_together
from shardc.planner.options import CHEAPEST, Method, Objective, Options
from shardc.planner.paths.graph import Graph, sharding_graph
from shardc.planner.paths.search import Search
from shardc.planner.products.ways import Way, Work

_Asked: TypeAlias = tuple[Product, tuple[frozenset[str], ...]]  # a product, and over what its operands may be unreduced
LocalWays: TypeAlias = tuple[list[tuple[Way, int]], frozenset[str]]  # with prices; over what the result may be sums


@dataclass(slots=True)
class Problem:
    """A program with its prices, the axes that may move, what is held so far, and the searches made so far."""

    program: Program
    model: CostModel
    objective: Objective
    pool: Axes
    options: Options = CHEAPEST
    budget: Budget = field(default_factory=Budget.unlimited)
    held: dict[str, list[int]] = field(default_factory=dict)  # per name, the values that hold it
    shardings: list[Sharding] = field(default_factory=list)  # of the values
    alike: dict[int, tuple[int, ...]] = field(default_factory=dict)  # per value, all that are the same array
    products: dict[_Asked, list[tuple[Way, int]]] = field(default_factory=dict)  # priced so far
    local: dict[Hashable, LocalWays] = field(default_factory=dict)  # of operations planned whole, met so far
    _searches: dict[tuple[tuple[int, ...], DType], Search] = field(default_factory=dict)

    _together: Axes | None = field(init=False, default=None)  # found when first asked for

    @property
    def together(self) -> Axes:
        """Axes of the pool that move as one."""
        if self._together is None:
            self._together = idle_together(self.program, self.pool)
        return self._together

    @property
    def mesh(self) -> Mesh:
        return self.program.mesh

    @property
    def limit(self) -> int | None:
        """The highest price that one product or reshard may have."""
        below = self.options.below
        return None if below is None else self.objective.below(below)

    def afresh(self) -> Problem:
        """The same problem with no limit on its price, and nothing searched yet."""
        options = replace(self.options, below=None, most_wire=None)
        return replace(self, options=options, products={}, local={}, _searches={})

    def over(self, pool: Axes) -> Problem:
        """The same problem, moving only these axes."""
        return replace(self.afresh(), pool=pool)

    def within(self, body: Program) -> Problem:
        """The problem of a loop's body, which is searched as this one is."""
        found = self.afresh()
        options = replace(found.options, memory=None, memory_before=None)
        found = replace(found, program=body, options=options, held={}, shardings=[], alike={})
        found._together = self.together
        return found

    def by_routes(self) -> Problem:
        """The same problem, where there is no time for a search."""
        found = self.afresh()
        options = replace(found.options, method=Method.ROUTES)
        return replace(found, options=options, budget=Budget(QUICK, QUICK, is_soft=True))

    def product_price(self, work: Work, parts: int, read: int, written: int) -> int:
        """Of a local product alone, shared by so many devices, that reads and writes so many bytes on each."""
        seconds = self.model.alone.seconds(work.total // parts, read, written, work.dtype)
        return self.objective.price(picoseconds(seconds), 0)

    def way_price(self, work: Work, way: Way, operands: Sequence[Search], result: Search) -> int:
        """The same of a way, whose operands and result are the arrays of these searches."""
        read = sum(search.local_bytes(number) for search, number in zip(operands, way.at, strict=True))
        return self.product_price(work, way.parts, read, result.local_bytes(way.result))

    def graph(self, rank: int) -> Graph:
        return sharding_graph(self.mesh, rank, self.pool, self.together)

    def search(self, dims: tuple[str, ...], dtype: DType) -> Search:
        return self.search_of(self.program.shape(dims), dtype)

    def search_of(self, shape: tuple[int, ...], dtype: DType) -> Search:
        key = (shape, dtype)
        if key not in self._searches:
            graph = self.graph(len(shape))
            self._searches[key] = Search(graph, shape, dtype, self.model, self.objective, self.options, self.budget)
        return self._searches[key]
