"""The model of the TPU compiler's memory: tiles, the heap, and which buffers a step takes."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import allocation as allocating
from shardc.cost.allocation import allocation
from shardc.cost.heap import Buffers, Heap
from shardc.cost.on_chip import Life, on_chip
from shardc.ir.collectives import DirectExchange
from shardc.lowering.tiles import tiled_bytes
from shardc.lowering.together import candidates


@pytest.mark.instant
@pytest.mark.parametrize(
    ("shape", "itemsize", "bytes_"),
    [
        ((2048, 4096), 2, 2048 * 4096 * 2),  # whole tiles
        ((64, 64), 2, 64 * 128 * 2),  # lanes are padded
        ((1024, 4), 2, 1024 * 4 * 2),  # the long dim is the lanes, four rows are a small tile
        ((32, 8), 2, 128 * 8 * 2),
        ((64, 32, 32), 2, 32 * 32 * 128 * 2),
        ((5, 128), 4, 8 * 128 * 4),
        ((100,), 4, 128 * 4),
        ((), 4, 128 * 4),
    ],
)
def test_arrays_lie_in_tiles(shape, itemsize, bytes_):
    assert tiled_bytes(shape, itemsize) == bytes_


def test_buffers_of_1_2_and_4_reach_7():
    heap = Heap()
    one, two = heap.take(512), heap.take(1024)
    heap.give_back(one)
    four = heap.take(2048)
    heap.give_back(two)
    assert heap.size == 7 * 512
    heap.give_back(four)
    assert heap.take(7 * 512) and heap.size == 7 * 512, "gaps that touch are one"


_LIVES = st.builds(lambda size, start, length: Life(size, start, start + length), *[st.integers(1, 9)] * 3)


@pytest.mark.instant
@given(st.lists(_LIVES, max_size=12), st.integers(0, 20))
def test_what_is_on_the_chip_fits_there_at_any_time_and_what_is_alone_and_fits_is_there(lives, room):
    kept = on_chip(dict(enumerate(lives)), room)
    for at in range(20):
        assert sum(lives[n].size for n in kept if lives[n].start <= at < lives[n].end) <= room
    for number, one in enumerate(lives):
        beside = [other for n, other in enumerate(lives) if n != number]
        alone = not any(other.start < one.end and one.start < other.end for other in beside)
        assert number in kept or not alone or one.size > room


def test_the_largest_choose_their_place_on_the_chip_first():
    two, other, one, later = Life(2, 0, 2), Life(2, 0, 2), Life(1, 0, 2), Life(1, 2, 3)
    assert on_chip(dict(enumerate((one, two, other))), 4) == {1, 2}
    assert on_chip(dict(enumerate((two, other, later))), 4) == {0, 1, 2}
    assert on_chip(dict(enumerate((one, two, other))), 4, first=[0]) == {0, 1}


MIB = 2**20


@pytest.mark.instant
@pytest.mark.parametrize(
    ("in_loop", "pinned", "size", "taken"),
    [
        (False, False, 17 * MIB, 0),
        (False, True, 17 * MIB, 17 * MIB),
        (False, True, 16 * MIB, 0),
        (True, False, 49 * MIB, 49 * MIB),
        (True, False, 48 * MIB, 0),
    ],
)
def test_large_pieces_that_loops_take_and_leave_are_never_on_the_chip(in_loop, pinned, size, taken):
    buffers = Buffers(64 * MIB, in_loop)
    one = buffers.take(size)
    if pinned:
        buffers.stays_in_memory(one)
    buffers.give_back(one)
    assert buffers.temporary_bytes == taken


@pytest.mark.instant
@pytest.mark.parametrize(
    ("in_loop", "writers", "size", "taken"),
    [
        (False, (True, True), 8 * MIB, 0),
        (False, (True, False), 8 * MIB, 8 * MIB),  # a collective reads it, or a product writes it before or after
        (False, (False, True), 8 * MIB, 8 * MIB),
        (False, (), 8 * MIB, 8 * MIB),
        (False, (True,), 17 * MIB, 17 * MIB),
        (True, (True,), 8 * MIB, 8 * MIB),
    ],
)
def test_on_a_chip_with_little_room_lies_what_functions_alone_write(in_loop, writers, size, taken):
    buffers = Buffers(0, in_loop, near=16 * MIB)
    one = buffers.take(size)
    for is_near in writers:
        buffers.may_be_near(one, is_near)
    buffers.give_back(one)
    assert buffers.temporary_bytes == taken


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [
        ("a = softmax_J(A[I_X, J]); b = softmax_J(a); c[I_X] = max_J(b); return c", 0),
        ("a = A[I_X, J] + B[I_X, J]; b = a ⊙ max_J(a); c = b ⊙ max_I(b); s[J] = max_I(c); return s", 0),
        ("a = A[I_X, J] · B[J, K]; b = softmax_K(a); c[I_X] = max_K(b); return c", 8),  # a product writes it
    ],
)
def test_what_functions_alone_write_lies_on_a_v5p_and_what_a_product_leaves_in_memory(text, mebibytes):
    dims = {dim: size for dim, size in {"I": 8192, "J": 2048, "K": 2048}.items() if dim in text}
    options = {"topology": "v5p:2x2x1", "dtype": "bf16", "idle": "keep", "overlap": "off"}
    plan = shardc.plan(text, mesh="X=4", dims=dims, **options)
    assert allocation(plan.schedule).temporary_bytes // 2**20 == mebibytes


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "contracted", "mebibytes"),
    [
        ("A[I, J_Y] · B[J_Y, K_X] → C[I, K_X]", 16384, 128),  # a ring whose sum goes to all
        ("A[I_Y, J] · B[J, K_X] → C[I, K_X]", 8192, 128),  # chunks gathered behind the product, to an output
        ("A[I_Y, J_X] · B[J, K_X] → C[I_Y, K_X]", 8192, 80),  # a ring's sum in f32 and a block
    ],
)
def test_what_is_done_as_one_is_in_memory_by_hand(text, contracted, mebibytes):
    """As compiled: `test_what_is_done_as_one_is_promised_with_what_it_holds`. On the chip 64 would take none."""
    dims = {"I": 16384, "J": contracted, "K": 16384}
    plan = shardc.plan(text, mesh="X=4,Y=4", dims=dims, topology="v5e:4x4", dtype="bf16", overlap="on")
    found = allocation(plan.schedule).temporary_bytes
    assert mebibytes * 2**20 <= found <= mebibytes * 2**20 + 2**17


BROUGHT = "h[B_X, F] = x[B_X, D] · W[D, F]; g[B_X, D] = h · V[F, D]; "


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "sizes", "mebibytes"),
    [
        (BROUGHT + "y[B_X, F] = g · U[D, F]; return y", (65536, 4096, 8192), 64),  # g, beside x or W again
        (BROUGHT + "y[B_X, F] = g · U[D, F]; return y", (32768, 4096, 8192), 0),  # of half the size
        (BROUGHT + "z = g - max_D(g); y = z / sum_B(z); return y", (65536, 4096, 8192), 128),  # h; g is on the chip
        ("h[B_X, F_Y] = x[B_X, D_Y] · W[D, F_Y]; y[B_X, D_Y] = silu(h) ⊙ h · V[F_Y, D] + x", (16384, 4096, 8192), 32),
        ("y[B_X, F_Y] = relu(x[B_X, D_Y]) · W[D, F_Y]", (16384, 4096, 4096), 14),  # seven pieces of eight
    ],
)
def test_what_finds_no_room_beside_what_is_brought_for_the_next_time_is_in_memory(text, sizes, mebibytes):
    """As compiled: `test_what_is_brought_again_is_promised_room`, for v5e:2x4."""
    mesh = "X=4,Y=2" if "_Y" in text else "X=8"
    plan = shardc.plan(text, mesh=mesh, topology="v5e:2x4", dims=dict(zip("BDF", sizes, strict=True)), dtype="bf16")
    assert mebibytes <= allocation(plan.schedule).temporary_bytes / 2**20 <= mebibytes + 0.4


@pytest.mark.instant
def test_what_is_written_over_another_in_memory_has_its_own_place_on_the_chip():
    """Of two of 64, one over the other, the second finds no room on a chip of 96 beside the first, and has none of its
    own in memory where that lies there."""
    for size, taken in ((48 * MIB, 0), (64 * MIB, 64 * MIB), (128 * MIB, 128 * MIB)):
        buffers = Buffers(96 * MIB)
        buffers.give_back(buffers.take_over(buffers.take(size)))
        assert buffers.temporary_bytes == taken


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("C[I_X, K_Y] = A[I_X, J_Y] · B[J_X, K_Y]", 8),  # two rings, a ring and chunks of either operand
        ("C[I_X, K] = A[I_X, J] · B[J, K_X]", 2),  # a ring whose blocks lie apart
        ("C[I_X, K] = A[I_X, J] · B[J_X, K]", 3),  # a ring whose products are added up, and chunks
        ("C[I, K] = A[I, J_X] · B[J_X, K]", 2),  # sums that go round, gathered after
        ("T[I, K_X] = A[I, J_Y] · B[J_Y, K_X]; C[I, L] = T · V[K_X, L]", 4),  # sums for another product, and of it
    ],
)
def test_no_output_has_room_for_what_is_held_as_one(text, forms):
    """Before an array of 512 MiB a device is written nothing of a ring or of chunks lies where it will be, as of
    collectives nothing does: without it as much is taken."""
    dims = {"I": 2**15, "J": 2**14, "K": 2**14, "L": 2**14, "M": 2**16, "N": 2**16}
    options = {"topology": "v5e:4x4", "dtype": "bf16", "idle": "keep", "overlap": "off"}
    taken = []
    for more in ("", "; Z = exp(Q[M, N])"):
        schedule = shardc.plan(text + more, mesh="X=4,Y=4", dims=dims, **options).schedule
        every = [replace(ordered, together=(group,)) for ordered, group in candidates(schedule)]
        taken.append([round(allocation(each).temporary_bytes / 2**20) for each in every])
    assert taken[0] == taken[1] and len(taken[0]) == forms


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        ("F = relu(T); G = exp(T)\nreturn F, G", 1),  # a copy, and T where G will be
        ("F = T ⊙ C[I, K]; G[I, L] = T · W[K, L]\nreturn F, G", 2),  # of an argument as well
        ("R = softmax_K(C[I, K]); F = T ⊙ R; G[I, L] = T · W[K, L]; H[I, L] = R · W\nreturn F, G, H", 2),  # T and R
        ("F = relu(T); G[I, L] = T · W[K, L]; H[I, L] = F · W\nreturn G, H", 1),  # F is none
        ("F = softmax_K(T); G[I, L] = T · W[K, L]\nreturn F, G", 1),  # which is no loop over elements
    ],
)
def test_what_is_computed_of_a_product_is_copied_to_an_output(text, arrays):
    """In temporaries of 512 MiB each."""
    dims, options = {"I": 2**14, "J": 2**12, "K": 2**14, "L": 2**10}, {"idle": "keep", "overlap": "off"}
    plan = shardc.plan(
        f"T[I, K] = A[I, J] · B[J, K]; {text}", mesh="X=2", topology="v5p:2x1x1", dims=dims, dtype="bf16", **options
    )
    assert round(allocation(plan.schedule).temporary_bytes / 2**29, 1) == arrays


@pytest.mark.instant
@pytest.mark.parametrize(
    ("changed", "mebibytes"),
    [
        ("x = x[I_X, J] ⊙ g; return x", 128),
        ("x = x[I_X, J] ⊙ g; y[I_X] = y[I_X] ⊙ g; return x, y", 128),
        ("y[I_X] = y[I_X] ⊙ g; x = x[I_X, J] ⊙ g; return x, y", 128),
        ("z[L, I_X, J] = C[L, I_X, J] ⊙ g; return z", 0),  # h lies where a row of z will be
    ],
)
def test_nothing_lies_in_what_a_trip_changes_in_place(changed, mebibytes):
    """The product h, of 128 MiB, is read before x is written in the place of what came: it has a place of its own."""
    body, _, left = changed.rpartition("; return ")
    text = f"for L {{ h = A[L, I_X, J] · B[J, K]; g[I_X] = max_K(h ⊙ sum_K(h)); {body} }}\nreturn {left}"
    options = {"dtype": "bf16", "topology": "v5e:2x2", "idle": "keep", "overlap": "off"}
    plan = shardc.plan(text, mesh="X=4", dims={"L": 3, "I": 2**15, "J": 2**13, "K": 2**13}, **options)
    assert allocation(plan.schedule).temporary_bytes // 2**20 == mebibytes


def test_what_is_multiplied_by_elements_becomes_an_output_where_it_lies():
    """n lies in the place of a share of g, which was gathered, and y in that of n, not beside it."""
    text = "h[B_XY, F] = A[B_XY, D] · W[D, F]; g[B_X, F] = AllGather_Y(h); r[B_X] = max_F(g); n[B_X, F_Y] = g ⊙ r; "
    dims = {"B": 2**15, "D": 2**13, "F": 2**14}
    options = {"mesh": "X=2,Y=4", "topology": "v5e:2x4", "dtype": "bf16", "objective": "bytes"}
    plan = shardc.plan(f"{text}m[B_X] = max_F(n); y[B_X, F_Y] = n - m", dims=dims, **options)
    assert allocation(plan.schedule).temporary_bytes // 2**20 == 512  # 640 with an output of its own


def room_of(taken):
    """The runs of free units below the last that was ever taken, as where each begins and ends."""
    edges = [0, *(place for place in range(1, len(taken)) if taken[place] != taken[place - 1]), len(taken)]
    return [(start, end) for start, end in pairwise(edges) if end > start and not taken[start]]


@pytest.mark.instant
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=60))
def test_a_buffer_takes_the_smallest_gap_that_holds_it_else_the_end(orders):
    """Beside a plain model: a row of units, each taken or free, that grows. Of gaps alike one may choose any."""
    heap, taken, alive = Heap(), list[bool](), dict[int, tuple[int, int]]()
    for takes, size in orders:
        if takes or not alive:
            number = heap.take(512 * size - 511 if size else 0)  # of part of a unit the whole
            start, end = (place // 512 for place in heap._taken[number])
            fitting = [gap for gap in room_of(taken) if gap[1] - gap[0] >= size]
            last = [gap for gap in room_of(taken) if gap[1] == len(taken)]
            least = min((high - low for low, high in fitting), default=None)
            starts = {low for low, high in fitting if high - low == least} or {(last or [(len(taken), 0)])[0][0]}
            assert end - start == size and (start in starts or not size)
            taken += [False] * (end - len(taken))
            alive[number] = start, end
        else:
            start, end = alive.pop(number := sorted(alive)[size % len(alive)])
            heap.give_back(number)
        taken[start:end] = [takes or (start, end) in alive.values()] * (end - start)
        assert heap.size == 512 * len(taken)
        assert sorted(heap._gaps) == [(512 * low, 512 * high) for low, high in room_of(taken)], (
            "gaps that touch are one"
        )


def drawn(orders, buffers):
    """Buffers taken and given back as drawn: the size of each, and from when to when it lives."""
    spans, alive = {}, []
    for at, (takes, size) in enumerate(orders):
        if takes or not alive:
            alive.append(buffers.take(512 * size))
            spans[alive[-1]] = [size, at, len(orders)]
        else:
            number = alive.pop(size % len(alive))
            buffers.give_back(number)
            spans[number][2] = at
    return spans


@pytest.mark.instant
@settings(max_examples=100)
@example([(True, 1), (True, 2), (True, 2), (False, 1), (True, 1), (True, 2)])  # a gap that is filled to its end
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 7)), max_size=40))
def test_the_largest_first_reach_as_far_as_a_row_of_units_says(orders):
    """Each in the smallest run of units that nothing has while it lives, else behind all that lives with it."""
    in_time, either = Buffers(), Buffers(or_largest_first=True)
    drawn(orders, in_time)
    spans, has, reach = drawn(orders, either), {}, 0
    for number, (size, start, end) in sorted(spans.items(), key=lambda each: (-each[1][0], each[1][1:])):
        beside = {unit for other, units in has.items() for unit in units if lives_with(spans[other], start, end)}
        taken = [unit in beside for unit in range(max(beside, default=-1) + 1)]
        fitting = [gap for gap in room_of(taken) if gap[1] - gap[0] >= size]
        low = min(fitting, key=lambda gap: (gap[1] - gap[0], gap))[0] if fitting else len(taken)
        has[number] = range(low, low + size)
        reach = max(reach, low + size)
    most = max(
        (sum(size for size, start, end in spans.values() if start <= at < end) for at in range(len(orders))), default=0
    )
    assert either.temporary_bytes == min(512 * reach, in_time.temporary_bytes) >= 512 * most


def lives_with(span, start, end):
    return span[1] < end and start < span[2]


def test_the_largest_first_leave_no_gap_where_time_leaves_one():
    """1 and 1 at once, then 2 with the second of them: in order of time 4, since no gap holds 2; placed first, 3."""
    for largest_first, reach in ((False, 4), (True, 3)):
        buffers = Buffers(or_largest_first=largest_first)
        first, _ = buffers.take(512), buffers.take(512)
        buffers.give_back(first)
        buffers.take(1024)
        assert buffers.temporary_bytes == 512 * reach


def test_what_lies_in_outputs_chooses_the_largest_first_and_the_smallest_output_that_has_room():
    """Outputs of 4 and 2, written last; before them buffers of 3, 2 and 2 at once: 3 lies in the first, a 2 in the
    second, and the other 2, for which no output has room, is a temporary; so is one of 5, and one that lives on."""
    buffers = Buffers()
    early = [buffers.take(512 * size) for size in (2, 2, 3, 5)]
    for number in early:
        buffers.give_back(number)
    for size in (4, 2):
        buffers.becomes_output(buffers.take(512 * size))
    assert buffers.temporary_bytes == 512 * (2 + 5)
    assert list(buffers.since(early[1])) == [2, 3, 4, 5] and not buffers.is_apart(early[0])


def test_of_equal_outputs_the_one_that_is_written_last_is_taken_first():
    """One lives until the first is written, and one from before that until the second is: so each has an output."""
    buffers = Buffers()
    first = buffers.take(512)
    buffers.give_back(first)
    second = buffers.take(512)
    buffers.becomes_output(buffers.take(512))
    third = buffers.take(512)
    buffers.give_back(second)
    buffers.becomes_output(buffers.take(512))
    buffers.give_back(third)
    assert buffers.temporary_bytes == 512


@pytest.mark.instant
@pytest.mark.parametrize(("lives_on", "temporary"), [(False, 0), (True, 512)])
def test_what_is_written_over_another_is_placed_for_itself(lives_on, temporary):
    """Both lie in an output until it is written; where the second is read after that, it is a temporary alone."""
    buffers = Buffers()
    after = buffers.take_over(buffers.take(512))
    if not lives_on:
        buffers.give_back(after)
    buffers.becomes_output(buffers.take(512))
    assert buffers.temporary_bytes == temporary


@pytest.mark.instant
@pytest.mark.parametrize(("stays", "temporary"), [(False, 512), (True, 1024)])
def test_a_function_of_elements_stays_with_what_it_is_made_of(stays, temporary):
    """The first is no output's; what is written over it may lie in one, and leave its place to another, or stay."""
    buffers = Buffers()
    first = buffers.take(512, apart=True)
    after = buffers.take_over(first, stays)
    buffers._apart.discard(after)
    other = buffers.take(512, apart=True)
    for number in (after, other):
        buffers.give_back(number)
    buffers.becomes_output(buffers.take(512))
    assert buffers.temporary_bytes == temporary


