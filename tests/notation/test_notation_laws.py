"""The laws of the front end, on drawn trees and on drawn text."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shardc.errors import CODES, ShardcError, Span
from shardc.ir.expressions import Pattern, Product, Use
from shardc.ir.mesh import Mesh
from shardc.ir.program import Input, Program, Statement
from shardc.notation import parse, parse_tree, print_program, print_tree, spelled, tree
from shardc.notation.faults import MAX_FAULTS, every_fault

MESH = Mesh.of({"X": 2, "Y": 2, "model": 3})
LAWS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.sampled_from(
    ["A", "B", "Win", "dOut", "W_in", "X", "x2", "h_2", "P", "lambda", "jax", "σ", "ΔW", "x'", "x''", "W_in'", "W'_in"]
)
dims = st.one_of(
    st.builds(tree.Dim, st.sampled_from(["I", "J", "K_X", "I_XY", "d_model", "D", "T'", "T'_X", "θ"])),
    st.builds(tree.Dim, st.sampled_from(["I", "d_model"]), st.sampled_from([("X", "Y"), ("model", "X")])),
    st.builds(tree.Dim, st.sampled_from(["I", "J"]), free=st.just(True)),
)
brackets = st.lists(dims, max_size=3).map(tuple)
arrays = st.one_of(
    st.builds(tree.Array, names, st.none()),
    st.builds(
        tree.Array,
        names,
        brackets,
        st.sampled_from([(), ("X",), ("XY",), ("X", "model")]),
        st.sampled_from([None, "int8", "f32"]),
    ),
    st.builds(tree.Array, st.just(""), brackets, st.sampled_from([(), ("X",)])),
)
labels = st.sampled_from([(), ("J",), ("J", "K"), ("d_model",)])
operators = st.one_of(
    st.builds(tree.Operator, label=labels),
    st.just(tree.Operator(elementwise=True)),
    st.just(tree.Operator(divides=True)),
    st.just(tree.Operator(local=True)),
)
leaves = st.one_of(
    arrays,
    arrays,
    st.builds(tree.Number, st.sampled_from(["2", "0", "0.5", "1e-6", ".25", "3.", "1E+3", "inf"])),
    st.builds(tree.Size, st.sampled_from(["I", "d_model"])),
    st.builds(tree.Index, st.sampled_from(["I", "d_model"])),
)


def chains(below: st.SearchStrategy[tree.Expr]) -> st.SearchStrategy[tree.Expr]:
    return st.integers(1, 3).flatmap(
        lambda n: st.builds(tree.Chain, st.tuples(*[below] * (n + 1)), st.tuples(*[operators] * n))
    )


def sums(below: st.SearchStrategy[tree.Expr]) -> st.SearchStrategy[tree.Expr]:
    signs = st.sampled_from("+-")
    return st.integers(1, 3).flatmap(
        lambda n: st.builds(tree.Sum, st.tuples(*[below] * (n + 1)), st.tuples(*[signs] * n))
    )


def larger(below: st.SearchStrategy[tree.Expr]) -> st.SearchStrategy[tree.Expr]:
    functions = st.sampled_from(["relu", "softmax", "sum", "anything"])
    collectives = st.sampled_from(["AllGather", "ReduceScatter", "AllReduce", "Slice"])
    return st.one_of(
        chains(below),
        sums(below),
        st.builds(tree.Neg, below),
        st.builds(tree.Comparison, below, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), below),
        st.builds(tree.Call, functions, labels, st.lists(below, min_size=1, max_size=3).map(tuple)),
        st.builds(tree.Named, collectives, st.sampled_from([(), ("X",), ("X", "K"), ("XY", "J")]), below),
    )


statements = st.builds(tree.Statement, arrays, st.recursive(leaves, larger, max_leaves=8), st.booleans())
sizes = st.integers(1, 10**6)
declarations = st.one_of(
    st.builds(tree.MeshDecl, st.just((("X", 2), ("model", 4)))),
    st.builds(tree.DimsDecl, st.tuples(st.tuples(st.sampled_from(["I", "d_model"]), sizes))),
    st.builds(tree.WordDecl, st.just("dtype"), st.sampled_from(["bf16", "f32"])),
    st.builds(tree.WordDecl, st.just("topology"), st.just("v5p:4x4x4")),
    st.builds(tree.Return, st.lists(names, min_size=1, max_size=3).map(tuple)),
)
trees = st.builds(tree.Tree, st.lists(st.one_of(statements, declarations), min_size=1, max_size=4).map(tuple))


A = tree.Array("A", None)


@LAWS
@example(tree.Tree((tree.Statement(A, tree.Call("anything", (), (A, A)), True),)))  # no remark of two words
@given(trees)
def test_printing_and_parsing_are_inverse(drawn: tree.Tree) -> None:
    printed = print_tree(drawn)
    again = parse_tree(printed)
    assert again == drawn
    assert print_tree(again) == printed


LATEX = [
    (r"·", r"\\cdot"),
    (r"⊙", r"\\odot"),
    (r">=", r"\\geq"),
    (r"<=", "≤"),
    (r"!=", r"\\neq"),
    (r"\binf\b", "∞"),
    (r"→", r"\\rightarrow"),
    (r"\{U_(\w+)\}", r"\\{\\ U_{\1} \\}"),
    (r"\bWin\b", r"\\mathbf{Win}"),
    (r"_LOCAL\b", r"_\\text{LOCAL}"),
    (r"\bW_in\b", r"W_\\text{in}"),
    (r"\b(AllGather|AllReduce)", r"\\textbf{\1}"),
    (r"ΔW\b", r"\\Delta W"),
    (r"σ", r"\\sigma"),
    (r"x'", r"x^{\\prime}"),
]


@LAWS
@given(trees)
def test_every_spelling_gives_the_same_tree(drawn: tree.Tree) -> None:
    printed = print_tree(drawn)
    latex = printed
    for pattern, instead in LATEX:
        latex = re.sub(pattern, instead, latex)
    assert parse_tree(print_tree(drawn, ascii=True)) == drawn
    assert parse_tree(latex) == drawn
    assert parse_tree(printed.replace(", ", ",").replace("\n", "\r\n")) == drawn


PIECES = [
    *"ABIJX_{}[](),;:=<>.*+-@?#'\"\\ \n\r\t04²٤ХＡ·⋅→⊙",
    "A[I_X, J]", "B[J, K]", " · ", " → ", "C[I, K]", "->", "mesh X=2", "dims I=8", "AllGather_X", "relu(", "{U_X}",
    "\\cdot", "\\text{In}", "·_J ", "·_LOCAL ", "dtype bf16", "softmax_J(", "Mesh({'X': 2})", "\u202e", "\0", "\ud800",
]  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=14).map("".join)))
def test_any_text_gives_a_program_or_a_coded_error(text: str) -> None:
    try:
        program = parse(text, mesh=MESH)
    except ShardcError as error:
        assert error.code in CODES and error.code != "SHC900"
        assert error.help
        assert error.render() and error.to_json()
        if error.span is not None:
            assert 0 <= error.span.start <= error.span.end <= len(error.span.source.text)
        return
    assert parse(print_program(program)) == program


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*PIECES, "\n", ";"]), max_size=24).map("".join))
def test_the_faults_of_any_text_come_to_an_end(text: str) -> None:
    """Each once, at places of the text as written; the first is what parsing it raises."""
    try:
        parse(text, mesh=MESH)
    except ShardcError as error:
        first = (error.code, error.message)
        found = every_fault(error, lambda rest: parse(rest, mesh=MESH))
        places = [(one.code, one.span.start, one.span.end) for one in found if one.span is not None]
        assert (found[0].code, found[0].message) == first
        assert len(places) == len(set(places)) <= MAX_FAULTS
        assert all(one.span.source.text == found[0].span.source.text for one in found if one.span and found[0].span)


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.shard"))
BOUND = re.compile(r"\s*(?!(?:mesh|dims)\b)\w[\w']*(?:: \w+)?(?:\[[^=]*\])?\s*=(?!=)[^#]*")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_of_one_fault_in_a_program_nothing_else_is_told(path: Path) -> None:
    """Each statement of each example is broken by itself: what it binds and uses is then missed, which is no fault."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for place, line in enumerate(lines):
        if not (statement := BOUND.match(line)):
            continue
        broken = "\n".join([*lines[:place], f"{statement[0]} + nosuch(1)", *lines[place + 1 :]])
        with pytest.raises(ShardcError) as first:
            parse(broken)
        assert [error.code for error in every_fault(first.value, parse)] == ["SHC222"], line


