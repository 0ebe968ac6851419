"""A program's plan against every choice of its free shardings, and against the same text in other statements."""

import sys
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import CHIPS, LinkModel
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import spell
from shardc.planner import Objective, plan_program, plan_with_subaxes, planned_at_once
from shardc.planner.options import Options
from shardc.planner.whole.realise import _outlived
from shardc.testing import partial_programs, shardings
from shardc.testing.oracles import all_shardings

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

MESHES = ({"X": 2}, {"X": 4}, {"X": 2, "Y": 2})
MORE_THAN_ANY = 1 << 200  # a price
SIZES = {"I": 64, "J": 32, "K": 128, "L": 16, "M": 256}
# Per kind: its lines, {} for each sharding that is drawn; and the arrays that it leaves free.
KINDS = {
    "two consumers": (
        "T = A[I, J]{} · B[J, K]{}; S[I, L]{} = T · C[K, L]{}; R[I, M]{} = T · D[K, M]{}",
        {"T": "IK"},
    ),
    "three consumers": (
        "T = A[I, J]{} · B[J, K]{}; S[I, L]{} = T · C[K, L]{}; R[I, M]{} = T · D[K, M]{}; Q[I, K]{} = relu(T)",
        {"T": "IK"},
    ),
    "a function": ("T = A[I, J]{} · B[J, K]{}; S[I, K]{} = relu(T)", {"T": "IK"}),
    "a product of a function": (
        "T = A[I, J]{} · B[J, K]{}; H = gelu(T); S[I, L]{} = H · C[K, L]{}",
        {"T": "IK", "H": "IK"},
    ),
    "a sum of products": (
        "T = A[I, J]{} · B[J, K]{}; V = C[I, L]{} · D[L, K]{}; S[I, K]{} = T + V",
        {"T": "IK", "V": "IK"},
    ),
    "added to a whole one": (
        "T = C[I, K]{} + A[I, J_X] · B[J_X, K]; S[I, K]{} = T + D[I, L_X] · E[L_X, K]",
        {"T": "IK"},
    ),
    "a residual": ("T = A[I, J]{} · B[J, J2]{}; S[I, J2]{} = relu(T) - T", {"T": "IJ2"}),
    "an open input": ("T = A[I_?, J_?] · B[J, K]{}; S[I, L]{} = T · C[K, L]{}", {"A": "IJ", "T": "IK"}),
}


def model_of(mesh):
    return LinkModel.of(mesh, CHIPS["v5p"])


def parsed(text, mesh, dims=SIZES):
    return shardc.parse(text, mesh=dict(mesh.axes), dims={d: n for d, n in dims.items() if d in text}, dtype="bf16")


def drawn_text(draw, mesh, kind):
    """The lines with a sharding in each bracket that is to have one."""
    text, free = KINDS[kind]
    text = text.replace("J2", "L") if kind == "a residual" else text
    parts = text.split("{}")
    done = parts[0]
    for part in parts[1:]:
        head, _, dims = done.rpartition("[")
        names = tuple(dims.removesuffix("]").split(", "))
        done = head + spell(names, draw(shardings(mesh, len(names), unreduced=False))) + part
    return done, {name: tuple(dims.replace("J2", "L")) for name, dims in free.items()}


@st.composite
def cases(draw, meshes=MESHES, kinds=tuple(KINDS)):
    mesh = Mesh.of(draw(st.sampled_from(meshes)))
    kind = draw(st.sampled_from(kinds))
    if kind in ("a product of a function", "a sum of products", "an open input"):
        mesh = Mesh.of({"X": 4})  # two free arrays: 4 · 4 choices on one axis
    return mesh, *drawn_text(draw, mesh, kind)


def each_choice(text, free, mesh):
    """The text with every choice of shardings for what it leaves free."""
    options = [[spell(dims, lies) for lies in all_shardings(mesh, len(dims))] for dims in free.values()]
    for chosen in product(*options):
        found = text
        for (name, dims), lies in zip(free.items(), chosen, strict=True):
            found = found.replace(f"{name}[{', '.join(dim + '_?' for dim in dims)}]", name + lies)
            found = found.replace(f"{name} = ", f"{name}{lies} = ", 1)
        yield found


def least_of_all(text, free, mesh, objective, dims=SIZES):
    """The price of the cheapest choice, each planned statement by statement."""
    found = []
    for choice in each_choice(text, free, mesh):
        try:
            planned = planned_at_once(parsed(choice, mesh, dims), model_of(mesh), objective, Options(masks=True))
        except ShardcError:
            continue  # nothing leads there
        found.append(planned.price(objective))
    return min(found, default=MORE_THAN_ANY)


