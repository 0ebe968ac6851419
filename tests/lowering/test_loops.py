"""What operations read and write of a device's memory, by the loops that the compiler makes of a program's text."""

from dataclasses import replace

import pytest

import shardc
from shardc.ir.expressions import Call, Product, Use, parts_of
from shardc.ir.program import Statement
from shardc.lowering.loops import account_of
from shardc.lowering.streams import Passes

A, B, D, G = "A[I, J]", "B[I, J]", "D[I, J]", "G[J]"
H, V, W = "h = A[I, K] · B[K, J]", "V[J, L]", "W[J, K]"
# Of each operation from the outermost inwards, a statement after the other: how many arrays are read for each operand,
# `w` if it is written, `+` if beside another, `!` by an instruction of its own; then passes for the largest, and of
# what is computed. Operations that read and write nothing are left out.
CASES = {
    # one loop, which writes its last result
    f"C[I, J] = relu({A})": "1w",
    f"C[I, J] = {A} ⊙ {G}": "11w",
    f"C[I, J] = {A} ⊙ A": "10w!",
    f"C[I, J] = {A} + relu({B})": "11w",
    f"C[I, J] = relu({A} ⊙ {B}) ⊙ {D}": "21w",
    f"C[I, J] = where({A} > {B}, A, B)": "200w",
    f"C[I, J] = where(index_I >= index_J, {A}, 0)": "01w",
    f"T = relu({A}); C[I, J] = T ⊙ square(T)": "10w",
    f"C[I, J] = f32({A}) + f32({B})": "11w",
    # an instruction alone
    f"C[I, J] = {A} + {B}": "11w!",
    f"C[I, J] = -{A}": "1w!",
    f"C[I, J] = {A} + {B} + {D}": "21w",
    f"C[I, J] = 2 ⊙ {A}": "1w",
    # results of one loop
    f"C[I, J] = relu({A}); D[I, J] = A + {B}": "1w 01+",
    f"T = {A} + {B}; C[I, J] = T ⊙ {D}; E[I] = max_J(T)": "01 11w",
    f"C[I, J] = relu({A}); D[I, J] = silu({B})": "1w 1w",
    f"C[I, J] = relu({A}); E[I, J] = C + {B}; return C, E": "1w 01+",
    # sums
    f"C[I] = sum_J({A})": "0w/10",
    f"C[I] = sum_J(relu({A}))": "0w/01",
    f"C[I] = sum_J({A} ⊙ {B})": "1w/01",
    f"C[I] = sum_J({A}); D[I] = sum_J(square(A))": "0w/01 0w",
    f"C[I] = sum_J({A}); D[I, J] = A + {B}": "0w 11w",
    f"C[I] = max_J({A} ⊙ {B})": "01",
    f"T = square({A}); C[I] = sum_J(T); E[I, J] = T ⊙ C": "0w/01 11w",
    f"C[I, J] = {A} ⊙ rsqrt(mean_J(A ⊙ A)) ⊙ {G}": "11w 0w/01",
    # of positions and small arrays, each loop computes what it reads
    f"M = index_J == D[I]; C[I] = sum_J(where(M, {A}, 0)); E[I, J] = where(M, {B}, 1)": "0w/01 1w",
    # what is widened is so where it is read, however often
    f"S = f32({A}); C[I] = sum_J(S); E[I, J] = S ⊙ C": "0w/01 11w",
    "S = f32(A[I, K] · B[K, J]); C[I] = max_J(S); E[I] = sum_J(square(S))": "11w 0w",
    # products read what their operands are computed of
    f"C[I, K] = relu({A}) · {W}": "11w",
    f"C[I, K] = ({A} + {B}) · {W}": "21w",
    f"T = {A} + {B}; C[I, K] = T · {W}; E[I, L] = T · {V}": "01 11w 11w",  # the first computes it, and leaves it
    f"T = relu({A}); C[I, K] = T · {W}; E[I, L] = T · {V}": "11w 11w",
    f"T = {A} + {B}; C[I, K] = (relu(T) ⊙ silu(T)) · {W}": "21w",  # of several that end in one value nothing is left
    f"T = {A} + {B}; C[I, J] = relu(T) ⊙ silu(T)": "20w",
    f"n = {A} ⊙ rsqrt(mean_J(square(A))) ⊙ {G}; C[I, K] = n · {W}": "0w/01 11w",
    f"T[I, J] = A[I] · B[J]; C[I, K] = T · {W}": "11w 11w",  # made of smaller ones, for a product it is written
    "C[I] = A[I, J] · B[J]": "11w",
    # with a product's tiles
    "C[I, J] = relu(A[I, K] · B[K, J])": "11w",
    f"{H}; C[I, J] = h ⊙ silu(h)": "11w",
    f"{H}; C[I, J] = {D} + h": "11w 10",
    f"{H}; C[I] = sum_J(h)": "11w 0w",
    f"{H}; C[I, J] = relu(h); E[I, J] = silu(h)": "11w 0+",
    f"{H}; C[I, J] = h ⊙ rsqrt(mean_J(square(h)))": "11w 11w 0w",  # which waits for the sum
    f"{H}; y = h + {D}; C[I] = sum_J(y); E[I, J] = y ⊙ C": "11w 01 0w/10 11w",  # a sum of its own
    f"{H}; a = relu(h); C[I, L] = a · {V}; E[I, J] = where(h > 0, {D}, 0)": "11w 11w 01+",
    f"{H}; C[I, L] = relu(h) · {V}; return C, h": "11w 11w",
    # with what a softmax leaves
    f"C[I, J] = relu(softmax_J({A}))": "",
    f"P = softmax_J({A}); C[I, J] = P ⊙ {B} + P": "10",
    # what a softmax or a maximum is taken of: one array is counted by its passes, unless tiles are at hand
    f"C[I, J] = softmax_J({A} + {D})": "01",
    f"C[I, J] = softmax_J({A} + {B} + {D})": "11",
    f"C[I, J] = softmax_J(A[I, K] · B[K, J] + {D})": "01 11w",
    f"C[I] = max_J(A[I, K] · B[K, J] + {D})": "01 11w",
    # what waits for a sum is computed as products read it, however many
    f"{H}; n = h ⊙ rsqrt(mean_J(square(h))); C[I, L] = n · {V}; E[I, L2] = n · U[J, L2]": "11w 0w 11w 11w",
    # and of tiles it is computed as these come, in place of the product
    f"{H}; n = h ⊙ silu(h); C[I, L] = n · {V}; E[I, L2] = n · U[J, L2]": "11w 11w 11w",
    # kept apart
    f"T = again({A}); C[I, J] = relu(T)": "1w",
}


