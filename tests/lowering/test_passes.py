"""Through what a function over dims goes, by what its operand is made of and what reads it."""

import pytest

import shardc
from shardc.ir.expressions import Call, parts_of
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import Statement
from shardc.lowering.loops import account_of
from shardc.lowering.streams import Passes

SCORES, READ = "S[I, J] = A[I, K] · B[K, J]", "C[I, L] = P · V[J, L]"
CASES = {
    "softmax_J(A[I, J]) → C[I, J]": Passes(1, 1, 1),
    "logsumexp_J(A[I, J]) → C[I]": Passes(1, 1, 0),
    "max_J(A[I, J]) → C[I]": Passes(1, 0, 0),
    "max_J(square(A[I, J])) → C[I]": Passes(0, 1, 0),
    "P = softmax_J(relu(A[I, J])); C[I, J] = relu(P)": Passes(0, 2, 1),
    f"P[I, J] = softmax_J(A[I, J]); {READ}": Passes(1, 1, 0),
    f"{SCORES}; C[I] = max_J(S)": Passes(),
    f"{SCORES}; C[I] = logsumexp_J(S)": Passes(0, 0, 0, 1),
    f"{SCORES}; P[I, J] = softmax_J(S)": Passes(0, 1, 1),
    f"{SCORES}; P = softmax_J(S); {READ}": Passes(0, 0, 0, 1),
    f"{SCORES}; P = softmax_J(where(index_I >= index_J, S / 3, -inf)); {READ}": Passes(0, 0, 0, 1),
    f"{SCORES}; P = softmax_J(S); {READ}; return P, C": Passes(0, 0, 1, 1),
    f"{SCORES}; P = 2 · softmax_J(S); {READ}": Passes(0, 0, 0, 1),
    f"{SCORES}; P = softmax_J(S); {READ}; D[I] = sum_J(P)": Passes(0, 0, 1, 1),
}
WIDE = "S: f32[I, J] = A: f32[I, K] · B: f32[K, J]"
AFTER = f"{SCORES}; N[I, J] = S ⊙ max_J(S)"  # the largest of S is with its tiles, and what is of N comes after it
BEHIND = {
    f"{AFTER}; C[I] = max_J(N)": Passes(0, 1),
    f"{AFTER}; C[I] = logsumexp_J(N)": Passes(0, 1, 0, 1),
    f"{AFTER}; P[I, J] = softmax_J(N)": Passes(0, 2, 1),
    f"{SCORES}; N[I, J] = S - sum_J(square(S)); C[I] = max_J(N)": Passes(0, 1),
    f"{SCORES}; N[I, J] = relu(S) + S; C[I] = max_J(N)": Passes(),
}

TOGETHER = {  # in order, of each function: what another before it does, it does in the same loop
    "R[I] = logsumexp_J(A[I, J]); S[J] = logsumexp_I(A)": [Passes(0, 2), Passes()],
    "R[I] = logsumexp_J(A[I, J]); P[I, J] = softmax_J(A)": [Passes(1, 1), Passes(0, 0, 1)],
    "M[I] = max_J(A[I, J]); N[I] = min_J(A)": [Passes(0, 1), Passes()],
    "M[I] = max_J(A[I, J]); N[I] = max_J(B[I, J])": [Passes(1), Passes(1)],  # of two arrays
    "M[I] = max_J(A[I, J]); R[I] = logsumexp_J(A)": [Passes(), Passes(1, 1)],
    "M[I] = min_J(A[I, J]); R[I] = logsumexp_J(A)": [Passes(), Passes(1, 1)],  # the smallest with the sum
    "R[I] = logsumexp_J(A[I, J]); M[I] = min_J(A)": [Passes(0, 2), Passes()],  # or with the largest
    "M[I] = max_J(A[I, J]); C[I, J] = relu(A)": [Passes()],  # where C is computed
    "M[I] = max_J(A[I, J]); C[I, J] = A - M": [Passes(1)],  # but not where C waits for it
    "M[I] = max_J(A[I, J]); N = 2 ⊙ M; C[I, J] = relu(A) - N": [Passes(1)],
    f"{SCORES}; T = relu(S); M[I] = max_J(T); N[I] = sum_J(T); U[J] = max_I(T)": [Passes(), Passes()],
    "M[I] = max_J(A[I, J]); B = A - M; R[I] = logsumexp_J(B)": [Passes(1), Passes(0, 2)],  # which waits for M
    f"{SCORES}; R[I] = logsumexp_J(S); T[J] = logsumexp_I(S)": [Passes(0, 0, 0, 1), Passes(0, 0, 0, 1)],  # two products
    f"{WIDE}; R[I] = logsumexp_J(S); T[J] = logsumexp_I(S)": [Passes(0, 1), Passes()],
    f"{SCORES} + V[J]; M[I] = max_J(S); C[I, J] = S - M": [Passes()],  # with the tiles, to which V is added
    f"{SCORES} + D[I, J]; M[I] = max_J(S); C[I, J] = S - M": [Passes(1)],  # but not where these meet another array
}


def passes_of(text):
    program = shardc.parse(text, mesh="X=2", dims=dict.fromkeys("IJKL", 4096))
    calls = [
        part
        for statement in program.statements
        if isinstance(statement, Statement)
        for part in parts_of(statement.expr)
        if isinstance(part, Call) and FUNCTIONS[part.function].through
    ]
    return [account_of(program).passes(call) for call in calls]


@pytest.mark.instant
@pytest.mark.parametrize("text", BEHIND)
def test_tiles_are_not_at_hand_to_what_waits_for_them_all(text):
    """On v5e:2x4, with I = 32,768 over 8, K = 8192 and J = 16,384: 624 µs for the second largest, priced 0."""
    assert passes_of(text)[-1] == BEHIND[text]


@pytest.mark.instant
@pytest.mark.parametrize("text", TOGETHER)
def test_functions_through_one_array_share_their_loops(text):
    """On v5e:2x4, with I = 32,768 over 8 and J = 16,384: of the largest and the smallest 2,337 µs were priced of
    624, of logsumexp over both dims 3,604 of 1,271, of one with tiles that a vector is added to 2,786 of 1,755."""
    assert passes_of(text) == TOGETHER[text]


@pytest.mark.instant
@pytest.mark.parametrize("text", CASES)
def test_a_function_goes_through_its_operand_as_often_as_it_is_compiled(text):
    """As `tests/cost/test_alone.py` sees it compiled."""
    assert passes_of(text) == [CASES[text]]


def test_in_another_order_of_products_it_is_the_same_call():
    one, other = (
        shardc.parse(f"P = softmax_I({made}); C[L] = P · V[I, L]", mesh="X=2")
        for made in ("(A[I, J] · B[J, K]) · D[K]", "A[I, J] · (B[J, K] · D[K])")
    )
    call = other.statements[0].expr
    assert call != one.statements[0].expr and account_of(one).passes(call) == account_of(other).passes(call)
