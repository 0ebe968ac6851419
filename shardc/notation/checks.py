"""What the shardings written in a statement must obey before anyone plans it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import assert_never

from shardc.errors import ShardcError
from shardc.ir.calls import linear_operands
from shardc.ir.collectives import (
    COLLECTIVE_NAMES,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    JointGather,
    JointScatter,
    Move,
    ReduceScatter,
    Slice,
    apply,
)
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, operands
from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove, Kind
from shardc.ir.program import Statement
from shardc.ir.sharding import Axes, Sharding, spell, spell_axes


def check_statement(statement: Statement, mesh: Mesh) -> None:
    _check_below(statement.expr, mesh)
    expr = statement.expr
    if isinstance(expr, Product) and expr.local:
        _check_local_result(statement, expr)
    if isinstance(expr, Named):
        _check_named_result(statement, expr, mesh)


def _check_below(top: Expr, mesh: Mesh) -> None:
    """Every node; iterative, since a product of a thousand terms is a tree a thousand deep."""
    waiting: list[Expr] = [top]
    partial: dict[int, frozenset[str] | None] = {}
    order: list[Expr] = []
    while waiting:
        expr = waiting.pop()
        order.append(expr)
        waiting += operands(expr)
    for expr in reversed(order):
        partial[id(expr)] = _unreduced(expr, [partial[id(below)] for below in operands(expr)])
        if isinstance(expr, Product) and expr.local:
            local_result(expr)
        if isinstance(expr, Named) and expr is not top:
            _check_named_alone(expr, mesh)


def _unreduced(expr: Expr, below: list[frozenset[str] | None]) -> frozenset[str] | None:
    """The axes over which a value is unreduced, as far as the text says it; None where it does not."""
    match expr:
        case Use(pattern=pattern):
            return None if pattern is None else pattern.unreduced
        case Product():
            both = (below[0] or frozenset()) & (below[1] or frozenset()) if len(below) == 2 else frozenset()
            if both:
                raise _both_unreduced(sorted(both), expr)
            return None
        case Call():
            return _through(expr, below)
        case Named():
            return None


def _through(expr: Call, below: list[frozenset[str] | None]) -> frozenset[str] | None:
    """Of a function: what its linear operands are unreduced over, all of them over the same axes; no other is."""
    linear = linear_operands(expr.function, expr.numbers)
    for place, axes in enumerate(below):
        if axes and place not in linear:
            raise _nonlinear(expr, place, sorted(axes))
    said = [below[place] for place in sorted(linear)]
    first = said[0] if said else frozenset()
    for axes in said[1:]:
        if first is not None and axes is not None and axes != first:
            raise _unlike(expr, [first, axes])
    return first


def _both_unreduced(axes: list[str], expr: Product) -> ShardcError:
    return ShardcError(
        "SHC212",
        f"both operands are unreduced over {_axes(axes)}; a product of sums is not a sum of products",
        span=expr.span,
        help=f"reduce one first: `AllReduce_{spell_axes(axes)}(…)`",
    )


def _nonlinear(expr: Call, place: int, axes: list[str]) -> ShardcError:
    name = FUNCTIONS[expr.function].sign or expr.function
    where = f" in operand {place + 1}" if len(expr.operands) > 1 else " beside a number" if expr.numbers else ""
    return ShardcError(
        "SHC212",
        f"`{name}` of a value unreduced over {_axes(axes)}; it is not linear{where}",
        span=expr.span,
        help=f"reduce it first: `AllReduce_{spell_axes(axes)}(…)`",
    )


def _unlike(expr: Call, below: list[frozenset[str] | None]) -> ShardcError:
    left, right = (sorted(axes or ()) for axes in below)
    sign = FUNCTIONS[expr.function].sign or expr.function
    return ShardcError(
        "SHC212",
        f"`{sign}` of values unreduced over {_axes(left)} and over {_axes(right)}",
        span=expr.span,
        help="reduce one of them first, so that both are unreduced over the same axes",
    )


def _axes(axes: list[str]) -> str:
    return ", ".join(f"`{axis}`" for axis in axes) or "nothing"


# --- ·_LOCAL


def local_result(product: Product) -> Sharding | None:
    """What a product without communication leaves; None where an operand's sharding is open."""
    known: list[tuple[tuple[str, ...], Sharding]] = []
    for operand in product.operands:
        exact = operand.pattern.exact if isinstance(operand, Use) and operand.pattern is not None else None
        if exact is None:
            return None
        known.append((operand.dims, exact))
    placed: dict[str, Axes] = {}
    for dims, sharding in known:
        for dim, axes in zip(dims, sharding.dims, strict=True):
            if placed.setdefault(dim, axes) != axes:
                raise _conflict(product, dim, placed[dim], axes)
    summed = [axis for dim, axes in placed.items() if dim not in product.dims for axis in axes]
    carried = [axis for _, sharding in known for axis in sharding.unreduced]
    kept = [axis for dim in product.dims for axis in placed[dim]]
    _once(product, [*kept, *summed, *carried])
    return Sharding(tuple(placed[dim] for dim in product.dims), frozenset([*summed, *carried]))


