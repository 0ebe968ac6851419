"""`for L { … }` → a loop of the program: what is fixed, carried, scanned and stacked.

for L {
    x = relu(x · W[L, D, F] …)     W has L outside: taken at the index (scanned). x is bound before: carried
    H[L, B, D] = x                 bound inside, with L: the rows of all trips (stacked)
    y = x ⊙ b                      bound inside alone: of one trip. b is only read: fixed
}
for -L { … }                       the same from the last index to the first
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from shardc.errors import ShardcError, Span
from shardc.ir.expressions import Pattern
from shardc.ir.program import For, Input, Scanned, Statement, bindings_of, nested, read_by
from shardc.ir.sharding import spell_dim
from shardc.notation import tree
from shardc.notation.printer import print_loop
from shardc.notation.scope import Known, Scope
from shardc.notation.unknown import listed

Body = Callable[[Sequence[tree.Item], Scope, Sequence[tree.Item]], tuple[Statement | For, ...]]


def resolve_loop(written: tree.For, scope: Scope, later: Sequence[tree.Item], resolved: Body) -> For:
    """A loop, its body resolved; `later` is what follows it, and what follows the loops around it."""
    dim = _dim(written, scope)
    inside = scope.inside(dim)
    body = resolved(written.body, inside, later)
    _stack_what_is_used(inside, later)
    scanned = [name for name, known in inside.outside.items() if dim in known.dims]
    carried = [name for name in inside.outside if name in inside.anew and name not in scanned]
    fixed = [name for name in inside.outside if name not in scanned and name not in carried]
    stacked = tuple(Scanned(name, dims) for name, dims in inside.rows.items())
    _check_used(written, body, inside, carried)
    _hand_on(inside, carried)
    takes = tuple(_take(name, inside) for name in (*fixed, *carried, *scanned))
    text = print_loop(dim, written.down, [each.text for each in body])
    taken = tuple(Scanned(name, inside.outside[name].dims) for name in scanned)
    return For(dim, written.down, body, takes, tuple(carried), taken, stacked, text, written.span)


def check_carried(result: tree.Array, dims: tuple[str, ...], known: Known, dtype: object, span: Span | None) -> None:
    """SHC218 for a name that is not, after a trip, an array like that before it."""
    what = None
    if dims != known.dims:
        what = f"{listed(known.dims)} before the loop, and {listed(dims)} in it"
    elif dtype != known.dtype:
        what = f"{known.dtype} before the loop, and {dtype} in it"
    if what is None:
        return
    raise ShardcError(
        "SHC218",
        f"`{result.name}` is {what}",
        span=span,
        note="a name bound before a loop and again in it is carried from trip to trip, so that it stays alike",
        help="keep its dims and its type, or bind another name",
    )


def bind_anew(name: str, whole: tuple[str, ...] | None, known: Known | None, scope: Scope) -> None:
    """Notes that a loop binds a name to another array: one from outside, or rows to be stacked."""
    outside = scope.outside.get(name)
    if outside is not None:
        scope.anew.add(name)
    if outside is not None and scope.loop in outside.dims:
        scope.rows[name] = outside.dims
    elif whole is not None and scope.loop in whole:
        around = scope.parent.loops if scope.parent is not None else ()
        scope.rows[name] = tuple(dim for dim in whole if dim not in around)


def stacked(result: tree.Array, whole: tuple[str, ...], known: Known, scope: Scope) -> Known:
    """What a loop has under a name already, bound again as rows: of what it binds for itself."""
    outside = scope.outside.get(result.name)
    if outside is None:
        bind_anew(result.name, whole, known, scope)
        return replace(known, whole=whole)
    if scope.loop in outside.dims:
        return known
    raise ShardcError(
        "SHC218",
        f"`{result.name}` is carried from trip to trip, and is stacked under the same name",
        span=result.span,
        note="after the loop it is what the last trip leaves",
        help=f"give the rows a name of their own, say `{result.name}_rows{listed(whole)} = {result.name}`",
    )


def _dim(written: tree.For, scope: Scope) -> str:
    """The dim that the loop runs along: one with a size, which no loop around runs along."""
    dim, axes = scope.split(written.dim, written.dim_span)
    if axes:
        raise ShardcError(
            "SHC226",
            f"a loop along `{spell_dim(dim, axes)}`, which is sharded",
            span=written.dim_span,
            note="each device makes every trip",
            help=f"write `for {dim} {{ … }}`",
        )
    if dim in scope.loops:
        raise ShardcError(
            "SHC226",
            f"a loop along `{dim}` inside another",
            span=written.dim_span,
            help="give the inner loop a dim of its own",
        )
    if dim not in scope.sizes:
        raise ShardcError(
            "SHC208",
            f"the loop runs along `{dim}`, whose size is not known",
            span=written.dim_span,
            help=f"give it: `dims {dim}=4`, or --dims {dim}=4",
        )
    return dim


def _take(name: str, inside: Scope) -> Input:
    """What the body reads of outside, as an input of its own."""
    known, span = inside.arrays[name], None
    pattern = Pattern.free(len(known.dims))
    for given in inside.inputs:
        if given.name == name and given.dims == (known.whole or known.dims):
            kept = [axes for dim, axes in zip(given.dims, given.pattern.dims, strict=True) if dim in known.dims]
            pattern, span = Pattern(tuple(kept), given.pattern.unreduced), given.span
    return Input(name, known.dims, pattern, known.dtype, span)


def _stack_what_is_used(inside: Scope, later: Iterable[tree.Item]) -> None:
    """What is bound inside alone and used after the loop with its dim is stacked."""
    for statement in tree.statements(later):
        for array in tree.arrays(statement.expr):
            known = inside.arrays.get(array.name)
            if known is None or array.name in inside.outside or array.name in inside.rows or array.dims is None:
                continue
            dims = inside.read(array)[0] or ()
            around = inside.parent.loops if inside.parent is not None else ()
            if inside.loop in dims:
                inside.rows[array.name] = _named_as(known.dims, [dim for dim in dims if dim not in around], inside.loop)


def _named_as(own: Sequence[str], dims: Sequence[str], loop: str) -> tuple[str, ...]:
    """The dims of what is stacked, where a use has the loop's among them: by the names that the loop has for the rest,
    which the use may name anew."""
    if len(dims) != len(own) + 1:
        return tuple(dims)
    names = iter(own)
    return tuple(dim if dim == loop else next(names) for dim in dims)


def _check_used(written: tree.For, body: tuple[Statement | For, ...], inside: Scope, carried: Sequence[str]) -> None:
    """SHC226 for what is bound inside alone, and used by nothing: not by a loop inside either, trip after trip."""
    left: dict[str, Span | None] = {}
    for each in body:
        for name in read_by(each):
            left.pop(name, None)
        left |= {bound.name: each.span for bound in bindings_of(each) if not _is_read_in(each, bound.name)}
    for name, span in left.items():
        if name in carried or name in inside.rows or name in inside.outside:
            continue
        dims = ", ".join((inside.loop, *inside.arrays[name].dims))
        raise ShardcError(
            "SHC226",
            f"`{name}` is bound in the loop alone, and nothing uses it",
            span=span,
            note="it would be gone after the trip",
            help=f"stack what the trips leave, `{name}[{dims}]`; or bind `{name}` before the loop, to carry it",
        )


def _is_read_in(statement: Statement | For, name: str) -> bool:
    """Whether what a loop carries is read in it for something else than what is carried on under the name."""
    if isinstance(statement, Statement):
        return False
    return any(
        each.name != name and name in read_by(each) for each in nested(statement.body) if isinstance(each, Statement)
    )


def _hand_on(inside: Scope, carried: Sequence[str]) -> None:
    """What the loop leaves to the text around it."""
    around = inside.parent
    assert around is not None
    for name in carried:
        bind_anew(name, None, None, around)
    own = {name: known for name, known in inside.arrays.items() if name not in inside.outside}
    inside.gone.update({name: (inside.loops, known.dims) for name, known in own.items() if name not in inside.rows})
    for name, dims in inside.rows.items():
        known = inside.arrays[name]
        whole = known.whole if name not in inside.outside and known.whole else dims
        around.arrays[name] = replace(known, dims=dims, whole=whole if around.loops else ())
        bind_anew(name, whole, None, around)
