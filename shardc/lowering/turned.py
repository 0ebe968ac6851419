"""Products whose result has its dims in an order that no product leaves.

    Q[B, H, T, E] = x[B, T, D] · W[D, H, E]

    Q = jnp.einsum("btd,dhe->bhte", x, W)      dot_general(W, x) leaves [H, E, B, T], and all of it is turned
    Q = jnp.einsum("dhe,btd->bhte", W, x)      dot_general(x, W) leaves [B, T, H, E], of which rows of E are moved

The TPU's compiler writes rows of E where they belong, and copies an output whose elements are to change places
(`lowering.timed.reads_last_dim_second`). So the operand that has the last dim is what `dot_general` reads second, which
is the first of `jnp.einsum`.

Even so an output is copied whose tiles are no product's:

    Q[B, T, H, E] = x[B, T, D] · W[D, H, E]    in memory tiles of H by E; a product leaves tiles of T by E
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum, Step, operands_of
from shardc.ir.sharding import Array, Dims
from shardc.lowering.copies import long_dims
from shardc.lowering.tiles import LANES


def is_turned(step: Step, values: Sequence[Array], mesh: Mesh) -> bool:
    """Whether a product is better given its second operand first."""
    if not isinstance(step.op, Einsum) or len(step.operands) != 2:
        return False
    (first, second), result = operands_of(step, values), values[step.result].dims
    if result in (_natural(first.dims, second.dims, result), _natural(second.dims, first.dims, result)):
        return False
    last = long_dims(values[step.result], mesh)[-1:]
    return bool(last) and last[0] not in first.dims


def lies_in_other_tiles(step: Step, block: Sequence[Step], values: Sequence[Array], mesh: Mesh) -> bool:
    """Whether what a step leaves is copied to become an output, as products leave other tiles than its: of the last dim
    that each operand has for itself."""
    if step.op.facts.kind is not Kind.LOCAL:
        return False
    result = values[step.result]
    if len(result.dims) < 3 or result.local_shape(mesh)[-1] < LANES:
        return False
    product = _product_of(step, block)
    if product is None:
        return False
    (first, second), sums = operands_of(product, values), values[product.result].dims
    own = [_last_own(first, second, mesh), _last_own(second, first, mesh)]
    adds_up = any(dim not in sums for dim in long_dims(first, mesh))
    return adds_up and None not in own and {*own} != {*long_dims(result, mesh)[-2:]}


def _product_of(step: Step, block: Sequence[Step]) -> Step | None:
    """The product of whose tiles a step makes each element, or which it is."""
    while not (isinstance(step.op, Einsum) and len(step.operands) == 2):
        if not isinstance(step.op, Apply) or step.op.over:
            return None
        made = [each for each in block if each.op.facts.kind is Kind.LOCAL and each.results[0] in step.operands]
        once = [each for each in made if sum(each.result in reader.operands for reader in block) == 1]
        products = [product for each in once if (product := _product_of(each, block)) is not None]
        if not products:
            return None
        (step, *_) = products
    return step


def _natural(first: Dims, second: Dims, result: Dims) -> Dims:
    """The order in which dot_general leaves a result."""
    batch = (dim for dim in result if dim in first and dim in second)
    return (*batch, *(dim for dim in first + second if (dim in first) != (dim in second)))


def _last_own(array: Array, other: Array, mesh: Mesh) -> str | None:
    """The last dim that an operand has and the other has not."""
    own = [dim for dim in long_dims(array, mesh) if dim not in other.dims]
    return own[-1] if own else None
