"""What is written of plans, with products done as one or left to XLA: `tests/golden/known_texts.json`.

    python tests/benchmark/known_texts.py             # which texts differ from the table now
    python tests/benchmark/known_texts.py --write     # the same, and the table is written

Of each plan as it is, with each group that can be done as one, and by XLA alone: how many lines the text has, and a
hash of it. The arrays are named in one letter and in thirty, so that lines end on either side of the width that is
kept, and as the text itself names things. JAX traces of the callable what it traces of the text (`traced.py`).
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from asked import kept, told
from traced import called_otherwise

import shardc
from shardc.emit import source
from shardc.emit.allowed import BORDER, LOOPED, MEETING, PARTED, RING, SCANNED, TABLES
from shardc.ir.plan import Einsum, Schedule, Together, ValueNumber
from shardc.lowering.together import all_of, apart, candidates, spelled

TABLE = Path(__file__).parents[1] / "golden" / "known_texts.json"
MESHES = ("X=4,Y=2", "X=2,Y=2", "X=3,Y=2", "X=8", "X=2,Y=2,Z=2", "X=1,Y=1")
KINDS = ("bf16", "f32", "f16", "f32")
PRODUCTS = (
    "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]",
    "A[I, J_X] · B[J_X, K] → C[I_X, K]",
    "A[I, J_X] · B[J_X, K] → C[I, K]",
    "A[I, J_X] · B[J, K_X] → C[I, K_X]",
    "A[I_X, J] · B[J, K_Y] → C[I, K_Y]",
    "A[I_XY, J] · B[J, K_XY] → C[I, K_XY]",
    "A[I, J_YX] · B[J, K_XY] → C[I, K_XY]",
    "A[I, J_XY] · B[J, K_YX] → C[I, K_YX]",
    "A[I_X] · B[K_Y] → C[I, K_Y]",
    "A[J_Y, I_X] · B[K_Y, J_X] → C[K_Y, I_X]",
    "A[N, I_X, J_Y] · B[J_X, N, K_Y] → C[I_X, N, K_Y]",
    "H[I_Y, K_X] = A[I_Y, J_X] · B[J_Y, K_X]; C[I_Y, J_X] = gelu(H) · E[K_Y, J_X]",
    "H[I_Y, K_X] = A[I_Y, J] · B[J, K_X]; C[I_Y, K] = relu(H) + A ·_J E[J, K]; return H, C",
)
PROGRAMS = (
    "for L { x[I_X, J] = relu(x[I_X, J] · B[L, J, K_Y]) ·_K E[L, K_Y, J]; S[L, I_X] = max_J(x) }; return x, S",
    "for L { for N { x[I_X, J] = relu(x[I_X, J] + B[L, N, J]) } }; return x",
    "P[I_X, K] = softmax_K(where(index_I >= index_K, A[I_X, J] · B[J, K], -inf)); C[I_X] = max_K(P)",
    "B[I_?, J_?] = relu(A[I_X, J]); C[I, K_X] = B · E[J, K_X]; D[J, K] = B · H[I, K]",
    "C[I_X, K] = A[I_X, J_Y] · B[J_Y, K]; D[K, I] = C; return C, D",
    "C[I, K]{U_X} = A[I, J_X] · B[J_X, K]; D[I, K]{U_X} = C + E[I, K]{U_X}; H[I_X, K] = D",
    "R[I_X, J] = f32(A[I_X, J_Y]) ⊙ B[I, J]; Q[I] = mean_J(R) / sqrt(|J|)",
    "H[I_X, J] = (A[I_X, J] - 0.25) ⊙ B[I, J] + E[I, J] / (A ⊙ A + B ⊙ B + 2.5) - (E ⊙ B - A); C[I_X] = mean_J(H)",
    "H[I_X, K_?] = A[I_X, J_Y] · B[J_Y, K]; C[K, I_X] = relu(H); D[I_?, K_X] = H",
    "A[I_X, J_Y] → A[I_Y, J_X]",
    "A[I_XY, J] → B[J, I_YX]",
    "A[I, J]{U_XY} → A[I_X, J]{U_Y}",
)
SIZES = {"I": 96, "J": 192, "K": 384, "N": 2, "L": 3}
OWN = sorted(
    {
        *BORDER - {"mesh"},
        *LOOPED,
        *MEETING,
        *PARTED,
        *RING,
        *SCANNED,
        *TABLES,
        "run1",
        "product1",
        "whole",
        "jax",
        "sum",
    }
)
ARRAYS = re.compile(r"\b[A-EHx](?![A-Za-z(])")


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Texts, and what is asked of their plans."""
    draw = random.Random(11)
    for place, (text, mesh) in enumerate(product((*PRODUCTS, *PROGRAMS), MESHES)):
        axes = {axis.partition("=")[0] for axis in mesh.split(",")}
        if axes.issuperset(re.findall("[XYZ]", text)):
            kind = "int32" if place % 5 == 0 and "(" not in text else KINDS[place % len(KINDS)]
            asked = {"mesh": mesh, "dtype": kind, "chip": "v5e", "idle": "keep"}
            yield named(text, place % 4, draw), asked | ({"objective": "bytes"} if draw.random() < 0.2 else {})


def named(text: str, kind: int, draw: random.Random) -> str:
    """With the arrays named as they are; as what is written names; in many letters, some with a prime."""
    arrays = sorted(set(ARRAYS.findall(text)))
    others = dict(zip(arrays, draw.sample(OWN, len(arrays)), strict=True))
    if kind in (0, 2):
        others = {} if kind == 0 else {name: name + "abcdefghij"[: draw.randint(1, 9)] for name in arrays}
    if kind == 3:
        others = {name: name.lower() * draw.randint(8, 30) + "'" * draw.randint(0, 1) for name in arrays}
    return ARRAYS.sub(lambda found: others.get(found[0], found[0]), text)


def said(text: str, options: dict[str, Any]) -> list[str]:
    """Of each way to do it what it is, and a hash of what is written; no callable does anything else."""
    sizes = {dim: size for dim, size in SIZES.items() if re.search(rf"\b{dim}\b|\b{dim}_", text)}
    schedule = shardc.plan(text, dims=sizes, **options).schedule
    return [f"{how}: {_written(each)}" for how, each in _ways(schedule)]


def _ways(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    yield "as planned", schedule
    groups = list(candidates(schedule))
    for ordered, group in groups:
        yield spelled(ordered, group), replace(ordered, together=(group,))
    of_each = {_product(ordered, group): (ordered, group) for ordered, group in groups}
    if len(of_each) > 1:
        yield "each product as one", all_of(schedule, apart(of_each.values(), lambda each: each))
    ends = (*schedule.inputs, *schedule.outputs)
    if schedule.by is None and schedule.mesh.axes and not any(schedule.values[n].sharding.unreduced for n in ends):
        yield "by XLA", replace(schedule, by_xla=True, together=())


def _product(schedule: Schedule, group: Together) -> ValueNumber:
    return next(step.result for step in schedule.steps[group.first :] if isinstance(step.op, Einsum))


def _written(schedule: Schedule) -> str:
    text = source(schedule, "v5e")
    assert not (apart := called_otherwise(schedule, text)), "\n".join(["called otherwise than written", *apart])
    return f"{len(text.splitlines())} lines, {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def now() -> dict[str, list[str]]:
    return {f"{text} {options}": said(text, options) for text, options in cases()}


def known() -> dict[str, list[str]]:
    return kept(TABLE)


def main() -> None:
    told(__doc__, TABLE, now)


if __name__ == "__main__":
    main()
