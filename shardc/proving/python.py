"""What Python itself does in emitted text: operators, calls, and sums of several values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from shardc.ir.dtypes import accumulator
from shardc.proving.devices import Held, alone
from shardc.proving.faults import Fault, require
from shardc.proving.laid import Extent
from shardc.proving.meaning import row
from shardc.proving.tensors import sum_of

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Eq: operator.eq}
OPERATORS |= {ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv}


def called(name: str, function: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    try:
        return function(*map(plain, given), **{key: plain(value) for key, value in named.items()})
    except (TypeError, AssertionError, LookupError, ValueError) as error:
        raise Fault(f"{name}: {error}") from error


def plain(given: Any) -> Any:
    """Sizes as numbers."""
    if isinstance(given, Extent):
        return int(given)
    return tuple(map(plain, given)) if type(given) is tuple else given


def unstacked(x: Held, *, axis: int) -> list[Held]:
    """One for each index of a dim, which they lack."""
    return [x.each(partial(row, place=axis, index=index)) for index in range(x.shape[axis])]


def summed(terms: Sequence[Held]) -> Held:
    """All of one shape, in a type wide enough to add up in."""
    require(len({(x.shape, x.dtype) for x in terms}) == 1, "a sum of several shapes or types")
    dtype = terms[0].dtype
    require(accumulator(dtype) == dtype, f"a sum of terms is kept in {dtype}")
    return Held(alone(lambda *blocks: sum_of(blocks), [x.blocks for x in terms]), dtype)
