"""What products of elements, and sums, read and write, by what stands around them."""

import pytest

import shardc
from shardc.ir.expressions import Call, Product, parts_of
from shardc.ir.program import Statement
from shardc.lowering.over_dims import Passes
from shardc.lowering.streams import Streams, streams_of

A, B = "A[I, J]", "B[I, J]"
ALL, LARGEST, COMPUTED = Passes(), Passes(largest=1), Passes(computed=1)
INSIDE, OF_TWO = Streams((False, False), False), Streams((True, True))
CASES = {  # of each product and sum, from the outermost inwards
    f"C[I, J] = {A} ⊙ {B}": [OF_TWO],
    f"C[I, J] = {A} ⊙ {A}": [Streams((True, False))],
    f"C[I] = sum_J({A})": [Streams((False,), True, LARGEST)],
    f"C[I] = sum_J(relu({A}))": [Streams((False,), True, COMPUTED)],
    f"C[I] = sum_J({A} ⊙ {A})": [Streams((False,), True, COMPUTED), INSIDE],
    f"C[I] = sum_J({A} ⊙ {B})": [Streams((False,), True, COMPUTED), Streams((False, True), False)],
    f"C[I] = max_J({A} ⊙ {B})": [Streams((False, True), False)],
    f"T = {A} ⊙ {A}; C[I] = sum_J(T)": [INSIDE, Streams((False,), True, COMPUTED)],
    f"T = {A} ⊙ {A}; C[I] = sum_J(T); D[I, J] = relu(T)": [Streams((True, False)), Streams((False,), True, LARGEST)],
    f"C[I, J] = {A} ⊙ rsqrt(mean_J(A ⊙ A)) ⊙ G[J]": [
        Streams((False, True)),  # n_1 ⊙ G
        Streams((True, False), False),  # A ⊙ r
        Streams((False,), True, COMPUTED),
        INSIDE,
    ],
    f"C[I, J] = relu({A} ⊙ {B}) ⊙ D[I, J]": [Streams((False, True)), Streams((True, True), False)],
    "C[I, J] = (A[I, K] · B[K, J]) ⊙ G[J]": [Streams((False, True), False), OF_TWO],
    "C[I] = sum_J(A[I, K] · B[K, J])": [Streams((False,), True, ALL), OF_TWO],
    "C[I] = A[I, J] · B[J]": [OF_TWO],
}


CALLS = {  # of each function of elements
    f"C[I, J] = relu({A})": [Streams((True,))],
    f"C[I, J] = {A} + relu({B})": [Streams((True, False)), Streams((True,), False)],
    f"C[I, J] = {A} + A": [Streams((True, False))],
    f"C[I, J] = relu({A} ⊙ {B})": [Streams((False,))],
    "C[I, J] = relu(A[I, K] · B[K, J])": [Streams((False,), False)],
    "C[I, J] = D[I, J] + A[I, K] · B[K, J]": [Streams((True, False), False)],
    f"C[I] = sum_J(relu({A}))": [Streams((False,), False)],
    f"C[I] = max_J({A} + {B})": [Streams((False, True), False)],
    f"T = relu({A}); C[I, J] = T ⊙ {B}": [Streams((True,), False)],
    f"T = relu({A}); C[I, J] = T ⊙ {B}; D[I] = max_J(T)": [Streams((True,))],
    f"C[I, J] = where(index_I >= index_J, {A}, 0)": [Streams((False, True)), Streams((False, False), False)],
    f"C[I, J] = softmax_J({A})": [],
    f"C[I, J] = relu(softmax_J({A}))": [Streams((False,), False)],
    f"P = softmax_J({A}); C[I, J] = relu(P) + {B}": [Streams((False, True), False), Streams((False,), False)],
}


def found_of(program, kind=Product):
    every = [
        streams_of(program, part)
        for statement in program.statements
        if isinstance(statement, Statement)
        for part in parts_of(statement.expr)
        if isinstance(part, kind)
    ]
    return [each for each in every if each is not None and each.read]


@pytest.mark.parametrize("text", CASES)
def test_what_is_read_and_written(text):
    """As `tests/cost/test_alone.py` sees it compiled."""
    assert found_of(shardc.parse(text, mesh="X=2")) == CASES[text]


@pytest.mark.parametrize("text", CALLS)
def test_what_functions_read_and_write(text):
    assert found_of(shardc.parse(text, mesh="X=2"), Call) == CALLS[text]


@pytest.mark.parametrize("made", ["(A[I, J] ⊙ B[I, J]) ⊙ D[I, J]", "A[I, J] ⊙ (B[I, J] ⊙ D[I, J])"])
def test_in_another_order_as_much_is_read(made):
    """A, B and D once each, and one array is written; the sum counts one of them."""
    for text, read in ((f"C[I, J] = {made}", 3), (f"C[I] = sum_J({made})", 2)):
        every = found_of(shardc.parse(text, mesh="X=2"))
        of_elements = [each for each in every if len(each.read) == 2]
        assert sum(sum(each.read) for each in of_elements) == read
        assert sum(each.written for each in every) == 1


def test_an_order_that_no_statement_has_is_a_step_on_the_way():
    program = shardc.parse("C[I, J] = (A[I, J] ⊙ B[I, J]) ⊙ D[I, J]", mesh="X=2")
    other = shardc.parse("C[I, J] = A[I, J] ⊙ (B[I, J] ⊙ D[I, J])", mesh="X=2").statements[0].expr
    assert streams_of(program, other) == Streams((True, False))
    assert streams_of(program, other.operands[1]) == Streams((True, True), False)
