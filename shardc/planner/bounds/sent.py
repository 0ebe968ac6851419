"""Words that all devices together receive at least to multiply two arrays; the busiest, that over their number.

Two counts. `sent` is of degrees of freedom, as in `received`: the other way about, of what others need and only one
device (or a group that holds the same) knows. `by_products` is of whoever multiplies the elements one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product, takewhile

from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.bounds.received import MAX_DEVICES, Box, Matmul, Operand, classes, common


def sent(matmul: Matmul) -> int:
    """The words that the busiest device receives at least, since each group must send what it alone knows.

    A group is the devices that hold the same of both operands. If its part of A (or of B) is held nowhere else,
    others' blocks of the result vary with it, while the rest stays, over d dimensions: d words leave the
    group. No word leaves two groups, so that all devices receive the sum of the d.
    """
    mesh = matmul.mesh
    used = matmul.left.sharding.used | matmul.right.sharding.used
    group = mesh.nontrivial(mesh.ordered(used))
    if mesh.product(group) > MAX_DEVICES:
        return 0
    total = 0
    for numbers in product(*(range(mesh.size(axis)) for axis in group)):
        total += _from_group(matmul, group, dict.fromkeys(mesh.names, 0) | dict(zip(group, numbers, strict=True)))
    return -(-total // mesh.devices)


def _from_group(matmul: Matmul, group: Axes, place: Mapping[str, int]) -> int:
    """The dimensions over which the result elsewhere varies with what this group alone knows."""
    mesh, sizes = matmul.mesh, matmul.sizes
    left = _alone(matmul.left, matmul, group, place)
    right = _alone(matmul.right, matmul, group, place)
    own = Operand(matmul.result.dims, _within(matmul.result.sharding, group, mesh))
    needed_elsewhere = any(axis not in matmul.result.sharding.sharded for axis in group)
    kept = None if needed_elsewhere else own.box(place, sizes, mesh)
    whole = {dim: (0, size) for dim, size in sizes.items()}
    return sum(
        count * _reach(matmul, left if has_left else None, right if has_right else None, kept if has_kept else None)
        for (has_left, has_right, has_kept), count in classes(matmul.batched, whole, (left, right, kept))
    )


def _alone(operand: Operand, matmul: Matmul, group: Axes, place: Mapping[str, int]) -> Box | None:
    """What the group holds of an operand, if nobody else does; a part of a sum is as good as the sum."""
    if any(axis not in operand.sharding.used for axis in group):
        return None
    return operand.box(place, matmul.sizes, matmul.mesh)


def _within(sharding: Sharding, group: Axes, mesh: Mesh) -> Sharding:
    """A sharding by axes of the group alone, of blocks that hold those of its devices."""
    dims = map(mesh.nontrivial, sharding.dims)
    return Sharding(tuple(tuple(takewhile(group.__contains__, axes)) for axes in dims))


def _reach(matmul: Matmul, left: Box | None, right: Box | None, kept: Box | None) -> int:
    """Of one batched index, the dimensions that a group's part of A and of B reaches outside the block it keeps.

    Outside of that block are the other rows, and of its rows the other columns; or the other way about.
    """
    rows, columns = matmul.count(matmul.rows), matmul.count(matmul.columns)
    some_rows = common(matmul.rows, left) if left else 0
    some_columns = common(matmul.columns, right) if right else 0
    inner = common(matmul.inner, left) if left else 0, common(matmul.inner, right) if right else 0
    if kept is None:
        return filled((rows, columns), (some_rows, some_columns), inner)
    kept_rows, kept_columns = common(matmul.rows, kept), common(matmul.columns, kept)
    mine = common(matmul.rows, left, kept) if left else 0
    mine_too = common(matmul.columns, right, kept) if right else 0
    by_rows = filled((rows - kept_rows, columns), (some_rows - mine, some_columns), inner)
    by_columns = filled((rows, columns - kept_columns), (some_rows, some_columns - mine_too), inner)
    return max(
        by_rows + mine * min(columns - kept_columns, inner[0]),
        by_columns + mine_too * min(rows - kept_rows, inner[1]),
    )


def filled(size: tuple[int, int], mine: tuple[int, int], inner: tuple[int, int]) -> int:
    """The dimensions that a matrix of this size fills if `mine` rows of A and columns of B vary.

    Rows vary within the span of `inner` rows of B; beside the columns of the group as far as there is room, and in
    what is left of the span within those columns. There the two kinds meet, as in `received.spread`.
    """
    (rows, columns), (some_rows, some_columns), (left, right) = size, mine, inner
    beside, below = min(columns - some_columns, left), min(rows - some_rows, right)
    s, t = min(columns, left) - beside, min(rows, right) - below
    return some_rows * beside + some_columns * below + some_rows * s + some_columns * t - s * t


def by_products(matmul: Matmul) -> int:
    """The words that the busiest device receives at least, of all methods that multiply A and B element by element.

    (After Al Daas, Ballard, Grigori, Kumar and Rouse, 2022, who count what is sent or received.) Let device p do
    x_p of the V products, which take a_p and b_p elements and add to c_p of the result; then x_p ≤ √(a_p·b_p·c_p)
    (Loomis and Whitney 1949), and with u_p = a_p + b_p, c_p ≥ 4·x_p²/u_p². It receives u_p - h at least, h what it
    holds of both, so u_p ≤ m for m = M + h, M words received by the busiest. It sends a partial sum for
    each of the c_p elements that it does not own, and what is sent is received: summed over the P devices

        P·M ≥ Σ (u_p - h) + Σ c_p - |C|,   u_p + c_p ≥ u_p + 4·x_p²/u_p² ≥ 4·x_p/√u_p ≥ 4·x_p/√m.

    So m + |C|/P ≥ 4·(V/P)/√m. Batched indices are products of their own, whose x, u and c add up.
    """
    mesh, sizes = matmul.mesh, matmul.sizes
    if mesh.product(tuple(matmul.left.sharding.unreduced | matmul.right.sharding.unreduced)) > 1:
        return 0
    held = sum(
        math.prod(operand.sharding.local_shape([sizes[dim] for dim in operand.dims], mesh))
        for operand in (matmul.left, matmul.right)
    )
    share = matmul.count(matmul.result.dims) / mesh.devices
    volume = matmul.count((*matmul.result.dims, *matmul.inner)) / mesh.devices
    low, high = 0.0, 4 * volume + 1  # m·√m + share·√m ≥ 4·volume at `high`
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if (middle + share) * math.sqrt(middle) >= 4 * volume else (middle, high)
    return max(0, math.ceil(low * (1 - 1e-9)) - held)
