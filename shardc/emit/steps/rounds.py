"""The JAX calls of an exchange in pieces of unequal sizes, by tables: see `ir.uneven`.

    A → [cells, I, J]                a block cut into cells, which come first
    each round: take cells, send     which ones, and from which device to which, stand in tables
    [own and received] → A           of each device the numbers of its new block's cells

Tables are numbers in a string, so that a line of them stays a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardc.emit.allowed import JOINED, PAIRS, PIECE, PLACE, TABLE, TURN
from shardc.emit.exprs import (
    BinOp,
    Call,
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
)
from shardc.emit.steps.exchanges import Factors, from_front, to_front
from shardc.ir.collectives import UnevenExchange
from shardc.ir.exchange import tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.ir.uneven import Timetable, cells, timetable

_JOINED, _PAIRS, _PIECE, _PLACE, _TABLE, _TURN = map(Name, (JOINED, PAIRS, PIECE, PLACE, TABLE, TURN))


def uneven_exchange(target: Name, move: UnevenExchange, before: Sharding, mesh: Mesh) -> list[Expr | Code]:
    """`A[I_X] → A[I_Y]` on X=2, Y=3: the block cut into cells, as `target`, and what makes the new block of them."""
    grid, found = cells(tails(before.dims, move.dims, mesh)), timetable(before.dims, move.dims, mesh)
    assert found is not None, "an exchange that is legal has rounds"
    taken = call(
        "jnp.take", call("jnp.concatenate", _JOINED), _own_row(_TABLE, found), axis=Const(0), mode=Const("clip")
    )
    return [
        *_to_front(grid.held),
        Line(PLACE, call("jax.lax.axis_index", axes_argument(move.axes)), ""),
        Line(TABLE, _listed(_text(number for row in each.cells for number in row) for each in found.rounds), "sent"),
        Line(
            PAIRS, _listed(_text(number for pair in each.pairs for number in pair) for each in found.rounds), "from, to"
        ),
        Line(JOINED, Items((target,), "[]"), ""),
        Loop(len(found.rounds), _round(target, move, found)),
        Line(TABLE, Const(_text(number for row in found.laid for number in row)), "laid"),
        taken,
        *_from_front(grid.wanted),
    ]


def _round(target: Name, move: UnevenExchange, found: Timetable) -> tuple[Line, ...]:
    pairs = method(method(_numbers(Index(_PAIRS, _TURN)), "reshape", Const(-1), Const(2)), "tolist")
    chosen = _own_row(Index(_TABLE, _TURN), found)
    return (
        Line(PIECE, call("jnp.take", target, chosen, axis=Const(0), mode=Const("clip")), ""),
        Line(PIECE, call("jax.lax.ppermute", _PIECE, axes_argument(move.axes), perm=pairs), ""),
        Line(JOINED, BinOp(_JOINED, "+", Items((_PIECE,), "[]")), ""),
    )


def _own_row(text: Expr, found: Timetable) -> Call:
    """The device's own row of a table of all devices."""
    rows = method(_numbers(text), "reshape", Const(len(found.laid)), Const(-1))
    return call("jnp.take", rows, _PLACE, axis=Const(0))


def _numbers(text: Expr) -> Call:
    return call("np.array", method(text, "split"), Name("int"))


def _text(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _listed(texts: Iterable[str]) -> Items:
    return Items(tuple(map(Const, texts)), "[]")


def _to_front(counts: Sequence[int]) -> list[Expr]:
    parts, order = _parts(counts)
    return to_front(parts, order) if order else [call("jnp.expand_dims", Name(""), axis=Const(0))]


def _from_front(counts: Sequence[int]) -> list[Expr]:
    parts, order = _parts(counts)
    return from_front(parts, order) if order else [call("jnp.squeeze", Name(""), axis=Const(0))]


def _parts(counts: Sequence[int]) -> tuple[list[Factors], list[str]]:
    """The cells of each dim as the parts that it is cut into, and their order."""
    parts: list[Factors] = [((str(dim), count),) if count > 1 else () for dim, count in enumerate(counts)]
    return parts, [label for some in parts for label, _ in some]
