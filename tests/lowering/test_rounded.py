"""What lies and moves as bf16 of a program in f32, by hand, and as the compiler has it."""

import pytest

import shardc
from shardc.ir.expressions import Product, parts_of
from shardc.lowering.read import read_of
from shardc.lowering.rounded import as_kept, kept, rounded
from shardc.machines import tpu

MESH, SIZES = {"X": 2, "Y": 4}, {"I": 65536, "J": 512, "K": 1024, "L": 4}
BY_ROWS = "for -L { C[L, I_XY, K] = A[L, I_XY, J] · D }"


def block_of(text, topology="v5p:2x2x2"):
    plan = shardc.plan(text, mesh=MESH, dims=SIZES, topology=topology, dtype="f32", objective="bytes", overlap="off")
    return plan.schedule.block


def names(block, numbers):
    return {str(block.values[number]) for number in numbers}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C[I_XY, K] = A[I_XY, J] · B[J_XY, K]", {"B[J, K]"}),  # gathered for a product
        (
            "D[J_XY, K] = relu(B[J_XY, K]); E = D[J, K]; C[I_XY, K] = A[I_XY, J] · E",
            {"D[J_XY, K]", "E[J, K]"},
        ),  # computed, then gathered
        ("E[K, J_XY] = B[J_XY, K]; C[I_XY, K] = A[I_XY, J] · E", {"E[K, J_XY]", "E[K, J]"}),  # turned, then gathered
        ("D[J, K] = B[J_XY, K]; E[K, J] = D; F[K, J] = E + E", set()),  # turned, for no product
        ("D[J, L, K] = B[J_XY, L, K]; E[J, L] = sum_K(D); C[I_XY, L] = A[I_XY, J] · E", {"E[J, L]"}),  # a sum is not
        ("D[J, K] = B[J_XY, K]; C[I_XY, K] = A[I_XY, J] · D; E[J, K] = D + D", set()),  # read by others as well
        ("D[J, K] = B[J_XY, K]; C[I_XY, K] = A[I_XY, J] · D; return C, D", set()),  # an output
        ("D[J, K] = B[J_XY, K]; for L { C[L, I_XY, K] = A[L, I_XY, J] · D }", {"D[J, K]"}),  # the same in each trip
        ("D[J, K] = B[J_XY, K]; for L { C[L, I_XY, K] = A[L, I_XY, J] · D; x = x[J, K] + D }", set()),
        # What is carried, though products alone read it: it has one type from trip to trip.
        ("x[J, K] = B[J_XY, K]; for L { C[L, I_XY, K] = A[L, I_XY, J] · x; x = F[L, J, K] }; return C", set()),
        # What a loop stacks, and another reads by rows, whatever else is read of a row in the first.
        (f"for L {{ D[L, J, K] = B[L, J_XY, K]; R[L, J] = sum_K(D ⊙ D) }}; {BY_ROWS}", {"D[L, J, K]"}),
        (f"for L {{ D[L, J, K] = B[L, J_XY, K] }}; {BY_ROWS}; E[L, J, K] = D + D", set()),
        (f"for L {{ D[L, J, K] = B[L, J_XY, K] }}; {BY_ROWS}", {"D[L, J, K]"}),
        ("P = softmax_J(A[I_XY, J]); C[I_XY, K] = P · B[J_XY, K]", set()),  # one kernel
        ("D[J, K] = B[J_XY, K]; E = bf16(D); F: f32[J, K] = exp(f32(E))", {"D[J, K]"}),  # the text rounds
        ("D[J, K] = B[J_XY, K]; E = bf16(exp(D)); F: f32[J, K] = f32(E)", {"E_1[J, K]"}),
    ],
)
def test_what_products_alone_read_is_rounded(text, expected):
    block = block_of(text)
    assert names(block, kept(block)) == expected
    narrow = as_kept(block).values
    assert {str(one) for one, other in zip(block.values, narrow, strict=True) if one.dtype != other.dtype} == expected


FUNCTIONS = {
    "relu(D)": True,
    "abs(D)": True,
    "maximum(relu(D), F[J, K])": True,
    "where(F[J, K] > 0, D, 0)": True,
    "where(D > 0, F[J, K], 0)": False,
    "-D": False,
    "square(D)": False,
    "D + F[J, K]": False,
}


