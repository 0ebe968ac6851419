"""What is known of the TPU's compiler is known from somewhere: every rule has its observation."""

import inspect
import re

import pytest

from shardc.ir.collectives import AllGather, AllReduce, AllToAll, ReduceScatter, Slice
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum, How
from shardc.lowering import around, held, rounds, scattered, timed, tpu, work
from shardc.lowering.observed import OBSERVATIONS
from shardc.lowering.target import Target
from shardc.lowering.tpu import Beside

RULES = {
    name
    for module in (around, tpu, timed, held, work, rounds, scattered)
    for name, made in inspect.getmembers(module, inspect.isfunction)
    if made.__module__ == module.__name__ and name[0] != "_" and name != "seen"
}


def test_every_rule_has_an_observation_and_every_observation_a_rule():
    assert set(OBSERVATIONS) == RULES and len(RULES) > 10


def test_an_observation_says_of_which_libtpu_and_what():
    for name, found in OBSERVATIONS.items():
        assert all(re.search(r"\d+(\.\d+)+$", each) for each in re.split("[,;] ", found.libtpu)), name
        assert len(found.what.split()) > 3, name


def target(topology: str, **axes: int) -> Target:
    generation, _, sides = topology.partition(":")
    given = tuple(int(side) for side in sides.split("x") if side != "1") if sides else None
    return Target(Mesh.of(axes), given, generation)


