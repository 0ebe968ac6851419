"""Every spelling of the notation, and what it resolves to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Call, Named, Pattern, Product, Use
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.notation import parse, parse_dims, parse_mesh, parse_tree, print_program, print_tree

MESH = Mesh.of({"X": 2, "Y": 4})
GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "notation.json").read_text(encoding="utf-8"))


def read(text: str, **options: object) -> Program:
    return parse(text, mesh=MESH, **options)  # type: ignore[arg-type]  # as given


def product(text: str) -> Product:
    expr = read(text).statements[-1].expr
    assert isinstance(expr, Product)
    return expr


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["text"])
@pytest.mark.parametrize("sized", [True, False])
def test_the_books_spellings(entry: dict[str, object], sized: bool) -> None:
    text, mesh = str(entry["text"]), Mesh.of(entry["mesh"])  # type: ignore[arg-type]  # JSON
    dims = dict.fromkeys("IJKBDFLE", 64) if sized or "IX" in text else {}
    if entry["expect"] == "error":
        with pytest.raises(ShardcError):
            parse(text, mesh=mesh, dims=dims)
        return
    program = parse(text, mesh=mesh, dims=dims)
    assert parse(print_program(program)) == program


@pytest.mark.instant
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A[I_X] · B[I] → C[]", "A[I_X] * B[I] -> C[]"),
        ("A[I_X] · B[I] → C[]", "A[I_X] @ B[I] -> C[]"),
        ("A[I_X] · B[I] → C[]", "A[I_X] ⋅ B[I] \\to C[]"),
        ("A[I_X] · B[I] → C[]", "\\mathbf{A}[I_{X}] \\cdot \\textbf{B}[I] &\\ \\longrightarrow \\text{C}[]"),
        ("A[I_XY] ·_I B[I] → C[]", "A[I_{XY}]\\cdot_{I}B[I]\\rightarrow C[]"),
        ("A[I_data] → W_in[I]", "A[I_\\text{data}] → W_\\text{in}[I]"),
        ("A[I_data] → W_in[I]", "A[I_{data}] → W_{\\text{in}}[I]"),
        ("A[I] ⊙ B[I] → C[I]", "A[I] .* B[I] -> C[I]"),
        ("A[I] ⊙ B[I] → C[I]", "A[I] \\odot B[I] -> C[I]"),
        ("A[I]{U_X} → A[I]", "A[I] <U_X> → A[I]"),
        ("A[I]{U_X} → A[I]", "A[I] { U.X } → A[I]"),
        ("A[I]{U_X} → A[I]", "A[I] \\{\\ U_X \\} → A[I]"),
        ("A[I]{U_XY} → A[I]", "A[I]{U_{XY}} → A[I]"),
        ("A[I, J] ·_LOCAL B[J] → C[I]", "A[I, J] \\cdot_\\text{LOCAL} B[J] → C[I]"),
        ("A[I, J] ·_LOCAL B[J] → C[I]", "A[I, J] *_{LOCAL} B[J] → C[I]"),
        ("AllGather_X(A[I_X]) → A[I]", "AllGather_X A[I_X] → A[I]"),
        ("ReduceScatter_{X,I}(A[I]{U_X}) → A[I_X]", "\\textbf{ReduceScatter}_{X, I} : A[I]{U_X} → A[I_X]"),
        ("A[I] → B[I]; C[I] → D[I]", "A[I] → B[I]\r\n\r\n  C[I] → D[I] # twice"),
        ("A[I, J] → B[I, J]", "A[I,\n  J] → B[I, J]"),
        ("mesh X=4, Y=2\nA[I] → B[I]", "Mesh({'X': 4, \"Y\": 2})\nA[I] → B[I]"),
        ("mesh X=4, Y=2\nA[I] → B[I]", "\N{ZERO WIDTH NO-BREAK SPACE}mesh X=4,Y=2;A[I]→B[I]"),
        ("(A[I] + B[I]) · C[I] → D[]", "((A[I]) + (B[I])) · (C[I]) → D[]"),
        ("A[I] → B[I]\nC[I] → D[I]", "A[I] → B[I] \\\\ C[I] → D[I]"),
    ],
)
def test_spellings_are_one_tree(one: str, other: str) -> None:
    assert parse_tree(one) == parse_tree(other)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("dim", "name", "axes"),
    [
        ("I", "I", ()),
        ("I_X", "I", ("X",)),
        ("I_YX", "I", ("Y", "X")),
        ("I_{X,Y}", "I", ("X", "Y")),
        ("d_model", "d_model", ()),
        ("d_model_X", "d_model", ("X",)),
        ("h_2", "h_2", ()),
        ("I_?", "I", None),
        ("d_model_?", "d_model", None),
    ],
)
def test_a_dim_and_its_subscript(dim: str, name: str, axes: tuple[str, ...] | None) -> None:
    array = read(f"A[{dim}] → B").inputs[0]
    assert (array.dims, array.pattern.dims) == ((name,), (axes,))


def test_a_lower_case_part_that_is_an_axis_is_a_subscript() -> None:
    program = parse("A[d_model] → B[d]", mesh=Mesh.of({"model": 2}))
    assert (program.inputs[0].dims, program.inputs[0].pattern.dims) == (("d",), (("model",),))


def test_a_part_nearly_an_axis_is_a_name_and_a_warning() -> None:
    program = parse("A[I_modle, J_model] → B", mesh=Mesh.of({"model": 2}))
    assert program.inputs[0].dims == ("I_modle", "J")
    assert program.warnings == ("`I_modle` is the name of a dim, since the mesh has no axis `modle`; it has `model`",)


def test_an_axis_that_nobody_uses_is_a_warning() -> None:
    assert read("A[I_X] → B[I]").warnings == ("the text shards nothing over mesh axis `Y`",)


def test_a_label_ends_its_dim() -> None:
    outer = product("In[B, D] ·_D Win[D, F] ·_F Wout[F, D] → Out[B, D]")
    assert outer.dims == ("B", "D")
    assert outer.operands[0].dims == ("B", "F")


def test_without_a_label_a_later_operand_keeps_a_dim() -> None:
    outer = product("A[I, J] · B[J, K] · C[J, K] → D[I]")
    assert outer.operands[0].dims == ("I", "J", "K")


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "inner", "outer"),
    [
        ("A[I, J] · B[J, K] · C[K, L] → D", ("I", "K"), ("I", "L")),
        ("A[I, J] · B[J, K] ·_K C[K, L] → D", ("I", "K"), ("I", "L")),
        ("A[I, J] · B[J, K] · C[K, L] → D[L, I]", ("I", "K"), ("L", "I")),
        ("A[I, J, M] · B[J, K] · C[K, L] → D[L, I]", ("I", "K"), ("L", "I")),
        ("(A[I, J] · B[J, K]) · C[J, K] → D", ("I", "J", "K"), ("I",)),
        ("A[I] ⊙ B[I] · C[I, J] → D", ("I",), ("J",)),
    ],
)
def test_what_a_product_keeps(text: str, inner: tuple[str, ...], outer: tuple[str, ...]) -> None:
    found = product(text)
    assert (found.operands[0].dims, found.dims) == (inner, outer)


def test_a_product_on_the_right_in_parentheses() -> None:
    found = product("A[I, J] · (B[J, K] · C[K, L]) → D[I, L]")
    assert found.operands[1].dims == ("J", "L")


@pytest.mark.instant
@pytest.mark.parametrize(
    "text", ["A[I, J] → B[J, I]", "relu(A[I, J]) → B[J, I]", "A[I, J] + B[J, I] → C[J, I]", "-A[I, J] → B[J, I]"]
)
def test_a_transposition_is_a_product_of_one(text: str) -> None:
    found = product(text)
    assert found.dims == ("J", "I")
    assert found.operands[0].dims == ("I", "J")


def test_a_reshard_is_a_use() -> None:
    statement = read("A[I_X, J] → A[I, J_X]").statements[0]
    assert isinstance(statement.expr, Use)
    assert statement.pattern == Pattern(((), ("X",)))


def test_sums_and_functions() -> None:
    program = read("relu(A[I, J] · B[J, K]) + bias[K] - -C[I, K] → D[I, K]; max_K(softmax_K(D)) → m; sum_{I}(m) → s[]")
    first, second, third = (statement.expr for statement in program.statements)
    assert isinstance(first, Call) and first.function == "sub" and first.dims == ("I", "K")
    assert isinstance(second, Call) and (second.function, second.over, second.dims) == ("max", ("K",), ("I",))
    assert isinstance(third, Product) and third.dims == ()
    assert program.outputs == (2,)


def test_the_smaller_side_may_stand_left() -> None:
    expr = read("bias[K] + A[I, K] → D[I, K]").statements[0].expr
    assert isinstance(expr, Call) and expr.dims == ("I", "K")


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "axes", "dim"),
    [
        ("AllGather_XY(A[I_XY, J]) → A[I, J]", ("X", "Y"), None),
        ("AllGather(A[I_XY, J]) → A[I_X, J]", None, None),
        ("ReduceScatter_{X,J}(A[I, J]{U_X}) → A[I, J_X]", ("X",), "J"),
        ("ReduceScatter_{X,Y}(A[I, J]{U_XY}) → A[I_XY, J]", ("X", "Y"), None),
        ("AllToAll_{X,J} A[I_X, J] → A[I, J_X]", ("X",), "J"),
        ("CollectivePermute(A[I_XY]) → A[I_YX]", None, None),
        ("Slice_X(A[I]) → A[I_X]", ("X",), None),
        ("dW[F, D] = AllReduce(dW[F, D] {U_X})", None, None),
    ],
)
def test_named_collectives(text: str, axes: tuple[str, ...] | None, dim: str | None) -> None:
    named = read(text).statements[0].expr
    assert isinstance(named, Named)
    assert (named.axes, named.dim) == (axes, dim)


def test_names_are_bound_again_in_another_sharding() -> None:
    program = read("Win[D, F] = AllGather(Win[D_X, F])\nOut[B, F] = In[B, D] · Win")
    assert [array.name for array in program.inputs] == ["Win", "In"]
    last = program.statements[1].expr
    assert isinstance(last, Product)
    assert [use.pattern for use in last.operands if isinstance(use, Use)] == [Pattern(((), ())), None]


def test_options_override_declarations() -> None:
    text = "mesh X=4\ndims I=8, J=8\ndtype f32\nchip v5e\ntopology v5e:4x4\nA[I_X, J] → B[I, J_X]"
    declared = parse(text)
    assert (declared.mesh, dict(declared.sizes)) == (Mesh.of({"X": 4}), {"I": 8, "J": 8})
    assert (declared.dtype, declared.chip, declared.topology) == (DTYPES["f32"], "v5e", "v5e:4x4")
    options = {"dims": {"I": 16, "Q": 3}, "dtype": "bfloat16", "chip": "v5p", "topology": "v5p:4x4x4"}
    given = read(text, **options, dtypes={"A": "int8"})
    assert (given.mesh, dict(given.sizes)) == (MESH, {"I": 16, "J": 8})
    assert (given.dtype, given.chip, given.topology) == (DTYPES["bf16"], "v5p", "v5p:4x4x4")
    assert given.inputs[0].dtype == DTYPES["int8"]
    assert parse(print_program(given)) == given


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("A: int8[I, J] · B: int8[J, K] → C: int32[I, K]", "int32"),
        ("A: bf16[I, J] · B: bf16[J, K] → C: f32[I, K]", "f32"),
        ("A: int32[I, J] · B: int32[J, K] → C[I, K]", "int32"),
        ("relu(A: int8[I]) → C[I]", "int8"),
        ("C: int32[I] = sum_J(A: int8[I, J])", "int32"),
    ],
)
def test_types(text: str, dtype: str) -> None:
    program = read(text)
    assert program.statements[0].dtype == DTYPES[dtype] == program.statements[0].expr.dtype
    assert parse(print_program(program)) == program


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("\\mathbf{A}[I,J_{X}]*B[J_X,K]->C[I,K]", "A[I, J_X] · B[J_X, K] → C[I, K]"),
        ("C[I_{X,Y},K]=A[I,J]*(-B[J,K])", "C[I_XY, K] = A[I, J] · -B[J, K]"),
        ("C[I]<U.X>=A[I,J_X]@_LOCAL B[J_{X}]", "C[I]{U_X} = A[I, J_X] ·_LOCAL B[J_X]"),
        ("(A:int8[I]+(B: i8[I]))\\odot C : s8[I]→D:int32[I]", "(A: int8[I] + B: int8[I]) ⊙ C: int8[I] → D: int32[I]"),
        ("AllGather_{X}A: bf16[I_X]→A", "AllGather_X(A[I_X]) → A"),
    ],
)
def test_the_text_of_a_statement_is_canonical(text: str, canonical: str) -> None:
    assert read(text).statements[0].text == canonical


def test_declarations_print_in_one_order() -> None:
    program = parse("chip v5p; A[I_X] → B[I]; dims I=8; mesh X=4")
    assert print_program(program) == "mesh X=4\ndims I=8\ndtype bf16\nchip v5p\nA[I_X] → B[I]\n"


def test_ascii_printing_is_ascii() -> None:
    printed = print_tree(parse_tree("A[I] · B[I] ⊙ C[I] → D[]"), ascii=True)
    assert printed == "A[I] * B[I] .* C[I] -> D[]\n"


def test_options_of_the_command_line() -> None:
    assert parse_mesh("X=4,Y=2") == parse_mesh("Mesh({'X': 4, 'Y': 2})") == Mesh.of({"X": 4, "Y": 2})
    assert parse_dims(" I=1024, J=4096 ") == {"I": 1024, "J": 4096}


def test_the_limits_themselves_are_allowed() -> None:
    many = read(" · ".join(["A[I, J]"] * 1000) + " → C[I]")
    assert len(many.statements[0].text) > 1000 and many.outputs == (0,)
    read(" + ".join(["A[I]"] * 1000) + " → C[I]")
    read("(" * 50 + "A[I]" + ")" * 50 + " → C[I]")
    read("relu(" * 50 + "A[I]" + ")" * 50 + " → C[I]")
    read("(B[I] + C[I] · " * 50 + "A[I]" + ")" * 50 + " → D[I]")
    parse("A[I] → C[I]" + " " * (65536 - 15))


def test_import_is_lazy() -> None:
    script = "import sys, shardc.notation; sys.exit('lark' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