@pytest.mark.instant
@pytest.mark.parametrize(("text", "is_rounded"), FUNCTIONS.items())
def test_what_leaves_the_numbers_that_it_is_given_rounds_where_they_are_made(text, is_rounded):
    block = block_of(f"D[J, K] = B[J_XY, K]; E = {text}; C[I_XY, K] = A[I_XY, J] · E")
    assert ("D[J, K]" in names(block, kept(block))) == is_rounded


BY_THE_TEXT = {  # the arrays that products read, directly or by what leaves their numbers, whoever else does
    "C[I, K] = A[I, J] · B[J, K]": "A B",
    "T = relu(A[I, J]); C[I, K] = T · B[J, K]": "A B T",
    "T = -A[I, J]; C[I, K] = T · B[J, K]": "B T",
    "T = relu(A[I, J]); C[I, K] = T · B[J, K]; return C, T": "B T",
    "T = relu(A[I, J]); C[I, K] = T · B[J, K]; D[I, J] = -T": "B T",
    "C[I, L] = (A[I, J] · B[J, K]) · D[K, L]": "A B D",
    "T[I, K] = A[I, J] · B[J, K]; C[I, L] = relu(T) · D[K, L]": "A B D T",
    "C[I, J] = A[I, J] ⊙ B[I, J]": "",
    "C[I, J] = A[I] · B[J]": "",
    "C[I] = sum_J(A[I, J] ⊙ B[I, J])": "",
    "T = sum_J(A[I, J]); C[K] = T · B[I, K]": "",
    "T[J, I] = A[I, J]; C[I, K] = T · B[J, K]": "A B T",
    "C[I, K] = AllGather_X(A[I_X, J]) · B[J, K]": "A B",
    "C[I, K] = AllReduce_X(A[I, J]{U_X}) · B[J, K]": "B",
    "P = softmax_J(A[I, J]); C[I, K] = P · B[J, K]": "",
    "C[I, K] = softmax_J(A[I, J]) · B[J, K]": "",
    "C[I, K] = relu(softmax_J(A[I, J])) · B[J, K]": "B",
    "T = bf16(A[I, J]); C: f32[I, J] = exp(f32(T))": "A",
    "T = f16(A[I, J]); C: f32[I, J] = exp(f32(T))": "",
    "T = where(A[I, J] > 0, B[I, J], 0); C[I, K] = T · D[J, K]": "B D T",
    "for L { C[L, I, K] = A[L, I, J] · B[J, K] }": "A B",
    "for L { x = x[J, K] + B[J, K]; C[L, I, K] = A[L, I, J] · x }": "A x",
}


@pytest.mark.instant
@pytest.mark.parametrize("text", BY_THE_TEXT)
def test_a_search_goes_by_what_the_text_says_that_products_read(text):
    program = shardc.parse(text, mesh=MESH, dims=SIZES, dtype="f32")
    assert " ".join(sorted(read_of(program).by_products)) == BY_THE_TEXT[text]


def test_of_a_chain_what_products_alone_read_is_rounded_on_the_way():
    rounded_ = {}
    for text in ("C[I, L] = (A[I, J] · B[J, K]) · D[K, L]", "C[I, L] = -(A[I, J] · B[J, K]) · D[K, L]"):
        program = shardc.parse(text, mesh=MESH, dims=SIZES, dtype="f32")
        (whole, *_) = parts = [*parts_of(program.statements[0].expr)]
        inner = next(part for part in parts[1:] if isinstance(part, Product))
        assert not read_of(program).is_rounded(whole)
        rounded_[text] = read_of(program).is_rounded(inner)
    assert [*rounded_.values()] == [True, False]


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
def test_what_is_rounded_is_moved_as_bf16_and_nothing_else(topology):
    """Of one program all that is said above: each gather takes the bytes that are predicted, half of the table's."""
    text = "; ".join(
        f"D{n}[J, K] = B{n}[J_XY, K]; E{n} = {one.replace('D', f'D{n}').replace('F', f'F{n}')}; "
        f"C{n}[I_XY, K] = A[I_XY, J] · E{n}"
        for n, one in enumerate(FUNCTIONS)
    )
    text += "; P = softmax_J(A); S[I_XY, K] = P · V[J_XY, K]; G[J, K] = H[J_XY, K]; for L { T[L, J] = A2[L, J] · G }"
    outputs = ", ".join(f"C{n}" for n in range(len(FUNCTIONS)))
    text += f"; return {outputs}, S, T"
    sizes = SIZES | {"I": 4096}
    plan = shardc.plan(text, mesh=MESH, dims=sizes, topology=topology, dtype="f32", overlap="off", idle="keep")
    found = plan.verify()
    assert found.agrees and {match.kind for match in found.steps} == {"AllGather"}
    assert found.predicted_bytes < plan.cost.wire_bytes


