"""Which parts of the keys of what planning keeps could be left out, and `tests/planner/test_history.py` not see it.

    python tests/benchmark/cache_keys.py              # every part of every key, in turn
    python tests/benchmark/cache_keys.py graph        # of the functions whose names have that

A function that is remembered by all its arguments is remembered by all but one, and the programs of the law are planned
one after another. The fault shows where a plan differs from what a new process plans, or where what is remembered
differs from what is worked out anew: a bound that is too low changes no plan. What is left is a part that the others
imply, or one that no program of the law needs.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from tabulate import tabulate

import shardc
from shardc.errors import ShardcError

ROOMS = tuple(f"shardc.{room}." for room in ("ir", "rules", "cost", "lowering", "planner"))
Case = tuple[str, dict[str, Any], float | None]  # a text, its options, of its own peak the share that is its limit

PRODUCT = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]"
# The first few differ in one thing as well: the order of an operand's dims, of the result's, what is unreduced.
TEXTS = (
    (PRODUCT, "X=4,Y=2"),
    ("A[J_Y, I_X] · B[J_X, K_Y] → C[I_X, K_Y]", "X=4,Y=2"),
    ("A[I_X, J_Y] · B[J_X, K_Y] → C[K_Y, I_X]", "X=4,Y=2"),
    ("A[I_X, J] · B[J_X, K] → C[I_X, K]{U_Y}", "X=4,Y=2"),
    ("A[I_X, J]{U_Y} · B[J_X, K] → C[I_X, K]{U_Y}", "X=4,Y=2"),
    ("A[I, J_XY] · B[J_XY, K] → C[I_X, K]", "X=4,Y=2"),
    ("A[L_X, I, J_Y] · B[L_X, J_Y, K] → C[L, I_X, K]", "X=4,Y=2"),
    ("A[I_Y, J_X] · B[J] → C[I_X]", "X=4,Y=2"),
    ("A[I_X, J_Y] → A[I_Y, J_X]", "X=2,Y=3"),
    ("A[I_XY, J] → A[I, J_YX]", "X=4,Y=2"),
    ("A[I_X, J] → B[J, I]", "X=4,Y=2"),
    ("softmax_J(A[I, J_X]) → S[I_Y, J]", "X=4,Y=2"),
    ("T = A[I_X, J] · B[J, K_Y]\nR[I, K_X] = relu(T)\nC[I_X, L] = T · D[K_Y, L]", "X=4,Y=2"),
    ("T = A[I_X, J_Y] · B[J, K]\nR = relu(T)\nC[I, L_X] = R · D[K_Y, L]", "X=4,Y=2"),
    ("A[I_Z, J] · B[J, K_YZ] → C[I_XYZ, K]", "X=2,Y=2,Z=2"),
)
OPTIONS: dict[str, Any] = {"chip": "v5p", "dtype": "bf16", "dims": "I=96,J=96,K=192,L=96"}
# Each differs in one thing alone.
OTHERWISE: tuple[dict[str, Any], ...] = (
    {"dtype": "f32"},
    {"chip": "v5e"},
    {"dims": "I=9600,J=9600,K=19200,L=9600"},
    {"dims": "I=96,J=960,K=96,L=96"},
    {"objective": "bytes"},
    {"formula": "book"},
    {"profile": "spec"},
    {"idle": "keep"},
    {"overlap": "on"},
    {"wraparound": "X=ring"},
    {"wraparound": "X=line"},
    {"wraparound": "Y=one-way"},
    {"dcn": "Y=2"},
)
MESHES = {"X=4,Y=2": ("X=2,Y=4", "Y=2,X=4", "X=4,Y=2,Z=2"), "X=2,Y=3": ("X=3,Y=2",), "X=2,Y=2,Z=2": ("X=4,Y=2,Z=2",)}
SLICES: dict[str, tuple[dict[str, Any], ...]] = {
    "X=4,Y=2": (
        {"topology": "v5p:2x2x2"},
        {"topology": "v5p:2x2x2", "map": {"Y": (0,)}},
        {"topology": "v5p:2x2x2", "map": {"Y": (2,)}},
        {"topology": "v5e:2x4"},
        {"topology": "v5e:4x2"},
    ),
    "X=2,Y=2,Z=2": ({"topology": "v5p:2x2x2"}, {"topology": "v5e:2x4"}),
}
MANY = 4  # one in so many, or more
LARGE = "I=1024,J=1024,K=1024,L=1024"
SMALL = OPTIONS | {"dims": "I=96,J=96,K=96,L=96"}
LAYER = "T = A[I_X, J] · B[J_X, K]\nS[I_X, K] = softmax_K({0})\nR[I] = sum_K(S)"
# Groups of which each differs from another of its group in one thing that the texts above do not reach.
GROUPS: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    # operands that lie alike, of other dims; of the same dims, with another result
    (
        {"mesh": "X=4,Y=2"},
        (
            "A[J_X, I] · B[J_X, K] → C[I_X, K]",
            "A[I_X, J] · B[J_X, K] → C[I_X, K]",
            "A[L_X, I] · B[L_X, I] → C[I]",
            "A[L_X, I] · B[L_X, I] → C[L_X, I]",
        ),
    ),
    # arrays of several ranks in a program planned together, and on a slice two that read a product
    ({"mesh": "X=4,Y=2"}, (LAYER.format("T"), LAYER.format("T ⊙ T"))),
    ({"mesh": "X=4,Y=2", "topology": "v5p:2x2x2"}, (LAYER.format("T"), LAYER.format("T ⊙ T"))),
    ({"mesh": "X=4,Y=2", "topology": "v5p:2x2x2", "dims": LARGE}, (LAYER.format("T"),)),
    # types that meet
    (
        {"mesh": "X=4"},
        ("f32(A[I_X, J]) ⊙ B[I, J] → C[I, J_X]", "f16(A[I_X, J]) ⊙ B[I, J] → C[I, J_X]", "A[I_X] + f32(B[I]) → C[I]"),
    ),
    # sizes that share factors: exchanges in unequal pieces, and finer meshes on which there are closed routes alone
    *(
        (
            {"mesh": mesh, "objective": "bytes"},
            ("A[I_X, J] → A[I_Y, J]", "A[I_X, J] → A[I, J_Y]", "A[I_Y, J] → A[I_X, J]", "A[I_X, J_Y] → A[I_Y, J]"),
        )
        for mesh in ("X=4,Y=6", "X=6,Y=4", "X=2,Y=3")
    ),
    ({"mesh": "X=2,Y=3", "objective": "bytes"}, ("A[I_X, J_Y] → A[I_YX, J]", "A[I_X, J_Y] → A[I, J_XY]")),
    *(
        ({"mesh": mesh, "objective": "bytes"}, ("A[I_Y, J_Z] → A[I_Z, J_Y]", "A[I_XZ, J_Y] → A[I_Y, J_XZ]"))
        for mesh in ("X=2,Y=4,Z=3", "X=3,Y=4,Z=2")
    ),
    # a dim cut in digits of the same sizes, on which the same axes lie in other places
    ({"mesh": "X=2,Y=2,W=4"}, ("A[I_XY, J] · B[J, K] → C[I_W, K]",)),
    ({"mesh": "X=4,Y=2,W=4,V=3"}, ("A[I_XY, J] · B[J, K] → C[I_WV, K]",)),
    # axes that may be used or not
    *(
        ({"mesh": mesh, "idle": idle, "objective": "bytes"}, ("A[I_X, J] · B[J_X, K] → C[I, K_X]",))
        for mesh in ("X=4,Y=2", "X=2,Y=2,Z=2", "X=2,Y=2,Z=2,W=2", "X=8,Y=2", "X=6,Y=2")
        for idle in ("use", "keep")
    ),
    (
        {"mesh": "V=2,W=2,X=2,Y=2,Z=2", "objective": "bytes"},
        ("A[I_X, J] · B[J_X, K] → C[I, K_X]", "A[I_XV, J_Y] · B[J_W, K] → C[I_Z, K_X]"),
    ),
    # more axes than there is time to search over, so that closed routes are taken
    ({"mesh": "U=2,V=2,W=2,X=2,Y=2,Z=2", "dims": LARGE}, ("A[I_UVW, J_XY] · B[J_Z, K_UV] → C[I_XY, K_ZU]",)),
    (
        {"mesh": "U=4,V=2,W=2,X=2,Y=2,Z=2", "dims": LARGE},
        ("A[I_UVW, J_XY] · B[J_Z, K_UV] → C[I_XY, K_ZU]", "A[I_UVW, J_XY] · B[J_Z, K_UV] → C[I_YX, K_ZW]"),
    ),
    # a step over the data center's network has other hops than one over links
    *(({"mesh": "X=4,Y=2,Z=2", "dcn": "Z=2", "idle": idle}, ("A[I_X, J] → A[I, J_X]",)) for idle in ("use", "keep")),
    *(({"mesh": "X=4,Y=2", "chip": "H100", "formula": formula}, (PRODUCT,)) for formula in ("book", "exact")),
    *(
        ({"mesh": "X=16", "topology": topology, "dims": LARGE}, ("A[I, J]{U_X} → A[I_X, J]",))
        for topology in ("v5e:4x4", "v5p:4x2x2")
    ),
    *(
        ({"mesh": "X=4,Y=2", "topology": "v5p:2x2x2", "dims": dims}, ("A[I_X, J_Y] · B[J_Y, K] → C[I, K_X]",))
        for dims in (SMALL["dims"], LARGE)
    ),
    # on a slice, shares of whole tiles and others, over all of it and over a part
    *(
        (
            {"mesh": mesh, "topology": topology, "dims": dims},
            ("A[I, J]{U_XY} → A[I_XY, J]", "A[I, J]{U_X} → A[I_X, J]", "A[J]{U_XY} → A[J_XY]"),
        )
        for mesh in ("X=4,Y=2", "X=2,Y=4")
        for topology in ("v5e:2x4", "v5e:4x2")
        for dims in (SMALL["dims"], LARGE)
    ),
)


def groups() -> Iterator[Case]:
    for options, texts in GROUPS:
        every = {name: value for name, value in SMALL.items() if name != "chip" or "topology" not in options}
        yield from ((text, every | options, None) for text in texts)


def one_apart(one_in: int = 1) -> Iterator[Case]:
    """Programs each of which differs from the first of its text in one thing: its type, chip, mesh, …

    Of each text one in `one_in` of the others, of no two texts in a row the same. Then those in groups, if not few are
    asked for.
    """
    for place, (text, mesh) in enumerate(TEXTS):
        first = OPTIONS | {"mesh": mesh}
        on_slice = {name: value for name, value in first.items() if name != "chip"}
        others: list[Case] = [(text, first, 0.9), *((text, first | other, None) for other in OTHERWISE)]
        others += [(text, first | {"mesh": other}, None) for other in MESHES.get(mesh, ())]
        others += [(text, on_slice | other, None) for other in SLICES.get(mesh, ())]
        yield text, first, None
        yield from others[place % one_in :: one_in]
    yield from groups() if one_in <= MANY else ()


def planned(text: str, options: dict[str, Any], share: float | None) -> object:
    """Steps, cost and what is said of a plan; under so much of its own memory, if that is asked for."""
    try:
        plan = shardc.plan(text, **options)
        if share is not None:
            plan = shardc.plan(text, **options, memory=int(plan.cost.peak_bytes * share))
    except ShardcError as error:
        return str(error)
    steps = [(str(step.result), step.op, step.operands, step.wire_bytes, step.rule) for step in plan.steps]
    return steps, plan.cost, plan.bound, plan.notes, [statement.cases for statement in plan.statements]


def remembered() -> dict[str, Any]:
    """The functions of these rooms that keep what they gave, by their names."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        for own, value in vars(module).items() if name.startswith(ROOMS) else ():
            if hasattr(value, "cache_clear") and value.__module__ == name:
                found[f"{name.removeprefix('shardc.')}.{own}"] = value
    return found