# A statement with a fault of its own each: `one` is the array that it binds, `dim` has the name of another's.
FAULTY = {
    "SHC103": "{one}[I, {dim} = {one}b[I, {dim}]",
    "SHC202": "{one}[I_X, {dim}_X] = {one}b[I, {dim}]",
    "SHC207": "{one}[I, {dim}] = {one}b[I, J] · {one}c[J, K]",
    "SHC210": "{one}[I] = softmax_{dim}({one}b[I])",
    "SHC219": "{one}[I, {dim}_X] = AllGather_Y {one}b[I, {dim}_X]",
    "SHC222": "{one}[I, {dim}] = nosuch({one}b[I, {dim}])",
}


@pytest.mark.instant
@given(st.lists(st.sampled_from(sorted(FAULTY)), min_size=1, max_size=8))
def test_every_fault_is_told_whatever_else_is_wrong(codes: list[str]) -> None:
    """No statement uses what another binds; that a dim has the name of an array is no use of it."""
    text = "\n".join(FAULTY[code].format(one=f"A{n}", dim=f"A{n - 1}") for n, code in enumerate(codes, start=1))
    with pytest.raises(ShardcError) as first:
        parse(text, mesh=MESH)
    assert sorted(error.code for error in every_fault(first.value, partial(parse, mesh=MESH))) == sorted(codes)