def test_what_comes_first_in_the_text_chooses_first_and_takes_the_output_that_comes_last():
    """Two of one size, of which the second would find room in either output, the first in the last alone."""
    for places, temporary in (((0, 1), 0), ((1, 0), 512)):
        buffers = Buffers()
        buffers.place = places[0]
        early = buffers.take(512)
        buffers.place = places[1]
        late = buffers.take(512)
        buffers.place = 2
        buffers.give_back(late)
        buffers.becomes_output(buffers.take(512))
        buffers.give_back(early)
        buffers.place = 3
        buffers.becomes_output(buffers.take(512))
        assert buffers.temporary_bytes == temporary


def test_so_much_is_there_at_once_with_outputs_and_one_buffer_where_two_lie_in_one_place():
    buffers = Buffers()
    first = buffers.take(1024)
    second = buffers.take_over(first)
    buffers.becomes_output(buffers.take(2048))
    assert buffers.most_bytes == 3072
    buffers.give_back(second)
    buffers.take(512)
    assert buffers.most_bytes == 3072


def test_a_buffer_that_lives_while_an_output_is_written_does_not_lie_in_it():
    for ends_before, temporary in ((True, 0), (False, 1024)):
        buffers = Buffers()
        first = buffers.take(1024)
        if ends_before:
            buffers.give_back(first)
        buffers.becomes_output(buffers.take(1024))
        if not ends_before:
            buffers.give_back(first)
        assert buffers.temporary_bytes == temporary


