"""What functions of elements take, where products compute them again as they read (`tpu.computes_again`).

Two products computed anew on v5p (libtpu 0.0.42.1): six functions in turn, tanh or exp eight times, the gelu and the
silu of bf16, exp(x - r) ⊙ s of rows r and s; not exp(x - r) / s, no division of f32 by a row, nor its silu.
"""

from __future__ import annotations

from shardc.ir.dtypes import DType
from shardc.ir.plan import Apply, Op

READ_AGAIN = 6  # bytes: what products read for an element of what they compute again, at most
SPREAD = 3  # of an array that is spread along a dim, in additions
_ADDITIONS = {"div": 8, "sigmoid": 11, "silu": 12, "gelu": 9}
_MORE_IN_F32 = {"div": 4, "sigmoid": 4, "silu": 4}


def work_of(op: Op, dtype: DType) -> int:
    """What an element takes, in additions."""
    name = op.function if isinstance(op, Apply) else ""
    return _ADDITIONS.get(name, 1) + (_MORE_IN_F32.get(name, 0) if dtype.bytes > 2 else 0)
