"""What is known of the TPU's compiler: each rule a function, with the observation that taught it.

A rule says what is done about a habit of the compiler, in numbers that were read off what it compiled and that nobody
documents. `seen` keeps with it which libtpu did what; `tests/lowering/test_tpu.py` asks that every rule has one, and
`tests/compiled` compiles again what can be. How a step is written follows from the first half of them
(`lowering.scatters`, `lowering.lower`); what memory it takes, from the second (`lowering.buffers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.ir.dtypes import DTYPES, DType
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, Op
from shardc.ir.sharding import Axes
from shardc.lowering.observed import seen
from shardc.lowering.target import Shape, Target
from shardc.lowering.tiles import LANES, ROWS

# How a ReduceScatter is written, so that it scatters: a plain one is often compiled to an AllReduce and a slice, at
# twice the bytes.

_SCATTERED = (DTYPES["bf16"], DTYPES["f32"])
PAIR_OF_ROWS, _PAIR_OF_LANES = 16, 256  # two tiles of 8 by 128 either way
FOLD = LANES  # what an array of one dim is folded into
_LARGE_SHARE = 2**16  # bytes
LARGE_SLICE = 64  # devices


@seen("0.0.42.1, 0.0.51", "a ReduceScatter of any element type but bf16 and f32 is an AllReduce and a slice")
def is_scattered(dtype: DType) -> bool:
    """Whether partial sums of a type are scattered at all."""
    return dtype in _SCATTERED


@seen("0.0.42.1", "shares whose last two dims are whole pairs of tiles are scattered along any dim; others seldom")
def is_whole_tiles(share: Shape) -> bool:
    """Whether a share of two dims or more is scattered as it is."""
    return share[-2] % PAIR_OF_ROWS == 0 and share[-1] % _PAIR_OF_LANES == 0


@seen(
    "0.0.42.1",
    "of shares with fewer lanes than a tile the last two dims lie in turn, and so whole pairs of tiles are scattered; "
    "written as they are, those that a product reads were summed",
)
def lies_turned(share: Shape) -> bool:
    """Whether a share of two dims or more is scattered with its last two dims in turn."""
    return share[-1] < LANES and is_whole_tiles((share[-1], share[-2]))


@seen("0.0.42.1", "of one dim, folded into rows of 128 lanes, whole pairs of tiles are scattered")
def may_be_folded(share: Shape) -> bool:
    """Whether a share of one dim is scattered as rows of lanes."""
    return share[0] % (PAIR_OF_ROWS * FOLD) == 0


@seen(
    "0.0.42.1", "shares stacked along a first dim are scattered, if each has more than 64 KiB; smaller ones are summed"
)
def is_large_share(size: int) -> bool:
    """Whether shares of so many bytes that are no whole tiles are scattered one behind the other."""
    return size >= _LARGE_SHARE


@seen("0.0.42.1, 0.0.51", "an AllToAll of the shares, added up after, stays: the bytes of a scatter for any share")
def may_exchange(target: Target) -> bool:
    """Whether shares may be exchanged and added up instead. Only for a slice that is named."""
    return target.names_slice and not target.is_plain


@seen("0.0.42.1", "over all of 4x4, 2x2x2 or 4x4x4 a ReduceScatter is an AllReduce; of 2x2 and of 2x4 it is not")
def is_not_scattered_over(axes: Axes, target: Target) -> bool:
    """Whether a group is all of a slice two of whose sides are equal, as those of a large slice are taken to be."""
    if target.is_plain or not target.is_all(axes):
        return False
    if target.sides is None:
        return target.mesh.devices >= LARGE_SLICE
    return len(set(target.sides)) < len(target.sides) and target.mesh.devices > 4


# How others are written.


@seen("0.0.42.1", "an AllGather over all of 64 chips or more is blocks among zeros, summed: twice the bytes")
def is_not_gathered_over(axes: Axes, target: Target) -> bool:
    """Whether a gather over this group is done in rounds."""
    return not target.is_plain and target.is_all(axes) and target.mesh.devices >= LARGE_SLICE


@seen(
    "0.0.42.1; v4: 0.0.51",
    "replayed, two reshards on v5p took 26 and 46 % less time with a digit's elements as rows, one on v5e and v6e 2 "
    "and 4 % more; with part of a tile's lanes some took more; v4 was like v5p",
)
def may_be_rows(local: Sequence[int], target: Target) -> bool:
    """Whether a block gathered along its last dim takes the digit above as rows, in whole tiles then."""
    return target.generation in ("v4", "v5p") and local[-1] % LANES == 0


@seen("0.0.42.1", "an AllToAll of blocks with a dim of one among three or more is laid out in two rows to a tile")
def is_thin(shape: Sequence[int], devices: int) -> bool:
    """Whether pieces are brought to the front before an exchange: digits have dims of one element."""
    return devices > 1 and len(shape) > 2 and 1 in shape


# What a step takes of memory beside its operands and its result.


_FLAT, _AGAIN = 2**21, 2**20  # bytes of what is copied by rows, and of what is copied again
_SMALL = 2**24  # bytes of a slice, or of what is laid from pieces
_SENT = 2**25  # bytes of pieces to send
_SENT_BESIDE_PRODUCTS = 2**23


@seen(
    "0.0.42.1",
    "slices of up to 16 MiB, what is laid from few pieces, a first copy for a product, and what loops of examples take "
    "and leave took no memory; of 64 MiB it did",
)
def off_chip(size: int) -> int:
    """The bytes in memory of what a step computes from pieces: what is small stays on the chip."""
    return 0 if size <= _SMALL else size


@seen(
    "0.0.42.1",
    "of pieces to be sent in turns, 32 MiB stay on the chip; where there are products, whose operands are brought "
    "there early, 2 MiB did, of two pieces of 16 MiB none in three programs of four",
)
def pieces_off_chip(count: int, size: int, has_products: bool) -> int:
    """How many of so many pieces to send are in memory."""
    return count - (_SENT_BESIDE_PRODUCTS if has_products else _SENT) // size


@seen("0.0.42.1", "an array of two dims whose last is not whole lanes is copied before pieces of it are sent, by rows")
def sends_rows(local: Shape) -> bool:
    """Whether the pieces of a block lie along the lanes, whole or not."""
    return len(local) == 2 and local[-1] % LANES != 0


@seen("0.0.42.1", "an AllGather along the last dim, of a block that is not whole lanes, copies its operand")
def copies_before_gather(local: Shape, dim: int) -> bool:
    """Whether a gather copies its operand."""
    return dim == len(local) - 1 and local[-1] % LANES != 0


@seen(
    "0.0.42.1", "a block with less than a tile's rows of a digit, of 2 MiB and more, is copied to be gathered by rows"
)
def flattens_rows(local: Shape, size: int) -> bool:
    """Whether a gather by rows copies its operand, so many bytes, in memory."""
    return local[-2] < ROWS and size >= _FLAT


@seen("0.0.42.1", "pieces of the last dim are copied twice before they are sent; of 1 MiB in memory, of 512 KiB not")
def copied_again(size: int) -> int:
    """The bytes in memory of the second copy."""
    return size if size >= _AGAIN else 0


@seen("0.0.42.1", "an AllToAll copies its operand, unless it splits the first dim")
def copies_before_exchange(split: int) -> bool:
    """Whether an exchange copies its operand."""
    return split > 0


@seen(
    "0.0.42.1",
    "replayed, an input of two dims and the result of its AllToAll were laid anew both: a first dim that was cut, as "
    "the result became an output, and a last one, as a product read it; of what v5e's chip holds none was",
)
def copies_input_too(split: int, block: Shape, size: int, is_output: bool, target: Target) -> bool:
    """Whether an exchange of an input, which leaves such a block, takes a copy more."""
    return len(block) == 2 and (split == 0) is is_output and 2 * size > on_chip(target)


@seen(
    "0.0.42.1",
    "an AllToAll copies its result, twice if it joins the dim along the lanes of three, or of an output; that is the "
    "last, or the one before if the last is less than the lanes",
)
def copies_twice(joined: int, shape: Shape, is_output: bool) -> bool:
    """Whether what arrived is copied twice to be laid along this dim."""
    last = len(shape) - 1
    along_lanes = last - 1 if last > 1 and shape[-1] < LANES else last
    return joined in (last, along_lanes) and (last > 1 or is_output)


@seen(
    "0.0.42.1",
    "what an AllToAll joined along the first dim is read by a collective where it arrived, if it has two dims, or "
    "one of a single element, or if the pieces have one element of that dim; of three others it was copied",
)
def lies_as_it_arrived(joined: int, pieces: Shape, shape: Shape) -> bool:
    """Whether a collective reads what arrived in these pieces, of this shape, without a copy."""
    return joined == 0 and (len(shape) == 2 or 1 in shape or pieces[0] == 1)


@seen("0.0.42.1", "an AllGather that copies its operand leaves the dims turned: a Slice of it is copied to an output")
def is_turned_by_gather(local: Shape, dim: int) -> bool:
    """Whether what was gathered lies in another order of dims than an output."""
    return copies_before_gather(local, dim)


@seen("0.0.42.1", "shares stacked along several dims are a copy of the operand, and another if one dim is the last")
def copies_to_turn(dims: Sequence[int], rank: int) -> int:
    """How many copies it takes to stack shares."""
    return 0 if len(dims) < 2 else 2 if rank - 1 in dims else 1


@seen("0.0.42.1", "laid by rows of lanes that are not whole, what arrived is copied once more")
def copies_rows(piece: Shape, joined: int) -> bool:
    """Whether pieces joined along the last dim are copied once more."""
    return piece[-1] % LANES != 0 and joined > 1


@seen(
    "0.0.42.1",
    "the sum in the gradient of a softmax, subtracted from what it is taken of, became a reduce-window as wide as its "
    "dim where scores were scaled and masked; masks and zeros as large as the scores lay in memory for it: of a LLaMA "
    "layer with its gradients on v5p 7.9 ms of 36.9, and 2.1 GB of 3.5; on v5e 5.8 ms of 24.0",
)
def joins_sum_and_reader(target: Target) -> bool:
    """Whether a sum of elements may be computed by what reads it, for each element anew."""
    return not target.is_plain


@seen(
    "0.0.42.1",
    "a product whose tiles are added to an array and summed is laid out the other way round, and that array and the "
    "result are copied for it: of a residual stream and its norm, with D=4096, the loop and its copies took 1.07 to "
    "1.74 times what both take apart, on v5e and v5p; without the array the sum takes little",
)
def sums_what_meets_tiles(target: Target) -> bool:
    """Whether a sum of what a product's tiles were added to is better taken apart."""
    return not target.is_plain