V5E, V5P, FLAT = target("v5e:4x4", X=4, Y=4), target("v5p:2x4", X=2, Y=4), target("v5p:4x4x4", X=64)
UNNAMED, ALL, PART = Target(Mesh.of({"X": 8, "Y": 8})), ("X", "Y"), ("X",)
BF16, F32 = DTYPES["bf16"], DTYPES["f32"]
PLAIN = Target(Mesh.of({"X": 8, "Y": 8}), is_plain=True)
MIB = 2**20
EDGES = [  # a rule, then cases of it: what it says on either side of what was observed, or of a tile
    (tpu.joins_sum_and_reader, [((V5E,), True), ((UNNAMED,), True), ((PLAIN,), False)]),
    (tpu.is_scattered, [((DTYPES["bf16"],), True), ((DTYPES["f32"],), True), ((DTYPES["int32"],), False)]),
    (timed.brings_at_most, [
        ((V5E,), 104 * MIB), ((V5P,), 46 * MIB), ((target("v6e:2x2", X=4),), 64 * MIB),
        ((target("v4:2x2x1", X=4),), 128 * MIB), ((UNNAMED,), 0), ((PLAIN,), 0),
    ]),
    (tpu.is_whole_tiles, [(((16, 256),), True), (((8, 256),), False), (((16, 128),), False), (((3, 32, 512),), True)]),
    (tpu.lies_turned, [(((256, 16),), True), (((256, 128),), False), (((128, 16),), False), (((3, 256, 16),), True)]),
    (tpu.may_be_folded, [(((2048,),), True), (((1024,),), False), (((2056,),), False)]),
    (tpu.is_large_share, [((2**16,), True), ((2**16 - 1,), False)]),
    (tpu.may_exchange, [((V5E,), True), ((UNNAMED,), False), ((PLAIN,), False)]),
    (tpu.is_not_scattered_over, [
        ((ALL, V5E), True), ((PART, V5E), False), ((ALL, V5P), False), ((PART, target("v5e:2x2", X=4)), False),
        ((PART, target("v5p:2x2x2", X=8)), True), ((ALL, UNNAMED), True), ((PART, UNNAMED), False),
        ((PART, Target(Mesh.of({"X": 32}))), False), ((ALL, PLAIN), False),
    ]),
    (tpu.is_not_gathered_over, [
        ((PART, FLAT), True), ((ALL, V5E), False), ((ALL, UNNAMED), True), ((PART, UNNAMED), False),
        ((ALL, PLAIN), False),
    ]),
    (timed.cuts_share_out, [
        (((8, 512), (8, 64)), True), (((8, 512), (8, 128)), False), (((8, 64), (8, 8)), False),
        (((8, 128), (8, 16)), True), (((512,), (64,)), False), (((8, 1536), (8, 192)), True),
    ]),
    (tpu.may_be_rows, [(((8, 128), V5P), True), (((8, 64), V5P), False), (((8, 128), V5E), False)]),
    (tpu.is_thin, [(((8, 1, 8), 4), True), (((8, 2, 8), 4), False), (((1, 8), 4), False), (((8, 1, 8), 1), False)]),
    (scattered.left_out, [
        ((1, (1, 128, 1024), V5E), (0,)), ((0, (128, 1, 1024), V5P), (1,)), ((2, (1, 1, 128, 1024), V5E), (0, 1)),
        ((1, (1, 16384), V5P), (0,)), ((2, (1, 512, 256), V5E), (0,)), ((1, (1, 128, 1024), UNNAMED), ()),
        ((1, (2, 128, 1024), V5E), ()), ((1, (1, 1, 1024), V5E), (0,)), ((1, (1, 128, 1024), PLAIN), ()),
    ]),
    (scattered.has_a_tile, [
        (((2048, 8),), True), (((2048, 5, 4),), False), (((2048, 16, 4),), True), (((2, 2, 8192, 4),), False),
    ]),
    (scattered.is_at_an_end, [
        ((0, 4), True), ((1, 4), False), ((2, 4), True), ((3, 4), True), ((2, 5), False), ((1, 3), True),
    ]),
    (scattered.lies_in_front, [
        (((2, 8, 128),), True), (((2, 4, 128),), False), (((2, 8, 64),), False), (((8, 128),), False),
        (((2, 3, 24, 384),), True), (((1, 8, 128),), False),
    ]),
    (
        scattered.copies_to_stack,
        [((4, 4 * MIB), 1.75), ((7, 4 * MIB), 1.75), ((8, 4 * MIB), 1), ((4, 4 * MIB - 1), 3)],
    ),
    (scattered.held_to_stack, [
        ((64 * MIB, 4), (32 * MIB, 64 * MIB)), ((48 * MIB, 4), (24 * MIB, 0)), ((64 * MIB, 8), (0, 64 * MIB)),
    ]),
    (
        scattered.is_told_to_lie,
        [((0, False, True), False), ((1, False, True), True), ((0, True, True), True), ((0, False, False), True)],
    ),
    (scattered.lies_apart, [
        (((32, 256),), True), (((16, 256),), False), (((32, 128),), True), (((32, 64),), False), (((32,),), False),
        (((32, 16, 256),), False),
    ]),
    (timed.writes_after, [((V5P,), True), ((V5E,), False), ((target("v5p", X=4),), False)]),
    (timed.is_laid_in_order, [
        ((BF16, V5E, 128), True), ((BF16, V5E, 192), False), ((BF16, V5E, 64), False), ((BF16, V5P, 256), True),
        ((BF16, V5P), True), ((F32, V5E, 128), False), ((BF16, UNNAMED, 128), False), ((BF16, PLAIN, 128), False),
    ]),
    (held.pairs_that_go, [((3,), 3), ((4,), 4), ((6,), 6), ((16,), 6)]),
    (around.multiplies_in_pairs, [
        ((256, 105 * MIB, V5E), True), ((257, 105 * MIB, V5E), False), ((256, 104 * MIB, V5E), False),
        ((128, 47 * MIB, V5P), True), ((129, 47 * MIB, V5P), False), ((128, 46 * MIB, V5P), False),
        ((64, 2**30, UNNAMED), False), ((64, 2**30, PLAIN), False),
    ]),
    (around.waits_for_gather, [
        ((723, 745, V5E), True), ((723, 1118, V5E), False), ((1446, 1118, V5P), True), ((1446, 1118, UNNAMED), False),
        ((3, 4, V5E), False),
    ]),
    (timed.hides_permutes, [
        ((V5E,), True), ((target("v5e:4x8", X=4, Y=8),), False), ((target("v5p:4x4x4", X=4, Y=16),), True),
        ((target("v5e", X=32),), True),
    ]),
    (timed.takes_terms, [
        ((256, 64, 32, 64, False), True), ((255, 64, 32, 64, False), False), ((256, 65, 32, 64, False), False),
        ((256, 64, 33, 64, False), False), ((256, 64, 32, 65, False), False), ((256, 64, 1, 64, False), False),
        ((256, 1, 8, 64, False), False), ((256, 64, 8, 1, False), False), ((256, 2, 2, 2, False), True),
        ((256, 1024, 8, 2, True), True), ((256, 1024, 9, 2, True), False), ((256, 2, 8, 1024, True), True),
        ((256, 1024, 8, 2, False), False), ((256, 64, 32, 64, True), True),
    ]),
    (timed.stores_narrow_masks, [
        ((V5E,), True), ((V5P,), True), ((UNNAMED,), False), ((target("v6e", X=4),), False),
        ((target("v5e", X=4),), False),
    ]),
    (timed.adds_up_as_product, [((256,), True), ((255,), False)]),
    (timed.by_ones_takes, [((True,), 1.1), ((False,), 1.0)]),
    (timed.adds_up_by_ones, [
        ((MIB, 64, 2), True), ((MIB - 1, 64, 2), False), ((MIB, 63, 2), False), ((MIB, 64, 1), False),
    ]),
    (timed.reads_last_dim_second, [((V5E,), True), ((V5P,), True), ((UNNAMED,), False), ((PLAIN,), False)]),
    (timed.makes_products_again, [
        ((V5P,), True), ((V5E,), False), ((UNNAMED,), False), ((target("v5p", X=4),), False),
    ]),
    (timed.keeps_shares, [((V5P,), True), ((V5E,), False), ((UNNAMED,), False), ((target("v5p", X=4),), False)]),
    (timed.cuts_whole_tiles, [
        (((4096, 64, 128), 1, 8), True), (((4096, 32, 128), 1, 8), False), (((4096, 64, 128), 2, 8), False),
        (((4096, 1024), 1, 8), True), (((4096, 512), 1, 8), False), (((64, 1024), 0, 8), True),
        (((8, 64, 128), 0, 8), True), (((12, 64, 128), 0, 8), False), (((1024,), 0, 8), True),
    ]),
    (timed.reads_vectors_twice, [((MIB,), True), ((MIB - 1,), False)]),
    (timed.gathers_beside_products, [((V5E,), True), ((V5P,), False), ((target("v5e", X=4),), False)]),
    (timed.holds_up_gathers, [((V5E,), True), ((V5P,), False), ((target("v5e", X=4),), False)]),
    (timed.stays_near, [((112 * MIB,), True), ((112 * MIB + 1,), False)]),
    (timed.waits_near, [((V5E,), 0.3), ((V5P,), 1.0), ((UNNAMED,), 1.0)]),
    (timed.leaves_near, [((V5E,), 0.7), ((V5P,), 1.0), ((UNNAMED,), 1.0)]),
    (timed.reads_near, [((V5E,), 0.43), ((V5P,), 0.43), ((UNNAMED,), 1.0)]),
    (timed.elements_near, [((V5E,), 0.8), ((V5P,), 1.0), ((UNNAMED,), 1.0)]),
    (
        timed.product_waits_near,
        [((0.2, False, V5E), 0.85), ((0.9, False, V5E), 1.05), ((0.5, True, V5E), 0.6), ((0.2, True, V5P), 1.0)],
    ),
    (around.prices_of_rings_hold, [((V5E,), True), ((V5P,), False), ((target("v5e", X=4),), False)]),
    (held.taken_by_brought, [((4 * MIB,), 0), ((64 * MIB,), 60 * MIB)]),
    (tpu.is_brought_early, [((64 * MIB, 112 * MIB), True), ((128 * MIB, 112 * MIB), False)]),
    (tpu.off_chip, [((16 * MIB,), 0), ((16 * MIB + 1,), 16 * MIB + 1)]),
    (tpu.pieces_off_chip, [((4, 8 * MIB, False), 0), ((4, 8 * MIB, True), 3), ((8, 8 * MIB, False), 4)]),
    (tpu.sends_rows, [(((8, 64),), True), (((8, 128),), False), (((8, 8, 64),), False)]),
    (tpu.copies_before_gather, [(((8, 64), 1), True), (((8, 64), 0), False), (((8, 128), 1), False)]),
    (tpu.flattens_rows, [(((4, 4, 8), 2 * MIB), True), (((4, 8, 4), 2 * MIB), False), (((4, 4, 8), MIB), False)]),
    (tpu.copied_again, [((MIB,), MIB), ((MIB - 1,), 0)]),
    (tpu.copies_before_exchange, [((0,), False), ((1,), True), ((2,), True)]),
    (tpu.copies_input_too, [
        ((0, (8, 128), 48 * MIB + 1, True, V5E), True), ((0, (8, 128), 48 * MIB, True, V5E), False),
        ((0, (8, 128), 1, True, V5P), True), ((0, (8, 128), 1, False, V5P), False),
        ((1, (8, 128), 1, False, V5P), True), ((1, (8, 128), 1, True, V5P), False),
        ((0, (8, 8, 128), 1, True, V5P), False),
    ]),
    (tpu.copies_twice, [
        ((1, (8, 128), True), True), ((1, (8, 128), False), False), ((0, (8, 64), True), False),
        ((2, (8, 8, 128), False), True), ((1, (8, 8, 128), False), False), ((1, (8, 8, 64), False), True),
        ((2, (8, 8, 64), False), True), ((0, (8, 8, 64), True), False),
    ]),
    (tpu.lies_as_it_arrived, [
        ((0, (4, 8), (16, 8)), True), ((1, (4, 8), (4, 32)), False), ((0, (4, 8, 8), (16, 8, 8)), False),
        ((0, (4, 1, 8), (16, 1, 8)), True), ((0, (1, 8, 8), (4, 8, 8)), True), ((0, (2, 8, 8), (8, 8, 8)), False),
    ]),
    (tpu.is_turned_by_gather, [(((8, 64), 1), True), (((8, 64), 0), False), (((8, 128), 1), False)]),
    (tpu.copies_to_turn, [(((0,), 2), 0), (((0, 1), 2), 2), (((0, 1), 3), 1), (((0, 2), 3), 2)]),
    (tpu.copies_rows, [(((8, 64), 2), True), (((8, 128), 2), False), (((8, 64), 1), False), (((64, 200), 2), True)]),
    (tpu.is_computed_in_loop, [((True,), False), ((False,), True)]),
    (held.held_as_one, [
        ((How.RING, Kind.SUM, 64, False, V5E), 64), ((How.RING, Kind.GATHER, 64, True, V5E), 0),
        ((How.RING, Kind.SCATTER, 64, True, V5E), 0), ((How.CHUNKS, Kind.GATHER, 64, True, V5E), 56),
        ((How.CHUNKS, Kind.GATHER, 64, False, V5E), 0), ((How.CHUNKS, Kind.GATHER, 64, True, V5P), 8),
        ((How.CHUNKS, Kind.SUM, 64, True, V5E), 0), ((How.PARTITIONER, Kind.SUM, 64, True, V5E), 0),
    ]),
    (held.blocks_that_come, [((2,), 1), ((4,), 3), ((16,), 4)]),
    (held.blocks_that_go, [((2,), 2), ((4,), 5), ((16,), 13)]),
    (held.lies_in_place, [((False,), True), ((True,), False)]),
    (held.may_become_output, [((False, False), True), ((True, False), False), ((False, True), False)]),
    (held.cut_in_memory, [((16 * MIB, 8), 14 * MIB), ((8 * MIB, 2), 4 * MIB)]),
    (held.begins_permutes_early, [((V5P,), True), ((V5E,), False), ((UNNAMED,), False)]),
    (held.shares_place, [
        ((True, True, 17 * MIB), True), ((True, False, 17 * MIB), False), ((False, True, 16 * MIB), True),
        ((False, True, 17 * MIB), False),
    ]),
    (held.comes_beside, [((128 * MIB, 64 * MIB), True), ((128 * MIB - 1, 64 * MIB), False)]),
    (
        held.copied_at_the_end,
        [
            ((Kind.GATHER, False), True),
            ((Kind.EXCHANGE, True), True),
            ((Kind.EXCHANGE, False), False),
            ((Kind.PERMUTE, False), False),
        ],
    ),
    (held.held_by_two_rings, [  # in MiB, as compiled, but for 160 in the fifth
        (((16 * MIB, 16 * MIB), 64 * MIB, False, V5E), 64 * MIB),
        (((16 * MIB, 16 * MIB), 16 * MIB, False, V5E), 0),
        (((32 * MIB, 32 * MIB), 16 * MIB, False, V5E), 48 * MIB),
        (((32 * MIB, 32 * MIB), 64 * MIB, False, V5E), 96 * MIB),
        (((32 * MIB, 32 * MIB), 256 * MIB, False, V5E), 384 * MIB),
        (((64 * MIB, 16 * MIB), 16 * MIB, False, V5E), 176 * MIB),
        (((16 * MIB, 16 * MIB), 64 * MIB, True, V5E), 80 * MIB),
        (((1, 2), 8, True, V5P), 16),
    ]),
    (tpu.in_memory, [
        ((0, Beside(3, 1), V5E), 512), ((MIB, Beside(1, 0), V5E), MIB + 32768),
        ((100, Beside(3, 0), V5P), 100 + 3 * 32768), ((100, Beside(1, 2), V5P), 100 + 3 * 32768 + 2 * 16384),
    ]),
    (rounds.rounds_before, [
        ((AllGather(PART, 0).facts,), True), ((Slice(PART, 0).facts,), True), ((AllReduce(PART).facts,), False),
        ((Einsum.facts,), False),
    ]),
    (rounds.leaves_what_it_is_given, [
        (("relu",), True), (("where",), True), (("maximum",), True), (("neg",), False), (("square",), False),
        (("sign",), False),
    ]),
    (rounds.is_one_kernel, [((Apply("softmax", ("J",)),), True), ((Apply("relu"),), False), ((Einsum(),), False)]),
    (rounds.copies_what_it_was_asked_for, [
        ((AllToAll(PART, 0, 1).facts, 4), True), ((AllToAll(PART, 0, 1).facts, 3), False),
        ((AllGather(PART, 0).facts, 4), False),
    ]),
    (rounds.leaves_the_largest, [((Apply("max", (1,)),), True), ((Apply("min", (1,)),), False)]),
    (rounds.widens_as_it_reads, [((Apply("widen"),), True), ((Apply("cast"),), False)]),
    (rounds.are_one_sum, [
        ((ReduceScatter(PART, 0), AllGather(PART, 0)), True), ((ReduceScatter(PART, 1), AllGather(PART, 0)), False),
        ((AllGather(PART, 0), AllGather(PART, 0)), False), ((AllReduce(PART), AllGather(PART, 0)), False),
    ]),
    (timed.fills_before, [((True, V5E), True), ((False, V5E), False), ((True, UNNAMED), False)]),
    (work.computes_again, [((V5P,), (12,)), ((V5E,), (12, 0))]),
    (work.is_done_within, [
        ((2 * MIB, V5E), True), ((2 * MIB + 1, V5E), False), ((2 * MIB, V5P), True), ((1, UNNAMED), False),
        ((1, target("v6e:2x2", X=4)), False),
    ]),
    (work.work_of, [
        ((Apply("div"), BF16), 8), ((Apply("div"), F32), 12), ((Apply("silu"), BF16), 12), ((Apply("exp"), F32), 1),
        ((Einsum(), F32), 1),
    ]),
    (tpu.on_chip, [((V5E,), 96 * MIB), ((V5P,), 0)]),
    (tpu.moves_early, [((V5E,), True), ((V5P,), False)]),
    (held.may_place_largest_first, [((False, V5E), False), ((False, V5P), True), ((True, V5P), False)]),
    (held.adds_up_apart, [((V5E,), True), ((V5P,), False)]),
    (held.is_taken_step_by_step, [((200, 200), True), ((201, 200), True), ((202, 200), False)]),
    (held.takes_depth_first, [((44, 46), True), ((46, 46), False), ((48, 40), False)]),
    (held.lies_in_memory_in_trips, [((48 * MIB,), False), ((64 * MIB,), True)]),
    (held.near_functions, [((V5P,), 16 * MIB), ((V5E,), 0), ((UNNAMED,), 0)]),
    (tpu.copies_beside_product, [
        ((True, True, False), True), ((False, True, False), False), ((True, False, False), False),
        ((True, True, True), False),
    ]),
    (tpu.slices_as_it_reads, [((Slice(PART, 0),), False), ((Apply("logsumexp", (1,)),), True)]),
    (tpu.sums_what_meets_tiles, [((V5E,), True), ((UNNAMED,), True), ((PLAIN,), False)]),
    (tpu.is_one_instruction, [(("add",), True), (("cast",), True), (("relu",), False), (("where",), False)]),
    (tpu.reads_digits, [((Einsum(), V5E), True), ((Apply("relu"), V5E), False), ((Einsum(), V5P), False)]),
    (tpu.cuts_what_it_reads, [((Slice(PART, 0),), True), ((AllGather(PART, 0),), False)]),
]  # fmt: skip


@pytest.mark.instant
@pytest.mark.parametrize(("rule", "cases"), EDGES, ids=[rule.__name__ for rule, _ in EDGES])
def test_a_rule_says_what_was_seen_on_either_side_of_its_edges(rule, cases):
    assert [(given, rule(*given)) for given, _ in cases] == cases


def test_every_rule_has_its_edges():
    assert {rule.__name__ for rule, _ in EDGES} == RULES
