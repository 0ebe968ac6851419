"""Whether a statement is refused depends on what it says, and on nothing that follows."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import spell
from shardc.testing import shardings

MESH = {"X": 2, "Y": 2}
MAKES = (  # by one move or operation
    "A{0}", "relu(A{0})", "2 ⊙ A{0}", "A{0} + E{1}", "A{0} ⊙ E{1}", "A{0} ·_J F[J_X, K]", "A{0} ·_J F[J, K]",
    "sum_K(G[I, J, K_Y])", "sum_K(G[I, J, K]{{U_Y}})", "mean_K(G[I, J, K_X])", "max_K(G[I, J, K_X])",
)  # fmt: skip
FOLLOWS = (
    "{0}; C = relu(B); return C",
    "{0}; C = logsumexp_I(B); return C",
    "{0}; C = 2 ⊙ B; return C",
    "{0}; C = relu(B) ⊙ exp(D[I_X]); return C",
    "S = exp(D[I]); for N {{ {0}; S = S + relu(B ·_{1} F2[{1}]) }}; return S",
)


def lies():
    return shardings(Mesh.of(MESH), 2)


def refusal(text, dims):
    try:
        shardc.plan(text, mesh=MESH, dims=dims, chip="v5e")
    except ShardcError as error:
        return error.code
    return None


@pytest.mark.instant
@settings(max_examples=60)
@example(MAKES[0], "[I, J]{U_X}", "[I, J]", "[I, J]{U_Y}", FOLLOWS[0])
@given(st.sampled_from(MAKES), *[lies().map(lambda found: spell(("I", "J"), found))] * 3, st.sampled_from(FOLLOWS))
def test_what_follows_has_a_statement_neither_refused_nor_accepted(made, one, other, left, follows):
    """`B[I, J]{U_Y} = A[I, J]{U_X}` was refused alone, and before some statements accepted, and passed over."""
    last = "K" if "F[" in made else "J"
    statement = f"B{left.replace('J', last)} = {made.format(one, other)}"
    text, dims = follows.format(statement, last), {"I": 16, "J": 16, "K": 16, "N": 3}
    assert refusal(text, dims) == refusal(statement, dims), text