@seen("0.0.42.1", "functions of a product's result are computed as its tiles are; a loop computes one product")
def is_computed_in_loop(products_before: bool) -> bool:
    """Whether a product is computed in the loop that reads it."""
    return not products_before


_SEVERAL = frozenset({"relu", "gelu", "silu", "sigmoid", "exp2", "log1p", "sign", "where", "again"})


@seen("0.0.42.1", "one instruction of arrays in memory, `A + B`, takes more than a loop of several: `relu(A) + B`")
def is_one_instruction(function: str) -> bool:
    """Whether a function of elements is one instruction, as a product of them is."""
    return function not in _SEVERAL


_ON_CHIP = 96 * 2**20  # bytes of the 128 MiB of a v5e
_BESIDE = 2**15  # bytes, of each collective
_OF_FUNCTION = 2**14  # of each function
_ROUNDED = 512


@dataclass(frozen=True, slots=True)
class Beside:
    """What takes some memory beside its buffers: how many collectives, and functions."""

    collectives: int
    functions: int


@seen(
    "0.0.42.1",
    "of the 128 MiB on a v5e's chip 112 hold what lives there from its making to its last use, up to 16 of these "
    "operands that are brought early; temporaries that find no room there for all of their life are in memory",
)
def on_chip(target: Target) -> int:
    """How many bytes of temporaries may lie on the chip at once."""
    return _ON_CHIP if target.generation == "v5e" else 0


