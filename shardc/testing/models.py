"""The laws that prices of collectives obey, whoever sets them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from numbers import Real
from typing import TypeAlias

from shardc.errors import ShardcError
from shardc.interface.arguments import MeshLike
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, JointGather, Move, ReduceScatter
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding, spell
from shardc.testing.oracles import all_moves, all_shardings
from shardc.testing.refusals import count_of, mesh_of
from shardc.testing.saying import name_of

Price: TypeAlias = Callable[[Move, int], float]

_BYTES = tuple(sorted({2**n + more for n in range(35) for more in (-1, 0, 1)} - {0}))
_SLACK = 1 + 1e-9  # floats, added in another order
_ENDLESS = math.inf


@dataclass(frozen=True, slots=True)
class Unlawful:
    """A law that a price breaks, with the move, the sharding before it, the bytes, both sides in seconds, and of which
    other prices the limit is made."""

    law: str
    move: Move
    before: Sharding
    size: int
    mesh: Mesh
    seconds: float
    limit: float
    beside: str = ""

    def __str__(self) -> str:
        dims = ("I", "J", "K")[: self.before.rank]
        moved = f"{self.move} of A{spell(dims, self.before)}, {self.size} bytes, on {self.mesh}"
        beside = f", by {self.beside}" if self.beside else ""
        return f"{self.law}: {moved}: {self.seconds:.3g} s, not {self.limit:.3g}{beside}"


@dataclass(frozen=True, slots=True)
class _Limit:
    """Between which two prices a law wants a price, and what they are the prices of."""

    law: str
    lowest: float
    highest: float
    beside: str = ""


def assert_cost_model(price: Price, mesh: MeshLike, *, rank: int = 2, sizes: Sequence[int] = _BYTES) -> None:
    """A price of moves, in seconds for so many bytes on each device before the move, obeys the laws of collectives.

    For every move that a sharding of that rank on the mesh allows: every price is finite, and none is negative or falls
    with the bytes; twice the bytes take at most twice as long; what one device does alone is free, a Slice always. For
    an array of the same bytes: a ReduceScatter takes as long as the AllGather that undoes it; an AllReduce is between
    one of these and both together; an AllToAll takes no longer than the AllGather. And an AllGather over two axes takes
    no longer than over one after the other. Tried are `sizes`, each times the square of how many devices share it out:
    the powers of two, and one less and one more.

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
    found = next(unlawful(cache(partial(_seconds, price, of)), of, rank, sizes), None)
    if found is not None:
        raise AssertionError(str(found))


def _seconds(price: Price, mesh: Mesh, move: Move, size: int) -> float:
    try:
        found = price(move, size)
    except Exception as error:
        error.add_note(f"in {name_of(price)}, of {move} and {size} bytes, on mesh {mesh}")
        raise
    at = f"{move} of {size} bytes, on mesh {mesh}, has"
    if isinstance(found, bool) or not isinstance(found, Real):
        raise AssertionError(f"a price is seconds, as a number: {at} {found!r}")
    try:
        seconds = float(found)
    except OverflowError:  # a whole number that no float is as large as
        seconds = _ENDLESS
    if not math.isfinite(seconds):
        raise AssertionError(f"a price is a finite number of seconds: {at} {'NaN' if math.isnan(seconds) else seconds}")
    return seconds


def unlawful(price: Price, mesh: Mesh, rank: int, sizes: Sequence[int]) -> Iterator[Unlawful]:
    """Every break of a law, of each move once, with the first sharding that allows it: prices know of no sharding."""
    allows = dict[Move, Sharding]()
    for before in all_shardings(mesh, rank):
        for move in all_moves(before, mesh):
            allows.setdefault(move, before)
    for move, before in allows.items():
        yield from _of_one(price, move, before, sorted({*sizes}), mesh)


def _of_one(price: Price, move: Move, before: Sharding, sizes: Sequence[int], mesh: Mesh) -> Iterator[Unlawful]:
    whole = mesh.product(move.axes) ** 2  # so that whatever is shared out is whole
    less = 0
    for size in (each * whole for each in sizes):
        seconds = price(move, size)
        for limit in (*_of_bytes(price, move, size, less, mesh), *_limits(price, move, size, mesh)):
            if seconds < limit.lowest / _SLACK:
                yield Unlawful(limit.law, move, before, size, mesh, seconds, limit.lowest, limit.beside)
            elif seconds > limit.highest * _SLACK:
                yield Unlawful(limit.law, move, before, size, mesh, seconds, limit.highest, limit.beside)
        less = size


def _of_bytes(price: Price, move: Move, size: int, less: int, mesh: Mesh) -> Iterator[_Limit]:
    """What is asked of every price. `less` is the size before this one, if there is one."""
    yield _Limit("a price is not negative", 0.0, _ENDLESS)
    for fewer in {less, size // 2} - {0}:
        seconds, said = _priced(price, move, fewer)
        yield _Limit("more bytes take no less time", seconds, _ENDLESS, said)
    if size % 2 == 0:
        seconds, said = _priced(price, move, size // 2)
        yield _Limit("twice the bytes take at most twice as long", 0.0, 2 * seconds, said)
    if mesh.product(move.axes) == 1 or not move.facts.communicates:
        yield _Limit("what a device does alone is free", 0.0, 0.0)


def _limits(price: Price, move: Move, size: int, mesh: Mesh) -> Iterator[_Limit]:
    """What is asked of a move's price beside those of others."""
    count = mesh.product(move.axes)
    match move:
        case AllGather(axes, dim):
            undoing, said = _priced(price, ReduceScatter(axes, dim), size * count)
            yield _Limit("an AllGather takes as long as the ReduceScatter of what it leaves", undoing, undoing, said)
            for first, last in _halves(axes):
                one, before = _priced(price, AllGather(last, dim), size)
                other, after = _priced(price, AllGather(first, dim), size * mesh.product(last))
                law = "over two axes at once it takes no longer than one after the other"
                yield _Limit(law, 0.0, one + other, f"{before} and {after}")
        case AllToAll(axes, source, _):
            gathered, said = _priced(price, AllGather(axes, source), size)
            yield _Limit("an AllToAll takes no longer than the AllGather", 0.0, gathered, said)
        case AllReduce(axes):
            once, before = _priced(price, ReduceScatter(axes, 0), size)
            then, after = _priced(price, AllGather(axes, 0), size // count)
            law = "an AllReduce is at most a ReduceScatter and an AllGather, and at least one of them"
            yield _Limit(law, once, once + then, f"{before} and {after}")
        case JointGather(parts):
            (dim, _), *_ = parts
            gathered, said = _priced(price, AllGather(move.axes, dim), size)
            yield _Limit("a gather of two dims takes as long as of one", gathered, _ENDLESS, said)
        case _:
            return


def _priced(price: Price, move: Move, size: int) -> tuple[float, str]:
    """A price, and what it is of."""
    seconds = price(move, size)
    return seconds, f"{move} of {size} bytes, {seconds:.3g} s"


def _halves(axes: Axes) -> Iterator[tuple[Axes, Axes]]:
    for place in range(1, len(axes)):
        yield axes[:place], axes[place:]
