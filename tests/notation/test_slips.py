"""A name mistyped is never taken in silence: an error, or a warning that names it.

Legal programs are drawn, one axis or one dim in one place is mistyped, and the program is read again. What a mistyped
program still says by the rules of the notation (`d_model` is a name; a dim on one operand alone is summed) it may mean,
with a warning.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shardc import ShardcError, check, cli, plan
from shardc.ir.mesh import Mesh
from shardc.ir.program import every_statement
from shardc.notation import parse
from shardc.notation.slips import near_axes

LAWS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
AXES = ["X", "Y", "data", "model", "tp", "fsdp"]
DIMS = ["I", "J", "K", "B", "batch", "width", "d_in"]
LETTERS = "abkxzABKXZ"


@st.composite
def programs(draw):
    """A product of two, with a subscript here and there, and what may follow it: (axes, words of the text)."""
    axes = draw(st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True))
    left, middle, right, batch = draw(st.lists(st.sampled_from(DIMS), min_size=4, max_size=4, unique=True))
    shared = draw(st.sampled_from([[], [batch]]))
    bracket = [[*shared, left, middle], [*shared, middle, right], [*shared, left, right]]
    text = []
    for name, dims in zip("AWR", bracket, strict=True):
        free = list(axes)
        words = [dim + _subscript(draw, free) for dim in dims]
        text.append(f"{name}[{', '.join(words)}]")
    after = draw(st.sampled_from(["", f"; relu(R) → S[{', '.join(bracket[2])}]", f"; sum_{right}(R) → S"]))
    if after.startswith("; sum") and len(right) > 1:
        after = f"; sum_{{{right}}}(R) → S"
    return axes, f"{text[0]} · {text[1]} → {text[2]}{after}"


def _subscript(draw, free):
    if not free or not draw(st.booleans()):
        return ""
    axis = free.pop(draw(st.integers(0, len(free) - 1)))
    return f"_{axis}" if draw(st.booleans()) or len(axis) == 1 else f"_{{{axis}}}"


@st.composite
def mistyped(draw, word):
    """The word with its case turned, or one letter left out, added, changed, or exchanged with the next."""
    at = draw(st.integers(0, len(word) - 1))
    kinds = [word.swapcase(), word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:]]
    kinds += [word[:at] + draw(st.sampled_from(LETTERS)) + word[at + 1 :]]
    kinds += [word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :]]
    slip = draw(st.sampled_from(kinds))
    assume(slip and slip != word)
    return slip


def said(text, axes, **options):
    """What is said of a program: nothing, its warnings, or its error."""
    try:
        program = parse(text, mesh=Mesh.of(dict.fromkeys(axes, 2)), **options)
    except ShardcError as error:
        assert error.help and error.code != "SHC900"
        return [error.code]
    return list(program.warnings)


def silent(text, axes):
    return [line for line in said(text, axes) if "shards nothing over mesh axis" not in line] == []


@pytest.mark.instant
@settings(LAWS, max_examples=60)
@given(programs())
def test_a_legal_program_is_met_with_silence(drawn):
    axes, text = drawn
    assert silent(text, axes), said(text, axes)


@settings(LAWS, max_examples=150)
@given(programs(), st.data())
def test_a_mistyped_axis_is_never_taken_in_silence(drawn, data):
    axes, text = drawn
    places = [found for found in re.finditer(r"_\{?(\w+?)\}?(?=[,\]])", text) if found[1] in axes]
    assume(places)
    place = data.draw(st.sampled_from(places))
    slip = data.draw(mistyped(place[1]))
    assume(slip not in axes and not (slip[0].isdigit()) and not all(letter in axes for letter in slip))
    wrong = text[: place.start(1)] + slip + text[place.end(1) :]
    assert not silent(wrong, axes), wrong


@settings(LAWS, max_examples=150)
@given(programs(), st.data())
def test_a_mistyped_dim_is_never_taken_in_silence(drawn, data):
    axes, text = drawn
    places = [
        found for found in re.finditer(r"(?<=[\[ ])[A-Za-z_]+?(?=_\{|_(?:" + "|".join(AXES) + r")\b|[,\]])", text)
    ]
    place = data.draw(st.sampled_from(places))
    slip = data.draw(mistyped(place[0]))
    assume(re.fullmatch(r"[A-Za-z]\w*", slip) and not slip.endswith("_") and slip not in DIMS)  # another program
    wrong = text[: place.start()] + slip + text[place.end() :]
    assert not silent(wrong, axes), wrong


@settings(LAWS, max_examples=50)
@given(programs(), st.sampled_from(DIMS), st.integers(1, 64), st.data())
def test_a_size_that_nothing_takes_is_named(drawn, dim, size, data):
    axes, text = drawn
    slip = data.draw(mistyped(dim))
    assume(re.fullmatch(r"[A-Za-z]\w*", slip) and slip not in DIMS)
    for lines in (said(text, axes, dims={slip: size}), said(f"dims {slip}={size}\n{text}", axes)):
        assert any(f"`{slip}`" in line or line.startswith("SHC") for line in lines), lines


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "axes", "code", "help"),
    [
        (
            "A[I_data, J] → A[I, J]",
            "X",
            "SHC201",
            "use one of them, or declare `mesh data=…`; or, if `I_data` is a dim",
        ),
        ("A[I, J] → A[I_dta, J]", "data", "SHC201", "did you mean `data`? Or, if `I_dta` is a dim"),
        ("A[I_x, J] · B[J, K] → C[I, K]", "X", "SHC201", "did you mean `X`?"),
        ("A[I_x, J] · B[J_X, K_y] → C[I_X, K]", "XY", "SHC201", "did you mean `X`?"),
        ("sum_I(A[I_dta, J]) → C[J]", "data", "SHC201", "did you mean `data`?"),
        ("dims I=8\nA[I_dta, J] → A[I_dta, J]", "data", "SHC201", "did you mean `data`?"),
        ("A[d_model_dta, J] → A[d_model, J]", "data", "SHC201", "did you mean `data`?"),
        ("A[I_x, J] → A[I, J]", "", "SHC201", "declare one: `mesh x=4`"),
    ],
)
def test_a_subscript_beside_its_dim_is_an_axis_or_an_error(text, axes, code, help):
    mesh = Mesh.of({"data": 2} if axes == "data" else dict.fromkeys(axes, 2))
    with pytest.raises(ShardcError) as caught:
        check(text, mesh=mesh)
    assert (caught.value.code, caught.value.message.split(";")[0].split(":")[0][:17]) == (code, "unknown mesh axis")
    assert caught.value.help.startswith(help), caught.value.help


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A[B, d_model] · W[d_model, F] → C[B, F]", ("B", "d_model")),
        ("dims d_ff=8\nA[d, d_ff] → A[d, d_ff]", ("d", "d_ff")),
        ("A[h, h_2] → A[h, h_2]", ("h", "h_2")),
    ],
)
def test_a_name_stays_a_name(text, names):
    assert parse(text, mesh=Mesh.of({"X": 2})).inputs[0].dims == names


@pytest.mark.instant
@pytest.mark.parametrize(
    ("part", "axes", "near"),
    [
        ("x", "X", "X"),
        ("xy", "X Y", "XY"),
        ("dta", "data", "data"),
        ("daata", "data", "data"),
        ("adta", "data", "data"),
        ("dp", "tp", "tp"),
        ("data", "Data", "Data"),
        ("model", "X data", None),
        ("ff", "X tp", None),
    ],
)
def test_what_is_nearly_an_axis(part, axes, near):
    assert near_axes(part, Mesh.of(dict.fromkeys(axes.split(), 2))) == near


@pytest.mark.instant
@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--dims", "Q=4"], "`Q`"),
        (["--mesh", "X=2,Q=2"], "`Q`"),
        (["--mesh", "X=2", "--dcn", "Q=2"], "`Q`"),
        (["--mesh", "X=2", "--dcn", "Q"], "`Q`"),
        (["--mesh", "X=2", "--map", "Q=0", "--topology", "v5p:2x1x1"], "`Q`"),
        (["--mesh", "X=2", "--wraparound", "Q=ring"], "`Q`"),
        (["--mesh", "X=2", "--wraparound", "X=ring,X=line"], "`X`"),
        (["--mesh", "X=2", "--map", "X=0,X=1", "--topology", "v5p:2x1x1"], "`X`"),
        (["--mesh", "X=2", "--dcn", "X", "--wraparound", "X=ring"], "`X`"),
        (["--mesh", "X=2", "--dcn", "P=2", "--map", "P=0", "--topology", "v5p:2x1x1"], "`P`"),
        (["--dtype", "f32"], "f32"),
    ],
)
def test_options_that_nothing_takes_are_named(options, word, capsys):
    text = "A: bf16[I_X] → A[I]"
    status = cli._status(["check", text, *(["--mesh", "X=2"] if "--mesh" not in options else []), *options])
    out, err = capsys.readouterr()
    assert word in err
    assert status in (0, 2, 4)
    assert (status == 0) == err.startswith("warning") == bool(out)


def test_the_plan_carries_the_warnings():
    found = plan("A[I, J] · B[M, K] → C[I, K]", mesh={"X": 2}, dims={"I": 4, "Jj": 4})
    for word in (
        "dim `J` is on `A` alone, and is summed there",
        "`M` is on `B` alone",
        "did you mean `J`?",
        "axis `X`",
    ):
        assert any(word in note for note in found.notes), found.notes


ARRAYS = {"dims": {"I": 8, "J": 4}, "dtypes": {"A": "f32"}, "mesh": Mesh.of({"X": 2, "Y": 2})}


@pytest.mark.instant
@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ("", None),
        ("mesh X=2; ", None),
        ("mesh X=2, Z=8; ", None),
        ("dims I=8, J=4; dtype f32; ", None),
        ("mesh X=4; ", "SHC203"),
        ("dims J=4, I=16; ", "SHC206"),
        ("dtype bf16; ", "SHC214"),
        ("A: int8", "SHC214"),
        ("A: f32", None),
    ],
)
def test_declarations_agree_with_the_arrays(declared, code):
    text = f"{declared}[I_X, J] → B[I, J]" if declared.startswith("A") else f"{declared}A[I_X, J] → B[I, J]"
    if code is None:
        assert parse(text, **ARRAYS, exact=True).inputs[0].dtype.name == "f32"
        return
    with pytest.raises(ShardcError) as caught:
        parse(text, **ARRAYS, exact=True)
    assert caught.value.code == code and caught.value.span is not None and caught.value.help
    parse(text, **ARRAYS)  # options override


# --- a dim gathered that the result has as it lay


def gathered(text):
    program = parse(text, mesh=Mesh.of({"X": 2, "Y": 4}), dims=dict.fromkeys("BDEST", 8))
    return [warning for warning in program.warnings if "gathers" in warning]


IN_VAIN = [
    ("h[B_X, T] = relu(x[B_X, T]); K[B_X, S, E] = h[B, S] · W[S, E]", "h[B, S]", "h[B_X, S]"),
    ("h[B_X, T_Y] = relu(x[B_X, T_Y]); K[B_X, E] = h[B, T] · W[T, E]", "h[B, T]", "h[B_X, T]"),
    ("h[B_X, T_Y] = relu(x[B_X, T_Y]); K[B_X, T_Y] = h[B, T] + h", "h[B, T]", "h[B_X, T_Y]"),
    ("dims L=3; for L { x[B_X, T] = relu(x[B_X, T]) + x[B, T] }", "x[B, T]", "x[B_X, T]"),
]


@pytest.mark.parametrize(("text", "asked", "better"), IN_VAIN)
def test_what_is_gathered_in_vain_is_named_and_its_remedy_moves_no_more(text, asked, better):
    (warning,) = gathered(text)
    assert f"`{asked}` gathers " in warning and f"; `{better}` moves none of it" in warning
    assert " has `B_X`" in warning and " again, as `" in warning
    mended = better.join(text.rsplit(asked, 1))
    assert not gathered(mended)
    moved = [
        plan(each, mesh={"X": 2, "Y": 4}, dims=dict.fromkeys("BDEST", 8), objective="bytes").cost.wire_bytes
        for each in (text, mended)
    ]
    assert moved[1] <= moved[0]


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "h[B_X, T] = relu(x[B_X, T]); K[B, S, E] = h[B, S] · W[S, E]",  # the result has it whole
        "h[B, T_X] = relu(x[B, T_X]); K[B, S, E] = h[B, S] · W[S, E]",  # a dim that is summed
        "h[B_X, T] = relu(x[B_X, T]); K[B_Y, S, E] = h[B, S] · W[S, E]",  # over another axis
        "h[B_X, T] = relu(x[B_X, T]); K[B_X, S, E] = h[B_?, S] · W[S, E]",
        "K[B_X, E] = x[B, T] · W[T, E]",  # x is given whole
    ],
)
def test_what_has_to_be_gathered_is_not(text):
    assert not gathered(text)


REPEATED = [  # what sums, whether the first dim of both, and what is repeated along it
    ("a = x[B_X, D] * g[D]; y[B_X, D] = x + a", "`a` sums D, and `y` has D beside it", "`a[D_?, B_?]`"),
    ("a = exp(d[B_X, D] * A[D, N]); y[B_X, D, N] = a ⊙ h[B_X, D, N]", "`a` sums D, and `y`", "`a[D_?, B_?, N_?]`"),
    ("a = x[B_X, D] * g[D]; y[B_X, D] = where(x > relu(a), x, 0)", "`a` sums D, and `y`", "`a[D_?, B_?]`"),
    ("y = x[B_X, D] + x * g[D]", "`y` sums D, and `y` has D beside it", "`y[D_?, B_?]`"),
]


@pytest.mark.instant
@pytest.mark.parametrize("text, said, kept", REPEATED, ids=[text for text, *_ in REPEATED])
def test_what_is_summed_and_then_repeated_is_named(text, said, kept):
    """It was meant element by element, and no shape says that it is not."""
    (warning,) = parse(text, mesh=Mesh.of({"X": 2})).warnings
    assert said in warning and kept in warning and "`·_D`" in warning


@pytest.mark.instant
@pytest.mark.parametrize("text", [text for text, *_ in REPEATED])
def test_what_is_summed_by_name_and_then_repeated_is_meant(text):
    assert not parse(text.replace(" * ", " ·_D "), mesh=Mesh.of({"X": 2})).warnings


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "h = x[B_X, D] · W[D, F]; y[B_X, D] = x + h · V[F, D]",  # not repeated, but multiplied
        "p = softmax_E(x[B_X, D] · W[D, E]); y[B_X, D] = p · h[B_X, E, D]",
        "g = max_E(x[B_X, D] · W[D, E]); y[B_X, D] = g ⊙ x",  # the function says over which dim it runs
        "a[B_X] = x[B_X, D] * g[D]; y[B_X, D] = x + a",  # said
    ],
)
def test_what_is_multiplied_again_is_not_repeated(text):
    assert not parse(text, mesh=Mesh.of({"X": 2})).warnings


SCORES = "p = softmax_S(q[B_X, T, H, E] · k[B_X, S, H, E]){}y[B_X, T, H, E] = p · v[B_X, S, H, E]"


SCALED = SCORES.replace("q[B_X, T, H, E] · k[B_X, S, H, E]", "q[B_X, T, H, E] · k[B_X, S, H, E] / sqrt(|E|)")
MASKED = SCALED.replace("softmax_S(", "softmax_S(where(index_T >= index_S, ").replace("|E|)", "|E|), -inf)")


@pytest.mark.instant
@pytest.mark.parametrize("scores", [SCORES, SCALED, MASKED])
def test_a_batch_that_a_result_without_brackets_sums_is_named(scores):
    """The scores of all sequences and heads are added up, and no shape says so: to name E in |E| says nothing of it."""
    (warning,) = parse(scores.format("; "), mesh=Mesh.of({"X": 2})).warnings
    assert "`p` sums B, H, E, and `y` has B beside it" in warning and "`p[B_?, H_?, T_?, S_?]`" in warning
    assert "`·_{B,H,E}`" in warning


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        SCORES.format("; ").replace("p = ", "p[T, S] = "),  # said
        SCORES.format("; ").replace("· k", "·_{B,H,E} k"),
        "h = x[B, D] · W[D, F]; y[B, D] = h · V[F, D]",  # another D comes back
        "dW = x[B, T, D] · dy[B, T, F]; W_new = W[D, F] - 0.1 ⊙ dW",
        "z = a[B, T, H, E] · W[H, E, D]; q[B, T, H, E] = z · Wq[D, H, E]",
    ],
)
def test_what_a_result_sums_as_meant_is_not_named(text):
    assert not [warning for warning in parse(text, mesh=Mesh.of({"X": 2})).warnings if "sums" in warning]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("In[B_X, D] · Win[D, F] · Wout[F, D] → Out[B_X, D]", True),
        ("Out[B_X, T, D] = In[B_X, T, D] · Win[D, F] · Wout[F, D]", True),
        ("In[B_X, D] ·_D Win[D, F] · Wout[F, D] → Out[B_X, D]", False),
        ("A[I_X, J] · B[J, K] · C[K, L] → R[I_X, L]", False),
        ("A[B_X, I] · W[B_X, J] · V[B_X, K] → R[B_X, I, J, K]", False),
        ("x[B_X, D] ⊙ g[D] · W[D, F] → R[B_X, F]", False),
        ("x[B_X, D] ⊙ g[D] ⊙ y[B_X, D] → R[B_X, D]", False),
        ("Q[B_X, T, E] · K[B_X, S, E] · V[B_X, S, E] → O[B_X, T, E]", False),
    ],
)
def test_a_chain_whose_first_product_sums_nothing_is_named(text, warns):
    """It would be another program than two products one after another, in silence."""
    told = [each for each in parse(text, mesh=Mesh.of({"X": 2})).warnings if "sums nothing" in each]
    assert bool(told) == warns and all("`·_D`" in each for each in told)


MLP = "y[B_X, T, D] = {}(x[B_X, T, D] ·{label} W[D, F]) · V[F, D]"
GATED = "y[B_X, T, D] = z[B_X, T, D] + ({}(x[B_X, T, D] ·{label} W[D, F]) ⊙ (x ·{label} U[D, F])) · V[F, D]"
BARE = "h = {}(x[B_X, D] ·{label} W[D, F] + b[F]) ⊙ (x ·{label} U[D, F])"
EXPERTS = "h = {}(x[E_X, C, D] ·{label} W[E_X, D, F]) ⊙ (x ·{label} U[E_X, D, F]); y[E_X, C, D] = h · V[E_X, F, D]"
ATTENTION = "y[B_X, T, H, D] = {}(softmax_S(q[B_X, T, H, D] ·{label} k[B_X, S, H, D] / sqrt(|D|))) · v[B_X, S, H, D]"


@pytest.mark.instant
@settings(LAWS, max_examples=25)
@given(st.sampled_from([MLP, GATED, BARE, EXPERTS, ATTENTION]), st.sampled_from(["relu", "gelu", "silu", "2 ⊙ ", ""]))
def test_a_product_below_a_function_that_keeps_what_it_would_sum_is_named(text, function):
    """Where `·` and `·_D` do not mean the same, the one is told of, and what the warning says to write mends it."""

    def told(label):
        found = parse(text.format(function, label=label), mesh=Mesh.of({"X": 2}))
        return found, [warning for warning in found.warnings if "sums nothing" in warning]

    (bare, warnings), (mended, none) = told(""), told("_D")
    exprs = [[statement.expr for statement in every_statement(program)] for program in (bare, mended)]
    assert bool(warnings) == (exprs[0] != exprs[1]) and all("write `·_D`" in each for each in warnings)
    assert not none


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "h[B_X, D, F] = relu(x[B_X, D] · W[D, F])",  # the result is said to have D and F
        "h = exp(dt[B_X, D] · A[D, N]) ⊙ h0[B_X, D, N]",  # and here an array has them
        "s[B_X, T, S] = sum_E(tanh(q[B_X, T, E] · k[B_X, S, E]))",  # summed, and so not in the result
        "s[B_X, T, S] = tanh(q[B_X, T, E] · k[B_X, S, E]) · v[E]",
        "y[B_X, D] = relu(x[B_X, D] · g[D])",
        "Q[B_X, T, E] · K[B_X, S, E] · V[B_X, S, E] → O[B_X, T, E]",  # an einsum of three
    ],
)
def test_a_product_that_keeps_what_it_should_is_not_named(text):
    assert not [each for each in parse(text, mesh=Mesh.of({"X": 2})).warnings if "sums nothing" in each]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("L[D, D2] = G[D_X, F] · G[D2, F]; U[D, F] = G[D, F2] · R[F, F2]; V = relu(R)", None),
        ("L[F2, F] = S[F_X, F2] + S; U[D, F] = G[D, K] · L[K, F] · R[F, F2]", "sums `F2` of `R` alone; write `sum_F2("),
        ("L[F2, F] = S[F_X, F2] + S; U[D, F] = G[D, K] · L[K, F] · sum_F2(R[F, F2])", None),
        ("A[I_X, J] · B[M, K] → C[I, K]", None),  # each is told of already, as a dim of one array alone
    ],
)
def test_a_dim_that_a_product_sums_of_one_operand_alone_is_named(text, told):
    """Two names of one size, of which one was meant: the shapes do not tell."""
    found = [each for each in parse(text, mesh=Mesh.of({"X": 2})).warnings if " alone; write" in each]
    assert len(found) == bool(told) and all(told in each for each in found)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("dtype", "size", "held"), [("bf16", 258, 256), ("f16", 2050, 2048), ("bf16", 257, None), ("int32", 65536, None)]
)
def test_positions_that_a_float_does_not_hold_are_named(dtype, size, held):
    """Position 257 in bf16 is 256: the mask is then of two elements, or of none."""
    text = f"m = where(index_V == Token: {dtype}[B_X], Score: f32[B_X, V], 0)"
    found = parse(text, mesh=Mesh.of({"X": 2}), dims={"V": size}).warnings
    assert [f"up to {held};" in warning and "`Token: int32[…]`" in warning for warning in found] == [True] * bool(held)
    if held:
        import ml_dtypes
        import numpy as np

        rounded = np.arange(size).astype({"bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]).astype(int)
        assert list(rounded[: held + 1]) == list(range(held + 1)) and rounded[held + 1] != held + 1


@pytest.mark.instant
@given(st.sampled_from(AXES), st.data())
def test_where_arrays_give_the_sizes_an_axis_mistyped_everywhere_is_no_dim(axis, data):
    """An einsum prints no plan: `A[I_dta, J] · B[J, K] → C[I_dta, K]` of whole arrays was computed on every device."""
    mesh = Mesh.of({axis: 2, "other": 2})
    place = data.draw(st.integers(0, len(axis) - 1))
    word = (axis[:place] + axis[place + 1 :] if len(axis) > 3 else axis).lower()
    assume(word and near_axes(word, mesh) is not None and word not in mesh)
    text = f"A[I_{word}, J] · B[J, K] → C[I_{word}, K]"
    sizes = {f"I_{word}": 8, "J": 8, "K": 8}
    with pytest.raises(ShardcError, match="SHC201"):
        parse(text, mesh=mesh, dims=sizes, exact=True)
    assert parse(text, mesh=mesh, dims=sizes).dims == tuple(sizes)
    said = parse(f"dims I_{word}=8\n{text}", mesh=mesh, dims=sizes, exact=True)
    assert said.dims == tuple(sizes)


# --- a result on the way that brackets ask for whole

WHOLE = [
    ("q[B, E] = x[B_X, D] · W[D, E]; y[B_X, E] = relu(q)", ["q[B, E]"], "B"),
    ("q[B, E] = x[B_X, D] · W[D, E_Y]; y[B_X, E_Y] = relu(q)", ["q[B, E]"], "B, E"),
    ("q[B, E] = x[B_X, D] · W[D, E]; s[B, E] = exp(q); y[B_X, E] = s + 1", ["q[B, E]", "s[B, E]"], "B"),
    ("dims L=3; for L { q[B, D] = relu(x[B_X, D]); x[B_X, D] = x + exp(q) }", ["q[B, D]"], "B"),
]


def asked_whole(text):
    program = parse(text, mesh=Mesh.of({"X": 2, "Y": 4}), dims=dict.fromkeys("BDE", 64))
    return [warning for warning in program.warnings if "whole on every device" in warning]


@pytest.mark.instant
@pytest.mark.parametrize(("text", "asked", "sharded"), WHOLE)
def test_what_is_asked_for_whole_on_the_way_is_named_and_its_remedy_moves_no_more(text, asked, sharded):
    warnings = asked_whole(text)
    assert [warning.split("`")[1] for warning in warnings] == asked
    assert f" asks for {sharded} whole on every device; `" in warnings[0]
    mended = text
    for warning in warnings:
        before, after = warning.split("`")[1::2]
        mended = mended.replace(f"{before} =", f"{after} =")
    assert not asked_whole(mended)
    options = {"mesh": {"X": 2, "Y": 4}, "dims": dict.fromkeys("BDE", 64), "topology": "v5e:2x4"}
    assert plan(mended, **options).cost.time_s <= plan(text, **options).cost.time_s


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "q[B, E] = x[B, D] · W[D, E_Y] ; y[B] = sum_E(q[B, E])",  # a use asks for it so
        "y[B, E] = x[B_X, D] · W[D, E]",  # an output
        "q[B_X, E] = x[B_X, D] · W[D, E]; y[B_X, E] = relu(q)",
        "q[B, E] = x[B_X, D] · W[D, E]; s[B, E] = exp(q); y[B, E] = relu(s)",  # whole to the end
        "q[B_?, E] = x[B_X, D] · W[D, E]; y[B_X, E] = relu(q)",
        "q = x[B_X, D] ·_D W[D, E]; y[B_X, E] = relu(q)",
        "q[E] = x[B_X, D] ·_B W[B_X, E]; y[E] = relu(q)",  # what is sharded is summed
        "W1[D, E] = W[D_X, E]; y[B_X, E] = x[B_X, D] · W1",  # moved, as it says
        "W1[D, E] = AllGather_X(W[D_X, E]); y[B_X, E] = x[B_X, D] · W1",
    ],
)
def test_what_is_whole_with_reason_is_not_named(text):
    assert not asked_whole(text)
