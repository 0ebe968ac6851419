"""The gradient of a loop: a loop the other way round.

    for L { x = f(x, b, W[L, …]); S[L, …] = g(x) }

becomes, where dx comes in as the gradient of what is left of x, and goes out as that of what x was before,

    db = 0
    for -L {
        dW[L, …] = …            one row for each trip
        db = db + …             what all trips read: a sum over them
        dx = …                  by x at the beginning of that trip, of which the rows are kept; with a row of dS
    }
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardc.backward.keys import Keyed, Looped, Taken, again, contracted
from shardc.backward.terms import Term, added, sign, use, uses, zero
from shardc.backward.walk import Walk
from shardc.backward.written import Line, Lines, Written, each_line, every_line, in_use, named
from shardc.ir.expressions import Expr, Pattern, parts_of
from shardc.ir.program import Statement
from shardc.ir.sharding import Dims

TermsByKey = Sequence[tuple[str, Term]]  # of arrays by their keys


@dataclass(frozen=True, slots=True)
class _State:
    """A gradient that is carried from trip to trip under its name: of one array before the loop, and in a trip."""

    name: str
    outside: str
    inside: str
    dims: Dims

    @property
    def use(self) -> Term:
        return use(self.name, self.dims)


def through(walk: Walk, each: Keyed) -> None:
    """From the gradient of what a statement or a loop binds to those of what it uses."""
    if isinstance(each, Looped):
        _through_loop(walk, each)
    elif each.name in walk.parts and not again(each) and not walk.by_value(each):
        walk.back(each.expr, walk.total(each.name), use(each.name, each.dims))


def _through_loop(walk: Walk, looped: Looped) -> None:
    rows = [rows for rows in looped.stacked if rows.outside in walk.parts]
    carried = [each for each in looped.carried if each.last in walk.active]
    if not rows and not any(each.after in walk.parts for each in carried):
        return
    given = [(each.inside, _at_index(walk.total(each.outside), looped.loop.dim)) for each in rows]
    states = [_state(walk, each.after, Taken(each.before, each.first)) for each in carried]
    given += [(each.last, state.use) for each, state in zip(carried, states, strict=True)]
    body, left = _trip(walk, looped, given)
    sums = [_state(walk, each.outside, each) for each in looped.fixed if each.inside in walk.parts]
    body += [_again(walk, one, sign(one.use, "+", added(walk.parts.pop(one.inside)))) for one in sums]
    body += _carried_on(walk, states)
    _begin(walk, states, body, [*(one.name for one in sums), *(name for _, row in left for name, _ in uses(row.text))])
    body = _with_made_again(walk, looped, body) if walk.remat else body
    walk.lines.append(Lines(looped.loop.dim, not looped.loop.down, tuple(body)))
    _add(walk, [(state.outside, state.use) for state in states + sums] + left)


def _trip(walk: Walk, looped: Looped, given: TermsByKey) -> tuple[list[Written], list[tuple[str, Term]]]:
    """The statements of one trip backward, and the gradients of what is scanned."""
    around, walk.lines = walk.lines, []
    _add(walk, given)
    for each in reversed(looped.body):
        through(walk, each)
    left = [(taken.outside, _row(walk, taken)) for taken in looped.scanned if taken.inside in walk.parts]
    body, walk.lines = walk.lines, around
    return body, left


def _row(walk: Walk, taken: Taken) -> Term:
    """What a trip adds to the gradient of an array with the loop's dim: the row at its index."""
    array = walk.keys.held[taken.outside]
    alone = taken.outside not in walk.parts and walk.of_name.get(taken.outside) not in (None, *walk.sums)
    name = walk.of_name[taken.outside] if alone else walk.fresh(f"d{array.name}")
    walk.sums[name] = taken.outside
    walk.rows.add(name)
    inside = walk.keys.held[taken.inside].dims
    term = added(walk.parts.pop(taken.inside))
    pattern = _over_trips(walk.pattern(taken.outside), [dim in inside for dim in array.dims])
    walk.lines.append(walk.line(name, inside, pattern, term, array.dtype, rows=array.dims))
    return use(name, array.dims)


def _over_trips(pattern: Pattern, is_inside: Sequence[bool]) -> Pattern:
    """Of rows, where the array is sharded along the loop's dim, `T[L_X, D]`: each device makes every trip."""
    dims = zip(pattern.dims, is_inside, strict=True)
    return Pattern(tuple(axes if inside or not axes else () for axes, inside in dims), pattern.unreduced)


