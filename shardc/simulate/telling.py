"""Whether a result tells right from wrong at all: what quite other inputs give, in its place, must be noticed.

`sqrt(A · B - 1000)` is NaN whatever is summed, and `relu(A · B - 1000)` 0: they are as they should be, and would be so
of any sum. What no input goes into is constant rightly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.ir.dtypes import Kind
from shardc.ir.plan import Schedule
from shardc.ir.program import For, Program, Statement, bindings_of, read_by
from shardc.ir.sharding import Array
from shardc.simulate.arguments import program_inputs
from shardc.simulate.blocks import Values
from shardc.simulate.reference import reference
from shardc.simulate.samples import sample_inputs
from shardc.simulate.tolerance import FEW, TOLD_APART, Allowed, Undecided

_OTHERS = 1 << 30  # the seed of the first of the other inputs, which nobody gives
_FEW_VALUES = 3  # as a sign has
_TOGETHER = (
    "each input is drawn by itself: where they have to go together, as what a forward part leaves, let the text make "
    "them (`shardc grad --whole`)"
)
_DRAWS, _MORE_DRAWS = 1, 4  # of few elements more, which are alike by chance

Limit = Allowed | Undecided | None


def untold(
    schedule: Schedule, expected: Sequence[Values], limits: Sequence[Limit], asked: Sequence[bool]
) -> list[str | None]:
    """Of each output that is asked for why no result of it would be wrong; None where one would, or no input goes in.

    >>> import shardc
    >>> from shardc import simulate
    >>> for text in ("C[I_X] = relu(A[I_X])", "C[I_X] = relu(A[I_X] - 1000)"):
    ...     schedule = shardc.plan(text, mesh="X=2", dims="I=8", dtype="f32").schedule
    ...     expected = simulate.reference(schedule.program, simulate.sample_inputs(schedule.program))
    ...     print(*simulate.untold(schedule, expected, [None], [True]))
    None
    every value is 0, and would be with other inputs
    """
    places = [place for place, each in enumerate(reached(schedule.program)) if each and asked[place]]
    places = [place for place in places if expected[place].size]
    outputs = [schedule.values[number] for number in schedule.outputs]
    found: list[str | None] = [None] * len(outputs)
    for place in places:
        if not np.isfinite(expected[place]).any():
            found[place] = f"every value is {_spelled(expected[place])}, which tells nothing; {_TOGETHER}"
    left = [place for place in places if found[place] is None]
    if not left:
        return found
    for others in _of_other_inputs(schedule.program, any(expected[place].size < FEW for place in left)):
        left = [place for place in left if not _is_told(expected[place], others[place], limits[place])]
        if not left:
            return found
    for place in left:
        found[place] = _reason(expected[place], outputs[place])
    return found


def unscaled(
    schedule: Schedule,
    wholes: Sequence[Any],
    expected: Sequence[Values],
    limits: Sequence[Limit],
    asked: Sequence[bool],
) -> list[str | None]:
    """Of each output that is asked for, and that has three values at most, whether it is the same of inputs half as
    large: then a factor would not show, as in `A · B > 0`.

    >>> import shardc
    >>> from shardc import simulate
    >>> for text in ("C[I_X] = relu(A[I_X])", "C[I_X] = A[I_X] > 0"):
    ...     schedule = shardc.plan(text, mesh="X=2", dims="I=8", dtype="f32").schedule
    ...     wholes = simulate.sample_inputs(schedule.program)
    ...     expected = simulate.reference(schedule.program, wholes)
    ...     print(*simulate.unscaled(schedule, wholes, expected, [None], [True]))
    None
    of inputs half as large it is the same: a sum off by a factor would not show
    """
    places = [place for place, each in enumerate(reached(schedule.program)) if each and asked[place]]
    places = [place for place in places if _is_of_few(expected[place])]
    found: list[str | None] = [None] * len(expected)
    kinds = [array.dtype.kind for array in schedule.program.inputs]
    if not places or Kind.FLOAT not in kinds:
        return found
    given = program_inputs(schedule.program, wholes)
    halves = [whole / 2 if kind is Kind.FLOAT else whole for whole, kind in zip(given, kinds, strict=True)]
    others = reference(schedule.program, halves)
    for place in places:
        if not _is_told(expected[place], others[place], limits[place]):
            found[place] = "of inputs half as large it is the same: a sum off by a factor would not show"
    return found


def _is_of_few(values: Values) -> bool:
    """Whether there are two values, or three."""
    others = values.reshape(-1)
    for count in range(_FEW_VALUES + 1):
        if not others.size:
            return count > 1
        others = others[~alike(others, others[0])]
    return False


def reached(program: Program) -> list[bool]:
    """Of each output whether anything of the inputs goes into it.

    >>> import shardc
    >>> reached(shardc.parse("C[I, J] = index_I >= index_J; D[I] = A[I] + 1", mesh="X=1"))
    [False, True]
    """
    bound = list(_bound(program.statements, {array.name for array in program.inputs}))
    return [bound[number] for number in program.outputs]


def _bound(statements: Sequence[Statement | For], names: set[str]) -> Iterator[bool]:
    """Of what statements bind, in order, whether any of these names goes into it; they are kept up to date."""
    for each in statements:
        if isinstance(each, For):
            left = _left_by(each, names)
        else:
            left = {each.name} if names.intersection(read_by(each)) else set()
        for bound in bindings_of(each):
            (names.add if bound.name in left else names.discard)(bound.name)
            yield bound.name in left


def _left_by(loop: For, names: set[str]) -> set[str]:
    """Those of what a loop leaves: what one trip leaves the next one takes."""
    carried = names.intersection(loop.carried)
    while True:
        inside = names.difference(loop.carried) | carried
        list(_bound(loop.body, inside))
        more = carried | inside.intersection(loop.carried)
        if more == carried:
            return inside.intersection(loop.leaves)
        carried = more


def _of_other_inputs(program: Program, few: bool) -> Iterator[list[Values]]:
    """The outputs of inputs drawn anew; at last of some half as large, where a maximum or a sign is always the same."""
    wholes: list[Values] = []
    for draw in range(_MORE_DRAWS if few else _DRAWS):
        wholes = sample_inputs(program, _OTHERS + draw)
        yield reference(program, wholes)
    yield reference(program, [_halved(whole) for whole in wholes])


def _halved(values: Values) -> Values:
    return values / 2 if values.dtype.kind in "fc" else (values // 2).astype(values.dtype)


def _is_told(right: Values, other: Values, limit: Limit) -> bool:
    """Whether the other result would be noticed: where all are one value, by more than a few elements."""
    most = 1 / TOLD_APART if (alike(right, right.flat[0])).all() else 0.0
    if not isinstance(limit, Allowed):
        turned = 0.0 if limit is None else float(np.mean(limit.where))
        return float(np.mean(~alike(right, other))) > most + turned
    off = _off(right, other)
    beyond = float(np.mean(off > limit.largest.max(initial=0))) > most
    with np.errstate(over="ignore"):
        return beyond or (most == 0 and math.sqrt(np.mean(np.square(off))) > limit.rms.max(initial=0))


def _off(right: Values, other: Values) -> Values:
    """How far apart two results are, element by element; infinitely where one of them is not finite alone."""
    with np.errstate(all="ignore"):
        found: Values = np.where(alike(right, other), 0.0, np.nan_to_num(np.abs(right - other), nan=math.inf))
    return found


def alike(values: Values, others: Values) -> NDArray[np.bool_]:
    """Where values are equal. NaN is NaN."""
    return np.asarray((values == others) | (values != values) & (others != others))


def _reason(right: Values, array: Array) -> str:
    if not alike(right, right.flat[0]).all():
        return "other inputs give the same, so that a wrong result might pass"
    value = bool(right.flat[0]) if array.dtype.name == "bool" else _spelled(right)
    return f"every value is {value}, and would be with other inputs"


def _spelled(values: Values) -> str:
    """The first value, and that which differs from it if all others are one."""
    first = values.flat[0]
    others = values[~alike(values, first)]
    found = [first, *others.flat[:1]]
    return " or ".join("NaN" if value != value else f"{value + 0:.3g}" for value in found)
