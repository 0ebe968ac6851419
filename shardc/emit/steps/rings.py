"""A product and a collective as a ring: partial products, each beside the permutes of the next blocks.

    right = left = W                    every block goes both ways round at once, and is multiplied where it comes by
    Out = In[:, stands] · W
    for turn in range(1):               half the ring; of an even one the last block comes from one side alone
        right, left = to the neighbours     one permute each
        Out = Out + In[:, stands - turn - 1] · right + In[:, stands + turn + 1] · left

Scattered it is the same backwards: a sum goes round towards the device whose share it is, from both sides, and each
device on the way adds its partial product, or computes those of both sides at once (`lowering.rings.Ring`). A sum for
all is scattered so, and gathered. Over several axes the blocks come by in the order of the way round
(`lowering.rings`), not of their numbers: `place` is looked up in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardc.emit.allowed import AROUND, BARRIER, JOINED, LEFT, PIECE, PLACE, RIGHT, STANDS, TURN
from shardc.emit.exprs import (
    Attr,
    BinOp,
    Code,
    Const,
    Expr,
    Index,
    Items,
    Line,
    Loop,
    Name,
    axes_argument,
    call,
    method,
    over,
    size_of,
    times,
)
from shardc.emit.steps import local
from shardc.ir.plan import Einsum, Schedule, Step, Together, operands_of
from shardc.ir.sharding import Array, Axes
from shardc.lowering.pairs import numbers_in_order
from shardc.lowering.rings import Ring

_STANDS, _AROUND, _PLACE, _TURN = map(Name, (STANDS, AROUND, PLACE, TURN))
_STEP = {RIGHT: 1, LEFT: -1}  # from a device to its neighbour


def ring(schedule: Schedule, group: Together, found: Ring, names: Sequence[str]) -> list[Code]:
    """The lines of a group."""
    steps = schedule.steps[group.first : group.last + 1]
    product = next(step for step in steps if isinstance(step.op, Einsum))
    moved = next(step for step in steps if step is not product)
    writer = _Writer(schedule, found, product, moved, names)
    return [*writer.begun(), *(writer.gathered() if found.gathers else writer.scattered())]


@dataclass(frozen=True, slots=True)
class _Writer:
    schedule: Schedule
    ring: Ring
    product: Step
    moved: Step
    names: Sequence[str]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return operands_of(self.product, self.schedule.values)

    @property
    def result(self) -> Array:
        """The product's, before it is scattered."""
        return self.schedule.values[self.product.result]

    @property
    def target(self) -> Name:
        return Name(self.names[self.product.result if self.ring.gathers else self.moved.result])

    @property
    def is_summed(self) -> bool:
        """Whether a gathered dim is summed over: the partial products add up, and else lie one beside another."""
        return self.ring.dim not in self.result.dims

    def begun(self) -> Iterator[Line]:
        """Where the device stands on the way round."""
        number = call("jax.lax.axis_index", axes_argument(self.ring.axes))
        if self.ring.is_in_order:
            yield Line(STANDS, number, "")
            return
        places = [self.ring.around.index(number) for number in range(self.ring.size)]
        yield Line(STANDS, _looked_up(_listed(places), number), "on the way round")
        yield Line(AROUND, _listed(self.ring.around), "the blocks in that order")

    def gathered(self) -> Iterator[Code]:
        given, turns = Name(self.names[self.moved.operands[0]]), (self.ring.size - 1) // 2
        own = given if self.ring.waits is None else Name(RIGHT)
        if self.ring.waits is not None:
            both = Items((given, Name(self.names[self.ring.waits])))
            yield Line(RIGHT, Index(call(BARRIER, both), 0), "once the other is gathered")
        yield from self._first(own)
        if turns:
            yield Line(LEFT, own, "")
        if own is given:
            yield Line(RIGHT, own, "")
        if turns:
            right = self._came_by(RIGHT, BinOp(_ahead(self.ring.size - 1), "-", _TURN))
            yield Loop(turns, (*right, *self._came_by(LEFT, BinOp(_ahead(1), "+", _TURN))))
        if self.ring.size % 2 == 0:
            yield from self._came_by(RIGHT, _ahead(self.ring.size // 2))
        rounded = self._rounded(self.target)
        if self.is_summed and rounded != self.target:
            yield Line(self.target.name, rounded, str(self.result))

    def _first(self, own: Name) -> Iterator[Line]:
        yield from self._own()
        if self.is_summed:
            yield from self._partial(self.target.name, own, str(self.result))
            return
        dims = enumerate(self.result.dims)
        sizes = (
            times(self.ring.size if dim == self.ring.dim else 1, size_of(Name(PIECE), place)) for place, dim in dims
        )
        empty = call("jax.lax.empty", Items(tuple(sizes)), Attr(Name(PIECE), "dtype"))
        yield from self._partial(PIECE, own, rounded=True)
        yield Line(self.target.name, empty, str(self.result))
        yield self._laid()

    def _came_by(self, way: str, place: Expr) -> Iterator[Line]:
        """From the neighbour, and multiplied."""
        yield self._sent(way)
        yield from self._at(place)
        yield from self._partial(PIECE, Name(way), rounded=not self.is_summed)
        if self.is_summed:
            yield Line(self.target.name, _sum(self.target, Name(PIECE)), "")
        else:
            yield self._laid()

    def _laid(self) -> Line:
        dim = self.result.dims.index(self.ring.dim)
        start = BinOp(_PLACE, "*", size_of(Name(PIECE), dim))
        laid = call("jax.lax.dynamic_update_slice_in_dim", self.target, Name(PIECE), start, axis=Const(dim))
        return Line(self.target.name, laid, "")

    def scattered(self) -> Iterator[Code]:
        turns, count = (self.ring.size - 1) // 2, self.ring.size
        yield from self._first_pair() if self.ring.in_pairs else self._first_sums()
        if turns > 1:
            right, left = BinOp(_ahead(turns - 1), "-", _TURN), BinOp(_ahead(count - turns + 1), "+", _TURN)
            one_by_one = (*self._passed_on(RIGHT, right), *self._passed_on(LEFT, left))
            pairs = (self._sent(RIGHT), self._sent(LEFT), *self._both(right, left, (RIGHT, LEFT)))
            yield Loop(turns - 1, pairs if self.ring.in_pairs else one_by_one)
        yield self._sent(RIGHT)
        yield from [self._sent(LEFT)] if turns else []
        yield from self._own()
        yield from self._partial(PIECE, rounded=True)
        if not turns:  # computed with its product, the sum would let that wait for what comes
            apart = call(BARRIER, Items((Name(PIECE), Name(RIGHT))))
            yield Line(PIECE, Index(apart, 0), "apart from the sum")
        came = _sum(Name(RIGHT), Name(LEFT)) if turns else Name(RIGHT)
        leaves = str(self.schedule.values[self.moved.result])
        yield Line(self.target.name, _sum(came, Name(PIECE)), "" if self.ring.gathered_after else leaves)
        if self.ring.gathered_after:
            yield Line(self.target.name, self._for_all(), leaves)

    def _first_sums(self) -> Iterator[Line]:
        """Of an even number the farthest share comes from one side alone."""
        turns, count = (self.ring.size - 1) // 2, self.ring.size
        yield from self._begun(RIGHT, count // 2)
        if turns and count % 2 == 0:
            yield from self._passed_on(RIGHT, _ahead(turns))
        if turns:
            yield from self._begun(LEFT, count - turns)

    def _first_pair(self) -> Iterator[Line]:
        turns, count = (self.ring.size - 1) // 2, self.ring.size
        alone = count % 2 == 0
        if alone:
            yield from self._begun(RIGHT, count // 2)
            yield self._sent(RIGHT)
        yield from self._both(_ahead(turns), _ahead(count - turns), (RIGHT,) if alone else ())

    def _both(self, right: Expr, left: Expr, came: Sequence[str]) -> Iterator[Line]:
        """The blocks at two places multiplied at once, each added to the sum that came from its side, if one did."""
        (at,) = (n for n, array in enumerate(self.arrays) if self.ring.dim in array.dims)
        given, dim = Name(self.names[self.product.operands[at]]), Const(self.arrays[at].dims.index(self.ring.dim))
        for place, name in ((right, PIECE), (left, JOINED)):
            yield from self._at(place)
            yield Line(name, self._cut(given, self.arrays[at]), "")
        yield Line(PIECE, call("jnp.concatenate", Items((Name(PIECE), Name(JOINED)), "[]"), axis=dim), "of both sides")
        operands = [Name(self.names[value]) for value in self.product.operands]
        operands[at] = Name(PIECE)
        found = self._rounded(local.einsum(self.arrays, tuple(operands), self.result))
        out = Const(self.result.dims.index(self.ring.dim))
        yield Line(PIECE, call("jnp.split", found, Const(2), axis=out), "")
        for half, way in enumerate((RIGHT, LEFT)):
            own = Index(Name(PIECE), half)
            yield Line(way, _sum(Name(way), own) if way in came else own, "")

    def _begun(self, way: str, place: int) -> Iterator[Line]:
        """A sum where it begins."""
        yield from self._at(_ahead(place))
        yield from self._partial(way, rounded=True)

    def _passed_on(self, way: str, place: Expr) -> Iterator[Line]:
        """A sum from the neighbour, and what is added to it here."""
        yield self._sent(way)
        yield from self._at(place)
        yield from self._partial(PIECE, rounded=True)
        yield Line(way, _sum(Name(way), Name(PIECE)), "")

    def _for_all(self) -> Expr:
        dim, axis = Const(self.result.dims.index(self.ring.dim)), axes_argument(self.ring.axes)
        return call("jax.lax.all_gather", self.target, axis, axis=dim, tiled=Name("True"), to=Const("invarying"))

    def _own(self) -> Iterator[Line]:
        yield Line(PLACE, _STANDS if self.ring.is_in_order else _looked_up(_AROUND, _STANDS), "")

    def _at(self, place: Expr) -> Iterator[Line]:
        """The block that comes next."""
        yield Line(PLACE, place, "")
        yield Line(PLACE, BinOp(_PLACE, "%", Const(self.ring.size)), "")
        if not self.ring.is_in_order:
            yield Line(PLACE, _looked_up(_AROUND, _PLACE), "")

    def _partial(
        self, target: str, block: Name | None = None, comment: str = "", rounded: bool = False
    ) -> Iterator[Line]:
        """The product of a block and of what belongs to it of the other operand, both at `place`."""
        names, cuts = list[Expr](), 0
        for value, array in zip(self.product.operands, self.arrays, strict=True):
            whole = Name(self.names[value])
            if block is not None and value == self.moved.result:
                names.append(block)
            elif self.ring.dim not in array.dims:
                names.append(whole)
            else:
                names.append(Name((PIECE, JOINED)[cuts]))
                yield Line((PIECE, JOINED)[cuts], self._cut(whole, array), "")
                cuts += 1
        found = local.einsum(self.arrays, tuple(names), self.result)
        yield Line(target, self._rounded(found) if rounded else found, comment)

    def _cut(self, value: Name, array: Array) -> Expr:
        """The part of an operand at `place`."""
        dim = array.dims.index(self.ring.dim)
        size = over(size_of(value, dim), self.ring.size)
        start = BinOp(_PLACE, "*", size)
        return call("jax.lax.dynamic_slice_in_dim", value, start, size, axis=Const(dim))

    def _sent(self, way: str) -> Line:
        """Every device to its neighbour on that side. JAX counts the devices of a permute in the order of the mesh."""
        mesh = self.schedule.mesh
        axes = mesh.ordered(self.ring.axes)
        numbers = numbers_in_order(axes, self.ring.axes, mesh)
        pairs = [(numbers[one], numbers[other]) for one, other in self.ring.pairs(_STEP[way])]
        return Line(way, permuted(Name(way), axes, pairs), "")

    def _rounded(self, value: Expr) -> Expr:
        return local.rounded(value, self.arrays, self.result)


def permuted(value: Expr, axes: Axes, pairs: Sequence[tuple[int, int]]) -> Expr:
    """Sent from the first to the second of each pair, by numbers over the axes in the order of the mesh."""
    listed = Items(tuple(Items((Const(one), Const(other))) for one, other in pairs), "[]")
    return call("jax.lax.ppermute", value, axes_argument(axes), perm=listed)


def _listed(numbers: Sequence[int]) -> Expr:
    return call("np.array", method(Const(" ".join(map(str, numbers))), "split"), Name("int"))


def _looked_up(table: Expr, place: Expr) -> Expr:
    return call("jnp.take", table, place, axis=Const(0))


def _sum(one: Expr, other: Expr) -> Expr:
    return call("jnp.add", one, other)


def _ahead(count: int) -> Expr:
    return BinOp(_STANDS, "+", Const(count))
