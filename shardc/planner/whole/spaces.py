"""Which shardings of a program's arrays are looked at: all; or, where these are too many for tables, with axes at home.

An axis is at home on the dims on which the text writes it, and on those that stand for them under another name; one
that is written nowhere, wherever an axis may stand. What the text itself asks for is looked at in any case.

    x[B_{data,fsdp}, T_seq, D] · W[D_fsdp, F_model]        data at home on B, fsdp on B and D, seq on T, model on F
    K[B, S, E] = h[B, S, D] · …  of  h[B, T, D]             seq on S as well

A layer of LLaMA on four axes has arrays of five dims, which may lie in 4,256 ways; with at most one stray in 300.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import comb
from typing import TypeAlias, assert_never

from shardc.ir.expressions import Call, Pattern, Product, operands, uses
from shardc.ir.program import For, Program, every_statement
from shardc.ir.sharding import Axes, Dims, Sharding
from shardc.rules.placements import ANYWHERE, Anywhere, Homes, Space, count_placements

MOST_OPERATIONS = 400
IN_TURN = "the shardings of all statements together are too many to go through: each is planned after the one before"
MOST_SHARDINGS = 800  # of an array, between all of which there are prices: closing such a table takes a second
MOST_PRICES = 30_000_000  # in the tables of all operations, of which there are two: 480 MB

_Asked: TypeAlias = tuple[Dims, Pattern]


@dataclass(frozen=True, slots=True)
class Within:
    """The shardings of an array: a space, and what the text asks for beyond it."""

    space: Space = ANYWHERE
    more: tuple[Sharding, ...] = ()


@dataclass(frozen=True, slots=True)
class Strays:
    """How many axes of an array may stand on dims where they are not at home; where some axis is, or on any."""

    most: int
    anywhere: bool

    @property
    def words(self) -> str:
        if not self.most:
            return "none elsewhere"
        return f"at most {self.most} of an array elsewhere" + ("" if self.anywhere else ", where others are written")


STRAYS = (Strays(2, True), Strays(1, True), Strays(2, False), Strays(1, False), Strays(0, False))  # the most that fit


@dataclass(frozen=True)
class Spaces:
    """Of each array and operation, by its dims."""

    homes: Mapping[str, Axes]  # of each dim, under the first of its names
    nowhere: Axes  # written on no dim
    first: Mapping[str, str]  # of the names of a dim
    asked: Mapping[Dims, tuple[Sharding, ...]]  # by the first names
    strays: Strays | None  # None: any sharding

    @property
    def are_part(self) -> bool:
        """Whether some shardings are not looked at."""
        return self.strays is not None

    def of(self, dims: Dims) -> Space:
        if self.strays is None:
            return ANYWHERE
        homes = [self.homes[self.first[dim]] for dim in dims]
        is_open = [bool(at_home) or self.strays.anywhere for at_home in homes]
        lie = [at_home + self.nowhere if is_open else () for at_home, is_open in zip(homes, is_open, strict=True)]
        return Homes(tuple(lie), tuple(is_open), self.strays.most)

    def within(self, dims: Dims) -> Within:
        if self.strays is None:
            return Within()
        return Within(self.of(dims), self.asked.get(tuple(self.first[dim] for dim in dims), ()))

    @property
    def notes(self) -> tuple[str, ...]:
        if self.strays is None:
            return ()
        return (f"searched over shardings with axes on dims that are written with them, {self.strays.words}",)


def spaces_of(program: Program, pool: Axes) -> Spaces | None:
    """The largest spaces of which tables are not too large; None where all are."""
    every, first = list(_operations(program)), _first_names(program)
    if len(every) > MOST_OPERATIONS:
        return None
    arrays = [*(array.dims for array in program.inputs), *chain(*every)]
    asked = list(_asked(program))
    homes, exactly = _homes(asked, first), _exactly(asked, first, pool)
    nowhere = tuple(axis for axis in pool if axis not in program.axes_written)
    for strays in (None, *STRAYS):
        found = Spaces(homes, nowhere, first, exactly, strays)
        counts = {dims: _count(found.of(dims), len(dims), pool) for dims in dict.fromkeys(arrays)}
        largest, prices = max(counts.values(), default=0), sum(counts[dims] ** 2 for dims in arrays)
        if largest <= MOST_SHARDINGS and prices <= MOST_PRICES:
            return found
    return None


def _count(space: Space, rank: int, pool: Axes) -> int:
    """The shardings of an array."""
    match space:
        case Anywhere():
            return _count_anywhere(len(pool), rank)
        case Homes():
            return _count_with_homes(space, pool)
        case _:
            assert_never(space)


def _count_with_homes(homes: Homes, pool: Axes) -> int:
    """Each axis is on none of the dims, summed over, at home somewhere, or a stray."""
    found = [1]  # of no stray, of one, …
    for axis in pool:
        at_home = sum(axis in axes for axes in homes.dims)
        astray = sum(axis not in axes and is_open for axes, is_open in zip(homes.dims, homes.is_open, strict=True))
        more = zip([*found, 0], [0, *found], strict=True)
        found = [(2 + at_home) * as_many + astray * one_less for as_many, one_less in more]
    return sum(found[: homes.strays + 1])


@cache
def _count_anywhere(axes: int, rank: int) -> int:
    """Of an array: with partial sums over none of the axes, over one, …

    For rank 2: 18 on two axes, 92 on three, 536 on four.
    """
    return sum(comb(axes, summed) * count_placements(axes - summed, rank) for summed in range(axes + 1))


def _operations(program: Program) -> Iterator[tuple[Dims, ...]]:
    """The dims of what each product and function takes and leaves."""
    waiting = [statement.expr for statement in every_statement(program)]
    while waiting:
        expr = waiting.pop()
        below = operands(expr)
        waiting += below
        if isinstance(expr, Product | Call):
            yield (*(operand.dims for operand in below), expr.dims)


def _first_names(program: Program) -> dict[str, str]:
    """Of each dim's names the first: `h[B, S, D]` of `h[B, T, D]` makes S another name of T."""
    first = {dim: dim for dim, _ in program.sizes}
    _join(program, first)
    return first


