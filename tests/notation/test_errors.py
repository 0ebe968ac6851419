"""Every bad text gets its code, a caret on the token that it names, and a remedy."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout

import pytest

import shardc
from shardc.cli import _status
from shardc.errors import CODES, LIMIT, SEMANTICS, SYNTAX, ShardcError, Source, Span
from shardc.ir.mesh import Mesh
from shardc.notation import parse, parse_dims, parse_mesh, parse_tree
from shardc.notation.instead import POWER

MESH = Mesh.of({"X": 2, "Y": 4})

LOOP = "a loop over dim L is written `for L { … }`; arrays that have dim L are taken at each of its indices"
METHOD = (
    "a product is `A · B`; functions stand before their arrays, `sum_J(A)`; a transpose is not needed, "
    "dims are matched by name"
)
LOGIC = "`and(M, N)`, `or(M, N)` and `not(M)` are functions"
SYNTAX_ERRORS = [
    ("", "SHC102", None),
    ("  # nothing\n;\n", "SHC102", None),
    ("dims I=4", "SHC102", None),
    ("A[I, J → C[I]", "SHC103", "["),
    ("A[I, J", "SHC103", "["),
    ("relu(A[I] → C[I]", "SHC103", "("),
    ("A[I] · (B[I] + C[I] → D[I]", "SHC103", "("),
    ("A[I]{U_X → A[I]", "SHC103", "{"),
    ("A[I, J\nB[J, K] → C[I]", "SHC103", "["),
    ("A[I J] → C[I]", "SHC101", "J"),
    ("A[I,, J] → C[I]", "SHC101", ","),
    ("A[, J] → C[I]", "SHC101", ","),
    ("A[I, ] → C[I]", "SHC101", ","),
    ("A[I] →", "SHC104", "→"),
    ("A[I] ->\nB[I] -> C[I]", "SHC104", "->"),
    ("C[I] =", "SHC104", "="),
    ("→ C[I]", "SHC104", "→"),
    ("= A[I]", "SHC104", "="),
    ("A[I] · B[I]", "SHC104", "A[I] · B[I]"),
    ("A[I] → B[I] → C[I]", "SHC105", "→"),
    ("C[I] = A[I] → B[I]", "SHC105", "→"),
    ("C[I] = B[I] = A[I]", "SHC105", "="),
    ("A[I] → C[I] foo", "SHC101", "foo"),
    ("A[I] → C[I]]", "SHC101", "]"),
    ("A[I] · → C[I]", "SHC101", "·"),
    ("A[I] + → C[I]", "SHC101", "+"),
    ("A[I] · B[I] = C[]", "SHC101", "="),
    ("A[1] → C[I]", "SHC101", "1"),
    ("1A[I] → C[I]", "SHC101", "1A"),
    ("A[I] → AllGather[I]", "SHC107", "AllGather"),
    ("A[I_, J] → C[I]", "SHC101", "_"),
    ("A[I_{}, J] → C[I]", "SHC101", "}"),
    ("mesh[I] → C[I]", "SHC107", "mesh"),
    ("A[I] → dims[I]", "SHC107", "dims"),
    ("for[I] → C[I]", "SHC107", "for"),
    ("A[I] → return[I]", "SHC107", "return"),
    ("mesh X'=4", "SHC107", "X'"),
    ("mesh σ=4", "SHC107", "σ"),
    ("A[I_X'] → C[I]", "SHC107", "I_X'"),
    ("A" * 65 + "[I] → C[I]", "SHC107", "A" * 65),
    ("A[" + "I" * 65 + "] → C[I]", "SHC107", "I" * 65),
    ("A[I_X_Y] → C[I]", "SHC107", "I_X_Y"),
    ("Ａ[I] → C[I]", "SHC106", "Ａ"),
    ("A[I_Х] → C[I]", "SHC106", "Х"),
    ("Α[I] → C[I]", "SHC106", "Α"),
    ("A[I]\u202e → C[I]", "SHC106", "\u202e"),
    ("A[I] → C[I] # \u2066hidden", "SHC106", "\u2066"),
    ("A\u200b[I] → C[I]", "SHC106", "\u200b"),
    ("A[I]\0 → C[I]", "SHC106", "\0"),
    ("A[I\ud800] → C[I]", "SHC106", "\ud800"),
    ("A[I]\r → C[I]", "SHC106", "\r"),
    ("A[I] % B[I] → C[I]", "SHC106", "%"),
    ("A[I] \\div B[I] → C[I]", "SHC106", "\\div"),
    ("mesh X=٤", "SHC108", "٤"),
    ("mesh X=４", "SHC108", "４"),
    ("mesh X=04", "SHC108", "04"),
    ("dims I=007", "SHC108", "007"),
    ("dims I=1_024", "SHC108", "1_024"),
    ("dims I=0x10", "SHC108", "0x10"),
    ("mesh X=4 Y=2", "SHC101", "Y"),
    ("mesh X", "SHC101", ""),
    ("A[I]{V_X} → A[I]", "SHC101", "V_X"),
    ("dtype bf16\ndtype f32\nA[I] → C[I]", "SHC101", "dtype f32"),
]  # fmt: skip

SEMANTIC_ERRORS = [
    ("A[I_W] → C[I]", "SHC201", "W"),
    ("A[I_XW] → C[I]", "SHC201", "W"),
    ("A[I_{X,W}] → C[I]", "SHC201", "W"),
    ("A[I]{U_W} → A[I]", "SHC201", "W"),
    ("AllGather_W(A[I_X]) → A[I]", "SHC201", "W"),
    ("A[I_X, J_X] → C[I, J]", "SHC202", "X"),
    ("A[I_XX] → C[I]", "SHC202", "X"),
    ("A[I_X]{U_X} → A[I]", "SHC202", "X"),
    ("mesh X=2, X=4\nA[I] → C[I]", "SHC203", "X"),
    ("mesh X=2\nmesh Y=4\nA[I] → C[I]", "SHC203", "mesh Y=4"),
    ("mesh X=0", "SHC203", "0"),
    ("mesh X=-4", "SHC203", "-4"),
    ("mesh X=1.5", "SHC203", "1.5"),
    ("mesh X=True", "SHC203", "True"),
    ("dims I=6\nA[I_Y] → C[I]", "SHC204", "I_Y"),
    ("A[I, I] → C[I]", "SHC205", "I"),
    ("A[I, J] ·_{J,J} B[J, K] → C[I, K]", "SHC205", "J"),
    ("dims I=4, I=8\nA[I] → C[I]", "SHC206", "I"),
    ("A[I] · B[I] → C[K]", "SHC207", "K"),
    ("A[I, J] ·_J B[J, K] → C[I, J]", "SHC207", "J"),
    ("dims I=0\nA[I] → C[I]", "SHC209", "0"),
    ("dims I=-8\nA[I] → C[I]", "SHC209", "-8"),
    ("dims I=1.5\nA[I] → C[I]", "SHC209", "1.5"),
    ("dims I=1e3\nA[I] → C[I]", "SHC209", "1e3"),
    ("dims I=True\nA[I] → C[I]", "SHC209", "True"),
    ("A[I, J] ·_K B[J, L] → C[I, L]", "SHC210", "K"),
    ("A[I, J, K] ·_J B[J, K] → C[I]", "SHC210", "·_J"),
    ("A[I, J] → C[I, J]; A[J, I] → D[I, J]", "SHC210", "A[J, I]"),
    ("A[I, J] + B[J, K] → C[I, J, K]", "SHC210", "A[I, J] + B[J, K]"),
    ("A[I, J] ⊙ B[J, K] → C[I, J, K]", "SHC210", "⊙"),
    ("A[I, J] → C[I]", "SHC210", "C[I]"),
    ("softmax_K(A[I, J]) → C[I, J]", "SHC210", "K"),
    ("sum_K(A[I, J]) → C[I, J]", "SHC210", "K"),
    ("ReduceScatter_{X,J}(C[I, K]{U_X}) → C[I, K_X]", "SHC210", "J"),
    ("A[I, J_X] ·_LOCAL B[J, K] → C[I, K]{U_X}", "SHC211", "A[I, J_X] ·_LOCAL B[J, K]"),
    ("A[I_X, J] ·_LOCAL B[J, K_X] → C[I_X, K]", "SHC211", "A[I_X, J] ·_LOCAL B[J, K_X]"),
    ("A[I_X, J] ·_LOCAL B[J, K] → C[I, K]", "SHC211", "C[I, K]"),
    ("A[I, J_X] ·_LOCAL B[J_X, K] → C[I, K]", "SHC212", "C[I, K]"),
    ("relu(A[I]{U_X}) → C[I]", "SHC212", "relu(A[I]{U_X})"),
    ("relu(-A[I]{U_X}) → C[I]", "SHC212", "relu(-A[I]{U_X})"),
    ("A[I]{U_X} + B[I] → C[I]", "SHC212", "A[I]{U_X} + B[I]"),
    ("A[I]{U_X} + B[I]{U_Y} → C[I]", "SHC212", "A[I]{U_X} + B[I]"),
    ("dims I=6\nReduceScatter_{Y,I}(A[I]{U_Y}) → C[I_Y]", "SHC204", "I_Y"),
    ("dims I=6\nT[I_Y] = relu(A[I]); C[I] = exp(T)", "SHC204", "I_Y"),
    ("A[I, J]{U_X} · B[J]{U_X} → C[I]", "SHC212", "A[I, J]{U_X} · B[J]"),
    ("dtype bf61\nA[I] → C[I]", "SHC213", "bf61"),
    ("A: int9[I] → C[I]", "SHC213", "int9"),
    ("A: f8_e5m2[I, J] · B: bf16[J, K] → C[I, K]", "SHC214", "·"),
    ("A: bool[I, J] · B: bool[J, K] → C[I, K]", "SHC214", "·"),
    ("relu(A: c64[I]) → C[I]", "SHC214", "relu"),
    ("A: int4[I]{U_X} → C[I]", "SHC214", "U_X"),
    ("A: f8_e5m2[I] + B: bf16[I] → C[I]", "SHC214", "A: f8_e5m2[I] + B: bf16[I]"),
    ("A: f32[I, J] · B: f32[J, K] → C: bf16[I, K]", "SHC214", "bf16"),
    ("A[I] → C: f32[I]", "SHC214", "f32"),
    ("A[I] → B[I]; A: f32[I] → D[I]", "SHC214", "f32"),
    ("exp(A: int32[I]) → C[I]", "SHC214", "exp"),
    ("A: int8[I, J] · B: int8[J, K] → C[I, K]", "SHC215", "C[I, K]"),
    ("sum_J(A: uint16[I, J]) → C[I]", "SHC215", "C[I]"),
    ("A · B[I] → C[I]", "SHC217", "A"),
    ("In[I] → C[I]; Inn → D", "SHC217", "Inn"),
    ("A[I] → C[I]; B[I] → C[I]", "SHC218", "C"),
    ("A[I, J] · B[J] → A[I]", "SHC218", "A"),
    ("A[I, J] → A[J, I]", "SHC218", "A"),
    ("AllGather_X A[I_Y, J] → A[I, J]", "SHC219", "AllGather_X A[I_Y, J]"),
    ("AllReduce_X A[I, J] → A[I, J]", "SHC219", "AllReduce_X A[I, J]"),
    ("AllGather_X(A[I_XY]) → A[I_Y]", "SHC219", "AllGather_X(A[I_XY])"),
    ("AllGather_YX(A[I_XY]) → A[I]", "SHC219", "AllGather_YX(A[I_XY])"),
    ("AllGather_X(A[I, J]) · B[J, K] → C[I, K]", "SHC219", "AllGather_X(A[I, J])"),
    ("AllGather_X(A[I_X]) → C[I]; AllReduce(C[I]) → C[I]", "SHC219", "AllReduce(C[I])"),
    ("A[IX, J] · B[I] → C[J]", "SHC221", "IX"),
    ("A[I]{UX} → A[I]", "SHC221", "UX"),
    ("AllGatherX(A[I_X]) → A[I]", "SHC221", "AllGatherX"),
    ("A(I, J) → C[I]", "SHC222", "A"),
    ("rleu(A[I]) → C[I]", "SHC222", "rleu"),
    ("softmax(A[I]) → C[I]", "SHC222", "softmax"),
    ("sum(A[I]) → C[]", "SHC222", "sum"),
    ("relu_I(A[I]) → C[I]", "SHC222", "relu_I"),
]  # fmt: skip

NINE_AXES = "mesh " + ", ".join(f"A{n}=1" for n in range(9))
LIMIT_ERRORS = [
    ("A[I] → C[I]" + " " * 65536, "SHC401", None),
    ("# " + "é" * 40000 + "\nA[I] → C[I]", "SHC401", None),
    (" + ".join(["A[I]"] * 1001) + " → C[I]", "SHC402", "A[I]"),
    ("relu(" * 51 + "A[I]" + ")" * 51 + " → C[I]", "SHC403", "("),
    ("-" * 51 + "A[I] → C[I]", "SHC403", "-" * 51 + "A[I]"),
    ("AllGather " * 51 + "A[I_X] → C[I]", "SHC403", "AllGather " * 51 + "A[I_X]"),
    (NINE_AXES + "\nA[I] → C[I]", "SHC404", NINE_AXES),
    ("mesh X=1048577\nA[I] → C[I]", "SHC405", "mesh X=1048577"),
    ("dims I=4611686018427387904, J=2\nA[I, J] → C[I, J]", "SHC406", "A[I, J]"),
    ("mesh X=" + "9" * 5000, "SHC407", "9" * 5000),
    ("dims I=-" + "9" * 5000, "SHC407", "-" + "9" * 5000),
]  # fmt: skip


def refused(text: str, mesh: Mesh | None = MESH) -> ShardcError:
    with pytest.raises(ShardcError) as caught:
        parse(text, mesh=None if "mesh " in text else mesh)
    return caught.value


@pytest.mark.parametrize(("text", "code", "token"), SYNTAX_ERRORS + SEMANTIC_ERRORS + LIMIT_ERRORS)
def test_code_and_caret(text: str, code: str, token: str | None) -> None:
    error = refused(text)
    assert error.code == code, error.render()
    assert (None if error.span is None else error.span.text) == token, error.render()
    assert error.help


@pytest.mark.parametrize(("text", "code"), [row[:2] for row in SYNTAX_ERRORS + SEMANTIC_ERRORS + LIMIT_ERRORS])
def test_the_command_line_and_python_refuse_it_with_the_same_words(
    text: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `check` and `plan`, as text and as JSON: the code, the status of its family, nothing on standard output.

    `check` tells of other faults too, and ends with the worst. What has no brackets would be the name of a file, and
    comes by standard input.
    """
    given = {} if "mesh " in text else {"mesh": dict(MESH.axes)}
    with pytest.raises(ShardcError) as caught:
        shardc.plan(text, **given)
    assert caught.value.code == code
    options = ["--mesh", str(MESH).replace(" ", "")] if given else []
    options += ["--", text if "[" in text else "-"]
    for command in ("check", "plan"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode(errors="surrogatepass"))))
        status, out, err = said(command, *options)
        others = {ShardcError(each, "").exit_code for each in re.findall(r"^error\[(\w+)\]", err, re.M)}
        assert err.startswith(f"error[{code}]: ") and out == "" and status == max(others), err
        assert "Traceback" not in err and (command == "check" or others == {caught.value.exit_code})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode(errors="surrogatepass"))))
    status, out, err = said("plan", "--json", *options)
    told = json.loads(err)["error"]
    assert (status, out, told["code"], told["message"]) == (caught.value.exit_code, "", code, caught.value.message)


