"""Products whose result has its dims in an order that no product leaves.

    Q[B, H, T, E] = x[B, T, D] · W[D, H, E]

    Q = jnp.einsum("btd,dhe->bhte", x, W)      dot_general(W, x) leaves [H, E, B, T], and all of it is turned
    Q = jnp.einsum("dhe,btd->bhte", W, x)      dot_general(x, W) leaves [B, T, H, E], of which rows of E are moved

The TPU's compiler writes rows of E where they belong, and copies an output whose elements are to change places
(`lowering.timed.reads_last_dim_second`). So the operand that has the last dim is what `dot_general` reads second, which
is the first of `jnp.einsum`.

Even so an output is copied whose tiles are no product's:

    Q[B, T, H, E] = x[B, T, D] · W[D, H, E]    in memory tiles of H by E; a product leaves tiles of T by E

So is what is added up over devices, before it is: dW[D, H, E]{U_X} = x[B_X, T, D] · dQ[B_X, T, H, E]; AllReduce_X.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Einsum, Step, ValueNumber, operands_of
from shardc.ir.sharding import Array, Dims
from shardc.lowering.copies import long_dims
from shardc.lowering.tiles import LANES


def turned(block: Block, mesh: Mesh) -> frozenset[ValueNumber]:
    """The products that lead to outputs, and are better given their second operand first. What lies between has no
    order of its own, and the compiler chooses one for all."""
    ends = (_end(output, block.steps)[1] for output in block.outputs)
    return frozenset(
        product.result for product in ends if product is not None and _is_turned(product, block.values, mesh)
    )


def _is_turned(step: Step, values: Sequence[Array], mesh: Mesh) -> bool:
    (first, second), result = operands_of(step, values), values[step.result].dims
    if result in (_natural(first.dims, second.dims, result), _natural(second.dims, first.dims, result)):
        return False
    last = long_dims(values[step.result], mesh)[-1:]
    return bool(last) and last[0] not in first.dims


def laid_in_tiles(
    steps: Sequence[Step], outputs: Iterable[ValueNumber], values: Sequence[Array], mesh: Mesh
) -> frozenset[ValueNumber]:
    """The values that are copied on their way to these outputs, since products leave other tiles: of the last dim that
    each operand has for itself."""
    ends = (_end(output, steps) for output in outputs)
    found = ((copied, product) for copied, product in ends if product is not None)
    return frozenset(copied for copied, product in found if _are_others(values[copied], product, values, mesh))


def _end(output: ValueNumber, steps: Sequence[Step]) -> tuple[ValueNumber, Step | None]:
    """What is copied of an output, and the product that leaves it, seen through digits and sums over devices: what is
    added up lies in an output's tiles before, what is scattered is copied after."""
    makers = {value: step for step in steps for value in step.results}
    copied, step, is_scattered = output, makers.get(output), False
    while step is not None and (isinstance(step.op, Reshape) or step.op.facts.kind in (Kind.SUM, Kind.SCATTER)):
        (value,) = step.operands
        is_scattered = is_scattered or step.op.facts.kind is Kind.SCATTER
        copied = copied if is_scattered else value
        step = makers.get(value) if sum(value in reader.operands for reader in steps) == 1 else None
    return copied, None if step is None else _product_of(step, steps)


def _are_others(copied: Array, product: Step, values: Sequence[Array], mesh: Mesh) -> bool:
    """Whether the tiles of an array are not those that a product leaves."""
    if len(copied.dims) < 3 or copied.local_shape(mesh)[-1] < LANES:
        return False
    (first, second), sums = operands_of(product, values), values[product.result].dims
    own = [_last_own(first, second, mesh), _last_own(second, first, mesh)]
    adds_up = any(dim not in sums for dim in long_dims(first, mesh))
    return adds_up and None not in own and {*own} != {*long_dims(copied, mesh)[-2:]}


def _product_of(step: Step, steps: Sequence[Step]) -> Step | None:
    """The product of whose tiles a step makes each element, or which it is."""
    while not (isinstance(step.op, Einsum) and len(step.operands) == 2):
        if not isinstance(step.op, Apply) or step.op.over:
            return None
        made = [each for each in steps if each.op.facts.kind is Kind.LOCAL and each.results[0] in step.operands]
        once = [each for each in made if sum(each.result in reader.operands for reader in steps) == 1]
        products = [product for each in once if (product := _product_of(each, steps)) is not None]
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