def forget() -> None:
    """All that they keep."""
    for function in remembered().values():
        function.cache_clear()


def by_less(function: Any, part: str) -> Callable[..., Any]:
    """A function that is remembered by its arguments without that one."""
    kept: dict[tuple[object, ...], Any] = {}
    called = inspect.signature(function.__wrapped__)

    def lacking(*given: Any, **named: Any) -> Any:
        bound = called.bind(*given, **named)
        bound.apply_defaults()
        key = tuple(value for name, value in bound.arguments.items() if name != part)
        if key not in kept:
            kept[key] = function.__wrapped__(*given, **named)
        return kept[key]

    found: Any = functools.update_wrapper(lacking, function.__wrapped__)
    found.cache_clear = kept.clear
    return found


@contextmanager
def planted(function: Any, part: str) -> Iterator[None]:
    """The same function wherever it is called, remembered without a part of its key."""
    with _instead([(function, by_less(function, part))]):
        yield


@contextmanager
def watched() -> Iterator[list[str]]:
    """Wherever what is remembered is not what is worked out anew: names of functions."""
    wrong = list[str]()

    def watching(function: Any) -> Any:
        seen = set[Any]()

        @functools.wraps(function)
        def both(*given: Any, **named: Any) -> Any:
            found, key = function(*given, **named), (given, tuple(named.items()))
            if key not in seen:
                seen.add(key)
                wrong.extend([] if same(found, function.__wrapped__(*given, **named)) else [function.__name__])
            return found

        return both

    with _instead([(function, watching(function)) for function in remembered().values()]):
        yield wrong


