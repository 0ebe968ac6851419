"""What was seen of rings, of a product and the permutes beside it: rules, as in `lowering.tpu`."""

from __future__ import annotations

from shardc.lowering.observed import seen
from shardc.lowering.target import Target
from shardc.lowering.timed import brings_at_most

_HIDES = 4 / 3  # a product's time, of what its partial products hide


@seen(
    "0.0.42.1",
    "replayed, rings and chunks on v5e took 0.85 to 1.13 of their price, but for those that saved less than an eighth "
    "of their steps' time; on v5p rings took up to 1.5, since partial products are short, and no gather is hidden",
)
def prices_of_rings_hold(target: Target) -> bool:
    """Whether a ring that is priced below its steps is faster."""
    return target.generation == "v5e" and target.names_slice


@seen(
    "0.0.42.1",
    "of a ring whose other operand is gathered all permutes came before that gather, and none beside the products: of "
    "16384 × 8192 × 16384 on v5e:2x4, X=2, Y=4 the ring over Y took 6,799 µs, and 4,595 where its block waits for the "
    "gather, that over X 6,599 and 5,342; on v5e:4x4 3,002 and 2,665. Where products are too short to hide permutes, "
    "these are better beside the gather: 8192 × 8192 × 16384 there 1,662 and 1,863, 8192 × 4096 × 16384 828 and 934",
)
def waits_for_gather(product_s: float, moved_s: float, target: Target) -> bool:
    """Whether what goes round an axis is held until the other operand is gathered."""
    return target.names_slice and moved_s < product_s * _HIDES


_ROWS_THAT_WAIT = {"v5e": 256}
_FEW_ROWS = 128


@seen(
    "0.0.42.1",
    "a ring whose sums go round, whose few rows each were multiplied with 128 MiB and more, 4096 × 32768 over 2048 "
    "numbers of each of 16 chips of v5e:4x4: each of 16 products read these again, and was there before its sum, to "
    "which it was added from memory, 7,287 µs; the rows of both turns multiplied at once 4,763, with 13 MB of "
    "temporaries for 152 (XLA's own windows 5,738). Of 64 to 256 rows a block on 4, 8 and 16 chips of v5e 0.63 to 1.01 "
    "of the time, of 64 and 128 on v5p 0.74 to 0.96, of 256 there 0.93 to 1.05. Of 512 rows and more 0.93 to 1.19, and "
    "where the other operand lies on the chip 0.9 to 1.16",
)
def multiplies_in_pairs(rows: int, size: int, target: Target) -> bool:
    """Whether the blocks of both turns of a ring are one product, of so many rows each with so many bytes."""
    if not target.names_slice or size <= brings_at_most(target):
        return False
    return rows <= _ROWS_THAT_WAIT.get(target.generation, _FEW_ROWS)