def said(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = _status(list(arguments))
    return status, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("text", [row[0] for row in SYNTAX_ERRORS])
def test_syntax_exits_3(text: str) -> None:
    assert refused(text).exit_code == SYNTAX


@pytest.mark.instant
@pytest.mark.parametrize("text", [row[0] for row in SEMANTIC_ERRORS])
def test_semantics_exits_4(text: str) -> None:
    assert refused(text).exit_code == SEMANTICS


@pytest.mark.instant
@pytest.mark.parametrize("text", [row[0] for row in LIMIT_ERRORS])
def test_limits_exit_6(text: str) -> None:
    assert refused(text).exit_code == LIMIT


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("A[I_Х] → C[I]", "U+0425 CYRILLIC CAPITAL LETTER HA is not the letter `X`", "write `X`, the ASCII letter"),
        ("A[IX, J] · B[J, I] → C[JY]", "lost subscripts in `IX`, `JY`", "write `I_X`, `J_Y`"),
        ("A[I_W] → C[I]", "unknown mesh axis `W`; the mesh has `X`, `Y`", "use one of them, or declare `mesh W=…`"),
        (
            "A[I, J, K] ·_J B[J, K] → C[I]",
            "the product also contracts `K`, which the result lacks",
            "write `·_{J,K}`, or keep `K` in the result",
        ),
        (
            "h[I, F] = silu(A[I, J] · B[J, F]) ⊙ (A · C[J, F])",
            "the result `h` lacks `J`",
            "a plain `·` keeps what a later operand carries; end it there: `A ·_J B`",
        ),
        ("C[I] = relu(A[I, J]) ⊙ B[J]", "the result `C` lacks `J`", "sum over it: `sum_J(…)`"),
        (
            "A[I, J_X] ·_LOCAL B[J_X, K] → C[I, K]",
            "the local product leaves `C[I, K]{U_X}`, not `C[I, K]`",
            "write `C[I, K]{U_X}`, or drop `_LOCAL`",
        ),
        (
            "AllGather_X A[I_Y, J] → A[I, J]",
            "`AllGather_X` does not lead from `A[I_Y, J]` to `A[I, J]`",
            "`AllGather_Y` does",
        ),
        (
            "A: int8[I, J] · B: int8[J, K] → C[I, K]",
            "products of int8, and sums of them, may overflow",
            "declare a wider result: `C: int32[…]`",
        ),
        ("A[I J] → C[I]", "no `,` before `J`", "separate dims by commas: `A[I, J]`"),
        (
            "C[I] = where(not A[I] > 0, A, 0)",
            "no `(` after `not`",
            "a function has its arguments in brackets: `not(A…)`",
        ),
        ("C[I] = where(A[I] > 0 && A < 1, A, 0)", "no `,` before `A`", f"separate arguments by commas; {LOGIC}"),
        ("M[I, J] = (index_I > index_J) and (index_I < 4)", "no operator before `and`", LOGIC),
        (
            "softmax(A[I, J], axis=-1) → C[I, J]",
            "expected `·`, `⊙`, `+`, `-`, `,`, a comparison, `/` or `)`, found `=`",
            "a function names the dim that it runs along: `softmax_J(A)`",
        ),
        ("C = A.T", "`.` follows a statement that is complete", METHOD),
        (
            "C[I_X] = A[I_X,128]",
            "`128` stands where a dim has its name",
            "name the dim, and say how long it is: `A[I, J]` with `dims J=128`, or --dims J=128",
        ),
        ("C[I_{X Y}] = A[I]", "no `,` before `Y`", "separate these by commas: `{X,Y}`"),
        (
            "C[I] = A[I] > 0 ? A : B[I]",
            "`?` follows a statement that is complete",
            "`where(M, A, B)` is A where M is true, else B",
        ),
        (
            "C[I] == A[I]",
            "the statement has no result",
            "end it with `→ C[…]`, or begin `C[…] =`; `==` compares, elements with elements",
        ),
        (
            "C[I] = A[I, D] · B[D] / sqrt(D)",
            "array `D` is not defined",
            "`D` is a dim; its size is `|D|`, the positions along it are `index_D`",
        ),
        (
            "C[I] = where(I >= J, A[I, J], 0)",
            "array `I` is not defined",
            "`I` is a dim; its size is `|I|`, the positions along it are `index_I`",
        ),
        (
            "s = q[B, T, K] · k[B, S, K]; p = exp(s - m[B, T])",
            "`-` of [T, S] and [B, T]: neither has all dims of the other",
            "`s` sums B; name the dims that it keeps there: `s[B_?, T_?, S_?] = …`",
        ),
        (
            "dims L=4; s = relu(q[B, T, K] · k[B, S, K]); for L { r[L, B, T, S] = m[B, T] / s }",
            "`/` of [B, T] and [T, S]: neither has all dims of the other",
            "`s` sums B; name the dims that it keeps there: `s[B_?, T_?, S_?] = …`",
        ),
        (
            "p = m[B, T] + (q[B, T, K] · k[B, S, K])",
            "`+` of [B, T] and [T, S]: neither has all dims of the other",
            "a product before it sums B; name there what it is to sum, as `·_J` does",
        ),
        ("C[I] = 2 A[I]", "no operator before `A`", "a product is written `·`, `*` or `@`"),
        ("C[I] = |I| \\exp(A[I])", "no operator before `\\exp`", "a product is written `·`, `*` or `@`"),
        ("C[I] = \\frac{1}{2} \\sum_J A[I, J]", "no operator before `\\sum_J`", "a product is written `·`, `*` or `@`"),
        ("A[I_X] => A[I]", "`=>` is no operator", "an arrow is written `->`, at least `>=`"),
        (
            "A[I_X] → A[I] // gathered",
            "`//` is no operator",
            "a comment begins with `#`; a quotient of whole numbers is `floor(A / B)`",
        ),
        ("C[I] = √(A[I])", "U+221A SQUARE ROOT does not belong here", "write `sqrt(A)`"),
        ("C[I] = A[I]²", "U+00B2 SUPERSCRIPT TWO does not belong here", POWER),
        ("C[I] = Aᵀ[I]", "U+1D40 MODIFIER LETTER CAPITAL T does not belong here", POWER),
        (
            "A[Iₓ] → A[I]",
            "U+2093 LATIN SUBSCRIPT SMALL LETTER X does not belong here",
            "a subscript is written behind `_`: `_x`",
        ),
        ("C[I] = A[I, J].sum(J)", "`.` follows a statement that is complete", METHOD),
        ("C[I] = A[I] if A > 0 else 0", "no operator before `if`", "`where(M, A, B)` is A where M is true, else B"),
        ("for l in L: x = A[l, I]", "expected `{`, found `in`", LOOP),
        ("for L: x = A[L, I]", "expected `{`, found `:`", LOOP),
        ("for (l in L) { x = A[l, I] }", "expected a name or `-`, found `(`", LOOP),
        ("for { x = A[I] }", "expected a name or `-`, found `{`", LOOP),
    ],
)
def test_message(text: str, message: str, remedy: str) -> None:
    error = refused(text)
    assert (error.message, error.help) == (message, remedy)