def _once(product: Product, axes: list[str]) -> None:
    for before, axis in pairwise(sorted(axes)):
        if before == axis:
            raise ShardcError(
                "SHC211",
                f"the local product would use mesh axis `{axis}` twice",
                span=product.span,
                help=f"gather one operand over `{axis}` first, or drop `_LOCAL`",
            )


def _conflict(product: Product, dim: str, one: Axes, other: Axes) -> ShardcError:
    def spelled(axes: Axes) -> str:
        return f"`{dim}_{spell_axes(axes)}`" if axes else f"`{dim}`"

    return ShardcError(
        "SHC211",
        f"a local product needs `{dim}` sharded alike on both operands: {spelled(one)} and {spelled(other)}",
        span=product.span,
        help="reshard one operand first, or drop `_LOCAL`",
    )


def _check_local_result(statement: Statement, product: Product) -> None:
    left = local_result(product)
    if left is None or statement.pattern.matches(left):
        return
    forgotten = left.unreduced - statement.pattern.unreduced
    code = "SHC212" if forgotten else "SHC211"
    result = f"{statement.name}{statement.pattern.spell(statement.dims)}"
    raise ShardcError(
        code,
        f"the local product leaves `{statement.name}{spell(statement.dims, left)}`, not `{result}`",
        span=statement.span,
        help=f"write `{statement.name}{spell(statement.dims, left)}`, or drop `_LOCAL`",
    )


# --- named collectives


def _check_named_result(statement: Statement, named: Named, mesh: Mesh) -> None:
    before = _exact(named.operand)
    if before is None:
        return
    moves = [move for move in _moves(named, before, statement.pattern, mesh) if _fits(named, move)]
    leads = [move for move in moves if _lead(move, before, statement.pattern, mesh)]
    if leads:
        return
    target = f"{statement.name}{statement.pattern.spell(statement.dims)}"
    raise ShardcError(
        "SHC219",
        f"`{spell_named(named)}` does not lead from `{_spell_use(named)}` to `{target}`",
        span=named.span,
        help=_instead(named, before, statement.pattern, mesh),
    )


def _check_named_alone(named: Named, mesh: Mesh) -> None:
    """A collective inside an expression: some result must be possible."""
    before = _exact(named.operand)
    if before is None or _kind(named) is Kind.PERMUTE:
        return
    free = Pattern.free(before.rank)
    for move in _moves(named, before, free, mesh):
        if _fits(named, move) and _legal(move, before, mesh):
            return
    raise ShardcError(
        "SHC219",
        f"`{spell_named(named)}` cannot be done to `{_spell_use(named)}`",
        span=named.span,
        help="name an axis that it is sharded or unreduced over, or drop the collective",
    )


def spell_named(named: Named) -> str:
    """`ReduceScatter_{X,K}`."""
    below = [spell_axes(named.axes)] if named.axes else []
    below += [named.dim] if named.dim else []
    if not below:
        return named.collective
    return f"{named.collective}_{below[0]}" if len(below) == 1 else f"{named.collective}_{{{','.join(below)}}}"


def _exact(operand: Expr) -> Sharding | None:
    return operand.pattern.exact if isinstance(operand, Use) and operand.pattern is not None else None


def _spell_use(named: Named) -> str:
    operand = named.operand
    assert isinstance(operand, Use) and operand.pattern is not None
    return operand.name + operand.pattern.spell(operand.dims)