def same(found: Any, anew: Any) -> bool:
    """Whether two values are equal; of those that are equal to themselves alone, whether what they are made of is."""
    if type(found) is not type(anew):
        return False
    if isinstance(found, tuple):
        return len(found) == len(anew) and all(map(same, found, anew))
    if isinstance(found, np.ndarray):
        return bool(np.array_equal(found, anew))
    if is_dataclass(found):
        names = [each.name for each in fields(found) if not each.name.startswith("_")]
        return all(same(getattr(found, name), getattr(anew, name)) for name in names)
    if type(found).__eq__ is not object.__eq__:
        return bool(found == anew)
    own = getattr(found, "__dict__", {}).items()
    made_of = {name: value for name, value in own if name[0] != "_" and isinstance(value, Hashable)}
    return found is anew or all(same(value, getattr(anew, name)) for name, value in made_of.items())


@contextmanager
def _instead(pairs: list[tuple[Any, Any]]) -> Iterator[None]:
    """Functions in place of others, in every module that calls these by their names."""
    other = {id(function): instead for function, instead in pairs}
    places = [
        (module, name, value)
        for key, module in list(sys.modules.items())
        if key.startswith("shardc.")
        for name, value in vars(module).items()
        if id(value) in other
    ]
    for module, name, value in places:
        setattr(module, name, other[id(value)])
    try:
        yield
    finally:
        for module, name, value in places:
            setattr(module, name, value)


