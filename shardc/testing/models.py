"""The laws that prices of collectives obey, whoever sets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TypeAlias

from shardc.errors import ShardcError
from shardc.interface.arguments import MeshLike
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, JointGather, Move, ReduceScatter, apply
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding, spell
from shardc.testing.oracles import all_moves, all_shardings
from shardc.testing.refusals import count_of, mesh_of
from shardc.testing.saying import name_of

Price: TypeAlias = Callable[[Move, int], float]

_BYTES = (1, 1024, 2**20, 2**28)
_SLACK = 1 + 1e-9  # floats, added in another order


@dataclass(frozen=True, slots=True)
class Unlawful:
    """A law that a price breaks, with the move, the sharding before it, the bytes, and both sides in seconds."""

    law: str
    move: Move
    before: Sharding
    size: int
    mesh: Mesh
    seconds: float
    limit: float

    def __str__(self) -> str:
        dims = ("I", "J", "K")[: self.before.rank]
        moved = f"{self.move} of A{spell(dims, self.before)}, {self.size} bytes, on {self.mesh}"
        return f"{self.law}: {moved}: {self.seconds:.3g} s, not {self.limit:.3g}"


def assert_cost_model(price: Price, mesh: MeshLike, *, rank: int = 2, sizes: Sequence[int] = _BYTES) -> None:
    """A price of moves, in seconds for so many bytes on each device before the move, obeys the laws of collectives.

    For every move of every sharding of that rank on the mesh: no price is negative or falls with the bytes; twice the
    bytes take at most twice as long; what one device does alone is free, a Slice always. For an array of the same
    bytes: a ReduceScatter takes as long as the AllGather that undoes it; an AllReduce is between one of these and both
    together; an AllToAll takes no longer than the AllGather. And an AllGather over two axes takes no longer than over
    one after the other.

    `shardc.cost.LinkModel` obeys them as `lambda move, size: model.rate(move).seconds(size)`. Raises AssertionError.

    >>> assert_cost_model(lambda move, size: 0.0, {"X": 4, "Y": 2})
    >>> assert_cost_model(lambda move, size: -1.0, "X=4,Y=2")
    Traceback (most recent call last):
    AssertionError: a price is not negative: Slice(axes=('X',), dim=0) of A[I, J], 16 bytes, on X=4, Y=2: -1 s, not 0
    """
    if not callable(price):
        raise ShardcError("SHC001", f"{price!r} is no price", help="give a function of a move and its bytes")
    of = mesh_of(mesh)
    sizes = [count_of("a size in bytes", size, 1, 2**63) for size in sizes]
    count_of("the rank", rank, 1, 3)
    if of.devices < 2 or not sizes:
        raise ShardcError("SHC001", "on one device, or of no bytes, every price is lawful", help="give more of them")
    found = next(unlawful(partial(_seconds, price, of), of, rank, sizes), None)
    if found is not None:
        raise AssertionError(str(found))


def _seconds(price: Price, mesh: Mesh, move: Move, size: int) -> float:
    try:
        found = price(move, size)
    except Exception as error:
        error.add_note(f"in {name_of(price)}, of {move} and {size} bytes, on mesh {mesh}")
        raise
    if isinstance(found, bool) or not isinstance(found, Real):
        raise AssertionError(f"a price is seconds, as a number: {move} of {size} bytes, on mesh {mesh}, has {found!r}")
    return float(found)


def unlawful(price: Price, mesh: Mesh, rank: int, sizes: Sequence[int]) -> Iterator[Unlawful]:
    """Every break of a law."""
    for before in all_shardings(mesh, rank):
        for move in all_moves(before, mesh):
            for size in sizes:
                yield from _of_one(price, move, before, size, mesh)


def _of_one(price: Price, move: Move, before: Sharding, size: int, mesh: Mesh) -> Iterator[Unlawful]:
    count = mesh.product(move.axes)
    size *= count * count  # so that whatever is shared out is whole
    seconds = price(move, size)
    for law, lowest, highest in _limits(price, move, before, size, mesh):
        if not seconds >= lowest / _SLACK:  # NaN is neither less nor more
            yield Unlawful(law, move, before, size, mesh, seconds, lowest)
        elif not seconds <= highest * _SLACK:
            yield Unlawful(law, move, before, size, mesh, seconds, highest)


def _limits(price: Price, move: Move, before: Sharding, size: int, mesh: Mesh) -> Iterator[tuple[str, float, float]]:
    """A law's name, and between which two prices it wants this one."""
    endless = float("inf")
    count = mesh.product(move.axes)
    yield "a price is not negative", 0.0, endless
    yield "more bytes take no less time", price(move, size // 2), endless
    yield "twice the bytes take at most twice as long", 0.0, 2 * price(move, size // 2)
    if count == 1 or not move.facts.communicates:
        yield "what a device does alone is free", 0.0, 0.0
    match move:
        case AllGather(axes, dim):
            after = apply(move, before, mesh)
            undoing = price(ReduceScatter(axes, dim), size * count)
            yield "an AllGather takes as long as the ReduceScatter of what it leaves", undoing, undoing
            for first, last in _halves(axes):
                one_by_one = price(AllGather(last, dim), size) + price(AllGather(first, dim), size * mesh.product(last))
                yield "over two axes at once it takes no longer than one after the other", 0.0, one_by_one
            for other in range(after.rank):
                if other != dim:
                    yield "an AllToAll takes no longer", price(AllToAll(axes, dim, other), size), endless
        case AllReduce(axes):
            once = price(ReduceScatter(axes, 0), size)
            both = once + price(AllGather(axes, 0), size // count)
            yield "an AllReduce is at most a ReduceScatter and an AllGather, and at least one of them", once, both
        case JointGather(parts):
            (dim, axes), *_ = parts
            yield "a gather of two dims takes as long as of one", price(AllGather(move.axes, dim), size), endless
        case _:
            return


def _halves(axes: Axes) -> Iterator[tuple[Axes, Axes]]:
    for place in range(1, len(axes)):
        yield axes[:place], axes[place:]
