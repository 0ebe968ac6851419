"""Programs planned whole, beside the same in turn and beside every choice of what they leave free.

    python tests/benchmark/bench_programs.py             # the table, by time
    python tests/benchmark/bench_programs.py --objective bytes
    python tests/benchmark/bench_programs.py --within 0.95    # of the memory that the plan takes

With `--within` what is planned under that limit costs over what the plan costs, what it holds over what the plan holds,
or the smallest that a refusal names, and the seconds that planning both takes. Otherwise the columns are: what planning
in turn costs over what the plan costs; what the cheapest choice of shardings for the free intermediates costs over that
(each choice planned statement by statement; a dash where there are too many to go through); and the seconds that
planning takes, in turn and whole.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from itertools import product

from tabulate import tabulate

import shardc
from shardc.cost import CHIPS, LinkModel
from shardc.errors import ShardcError
from shardc.ir.expressions import Pattern
from shardc.ir.program import For, Program
from shardc.planner import Objective, PlannedProgram, plan_program, plan_with_subaxes, planned_at_once
from shardc.planner.whole.arrays import is_free
from shardc.testing.oracles import all_shardings

MOST_CHOICES = 1000
ONE, TWO, THREE = {"X": 4}, {"X": 4, "Y": 4}, {"X": 4, "Y": 4, "Z": 4}
FOUR = {"W": 2, "X": 2, "Y": 4, "Z": 4}


@dataclass(frozen=True)
class Case:
    name: str
    text: str
    mesh: dict[str, int]
    dims: dict[str, int]
    backward: bool = False  # whether it is planned with its gradients


LAYER = """
Q = x[B_X, T, D] · Wq[D, N_Y, H]
K = x[B_X, S, D] · Wk[D, N_Y, H]
V = x[B_X, S, D] · Wv[D, N_Y, H]
S1[B_?, N_?, T_?, S_?] = Q · K
A = softmax_S(S1)
O[B_?, T_?, N_?, H_?] = A · V
Z[B_?, T_?, D_?] = O · Wo[N_Y, H, D]
R = x + Z
G = R · Wg[D, F_Y]
U = R · Wu[D, F_Y]
G2 = silu(G)
M = G2 ⊙ U
L = M · Wd[F_Y, D]
Out[B_X, T, D] = R + L
"""
LAYER_DIMS = {"B": 32, "T": 2048, "S": 2048, "D": 4096, "N": 32, "H": 128, "F": 16384}
OVER_FOUR = LAYER.replace("B_X", "B_{W,X}").replace("[D, ", "[D_X, ").replace("T, D]", "T_Z, D]")
MLP = "Tmp = In[B_X, D] · W1[D_X, F_Y]; H = relu(Tmp); Out[B_X, D] = H ·_F W2[F_Y, D_X]"
MLP_DIMS = {"B": 4096, "D": 4096, "F": 16384}
MICRO = "; ".join(f"G{n} = X{n}[B_X, D] · Y{n}[B_X, F]" for n in range(4))

CASES = (
    Case(
        "one gather for Q, K, V",
        "Q[B, H_X] = x[B_X, D] · Wq[D, H_X]; K[B, H_X] = x · Wk[D, H_X]; V[B, H_X] = x · Wv[D, H_X]",
        ONE,
        {"B": 4096, "D": 1024, "H": 1024},
    ),
    Case(
        "partial sums, added before they are reduced",
        "T = A[I, J_X] · B[J_X, K]; V = C[I, J_X] · D[J_X, K]; S[I_X, K] = T + V",
        ONE,
        {"I": 4096, "J": 4096, "K": 4096},
    ),
    Case(
        "four micro-batches, one reduction",
        f"{MICRO}; H0 = G0 + G1; H1 = H0 + G2; dW[D_X, F] = H1 + G3",
        ONE,
        {"B": 4096, "D": 1024, "F": 4096},
    ),
    Case(
        "two consumers",
        "T = A[I, J_X] · B[J_X, K]; S[I_X, L] = T · C[K, L]; R[I, M_X] = T · D[K, M_X]",
        ONE,
        {"I": 4096, "J": 4096, "K": 4096, "L": 4096, "M": 4096},
    ),
    Case(
        "a product then a product",
        "T = A[I, J_X] · B[J_X, K]; S[I, L_X] = T · C[K_X, L]",
        ONE,
        {"I": 2048, "J": 8192, "K": 4096, "L": 4096},
    ),
    Case(
        "the same in another order",
        "T = A[I_X, J] · B[J, K_X]; S[I_X, L] = T · C[K, L_X]",
        ONE,
        {"I": 8192, "J": 64, "K": 8192, "L": 64},
    ),
    Case(
        "an MLP, nothing said of the mesh's other axis",
        "Tmp = In[B_X, D] · W1[D, F]; H = relu(Tmp); Out[B_X, D] = H · W2[F, D]",
        TWO,
        {"B": 4096, "D": 4096, "F": 16384},
    ),
    Case(
        "all holes",
        "A[B_?, D_?] · B[D_?, F_?] → C[B_?, F_?]",
        THREE,
        {"B": 4096, "D": 4096, "F": 4096},
    ),
    Case(
        "micro-batches in a loop, added to a whole array",
        "G = neg(G0[D, F])\nfor L { G = G + X[L, B_X, D] · Y[L, B_X, F] }\ndW[D_X, F] = G ⊙ 0.25",
        ONE,
        {"L": 4, "B": 4096, "D": 1024, "F": 4096},
    ),
    Case(
        "layers in a loop",
        "for L { x = x[B_X, D] + relu(x · W[L, D_X, F]) ·_F V[L, F, D_X] }\nOut[B_X, D] = x",
        ONE,
        {"L": 32, "B": 4096, "D": 1024, "F": 4096},
    ),
    Case("an MLP forward and backward, two axes", MLP, TWO, MLP_DIMS, backward=True),
    Case("a layer of 14 statements, two axes", LAYER, TWO, LAYER_DIMS),
    Case("the same, three axes, one idle", LAYER, THREE, LAYER_DIMS),
    Case("the same, forward and backward", LAYER, THREE, LAYER_DIMS, backward=True),
    Case("a layer of 14 statements, four axes", OVER_FOUR, FOUR, LAYER_DIMS),
    Case("the same, forward and backward", OVER_FOUR, FOUR, LAYER_DIMS, backward=True),
)


def choices(program: Program) -> list[Program]:
    """The program with every choice of shardings for what it binds and leaves free; none where there are too many."""
    if any(isinstance(each, For) for each in program.statements):
        return []
    free = [n for n, made in enumerate(program.statements) if n not in program.outputs and is_free(made.pattern)]
    options = [list(all_shardings(program.mesh, len(program.statements[n].dims))) for n in free]
    count = 1
    for option in options:
        count *= len(option)
    if not free or count > MOST_CHOICES:
        return []
    found = []
    for chosen in product(*options):
        statements = list(program.statements)
        for number, lies in zip(free, chosen, strict=True):
            statements[number] = replace(statements[number], pattern=Pattern.exactly(lies))
        found.append(replace(program, statements=tuple(statements)))
    return found


def best_of_all(program: Program, model: LinkModel, objective: Objective) -> int | None:
    prices = []
    for each in choices(program):
        try:
            prices.append(planned_at_once(each, model, objective).price(objective))
        except ShardcError:
            continue
    return objective.first(min(prices)) if prices else None


def ratio(one: int | None, other: int) -> str:
    return "–" if one is None else f"{one / other:.3f}" if other else "nothing to pay" if not one else "∞"


def program_of(case: Case) -> Program:
    dims = {dim: size for dim, size in case.dims.items() if dim in case.text}
    program = shardc.parse(case.text.strip(), mesh=case.mesh, dims=dims, dtype="bf16")
    return shardc.grad(program, whole=True) if case.backward else program


def within(case: Case, objective: Objective, part: float) -> list[str]:
    """Planned without a limit, and within such a part of what that takes."""
    program = program_of(case)
    model = LinkModel.of(program.mesh, CHIPS["v5p"])
    start = time.perf_counter()
    free = plan_with_subaxes(program, model, objective)
    middle = time.perf_counter()
    try:
        found = plan_with_subaxes(program, model, objective, int(part * free.cost.peak_bytes))
    except ShardcError as error:
        cost, held = "refused", int(error.help.split()[1].rstrip(","))
    else:
        cost, held = ratio(found.measure(objective), free.measure(objective)), found.cost.peak_bytes
    seconds = (f"{each:.2f}" for each in (middle - start, time.perf_counter() - middle))
    return [case.name, cost, f"{held / free.cost.peak_bytes:.3f}", *seconds]


def row(case: Case, objective: Objective) -> list[str]:
    program = program_of(case)
    model = LinkModel.of(program.mesh, CHIPS["v5p"])
    start = time.perf_counter()
    in_turn = planned_at_once(program, model, objective)
    middle = time.perf_counter()
    whole = plan_program(program, model, objective)
    end = time.perf_counter()

    def measure(planned: PlannedProgram) -> int:
        return objective.first(planned.price(objective))

    best = best_of_all(program, model, objective)
    return [
        case.name,
        ratio(measure(in_turn), measure(whole)),
        ratio(best, measure(whole)),
        f"{middle - start:.2f}",
        f"{end - middle:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objective", choices=[each.value for each in Objective], default="time")
    parser.add_argument("--within", type=float)
    asked = parser.parse_args()
    objective = Objective(asked.objective)
    if asked.within is not None:
        rows = [within(case, objective, asked.within) for case in CASES]
        print(tabulate(rows, headers=("program", "within ÷ plan", "memory ÷ plan's", "plan, s", "within, s")))
        return
    rows = [row(case, objective) for case in CASES]
    print(tabulate(rows, headers=("program", "in turn ÷ plan", "best choice ÷ plan", "in turn, s", "whole, s")))


if __name__ == "__main__":
    main()
