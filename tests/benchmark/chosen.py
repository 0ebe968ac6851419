"""Which programs the table of best known plans is of: drawn ones, of which those are taken that come to the most blocks
of the code in the least time, so that to each block there come several.
"""

from __future__ import annotations

import builtins
import importlib
import math
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import mutate
import seen
from best_known import Entry, found
from cache_keys import one_apart
from four_ways import drawn as by_strategy
from mutants import compiled, functions, pairs, parsed, put
from same_plans import MESHES as PLAIN
from same_plans import golden
from same_plans import programs as random_programs

import shardc
from shardc.ir.dtypes import DTYPES
from shardc.testing import backward_programs, loops, matmuls, partial_programs, programs, reshards

MESHES = (
    ("X=2,Y=3,Z=4", "v5p"),
    ("X=4,Y=4,Z=4", "v5p"),
    ("X=4,Y=6", "v5e"),
    ("X=8,Y=4", "v5e"),
    ("X=2,Y=4", "v5e:2x4"),
    ("X=2,Y=2,Z=2", "v5p:2x2x2"),
    ("X=4,Y=2", "v5e:4x2"),
    ("X=4,Y=4,Z=4", "v5p:4x4x4"),
    ("X=2,Y=2,Z=2,W=2", "v4"),
    ("X=8", "v6e"),
    ("U=2,V=2,W=2,X=2,Y=2,Z=2", "v5p"),
    ("X=2,Y=6", "H100"),
    ("X=16,Y=2", "v3"),
    ("X=4,Y=4", "v5e:4x4"),
    ("X=1,Y=4", "v5e"),
)
ASKED: tuple[dict[str, Any], ...] = (
    *({},) * 5,
    {"overlap": "off"},
    {"overlap": "on"},
    {"overlap": "on"},
    {"idle": "keep"},
    {"idle": "keep", "overlap": "off"},
    {"formula": "book"},
    {"profile": "spec"},
    {"wraparound": "Y=line"},
    {"wraparound": "X=one-way"},
    {"dcn": "Y=2"},
    {"share": 0.6},
    {"share": 0.85},
    {"share": 0.97},
    {"front": 4},
    *({"dear": dear} for dear in (10, 30, 100, 300, 1000, 10000)),
)
FEATURES = (  # of the notation, each where the forms and the text that is written differ
    "W[D_X, F] · V[F, E] → U[D, E_Y]; W[D, F] = AllGather(W[D_X, F]); Z[D, E] = AllGather(W[D_X, F]) · V",
    "B[I, J] = AllGather_X(A[I_X, J]); C[I, J] = AllGather_X(A[I_X, J]); return B, C",
    "S[T, I_X] = where(index_T >= index_I, A[T, I_X], -inf); P[T, I_X] = softmax_I(S)",
    "S[T_X, I] = where(A[T_X, I] < 1e-30, 1e38, inf) - maximum(A[T_X, I], -2.5)",
    "R[I_X, J] = f32(A[I_X, J_Y]) ⊙ B[I, J]; Q[I] = mean_J(R) / sqrt(|J|)",
    "N[I_X, J] = A[I_X, J] ⊙ rsqrt(mean_J(A ⊙ A) + 1e-6); L[I_X] = logsumexp_J(N)",
    "M[I, J_X] = min_K(A[I, J_X, K_Y]); O[I] = max_J(M)",
    "x[B_X, D] = In[B_X, D] ·_D Win[D, F_Y] ·_F Wout[F_Y, D]",
    "Q[B_X, T, H_Y, E] · K[B_X, S, H_Y, E] → A[B_X, H_Y, T, S]; P[B_X, H_Y, T, S] = softmax_S(A)",
    "for L { x[B_X, D] = x[B_X, D] + relu(x · W[L, D, F_Y]) ·_F V[L, F_Y, D]; S[L, B_X] = sum_D(x) }; return x, S",
    "for L { for K { x[I_X, J] = tanh(x[I_X, J] + b[L, K, J]) } }; return x",
    "C[I, K]{U_X} = A[I, J_X] · B[J_X, K]; D[I, K]{U_X} = C + E[I, K]{U_X}; F[I_X, K] = D",
    "A[I_XY, J] → A[I_YX, J]",
    "B[I_?, J_?] = relu(A[I_X, J]); C[I, K_X] = B · W[J, K_X]; D[J, K] = B · E[I, K]",
    "W'[I_X, J] ·_LOCAL V[J, K] → U[I_X, K]",
    "T[I, K] = A[I, J] · B[J_X, K]; return T, A",
    "y[I_X, K] = (A[I, J_X] ·_J B[J_X, K]) + relu(A[I, J_X] ·_J B[J_X, K])",
)
PLACES: tuple[dict[str, Any], ...] = (
    {"mesh": "X=4,Y=2", "chip": "v5p"},
    {"mesh": "X=2,Y=4", "topology": "v5e:2x4", "overlap": "on"},
    {"mesh": "X=2,Y=2,Z=2", "topology": "v5p:2x2x2", "objective": "bytes", "dtype": "f32"},
)
OTHER_NAMES = {"A": "C_1", "B": "T_1", "T": "D_1", "C": "A_1"}  # as the planner calls what it makes


