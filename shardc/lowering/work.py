"""What products compute again as they read, rather than have it kept: rules, as in `lowering.tpu`."""

from __future__ import annotations

from shardc.ir.dtypes import DType
from shardc.ir.plan import Apply, Op
from shardc.lowering.observed import seen
from shardc.lowering.target import Target

READ_AGAIN = 6  # bytes: what products read for an element of what they compute again, at most
_MATRIX = 2 * 2**20
MADE_WITHIN = 1 / 8  # of the time to write it, what a product leaves to one that it is done within
SPREAD = 3  # of an array that is spread along a dim, in additions
_ADDITIONS = {"div": 8, "sigmoid": 11, "silu": 12, "gelu": 9}
_MORE_IN_F32 = {"div": 4, "sigmoid": 4, "silu": 4}


@seen(
    "0.0.42.1",
    "functions of [8192, 8192] that two products read, and nothing else, were computed in both, the relu of three "
    "feed-forward blocks too: of all that read three arrays of bf16, or one of f32 and one of bf16, and of none that "
    "read more; on v5p not of nine functions and more in turn, nor of silu(x) ⊙ y; on v5e of 48 in turn, and yet "
    "programs with gradients took more there, as if it were kept",
)
def computes_again(target: Target) -> tuple[int, ...]:
    """How much work products do again, each for itself, of what they alone read, rather than have it kept; or one of
    several, where that is not known."""
    return (12,) if target.generation == "v5p" else (12, 0)


@seen(
    "0.0.42.1",
    "`h = relu(x · W); h · V` was one loop, h nowhere: of 2048 and 16384 × 64, 128 and 256 numbers, F=4096, E=256, 46 "
    "to 425 µs on v5e where 81 to 898 were priced, on v5p 87 for 168. So of all 60 with W and V of 2 MiB and less but "
    "three, of 64 to 4096 rows too; of larger ones some, which took as long as both, the rest not (E=1024 and F=4096; "
    "D=2048 and F=2048). Of batches, as of [16, 1024, 64] and [16, 4096, 64], it goes by one of them; so with "
    "functions of f32, and where another product is multiplied in; of three products two; not where h is read "
    "twice, as of its softmax",
)
def is_done_within(size: int, target: Target) -> bool:
    """Whether a product is done within the one that reads it, the larger of whose other operands has so many bytes."""
    return target.generation in ("v5e", "v5p") and target.names_slice and size <= _MATRIX


@seen(
    "0.0.42.1",
    "two products computed anew on v5p: six functions in turn, tanh or exp eight times, the gelu and the silu of bf16, "
    "exp(x - r) ⊙ s of rows r and s; not exp(x - r) / s, no division of f32 by a row, nor its silu",
)
def work_of(op: Op, dtype: DType) -> int:
    """What an element takes, in additions."""
    name = op.function if isinstance(op, Apply) else ""
    return _ADDITIONS.get(name, 1) + (_MORE_IN_F32.get(name, 0) if dtype.bytes > 2 else 0)
