"""What memory programs take of a device, and training steps by kind: `tests/golden/known_memory.json`.

    python tests/benchmark/known_memory.py             # which figures differ from the table now
    python tests/benchmark/known_memory.py --write     # the same, and the table is written

Of programs of each kind, on slices whose compiler is foreseen and on chips where it is not, in blocks of which some
stay on the chip and some do not: arguments, outputs and temporaries; and of a training step what each kind takes, what
is kept, and which collectives are off the critical path. Of products beside collectives, in each way to do them as one:
memory, time, and what is sent turn by turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from asked import kept, told

import shardc
from shardc.cost.memory import allocated_of
from shardc.cost.together import beside, blocking_s, group_s, has_its_links, turns_of
from shardc.lowering.together import candidates, spelled

TABLE = Path(__file__).parents[1] / "golden" / "known_memory.json"
PLACES: tuple[dict[str, Any], ...] = (
    {"mesh": "X=2,Y=4", "topology": "v5e:2x4"},
    {"mesh": "X=2,Y=4", "chip": "v5p"},
    {"mesh": "X=4,Y=2", "topology": "v5p:2x2x2", "overlap": "on"},
    {"mesh": "X=4,Y=2", "topology": "v6e:4x2", "overlap": "off"},
)
SIZES = (
    {"B": 8, "T": 16, "S": 16, "D": 32, "F": 128, "H": 8, "E": 4, "L": 3, "M": 2},
    {"B": 4096, "T": 64, "S": 64, "D": 2048, "F": 4096, "H": 16, "E": 128, "L": 4, "M": 3},
)
GPT = (
    "n[B_X, T, D] = x[B_X, T, D] ⊙ g[D]; q = n · Wq[D, H_Y, E]; k = n[B, S, D] · Wk[D, H_Y, E]; "
    "v = n[B, S, D] · Wv[D, H_Y, E]; o = softmax_S(q ·_E k) ·_S v; y = x + o ·_{H,E} Wo[H_Y, E, D]"
)
MLP = "h[B_X, F_Y] = relu(x[B_X, D] ·_D W[D, F_Y]); y[B_X, D] = h ·_F V[F_Y, D]"
BACKWARD = "dh[B_X, F_Y] = where(h > 0, dy[B_X, D] ·_D V, 0); gW[D, F_Y] = x ·_B dh; gV[F_Y, D] = h ·_B dy"
MICRO = (
    "for M { Out[M, B_X, F] = In[M, B_X, D] ·_D W[D, F]; "
    "g[D, F]{U_X} = g[D, F]{U_X} + In ·_B dOut[M, B_X, F] }; g[D_X, F] = g; "
    "m_new = 0.9 ⊙ m: f32[D_X, F] + 0.1 ⊙ f32(g); p_new = p: f32[D_X, F] - 0.001 ⊙ m_new; W_new[D, F] = bf16(p_new); "
    "return Out, W_new, m_new, p_new"
)
OF_GRADIENTS = (  # the programs of which the backward program is added
    MLP,
    GPT,
    "for L { t[B_X, F_Y] = x[B_X, D] ·_D Win[L, D_X, F_Y]; x[B_X, D] = x + gelu(t) ·_F Wout[L, F_Y, D_X] }",
    "h[B_X, F] = square(relu(x[B_X, D] ·_D W[D, F]) + c[B_X, F]); y[B_X, D] = h ·_F V[F, D]",
)
AS_THEY_ARE = (
    f"{MLP}; {BACKWARD}; W_new[D, F_Y] = W - 0.1 ⊙ gW; V_new[F_Y, D] = V - 0.1 ⊙ gV; return y, W_new, V_new",
    f"{MLP}; {BACKWARD}; m_new = 0.9 ⊙ m[D, F_Y] + gW; W_new[D, F_Y] = W - 0.1 ⊙ m_new; return y, m_new, W_new",
    f"{MLP}; {BACKWARD}; S_new = S[D, F_Y] + gW; return y, S_new, gV",
    f"{MLP}; {BACKWARD}; return y, gW",
    MICRO,
    "H[B_X, F_Y] = In[B_X, D_Y] · W[D_X, F_Y]; Out[B_X, D_Y] = gelu(H) · V[F_Y, D_X]",
    "A[B_X, D] → A[B, D]; R[B, D_X] = A[B, D]; Q[B_XY, D] = R",
    "C[B, F]{U_Y} = A[B, D_Y] · W[D_Y, F]; G[B_Y, F] = C; P[F_X, B] = G",
    "C[B, F] = A[B_X, D_Y] · W[D_Y, F_X]; Z[B, D] = softmax_D(A[B_X, D_Y])",
    "A[B_X, D_Y] → A[B_Y, D_X]; V[D_X, F] → V[D, F_Y]; C[B, F] = A[B_Y, D_X] · V[D, F_Y]",
    "for L { x[B_X, D] = relu(x[B_X, D] · W[L, D, F_Y]) ·_F V[L, F_Y, D]; S[L, B_X] = max_D(x) }; return x, S",
    "P[B_X, F_Y] = relu(A[B_X, D] · W[D, F_Y]); C[B_X, D] = P · V[F_Y, D] + A; return P, C",
    "C[F_Y, B_X] = relu(A[B_X, D] · W[D, F_Y])",
    "Q[B_X, F_Y] = A[B_X, D] · W[D, F_Y]; R[B_X, F] = Q; U[B_X, F_Y] = tanh(Q) ⊙ Q; return R, U",
    "Q[B, F_X] = A[B, D] · W[D, F_X]; R[B_X, F] = 2 ⊙ relu(Q)",
    "R[B_X, D] = softmax_D(A[B_X, D_Y] + Z[B_X, D_Y]); U[B] = sum_D(R)",
    "Q[B_X, D] = A[B_X, D] + Z[B_X, D]; R[D, B_X] = Q ⊙ Q; return Q, R",
    "Q[B_X, F] = f32(A[B_X, D_Y] · W[D_Y, F]); R[B_X, F] = bf16(Q ⊙ Q)",
    "Q[B_X, D_Y] = A[B_XY, D]; R[B_X, F] = relu(Q) · V[D_Y, F]; U[B_X, F_Y] = R",
    "for L { x[B_X, D] = x[B_X, D] + A[L, B_X, D]; S[L, B_X, D] = tanh(x) }; return x, S",
    "for L { Q[B_X, F] = x[B_X, D] · W[L, D_X, F]; x[B_X, D] = relu(Q · V[F, D_Y]) }; R[B, D] = x",
    "Q[B_X, D] = where(A[B_X, D] > 0, A, 0.5 ⊙ A); R[B, D_X] = Q; return Q, R",
    "Q[B_X] = max_D(A[B_X, D_Y]); R[B_X, D_Y] = exp(A - Q); U[B_X, D_Y] = R / sum_D(R)",
    "Q[B_Y, F] = A[B_X, D] · W[D_X, F]; R[B_Y, F] = A[B_Y, D] · W[D_X, F] + Q",
    "Q[B_X, D] = A[B_X, F_Y] · V[F_Y, D]; R[D, B] = tanh(Q); U[B_X, F] = Q · W[D, F_Y]; return R, U",
    "N[B_X, D] = A[B_X, D] ⊙ rsqrt(mean_D(A ⊙ A) + 1e-6); L2[B_X] = logsumexp_D(N); U[B, F] = N · W[D_X, F_Y]",
)


def cases() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Texts, what is asked of their plans, and whether a backward program is added."""
    every = [(text, True) for text in OF_GRADIENTS] + [(text, False) for text in AS_THEY_ARE]
    for number, ((text, backward), (place, where)) in enumerate(product(every, enumerate(PLACES))):
        if place == 0 or not (backward and ("softmax" in text or "for" in text)):  # those take long
            yield text, where | {"dims": SIZES[(number + place // 2) % 2]}, backward


def said(text: str, options: dict[str, Any], backward: bool) -> list[str]:
    given = {name: value for name, value in options.items() if name != "overlap"}
    try:
        program = shardc.parse(text, **given)
        program = shardc.grad(program, whole=True) if backward else program
        plan = shardc.plan(program, **{name: value for name, value in options.items() if name == "overlap"})
    except shardc.ShardcError as error:
        return [f"{error.code} {error.message}"]
    steps = [step for step in plan.steps if step.off_critical_path]
    off = [f"{step.op} {step.result} is off the critical path" for step in steps]
    return [f"{plan.cost.peak_bytes} B at the peak; {allocated_of(plan.schedule)}", *off, *by_kind(plan)]


PRODUCTS = (
    "A[B_X, D_Y] · W[D_X, F_Y] → C[B_X, F_Y]",
    "A[B, D_X] · W[D_X, F] → C[B_X, F]",
    "A[B_Y, D_X] · W[D_X, F] → C[B_Y, F]",
    "A[B_X, D] · W[D, F_X] → C[B, F_X]",
    "A[B_X, D] · W[D, F_Y] → C[B, F_Y]",
    "A[B_XY, D] · W[D, F_XY] → C[B, F_XY]",
    "A[B, D_YX] · W[D, F_XY] → C[B, F_XY]",
    "A[D_Y, B_X] · W[F_Y, D_X] → C[F_Y, B_X]",
    "A[B, D_XY] · W[D_XY, F] → C[B, F]",
)


def as_one() -> Iterator[tuple[str, dict[str, Any]]]:
    for number, (text, where) in enumerate(product(PRODUCTS, PLACES)):
        sizes = {dim: 1024 * (2 + number % 3) for dim in "BDF"}
        asked = {"dims": sizes, "overlap": "off", "idle": "keep", "dtype": ("bf16", "f32", "int32")[number % 3]}
        yield text, where | asked


def ways(text: str, options: dict[str, Any]) -> list[str]:
    """Of each way to do a product and what is beside it as one: seconds, memory, and what is sent in each turn."""
    plan = shardc.plan(text, **options)
    model = plan._asked.model.on(plan.schedule.by)
    found = []
    for ordered, group in candidates(plan.schedule):
        schedule = replace(ordered, together=(group,))
        turns = [turns_of(schedule, group, place, model) for place in group.places]
        sent = [f"{turn.name}, {turn.times} times: {turn.blocks}" for each in turns for turn in each]
        seconds = ", ".join(f"{each:.6g}" for each in beside(schedule, group, model))
        said = f"{seconds}; {group_s(schedule, group, model):.6g} s of {blocking_s(schedule.steps):.6g} s"
        links = [has_its_links(step.op.axes, model) for step in schedule.steps if step.is_collective]
        found.append(f"{spelled(ordered, group)}: {said}; {allocated_of(schedule)}; {_hash(sent)} {links}")
    return found


def _hash(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()[:12]


def by_kind(plan: shardc.Plan) -> list[str]:
    """The memory of a training step by kind."""
    memory = plan.memory
    if memory is None:
        return []
    held = [f"{h.kind.value}: {h.given}, {h.left}, {h.peak} B; {h.formula}; {h.parameter}" for h in memory.held]
    kept = [f"{k.array} = {k.made}: {k.bytes} of {k.whole} B, {k.rows} rows; {k.formula}" for k in memory.kept]
    return [*held, *kept, f"{memory.parameters} parameters; {memory.layers}"]


def key(text: str, options: dict[str, Any], backward: bool) -> str:
    return f"{'backward of ' if backward else ''}{text} {options}"


def now() -> dict[str, list[str]]:
    as_they_are = {key(*case): said(*case) for case in cases()}
    return as_they_are | {key(*case, False): ways(*case) for case in as_one()}


def known() -> dict[str, list[str]]:
    return kept(TABLE)


def main() -> None:
    told(__doc__, TABLE, now)


if __name__ == "__main__":
    main()
