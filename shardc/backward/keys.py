"""A program with every array under a key of its own, since a name may be bound to several.

    for L {                   x      as the program is given it
        h = x · W[L, D, F]    x.1    at the beginning of a trip; W.1 is W at the index
        x = x + h · V[F, D]   x.2    at its end; h.1
    }                         x.3    after the loop

Two loops may each bind an `h`, and what a loop carries is another array after each trip. What a loop only reads is the
array outside, or the part of it at the index: `of` says which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shardc.ir.dtypes import DType, Kind
from shardc.ir.expressions import Expr, Pattern, Product, Use, renamed, uses
from shardc.ir.program import For, Input, Program, Statement, bindings_of, same_array
from shardc.ir.sharding import Dims


@dataclass(frozen=True, slots=True)
class Held:
    """An array: its name in the text, its dims where it is bound, and the dims of the loops around, outside first."""

    name: str
    dims: Dims
    loops: Dims
    pattern: Pattern
    dtype: DType
    of: str | None = None  # the array outside the loop that it is, or is a row of


@dataclass(frozen=True, slots=True)
class Carried:
    """The keys of what a loop carries, from before it to after it."""

    before: str
    first: str
    last: str
    after: str


@dataclass(frozen=True, slots=True)
class Taken:
    """The keys of an array around a loop and in it."""

    outside: str
    inside: str


@dataclass(frozen=True, slots=True)
class Looped:
    """A loop, with keys for names. `stacked` are rows that it leaves, others are what it takes."""

    loop: For
    body: tuple[Keyed, ...]
    fixed: tuple[Taken, ...]
    carried: tuple[Carried, ...]
    scanned: tuple[Taken, ...]
    stacked: tuple[Taken, ...]


Keyed: TypeAlias = Statement | Looped


@dataclass(slots=True)
class Keys:
    """Every array of a program by its key, and the statements with keys for names; `last` has each name's last key."""

    program: Program
    held: dict[str, Held] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)  # what loops carry, as a trip finds it
    body: tuple[Keyed, ...] = ()

    @classmethod
    def of(cls, program: Program) -> Keys:
        found = cls(program)
        found.last = {array.name: found._new(array, ()) for array in program.inputs}
        found.body = tuple(found._each(program.statements, found.last, ()))
        return found

    def chain(self, key: str) -> Iterator[str]:
        """The array, the one outside that it is a part of, and so on."""
        here: str | None = key
        while here is not None:
            yield here
            here = self.held[here].of

    def root(self, key: str) -> str:
        """The array of which this is a part: one outside the loops that only take it."""
        *_, root = self.chain(key)
        return root

    def whole(self, key: str) -> tuple[Dims, Pattern]:
        """Its dims with those of the loops around, and how it lies."""
        array = self.held[key]
        around = tuple(() for _ in array.loops)
        return (*array.loops, *array.dims), Pattern((*around, *array.pattern.dims), array.pattern.unreduced)

    def _new(self, array: Input | Statement, loops: Dims, of: str | None = None) -> str:
        return self._add(Held(array.name, array.dims, loops, array.pattern, array.dtype, of))

    def _add(self, array: Held) -> str:
        key, number = array.name, 0
        while key in self.held:
            number += 1
            key = f"{array.name}.{number}"
        self.held[key] = array
        return key

    def _lies_as(self, key: str, pattern: Pattern) -> None:
        """Of what the text leaves open: in a trip as after it, and after a loop as before it."""
        if self.held[key].pattern.exact is None:
            self.held[key] = replace(self.held[key], pattern=pattern)

    def _each(self, statements: Sequence[Statement | For], here: dict[str, str], loops: Dims) -> Iterator[Keyed]:
        for each in statements:
            if isinstance(each, For):
                yield self._looped(each, here, loops)
                continue
            expr = renamed(each.expr, here)
            if not (same_array(each) and each.name in here):
                here[each.name] = self._new(each, loops)
            yield replace(each, name=here[each.name], expr=expr)

    def _looped(self, loop: For, here: dict[str, str], loops: Dims) -> Looped:
        """The keys of the body, and in `here` those of what the loop leaves."""
        inside = (*loops, loop.dim)
        before = dict(here)
        first = {
            array.name: self._new(array, inside, None if array.name in loop.carried else here[array.name])
            for array in loop.takes
        }
        self.begun |= {first[name] for name in loop.carried}
        now = dict(first)
        body = tuple(self._each(loop.body, now, inside))
        for bound in bindings_of(loop):
            here[bound.name] = self._add(Held(bound.name, bound.dims, loops, bound.pattern, bound.dtype))
        for name in loop.carried:
            self._lies_as(first[name], self.held[here[name]].pattern)
            self._lies_as(here[name], self.held[before[name]].pattern)
        stacked = tuple(Taken(here[array.name], now[array.name]) for array in loop.stacked)
        for rows in stacked:
            self.held[rows.inside] = replace(self.held[rows.inside], of=rows.outside)
        return Looped(
            loop,
            body,
            tuple(Taken(before[name], first[name]) for name in loop.fixed),
            tuple(Carried(before[name], first[name], now[name], here[name]) for name in loop.carried),
            tuple(Taken(before[array.name], first[array.name]) for array in loop.scanned),
            stacked,
        )


def again(statement: Statement) -> bool:
    """Whether a statement with keys for names binds the same array, in another sharding."""
    return any(one.name == statement.name for one in uses(statement.expr))


def contracted(expr: Expr) -> tuple[Use, ...]:
    """The named arrays that an expression contracts with something, by itself."""
    pair = expr.operands if isinstance(expr, Product) and len(expr.operands) == 2 else ()
    gone = set(pair[0].dims) & set(pair[1].dims) - set(expr.dims) if pair else set[str]()
    return tuple(one for one in pair if isinstance(one, Use)) if gone else ()


def is_active(expr: Expr, active: Collection[str]) -> bool:
    """Whether an expression has a gradient that leads to one of these."""
    return expr.dtype.kind is Kind.FLOAT and any(one.name in active for one in uses(expr))


def depending(keys: Keys, wanted: Iterable[str]) -> frozenset[str]:
    """Everything that depends on what is wanted."""
    found, before = set(wanted), -1
    while len(found) > before:  # what a loop carries depends on what it carried a trip before
        before = len(found)
        for each in keys.body:
            _depend(each, found)
    return frozenset(found)


def _depend(each: Keyed, found: set[str]) -> None:
    if isinstance(each, Statement):
        found |= {each.name} if is_active(each.expr, found) else set()
        return
    into = [(taken.outside, taken.inside) for taken in (*each.fixed, *each.scanned)]
    around = [(carried.before, carried.first) for carried in each.carried]
    found |= {inside for outside, inside in into + around if outside in found}
    for one in each.body:
        _depend(one, found)
    out = [(rows.inside, rows.outside) for rows in each.stacked]
    out += [(carried.last, after) for carried in each.carried for after in (carried.first, carried.after)]
    found |= {outside for inside, outside in out if inside in found}
