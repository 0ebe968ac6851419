"""What local steps allow, said a second time: on purpose nothing here is shared with `shardc.rules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Sharding

Dims = tuple[str, ...]


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
    name: str, over: Dims, operand_dims: Sequence[Dims], operands: Sequence[Sharding], result_dims: Dims
) -> Sharding | str:
    """The sharding that a function of local blocks leaves, or why there is none."""
    function = FUNCTIONS[name]
    if len(operands) != function.arity:
        return f"{name} takes {function.arity} operands, not {len(operands)}"
    if any(operand.unreduced for operand in operands) and not function.linear:
        return f"{name} is not linear, and its operand is unreduced"
    if len({operand.unreduced for operand in operands}) > 1:
        return "the operands are unreduced over different axes"
    placed = _placed(operand_dims, operands)
    if isinstance(placed, str):
        return placed
    cut = [dim for dim in over if placed.get(dim)]
    if cut:
        return f"{name} runs over {cut[0]}, which is sharded over {placed[cut[0]]}"
    kept = {dim for dim in placed if function.keeps_dims or dim not in over}
    if kept != set(result_dims) or not set(over) <= set(placed):
        return f"{name} leaves the dims {sorted(kept)}, not {sorted(result_dims)}"
    if operands[0].unreduced.intersection(*placed.values()) if placed else False:
        return "an operand is unreduced over an axis that the other is sharded over"
    return Sharding(tuple(placed[dim] for dim in result_dims), operands[0].unreduced)


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
    counted = Counter(axis for axes in found.values() for axis in axes)
    twice = sorted(axis for axis, count in counted.items() if count > 1)
    return f"axis {twice[0]} is on two dims" if twice else found
