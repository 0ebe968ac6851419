"""Which products of small matrices are added up term by term, and that it is proved, and priced, as what it is."""

import pytest

import shardc
from shardc.emit import source
from shardc.ir.plan import Einsum, Loop
from shardc.lowering.lower import lower
from shardc.lowering.small import Matrices
from shardc.proving import Verdict, prove

V5E, V5P = "v5e:2x4", "v5p:2x2x2"
SIZES = {"B": 4, "T": 512, "S": 512, "H": 8, "C": 2, "F": 2, "E": 64, "N": 1024, "L": 3}
ROTATION = "Q[B, T, H_X, F, E] = x[B, T, H_X, C, E] · R[T, C, F, E]"
MANY = "Y[N_X, H, F] = A[N_X, H, C] · W[N_X, C, F]"


def planned(text, dims=(), **options):
    options = {
        "mesh": "X=2,Y=4",
        "dims": SIZES | dict(dims),
        "dtype": "bf16",
        "topology": V5E,
        "idle": "keep",
    } | options
    return shardc.plan(text, **options)


def products(plan):
    """The forms of the products, those of loops too."""

    def of(block, lowering):
        for step, form in zip(block.steps, lowering.forms, strict=True):
            if isinstance(step.op, Loop):
                yield from of(step.op.body, form.body)
            elif isinstance(step.op, Einsum):
                yield form

    return [*of(plan.schedule.block, lower(plan.schedule))]


def terms(plan):
    return [form.terms for form in products(plan)]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "dim"),
    [
        (ROTATION, "C"),
        ("Q[B_Y, T, H_X, F, E] = R[T, C, F, E] · x[B_Y, T, H_X, C, E]", "C"),
        ("Q[B, T, H, F, E] = x[B, T, H, C, E] · R[C, F]", None),  # one matrix
        (MANY, "C"),
        ("Y[N, H, F] = A[N, C, H] · W[F, C, N]", "C"),
        ("Y[N, H] = A[N, H, C] · W[N, C]", None),  # matrices and vectors
        ("Y[N, H, C] = A[N, H, C] · W[N, C]", None),  # nothing is summed
        ("Y[N, H, F] = A[N, H] · W[N, F]", None),
        ("Y[N, F] = A[N, C, E] · W[N, C, E, F]", None),  # a row, and of two dims
        ("Y[N, H, F] = A[N, H, C, E] · W[N, C, E, F]", None),
        ("Y[N, H, F] = sum_C(A[N, H, C]) ⊙ W[N, H, F]", None),
    ],
)
def test_a_product_of_many_small_matrices_is_added_up_term_by_term(text, dim):
    assert dim in terms(planned(text)) if dim else set(terms(planned(text))) == {None}


@pytest.mark.instant
@pytest.mark.parametrize(
    ("dims", "is_so"),
    [
        ({}, True),
        ({"N": 512}, True),  # 256 matrices on each device
        ({"N": 510}, False),
        ({"H": 64, "F": 64, "C": 32}, True),
        ({"H": 64, "F": 64, "C": 33}, False),
        ({"H": 65, "F": 64, "C": 32}, False),
        ({"H": 64, "F": 65, "C": 32}, False),
        ({"H": 1}, False),
        ({"F": 1}, False),
        ({"C": 1}, False),
    ],
)
def test_how_many_and_how_small(dims, is_so):
    assert terms(planned(MANY, dims)) == ["C" if is_so else None]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("dims", "is_so"),
    [
        ({"B": 64}, True),  # 256 rows on each device, each far from the next
        ({"B": 64, "C": 8}, True),
        ({"B": 64, "C": 9}, False),
        ({"B": 8, "H": 16, "C": 32}, True),
        ({"B": 8, "H": 18, "C": 32}, False),
    ],
)
def test_of_many_rows_where_the_last_dim_tells_matrices_apart(dims, is_so):
    assert terms(planned(ROTATION, dims)) == ["C" if is_so else None]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("options", "is_so"),
    [
        ({"topology": V5P}, True),
        ({"topology": None}, False),  # no compiler is named
        ({"topology": None, "chip": "h100"}, False),
        ({"dtype": "f32"}, True),
        ({"dtype": "int8"}, False),
    ],
)
def test_of_floats_for_a_tpu(options, is_so):
    text = MANY.replace("Y[", "Y: int32[") if options.get("dtype") == "int8" else MANY
    assert terms(planned(text, **options)) == ["C" if is_so else None]


