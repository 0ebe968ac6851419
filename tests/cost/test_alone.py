"""What a device takes alone: by the data sheet, and as its compiler was measured where a slice is named."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardc
from shardc.cost.alone import Alone, Amount
from shardc.cost.calibration import calibration
from shardc.cost.chips import CHIPS
from shardc.ir.dtypes import DTYPES

MEASURED = [chip for chip in CHIPS if calibration(chip) is not None]
SIZES = {"I": 8192, "J": 8192, "K": 8192}


def planned(text, topology="v5e:2x2", dims=SIZES, **options):
    return shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=dims, topology=topology, idle="keep", **options)


@pytest.mark.instant
@pytest.mark.parametrize("chip", MEASURED)
def test_a_measured_device_is_no_faster_than_its_data_sheet(chip):
    """But in f32, which the compiler multiplies in fewer passes than twice as many."""
    known, sheet = calibration(chip), CHIPS[chip]
    assert all(figure > 0 for name, figure in asdict(known).items() if name != "slowdown")
    assert known.bf16_flops < sheet.flops and known.int8_flops < sheet.narrow_flops
    assert known.copy_bandwidth < known.bf16_read < sheet.hbm_bandwidth and known.f32_read < sheet.hbm_bandwidth
    for kind in ("bf16", "f32"):
        moving = known.moving(DTYPES[kind])
        assert moving.largest < moving.computed and moving.write < 1.05 * moving.read and moving.bare > 0


@pytest.mark.instant
@given(
    st.sampled_from(MEASURED), st.sampled_from([*DTYPES.values()]), st.tuples(*[st.integers(0, 2**50)] * 3), st.data()
)
def test_more_work_takes_no_less_time(chip, dtype, work, data):
    if dtype.bytes not in (1, 2, 4, 8):
        return
    less = [data.draw(st.integers(0, amount)) for amount in work]
    for alone in (Alone(CHIPS[chip]), Alone(CHIPS[chip], calibration(chip))):
        assert alone.seconds(*less, dtype) <= alone.seconds(*work, dtype)


@pytest.mark.instant
@pytest.mark.parametrize("chip", MEASURED)
def test_what_is_added_up_term_by_term_takes_so_many_times_as_long_as_its_bytes(chip):
    """But where nothing is measured; of eight terms and more each number takes longer."""
    known, amount = calibration(chip), Amount(0, 2**30, 2**20, DTYPES["bf16"])
    measured, sheet = Alone(CHIPS[chip], known), Alone(CHIPS[chip])
    for terms, times in ((0, 1.0), (1, known.few_terms), (7, known.few_terms), (8, known.many_terms)):
        each = amount._replace(terms=terms)
        assert measured.product_s(each) == pytest.approx(times * measured.product_s(amount))
        assert sheet.product_s(each) == sheet.product_s(amount)


@pytest.mark.instant
@pytest.mark.parametrize("text", ["A[I_X, J] → A[I, J]", "A[I, J_X] · B[J_X, K] → C[I_X, K]", "A[I_X, J] → A[I, J_X]"])
def test_without_a_slice_and_by_the_book_nothing_is_measured(text):
    by_book, named = planned(text, formula="book"), planned(text, overlap="off")  # step by step, as the bare plan
    bare = shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=SIZES, chip="v5e", idle="keep")
    for plan in (by_book, bare):
        assert not {"W_copy", "W_write", "C_bf16"} & plan.symbols.keys()
    assert named.cost.time_s > bare.cost.time_s and named.cost.wire_bytes == bare.cost.wire_bytes


def test_what_a_gather_leaves_is_copied_to_an_output_and_to_no_product():
    gathered, used = planned("A[I_X, J] → A[I, J]"), planned("A[I_Y, J_X] · B[J, K_X] → C[I_Y, K_X]")
    assert gathered.steps[0].formula == "2·I·J·(X-1)/X / W_X + 2·I·J / W_copy"
    assert [step.op for step in used.steps] == ["AllGather", "Einsum"] and "W_copy" not in used.steps[0].formula


@pytest.mark.tpu
@pytest.mark.parametrize(
    "text",
    [
        "A[I_X, J] → A[I, J]",  # copied to the output
        "A[I_X, J_Y] → A[I, J]",  # laid along two dims
        "A[I, J_X] · B[J_X, K] → C[I, K]{U_X}",  # compute
        "A[I_X, J] · B[J, K] → C[I_X, K]",
    ],
)
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1"])
def test_what_is_replayed_was_priced(text, topology):
    plan = planned(text, topology)
    assert plan.verify().replayed.step_s == pytest.approx(plan.cost.time_s, rel=0.15)


JOINED, CUT, OF_PIECES = "A[I, J_X] → A[I_X, J]", "A[I_X, J] → A[I, J_X]", "A[K, I_X, J, L] → A[K, I, J_X, L]"
LAID = [  # pieces and outputs on v5e's chip, and in memory
    (JOINED, (4096, 8192)),
    (JOINED, (16384, 16384)),
    (CUT, (4096, 8192)),
    (CUT, (16384, 16384)),
    (OF_PIECES, (512, 32, 8, 128)),
    (OF_PIECES, (4096, 64, 8, 128)),
    ("T[I_X, J] = A[I, J_X]; C[I_X, K] = T · B[J, K]", (16384, 16384, 4096)),
    ("C[I, J_X] = A[I, K] · B[K, J_X]; D[I_X, J] = C", (16384, 16384, 4096)),
    ("A[I, J_X] → A[I, J]", (4096, 12288)),
    ("A[I, J_X] → A[I, J]", (8192, 8192)),
    ("A[I, K] · B[K, J_X] → C[I, J]", (4096, 8192, 4096)),
]


@pytest.mark.tpu
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1"])
@pytest.mark.parametrize(
    ("text", "sizes"), [pytest.param(*each, marks=pytest.mark.exhaustive if each in LAID[1:] else ()) for each in LAID]
)
def test_what_a_collective_lays_anew_is_priced_as_replayed(text, sizes, topology):
    """A copy less, or one that is made on the chip and not in memory, is 12 % and more of each."""
    dims = dict(zip("IJKL", sizes, strict=False))
    plan = planned(text, topology, dims, overlap="off", dtype="bf16")
    assert plan.verify().replayed.step_s == pytest.approx(plan.cost.time_s, rel=0.07)


@pytest.mark.tpu
def test_a_product_of_few_elements_takes_as_long_as_its_result_is_written():
    thin = shardc.plan(
        "A[I, J] · B[J, K] → C[I, K]",
        mesh={"X": 4},
        dims=SIZES | {"J": 128},
        topology="v5e:2x2",
        idle="keep",
    )
    assert thin.steps[0].formula == "(2·I·J + 2·J·K) / W_read + 2·I·K / W_write + T_product + 2·I·J / W_hbm"
    assert thin.verify().replayed.step_s == pytest.approx(thin.cost.time_s, rel=0.15)


@pytest.mark.tpu
def test_a_product_whose_bytes_take_as_long_as_its_operations_is_priced_as_replayed():
    """On v5p half as long again as either, where no operand is brought near beforehand."""
    text = "B2[J, K] = AllGather_X(B[J_X, K]); C[I, K] = A[I, J] ·_LOCAL B2[J, K]"
    narrow = planned(text, "v5p:2x2x1", SIZES | {"K": 256})
    assert narrow.verify().replayed.compute_s == pytest.approx(narrow.cost.compute_s, rel=0.15)


def test_a_function_over_a_dim_is_shared_before_its_operand_is_gathered():
    """It takes time on a slice that is named, once for each block; by the data sheet nothing is known of it."""
    text = "L[I_X, K_?] = A[I_X, J] · B[J, K_Y]; C[I_X, K] = softmax_K(L)"
    named = planned(text, overlap="off")
    *_, soft, gather = named.steps
    assert (soft.op, gather.op) == ("div", "AllGather") and soft.formula.startswith("2·I·K/X/Y / W_pass + ")
    assert named.cost.time_s == pytest.approx(sum(step.time_s for step in named.steps))
    bare = shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=SIZES, chip="v5e", idle="keep")
    assert all(step.time_s == 0 for step in bare.steps if step.op in ("softmax", "div"))


LARGE = {"I": 16384, "J": 8192, "K": 512, "L": 512}


def on_both(texts):
    """Each text on a slice of v5p and on one of v5e; all but the first where all is run."""
    return [
        pytest.param(text, topology, marks=pytest.mark.exhaustive if text is not texts[0] else ())
        for text in texts
        for topology in ("v5p:2x2x1", "v5e:2x2")
    ]


SCORES, READ = "S[I, J] = A[I, K] · B[K, J]", "C[I, L] = P · V[J, L]"
OVER_DIMS = [
    f"{SCORES}; P = softmax_J(where(index_I >= index_J, S / 3, -inf)); {READ}",
    "softmax_J(A[I, J]) → C[I, J]",
    f"P[I, J] = softmax_J(A[I, J]); {READ}",
    "P = softmax_J(relu(A[I, J])); C[I, J] = relu(P)",
    "C[I] = logsumexp_J(A[I, J])",
    "C[I] = max_J(square(A[I, J]))",
    f"{SCORES}; C[I] = logsumexp_J(S)",
    f"{SCORES}; C[I] = max_J(S)",
    "C[I] = sum_J(A[I, J])",
    "C[J] = sum_I(relu(A[I, J]))",
    "C[I, J] = A[I, J] ⊙ rsqrt(mean_J(A ⊙ A) + 1e-6) ⊙ G[J]",
    "C[I, J] = A[I, J] ⊙ G[J] ⊙ H[I]",
    "C[I, J] = relu(A[I, J])",
    "P = softmax_J(A[I, J]); C[I, J] = P ⊙ G[J]",
    "P[I, J] = softmax_J(A[I, J]); G[I, J] = Y[I, L] · V[J, L]; D = P ⊙ (G - sum_J(G ⊙ P)); E[I, K] = D · B[K, J]",
]

# Replayed over priced, where it is not within a tenth: the backward half of a softmax in chunks, 8.5 ms without them.
FOUND = {(OVER_DIMS[-1], "v5e:2x2"): 1.23}


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize(("text", "topology"), on_both(OVER_DIMS))
def test_a_function_over_a_dim_is_replayed_as_it_is_priced(text, topology):
    """A loop more or less over the largest array, of which each takes at least a sixth of the time."""
    plan = planned(text, topology, LARGE)
    found = FOUND.get((text, topology), 1.0)
    assert plan.verify().replayed.compute_s == pytest.approx(found * plan.cost.compute_s, rel=0.11)


@pytest.mark.instant
@pytest.mark.parametrize("named", [{"topology": "v5e:2x2"}, {"chip": "v5p"}])
def test_a_sum_over_one_element_of_each_device_is_the_array_as_it_lies(named):
    """The gradients of a micro-batch on each device, added up: once their sum was priced above its ReduceScatter."""
    dims = {"N": 4, "D": 4096, "F": 4096}
    for text, is_free in (("G[D_X, F] = sum_N(A[N_X, D, F])", True), ("G[D, F] = sum_N(A[N, D, F])", False)):
        plan = shardc.plan(text, mesh={"X": 4}, dims=dims, idle="keep", **named)
        (sum_,) = (step for step in plan.steps if step.op == "Einsum")
        assert (sum_.time_s == 0) is is_free and (sum_.formula == "0") is is_free


ADAM = (
    "M2: f32[I, J] = 0.9 ⊙ M: f32[I, J] + 0.1 ⊙ f32(G[I, J]); V2: f32[I, J] = 0.99 ⊙ V: f32[I, J] + 0.01 ⊙ "
    "square(f32(G)); P2: f32[I, J] = P: f32[I, J] - 0.01 ⊙ M2 / (sqrt(V2) + 1e-3); W2: bf16[I, J] = bf16(P2); "
    "return W2, P2, M2, V2"
)
LOOPS = [
    ADAM,  # one loop reads four arrays and writes four
    "C[I, J] = A[I, J] + B[I, J]",  # one instruction alone
    "C: bf16[I, J] = bf16(relu(A: f32[I, J]) + B: f32[I, J])",
    "C[I, L] = silu(A[I, J]) · V[J, L]",  # computed as the product reads it
    "T = A[I, J] ⊙ B[I, J]; C[I, J] = T + exp(T); D[I] = sum_J(T)",
    "C[I] = sum_J(A[I, J]); D[I] = sum_J(square(A))",
    "C[I, J] = where(A[I, J] > B[I, J], A, B)",
    # what waits for a sum over a product's result is no part of its loop, and computed as two products read it
    "G[I, J] = Y[I, L] · V[J, L]; D = G ⊙ rsqrt(mean_J(square(G))); E[I, K] = D · B[K, J]; F[J, K] = D · C[I, K]",
]


@pytest.mark.tpu
@pytest.mark.parametrize(("text", "topology"), on_both(LOOPS))
def test_what_one_loop_does_is_priced_once(text, topology):
    """An array more that is read, or a result that is written apart, takes at least a sixth of the time."""
    plan = planned(text, topology, LARGE)
    assert plan.verify().replayed.compute_s == pytest.approx(plan.cost.compute_s, rel=0.12)


SHARES = [  # sizes of I and J, a type, and whether the share is cut out by itself
    ("B[I, J_X] = relu(A[I, J])", (262144, 512), "bf16", True),
    ("B[I, J_X] = relu(A[I, J])", (262144, 256), "bf16", True),
    ("B[I, J_X] = neg(A[I, J])", (65536, 1536), "bf16", True),
    ("B[I, J_X] = neg(A[I, J])", (65536, 512), "f32", True),
    ("B[I, J_X] = relu(A[I, J])", (65536, 2048), "bf16", False),
    ("B[I, J_X] = neg(A[I, J])", (131072, 1024), "bf16", False),
    ("C[I, J_X] = A[I, J] + B[I, J_X]", (65536, 2048), "bf16", False),
    ("B[I_X, J] = neg(A[I, J])", (65536, 2048), "bf16", False),
]


def of_shares(text, sizes, dtype):
    return shardc.plan(text, mesh="X=8", dims=dict(zip("IJ", sizes, strict=True)), topology="v5e:2x4", dtype=dtype)


@pytest.mark.instant
@pytest.mark.parametrize(("text", "sizes", "dtype", "is_cut_out"), SHARES)
def test_a_share_is_cut_out_by_itself_where_its_rows_are_no_whole_tiles(text, sizes, dtype, is_cut_out):
    share, reader = of_shares(text, sizes, dtype).steps
    assert share.op == "Slice" and ("W_copy" in share.formula) == is_cut_out
    assert is_cut_out or "W_alone" not in reader.formula, "what cuts a share is no single instruction"


SHARES_TO_MOVE = [
    ("A[I_Y, J_X] · B[J_XZ, K] → C[I_YZ, K_X]", "X=2,Y=2,Z=4", "v5e:4x4", {"I": 16384, "J": 8192, "K": 16384}),
    ("A[I_XYZ, J] · B[J_X, K_Y] → C[I_XY, K]", "X=2,Y=2,Z=2", "v5p:2x2x2", {"I": 4096, "J": 4096, "K": 16384}),
]


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize(("text", "mesh", "topology", "dims"), SHARES_TO_MOVE)
def test_a_share_that_a_collective_reads_is_priced_as_replayed(text, mesh, topology, dims):
    """As pieces that are laid near; on v5e, where it was priced as a copy on the chip, a quarter of what it takes."""
    plan = shardc.plan(text, mesh=mesh, topology=topology, dims=dims, dtype="bf16")
    steps = plan.schedule.steps
    sent = {operand for step in steps if step.is_collective for operand in step.operands}
    priced = [step.cost.time_s for step in steps if step.name == "Slice" and step.result in sent]
    found = [event for event in plan.verify().replayed.events if "dynamic-slice" in event.name]
    replayed = sorted(event.end_ps - event.start_ps for event in found)
    assert replayed[: len(priced)] == pytest.approx([1e12 * price for price in sorted(priced)], rel=0.05)


@pytest.mark.tpu
@pytest.mark.parametrize(("text", "sizes", "dtype", "is_cut_out"), SHARES)
def test_a_share_is_priced_as_replayed(text, sizes, dtype, is_cut_out):
    """Without what is cut out, half of the time and more is missing; an instruction too many is two thirds of it."""
    plan = of_shares(text, sizes, dtype)
    assert plan.verify().replayed.step_s == pytest.approx(plan.cost.time_s, rel=0.25)
