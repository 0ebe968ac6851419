"""An AllReduce to the largest, or the smallest, that has a gradient. JAX has none for `pmax`.

The gradient goes to the devices whose own is the largest of all, in equal parts, as that of jnp.max does:

    largest(own, axes)     = custom_gradient(largest_and(axes))(own)
    largest_and(axes, own) = pmax(own, axes), and to_owners with what it needs
    to_owners(…, gradient) = gradient / psum(own == found) where own == found, else 0

The smallest is the largest of the negated, negated. What a softmax is shifted by needs no gradient, and integers have
none.
"""

from __future__ import annotations

from shardc.emit.allowed import LARGEST, LARGEST_AND, TO_OWNERS
from shardc.emit.exprs import Attr, Call, Const, Expr, Items, Name, axes_argument, call, method
from shardc.ir.sharding import MAX, Axes

_PLAIN = {MAX: "jax.lax.pmax"}


def plain(value: Expr, axes: Axes, reduction: str) -> Expr:
    """Without a gradient."""
    return call(_PLAIN.get(reduction, "jax.lax.pmin"), value, axes_argument(axes))


def with_gradient(value: Expr, axes: Axes, reduction: str) -> Expr:
    if reduction == MAX:
        return call(LARGEST, value, axes_argument(axes))
    return call("jnp.negative", call(LARGEST, call("jnp.negative", value), axes_argument(axes)))


def helpers() -> tuple[tuple[str, tuple[str, ...], Expr], ...]:
    """The functions that this takes: name, parameters, what is returned."""
    axes, own, found, gradient = map(Name, ("axes", "own", "found", "gradient"))
    is_owner = call("jnp.equal", own, found)
    owners = call("jax.lax.psum", method(is_owner, "astype", Attr(gradient, "dtype")), axes)
    share = call("jnp.where", is_owner, call("jnp.divide", gradient, owners), Const(0))
    largest = call("jax.lax.pmax", own, axes)
    back = call("jax.tree_util.Partial", Name(TO_OWNERS), axes, own, largest)
    both = call("jax.tree_util.Partial", Name(LARGEST_AND), axes)
    return (
        (TO_OWNERS, ("axes", "own", "found", "gradient"), share),
        (LARGEST_AND, ("axes", "own"), Items((largest, back))),
        (LARGEST, ("own", "axes"), Call(call("jax.custom_gradient", both), (own,))),
    )
