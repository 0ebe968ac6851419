"""What the TPU's compiler was seen to take time for, beside the work itself: rules, as in `lowering.tpu`."""

from __future__ import annotations

from shardc.ir.dtypes import DTYPES, DType
from shardc.lowering.observed import seen
from shardc.lowering.target import Shape, Target
from shardc.lowering.tiles import LANES, ROWS


@seen(
    "0.0.42.1",
    "on v5p a product of 8192 × 4096 × 2048 takes 311 µs, and 361 where its smaller operand is gathered just before: "
    "50 more, in which its result is written; 311 where the larger one is, or another gather comes between. At most a "
    "sixth of the product. On v5e none of 14 took more. Three projections whose weights are permuted, each in a "
    "statement before its product, took 7,353 µs (7,412 if they wait, 7,104 if not); of two blocks with their "
    "gradients, whose weights are exchanged so, products did not wait: 3,744 and 4,342 (3,743 and 4,287)",
)
def writes_after(target: Target) -> bool:
    """Whether a product whose smaller operand cannot be brought to the chip beforehand writes while it computes
    nothing."""
    return target.generation == "v5p" and target.names_slice


_BROUGHT = {"v4": 128 * 2**20, "v5e": 104 * 2**20, "v5p": 46 * 2**20, "v6e": 64 * 2**20}
_NEAR = 0.3  # of the time of steps that wait for memory
_LEFT_NEAR, _READ_NEAR = (0.76, 0.45), (0.3, 0.6)  # of a product's time, and of what its operations take of it


@seen(
    "0.0.42.1",
    "in loops over chunks on v5e scores of 64 MiB and less lay on the chip: the sum of their exponentials, 440 µs at "
    "once, took 107 to 151. Not between a product and a largest or a softmax alone, nor of elements. On v5p 1.0 to 1.2",
)
def waits_near(target: Target) -> float:
    """How much of its time a step takes, no product, whose arrays lie on the chip and not in memory."""
    return _NEAR if _has_near(target) else 1.0


def _has_near(target: Target) -> bool:
    return target.generation == "v5e" and target.names_slice


_ELEMENTS_NEAR = 0.8


@seen(
    "0.0.42.1",
    "before a product in chunks on v5e, relu of 32 and 64 MiB took 157 and 312 µs, exp of as much 292 and 583, and of "
    "128 MiB, which lie in memory, 806 and 1,348, as they do for an output",
)
def elements_near(target: Target) -> float:
    """How much of its time a function of elements takes that leaves them on the chip and not in memory."""
    return _ELEMENTS_NEAR if _has_near(target) else 1.0


@seen(
    "0.0.42.1",
    "there of 16384 × 8192 scores of heads of 64, 128, 256 and 512, in four trips, the product that leaves them took "
    "1,073, 1,003 to 1,056, 1,085 to 1,176 and 1,323 µs, of 1,200 to 1,370 at once, and that which reads them 212, 229 "
    "to 276, 364 to 432 and 718, of 470 to 740; in sixteen trips up to a tenth more. All steps together are priced "
    "0.95 to 1.01 of what is replayed",
)
def product_waits_near(computing: float, leaves_less: bool, target: Target) -> float:
    """How much of its time a product takes whose arrays lie on the chip: of that its operations take a share."""
    if not _has_near(target):
        return 1.0
    moving, operations = _READ_NEAR if leaves_less else _LEFT_NEAR
    return min(1.05, moving + operations * computing)


@seen(
    "0.0.42.1",
    "of `s = x · W; softmax_F(s) · V` on v5e:2x2 s of 4, 16 and 64 MiB of bf16 on a device lay on the chip: what left "
    "it took 17, 58 and 214 µs of 23, 81 and 315, so with batches, and with D=64 to 512; behind it the sum "
    "4, 8 and 28 of 8, 29 and 112 (`waits_near`), and the product that read it 6, 15 and 52 of 12, 36 and 134. Of 128 "
    "MiB they took as long as from memory",
)
def leaves_near(target: Target) -> float:
    """How much of the time to write it a product takes that leaves its result on the chip."""
    return 0.7 if _has_near(target) else 1.0


@seen(
    "0.0.42.1",
    "there 64 MiB on the chip were multiplied by a matrix of 64 and of 128 columns in 49 and 52 µs, and 16 MiB in 15: "
    "no sooner than the unit takes them, if it computes no longer",
)
def reads_near(target: Target) -> float:
    """How much of the time to read it a product takes at least of what lies on the chip, or nowhere."""
    return 0.43 if target.names_slice else 1.0


_STAYS = 112 * 2**20


