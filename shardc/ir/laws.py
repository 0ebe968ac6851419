"""What local steps allow, said a second time: on purpose nothing here is shared with `shardc.rules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from shardc.ir.functions import FUNCTIONS, Function
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import SUM, Array, Axes, Dims, Sharding


def product_law(operand_dims: Sequence[Dims], operands: Sequence[Sharding], result_dims: Dims) -> Sharding | str:
    """The sharding that a local product leaves, or why there is none.

    Shared dims lie alike; no axis is on two dims; where one operand is unreduced the other does not use the
    axis. The result has its dims' axes, and is unreduced over the summed dims' axes and the operands' own.
    """
    placed = _placed(operand_dims, operands)
    if isinstance(placed, str):
        return placed
    if len(operands) == 2:
        for one, other in (operands, tuple(reversed(operands))):
            both = one.unreduced & other.used
            if both:
                return f"one operand is unreduced over {sorted(both)}, which the other uses"
    summed = {axis for dim, axes in placed.items() if dim not in result_dims for axis in axes}
    missing = [dim for dim in result_dims if dim not in placed]
    if missing:
        return f"dim {missing[0]} of the result is on no operand"
    unreduced = frozenset(summed).union(*(operand.unreduced for operand in operands))
    return Sharding(tuple(placed[dim] for dim in result_dims), unreduced)


def function_law(
    name: str,
    over: Dims,
    operand_dims: Sequence[Dims],
    operands: Sequence[Sharding],
    result_dims: Dims,
    numbers: Sequence[int | float | None] = (),
) -> Sharding | str:
    """The sharding that a function of local blocks leaves, or why there is none."""
    function = FUNCTIONS[name]
    given = iter(operands)
    stand = [next(given, None) if number is None else number for number in numbers or (None,) * function.arity]
    if None in stand or next(given, None) is not None:
        return f"{name} takes {function.arity} operands, not {len(operands)}"
    why = _sums_through(function, stand)
    if why is not None:
        return why
    placed = _placed(operand_dims, operands)
    if isinstance(placed, str):
        return placed
    cut = [dim for dim in over if placed.get(dim)]
    if cut and not function.reduces:
        return f"{name} runs over {cut[0]}, which is sharded over {placed[cut[0]]}"
    kept = {dim for dim in placed if function.keeps_dims or dim not in over}
    if kept != set(result_dims) or not set(over) <= set(placed):
        return f"{name} leaves the dims {sorted(kept)}, not {sorted(result_dims)}"
    if cut:
        own = frozenset(axis for dim in over for axis in placed[dim])
        return Sharding(tuple(placed[dim] for dim in result_dims), own, function.reduces)
    unreduced = frozenset[str]().union(*(operand.unreduced for operand in operands))
    if any(unreduced.intersection(axes) for axes in placed.values()):
        return "an operand is unreduced over an axis that the other is sharded over"
    return Sharding(tuple(placed[dim] for dim in result_dims), unreduced)


def _sums_through(function: Function, stand: Sequence[Sharding | int | float | None]) -> str | None:
    """Why a function of partial sums is not the partial sum of the function's; None if it is, or there are none."""
    partial = {place: each.unreduced for place, each in enumerate(stand) if isinstance(each, Sharding)}
    if not any(partial.values()):
        return None
    if function.scales:
        return None if len(partial) == 1 else f"{function.name} of two arrays is a product"
    if any(axes and place not in function.linear for place, axes in partial.items()):
        return f"{function.name} is not linear, and its operand is unreduced"
    together = [partial[place] if place in partial else stand[place] for place in function.linear]
    added = [each for each in together if not isinstance(each, frozenset)]
    if any(each != 0 for each in added):
        return f"{function.name} of partial sums and {added[0]} adds it once for each device"
    sums = {each for each in together if isinstance(each, frozenset)}
    return "the operands are unreduced over different axes" if len(sums) > 1 else None


def reshape_law(whole: Array, digits: Array, sizes: Sequence[Sequence[int]], mesh: Mesh) -> str | None:
    """Why `digits` are not the digits of `whole`, element for element on every device; None if they are."""
    lengths = [len(some) + 1 for some in sizes]
    if len(sizes) != len(whole.dims) or sum(lengths) != len(digits.dims) or whole.dtype != digits.dtype:
        return f"{len(digits.dims)} digits of {len(whole.dims)} dims"
    if whole.sharding.unreduced != digits.sharding.unreduced:
        return "digits are unreduced over other axes"
    start = 0
    for place, length in enumerate(lengths):
        part = slice(start, start := start + length)
        shape, axes = digits.shape[part], digits.sharding.dims[part]
        if shape[:-1] != tuple(sizes[place]) or prod(shape) != whole.shape[place]:
            return f"digits of the sizes {shape} of a dim of {whole.shape[place]}"
        if sum(axes, ()) != whole.sharding.dims[place]:
            return f"digits over {axes} of a dim over {whole.sharding.dims[place]}"
        local = [size // mesh.product(names) for size, names in zip(shape, axes, strict=True)]
        if any(local[n] > 1 and any(axes[n + 1 :]) for n in range(length)):
            return "a digit below one that is not cut into single elements is sharded"
    return None


def _placed(operand_dims: Sequence[Dims], operands: Sequence[Sharding]) -> dict[str, Axes] | str:
    """The axes of every dim, or what is wrong with them."""
    found: dict[str, Axes] = {}
    for dims, sharding in zip(operand_dims, operands, strict=True):
        for dim, axes in zip(dims, sharding.dims, strict=True):
            if dim in found and found[dim] != axes:
                return f"dim {dim} is sharded over {found[dim]} on one operand and over {axes} on the other"
            found[dim] = axes
    if any(sharding.reduction != SUM for sharding in operands):
        return "an operand is a partial maximum or minimum, which its AllReduce alone may read"
    counted = Counter(axis for axes in found.values() for axis in axes)
    twice = sorted(axis for axis, count in counted.items() if count > 1)
    return f"axis {twice[0]} is on two dims" if twice else found