def _fits(named: Named, move: Move) -> bool:
    """The axes and the dim are those that the user named; the order matters where blocks are laid out by it."""
    if len(move.on) != 1:
        return named.axes is None or set(named.axes) == set(move.axes)
    if named.axes is not None and named.axes != move.axes:
        return False
    return named.dim is None or named.dims[move.on[0]] == named.dim


def _lead(move: Move, before: Sharding, pattern: Pattern, mesh: Mesh) -> bool:
    try:
        return pattern.matches(apply(move, before, mesh))
    except IllegalMove:
        return False


def _legal(move: Move, before: Sharding, mesh: Mesh) -> bool:
    try:
        apply(move, before, mesh)
    except IllegalMove:
        return False
    return True


def _joint_gathers(before: Sharding, pattern: Pattern) -> Iterator[Move]:
    """`AllGather_XY(A[I_X, J_Y]) → A[I, J]`: what comes off all dims at once."""
    parts = tuple(
        (dim, old[len(new) :])
        for dim, (old, new) in enumerate(zip(before.dims, pattern.dims, strict=True))
        if new is not None and old != new and old[: len(new)] == new
    )
    if len(parts) > 1:
        yield JointGather(parts)


def _joint_scatters(before: Sharding, pattern: Pattern) -> Iterator[Move]:
    """`ReduceScatter_XY(A[I, J]{U_XY}) → A[I_X, J_Y]`: what all dims get at once."""
    parts = tuple(
        (dim, new[len(old) :])
        for dim, (old, new) in enumerate(zip(before.dims, pattern.dims, strict=True))
        if new is not None and old != new and new[: len(old)] == old
    )
    if len(parts) > 1:
        yield JointScatter(parts)


def _moves(named: Named, before: Sharding, pattern: Pattern, mesh: Mesh) -> Iterator[Move]:
    """The moves of the named kind that could be meant."""
    added = tuple(_added(named, old, new, mesh) for old, new in zip(before.dims, pattern.dims, strict=True))
    match _kind(named):
        case Kind.GATHER:
            for dim, axes in enumerate(before.dims):
                yield from (AllGather(axes[cut:], dim) for cut in range(len(axes)))
            yield from _joint_gathers(before, pattern)
        case Kind.SCATTER:
            yield from (ReduceScatter(axes, dim) for dim, some in enumerate(added) for axes in some)
            yield from _joint_scatters(before, pattern)
        case Kind.SLICE:
            yield from (Slice(axes, dim) for dim, some in enumerate(added) for axes in some)
        case Kind.SUM:
            wanted = before.unreduced - pattern.unreduced
            chosen = before.unreduced & set(named.axes) if named.axes else wanted
            yield AllReduce(mesh.ordered(chosen))
        case Kind.EXCHANGE:
            for source, axes in enumerate(before.dims):
                for dim in range(before.rank):
                    yield from (AllToAll(axes[cut:], source, dim) for cut in range(len(axes)))
        case Kind.PERMUTE:
            dims = tuple(old if new is None else new for old, new in zip(before.dims, pattern.dims, strict=True))
            changed = {axis for old, new in zip(before.dims, dims, strict=True) if old != new for axis in (*old, *new)}
            yield CollectivePermute(mesh.ordered(changed), dims)
        case Kind.MASK | Kind.LOCAL | Kind.LOOP:
            return  # which no collective's name means
        case kind:
            assert_never(kind)


def _kind(named: Named) -> Kind:
    return COLLECTIVE_NAMES[named.collective].facts.kind


def _added(named: Named, old: Axes, new: Axes | None, mesh: Mesh) -> tuple[Axes, ...]:
    """The axes that a move appends to a dim."""
    if new is not None:
        return (new[len(old) :],) if new[: len(old)] == old and len(new) > len(old) else ()
    if named.axes is not None:
        return (named.axes,)
    return tuple((axis,) for axis in mesh.names)


def _instead(named: Named, before: Sharding, pattern: Pattern, mesh: Mesh) -> str:
    if pattern.matches(before):
        return "it is in that sharding already; drop the collective"
    for kind in COLLECTIVE_NAMES:
        other = Named(kind, None, None, named.operand, named.dims, named.dtype)
        for move in _moves(other, before, pattern, mesh):
            if _lead(move, before, pattern, mesh):
                return f"`{spell_named(Named(kind, move.axes, None, named.operand, named.dims, named.dtype))}` does"
    return "no single collective does; write the reshard without a name: `A[…] → A[…]`"