@seen(
    "0.0.42.1",
    "of 21 programs on v5e with products each brought the largest argument that a product reads as it is, and that has "
    "room, before it started: a weight of 64 MiB left a result of 64 or 96 in memory. Small ones of several uses were "
    "given up before the last, and brought again. So is, as a whole, one of which a product reads a share. At the end "
    "it was there again for the next time: beside 64 MiB an output of 64 was gathered in memory, beside 32 it was not",
)
def is_brought_early(size: int, room: int) -> bool:
    """Whether an argument of so many bytes may be brought to a chip with so much room before a program starts."""
    return size <= room


@seen(
    "0.0.42.1",
    "on v5e a collective but an AllReduce begins as soon as what it reads is there, to be hidden beside products, and "
    "what leads to one goes before what does not: of a feed-forward block with its gradients both gathered weights lay "
    "in memory until the last product, 1,792 MiB beside 1,280 on v5p. Of two rings that add up, all partial products "
    "came before the products that did not lead to them, or before those that led to no gather, and the sums last",
)
def moves_early(target: Target) -> bool:
    """Whether collectives are put before other steps."""
    return target.generation == "v5e"


@seen(
    "0.0.42.1",
    "on v5e, programs whose temporaries are all on the chip take 500 B at most; else, and on v5p, each collective "
    "takes up to 32 KiB beside its buffers, each function of an example about half of that, all together twice that",
)
def in_memory(size: int, beside: Beside, target: Target) -> int:
    """What temporaries of so many bytes take of memory."""
    least = _ROUNDED if on_chip(target) else 0
    if least and not size:
        return least
    of_functions = 2 * _BESIDE + beside.functions * _OF_FUNCTION if beside.functions else 0
    return max(least, size + beside.collectives * _BESIDE + of_functions)


@seen("0.0.42.1", "an output that is computed with the product it reads is laid out as the product is, then copied")
def copies_beside_product(is_output: bool, reads_product: bool, reads_others: bool) -> bool:
    """Whether what is computed of a product's result, which others read as well, is copied."""
    return is_output and reads_product and not reads_others


@seen(
    "0.0.42.1",
    "a Slice that only products read is part of them, and so is one that a logsumexp reads; but the product of which a "
    "Slice is taken is done first, and lies whole: 256 MiB for a logsumexp of a quarter of it",
)
def slices_as_it_reads(op: Op) -> bool:
    """Whether a step takes a part of its operand, which lies in memory, without a copy of that part."""
    return op.facts.kind is Kind.LOCAL


@seen(
    "0.0.42.1",
    "a digit that was gathered below another and joined with it was laid anew by 6 functions, moves and outputs of 6; "
    "on v5e by none of 4 products, which read it as it lies",
)
def reads_digits(op: Op, target: Target) -> bool:
    """Whether a step reads a joined dim whose digits lie apart."""
    return target.generation == "v5e" and isinstance(op, Einsum)


@seen("0.0.42.1", "one Slice after another is one Slice, and so is one before pieces are cut out")
def cuts_what_it_reads(op: Op) -> bool:
    """Whether a step begins by cutting its operand."""
    return op.facts.cuts