def spelt(streams):
    marks = "w" * (streams.written and not streams.beside) + "+" * streams.beside + "!" * streams.bare
    passes = f"/{streams.passes.largest}{streams.passes.computed}" if any(streams.passes) else ""
    return "".join(str(len(each.types)) for each in streams.read) + marks + passes


def found_of(program):
    account = account_of(program)
    every = [
        account.streams(part)
        for statement in program.statements
        if isinstance(statement, Statement)
        for part in parts_of(statement.expr)
        if isinstance(part, Product | Call)
    ]
    taken = [each for each in every if each is not None and each.read]
    return " ".join(spelt(each) for each in taken if each.written or any(own.types for own in each.read))


@pytest.mark.instant
@pytest.mark.parametrize("text", CASES)
def test_what_is_read_and_written(text):
    """As `tests/cost/test_alone.py` sees it compiled."""
    assert found_of(shardc.parse(text, mesh="X=2")) == CASES[text]


def test_a_loop_reads_each_array_in_its_own_type():
    program = shardc.parse(f"C: f32[I, J] = f32({A}) ⊙ S: f32[I, J] + 1", mesh="X=2")
    (streams,) = (
        streams
        for part in parts_of(program.statements[0].expr)
        if isinstance(part, Call) and (streams := account_of(program).streams(part)) is not None and streams.written
    )
    assert [[dtype.name for dtype in each.types] for each in streams.read] == [["bf16", "f32"]]
    assert streams.taken([400], 400) == (600, 400)


@pytest.mark.instant
@pytest.mark.parametrize("made", [f"({A} ⊙ {B}) ⊙ {D}", f"{A} ⊙ ({B} ⊙ {D})"])
def test_in_another_order_as_much_is_read(made):
    """A, B and D once each, and one array is written; the sum counts one of them."""
    for text, read in ((f"C[I, J] = {made}", 3), (f"C[I] = sum_J({made})", 2)):
        program = shardc.parse(text, mesh="X=2")
        every = [
            account_of(program).streams(part)
            for part in parts_of(program.statements[0].expr)
            if isinstance(part, Product)
        ]
        assert sum(len(own.types) for each in every for own in each.read) == read
        assert sum(each.written for each in every) == 1