def shows(cases: list[Case], wanted: list[object]) -> Case | None:
    """The first program that shows a fault, planned after those before it, or after those behind it."""
    both = list(zip(cases, wanted, strict=True))
    for every in (both, both[::-1]):
        forget()
        with watched() as wrong:
            for case, before in every:
                if not _is_planned_so(case, before) or wrong:
                    return case
    return None


def _is_planned_so(case: Case, before: object) -> bool:
    try:
        return planned(*case) == before
    except Exception:  # as a fault may have it
        return False


def alone(case: Case) -> object:
    """As a new process plans it."""
    forget()
    return planned(*case)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="of the names of functions")
    parser.add_argument("--one-in", type=int, default=1, metavar="N", help="of the programs, as a quick run has it")
    asked = parser.parse_args()
    cases = list(one_apart(asked.one_in))
    wanted = list(map(alone, cases))
    rows = []
    for name, function in remembered().items():
        if all(word in name for word in asked.words):
            for part in inspect.signature(function.__wrapped__).parameters:
                with planted(function, part):
                    shown = shows(cases, wanted)
                rows.append((name, part, "missed" if shown is None else "seen"))
                print(*rows[-1], file=sys.stderr, flush=True)
    print(tabulate(rows, headers=("remembered", "without", "")))
    print(f"{sum(row[2] == 'seen' for row in rows)} of {len(rows)} are seen, by {len(cases)} programs")


if __name__ == "__main__":
    main()
