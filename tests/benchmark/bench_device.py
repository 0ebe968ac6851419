"""What programs take on one device of this machine, beside their price and beside `jax.jit`'s own.

    python tests/benchmark/bench_device.py --platform gpu --chip H100 [--rounds 15]

All work is local, on a mesh of one device: what is held against the clock is what a device does alone. Both programs
are timed in turns. Printed are the price, the measured median, measured over priced, and `jax.jit`'s median over ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from tabulate import tabulate

import shardc

ATTENTION = """
S = Q[B, H_X, T, E] ·_E K[B, H_X, U, E] / sqrt(|E|)
O[B, H_X, T, E] = softmax_U(S) ·_U V[B, H_X, U, E]
"""
GATED = """
n[B_X, D] = x[B_X, D] ⊙ rsqrt(mean_D(square(x)) + 1e-6) ⊙ g[D]
y[B_X, D] = x + (silu(n ·_D Wg[D, F]) ⊙ (n ·_D Wu[D, F])) ·_F Wd[F, D]
"""


@dataclass(frozen=True)
class Case:
    what: str
    text: str
    dims: dict[str, int]
    dtype: str = "bf16"


def square(size: int, dtype: str = "bf16") -> Case:
    dims = {"I": size, "J": size, "K": size}
    return Case(f"product, {size}³, {dtype}", "A[I_X, J] · B[J, K] → C[I_X, K]", dims, dtype)


MATRIX = {"I": 16384, "J": 16384}
CASES = (
    square(2048),
    square(4096),
    square(8192),
    square(16384),
    square(8192, "f32"),
    Case("product, one row in 8192²", "A[I_X, J] · B[J, K] → C[I_X, K]", {"I": 1, "J": 8192, "K": 8192}),
    Case("product that contracts 64", "A[I_X, J] · B[J, K] → C[I_X, K]", {"I": 16384, "J": 64, "K": 16384}),
    Case("relu", "C[I_X, J] = relu(A[I_X, J])", MATRIX),
    Case("sum of two", "C[I_X, J] = A[I_X, J] + B[I_X, J]", MATRIX),
    Case("transposed sum", "C[I_X, J] = A[I_X, J] + B[J, I_X]", MATRIX),
    Case("softmax of rows", "C[I_X, J] = softmax_J(A[I_X, J])", MATRIX),
    Case("sum of rows", "C[I_X] = sum_J(A[I_X, J])", MATRIX),
    Case("attention", ATTENTION, {"B": 4, "H": 16, "T": 2048, "U": 2048, "E": 128}),
    Case("gated block", GATED, {"B": 8192, "D": 4096, "F": 14336}),
)


def rows(platform: str, chip: str, rounds: int) -> Iterator[tuple[str, ...]]:
    for case in CASES:
        plan = shardc.plan(case.text, mesh={"X": 1}, dims=case.dims, dtype=case.dtype, chip=chip)
        found = plan.compare(rounds, platform).measured
        assert found is not None, "no slice is named"
        priced = plan.cost.time_s
        ratio = f"{found.ours_s / priced:.2f}" if priced else "-"
        yield case.what, f"{priced * 1e6:.0f}", f"{found.ours_s * 1e6:.0f}", ratio, f"{found.ratio:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="cpu", choices=["cpu", "gpu", "tpu"])
    parser.add_argument("--chip", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    headers = ("on one device", "priced µs", "measured µs", "measured ÷ priced", "jax.jit ÷ ours")
    print(tabulate([*rows(options.platform, options.chip, options.rounds)], headers, disable_numparse=True))


if __name__ == "__main__":
    main()