@seen(
    "0.0.42.1",
    "of attention in chunks of T on v5e:2x4 V of 32 MiB, beside K of as much and pieces of scores of 16 and 32 MiB, "
    "lay on the chip: 64 products that read it took 19 µs each, of 19 priced. V of 64 MiB beside K of 64 did not: 118 "
    "µs, 128 times; a forward layer in a loop took 39.4 ms of 21.4",
)
def stays_near(size: int) -> bool:
    """Whether what all trips of a loop read lies on the chip, that has so many bytes with what else is there."""
    return size <= _STAYS


@seen(
    "0.0.42.1",
    "on v5e of 32 chips and more every permute holds up what follows, XLA's own too: 8192 × 8192 × 8192 scattered over "
    "X=16 of v5e:16x16 took 2,041 µs step by step and 4,359 as a ring, over X=8 of v5e:8x4 3,346 and 4,044. On "
    "v5e:2x4 and 4x4 they lay beside products, as on v5p:2x2x2 and 4x4x4. So did, in trips of loops too, what a plan "
    "sends by one to an idle axis: of the weights of two layers on v5e:2x2 746 µs of each that the first product does "
    "not read; on v5p:2x2x1 186 where that product waits for another, else nothing: it was begun behind the product",
)
def hides_permutes(target: Target) -> bool:
    """Whether the compiler does permutes beside products."""
    return not (target.generation == "v5e" and target.names_slice and target.mesh.devices > 16)


@seen(
    "0.0.42.1",
    "an AllGather was begun before a product that does not wait for it, of other statements too, and awaited after it: "
    "A[B_X, D] through four products with FSDP weights on v5e:2x4, X=8, took 1,535 µs of 2,031, three of four gathers "
    "hidden. In loops too. No ReduceScatter, AllReduce or AllToAll; no gather beside what only computes; one at a "
    "time. On v5p:2x2x2 none of the four",
)
def gathers_beside_products(target: Target) -> bool:
    """Whether the compiler does gathers beside products by itself."""
    return target.generation == "v5e" and target.names_slice


@seen(
    "0.0.42.1",
    "of `T = x · W; y = AllGather_X T; z = u · AllGather_X V` on v5e:2x4, y and z outputs, nothing was hidden, in "
    "whichever order they were written: 2,514 µs, 807 less by the rule above. So it was of gradients that are "
    "added up, scattered and gathered to outputs, over two axes or one, with a function between, or before two more "
    "products: 2,794, 3,245, 3,323 and 3,009 µs where 2,040, 2,008, 2,112 and 2,258 were priced. Where z reads no "
    "gather y was hidden beside it; so are outputs that are gathered of arguments. In a trip of a loop that stacks y "
    "both were hidden, V beside T and y beside z",
)
def holds_up_gathers(target: Target) -> bool:
    """Whether a gather of what a product left, to an output alone, comes before others begin (`cost.held_up`)."""
    return gathers_beside_products(target)


@seen(
    "0.0.42.1",
    "what a loop stacks that goes from the last row to the first was filled with zeros before, at the pace of an "
    "instruction that does nothing else: 64 MiB of bf16 in 492 µs on v5e:2x4 and 241 on v5p:2x2x2, where a relu of it "
    "takes 314 and 136. Going up it is not, since all of it is seen to be written; nor what `jax.lax.empty` makes",
)
def fills_before(down: bool, target: Target) -> bool:
    """Whether what a loop stacks is filled before."""
    return down and target.names_slice


@seen(
    "0.0.42.1",
    "a Slice along the last dim, of 128 to 2560 elements to 16, 32, 64, 96, 160, 192 and 320, was an instruction of "
    "its own, which wrote whole tiles: 262144 × 64 of bf16 on v5e 406 µs, as much as a copy of 262144 × 128; to 128, "
    "256 and 512 it was part of what read it, and so it was of 64 elements, which another dim fills lanes with. A "
    "share of whole tiles, along any dim, that a collective reads took 4.7 µs a MB of bf16 on v5e and 2.0 on v5p, as "
    "pieces do that are laid near",
)
def cuts_share_out(block: tuple[int, ...], share: tuple[int, ...]) -> bool:
    """Whether a share along the last dim of a block is cut out by itself, whatever reads it."""
    return len(share) > 1 and block[-1] >= LANES and share[-1] % LANES != 0


_MATRIX = 1 << 20  # bytes of one that takes longer than what is done beside it


@seen(
    "0.0.42.1",
    "of a product one operand of which has no dim of its own, a matrix and a vector, the compiler makes a loop that "
    "multiplies and adds up: 2048 × 16384 of bf16 and a vector take 313 µs on v5e and 107 on v5p, as the sum of their "
    "elements' products does; with two rows, equal ones too, 97 and 43. Beside other dims that are batched it is a "
    "product, 8 × 16 × 2048 × 128 and 8 × 16 × 128 take 117 µs on v5e, but not where a batched dim is of one element: "
    "1 × 16 × 2048 × 128 take 41 µs, and 16 × 2048 × 128 18",
)
def reads_vectors_twice(size: int) -> bool:
    """Whether the vector of a matrix of so many bytes is better given twice."""
    return size >= _MATRIX


