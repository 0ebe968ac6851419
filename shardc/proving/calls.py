"""JAX's functions, by the names that emitted code calls them by, on what all devices hold in symbols.

Said from JAX's documentation, and on purpose by nothing that wrote the code. A shape that does not fit, a keyword that
is not known here, and a sum kept in a narrow type are faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from shardc.ir.calls import meeting, places, result_type, whole
from shardc.ir.dtypes import DTYPES, DType, accumulator, multiplied
from shardc.ir.functions import FUNCTIONS, MADE_OF_NONE, Function
from shardc.proving.devices import Devices, Groups, Held, alone
from shardc.proving.faults import require
from shardc.proving.field import symbol
from shardc.proving.functions import applied, converted, larger, smaller
from shardc.proving.tensors import (
    Shape,
    Tensor,
    broadcast,
    contracted,
    cut,
    joined,
    laid_into,
    parted,
    shaped,
    sum_of,
    total,
    transposed,
    zeros,
)

Call: TypeAlias = Callable[..., Any]
TYPES = {dtype.jax: dtype for dtype in DTYPES.values()}
_INT = DTYPES["int32"]


def calls_on(devices: Devices) -> dict[str, Call]:
    """Every function, on these devices."""
    collectives = {name: partial(call, devices) for name, call in _COLLECTIVES.items()}
    elementwise = {row.jax: partial(_function, devices, row) for row in FUNCTIONS.values() if _is_called(row)}
    types = {f"jnp.{name}": partial(_number, devices, dtype) for name, dtype in TYPES.items()}
    return types | elementwise | _LOCAL | collectives


def _is_called(row: Function) -> bool:
    return "." in row.jax and row.name not in MADE_OF_NONE


def _number(devices: Devices, dtype: DType, value: int) -> Held:
    return Held((Tensor((), (value,)),) * len(devices), dtype)


def axes_of(axes: str | Sequence[str]) -> tuple[str, ...]:
    return (axes,) if isinstance(axes, str) else tuple(axes)


# --- collectives


def _all_gather(
    devices: Devices, x: Held, axes: Any, *, axis: int, tiled: bool, to: str = "varying", axis_index_groups: Any = None
) -> Held:
    require(tiled, "an all_gather that is not tiled")

    def whole_of(blocks: list[Tensor]) -> Sequence[Tensor]:
        return [joined(blocks, axis)] * len(blocks)

    return devices.gathered(x, _groups(devices, axes, axis_index_groups), whole_of)


def _psum_scatter(
    devices: Devices, x: Held, axes: Any, *, scatter_dimension: int, tiled: bool, axis_index_groups: Any = None
) -> Held:
    require(tiled, "a psum_scatter that is not tiled")

    def shares_of(blocks: list[Tensor]) -> Sequence[Tensor]:
        return parted(sum_of(blocks), len(blocks), scatter_dimension)

    return devices.gathered(x, _groups(devices, axes, axis_index_groups), shares_of)


def _psum(devices: Devices, x: Held, axes: Any) -> Held:
    return devices.gathered(x, _groups(devices, axes), lambda blocks: [sum_of(blocks)] * len(blocks))


def _pmax(devices: Devices, x: Held, axes: Any) -> Held:
    return _extreme(larger, devices, x, axes)


def _pmin(devices: Devices, x: Held, axes: Any) -> Held:
    return _extreme(smaller, devices, x, axes)


def _extreme(choose: Callable[[int, int], int], devices: Devices, x: Held, axes: Any) -> Held:
    def chosen(blocks: list[Tensor]) -> Sequence[Tensor]:
        items = blocks[0].items
        for other in blocks[1:]:
            items = tuple(map(choose, items, other.items))
        return [Tensor(blocks[0].shape, items)] * len(blocks)

    return devices.gathered(x, _groups(devices, axes), chosen)


def _all_to_all(devices: Devices, x: Held, axes: Any, *, split_axis: int, concat_axis: int, tiled: bool) -> Held:
    require(tiled, "an all_to_all that is not tiled")

    def exchanged(blocks: list[Tensor]) -> Sequence[Tensor]:
        pieces = [parted(block, len(blocks), split_axis) for block in blocks]
        return [joined([sent[n] for sent in pieces], concat_axis) for n in range(len(blocks))]

    return devices.gathered(x, _groups(devices, axes), exchanged)


def _ppermute(devices: Devices, x: Held, axes: Any, *, perm: Sequence[tuple[int, int]]) -> Held:
    """Who is sent nothing has zeros. Devices are counted in the order of the mesh, in whatever order axes are named."""
    comes_from = {receiver: sender for sender, receiver in perm}
    require(len(comes_from) == len(perm) == len({sender for sender, _ in perm}), "a device sends or receives twice")
    nothing = zeros(x.shape)

    def permuted(blocks: list[Tensor]) -> Sequence[Tensor]:
        senders = (comes_from.get(n) for n in range(len(blocks)))
        return [nothing if sender is None else blocks[sender] for sender in senders]

    return devices.gathered(x, _groups(devices, devices.mesh.ordered(axes_of(axes))), permuted)


def _axis_index(devices: Devices, axes: Any) -> Held:
    known = {n: Tensor((), (n,)) for n in range(devices.mesh.product(axes_of(axes)))}
    return Held(tuple(known[n] for n in devices.index(axes_of(axes))), _INT)


def _same(devices: Devices, x: Any, *others: Any, **keywords: Any) -> Any:
    """What changes JAX's types, or the compiler's mind, and no value."""
    require(set(keywords) <= {"to"}, f"a keyword of {', '.join(keywords)}")
    return x


def _groups(devices: Devices, axes: Any, parts: Any = None) -> Groups:
    names = axes_of(axes)
    require(all(axis in devices.mesh for axis in names), f"no axes {', '.join(names)}")
    return devices.groups(names, parts)


def alike(devices: Devices, block: Tensor, dtype: Any) -> Held:
    """The same block on every device."""
    kind = type_of(dtype)
    assert kind is not None, "what is made of nothing has a type"
    return Held((block,) * len(devices), kind)


def _empty(devices: Devices, shape: Shape, dtype: Any) -> Held:
    """Whatever was there."""
    return alike(devices, Tensor(tuple(shape), tuple(symbol(0xE, n) for n in range(math.prod(shape)))), dtype)


_COLLECTIVES: dict[str, Call] = {
    "jax.lax.all_gather": _all_gather,
    "jax.lax.psum_scatter": _psum_scatter,
    "jax.lax.psum": _psum,
    "jax.lax.pmax": _pmax,
    "jax.lax.pmin": _pmin,
    "jax.lax.all_to_all": _all_to_all,
    "jax.lax.ppermute": _ppermute,
    "jax.lax.axis_index": _axis_index,
    "jax.lax.pcast": _same,
    "jax.lax.stop_gradient": _same,
    "jax.lax.optimization_barrier": _same,
    "with_layout_constraint": _same,
    "jax.lax.empty": _empty,
}


# --- what each device does by itself


def _starts(given: Any, count: int) -> list[tuple[int, ...]]:
    """On each device where to begin."""
    one = [[each] * count if isinstance(each, int) else [b.items[0] for b in each.blocks] for each in given]
    return list(zip(*one, strict=True))


def _dynamic_slice(x: Held, starts: Any, sizes: Shape) -> Held:
    at = [Tensor((len(start),), start) for start in _starts(starts, len(x.blocks))]
    shared = {start.items: start for start in at}
    given = [shared[start.items] for start in at]
    return Held(alone(lambda block, start: cut(block, start.items, tuple(sizes)), (x.blocks, given)), x.dtype)


def _dynamic_slice_in_dim(x: Held, start: Any, size: int, *, axis: int) -> Held:
    starts = [start if dim == axis else 0 for dim in range(len(x.shape))]
    return _dynamic_slice(x, starts, tuple(size if dim == axis else each for dim, each in enumerate(x.shape)))


def _dynamic_update_slice(x: Held, part: Held, starts: Any) -> Held:
    at = _starts(starts, len(x.blocks))
    return Held(tuple(map(laid_into, x.blocks, part.blocks, at)), x.dtype)


def _dynamic_update_slice_in_dim(x: Held, part: Held, start: Any, *, axis: int) -> Held:
    return _dynamic_update_slice(x, part, [start if dim == axis else 0 for dim in range(len(x.shape))])


def _select(which: Held, x: Held, y: Held) -> Held:
    """By a number that each device knows of itself: 1 or 0."""
    require(which.shape == () and x.dtype == y.dtype and x.shape == y.shape, "a select of blocks that differ")
    given = zip(which.blocks, x.blocks, y.blocks, strict=True)
    return Held(tuple(one if first.items[0] else other for first, one, other in given), x.dtype)


def _zeros_like(x: Held) -> Held:
    return x.each(lambda block: zeros(block.shape))


def einsum(
    subscripts: str, *operands: Held, preferred_element_type: Call | None = None, sums_wide: bool = False
) -> Held:
    """On TPUs, and where XLA splits it, each device sums in f32, whatever the type."""
    given, _, wanted = subscripts.partition("->")
    labels = given.split(",")
    require(all(len(x.shape) == len(own) for x, own in zip(operands, labels, strict=True)), "an einsum of other ranks")
    sizes: dict[str, int] = {}
    for x, own in zip(operands, labels, strict=True):
        for size, label in zip(x.shape, own, strict=True):
            require(sizes.setdefault(label, size) == size, f"{label} of {subscripts} has two sizes")
    dtype = type_of(preferred_element_type) or multiplied(x.dtype for x in operands)
    factors = multiplied(x.dtype for x in operands)
    if set(wanted) != set("".join(labels)) and not (factors.moves or sums_wide):
        require(dtype.bytes >= accumulator(factors).bytes, f"{subscripts} of {factors} is summed in {dtype}")
    found = alone(lambda *blocks: contracted(blocks, labels, wanted), [x.blocks for x in operands])
    return Held(found, dtype)


def type_of(given: Any) -> DType | None:
    """The type that `jnp.float32` is."""
    return given if given is None or isinstance(given, DType) else given.args[1]


def _sum(x: Held, *, axis: int, dtype: Any) -> Held:
    return Held(x.each(lambda block: total(block, (axis,))).blocks, type_of(dtype) or x.dtype)


def _broadcast_to(x: Held, shape: Shape) -> Held:
    return x.each(lambda block: broadcast(block, tuple(shape)))


def _stack(parts: Sequence[Held]) -> Held:
    def stacked(*blocks: Tensor) -> Tensor:
        return Tensor((len(blocks), *blocks[0].shape), tuple(item for block in blocks for item in block.items))

    return Held(alone(stacked, [part.blocks for part in parts]), parts[0].dtype)


def _split(x: Held, count: int, *, axis: int) -> list[Held]:
    every = {id(block): parted(block, count, axis) for block in x.blocks}
    return [Held(tuple(every[id(block)][n] for block in x.blocks), x.dtype) for n in range(count)]


def _concatenate(parts: Sequence[Held], *, axis: int = 0) -> Held:
    return Held(alone(lambda *blocks: joined(blocks, axis), [part.blocks for part in parts]), parts[0].dtype)


def _squeeze(x: Held, *, axis: int) -> Held:
    require(x.shape[axis] == 1, f"a dim of {x.shape[axis]} is squeezed")
    return reshape(x, *x.shape[:axis], *x.shape[axis + 1 :])


def _expand_dims(x: Held, axis: int | tuple[int, ...]) -> Held:
    places = (axis,) if isinstance(axis, int) else axis
    sizes = iter(x.shape)
    rank = len(x.shape) + len(places)
    return reshape(x, *(1 if place in places else next(sizes) for place in range(rank)))


def _transpose(x: Held, order: Sequence[int]) -> Held:
    return x.each(lambda block: transposed(block, order))


def _take(x: Held | Tensor, places: Held, *, axis: int, mode: str = "clip") -> Held:
    require(axis == 0, "a take along another dim")
    held = x.blocks if isinstance(x, Held) else (x,) * len(places.blocks)
    dtype = x.dtype if isinstance(x, Held) else _INT
    return Held(alone(_taken, (held, places.blocks)), dtype)


def _taken(block: Tensor, places: Tensor) -> Tensor:
    """Rows, by their numbers; one too large is the last."""
    count, size = block.shape[0], math.prod(block.shape[1:])
    items = list[int]()
    for place in places.items:
        start = max(0, min(place, count - 1)) * size
        items += block.items[start : start + size]
    return Tensor((*places.shape, *block.shape[1:]), tuple(items))


_LOCAL: dict[str, Call] = {
    "jax.lax.dynamic_slice": _dynamic_slice,
    "jax.lax.dynamic_slice_in_dim": _dynamic_slice_in_dim,
    "jax.lax.dynamic_update_slice": _dynamic_update_slice,
    "jax.lax.dynamic_update_slice_in_dim": _dynamic_update_slice_in_dim,
    "jax.lax.select": _select,
    "jnp.zeros_like": _zeros_like,
    "jnp.einsum": einsum,
    "jnp.sum": _sum,
    "jnp.stack": _stack,
    "jnp.broadcast_to": _broadcast_to,
    "jnp.split": _split,
    "jnp.concatenate": _concatenate,
    "jnp.squeeze": _squeeze,
    "jnp.expand_dims": _expand_dims,
    "jnp.transpose": _transpose,
    "jnp.take": _take,
}


# --- functions of the notation


def _function(devices: Devices, row: Function, *given: Any, axis: int | tuple[int, ...] | None = None) -> Held:
    operands = [each for each in given if isinstance(each, Held)]
    numbers = [None if isinstance(each, Held) else each for each in given]
    if row.over_dims:
        (x,) = operands
        along = (axis,) if isinstance(axis, int) else axis or ()
        return x.each(lambda block: applied(row.name, [block], (), along))
    types = [each.dtype for each in operands]
    met = meeting(row, types, whole(numbers))
    for place, dtype in zip(places(row, numbers), types, strict=True):
        require(place in row.conditions or dtype == met, f"{row.name} of {dtype} beside {met}")
    blocks = [each.blocks for each in operands]
    found = alone(lambda *given: applied(row.name, given, numbers, lowest=met.lowest), blocks)
    return Held(found, result_type(row, met))


def astype(x: Held, given: Any) -> Held:
    dtype = type_of(given)
    assert dtype is not None
    return Held(x.each(lambda block: converted(block, x.dtype, dtype)).blocks, dtype)


def reshape(x: Held, *shape: int) -> Held:
    return x.each(lambda block: shaped(block, shape))
