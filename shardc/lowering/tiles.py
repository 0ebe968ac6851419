"""The TPU's layout of arrays in memory: tiles of rows by lanes."""

from __future__ import annotations

import math
from functools import lru_cache

ROWS, LANES = 8, 128


@lru_cache(maxsize=1024)
def tiled_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    """The bytes of an array in tiles, its dims in the order that pads least.

    [64, 32, 32] of two bytes: 64 as lanes, padded to 128, by 32 rows, 32 times.
    """
    if len(shape) < 2:
        return up(math.prod(shape), LANES) * itemsize
    elements = math.prod(shape)
    padded = (
        elements // (shape[rows] * shape[lanes]) * _rows(shape[rows]) * up(shape[lanes], LANES)
        for rows in range(len(shape))
        for lanes in range(len(shape))
        if rows != lanes
    )
    return min(padded) * itemsize


def _rows(count: int) -> int:
    """Fewer rows than a tile has are padded to a power of two."""
    return up(count, ROWS) if count > ROWS // 2 else 1 << (count - 1).bit_length()


def up(count: int, step: int) -> int:
    """The next multiple."""
    return -(-count // step) * step