SMALL = "q[N, H, F] = A[N, H, C] · W[N, C, F]; "


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("r = relu(q); s = r ·_{N,F} G[N, F, E]; z = tanh(q); return s, z", True),
        ("r = relu(q); return r", False),
        ("t = exp(relu(q)); s = t ·_{N,F} G[N, F, E]", True),
        ("r = relu(q); s = r ·_{N,F} G[N, F, E]; return r, s", True),
        ("m[N, H] = max_F(q); s = m ·_N G[N, E]", False),  # which lies in memory
        ("r = relu(q); m[N, H] = max_F(r); s = m ·_N G[N, E]", False),
        ("r = relu(A); s = r ·_{N,C} G[N, C, E]; return q, s", False),  # of what is another's
    ],
)
def test_what_a_product_reads_is_waited_for(text, is_so):
    first, *others = products(planned(SMALL + text))
    assert (first.terms, first.apart) == ("C", is_so)
    assert all((form.terms, form.apart) == (None, False) for form in others)


@pytest.mark.instant
@pytest.mark.parametrize("given", [(7, 3, 5, 2), (1, 8, 8, 8), (300, 2, 9, 4)])
def test_the_sizes_of_matrices_follow_from_numbers(given):
    count, rows, summed, columns = given
    sizes = count * rows * summed, count * summed * columns, count * rows * columns
    assert Matrices.of(count * rows * summed * columns, *sizes, False) == (*given, False)


@pytest.mark.instant
@pytest.mark.parametrize("dims", [{"B": 1, "D": 2, "E": 4}, {"B": 1, "D": 1, "E": 1}])
def test_less_than_a_number_for_each_device_is_no_matrix(dims):
    """A price may be asked of what is cut into more parts than it has numbers."""
    found = {Matrices.of(*(int(at != none) for at in range(4)), False) for none in range(4)}
    assert found == {Matrices(0, 0, 0, 0)}
    text = "for L { x[B, D] = relu(x[B, D] · W[L, D, E] ·_E V[E, D]) }; return x"
    assert not any(terms(planned(text, dims | {"L": 3}, idle=None)))


TEXTS = {
    "a rotation": ROTATION,
    "matrices": MANY,
    "two types": "Y[N, H, F] = A: bf16[N, H, C] · W: f32[N, C, F]",
    "read by a product": "q[N, H, F] = A[N, H, C] · W[N, C, F]; s[H, E] = q ·_{N,F} G[N, F, E]",
    "over a sharded dim": "Y[N_X, H, F] = A[N_X, H, C_Y] · W[N_X, C_Y, F]",
    "in a loop": "w[N, H, C] = v[N, H, C]; for L { w[N, H, C] = tanh(w[N, H, F] · A[L, N, F, C]) }; return w",
}


@pytest.mark.instant
@pytest.mark.parametrize("name", TEXTS)
def test_it_is_proved_and_a_bug_in_it_is_seen(name):
    plan = planned(TEXTS[name], {"C": 8, "F": 8} if "sharded" in name else {})
    text = source(plan.schedule, "v5e")
    assert "for left, right in zip(" in text and prove(plan.schedule, text).holds
    term = text.partition("sum(")[2].partition("->")
    letters = term[2].partition('"')[0]
    wrong = [
        text.replace("left, right in", "right, left in", 1),
        text.replace(", preferred_element_type=jnp.float32)\n        for", ")\n        for", 1),
        text.replace(f"->{letters}", f"->{letters[::-1]}", 1),
        text.replace("sum(", "list(", 1),
    ]
    assert all(prove(plan.schedule, each).verdict is not Verdict.PROVED for each in wrong if each != text)


def test_many_terms_take_longer_than_their_bytes():
    few, many = (planned(MANY, {"C": count, "H": 32, "F": 32, "N": 16384}).steps[-1] for count in (7, 8))
    assert many.time_s > 1.5 * few.time_s
    assert ")·1.21 + T_product" in few.formula and ")·2.25 + T_product" in many.formula


@pytest.mark.tpu
@pytest.mark.parametrize("topology", [V5E, V5P])
@pytest.mark.parametrize(
    ("text", "dims"),
    [
        (ROTATION, {"T": 4096}),
        (ROTATION, {"T": 1024, "B": 32}),
        (MANY, {"N": 131072, "H": 8, "C": 8, "F": 8}),
        (MANY, {"N": 16384, "H": 32, "C": 16, "F": 32}),
    ],
)
def test_small_matrices_take_what_is_priced(text, dims, topology):
    """As one product after another they take from 2 to 100 times as long."""
    plan = planned(text, dims, topology=topology)
    replayed = plan.verify().replayed.step_s
    assert any(terms(plan)) and replayed == pytest.approx(plan.cost.time_s, rel=0.25)
