"""What is said of plans and programs in which one thing is changed: `tests/golden/known_faults.json`.

    python tests/benchmark/known_faults.py             # what differs from the table now
    python tests/benchmark/known_faults.py --write     # the same, and the table is written

A field anywhere in a plan's data is changed, as a wrong pass may: a number by one, a name for another, an element left
out, repeated, or in another's place. What `ir.legal` says of it is in the table, or how it fails to be made at all.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from asked import asked

import shardc
from shardc.ir.dtypes import DTYPES, DType
from shardc.ir.legal import faults_of

TABLE = Path(__file__).parents[1] / "golden" / "known_faults.json"
CHANGES = {"schedule": 160, "program": 60}
NOTHING = "no fault"
LONGEST = 300  # characters of what is said
NEVER = (
    "program",
    "span",
    "spans",
    "text",
    "cost",
    "by",
    "by_xla",
    "is_trip",
    "warn",
    "rule",
    "of_numbers",
)  # fields that no pass writes, or nobody checks
MESH = {"mesh": "X=2,Y=2", "dims": "I=8,J=16,K=32,L=64"}
SLICE = MESH | {"topology": "v5e:2x2", "overlap": "on", "dims": "I=1024,J=1024,K=1024,L=1024"}
TEXTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("A[I_X, J] · B[J, K_Y] → C[I, K_Y]", MESH),
    ("A[I, J_X] · B[J_X, K_Y] → C[I_X, K_Y]", MESH),
    ("A[I_X, J_Y] → A[I_Y, J_X]", MESH),
    ("A[I_XY, J] → A[I, J_X]", MESH),
    ("A[I, J]{U_XY} → A[I_X, J]{U_Y}", MESH),
    ("A[I, J_X]{U_Y} → A[I_YX, J]", MESH),
    ("softmax_J(A[I_X, J_Y]) → S[I_X, J_Y]", MESH),
    ("T = relu(A[I_X, J] · B[J, K])\nC[I, L_Y] = T · D[K_Y, L]\nreturn C, T", MESH),
    ("for L { x[I_X, J] = relu(x[I_X, J] · W[L, J, K_Y] ·_K V[K, J]); S[L, I_X] = max_J(x) }; return x, S", MESH),
    ("where(A[I_X, J] >= B[J], A, 2) ⊙ B[J] → C[I_X, J_Y]", MESH | {"dtype": "f32"}),
    ("A[I_X, J] · B[J_Y, K] → C[I_X, K_Y]", SLICE),
    ("A[I_X, J] · B[J_X, K_Y] → C[I_X, K_Y]", SLICE),
    ("R[I_X] = sum_J(bf16(A[I_X, J_Y]) + 1e-6)", MESH | {"dtype": "f32"}),
)


def said(text: str, options: dict[str, Any], seed: int) -> list[str]:
    """Of a plan and its program, each with one thing changed, what is said."""
    schedule, drawn = shardc.plan(text, **options).schedule, random.Random(seed)
    forms = {"schedule": schedule, "program": schedule.program}
    every = [f"{name} {_said(forms[name], drawn)}" for name, count in CHANGES.items() for _ in range(count)]
    faults = [line for line in every if not line.endswith(NOTHING)]
    return [f"{len(every) - len(faults)} changes: {NOTHING}", *dict.fromkeys(faults)]


def _said(form: Any, drawn: random.Random) -> str:
    path = list(_path(form, drawn))
    place = ".".join(str(part) for _, part in path)
    try:
        made = _changed(_of(*path[-1]), drawn)
        for holder, part in reversed(path):
            made = _with(holder, part, made)
        found = "; ".join(map(str, faults_of(made)))
    except shardc.ShardcError as error:
        found = str(error)
    except Exception as error:  # what no check is asked about
        found = type(error).__name__
    return f"{place}: {found or NOTHING}"[:LONGEST]


def _path(form: Any, drawn: random.Random) -> Iterator[tuple[Any, Any]]:
    """From the whole to what is changed: holders, and which of their parts."""
    while True:
        if is_dataclass(form) and not isinstance(form, DType):
            names = [each.name for each in fields(form) if each.name not in NEVER and each.init]
            parts: list[Any] = [name for name in names if getattr(form, name) not in ((), None, "", frozenset())]
        elif isinstance(form, tuple) and form and drawn.random() < 0.8:
            parts = list(range(len(form)))
        else:
            return
        if not parts:
            return
        part = drawn.choice(parts)
        yield form, part
        form = _of(form, part)


def _of(holder: Any, part: Any) -> Any:
    return holder[part] if isinstance(holder, tuple) else getattr(holder, part)


def _with(holder: Any, part: Any, made: Any) -> Any:
    if isinstance(holder, tuple):
        return (*holder[:part], made, *holder[part + 1 :])
    return replace(holder, **{part: made})


def _changed(value: Any, drawn: random.Random) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + drawn.choice((-1, 1))
        case str():
            return drawn.choice([name for name in ("X", "Y", "Z", "I", "J", "K", "A", "T", "relu") if name != value])
        case DType():
            return DTYPES["f32" if value.name != "f32" else "int32"]
        case frozenset():
            return value ^ {drawn.choice(("X", "Y", "Z"))}
        case tuple():
            return drawn.choice((value[1:], (*value, *value[:1]), value[::-1], (*value, *value)))
        case _:
            return None


def main() -> None:
    options = asked(__doc__)
    known = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    now = {text: said(text, options, seed) for seed, (text, options) in enumerate(TEXTS)}
    for text, lines in now.items():
        differ = [(before, after) for before, after in zip(known.get(text, ()), lines, strict=False) if before != after]
        for before, after in differ:
            print(text, f"  known {before}", f"  now   {after}", sep="\n")
    if options.write:
        TABLE.write_text(json.dumps(now, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
