"""What is held in memory, how much and how long: rules, as in `lowering.tpu`; most are of products that are done as one
with collectives."""

from __future__ import annotations

from shardc.ir.operations import Kind
from shardc.ir.plan import How
from shardc.lowering import tpu
from shardc.lowering.observed import seen
from shardc.lowering.target import Target

MOST_BROUGHT = 64 * 2**20  # bytes of an operand of all products of a ring, in whole or in part, on the chip
CHUNKS_THAT_COME = 2  # gathered, before a product: one on its way, one that is read
_NEAR_FUNCTIONS = 16 * 2**20
_MOST_IN_TRIPS = 48 * 2**20
_BRINGS = 48 * 2**20  # bytes of a block, of which more than one is on the chip at once


@seen(
    "0.0.42.1",
    "a ring whose sum goes to all leaves it gathered beside its output; a ring that gathers or scatters took no more "
    "than its steps, chunks before less. Of chunks gathered behind a product on v5e seven of eight lay in memory, on "
    "v5p one: beside what they make where that is read, in its place where it becomes an output (1.04 and 1.3 to 1.4 "
    "of what is taken are promised then)",
)
def held_as_one(how: How, ends_in: Kind, size: int, is_read: bool, target: Target) -> int:
    """Bytes that a product done as one with a collective behind it takes beside its steps; that leaves so many bytes,
    which are read, or become an output as they are or by functions."""
    if how is How.RING and ends_in is Kind.SUM:
        return size
    if how is not How.CHUNKS or ends_in is not Kind.GATHER or not is_read:
        return 0
    return size * 7 // 8 if tpu.on_chip(target) else size // 8


@seen(
    "0.0.42.1",
    "on v5e eight pieces of 1 to 8 MiB, of an argument, of functions of it, of a softmax or a norm, were cut before "
    "any was gathered, and lay in memory, however small: all but the one that was gathered first, and another where "
    "the output would be (1.02 to 1.04 of what is taken are promised)",
)
def cut_in_memory(size: int, pieces: int) -> int:
    """Bytes in memory of an array of so many that is cut to pieces, to be gathered one by one before a product."""
    return size * (pieces - 1) // pieces


@seen(
    "0.0.42.1",
    "of two rings on v5e nothing was in memory where their sum in f32 and two blocks of each operand were 80 MiB; of "
    "more, the sum, and of four blocks of 32 MiB one; all where a block had 64 MiB, or the sum 256. Where an operand "
    "has blocks of several of the other, one of its blocks more. Of 17 products all memory is within a tenth for 15; "
    "else 1.20, 1.23",
)
def held_by_two_rings(blocks: tuple[int, int], summed: int, is_cut: bool, target: Target) -> int:
    """Bytes in memory of two rings with a block of each operand, the second of which may be `is_cut`, and a sum."""
    room, of_both = tpu.on_chip(target), 2 * sum(blocks)
    if summed + of_both < room:
        return 0
    left = of_both if max(blocks) > _BRINGS or summed > room else max(0, of_both - room)
    return summed + left + (blocks[1] if is_cut else 0)


@seen(
    "0.0.42.1",
    "on v5e W of 64 MiB, which the first of three products read, was given up after it, and there again as the last "
    "one began, that leaves 64, 8 or 2 MiB: what that read, of 64 MiB, lay in memory, and of 32 on the chip. Of a "
    "feed-forward block one result of 32 MiB lay there, beside two others that the last product read and left to a "
    "ReduceScatter. Behind a product of 64 MiB, which lay on the chip, functions of it took that long: W came beside "
    "the last of them, which moves 128",
)
def comes_beside(moved: int, size: int) -> bool:
    """Whether an argument of so many bytes, brought early and given up, comes again, for the next time that the program
    runs, beside functions that read and write so many; else beside the last product."""
    return moved >= size * 2


@seen("0.0.42.1", "of rings on v5e of 2, 4 and 16 devices one, three and four blocks came at once")
def blocks_that_come(devices: int) -> int:
    """How many blocks of what a ring gathers are there at once: two on their way each way round, two that are read."""
    return min(devices - 1, 4)


