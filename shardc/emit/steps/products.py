"""A product of whole arrays, whose collectives are XLA's choice."""

from __future__ import annotations

from shardc.emit.exprs import Expr, call
from shardc.emit.steps import local
from shardc.ir.dtypes import Kind
from shardc.ir.sharding import Array


def product(operands: tuple[Array, ...], names: tuple[Expr, ...], result: Array) -> Expr:
    """`jnp.einsum` of whole arrays, rounded to the result's type.

    Floats are left in their type: each device sums in f32 whatever the type, and rounds before it communicates, as it
    does elsewhere. Asked for f32, XLA would send f32, twice the bytes.
    """
    described = local.einsum(operands, names, result)
    if all(array.dtype == result.dtype and array.dtype.kind is Kind.FLOAT for array in operands):
        return call("jnp.einsum", described.args[0], *names)
    return local.as_type(described, result.dtype)
