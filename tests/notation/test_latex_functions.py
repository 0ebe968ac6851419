"""LaTeX for what functions and numbers are spelled with: the same trees as the plain spellings."""

import pytest

from shardc.notation import parse_tree


@pytest.mark.instant
@pytest.mark.parametrize(
    ("latex", "plain"),
    [
        (r"\frac{S[I, J]}{\sqrt{|J|}} \rightarrow C[I, J]", "S[I, J] / sqrt(|J|) → C[I, J]"),
        (r"2 \cdot \frac{A[I] + 1}{3} - 1 \to C[I]", "2 · ((A[I] + 1) / 3) - 1 → C[I]"),
        (r"\max_{J}(\exp(A[I, J])) \to C[I]", "max_J(exp(A[I, J])) → C[I]"),
        (r"\text{softmax}_{J}(A[I, J]) / \lvert I\rvert \to C[I, J]", "softmax_J(A[I, J]) / |I| → C[I, J]"),
        (r"\text{where}(A[I] \geq 0, A, -\infty) \to C[I]", "where(A[I] >= 0, A, -inf) → C[I]"),
        (r"A[I] \odot \tanh(A) \to C[I]", "A[I] ⊙ tanh(A) → C[I]"),
        ("where(A[I] ≤ 0, A, ∞) → C[I]", "where(A[I] <= 0, A, inf) → C[I]"),
    ],
)
def test_latex(latex: str, plain: str) -> None:
    assert parse_tree(latex) == parse_tree(plain)
