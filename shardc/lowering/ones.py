"""What the TPU's compiler makes of dims of one element: rules, as in `lowering.tpu`."""

from __future__ import annotations

from shardc.lowering import tpu
from shardc.lowering.observed import seen
from shardc.lowering.target import Shape, Target


@seen(
    "0.0.42.1",
    "of 1 × 512 × 1024 along the second dim, of 512 × 1 × 1024, of 1 × 65536 and of 1 × 8192 × 8192 a ReduceScatter is "
    "an AllReduce, on v5e and v5p; of 512 × 1024, and along the last dim, it is not",
)
def left_out(dim: int, share: Shape, target: Target) -> tuple[int, ...]:
    """Dims of one element, without which a share is scattered along `dim`. Only for a slice that is named."""
    if not tpu.may_exchange(target) or dim == len(share) - 1:
        return ()
    return tuple(at for at, size in enumerate(share) if size == 1 and at != dim)