def _state(walk: Walk, key: str, taken: Taken) -> _State:
    """The gradient of a key as a loop finds it, under a name that may be bound again."""
    dims, parts = walk.keys.held[taken.inside].dims, walk.parts.pop(key, [])
    own = [name for name, of in (*walk.sums.items(), *((name, of) for of, name in walk.given.items())) if of == key]
    found = [name for name in own if [part.text for part in parts] == [use(name, dims).text]]
    name = found[0] if found else walk.fresh(f"d{walk.keys.held[key].name}")
    if not found:
        term = added(parts) if parts else zero(dims)
        walk.bind(name, dims, Pattern.free(len(dims)), term, walk.keys.held[key].dtype)
    walk.sums[name] = taken.outside
    return _State(name, taken.outside, taken.inside, dims)


def _carried_on(walk: Walk, states: Sequence[_State]) -> list[Written]:
    """What the next trip finds. What is made of another's gradient is made before that is bound again."""
    found, last = list[Written](), list[Written]()
    for state in states:
        parts = walk.parts.pop(state.inside, [])
        term = added(parts) if parts else zero(state.dims)
        others = {other.name for other in states if other is not state}
        if others.intersection(name for name, _ in uses(term.text)):
            early = walk.fresh(state.name)
            found.append(walk.line(early, state.dims, Pattern.free(len(state.dims)), term))
            term = use(early, state.dims)
        last += [_again(walk, state, term)] if term.text != state.use.text else []
    return found + last


def _begin(walk: Walk, states: Sequence[_State], body: Sequence[Written], others: Sequence[str]) -> None:
    """A loop that carries on what it does not read, as of `x = sign(x)`, would bind what comes in and is not there.
    What it does not bind, as of `x = x + c`, comes in and goes out."""
    read = set(named(in_use(body, [*others, *(state.name for state in states)])))
    bound = {line.name for line in every_line(body)}
    for state in states:
        if state.name in walk.given.values() and state.name in bound - read and state.dims:
            dtype = walk.keys.held[state.inside].dtype
            walk.bind(state.name, state.dims, Pattern.free(len(state.dims)), zero(state.dims), dtype)


def _again(walk: Walk, state: _State, term: Term) -> Line:
    dtype = walk.keys.held[state.inside].dtype
    return walk.line(state.name, state.dims, Pattern.free(len(state.dims)), term, dtype, again=True)


def _with_made_again(walk: Walk, looped: Looped, body: Sequence[Written]) -> list[Written]:
    """The trip with what its gradients name made in it, under names of their own."""
    made: list[Written] = []
    names: dict[str, str] = {}
    needed = set(named(body))
    for each in reversed(looped.body):
        if isinstance(each, Statement) and _is_made(walk, each) and _reach(walk, needed, each.name):
            array = walk.keys.held[each.name]
            names[each.name] = walk.fresh(array.name)
            made.append(walk.line(names[each.name], array.dims, each.pattern, walk.term(each.expr), each.dtype))
            needed |= set(named(made[-1:]))

    def called(mark: str) -> str:
        chain = walk.keys.chain(mark) if mark in walk.keys.held else ()
        return next((names[key] for key in chain if key in names), mark)

    return [one for each in (*made[::-1], *body) for one in each_line(each, lambda line: (line.calling(called),))]


def _is_made(walk: Walk, statement: Statement) -> bool:
    """Whether a statement is done again: with `selective` what costs little beside the products with weights."""
    if again(statement):
        return False
    return walk.remat is True or not any(_is_weighed(walk, each) for each in parts_of(statement.expr))


def _is_weighed(walk: Walk, expr: Expr) -> bool:
    """Whether it contracts an array that all trips read, or read a row of."""
    return any(walk.keys.held[one.name].of is not None for one in contracted(expr))


def _reach(walk: Walk, needed: Iterable[str], key: str) -> bool:
    """Whether one of these is the array, or a part of it."""
    return any(key in walk.keys.chain(name) for name in needed if name in walk.keys.held)


def _at_index(rows: Term, dim: str) -> Term:
    ((name, dims),) = uses(rows.text)
    return use(name, tuple(one for one in dims if one != dim))


def _add(walk: Walk, parts: TermsByKey) -> None:
    for key, term in parts:
        walk.parts.setdefault(key, []).append(term)
