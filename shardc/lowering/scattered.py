"""Along which dims, and how, the TPU's compiler scatters: rules, as in `lowering.tpu`."""

from __future__ import annotations

from shardc.lowering import tpu
from shardc.lowering.observed import seen
from shardc.lowering.target import Shape, Target
from shardc.lowering.tiles import LANES, ROWS

SHARE = 2  # elements of a dim that tells shares apart, of each
_STACKED_ON_CHIP = 48 * 2**20  # bytes
_FILLED = 8  # devices whose shares are written into the stack one by one


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
    "along the second of 2 × 256 × 2048, of which an exchange of digits is next, along the first of 32 × 2048, which "
    "was turned to be scattered and is gathered next, and four others of 260, on v5e and v5p: a ReduceScatter lay as "
    "its reader would have it, and was an AllReduce. Told to lie as it is written all of them were scattered, in 0.35 "
    "to 0.88 of the time, and the rest took what they took. Along the first dim of given sums of three dims and more, "
    "8 × 16 × 128 × 1024 of which an exchange is next, or which are laid in another order, all were an AllReduce, and "
    "told in 0.42 to 0.58 of the time; of 80 drawn ones none took more. What products leave was never one there, and "
    "told took up to 1.5, as they leave it in an order of their own",
)
def is_told_to_lie(dim: int, is_turned: bool, of_product: bool) -> bool:
    """Whether what is scattered along a dim is told how to lie, in the order of its dims. For a slice that is named."""
    return is_turned or dim > 0 or not of_product


@seen(
    "0.0.42.1",
    "stacked shares of 16384 × 4, 2 × 2 × 8192 × 4, 4096 × 5 × 4 and 32768 × 4 × 2 were summed on v5e, whatever their "
    "size; of 2048 × 8, 1024 × 4 × 8 and 2048 × 16 × 4 they were scattered",
)
def has_a_tile(share: Shape) -> bool:
    """Whether two of a share's dims have the rows of a tile."""
    return sum(size >= ROWS for size in share) >= 2


@seen(
    "0.0.42.1",
    "along the first of three dims and more, of shares whose last two are whole tiles, 102 of 102 were scattered as "
    "they are, given or left by products, in 0.7 of the time that they take stacked, small ones in 0.6 of that "
    "exchanged; of 1 × 8 × 256, behind digits, they were summed",
)
def lies_in_front(share: Shape) -> bool:
    """Whether shares along the first dim are scattered as they are."""
    return len(share) > 2 and share[0] > 1 and share[-2] % ROWS == 0 and share[-1] % LANES == 0


@seen(
    "0.0.42.1",
    "a large array of two dims is scattered along the first with a halo: of 4096 × 8192 in bf16 on v5p in 475 µs, of "
    "which the links take 373; with each share as two of a dim before it, which costs nothing, in 373. 4096 × 4096 on "
    "v5e 622 and 559, on v6e 307 and 280, on v4 465 and 373; 8192 × 4096 over two axes on v5p 354 and 280, 356 with "
    "each share as one. Along the last dim there is no halo. Of 8 × 1024, and of one of 16 × 128, they were summed",
)
def lies_apart(share: Shape) -> bool:
    """Whether shares along the first of two dims are told apart by a dim of their own, two of it each."""
    return len(share) == 2 and share[0] % (SHARE * tpu.PAIR_OF_ROWS) == 0 and share[1] % LANES == 0


@seen(
    "0.0.42.1",
    "of four shares that were stacked one to three lay beside the stack, 1.5 times the operand in all, of 67 MB and of "
    "134; of 1 GB and more 1.75. Stacks of 34 and of 42 MB lay on the chip, of 52 MB in memory. Of eight shares each "
    "was written into the stack at once. On v5e as on v5p",
)
def held_to_stack(size: int, devices: int) -> tuple[int, int]:
    """Bytes of the shares cut out of so many bytes, and of the stack of them."""
    return (0 if devices >= _FILLED else size // 2), (0 if size <= _STACKED_ON_CHIP else size)


_STACKED, _FEW_STACKED = 1.75, 3  # copies
_FEW = 4 * 2**20  # bytes


@seen(
    "0.0.42.1",
    "of 80 drawn scatters of 16 to 256 MiB, given and left by products, two and four shares were cut out and padded "
    "into the stack as if copied 1.2 to 1.9 times on v5e and 1.7 to 2.4 on v5p; 2.3 to 3 where a side of a share is no "
    "whole tile. Eight and more took 0.6 to 1.2, but for last sides of a few elements, 4 to 20. Of half a MiB, on "
    "v5p, four took as if copied five times: each of three loops has its start",
)
def copies_to_stack(devices: int, size: int) -> float:
    """How often the shares of a single dim are copied, of so many bytes together, to lie one behind the other."""
    if devices >= _FILLED:
        return 1
    return _STACKED if size >= _FEW else _FEW_STACKED