def _join(program: Program, first: dict[str, str]) -> None:
    dims = {array.name: array.dims for array in program.inputs}
    for each in program.statements:
        if isinstance(each, For):
            _join(program.inside(each), first)
            continue
        for use in uses(each.expr):
            for own, other in zip(dims.get(use.name, use.dims), use.dims, strict=False):
                if (old := first[other]) != (new := first[own]):
                    first |= {name: new for name, known in first.items() if known == old}
        dims[each.name] = each.dims


def _asked(program: Program) -> Iterator[_Asked]:
    """What the text writes in brackets."""
    yield from ((array.dims, array.pattern) for array in program.inputs)
    for each in every_statement(program):
        yield each.dims, each.pattern
        yield from ((use.dims, use.pattern) for use in uses(each.expr) if use.pattern is not None)


def _homes(asked: list[_Asked], first: Mapping[str, str]) -> dict[str, Axes]:
    """Of each dim the axes that are written on it, in the order in which they are met."""
    found: dict[str, dict[str, None]] = {name: {} for name in first.values()}
    for dims, pattern in asked:
        for dim, axes in zip(dims, pattern.dims, strict=True):
            found[first[dim]] |= dict.fromkeys(axes or ())
    return {dim: tuple(axes) for dim, axes in found.items()}


def _exactly(asked: list[_Asked], first: Mapping[str, str], pool: Axes) -> dict[Dims, tuple[Sharding, ...]]:
    """What the text asks for: spaces have the axes of a dim in one order."""
    found: dict[Dims, dict[Sharding, None]] = {}
    for dims, pattern in asked:
        if any(pattern.dims) or pattern.exact is not None:
            found.setdefault(tuple(first[dim] for dim in dims), {}).update(dict.fromkeys(_completed(pattern, pool)))
    return {dims: tuple(every) for dims, every in found.items()}


def _completed(pattern: Pattern, pool: Axes) -> Iterator[Sharding]:
    """What a pattern asks for, with nothing where it leaves a dim open, or with one axis on one of these."""
    whole = Sharding(tuple(axes or () for axes in pattern.dims), pattern.unreduced)
    yield whole
    for place in (place for place, axes in enumerate(pattern.dims) if axes is None):
        yield from (whole.with_dim(place, (axis,)) for axis in pool if axis not in whole.used)