WITH_DECLARATIONS = [
    "dtype int8\nB[I] = relu(A[I, J] ·_J A[I, J])",
    "A[I, J] → B[I, J]\ny[K, J] = B[I, J] + B[K, J]",
    "dtype int8; A[I_{X,Y}, J] → B[I, J]; C[I] = B[I, J] ·_J B[I, J]",
    "B[IX] = A[I_X]\nC[I, J] = A[J, I]",  # of another line there is a spelling that does
]


@pytest.mark.instant
@pytest.mark.parametrize("text", [*WITH_DECLARATIONS, *(row[0] for row in SEMANTIC_ERRORS if row[1] != "SHC221")])
def test_a_remedy_is_not_the_text_itself_in_other_spaces(text: str) -> None:
    error = refused(text)
    tight = refused(re.sub(r", *(?=[^][{}]*\])", ",", text))
    assert (tight.code, bare_of(tight.help)) == (error.code, bare_of(error.help))
    written = re.fullmatch(r"write `([^`]*)`", error.help or "")
    assert written is None or bare_of(written[1]) not in map(bare_of, re.split("[\n;]", text))


def bare_of(text: str | None) -> str:
    return re.sub(r"\s", "", text or "")


def test_expected_tokens_are_named_in_the_users_words() -> None:
    error = refused("A[I] → C[I_X} ")
    assert error.message == "expected `,`, `_` or `]`, found `}`" or "expected" in error.message
    assert "RSQB" not in error.render() and "`]`" in error.message