def first(price, objective):
    return objective.first(price)


IN_DIGITS = (
    Mesh.of({"X": 2, "Y": 2}),
    "T = A[I_Y, J] · B[J_Y, L]; S[I, L_YX] = relu(T) - T",
    {"T": ("I", "L")},
)


@settings(max_examples=5, deadline=None)
@example(IN_DIGITS, Objective.BYTES)
@given(cases(), st.sampled_from(Objective))
def test_no_choice_of_the_free_shardings_is_cheaper(case, objective):
    assert_no_choice_is_cheaper(case, objective)


@pytest.mark.exhaustive
@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from(Objective))
def test_no_choice_of_the_free_shardings_is_cheaper_over_more(case, objective):
    assert_no_choice_is_cheaper(case, objective)


def assert_no_choice_is_cheaper(case, objective):
    mesh, text, free = case
    planned = plan_program(parsed(text, mesh), model_of(mesh), objective)
    assert first(planned.price(objective), objective) <= first(least_of_all(text, free, mesh, objective), objective)
    assert planned.bound_bytes <= planned.cost.wire_bytes
    assert_means_the_program(planned.schedule)


SCATTERED_BESIDE_ITS_PLACE = (  # in turn on X0·X1 Z was scattered along L, and moved from there: 13.6 MB for 12.6
    Mesh.of({"X": 8}),
    "H = relu(A[I_X, J] · B[J, K_X]); Z = H · C[K_X, L]; S[I_X, L] = Z + D[I_X, L]",
    {"Z": ("I", "L")},
)
LARGE = {"I": 8192, "J": 1024, "K": 4096, "L": 1024, "M": 2048}


@pytest.mark.exhaustive
@settings(max_examples=20, deadline=None)
@example(SCATTERED_BESIDE_ITS_PLACE, LARGE)
@given(cases(({"X": 4}, {"X": 8})), st.sampled_from((SIZES, LARGE)))
def test_no_choice_brings_fewer_bytes_where_axes_are_cut(case, dims):
    mesh, text, free = case
    (program, *others), model = (
        (parsed(each, mesh, dims) for each in (text, *each_choice(text, free, mesh))),
        model_of(mesh),
    )
    found = plan_with_subaxes(program, model, Objective.BYTES)
    for other in others:
        with suppress(ShardcError):  # nothing leads there
            assert found.cost.wire_bytes <= plan_with_subaxes(other, model, Objective.BYTES).cost.wire_bytes


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from(Objective))
def test_a_plan_is_never_dearer_than_statement_by_statement(case, objective):
    mesh, text, _ = case
    program, model = parsed(text, mesh), model_of(mesh)
    in_turn = planned_at_once(program, model, objective)
    assert plan_program(program, model, objective).price(objective) <= in_turn.price(objective)


def test_the_oracle_finds_plans_that_planning_in_turn_misses():
    mesh = Mesh.of({"X": 4})
    text = "T = A[I, J_X] · B[J_X, K]; V = C[I, L_X] · D[L_X, K]; S[I_X, K] = T + V"
    dims = {"I": 64, "J": 512, "K": 64, "L": 512}
    found = least_of_all(text, {"T": "IK", "V": "IK"}, mesh, Objective.BYTES, dims)
    in_turn = planned_at_once(parsed(text, mesh, dims), model_of(mesh), Objective.BYTES)
    assert Objective.BYTES.first(found) * 2 <= in_turn.cost.wire_bytes


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "ops"),
    [
        (
            "T = A[I, J_X] · B[J_X, K]; V = C[I, L_X] · D[L_X, K]; S[I_X, K] = T + V",
            ["Einsum", "Einsum", "add", "ReduceScatter"],
        ),
        ("Q[I, K_X] = A[I_X, J] · B[J, K_X]; R[I, M_X] = A · D[J, M_X]", ["AllGather", "Einsum", "Einsum"]),
    ],
)
def test_what_the_plan_is_told_by(text, ops):
    """Steps and statements are those of the text: a sum that was put off, a gather that serves two."""
    sizes = {"I": 2048, "J": 2048, "K": 2048, "L": 2048, "M": 2048}
    found = shardc.plan(text, mesh={"X": 4}, dims={d: n for d, n in sizes.items() if d in text})
    assert [step.op for step in found.steps] == ops
    assert [statement.text for statement in found.statements] == [part.strip() for part in text.split(";")]
    for number, statement in enumerate(found.statements):
        mine = [step.op for step in found.steps if step.statement == number]
        own, *others = statement.cheapest(3)
        assert [step.op for step in own.steps] == mine
        assert all(other.time_s >= own.time_s for other in others)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "T = A[I_X, J]; S[I, J] = relu(T); R[I_X, J] = T + A",
        "T[I_?, J_?] = A[I_Y, J]{U_X}; S[I] = T[I_X, J] · T[I, J]",
        "S[I, J] = A[I_X, J]{U_Y} ⊙ A[I_X, J]; T[I_?, J_?] = A[I_Y, J]; R[I, J] = T",
        "T = A[I_X, J]; V = T; S[I, L] = V · B[J, L_Y]; R[J] = sum_I(A)",
        "T[] = S[]{U_X}; R[] = S[]{U_X} - T",
        "T = A[I_X, J]; T[I, J_Y] = T; V = T; R[I, J] = V + A; Q[I_X, J] = relu(T)",
    ],
)
@pytest.mark.parametrize("objective", ["time", "bytes"])
def test_another_name_for_an_array_is_that_array(text, objective):
    """A statement that only binds a name to what lies somewhere has no step, and later statements read that name."""
    found = shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=SIZES, dtype="f32", objective=objective)
    assert_means_the_program(found.schedule)


