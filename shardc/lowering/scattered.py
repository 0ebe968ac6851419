"""Along which dims the TPU's compiler scatters: rules, as in `lowering.tpu`."""

from __future__ import annotations

from shardc.lowering import tpu
from shardc.lowering.observed import seen
from shardc.lowering.target import Shape, Target
from shardc.lowering.tiles import ROWS


@seen(
    "0.0.42.1",
    "of 1 × 512 × 1024 along the second dim, of 512 × 1 × 1024, of 1 × 65536 and of 1 × 8192 × 8192 a ReduceScatter is "
    "an AllReduce, on v5e and v5p, and of 1 × 512 × 64 in f32 along the last; of 512 × 1024 it is not",
)
def left_out(dim: int, share: Shape, target: Target) -> tuple[int, ...]:
    """Dims of one element, without which a share is scattered along `dim`. Only for a slice that is named."""
    return tuple(at for at, size in enumerate(share) if size == 1 and at != dim) if tpu.may_exchange(target) else ()


@seen(
    "0.0.42.1",
    "of 4 × 16 × 128 × 2048 and of 2 × 64 × 128 × 2048 along the second dim, and of 8 × 16 × 4 × 128 × 256 along the "
    "third, a ReduceScatter is an AllReduce, on v5e and v5p; along the first dim and the last two it is not",
)
def is_at_an_end(dim: int, rank: int) -> bool:
    """Whether along that dim what is scattered stays so."""
    return dim == 0 or dim >= rank - 2


@seen(
    "0.0.42.1",
    "stacked shares of 16384 × 4, 2 × 2 × 8192 × 4, 4096 × 5 × 4 and 32768 × 4 × 2 were summed on v5e, whatever their "
    "size; of 2048 × 8, 1024 × 4 × 8 and 2048 × 16 × 4 they were scattered",
)
def has_a_tile(share: Shape) -> bool:
    """Whether two of a share's dims have the rows of a tile."""
    return sum(size >= ROWS for size in share) >= 2