def test_no_mesh_offers_a_declaration() -> None:
    error = refused("A[I_X] → C[I]", mesh=None)
    assert error.code == "SHC201"
    assert error.help == "declare one: `mesh X=4`"


def test_a_long_axis_is_offered() -> None:
    error = refused("A[I_Data] → C[I]", Mesh.of({"data": 2, "model": 4}))
    assert (error.code, error.help) == ("SHC201", "did you mean `data`?")


def test_not_divisible_says_the_remainder() -> None:
    with pytest.raises(ShardcError) as caught:
        parse("A[I_X, J] · B[J, K] → C[I_X, K]", mesh=Mesh.of({"X": 4}), dims={"I": 6})
    assert caught.value.render() == (
        "error[SHC204]: dim `I` = 6 is not divisible by mesh axis `X` = 4\n"
        " --> <expression>:1:3\n"
        "  | A[I_X, J] · B[J, K] → C[I_X, K]\n"
        "  |   ^^^ 6 mod 4 = 2\n"
        "  = help: make I 8, or drop `_X`"
    )


def test_of_several_dims_that_are_not_divisible_the_first_is_named() -> None:
    with pytest.raises(ShardcError, match="dim `I` = 6 "):
        parse("A[I_X, J] · B[J, K_X] → C[I, K]", mesh=Mesh.of({"X": 4}), dims={"K": 6, "I": 6})