@settings(max_examples=100, deadline=None)
@given(partial_programs(), st.sampled_from(["time", "bytes"]))
def test_every_program_of_partial_sums_is_planned_as_it_is_meant(case, objective):
    """Reshards under new names, holes, collectives, sums that wait: of all that can be written, planned together."""
    found = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="f32", objective=objective)
    assert_means_the_program(found.schedule)


@st.composite
def texts_in_statements(draw):
    """The same meaning in one statement, and with a statement of its own for each operation."""
    mesh = Mesh.of(draw(st.sampled_from(({"X": 2}, {"X": 4}, {"X": 2, "Y": 2}))))

    def array(name, dims):
        return name + spell(tuple(dims), draw(shardings(mesh, len(dims), unreduced=False)))

    a, b, c, d = array("A", "IJ"), array("B", "JK"), array("C", "KL"), array("D", "IL")
    out = array("S", "IL")
    f = draw(st.sampled_from(("relu", "neg")))
    return mesh, *draw(
        st.sampled_from(
            (
                (f"{out} = {a} · {b} · {c}", f"T = {a} · {b}; {out} = T · {c}"),
                (f"{out} = {a} · ({b} · {c})", f"T = {a} · {b}; {out} = T · {c}"),
                (f"{out} = {f}({a} · {b}) · {c}", f"T = {a} · {b}; H = {f}(T); {out} = H · {c}"),
                (f"{out} = ({a} · {b}) · {c} + {d}", f"T = {a} · {b}; V = T · {c}; {out} = V + {d}"),
                (f"{out} = {a} · {b} · {c} + {d}", f"T = {b} · {c}; V = {a} · T; {out} = V + {d}"),
            )
        )
    )


@settings(max_examples=30, deadline=None)
@given(texts_in_statements(), st.sampled_from(Objective))
def test_a_price_does_not_depend_on_where_statements_end(case, objective):
    mesh, whole, apart = case
    prices = [plan_program(parsed(text, mesh), model_of(mesh), objective).price(objective) for text in (whole, apart)]
    assert first(prices[0], objective) == first(prices[1], objective)


def test_question_7_is_one_command():
    """Of *How To Scale Your Model*, chapter 3: both matrices over all four chips, on the dim that is summed last."""
    text = "In[B_?, D_?] ·_D Win[D_?, F_?] ·_F Wout[F_?, D_?] → Out[B_?, D_?]"
    asked = {"mesh": {"X": 2, "Y": 2}, "dims": {"B": 128, "D": 8192, "F": 32768}, "dtype": "bf16", "chip": "v5e"}
    found = shardc.plan(text, memory="300MB", **asked)
    assert found.cost.peak_bytes <= 300e6
    assert found.cost.flops == 2 * 2 * 128 * 8192 * 32768 // 4
    assert found.cost.wire_bytes == 128 * 8192 * 2 * 3 // 4  # the result, reduced and scattered
    assert [array.local_shape for array in found.inputs[1:]] == [(8192, 8192), (8192, 8192)]
    with pytest.raises(ShardcError, match="no plan found keeps"):
        shardc.plan(text, memory=8192 * 32768, **asked)  # each chip's part of the two, and nothing else