def _spans(node: object) -> list[tuple[object, Span]]:
    if isinstance(node, tuple):
        return [found for part in node for found in _spans(part)]
    if not is_dataclass(node) or isinstance(node, Span):
        return []
    here = [(node, span)] if isinstance(span := getattr(node, "span", None), Span) else []
    return here + [found for part in fields(node) for found in _spans(getattr(node, part.name))]


@LAWS
@given(trees)
def test_every_span_holds_what_it_names(drawn: tree.Tree) -> None:
    for node, span in _spans(parse_tree(print_tree(drawn))):
        match node:
            case tree.Dim(name):
                assert span.text.startswith(name)
            case tree.Array(name, None, _, None):
                assert span.text.strip("()") == name
            case tree.Array(name):
                assert span.text.strip("(").startswith(name)
                assert span.text[-1] in ")]}" + name[-1:] + str(node.dtype)[-1]
            case tree.Statement():
                assert span.text in print_tree(drawn)


RENAMED = ["A[I_X, J] · B[J, K] → C[I_X, K]", "sum_J(A[I, J_X]) → C[I]"]


@pytest.mark.instant
@LAWS
@given(st.permutations(["I", "J", "K", "Q"]), st.sampled_from(RENAMED))
def test_renaming_dims_renames_the_program_and_nothing_else(order: list[str], text: str) -> None:
    table = dict(zip("IJKQ", order, strict=True))
    renamed = re.sub(r"(?<![A-Za-z])[IJK](?![A-Za-z])", lambda found: table[found.group()], text)
    one, other = parse(text, mesh=MESH), parse(renamed, mesh=MESH)
    assert [tuple(table[dim] for dim in array.dims) for array in one.inputs] == [array.dims for array in other.inputs]
    assert [array.pattern for array in one.inputs] == [array.pattern for array in other.inputs]
    assert [s.pattern for s in one.statements] == [s.pattern for s in other.statements]


def seconds_to_parse(text: str) -> float:
    """Of the processor, the least of three: other work on the machine plays no part."""
    took = []
    for _ in range(3):
        start = time.process_time()
        with suppress(ShardcError):
            parse(text)
        took.append(time.process_time() - start)
    return min(took)


def test_time_is_linear() -> None:
    """Eight times the text takes well under sixty-four times as long, for each shape of text."""
    for piece in ["A[I,", "relu ", "_", "{U_X}", "A_", "I_{", "\\text{", "# (\n", "->", "A[I] → B[I];", "((", "-", "0"]:
        short, long = (seconds_to_parse(piece * (length // len(piece))) for length in (8_000, 64_000))
        assert long < 30 * short + 0.5, piece


def test_many_dims_take_linear_time() -> None:
    dims = ",".join(f"i{n}" for n in range(4_000))
    start = time.perf_counter()
    parse(f"A[{dims}] · B[{dims}] → C[i1]")
    assert time.perf_counter() - start < 10


@pytest.mark.instant
@LAWS
@given(
    st.sampled_from(
        [
            "In[B, D] ·_D Win[D, F] ·_F Wout[F, D] → Out[B, D]",
            "A[I, J_X] · B[J, K] · C[K, L] → D[L, I_X]",
            "relu(A[I, J] · B[J, K]) + bias[K] → C[I, K]; sum_K(softmax_I(C)) → D",
            "AllGather_{X,I}(A[I_X]) → A[I]; A · B[I] → C",
            "A: int8[I, J] ·_LOCAL B: int8[J] → C: int32[I]",
            "A[I, J] → B[J, I_?]; -B → C; C - B → D",
            "A[I, J] · (B[J, K] + C[J, K]) → D[I, K]",
            "A[I, J] ·_J B[J, K] ⊙ C[I, K] → D[I, K]",
        ]
    )
)
def test_a_program_without_texts_gets_texts_that_mean_the_same(text: str) -> None:
    program = parse(text, mesh=MESH)
    bare = Program(
        program.mesh, program.sizes, program.dtype, program.inputs,
        tuple(Statement(s.name, s.dims, s.pattern, s.expr, s.dtype, "") for s in program.statements),
    )  # fmt: skip
    again = parse(print_program(bare))
    assert again.inputs == program.inputs
    for one, other in zip(again.statements, program.statements, strict=True):
        assert (one.name, one.dims, one.pattern, one.dtype) == (other.name, other.dims, other.pattern, other.dtype)
        assert one.expr == other.expr
    assert all(statement.text for statement in spelled(bare).statements)


def test_a_derived_first_use_shows_its_input() -> None:
    dtype = parse("A[I] → B[I]").dtype
    use = Use("A", ("I",), None, dtype)
    made = Program(
        MESH, (), dtype, (Input("A", ("I",), Pattern((("X",),)), dtype),),
        (Statement("B", ("I",), Pattern(((),)), Product((use, use), ("I",), dtype), dtype, ""),),
    )  # fmt: skip
    assert spelled(made).statements[0].text == "B[I] = A[I_X] ⊙ A"
