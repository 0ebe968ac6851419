"""Identities of products, sums and functions with collectives: two programs in the notation that leave the same.

Those of the chapter on sharded matrices and of the strategies of training. `shardc.testing.conditions` proves each on
every small mesh, for all devices; `when` is what it finds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """`before` and `after` are statements; "never" of a rewrite that is tempting and wrong."""

    name: str
    before: str
    after: str
    when: str = "always"

    def __str__(self) -> str:
        return self.name


IDENTITIES = (
    # The cases of a product.
    Identity(
        "case 1: a gather before a product, or after it",
        "C[I, K] = AllGather_X(A[I_X, J]) · B[J, K]",
        "T[I_X, K] = A[I_X, J] · B[J, K]; C[I, K] = AllGather_X(T[I_X, K])",
    ),
    Identity(
        "case 2: gather one operand, or slice the other and sum",
        "C[I, K] = AllGather_X(A[I, J_X]) · B[J, K]",
        "T[I, K]{U_X} = A[I, J_X] · Slice_{X,J}(B[J, K]); C[I, K] = AllReduce_X(T[I, K]{U_X})",
    ),
    Identity(
        "case 3: gather both operands, or sum",
        "C[I, K] = AllGather_X(A[I, J_X]) · AllGather_X(B[J_X, K])",
        "T[I, K]{U_X} = A[I, J_X] · B[J_X, K]; C[I, K] = AllReduce_X(T[I, K]{U_X})",
    ),
    Identity(
        "case 4: gather the one operand or the other",
        "T[I, K_X] = AllGather_X(A[I_X, J]) · B[J, K_X]; C[I, K] = AllGather_X(T[I, K_X])",
        "T[I_X, K] = A[I_X, J] · AllGather_X(B[J, K_X]); C[I, K] = AllGather_X(T[I_X, K])",
    ),
    Identity(
        "an exchange before a batched product, or after it",
        "T[B_X, I, J] = AllToAll_X(A[B, I_X, J]); C[B_X, I, K] = T[B_X, I, J] · D[B_X, J, K]",
        "T[B, I_X, K] = A[B, I_X, J] · AllGather_X(D[B_X, J, K]); C[B_X, I, K] = AllToAll_X(T[B, I_X, K])",
    ),
    # What is linear may be done to partial sums; what is not, may not.
    Identity(
        "a product of partial sums",
        "C[I, K] = AllReduce_X(A[I, J]{U_X}) · B[J, K]",
        "T[I, K]{U_X} = A[I, J]{U_X} · B[J, K]; C[I, K] = AllReduce_X(T[I, K]{U_X})",
    ),
    Identity(
        "a sum of partial sums",
        "C[I] = AllReduce_X(A[I]{U_X}) + AllReduce_X(B[I]{U_X})",
        "T[I]{U_X} = A[I]{U_X} + B[I]{U_X}; C[I] = AllReduce_X(T[I]{U_X})",
    ),
    Identity(
        "a sum over a sharded dim",
        "T[I, J] = AllGather_X(A[I, J_X]); C[I] = sum_J(T[I, J])",
        "T[I]{U_X} = sum_J(A[I, J_X]); C[I] = AllReduce_X(T[I]{U_X})",
    ),
    Identity(
        "a maximum over a sharded dim",
        "T[I, J] = AllGather_X(A[I, J_X]); C[I] = max_J(T[I, J])",
        "C[I] = max_J(A[I, J_X])",
    ),
    Identity(
        "a function before a gather, or after it",
        "T[I] = AllGather_X(A[I_X]); C[I] = square(T[I])",
        "T[I_X] = square(A[I_X]); C[I] = AllGather_X(T[I_X])",
    ),
    Identity(
        "a function before an exchange, or after it",
        "T[I, J_X] = AllToAll_X(A[I_X, J]); C[I, J_X] = relu(T)",
        "T[I_X, J] = relu(A[I_X, J]); C[I, J_X] = AllToAll_X(T[I_X, J])",
    ),
    Identity(
        "no sum twice",
        "C[I] = AllReduce_X(A[I]{U_X}) + AllReduce_X(A[I]{U_X})",
        "C[I] = AllReduce_X(A[I]{U_X})",
        when="never",
    ),
    # The strategies of training.
    Identity(
        "data parallelism: the gradient of weights",
        "dW[D, F] = AllGather_X(x[B_X, D]) · AllGather_X(dy[B_X, F])",
        "T[D, F]{U_X} = x[B_X, D] · dy[B_X, F]; dW[D, F] = AllReduce_X(T[D, F]{U_X})",
    ),
    Identity(
        "FSDP: the gradient is scattered where the weights lie",
        "T[D, F]{U_X} = x[B_X, D] · dy[B_X, F]; S[D, F] = AllReduce_X(T[D, F]{U_X}); dW[D, F_X] = Slice_X(S[D, F])",
        "T[D, F]{U_X} = x[B_X, D] · dy[B_X, F]; dW[D, F_X] = ReduceScatter_X(T[D, F]{U_X})",
    ),
    Identity(
        "FSDP: weights are gathered, or what they are multiplied with is",
        "y[B_X, F] = x[B_X, D] · AllGather_X(W[D, F_X])",
        "T[B, F_X] = AllGather_X(x[B_X, D]) · W[D, F_X]; y[B_X, F] = AllToAll_X(T[B, F_X])",
    ),
    Identity(
        "tensor parallelism: one sum of two layers",
        "T[B, F]{U_X} = h[B, D_X] · W[D_X, F]; S[B, F] = AllReduce_X(T[B, F]{U_X}); y[B, E] = S[B, F] · V[F, E]",
        "T[B, F]{U_X} = h[B, D_X] · W[D_X, F]; S[B, E]{U_X} = T · V[F, E]; y[B, E] = AllReduce_X(S[B, E]{U_X})",
    ),
    Identity(
        "sequence parallelism: a sum is scattered, and gathered behind the residual",
        "T[B, D]{U_X} = h[B, F_X] · W[F_X, D]; S[B, D] = AllReduce_X(T[B, D]{U_X}); y[B, D] = S[B, D] + x[B, D]",
        "T[B, D]{U_X} = h[B, F_X] · W[F_X, D]; S[B, D_X] = ReduceScatter_X(T[B, D]{U_X}); R[B, D_X] = S + x[B, D]; "
        "y[B, D] = AllGather_X(R[B, D_X])",
    ),
)
