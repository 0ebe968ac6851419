"""Functions through one array, compiled: `python tests/benchmark/bench_functions.py --programs 60 --seed 1`.

One array, given or a product's or made of either by elements, is gone through by one to three functions over its rows
or columns, or by elements. What the compiler does in one loop is priced once (`lowering/loops.py`); printed is each
program that is replayed at another time than a share of its price, and how many are.
"""

from __future__ import annotations

import argparse
import random

import shardc

SIZES, MESH = {"B": 32768, "C": 16384, "D": 1024}, {"X": 8}
SLICES = ("v5e:2x4", "v5p:2x2x2")
PRODUCT = "a[B_X, D] · b[C, D]"
GIVEN = "s[B_X, C]"
MADE = (  # of which the functions are
    None,  # an input
    "s: f32[B_X, C] = f32(A[B_X, C])",
    "s[B_X, C] = relu(A[B_X, C])",
    f"s[B_X, C] = {PRODUCT}",
    f"s: f32[B_X, C] = f32({PRODUCT})",
    f"s[B_X, C] = {PRODUCT} + v[C]",
    f"s[B_X, C] = relu({PRODUCT})",
)
FUNCTIONS = {  # with the dims of what they leave
    "max_C({})": "B_X",
    "min_C({})": "B_X",
    "max_C({} + 1)": "B_X",
    "sum_C({})": "B_X",
    "logsumexp_C({})": "B_X",
    "max_B({})": "C",
    "logsumexp_B({})": "C",
    "softmax_C({})": "B_X, C",
    "relu({})": "B_X, C",
}


def drawn(rng: random.Random) -> str:
    """A program that returns what each function leaves."""
    made, chosen = rng.choice(MADE), rng.sample([*FUNCTIONS], rng.randint(1, 3))
    statements = [] if made is None else [made]
    for number, function in enumerate(chosen):
        use = GIVEN if made is None and not number else "s"
        statements.append(f"z{number}[{FUNCTIONS[function]}] = {function.format(use)}")
    return "; ".join([*statements, "return " + ", ".join(f"z{number}" for number in range(len(chosen)))])


def main() -> None:
    described, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=described, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=0.12, help="share of the price that is near enough")
    asked = parser.parse_args()
    rng, off = random.Random(asked.seed), 0
    for _ in range(asked.programs):
        text, topology = drawn(rng), rng.choice(SLICES)
        plan = shardc.plan(text, mesh=MESH, dims=SIZES, topology=topology, dtype="bf16")
        replayed = plan.verify().replayed.step_s
        ratio = replayed / plan.cost.time_s
        if abs(ratio - 1) > asked.within:
            off += 1
            print(
                f"{ratio:.2f}  {plan.cost.time_s * 1e6:.0f} → {replayed * 1e6:.0f} µs  {topology}  {text}", flush=True
            )
    print(f"{off} of {asked.programs} are replayed more than {asked.within:.0%} off their price")


if __name__ == "__main__":
    main()