_MATRICES, _SIDE, _TERMS = 256, 64, 32
_LITTLE = 16  # numbers of the smaller matrix, where its products lie far from each other


@seen(
    "0.0.42.1",
    "of many small matrices the compiler multiplies one after another: of bf16, [65536, 8, 8] · [65536, 8, 8] take "
    "3,054 µs on v5e and 1,150 on v5p, added up term by term 148 and 62; [8192, 32, 32] twice 1,307 and 625, 344 and "
    "138; of f32 as long. [4, 4096, 8, 2, 64] and [4096, 2, 2, 64], a rotation, take 29,178 and 10,726, and 241 and "
    "101. Of 72 sizes on each no product of up to 64 rows and columns and 32 terms took more so than 1.2 times as long "
    "on v5e, nor more at all on v5p; of 128 columns up to 16 times. Where the last dim tells matrices apart and one of "
    "them has few numbers, so it is of 1024 rows too: 55,332 and 20,228 µs, and 2,590 and 883. What a product reads is "
    "told apart: attention with a rotation of both its operands took 7,054 µs on v5e and 3,080 on v5p, its scores "
    "computed again, and behind a barrier 4,890 and 2,501",
)
def takes_terms(count: int, rows: int, summed: int, columns: int, last_is_counted: bool) -> bool:
    """Whether so many products of small matrices are better added up term by term."""
    if count < _MATRICES or not 1 < summed <= _TERMS or min(rows, columns) < 2:
        return False
    return max(rows, columns) <= _SIDE or (last_is_counted and summed * min(rows, columns) <= _LITTLE)


@seen(
    "0.0.42.1",
    "a mask of scores of several heads, compared for rows and columns alone, was an array by itself: of bf16, 8192 "
    "tokens and 4 heads of 64 on v5e, 67 MB made in 541 µs, of which each chunk took a part in 68. As wide as the "
    "scores, or made in each chunk, none was: in chunks 2,644 µs for 3,562, at once 4,298 for 4,735, on v5p 2,935 for "
    "3,316; with gradients 14,421 for 14,858 and 10,118 for 10,357. Of 4 × 2048 tokens and 128 within a fiftieth",
)
def stores_narrow_masks(target: Target) -> bool:
    """Whether a mask with fewer dims than what it masks is made before that, and read."""
    return target.generation in ("v5e", "v5p") and target.names_slice


_ROW = 256


@seen(
    "0.0.42.1",
    "of attention the loop that adds up exponentials took longer than either product: of bf16, 8 heads of 4 × 2048 "
    "tokens, 1,248 µs of 3,285 on v5e and 421 of 1,176 on v5p; as a product with ones 442 and 157, all of it 2,489 and "
    "914, and of v6e 695 for 1,153, of v4 1,804 for 2,362. Of 42 sizes those with rows of 256 and more took 0.53 to "
    "1.00 of their time, with rows of 128 up to 1.05 on v5p, of 16 up to 1.58. With memory as before. Where shares are "
    "scaled, or meet another array, before they are multiplied 0.37 to 0.75; where scores are given, 1.13 of it; "
    "where no product reads the shares, up to 1.04. The logsumexp of a product took 0.57 to 0.96, of 64 numbers and "
    "more; one of a given array of four dims up to 1.26",
)
def adds_up_as_product(row: int) -> bool:
    """Whether so many exponentials of what a product left are better added up by another."""
    return row >= _ROW


_LONG = 64


@seen(
    "0.0.42.1",
    "a sum of bf16 by itself took twice as long as one of what is computed, and that more than twice as long as a "
    "product with two rows of ones: 8192 × 8192 along either dim 1,166, 624 and 220 to 240 µs on v5e, 481, 211 and 76 "
    "to 87 on v5p; [8, 2048, 4096] along the first two, the second or the last as long. Of squares and of gelu as "
    "long. Of 64 numbers each 357 for 1,166, of 16 720; of all to one number as long either way. Of less than a MiB "
    "layers of LLaMA took 104 µs for 100 on v5p",
)
def adds_up_by_ones(size: int, summed: int, left: int) -> bool:
    """Whether so many bytes are better added up by a product: so many numbers for each of those that are left."""
    return size >= _MATRIX and summed >= _LONG and left > 1


