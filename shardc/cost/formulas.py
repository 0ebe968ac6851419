"""A step's time as the books write it, in the program's own names: `2·D·F/Y·(X-1)/X / W_X`.

Dims and axes stand for their sizes; `W_X` is the bandwidth of axis X in B/s, `C_peak` the peak in FLOP/s, `W_hbm` the
memory's bandwidth, `T_hop` the latency of a hop. A leading number is the bytes of an element, or the two
operations of a multiply-add. `evaluate` gives the number back.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import StepCost
from shardc.ir.sharding import Array, Axes
from shardc.lowering.forms import Call


def local_bytes(array: Array, without: Axes = (), times: Sequence[str] = (), shared: Sequence[str] = ()) -> str:
    """`2·I·J/X`: the bytes of one device's block; gathered over the axes `without`, and so on."""
    size = [str(array.dtype.bytes)] if array.dtype.bytes > 1 else []
    below = [axis for axis in array.sharding.sharded if axis not in without]
    return over([*size, *array.dims, *times], [*below, *shared])


def taken(array: Array, calls: Sequence[Call], mesh: Mesh) -> str:
    """The bytes V by which the last of the calls for an array is priced: of what those before it left, gathered if it
    gathers or exchanges.

    ReduceScatter of A[I, J]{U_XY} over X, then over Y: `2·I·J` and `2·I·J/X`.
    """
    without, times, shared = list[str](), list[str](), list[str]()
    for call in calls:
        whole = call.over.axes if call.over.split is None else (str(call.over.parts(mesh)),)
        match call.kind:
            case Kind.GATHER | Kind.EXCHANGE:
                without += [axis for axis in whole if axis in array.sharding.sharded]
                times += [axis for axis in whole if axis not in array.sharding.sharded]
            case Kind.SCATTER | Kind.SUM | Kind.SLICE | Kind.MASK | Kind.LOCAL | Kind.LOOP:
                shared += whole if call is not calls[-1] else ()
            case Kind.PERMUTE:
                return part_of(local_bytes(array), call.above, call.below // int(call.times))
            case _:
                assert_never(call.kind)
    return local_bytes(array, tuple(without), times, shared)


def part_of(size: str, brings: int, cells: int) -> str:
    """`V·2/3`: what is brought of a block of so many cells."""
    return size if brings == cells else f"{size}·{brings}/{cells}"


def added(one: StepCost, other: StepCost) -> str:
    """Of one time after another."""
    return " + ".join(cost.formula for cost in (one, other) if cost.time_s) or "0"


def one_after_another(one: StepCost, other: StepCost) -> StepCost:
    """The cost of a step, and of what else it takes time for."""
    return replace(one, time_s=one.time_s + other.time_s, spelled=partial(added, one, other))


def longer(found: str, times: float) -> str:
    """A time taken so many times."""
    return f"({found})·{times:.15g}" if " + " in found else f"{found}·{times:.15g}"


def over(above: Iterable[str], below: Iterable[str]) -> str:
    return "/".join(["·".join(above) or "1", *below])


def times(size: str, factor: str) -> str:
    """`V` and `1 / W` make `V / W`; `V` and `1/4 / W` make `V/4 / W`; `V` and `2·(X-1)/X / W`, `2·V·(X-1)/X / W`."""
    if factor[:1] == "1" and not factor[1:2].isdigit() and factor[1:2] != ".":
        return size + factor[1:]
    if factor.startswith("2·"):
        return times(f"2·{size}", factor[2:])
    if factor.startswith("2 "):
        return f"2·{size}{factor[1:]}"
    return f"{size}·{factor}"


def sizes(arrays: Sequence[Array]) -> str:
    """`2·I·J + 2·J·K`: the bytes of one device's blocks."""
    return " + ".join(local_bytes(array) for array in arrays)


def evaluate(formula: str, names: Mapping[str, float]) -> float:
    """The number that a formula stands for; `names` has the sizes and the model's symbols.

    >>> evaluate("2·I·J/X·(Y-1)/Y / W_Y", {"I": 8, "J": 4, "X": 2, "Y": 4, "W_Y": 3.0})
    8.0
    """
    text = re.sub(r"⌈(.*?)⌉", r"ceil(\1)", formula.replace("·", "*").replace("²", "**2"))
    return _value(ast.parse(text, mode="eval").body, names)


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return float(names[name])
        case ast.BinOp(left=left, op=symbol, right=right):
            return _OPERATORS[type(symbol)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id="ceil"), args=[inside]):
            return float(math.ceil(_value(inside, names)))
        case _:
            raise ValueError(f"not a formula: {ast.dump(node)}")