def test_holes_over_every_axis_share_the_work():
    dims = {"B": 4096, "D": 4096, "F": 4096}
    found = shardc.plan("A[B_?, D_?] · B[D_?, F_?] → C[B_?, F_?]", mesh={"X": 4, "Y": 4, "Z": 4}, dims=dims)
    assert found.cost.flops == 2 * 4096**3 // 64
    assert found.cost.wire_bytes == 0


@settings(max_examples=15, deadline=None)
@given(cases(kinds=("a product of a function", "an open input", "two consumers")), st.sampled_from(Objective))
def test_a_limit_at_a_plans_peak_finds_one_as_good_and_a_byte_less_a_leaner_one_or_none(case, objective):
    mesh, text, _ = case
    program, model = parsed(text, mesh), model_of(mesh)
    free = plan_program(program, model, objective)
    at_peak = plan_program(program, model, objective, free.cost.peak_bytes)
    assert at_peak.price(objective) == free.price(objective)
    try:
        below = plan_program(program, model, objective, free.cost.peak_bytes - 1)
    except ShardcError as refusal:
        assert refusal.code == "SHC410"
        return
    assert below.cost.peak_bytes < free.cost.peak_bytes
    assert first(below.price(objective), objective) >= first(free.price(objective), objective)
    assert_means_the_program(below.schedule)


@pytest.mark.instant
@pytest.mark.parametrize("below", [1, 1024])
def test_under_a_limit_what_lies_open_is_chosen_again_for_all_statements_together(below):
    """Each statement in turn, with A where it is cheapest, needs more."""
    program = parsed("T = A[I_?, J_?] · B[J_X, K]; S[I_X, L] = T · C[K, L]", Mesh.of({"X": 4}))
    free = plan_program(program, model_of(program.mesh), Objective.BYTES).cost
    found = plan_program(program, model_of(program.mesh), Objective.BYTES, free.peak_bytes - below)
    assert found.cost.peak_bytes <= free.peak_bytes - below and found.cost.wire_bytes >= free.wire_bytes
    assert_means_the_program(found.schedule)


@st.composite
def renamed_uses(draw):
    """Arrays that lie as the planner likes, made by functions and products, each used once under names of its own."""
    lie = st.sampled_from(["", "_X", "_Y"])
    made = {
        "a": "a = exp(A[I{}, J{}])",
        "b": "b = B[I{}, L{}] · W[L, J]",
        "c": "c = relu(C[I{}, J{}] ⊙ g[J])",
    }
    names = draw(st.lists(st.sampled_from([*made]), min_size=2, max_size=3, unique=True))
    lines = []
    for name in names:
        first = draw(lie)
        lines.append(made[name].format(first, draw(lie) if not first else ""))
    used = [name + draw(st.sampled_from(["", "[S_?, T_?]"])) for name in names]
    same = all("[" in use for use in used) or not any("[" in use for use in used)
    used = used if same else [use.split("[")[0] + "[S_?, T_?]" for use in used]
    dims = "S{}, T{}" if "[" in used[0] else "I{}, J{}"
    first = draw(lie)
    result = dims.format(first, draw(lie) if not first else "")
    sign = draw(st.sampled_from([" + ", " ⊙ "]))
    return "; ".join([*lines, f"R[{result}] = {sign.join(used)}"])


@settings(max_examples=12, deadline=None)
@given(renamed_uses(), st.sampled_from(("time", "bytes")))
@example("a = exp(A[I_X, J]); b = exp(B[I_X, J]); R[S_X, T] = a[S_?, T_?] + b[S_?, T_?]", "time")
def test_a_use_under_other_names_is_of_the_array_as_it_was_made(text, objective):
    """What is made within the statement that uses it has the dims of its own statement, not those of the use."""
    sizes = {"I": 8, "J": 8, "L": 8, "S": 8, "T": 8}
    found = shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=sizes, objective=objective, dtype="f32")
    assert_means_the_program(found.schedule)