@pytest.mark.parametrize("text", ["\N{ZERO WIDTH NO-BREAK SPACE}A[I]\r\nB[I_W]", "A[I] → C[I]\r\nB[I_W] → C[I]"])
def test_columns_after_a_mark_and_a_carriage_return(text: str) -> None:
    error = refused(text)
    assert error.span is not None
    line, column = error.span.source.position(error.span.start)
    assert (line, column) in {(1, 1), (2, 5)}
    assert "\r" not in error.render()


@pytest.mark.instant
@pytest.mark.parametrize(
    ("size", "code"),
    [
        (0, "SHC209"),
        (-1, "SHC209"),
        (1.0, "SHC209"),
        (True, "SHC209"),
        pytest.param(10**5000, "SHC407", id="huge"),
    ],
)
def test_sizes_from_a_caller(size: int, code: str) -> None:
    with pytest.raises(ShardcError) as caught:
        parse("A[I] → C[I]", dims={"I": size})
    assert caught.value.code == code


@pytest.mark.instant
@pytest.mark.parametrize("text", ["", "X", "X=", "X=4,", "X=4;Y=2", "X=04", "=4", "X=4 Y=2", "Х=4", "X=4_0"])
def test_malformed_options(text: str) -> None:
    for read in (parse_mesh, parse_dims):
        with pytest.raises(ShardcError) as caught:
            read(text)
        assert caught.value.code == "SHC001"


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "code"), [("X=0", "SHC203"), ("X=2,X=2", "SHC203"), ("X=1.5", "SHC203"), ("X=" + "9" * 9999, "SHC407")]
)
def test_impossible_meshes(text: str, code: str) -> None:
    with pytest.raises(ShardcError) as caught:
        parse_mesh(text)
    assert caught.value.code == code


