"""What is pasted from pages parses, or the error shows the spelling that does."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError
from shardc.notation import parse, parse_tree, print_program
from shardc.notation.paste import taken_off

MESH = shardc.Mesh.of({"X": 4, "Y": 4, "Z": 4})
PASTED = json.loads((Path(__file__).parents[1] / "data" / "pasted.json").read_text(encoding="utf-8"))


def test_how_many_of_the_books_formulas_are_read() -> None:
    """Every line of the books' text with a formula of arrays; a line may have several. What is refused is either no
    statement (a table, a size, an index), or one that the notation forbids (case 4, C bound to four arrays)."""
    assert len({entry["line"] for entry in PASTED}) == 109
    assert Counter(entry["expect"] for entry in PASTED) == {"parses": 43, "error": 55, "left out": 8, "refused": 9}
    refused = {entry["line"]: entry["code"] for entry in PASTED if entry["expect"] == "refused"}
    assert refused["001:242"] == "SHC202" and refused["001:120"] == "SHC218"


@pytest.mark.parametrize("entry", PASTED, ids=lambda entry: f"{entry['line']} {entry['text'][:40]}")
def test_a_line_of_the_books(entry: dict[str, str]) -> None:
    """As it stands there, with its number, its frame and its remarks; a suggestion can itself be read."""
    if entry["expect"] == "parses":
        program = parse(entry["text"], mesh=MESH)
        assert parse(print_program(program)) == program
        return
    with pytest.raises(ShardcError) as caught:
        parse(entry["text"], mesh=MESH)
    assert caught.value.code == entry["code"]
    if entry["expect"] == "left out":
        assert "does not say how it is made" in caught.value.message
        return
    assert caught.value.span is not None and caught.value.span.source.text == entry["text"]
    if entry["expect"] == "error":
        assert f"`{entry['suggestion']}`" in f"{caught.value.note} {caught.value.help}"
        parse(entry["suggestion"], mesh=MESH)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("pasted", "plain"),
    [
        ("1. A[I] → B[I]\n2. C[I] → D[I]", "A[I] → B[I]\nC[I] → D[I]"),
        ("  (1) A[I] → B[I]\n  * C[I] → D[I]\n> + E[I] → F[I]", "A[I] → B[I]\nC[I] → D[I]\nE[I] → F[I]"),
        ("- C[I] = relu(A[I])\n• D[I] = A", "C[I] = relu(A[I])\nD[I] = A"),
        ("A[I] → B[I] (not on critical path, can be done async)", "A[I] → B[I]"),
        ("A[I] → B[I] (async)", "A[I] → B[I]"),
        ("A[I]{U_X} → B[I] {U_X} (see (2) from before) (can throw away A[I] now).", "A[I]{U_X} → B[I]{U_X}"),
        ("C = relu(A[I]) *(can be done ahead of time)*; D[I] = C", "C = relu(A[I]); D[I] = C"),
        ("A[I] → B[I] *(async)*", "A[I] → B[I]"),
        (
            "A[I] → A[I]\nfor L {\n 1. A = relu(A) (not now, later)\n 2. A = A + b[L, I].\n}\n3. A → B",
            "A[I] → A[I]\nfor L {\nA = relu(A)\nA = A + b[L, I]\n}\nA → B",
        ),
        ("$A[I] → B[I]$", "A[I] → B[I]"),
        ("$$A[I] \\rightarrow B[I].$$", "A[I] → B[I]"),
        ("\\[\\begin{align*} A[I] \\to &\\ B[I] \\\\ C[I] \\to &\\ D[I] \\end{align*}\\]", "A[I] → B[I]\nC[I] → D[I]"),
        ("\\( A[I] \\to B[I] \\)", "A[I] → B[I]"),
        ("**C[I]** = `relu(A[I])`", "C[I] = relu(A[I])"),
        ("```shard\nA[I] → B[I]\n```", "A[I] → B[I]"),
        ("C[I] := A[I]", "C[I] = A[I]"),
        ("C[I] <- A[I]", "C[I] = A[I]"),
        ("C[I] ← A[I]", "C[I] = A[I]"),
        ("C[I] \\leftarrow A[I]", "C[I] = A[I]"),
        ("A[I]\u00a0→\u2009B[I]", "A[I] → B[I]"),
        ("A[I] − B[I] → C[I]", "A[I] - B[I] → C[I]"),
        ("A[I] × B[I] → C[]; A \\times B → D[]", "A[I] · B[I] → C[]; A · B → D[]"),
        ("A[I] → B’[I]; A → x′[I]", "A[I] → B'[I]; A → x'[I]"),
        ("Mesh({‘X’: 4}); A[I_X] → B[I]", "Mesh({'X': 4}); A[I_X] → B[I]"),
        ("C[I] = Σ_J A[I, J] · B[J]", "C[I] = sum_J(A[I, J] · B[J])"),
        ("C[] = \\sum_{I,J} A[I, J] + ∑_J (B[J])", "C[] = sum_{I,J}(A[I, J]) + sum_J(B[J])"),
        (
            "C[] = 2 ⊙ Σ_I A[I] · B[I] - \\frac{1}{|I|} · \\sum_{I} A",
            "C[] = 2 ⊙ sum_I(A[I] · B[I]) - (1 / |I|) · sum_I(A)",
        ),
        ("C[] = -Σ_I Σ_J A[I, J] ⊙ log(B[I, J])", "C[] = -sum_I(sum_J(A[I, J] ⊙ log(B[I, J])))"),
        ("1) B[I] = A[I] (not now, later)", "B[I] = A[I]"),
        ("Σ[I, J] → Σ_y[I, J]", "\\Sigma[I, J] → Σ_y[I, J]"),
        ("dA[I, J] = dC[I, K] · B^T[K, J]", "dA[I, J] = dC[I, K] · B[J, K]"),
        ("A[I, J]^T · B^{T} + C^\\top → D[J]", "A[I, J] · B + C → D[J]"),
        ("\\left( A[I] + B[I] \\right) \\quad \\rightarrow C[I]", "(A[I] + B[I]) → C[I]"),
        ("Loss[B] = …\nA[I] → B[I]\ndOut[B] = \\ldots", "A[I] → B[I]"),
    ],
)
def test_what_surrounds_a_formula_is_no_part_of_it(pasted: str, plain: str) -> None:
    assert parse_tree(pasted).items == parse_tree(plain).items


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "B[I] = relu (A[I])",
        "B[I] = (A[I] + C[I])",
        "B = A .* (A + A)",
        "B = 3.",
        "3. \\rightarrow B",
        "2. ⊙ A[I] → B",
        "B = A · (relu (A))",
        "B = relu (exp (A))",
        "B[I] = relu (AllGather A[I_X])",
        "B[I] = A[I] · (C[I] + D[I])",
        "AllReduce_{X} (A[I]{U_X}) → B[I]",
        "B[I] = softmax_{I} (A[I])",
        "A[I] → B[I] # (a remark)",
        "C[I] = where(A[I] <-B[I], A[I], B[I])",
        "(A[I]) · (B[I]) → C[]",
        "A[I] - (B[I])→ C[I]",
        "-A[I] → B[I]",
        "- A[I] → B[I]",
        "C[I] = (A[I]\n - B[I])",
        "mesh X=4, Y=2; A[I] → B[I]",
        "topology v5p:4x4x4\nA[I] → B[I]",
    ],
)
def test_what_is_part_of_a_formula_stays(text: str) -> None:
    """Each of these would mean something else, or nothing, without what looks like a remark, a bullet or a sign."""
    assert taken_off(text) == (text, [])
    parse_tree(text)


WRITTEN = st.tuples(
    st.sampled_from(["", "1. ", "(2) ", "3) ", "a) ", "• "]),
    st.sampled_from(["x[B] = relu(x[B])", "y[B]{U_X} = x[B]", "z = x · (y + x)", "for M { w[B] = x[B] }"]),
    st.sampled_from(
        ["", ".", " (not on critical path, can be done async)", " (see (2) from before) (now).", " *(later)*"]
    ),
)


@pytest.mark.instant
@given(st.lists(WRITTEN, min_size=1, max_size=3), st.sampled_from(["", " (twelve layers)."]), st.booleans())
def test_a_loop_on_one_line_is_read_as_on_several(body: list[tuple[str, str, str]], after: str, nested: bool) -> None:
    """Numbers, remarks and stops stand in it as elsewhere: what is a remark on a line of its own is one in the loop."""
    plain = "\n".join(statement for _, statement, _ in body)
    pasted = "; ".join("".join(part for part in each) for each in body)
    one, several = f"for L {{ {pasted} }}{after}", f"for L {{\n{plain}\n}}"
    if nested:
        one, several = f"for -K {{ {one} }}; A[I] → B[I]", f"for -K {{\n{several}\n}}\nA[I] → B[I]"
    assert parse_tree(one) == parse_tree(several)


def test_what_is_left_out_is_told() -> None:
    program = parse("1. Loss[B] = …\n2. A[I] → B[I]")
    assert "`Loss[B] = …` does not say how it is made, and is left out" in program.warnings
    with pytest.raises(ShardcError) as caught:
        parse("A[I] · … · B[J] → C[I, J]")
    assert "write every operand out" in (caught.value.help or "")


PIECES = [
    "A[I]",
    " → ",
    "B[I]",
    "(a b)",
    "(",
    ")",
    "]",
    "*",
    "1. ",
    "- ",
    "$",
    "…",
    " = ",
    "\n",
    ";",
    "#",
    "\\\\",
    "^T",
    "'",
    "{U_X}",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_places_stay_and_nothing_is_added(text: str) -> None:
    """Lengths and line breaks are as they were; what is left is read the same a second time."""
    bare, _ = taken_off(text)
    assert len(bare) == len(text)
    assert [n for n, c in enumerate(bare) if c == "\n"] == [n for n, c in enumerate(text) if c == "\n"]
    assert all(one == other or one in " =·-→'\"Σ" for one, other in zip(bare, text, strict=True))


@pytest.mark.parametrize("piece", [" (a b)", "1. ", "]) ", "(a ", "{U", "**", "$", ". ", ") ", "- = ", "<-", "…"])
def test_it_takes_linear_time(piece: str) -> None:
    def seconds(length: int) -> float:
        start = time.process_time()
        taken_off("A[I]" + piece * (length // len(piece)))
        return time.process_time() - start

    assert min(seconds(64_000) for _ in range(3)) < 30 * min(seconds(8_000) for _ in range(3)) + 0.3


def test_the_books_algorithm_pasted_whole() -> None:
    """FSDP's listing with its numbers, remarks and dots, its subscripts put back, plans as `strategies.json` says."""
    listing = """
      1. Win[D, F] = AllGather(Win[D_X, F]) (not on critical path, can do it during previous layer)
      2. Tmp[B_X, F] = In[B_X, D] *_D Win[D, F] (can throw away Win[D, F] now)
      3. Wout[F, D] = AllGather(Wout[F, D_X]) (not on critical path, can do it during previous layer)
      4. Out[B_X, D] = Tmp[B_X, F] *_F Wout[F, D]
      5. Loss[B_X] = …

      1. dOut[B_X, D] = …
      2. dWout[F, D] {U_X} = Tmp[B_X, F] *_B dOut[B_X, D]
      3. dWout[F, D_X] = ReduceScatter(dWout[F, D] {U_X}) (not on critical path, can be done async)
      4. Wout[F, D] = AllGather(Wout[F, D_X]) (can be done ahead of time)
      5. dTmp[B_X, F] = dOut[B_X, D] *_D Wout[F, D] (can throw away Wout[F, D] here)
      6. dWin[D,F] {U_X} = dTmp[B_X, F] *_B In[B_X, D]
      7. dWin[D_X, F] = ReduceScatter(dWin[D, F] {U_X}) (not on critical path, can be done async)
      8. Win[D, F] = AllGather(Win[D_X, F]) (can be done ahead of time)
      9. dIn[B_X, D] = dTmp[B_X, F] *_F Win[D, F] (needed for previous layers) (can throw away Win[D, F] here)
    """
    plan = shardc.plan(listing, mesh={"X": 4}, dims={"B": 8, "D": 8, "F": 16}, dtype="int32")
    moves = ["AllGather", "AllGather", "ReduceScatter", "AllGather", "ReduceScatter", "AllGather"]
    assert [step.op for step in plan.steps if step.axes] == moves
    assert [array.name for array in plan.outputs] == ["Out", "dWout", "dWin", "dIn"]
    assert sum("is left out" in note for note in plan.notes) == 2


@pytest.mark.instant
@pytest.mark.parametrize("call", ["maximum(D, D)", "maximum (D, D)", "where (D > 0, D, D)", "sum_I (D)"])
def test_what_a_function_takes_is_no_remark(call):
    text = f"D[I] = A[I]\nC = {call}" if "sum" in call else f"D[I] = A[I]\nC[I] = {call}"
    text = text.replace("C = ", "C[] = ")
    assert "D" in shardc.parse(text, mesh={"X": 2}).statements[-1].text.partition("=")[2]