def test_an_output_holds_others_before_it_is_written_but_not_what_collectives_leave():
    """Nor does one that is filled from the start, as what trips add to is."""
    for apart, filled, temporary in ((False, False, 1024), (True, False, 1024 + 1536), (False, True, 1024 + 1536)):
        buffers = Buffers()
        first = buffers.take(1536, apart)
        second = buffers.take(1024)
        buffers.give_back(first)
        output = buffers.take(2048)
        buffers.becomes_output(output, filled)
        buffers.give_back(second)
        assert buffers.is_output(output) and not buffers.is_output(second)
        assert buffers.temporary_bytes == temporary


@pytest.mark.instant
@given(st.lists(st.tuples(st.integers(0, 5000), st.booleans()), min_size=1, max_size=20), st.data())
def test_what_is_apart_lies_in_no_output(sizes, data):
    buffers, alive, most = Buffers(), [], 0
    for size, apart in sizes:
        alive.append((buffers.take(size, apart), size * apart))
        most = max(most, sum(size for _, size in alive))
        if data.draw(st.booleans()):
            buffers.give_back(alive.pop(0)[0])
    buffers.becomes_output(buffers.take(10**6))
    reach = sum(-(-size // 512) * 512 for size, _ in sizes)
    assert most <= buffers.temporary_bytes <= 2 * reach - most, "what gaps take counts twice"


MEGA, BESIDE = 2**20, 2**15


def is_temporary(schedule, size, collectives=4):
    """Whether temporaries are of this size, but for what each of a few collectives takes beside."""
    return allocation(schedule).temporary_bytes - size in [BESIDE * count for count in range(collectives + 1)]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "temporary"),
    [
        ("A[I_X, J] → A[I, J]", 16),  # the gathered array, then copied to the output
        ("A[I_X, J] → A[I, J_X]", 8),  # the result exchanged; the operand is copied where the output will be
        ("A[I, J_X] → A[I_X, J]", 16),  # the result exchanged, and joined along the last dim
        ("A[I_XY, J] → A[I_YX, J]", 4),  # what arrives
        ("A[I_X, J] · B[J, K_Y] → C[I_X, K_Y]", 0),  # outputs have their own buffers
        ("A[I, J] → A[I_X, J]", 0),
        ("A[I, J_X] · B[J_X, K] → C[I_X, K]", 16),  # partial sums, which are scattered to the output
        ("A[I_X, J_Y] → A[I_YX, J]", 4),  # two pieces of 2, as they arrive; those sent stay on the chip
        ("A[I_X, J_Y] → A[I, J]", 16),  # the blocks gathered; they are laid together in the output
    ],
)
def test_buffers_by_hand(text, temporary):
    dims = {"I": 2048, "J": 4096, "K": 4096}
    assert is_temporary(shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=dims, idle="keep").schedule, temporary * MEGA)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "dims", "pieces"),
    [
        ("A[I_X, J_Y] → A[I_YX, J]", {"I": 2**14, "J": 2**14}, 2 + 2),  # 64 MB each, sent and received
        ("A[I_YX, J] → A[I_X, J_Y]", {"I": 2**14, "J": 2**14}, 2 + 2 - 1),  # laid along the first dim at once
        ("A[I_X, J, K_YZ] → A[I_Y, J_XZ, K]", {"I": 2**8, "J": 2**10, "K": 2**10}, 2 + 4),  # 16 MB: two stay
        ("A[I, J_ZYX] → A[I_ZX, J_Y]", {"I": 2**13, "J": 2**13}, 16),  # small: only what arrives
    ],
)
def test_pieces_on_their_way(text, dims, pieces):
    mesh = dict.fromkeys("XYZ", 4 if pieces == 16 else 2)
    schedule = shardc.plan(text, mesh=mesh, dims=dims, objective="bytes").schedule
    (step,) = schedule.steps
    assert isinstance(step.op, DirectExchange)
    block = schedule.values[0].local_bytes(schedule.mesh)
    assert is_temporary(schedule, pieces * block // step.op.rounds, step.op.rounds + 1)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("mesh", "topology", "dtype", "temporary"),
    [
        ({"X": 4}, "v5p:2x2x1", "bf16", 16),  # the partial sums; the share lies where the output does
        ({"X": 4}, "v5p:2x2x1", "int32", 32 + 32),  # the partial sums, and the shares received
        ({"X": 8}, "v5p:2x2x2", "bf16", 16 + 4),  # a quarter between the rounds; its half fits where the sums were
    ],
)
def test_scatters_by_hand(mesh, topology, dtype, temporary):
    dims = {"I": 4096, "J": 65536, "K": 2048}
    text = "A[I, J_X] · B[J_X, K] → C[I_X, K]"
    plan = shardc.plan(text, mesh=mesh, dims=dims, dtype=dtype, topology=topology, objective="bytes")
    assert is_temporary(plan.schedule, temporary * MEGA)