@seen(
    "0.0.42.1",
    "of rings on v5e of 2, 4 and 16 devices two, four to five and six to thirteen blocks of a sum were there at once, "
    "in memory and on the chip; all of them where other products came before the sums",
)
def blocks_that_go(devices: int) -> int:
    """How many blocks of what a ring adds up are there at once: sums on their way each way round, what is added."""
    return devices if devices == 2 else max(min(devices, 4), devices * 3 // 4) + 1


@seen(
    "0.0.42.1",
    "of rings on v5e whose blocks of both turns are one product, of 4, 8 and 16 devices, four, six and six blocks were "
    "there at once, of 16, 32 and 64 MiB all, three and one of them on the chip: 3 to 13 MB, 103 to 113 and 337 in "
    "memory, of 4 devices 0, 34 and 201",
)
def pairs_that_go(devices: int) -> int:
    """How many such blocks are there at once; nothing is brought beside them."""
    return min(devices, 6)


@seen(
    "0.0.42.1",
    "on v5e an AllReduce of a product's partial sums, beside which a gather had begun that was read after, left them "
    "in a buffer of its own: of a gradient that is sliced, added to, or read by a product, in bf16 and f32 (0.60 to "
    "0.70 of what is taken was promised). Where nothing was gathered, or the sum is an output, and on v5p, in their "
    "place",
)
def adds_up_apart(target: Target) -> bool:
    """Whether partial sums are added up beside the product's result where a gather is under way since before it."""
    return tpu.moves_early(target)


@seen(
    "0.0.42.1",
    "an output that lies as an AllGather left it is copied to its place after all other steps, beside what these need: "
    "of two arrays that are gathered 0.78 was promised, of ZeRO-1 with its gradients on v5p 0.85; of a feed-forward "
    "block on v5e a gradient that was gathered beside the products of the others. So is what an AllToAll left that "
    "lies as it arrived: of two to six alone, or behind functions and products, of two dims, the first joined; of 19 "
    "others of two to four dims none was, whose copies turn them",
)
def copied_at_the_end(kind: Kind, lies_as_it_arrived: bool) -> bool:
    """Whether an output that lies as such a step left it is copied to its place at the end of the program."""
    return kind is Kind.GATHER or (kind is Kind.EXCHANGE and lies_as_it_arrived)


@seen(
    "0.0.42.1",
    "`where(h > 0, dy · V, 0)` and `P ⊙ (do · V - t)` lay where h and P did, of feed-forward blocks and of attention "
    "without heads, on v5e and v5p; of attention with heads, whose products have dims of batches, beside P",
)
def lies_in_place(is_batched: bool) -> bool:
    """Whether functions of a product's elements and of an array, which is not read again, are left in its place."""
    return not is_batched


@seen(
    "0.0.42.1",
    "on v5e what was computed with a product, and added to an array of 32 MiB that had been gathered, had a place of "
    "its own on the chip, and a third array of that size none; an output over a product of 64 MiB, which was on the "
    "chip, lay in its own. Of latent_attention and gated, with arrays of up to 16 MiB, one place for both is nearer",
)
def shares_place(is_over_product: bool, fits_twice: bool, size: int) -> bool:
    """Whether what is written over another array has its place on the chip too; in memory it has."""
    return fits_twice and (is_over_product or not tpu.off_chip(size))


@seen(
    "0.0.42.1",
    "`S = x · W; P = softmax_V(S)`, `S - max_N(S)`, `S ⊙ sum_V(S)`, or `S ⊙ R` of two products, of two and three dims "
    "and in whatever order, took no memory beside P, on v5e and v5p; what another product read did, what was added "
    "up over devices along V, and scores of attention with heads; on v5e what fits on the chip was there for whom "
    "reads it, and W that was gathered was not",
)
def may_become_output(is_tiled: bool, fits_twice: bool) -> bool:
    """Whether what a product left may be overwritten by an output that is made of it, element by element: not where it
    has batches, another product reads it, or what is added up of it is sent, whose tiles are others."""
    return not is_tiled and not fits_twice


@seen(
    "0.0.42.1",
    "on v5p fsdp with its gradients takes 1,342 MB, which the largest first reach, and in order of time 1,410; zero_1, "
    "zero_2, llama_layer and rotary are nearer so by up to a tenth, and none is above. On v5e hybrid_sharding takes "
    "more than is reached so; nor was it where a block is permuted and gathered: 48 MiB for 40, of blocks of 8 and 32",
)
def may_place_largest_first(sends_whole: bool, target: Target) -> bool:
    """Whether temporaries are placed by their sizes, where they reach less far so than in order of time: not where
    permutes send whole blocks."""
    return not sends_whole and not tpu.moves_early(target)


@seen(
    "0.0.42.1",
    "on v5p permutes of two operands, A and B, of 2 MiB each, began both before A was gathered: 12 MiB were taken, 10 "
    "are needed in turn. So did those of the weights of a second product before the first one's were gathered, 72 "
    "of 48, and of a third product, whose gather followed them there, 20 of 16",
)
def begins_permutes_early(target: Target) -> bool:
    """Whether permutes are begun as soon as what they send is there, whatever else could be done first."""
    return target.generation == "v5p"


@seen(
    "0.0.42.1",
    "on v5p causal_attention with its gradients was compiled step by step as it is gone through from its end, first "
    "into what has most readers behind it: its first output came last, all AllReduces of its weights as one. 8.6 MiB "
    "were taken so, of 26.8 that were promised; of a gated block 172.4 of 196. Where as many bytes or more are there "
    "at once so, as of fsdp, mlp and data_parallel, it was not taken",
)
def takes_depth_first(most: int, otherwise: int) -> bool:
    """Whether the steps are taken depth first, where so many bytes are there at once, and in other orders so many."""
    return most < otherwise


@seen(
    "0.0.42.1",
    "on v5p of `x · W + 2 ⊙ (x · A) · M`, all sharded, with its gradients each order has 117 MB there at once, and the "
    "one of steps that leave least was compiled: 67 MB of temporaries were taken, of 34 in another. So of layer_norm "
    "with its gradients, and of cross entropy. Where a permute is on its way what is there was not so",
)
def is_taken_step_by_step(most: int, least: int) -> bool:
    """Whether each step may be the one that leaves least when it is its turn, where so many bytes are there at once so,
    and no more than so many less in another order."""
    return most * 200 <= least * 201


@seen(
    "0.0.42.1",
    "on v5p `a ⊙ b + c ⊙ d`, which two products read, took no memory of 2 to 44 MiB, and of 48 all; of llama_layer "
    "with its gradients three arrays of 8 MiB that functions leave were on the chip, of what products and collectives "
    "leave none from its making on, nor was a sum that an AllGather read. Of more than 16 MiB at once not all was: of "
    "its arrays of 18 MiB one lay in memory",
)
def near_functions(target: Target) -> int:
    """How many bytes of what functions of elements alone leave lie on a chip that has no such room for others."""
    return _NEAR_FUNCTIONS if target.generation == "v5p" else 0


@seen(
    "0.0.42.1",
    "of layers and micro_batches with their gradients on v5e:2x4 arrays of 32 and 48 MiB that a trip makes and reads, "
    "or that are carried, were on the chip, where they found room, and of 64 MiB not all; so was what is carried "
    "beside an array that waits for it. What a loop stacks, of 32 MiB and more, lay in memory",
)
def lies_in_memory_in_trips(size: int) -> bool:
    """Whether an array that a trip of a loop makes, or that is carried, is too large for the chip."""
    return size > _MOST_IN_TRIPS


_FOR_BROUGHT = 4 * 2**20


@seen(
    "0.0.42.1",
    "beside a weight of 4 MiB that was brought early, and x of 4, three arrays of 32 lay on v5e's chip at once: of a "
    "block with sequences sharded, forward and backward, 67.6 MB were taken where 84.4 were promised. Of 94 programs "
    "on v5e:2x4 two of attention would be promised less than they take with 12 MiB for it, with 4 none",
)
def taken_by_brought(size: int) -> int:
    """Of the room for temporaries on the chip what an argument takes that is brought early: it has some of its own."""
    return max(0, size - _FOR_BROUGHT)
