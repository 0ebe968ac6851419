"""Where what devices hold is not what is meant: the first device and element, and what is wrong there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce

from shardc.ir.sharding import MAX, SUM, Array, Sharding
from shardc.proving.devices import Devices, Held, laid_out
from shardc.proving.functions import larger, smaller
from shardc.proving.tensors import Tensor, sum_of


def unlike(array: Array, wanted: Tensor, held: Held, devices: Devices) -> Iterator[str]:
    """Each way in which blocks are not those of the whole array `wanted`; partial ones are put together first."""
    if held.dtype != array.dtype:
        yield f"`{array}` is of {held.dtype}, not of {array.dtype}"
    expected = laid_out(wanted, Sharding(array.sharding.dims), array.dtype, devices, array.name)
    for device, (one, other) in enumerate(zip(_whole(held, array.sharding, devices), expected.blocks, strict=True)):
        if one is not other and (one.shape, one.items) != (other.shape, other.items):
            at = ", ".join(f"{axis}={n}" for axis, n in devices.places[device].items())
            yield f"device ({at}) at {place_of(one, other)} of `{array}` is not what the program means"


def _whole(held: Held, sharding: Sharding, devices: Devices) -> Sequence[Tensor]:
    """Of partial sums what they add up to, of partial maxima the largest: on every device."""
    if not sharding.unreduced:
        return held.blocks
    axes = devices.mesh.ordered(sharding.unreduced)
    return devices.everywhere(held, axes, partial(put_together, sharding.reduction)).blocks


def put_together(reduction: str, blocks: Sequence[Tensor]) -> Tensor:
    """The sum of blocks, or element by element their largest or smallest."""
    if reduction == SUM:
        return sum_of(blocks)
    choose = larger if reduction == MAX else smaller
    return Tensor(blocks[0].shape, reduce(lambda one, other: tuple(map(choose, one, other)), (b.items for b in blocks)))


def place_of(found: Tensor, wanted: Tensor) -> tuple[int, ...]:
    """The first element that differs."""
    if found.shape != wanted.shape:
        return ()
    number = next(n for n, (one, other) in enumerate(zip(found.items, wanted.items, strict=True)) if one != other)
    place = list[int]()
    for size in reversed(found.shape):
        number, index = divmod(number, size)
        place.insert(0, index)
    return tuple(place)