def test_rounds_of_unequal_pieces_by_hand():
    """In cells: the block of 6 lies where the output will be. Of rounds of 2, 2, 1, 1 what is sent and what arrives:
    2 + 6, but the fifth cell lies where the first two were sent; then all and what was brought, 12. These are placed
    first, so that there is no gap of 1 before them."""
    text, mesh = "A[I_X, J_Y] → A[I_Y, J_X]", {"X": 4, "Y": 6}
    schedule = shardc.plan(text, mesh=mesh, dims={"I": 3 * 2**14, "J": 3 * 2**10}, objective="bytes").schedule
    assert [(step.op.cells, step.op.brings, step.op.rounds) for step in schedule.steps] == [(6, 6, (2, 2, 1, 1))]
    (block,) = {schedule.values[number].local_bytes(schedule.mesh) for number in (*schedule.inputs, *schedule.outputs)}
    assert is_temporary(schedule, (6 + 12) * block // 6, 5)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "temporary"),
    [
        ("A[I, J, K_X] → A[I, J_X, K]", 4 + 4),  # pieces brought to the front, and as they arrive; then joined
        ("A[I, J_X, K] → A[I, J, K_X]", 4 + 4),  # brought to the front in two copies
    ],
)
def test_pieces_of_thin_blocks_by_hand(text, temporary):
    dims = {"I": 1, "J": 2048, "K": 4096}
    schedule = shardc.plan(text, mesh={"X": 4}, dims=dims, topology="v5p:2x2x1", objective="bytes").schedule
    assert is_temporary(schedule, temporary * MEGA, 1)