def drawn(count: int, seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, text and options of so many programs, and of what other tests plan."""
    choice = random.Random(f"best known {seed}")
    for text, options in random_programs(count // 4, seed, PLAIN + MESHES):
        yield "drawn", renamed(text) if choice.random() < 0.15 else text, options | choice.choice(ASKED)
        yield "slip", slip(choice, text), options
    for name, case in _by_strategies(count * 3 // 4, seed):
        times = choice.choice((1, 1, 16, 256))
        options = {"mesh": str(case.mesh), "dims": {dim: size * times for dim, size in case.dims.items()}}
        options |= {
            "dtype": choice.choice((*("bf16", "f32") * 15, *DTYPES)),
            "objective": choice.choice(("bytes", "time")),
        }
        yield name, case.text, options | choice.choice(({"chip": "v5e"}, {"chip": "v5p"}, {})) | choice.choice(ASKED)
    for text, options in product(FEATURES, PLACES):
        yield "feature", text, options | {"dims": dict.fromkeys("IJKTBDFHESE", 256) | {"L": 4, "K": 128}}
    for text, options in golden():
        yield "written", text, options
        yield "written", text, options | {"objective": "bytes"}
    for text, options, share in one_apart():
        yield "one apart", text, options | ({"share": share} if share else {})


def renamed(text: str) -> str:
    return re.sub(r"\b[ABTC]\b(?!\w)", lambda found: OTHER_NAMES[found[0]], text)


def slip(choice: random.Random, text: str) -> str:
    """With one character in the place of another, or none, as somebody may write it."""
    place = choice.randrange(len(text))
    return text[:place] + choice.choice(("", *text, *"XYZ[]{}_,·U?")) + text[place + 1 :]


def _by_strategies(count: int, seed: int) -> Iterator[tuple[str, Any]]:
    strategies = {"reshard": reshards(max_rank=4), "product": matmuls(), "program": programs(), "loop": loops()}
    strategies |= {"partial": partial_programs(), "backward": backward_programs()}
    for name, strategy in strategies.items():
        yield from ((name, case) for case in by_strategy(strategy, count // len(strategies), seed))


def with_limit(text: str, options: dict[str, Any]) -> dict[str, Any]:
    """A share of a plan's own peak as its limit, in bytes."""
    share = options.pop("share", None)
    if share is not None:
        try:
            with _at_most(MOST[True]):
                options["memory"] = int(share * shardc.plan(text, **options).cost.peak_bytes)
        except (shardc.ShardcError, TimeoutError):
            pass
    return options


MOST = {False: 0.2, True: 0.8}  # seconds of a case of a plain run, and of an exhaustive one
TOGETHER = {False: 11.0, True: 40.0}
ENOUGH = {False: 8, True: 25}  # cases that come to each block


def chosen(count: int, seed: int, known: Sequence[Entry]) -> list[Entry]:
    """Of those drawn the ones that come to the most blocks in the least time, so that to each there come several."""
    cases, blocks, seconds = list[Entry](), list[set[str]](), list[float]()
    every = [(kind, text, with_limit(text, dict(options))) for kind, text, options in drawn(count, seed)]
    every += [(case["name"].rpartition("-")[0], case["text"], case["options"]) for case in known]
    reached = _noting()
    for kind, text, options in every:
        reached.clear()
        start = time.process_time()
        try:
            with _at_most(3 * MOST[True]):
                found(text, options)
        except TimeoutError:
            continue
        seconds.append(time.process_time() - start)
        cases.append({"name": kind, "text": text, "options": options})
        blocks.append(set(reached))
    picked: dict[int, bool] = {}
    come = Counter[str]()
    for is_long in (False, True):
        for place in _picked(blocks, seconds, come, is_long, picked):
            picked[place] = is_long
    print(f"{len(picked)} of {len(cases)} cases, to {sum(v >= 3 for v in come.values())} of {len(come)} blocks three")
    number = Counter[str]()
    made = list[Entry]()
    for place, is_long in sorted(picked.items()):
        case = cases[place]
        number[case["name"]] += 1
        made.append(case | {"name": f"{case['name'].replace(' ', '-')}-{number[case['name']]}", "exhaustive": is_long})
    return made


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TimeoutError after so much processor time."""

    def end(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _picked(
    blocks: list[set[str]], seconds: list[float], come: Counter[str], is_long: bool, taken: dict[int, bool]
) -> Iterator[int]:
    left, enough = TOGETHER[is_long], ENOUGH[is_long]
    open_ = {place for place in range(len(blocks)) if seconds[place] < MOST[is_long] and place not in taken}

    def worth(place: int) -> float:
        return sum(1 / (1 + come[block]) for block in blocks[place] if come[block] < enough) / (seconds[place] + 0.01)

    values = {place: math.inf for place in open_}
    while open_:
        ranked = sorted(open_, key=lambda place: -values[place])
        best, most = -1, 0.0
        for place in ranked:  # what a case is worth only falls
            if values[place] <= most:
                break
            values[place] = worth(place)
            if values[place] > most:
                best, most = place, values[place]
        if best < 0 or left < seconds[best]:
            return
        open_.remove(best)
        left -= seconds[best]
        come.update(blocks[best])
        yield best


def _noting() -> set[str]:
    """The blocks of all rooms that are tried by mutation, as they are entered."""
    reached: set[str] = set()
    builtins.REACHED = reached  # type: ignore[attr-defined]
    for path in (path for room in mutate.TESTS for path in mutate.modules(room, [])):
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    every = functions()
    for path in (path for room in mutate.TESTS for path in mutate.modules(room, [])):
        noting = put(dict(pairs(compiled(parsed(path), path), compiled(seen.noting(path), path))), path, every)
        assert noting or not seen.blocks(path), f"{path}: its functions are not found; is PYTHONPATH set?"
    return reached
