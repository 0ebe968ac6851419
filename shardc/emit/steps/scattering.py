"""The JAX calls of a ReduceScatter, as `lowering.scatters` forms it. Each reads the one before, as the variable ""."""

from __future__ import annotations

from typing import assert_never

from shardc.emit.exprs import Call, Const, Expr, Items, Name, axes_argument, call, method, size_of
from shardc.emit.steps.exchanges import by_axis, sent, to_front
from shardc.emit.steps.local import as_type, in_order, type_name
from shardc.emit.steps.moves import groups
from shardc.ir.dtypes import DType, Kind, accumulator
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array
from shardc.lowering.scattered import SHARE
from shardc.lowering.scatters import Along, Round, Scattering
from shardc.lowering.tpu import FOLD

_VALUE = Name("")


def scattered(way: Scattering, array: Array, mesh: Mesh) -> list[Expr]:
    """`A[I]{U_X} → A[I_X]`, or `A[I, J]{U_XY} → A[I_X, J_Y]`. `array` is what is scattered."""
    without = [call("jnp.squeeze", _VALUE, axis=Const(dim)) for dim in reversed(way.left_out)]
    again = [call("jnp.expand_dims", _VALUE, axis=Const(dim)) for dim in way.left_out]
    rank = len(array.dims) - len(way.left_out)
    return [*without, *_along(way.without_ones, rank, array.dtype, mesh), *again]


def _along(way: Scattering, rank: int, dtype: DType, mesh: Mesh) -> list[Expr]:
    dim = way.dims[0][0]
    match way.along:
        case Along.PLAIN:
            return [*_told(way, rank), *(_scattered(each, dim) for each in way.rounds)]
        case Along.APART:
            return _apart(way, mesh)
        case Along.TURNED:
            turned = [_scattered(each, _turned(rank).get(dim, dim)) for each in way.rounds]
            return [_turn(rank), *_told(way, rank), *turned, _turn(rank)]
        case Along.TURNED_APART:
            return [_turn(rank), *_apart(way, mesh), _turn(rank)]
        case Along.FOLDED:
            folded = method(_VALUE, "reshape", Const(SHARE * mesh.product(way.axes)), Const(-1), Const(FOLD))
            return [folded, *(_scattered(each, 0) for each in way.rounds), method(_VALUE, "ravel")]
        case Along.STACKED:
            share = call("jnp.squeeze", _VALUE, axis=Const(0))
            return [*_stacked(way, rank, mesh), *(_scattered(each, 0) for each in way.rounds), share]
        case Along.EXCHANGED:
            return [*_stacked(way, rank, mesh), sent(way.axes), _added_up(dtype)]
        case _:
            assert_never(way.along)


def _told(way: Scattering, rank: int) -> list[Expr]:
    return [in_order(range(rank))] if way.is_told_to_lie else []


def _apart(way: Scattering, mesh: Mesh) -> list[Expr]:
    """Along the first dim of two, two elements of a dim before it to a share."""
    apart = method(_VALUE, "reshape", Const(SHARE * mesh.product(way.axes)), Const(-1), size_of(_VALUE, 1))
    share = method(_VALUE, "reshape", Const(-1), size_of(_VALUE, 2))
    return [apart, *(_scattered(each, 0) for each in way.rounds), share]


def _turned(rank: int) -> dict[int, int]:
    return {rank - 2: rank - 1, rank - 1: rank - 2}


def _turn(rank: int) -> Call:
    """The last two dims in turn."""
    return call("jnp.transpose", _VALUE, Items(tuple(Const(_turned(rank).get(at, at)) for at in range(rank))))


def _stacked(way: Scattering, rank: int, mesh: Mesh) -> list[Expr]:
    """The shares one behind the other: on X=2, Y=4 `A[I, J]` as [8, I/2, J/4], share n for device n of X and Y."""
    if len(way.dims) == 1:
        return [call("jnp.stack", call("jnp.split", _VALUE, Const(mesh.product(way.axes)), axis=Const(way.dims[0][0])))]
    of_dims = dict(way.dims)
    return to_front([by_axis(of_dims.get(dim, ()), mesh) for dim in range(rank)], way.axes)


def _scattered(each: Round, dim: int) -> Call:
    """Always tiled: without, vmap mixes up the dims of what is left."""
    keywords: dict[str, Expr] = {"scatter_dimension": Const(dim), "tiled": Name("True")}
    return call("jax.lax.psum_scatter", _VALUE, axes_argument(each.axes), **keywords, **groups(each))


def _added_up(dtype: DType) -> Expr:
    """Floats in f32; integers wrap in their own type, as they would on the way."""
    summing = accumulator(dtype) if dtype.kind is Kind.FLOAT else dtype
    total = call("jnp.sum", _VALUE, axis=Const(0), dtype=type_name(summing))
    return total if summing == dtype else as_type(total, dtype)