def test_an_order_that_no_statement_has_is_a_step_on_the_way():
    program = shardc.parse(f"C[I, J] = ({A} ⊙ {B}) ⊙ {D}", mesh="X=2")
    other = shardc.parse(f"C[I, J] = {A} ⊙ ({B} ⊙ {D})", mesh="X=2").statements[0].expr
    assert spelt(account_of(program).streams(other)) == "12w"
    assert spelt(account_of(program).streams(other.operands[1])) == "00"


def test_an_order_that_multiplies_elements_of_smaller_arrays_is_written():
    """`a ⊙ b · W`, taken as `a · W` for each element of b: no product computes the larger one as it reads it."""
    program = shardc.parse(f"C[I, K] = ({A} ⊙ {B}) · {W}", mesh="X=2")
    outer = shardc.parse(f"T[I, J, K] = {A} · {W}", mesh="X=2").statements[0].expr
    assert spelt(account_of(program).streams(outer)) == "11w"


@pytest.mark.instant
@pytest.mark.parametrize("text", [text for text in CASES if ";" in text])
def test_where_statements_end_changes_nothing(text):
    """Each operation in a statement of its own, and the same copied to another name, which is no array of its own."""
    *before, last = text.split("return")[0].strip("; ").split("; ")
    name, expr = last.split(" = ", 1)
    split = "; ".join([*before, f"Z = {expr}", f"{name} = Z"])
    wanted = CASES[text]
    if "return" not in text:
        assert found_of(shardc.parse(split, mesh="X=2")) == wanted


def under_other_dims(expr, names):
    """The expression with its dims named so."""
    dims = {"dims": tuple(names(dim) for dim in expr.dims)}
    if isinstance(expr, Use):
        return replace(expr, **dims)
    over = {"over": tuple(names(dim) for dim in expr.over)} if isinstance(expr, Call) else {}
    return replace(expr, operands=tuple(under_other_dims(below, names) for below in expr.operands), **dims, **over)


@pytest.mark.instant
@pytest.mark.parametrize("text", [text for text in CASES if ";" in text])
def test_what_dims_are_called_changes_nothing(text):
    """`T[I, J] = …; C[M, N] = relu(T[M, N])`: each statement has names of its own for all dims, as `K[B, S, E] =
    h[B, S, D] · W[D, E]` has for the T of h."""
    program = shardc.parse(text, mesh="X=2")
    statements = []
    for number, each in enumerate(program.statements):
        expr = under_other_dims(each.expr, lambda dim, number=number: f"{dim}{number}")
        statements.append(replace(each, expr=expr, dims=expr.dims))
    assert found_of(replace(program, statements=tuple(statements))) == CASES[text]


def test_what_a_loop_carries_is_read_and_written_in_each_trip():
    program = shardc.parse("for L { x[I, J] = x[I, J] + relu(B[L, I, J]) }", mesh="X=2", dims="L=3")
    (loop,) = program.statements
    assert found_of(program.inside(loop)) == "11w"


def test_passes_are_told_of_sums_alone():
    program = shardc.parse(f"C[I] = sum_J({A})", mesh="X=2")
    assert account_of(program).streams(program.statements[0].expr).passes == Passes(largest=1)


def test_what_is_widened_is_gone_through_as_it_lies():
    """Priced as f32 a logsumexp of f32(x · W) was 1.8 times as long as replayed."""
    text = (
        "S = f32(A[I, K] · B[K, J]); C[I] = logsumexp_J(S); E[I] = sum_J(square(S)); H[I] = max_J(relu(D: f32[I, J]))"
    )
    program = shardc.parse(text, mesh="X=2")
    account = account_of(program)
    assert [account.type_of(each.expr.operands[0]).name for each in program.statements[1:]] == ["bf16", "bf16", "f32"]
    alone, widened = (
        shardc.plan(text, dims={"I": 4096, "J": 8192}, mesh="X=2,Y=2", topology="v5e:2x2")
        for text in ("C[I_X] = logsumexp_J(A[I_X, J])", "C[I_X] = logsumexp_J(f32(A[I_X, J]))")
    )
    assert alone.cost.compute_s <= widened.cost.compute_s < 1.2 * alone.cost.compute_s
