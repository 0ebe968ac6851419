"""A program that is left to XLA as a whole is proved, whatever it is made of, beside its steps."""

from dataclasses import replace

import pytest

import shardc
from shardc.emit import source
from shardc.proving import prove

SIZES = {"I": 16, "J": 16, "K": 8, "L": 3}
TEXTS = [
    "C[I_X, K] = A[I_X, J] · B[J, K]",
    "T[I_X, J] = relu(A[I_X, J]); C[I, K_Y] = T · B[J, K_Y]; return C, T",
    "T[I, J_?] = relu(A[I_X, J]); C[I, K_Y] = T[I, J_Y] · B[J, K_Y]",
    "C[J_X, I] = A[I_X, J]",
    "C[J, I_X] = relu(A[I_X, J]); D[I, J] = C + A",
    "C[I] = sum_J(A[I_X, J_Y])",
    "C[J_Y] = sum_I(relu(A[I_X, J_Y]))",
    "C: f32[I, J_X] = f32(A: bf16[I_X, J])",
    "C: bf16[I_X] = bf16(sum_J(f32(A[I_X, J]) ⊙ 2))",
    "C[I, K] = AllGather_X(A[I_X, J]) · B[J, K]",
    "C[I, K_X] = AllToAll_X(relu(A[I_X, K])) ⊙ B[K]",
    "C[I, J] = (A[I, J_X] + B[J]) ⊙ D[I_Y]",
    "C[J, I_X] = softmax_J(A[I_X, J]) + index_J",
    "C[I] = max_J(A[I_X, J_Y]); D[I] = logsumexp_J(A)",
    "C[I_X, J] = where(index_I >= index_J, A[I_X, J], 0) / |J|",
    "S[I, J] = A[I_X, K] · A[J, K]",
    "for L { x = relu(x[I_X]) }; return x",
    "for L { x = relu(x[I_X]); S[L, I_X] = neg(x) }; return S, x",
    "for L { x = relu(x[I_X]); S[I_X, L] = neg(x) }; return S",
    "for -L { x = x[I_X, J] ⊙ V[I_X, L, J]; S[I_X, J, L] = x + W[J] }; return S",
    "for L { x = x[I_X, J] · W[L, J, K_Y] · V[K_Y, J] }; T = x + A[I, J]; return T",
]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_left_to_xla_means_the_program(text):
    schedule = shardc.plan(text, mesh="X=2,Y=2", dims={dim: n for dim, n in SIZES.items() if dim in text}).schedule
    for each in (schedule, replace(schedule, by_xla=True)):
        assert prove(each, source(each, "v5e")).holds, source(each, "v5e")
