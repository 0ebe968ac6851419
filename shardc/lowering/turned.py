"""Products whose result has its dims in an order that no product leaves.

    Q[B, H, T, E] = x[B, T, D] · W[D, H, E]

    Q = jnp.einsum("btd,dhe->bhte", x, W)      dot_general(W, x) leaves [H, E, B, T], and all of it is turned
    Q = jnp.einsum("dhe,btd->bhte", W, x)      dot_general(x, W) leaves [B, T, H, E], of which rows of E are moved

The TPU's compiler writes rows of E where they belong, and copies an output whose elements are to change places
(`lowering.timed.reads_last_dim_second`). So the operand that has the last dim is what `dot_general` reads second, which
is the first of `jnp.einsum`.

Even so an output is copied whose tiles are no product's, which are of one dim of each operand: of those that the other
has not the last one in whole lanes, else the longest. Nor does a product leave rows of tiles of dims that are crossed:

    Q[B, T, H, E] = x[B, T, D] · W[D, H, E]    in memory tiles of H by E; a product leaves tiles of T by E
    y[I, K, M] = A[I, K, J] · C[J, M]          of I=1024, K=16: a product leaves tiles of I by M, and K · [I, M]
    y[M, I, K, N] = A[I, K, J] · C[J, M, N]    tiles of K by N, but M by I of these, of which M is C's as N is

So is what is added up over devices, before it is: dW[D, H, E]{U_X} = x[B_X, T, D] · dQ[B_X, T, H, E]; AllReduce_X.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shardc.ir.digits import Reshape
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Einsum, Step, ValueNumber, operands_of
from shardc.ir.sharding import Array, Dims
from shardc.lowering.copies import long_dims
from shardc.lowering.fusion import readers_of
from shardc.lowering.tiles import LANES


def turned(block: Block, mesh: Mesh) -> frozenset[ValueNumber]:
    """The products that lead to outputs, and are better given their second operand first. What lies between has no
    order of its own, and the compiler chooses one for all."""
    ends = (product for _, product in _ends(block.steps, block.outputs))
    return frozenset(product.result for product in ends if _is_turned(product, block.values, mesh))


def _is_turned(step: Step, values: Sequence[Array], mesh: Mesh) -> bool:
    (first, second), result = operands_of(step, values), values[step.result].dims
    if result in (_natural(first.dims, second.dims, result), _natural(second.dims, first.dims, result)):
        return False
    last = long_dims(values[step.result], mesh)[-1:]
    return bool(last) and last[0] not in first.dims


def laid_in_tiles(
    steps: Sequence[Step], outputs: Iterable[ValueNumber], values: Sequence[Array], mesh: Mesh
) -> frozenset[ValueNumber]:
    """The values that are copied on their way to these outputs, since products leave other tiles."""
    found = _ends(steps, outputs)
    return frozenset(copied for copied, product in found if _are_others(values[copied], product, values, mesh))


def leaves_other_tiles(product: Step, values: Sequence[Array], mesh: Mesh) -> bool:
    """Whether a product of two leaves other tiles than those in which its result lies in memory."""
    return _are_others(values[product.result], product, values, mesh)


def _ends(steps: Sequence[Step], outputs: Iterable[ValueNumber]) -> Iterator[tuple[ValueNumber, Step]]:
    """What is copied of each output that a product leaves, and that product, seen through digits and sums over devices:
    what is added up lies in an output's tiles before, what is scattered is copied after."""
    made = {value: step for step in steps for value in step.results}
    readers = readers_of(steps)
    alone = {value: step for value, step in made.items() if len({by.results for by in readers.get(value, ())}) == 1}
    for output in outputs:
        copied, step, is_scattered = output, made.get(output), False
        while step is not None and (isinstance(step.op, Reshape) or step.op.facts.kind in (Kind.SUM, Kind.SCATTER)):
            (value,) = step.operands
            is_scattered = is_scattered or step.op.facts.kind is Kind.SCATTER
            copied, step = copied if is_scattered else value, alone.get(value)
        product = None if step is None else _product_of(step, alone)
        if product is not None:
            yield copied, product


def _are_others(copied: Array, product: Step, values: Sequence[Array], mesh: Mesh) -> bool:
    """Whether the tiles of an array are not those that a product leaves. Of 155 products with results of three and four
    dims, in bf16 on v5e and in f32 on v5p, all but six are copied where this says so; those six have dims of 16 to 192.
    """
    if len(copied.dims) < 3 or copied.local_shape(mesh)[-1] < LANES:
        return False
    (first, second), sums = operands_of(product, values), values[product.result].dims
    own = [_in_tiles(first, second, mesh), _in_tiles(second, first, mesh)]
    adds_up = any(dim not in sums for dim in long_dims(first, mesh))
    if not adds_up or None in own:
        return False
    long = long_dims(copied, mesh)
    return {*own} != {*long[-2:]} or _are_crossed(long, first.dims, second.dims)


def _are_crossed(dims: Sequence[str], first: Dims, second: Dims) -> bool:
    """Whether of four dims, two of each operand alone, the first two are not of the operands as the last two are."""
    alone = [dim in first for dim in dims if (dim in first) != (dim in second)]
    return len(dims) == len(alone) == 4 and sum(alone) == 2 and alone[0] != alone[2]


def _product_of(step: Step, alone: Mapping[ValueNumber, Step]) -> Step | None:
    """The product of whose tiles a step makes each element, or which it is; `alone` is what makes values that one step
    reads."""
    if isinstance(step.op, Einsum) and len(step.operands) == 2:
        return step
    if not isinstance(step.op, Apply) or step.op.over:
        return None
    below = (_product_of(alone[value], alone) for value in dict.fromkeys(step.operands) if value in alone)
    return next((product for product in below if product is not None), None)


def _natural(first: Dims, second: Dims, result: Dims) -> Dims:
    """The order in which dot_general leaves a result."""
    batch = (dim for dim in result if dim in first and dim in second)
    return (*batch, *(dim for dim in first + second if (dim in first) != (dim in second)))


def _in_tiles(array: Array, other: Array, mesh: Mesh) -> str | None:
    """Of the dims that an operand has and the other has not, the one along which a product leaves tiles."""
    sizes = dict(zip(array.dims, array.local_shape(mesh), strict=True))
    own = [dim for dim in reversed(long_dims(array, mesh)) if dim not in other.dims]
    return next((dim for dim in own if sizes[dim] % LANES == 0), max(own, key=sizes.__getitem__, default=None))