@seen(
    "0.0.42.1",
    "8192 × 8192 of bf16 added up by ones along the last dim took 240 µs on v5e and 87 on v5p, along the first, in "
    "which time they are read, 220 and 76",
)
def by_ones_takes(is_last: bool) -> float:
    """How many times as long as it is to read an array it takes to add it up by ones, along its last dim or another."""
    return 1.1 if is_last else 1.0


@seen(
    "0.0.42.1",
    "`x[B, T, D] · W[D, H, E]` left as an output [B, H, T, E], of 2 × 2048 × 16 × 128 and D=2048, took 320 µs on v5e "
    "and 166 on v5p where dot_general reads W first, 216 and 91 where it reads x first; `P · V` left as [B, T, H, E] "
    "910 and 391, or 659 and 252; scores left as [B, T, H, S] 4,097 and 1,511, or 3,124 and 1,061. Of outputs alone: "
    "with scores and shares given so too, context-parallel attention with its gradients took 2,782 for 2,186 on v5p, "
    "and 1.42 times the memory",
)
def reads_last_dim_second(target: Target) -> bool:
    """Whether a product whose result is turned is better given the operand with the last dim second."""
    return target.names_slice


@seen(
    "0.0.42.1",
    "`Q[N, H, E] = AllGather_X (x[N_X, D] · W[D, H, E])` on v5e:2x2, N=16384, D=2048, heads of 128: in chunks of 16 "
    "numbers of each head 9,272, 18,541 and 36,743 µs of 32, 64 and 128 heads; in chunks of 4, 8 and 16 heads 5,081, "
    "3,793 and 7,726; step by step 2,328, 4,609 and 9,214",
)
def cuts_whole_tiles(shape: Shape, place: int, count: int) -> bool:
    """Whether so many chunks along a dim of a block are whole tiles: what is part of one is laid anew."""
    tile = {len(shape) - 1: LANES, len(shape) - 2: ROWS}.get(place, 1)
    return shape[place] % (count * tile) == 0


@seen(
    "0.0.42.1",
    "on v5p causal attention of 4 × 4096 tokens on a device, 8 heads of 128, D=4096: scores took 3,550 µs with keys "
    "made in their loop, all of it 7,539, and 6,013 with these apart; a layer of LLaMA, D=4096, 25,074 and 22,104. "
    "Nothing changed in 20 other programs, which have no scores, or whose keys others read too, but by 1.007 of the "
    "time of one with D=1024; nor on v4, v5e, v6e",
)
def makes_products_again(target: Target) -> bool:
    """Whether a product that another one reads is better taken apart."""
    return target.generation == "v5p" and target.names_slice


@seen(
    "0.0.42.1",
    "on v5p shares of 1 GiB that two products of causal attention and its gradients read, 4 × 4096 tokens and 8 heads "
    "on a device, were written, in 2,138 µs; so of nine others, but of three whose scores [B, T, H, S] have one head "
    "or one sequence on a device, which took 0.8 of their price. On v5e each product computed them as it read",
)
def keeps_shares(target: Target) -> bool:
    """Whether shares that several products read are written for all of them."""
    return target.generation == "v5p" and target.names_slice


@seen(
    "0.0.42.1",
    "of `A[I, J] · B[J, K]` with I=64 B was brought to the chip first: up to 104 MiB on v5e (not 128), 46 on v5p (not "
    "48), 64 on v6e (not 128) and 128 on v4. Of a B of 64 MiB of which a share is read all was brought on v5e, for 83 "
    "µs, behind a barrier too. One argument is waited for; what is brought for later products, beside those before",
)
def brings_at_most(target: Target) -> int:
    """The bytes of an argument that may be brought whole to the chip, before what reads it first."""
    return _BROUGHT.get(target.generation, 0) if target.names_slice else 0


@seen(
    "0.0.42.1",
    "of bf16, a product of 16384 tokens and its norm, softmax, largest or logsumexp along its last dim, D and V of 512 "
    "to 8192: told to lie in order 0.40 to 1.00 of the time, in 60 cases on v5e and v5p; 8192 tokens on each of v5p, "
    "D=2048, a residual stream and its norm, both outputs: 596 µs as the compiler lays it, 293 behind a barrier, 240 "
    "so, with 34 MB less. Of f32 0.86 to 1.39. Of what nothing leaves, heads that are normed and a layer's streams "
    "within, 1.00 to 1.08; of a last dim of 64, 192, 320, 1000 and 5000 1.4 to 3",
)
def is_laid_in_order(dtype: DType, target: Target, last: int = LANES) -> bool:
    """Whether a product that is summed along a dim, and read by others, is better told how to lie; its last dim is of
    whole lanes, where nothing else is said."""
    return target.names_slice and dtype == DTYPES["bf16"] and last % LANES == 0