@pytest.mark.instant
@pytest.mark.parametrize(("text", "code"), [("I=0", "SHC209"), ("I=-3", "SHC209"), ("I=4,I=8", "SHC206")])
def test_impossible_dims(text: str, code: str) -> None:
    with pytest.raises(ShardcError) as caught:
        parse_dims(text)
    assert caught.value.code == code


def test_what_is_not_text() -> None:
    with pytest.raises(ShardcError):
        parse_tree(b"A[I] -> C[I]")  # type: ignore[arg-type]  # on purpose


def test_every_family_of_codes_has_an_exit_status() -> None:
    assert all(ShardcError(code, "").exit_code for code in CODES)


def test_controls_do_not_reach_the_terminal() -> None:
    source = Source("A\x1b[31m")
    assert "\x1b" not in ShardcError("SHC106", "", span=Span(source, 1, 2)).render()


@pytest.mark.instant
@pytest.mark.parametrize(
    ("refused", "told", "instead"),
    [
        ("C[I, J] = A[I_X] ⊙ B[J]", "`A[I_X] · B[J]`", "C[I, J] = A[I_X] · B[J]"),
        ("C[I, J] = A[I_X] / B[J]", "`A[I_X] · (1 / B[J])`", "C[I, J] = A[I_X] · (1 / B[J])"),
        (
            "C[I, J] = A[I_X] - B[J]",
            "`where(index_J >= 0, A[I_X], 0) - B[J]`",
            "C[I, J] = where(index_J >= 0, A[I_X], 0) - B[J]",
        ),
        (
            "C[I, J] = A[I_X] + index_J",
            "`where(index_J >= 0, A[I_X], 0) + index_J`",
            "C[I, J] = where(index_J >= 0, A[I_X], 0) + index_J",
        ),
        (
            "S[I, J] = relu(A[I_X, J]); C[I, J] = S + S[J, I]",
            "`T[J, I]` after `T[I2, J2] = S[I2, J2]`",
            "S[I, J] = relu(A[I_X, J]); T[I2, J2] = S[I2, J2]; C[I, J] = S + T[J, I]",
        ),
    ],
)
def test_what_is_told_to_write_instead_is_legal(refused, told, instead):
    sizes = {"I": 4, "J": 4}
    with pytest.raises(ShardcError) as error:
        shardc.parse(refused, mesh={"X": 2}, dims=sizes)
    assert error.value.code == "SHC210" and told in error.value.help
    shardc.parse(instead, mesh={"X": 2}, dims=sizes)