def test_sums_that_products_read_are_added_up_as_they_are():
    block = block_of("D[J, K] = B[J, K]{U_XY}; C[I_XY, K] = A[I_XY, J] · D")
    assert "D[J, K]" in names(block, rounded(block)) and as_kept(block) == block


@pytest.mark.tpu
@pytest.mark.exhaustive
def test_experts_and_their_gradients_move_what_is_planned():
    """Four gathers, each sliced before products read it, took half the bytes, and were no match."""
    text = """Dispatched = Dispatch[G_X, S, E, C] ·_S x[G_X, S, M]
In[E_X, G, C, M] = Dispatched
Hidden = relu(In ·_M Wi[E_X, M, H_Y])
Out[E_X, G, C, M] = Hidden ·_H Wo[E_X, H_Y, M]
y[G_X, S, M] = Combine[G_X, S, E, C] ·_{E,C} Out"""
    dims = {"G": 8, "S": 128, "M": 256, "E": 8, "C": 4, "H": 512}
    program = shardc.parse(text, mesh=MESH, dims=dims, topology="v5p:2x2x2", dtype="f32")
    found = shardc.plan(shardc.grad(program, whole=True)).verify()
    assert found.agrees and sum("bf16" in match.remark for match in found.steps) >= 4


WIDENED = [
    ("L[I_X] = max_J(f32(S[I_X, J_Y]))", True),
    ("L[I_X] = min_J(f32(S[I_X, J_Y]))", False),
    ("T = f32(S[I_X, J_Y]); L[I_X] = logsumexp_J(T); M[I_X] = sum_J(T)", True),
    ("L[I_X] = max_J(relu(f32(S[I_X, J_Y])))", False),
    ("L[I_X] = max_J(2 ⊙ f32(S[I_X, J_Y]))", False),
    ("L[I_X] = max_J(S: f32[I_X, J_Y])", False),
    ("L[I_X] = max_J(f32(S[I_XY, J]))", False),
]


@pytest.mark.instant
@pytest.mark.parametrize(("text", "is_narrow"), WIDENED)
def test_the_largest_of_what_was_widened_is_sent_as_it_was(text, is_narrow):
    plan = shardc.plan(text, mesh=MESH, dims={"I": 65536, "J": 512}, topology="v5p:2x2x2", idle="keep")
    found, steps = kept(plan.schedule.block), plan.schedule.steps
    sent = [step.result for step in steps if step.is_collective]
    assert bool(found) is is_narrow and len(found.intersection(sent)) == is_narrow


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
@pytest.mark.parametrize("text", [text for text, _ in WIDENED])
def test_so_it_is_compiled(text, topology):
    """Sent as f32 it was said to be, of a logsumexp of f32(logits), and half of it was seen."""
    pytest.importorskip("libtpu")
    assert shardc.plan(text, mesh=MESH, dims={"I": 65536, "J": 512}, topology=topology).verify().agrees


@pytest.mark.tpu
@pytest.mark.skipif(not tpu.is_installed(), reason="no libtpu")
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
@pytest.mark.parametrize(
    "text",
    [
        "Q[J_X, H] = S[J_X, K] ·_K D[K, H]; return Q",  # one sum for all
        "Q[J_X, H] = S[J_X, K] ·_K D[K, H]; R = D + D; return Q, R",
        "Q[J_X, H] = S[J_X, K] ·_K D[K, H]; return Q, D",
        "Q[J_X, H] = D[J_X, K] ·_K D[K, H]; return Q",
        "E = relu(D); Q[J_X, H] = S[J_X, K] ·_K E[K, H]; R = D + D; return Q, R",  # of something else
    ],
)
def test_what_is_gathered_as_it_was_scattered_is_sent_as_planned(text, topology):
    """Of f32, whoever else reads its parts: gathered as bf16 1.8 MB would be promised where 3.7 are sent."""
    scattered = "T[J, H]{U_XY} = Z[J, L_XY] · W[L_XY, H]; D[J_XY, H] = ReduceScatter(T[J, H]{U_XY}); "
    sizes = {"J": 1024, "H": 1024, "K": 1024, "L": 1024}
    text = scattered + text.replace("J_X", "J_XY")
    plan = shardc.plan(text, mesh=MESH, dims=sizes, topology=topology, dtype="f32", idle="keep", overlap="off")
    assert plan.verify().agrees