@st.composite
def sums_of_products(draw):
    """The same sum as one product, as a sum of a product, and in two statements; at times as the mean or turned."""
    mesh = Mesh.of(draw(st.sampled_from(({"X": 2}, {"X": 4}, {"X": 2, "Y": 2}))))
    pool = "IJKL"
    left = draw(st.lists(st.sampled_from(pool), min_size=2, max_size=3, unique=True))
    right = draw(st.lists(st.sampled_from(pool), min_size=2, max_size=3, unique=True))
    both, own = {*left} & {*right}, [dim for dim in left + right if (dim in left) != (dim in right)]
    assume(both and {*left} - both and {*right} - both)
    first, later = draw(st.permutations(sorted(both))), draw(st.permutations(own))
    count = draw(st.integers(0, len(first) - 1))  # of the dims of both that the product sums already
    kept = first[count + 1 :] + later
    assume(any(dim in kept for dim in {*left} - both) and any(dim in kept for dim in {*right} - both))

    def array(name, dims):
        return name + spell(tuple(dims), draw(shardings(mesh, len(dims), unreduced=False)))

    a, b = array("A", left), array("B", right)
    out = array("S", draw(st.permutations(kept)))
    product = f"{a} ·_{{{','.join(first[:count])}}} {b}" if count else f"{a} · {b}"
    last = first[count]
    before = [dim for dim in dict.fromkeys(left + right) if dim not in first[:count]]
    return mesh, (
        f"{out} = {a} ·_{{{','.join(first[: count + 1])}}} {b}",
        f"{out} = sum_{last}({product})",
        f"T[{', '.join(dim + '_?' for dim in before)}] = {product}; {out} = sum_{last}(T)",
    )


@settings(max_examples=40, deadline=None)
@example((Mesh.of({"X": 4}), ("S[I,K] = A[I_X,J] ·_J B[J,K]", "S[I,K] = sum_J(A[I_X,J] · B[J,K])")), Objective.TIME)
@given(sums_of_products(), st.sampled_from(Objective))
def test_a_sum_of_a_product_costs_what_the_product_that_sums_as_much_does(case, objective):
    """In one statement and in two: `sum_B(x ·_T dy)` took a hundredth more than `x ·_{B,T} dy`, `sum_J(A · B)` a
    thousand times as long as `A ·_J B`."""
    mesh, spellings = case
    sizes = {"I": 512, "J": 256, "K": 1024, "L": 128}
    prices = [plan_program(parsed(text, mesh, sizes), model_of(mesh), objective) for text in spellings]
    assert len({first(each.price(objective), objective) for each in prices}) == 1
    assert len({each.cost.flops for each in prices}) == 1


SUMMED_BEFORE = {
    "S[I] = sum_K(A[I, J] ·_J B[J, K])": "b[J] = sum_K(B[J, K]); S[I] = A[I, J] · b",
    "T = A[I, J_X] ·_J B[J_X, K]; S[I] = sum_K(T)": "b[J_X] = sum_K(B[J_X, K]); S[I] = A[I, J_X] · b",
    "S[L] = sum_I(A[I, J] · B[J, K] · C[K, L])": "a[J] = sum_I(A[I, J]); S[L] = a · B[J, K] · C[K, L]",
    "S[I] = sum_{K,L}(A[I, J] · B[J, K] · C[K, L])": "c[K] = sum_L(C[K, L]); S[I] = A[I, J] · B[J, K] · c",
    "S = sum_{I,K}(A[I_X, J] ·_J B[J, K])": "a[J_?] = sum_I(A[I_X, J]); b[J_?] = sum_K(B[J, K]); S = a ·_J b",
}


@pytest.mark.instant
@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("text", SUMMED_BEFORE)
def test_what_one_operand_alone_has_is_summed_before_the_product(text, objective):
    """Of A · B no number is made that is added up at once: 723 µs were priced, and 157 taken."""
    mesh, sizes = Mesh.of({"X": 4}), {"I": 512, "J": 256, "K": 1024, "L": 128}
    found, apart = (
        plan_program(parsed(each, mesh, sizes), model_of(mesh), objective) for each in (text, SUMMED_BEFORE[text])
    )
    assert first(found.price(objective), objective) == first(apart.price(objective), objective)
    assert found.cost.flops == apart.cost.flops
    assert_means_the_program(found.schedule)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("t = relu(x[B]); x = x + b[B]; S[L, B] = t", {"t"}),
        ("t = relu(x[B]); S[L, B] = t; x = x + b[B]", set()),  # before it is bound anew
        ("t = relu(x[B]); S[L, B] = t", set()),
        ("t = relu(x[B]); u = exp(t); x = x + b[B]; S[L, B] = u", {"u"}),  # which is made of what t is
        ("t = relu(x[B]); x = x + t; S[L, B] = x", set()),
    ],
)
def test_what_is_read_after_what_it_is_made_of_is_bound_anew_outlives_that(text, found):
    left = "S, x" if "; x = " in text else "S"
    program = shardc.parse(f"for L {{ {text} }}\nreturn {left}", mesh="X=2", dims={"B": 8, "L": 2})
    assert _outlived(program.statements, {"t", "u"}) == found