@pytest.mark.instant
@given(st.sampled_from(["A[I_X, J_Y] → A[I, J]", "A[I_XY, J] → A[I, J_X]", "A[I_X, J] · B[J_Y, K] → C[I, K_X]"]))
def test_the_compiler_never_needs_less_than_the_values_do(text):
    plan = shardc.plan(text, mesh={"X": 2, "Y": 4}, dims={"I": 2048, "J": 4096, "K": 2048})
    assert allocation(plan.schedule).total_bytes >= max(a.bytes for a in plan.outputs) + sum(
        a.bytes for a in plan.inputs
    )


def test_a_trip_is_walked_through_once_whatever_the_order_of_the_steps_around_it(monkeypatch):
    """Of a loop in a loop too: else as often as there are orders, times those of each loop within."""
    text = "dims L=4, M=2; for L { for M { x[B_X, D] = relu(x[B_X, D]) ⊙ V[L, M, D] } }; y[B_X, E] = x · W[D_X, E]"
    schedule = shardc.plan(text, mesh={"X": 4}, dims="B=64,D=64,E=64").schedule
    walked, temporary, found = [], allocating._temporaries, allocation(schedule)

    def noted(schedule, lowering, room, loop=None):
        walked.append(loop)
        return temporary(schedule, lowering, room, loop)

    monkeypatch.setattr(allocating, "_temporaries", noted)
    allocation.cache_clear()
    assert allocation(schedule) == found == allocation(schedule)
    assert len(walked) == 3, "and what was worked out is not again"
