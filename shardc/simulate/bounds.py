"""How far from the reference a float result may be.

Every value of the program is followed as three arrays: its value v, a magnitude M ≥ |v| (the same
products and sums of absolute values), and a bound E of the absolute error.

    input      E = u·|v| where v is not a number of its type, else 0
    conversion an operand of another type than its product's is rounded to that: u·(M + E) more, where it is not
               the type's already
    product    E = M_A·E_B + E_A·M_B + E_A·E_B + γ·(M_A + E_A)·(M_B + E_B), where
               γ = (K + n)·u_sum + (n + 1)·u: K terms are added in the accumulator's precision, and up to
               n partial sums, one a device, are rounded to the result's type and added again (k roundings
               are taken as expm1(k·u), which covers what is beyond the first order)
    + and −    E = E_A + E_B + (n + 1)·u·(M_A + E_A + M_B + E_B)
    f(x)       E = the largest |f(x + t·E) − f(x)| for t from −1 to 1, and 16·u·(|x| + |f(x)|) for the
               rounding inside f. The first is exact where f is monotone, and for the small E met here
               as good as a Lipschitz constant; half of it is added for what lies between the samples
    softmax    a relative error of expm1(2·max E) from x, and (K + 16)·u

Where M + E exceeds the largest number of the type the result may overflow, and nothing is promised (E = ∞).

M, not |v|, makes the bound hold for any moment of the reduction, since the parts that devices hold never
exceed M together. A chain of products may be multiplied in another order: to the error as written comes what
the worst order rounds away, carried through the chain in numbers, not arrays. It is assumed that the parts
of an unreduced input add up exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from shardc.ir.chains import Chain, Pair, chain_of
from shardc.ir.dtypes import DType, accumulator, multiplied
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import Call, Expr, Named, Product, Program, Use
from shardc.simulate.arguments import program_inputs
from shardc.simulate.blocks import Values
from shardc.simulate.reference import align, call, contract

_ROUNDINGS = 16  # inside one function
_EXACT = frozenset({"relu", "abs", "neg", "max"})  # choose or negate, and round nothing
# Below its smallest normal number a type may flush to 0.
_TINY = {"f8_e4m3fn": 2.0**-6, "f8_e5m2": 2.0**-14, "f16": 2.0**-14, "f64": 2.0**-1022}
_LARGEST = {"f8_e4m3fn": 448.0, "f8_e5m2": 57344.0, "f16": 65504.0, "f64": np.finfo(np.float64).max}


@dataclass(frozen=True, slots=True)
class _Estimate:
    value: Values
    magnitude: Values
    error: Values


def error_bound(program: Program, wholes: Sequence[Any]) -> list[Values]:
    """For each output, elementwise, how far a computed result may be from `reference`; 0 for integers."""
    known = {
        array.name: _input(whole, array.dtype)
        for array, whole in zip(program.inputs, program_inputs(program, wholes), strict=True)
    }
    results = []
    with np.errstate(all="ignore"):
        for statement in program.statements:
            expr = statement.expr
            found = _transposed(_estimate(expr, known, program), expr.dims, statement.dims)
            if statement.dtype != expr.dtype:
                found = _limited(_rounded(found, statement.dtype.unit), statement.dtype)
            known[statement.name] = found
            results.append(found.error)
    return [results[number] for number in program.outputs]


def _input(whole: Values, dtype: DType) -> _Estimate:
    if not dtype.unit:
        return _Estimate(whole, np.abs(whole), np.zeros(whole.shape))
    return _Estimate(whole, np.abs(whole), np.where(_has(dtype, whole), 0.0, dtype.unit * np.abs(whole)))


def _has(dtype: DType, values: Values) -> Values:
    """Where values are numbers of a float type, its range left aside."""
    significand = np.frexp(values)[0] / dtype.unit
    return np.asarray(significand == np.rint(significand))


def _converted(found: _Estimate, before: DType, after: DType) -> _Estimate:
    """In the type of the product, where that is another: floats only get wider, integers may be rounded."""
    if before == after or not after.unit:
        return found
    if before.unit >= after.unit:
        return _limited(found, after)
    exact = (found.error == 0) & (found.magnitude == np.abs(found.value)) & _has(after, found.value)
    more = np.where(exact, 0.0, after.unit * (found.magnitude + found.error))
    return _limited(_Estimate(found.value, found.magnitude, found.error + more), after)


def _estimate(expr: Expr, known: dict[str, _Estimate], program: Program) -> _Estimate:
    match expr:
        case Use(name=name):
            return known[name]
        case Named(operand=operand, dims=dims, dtype=dtype):
            below = _transposed(_estimate(operand, known, program), operand.dims, dims)
            return _rounded(below, _roundings(program.mesh.devices + 1, dtype.unit))
        case Product(operands=(_, _)):
            return _chain(chain_of(expr), known, program)
        case Product():
            return _product(expr, [_estimate(o, known, program) for o in expr.operands], program)
        case Call():
            result = _call(expr, [_estimate(o, known, program) for o in expr.operands], program)
            return _limited(result, expr.dtype)
        case _:
            assert_never(expr)


def _chain(chain: Chain, known: dict[str, _Estimate], program: Program) -> _Estimate:
    """As written, and what any other order may add to that."""
    kind = multiplied(operand.dtype for operand in chain.operands)
    parts = {
        1 << place: _converted(_estimate(operand, known, program), operand.dtype, kind)
        for place, operand in enumerate(chain.operands)
    }
    exprs: dict[int, Expr] = {1 << place: operand for place, operand in enumerate(chain.operands)}
    tops = {part: float(np.max(found.magnitude + found.error, initial=0.0)) for part, found in parts.items()}
    for pair in chain.written:
        product = exprs[pair.whole] = chain.multiply(pair, exprs[pair.left], exprs[pair.right])
        parts[pair.whole] = _product(product, [parts[pair.left], parts[pair.right]], program)
    written, pairs = parts[chain.whole], tuple(chain.pairs())
    if len(pairs) == len(chain.written) or not chain.product.dtype.unit:
        return written
    relative, floor = _worst_order(chain, pairs, tops, program)
    return _Estimate(
        written.value, written.magnitude, written.error + relative * (written.magnitude + written.error) + floor
    )


def _worst_order(
    chain: Chain, pairs: Sequence[Pair], tops: Mapping[int, float], program: Program
) -> tuple[float, float]:
    """At most how much of the result's magnitude, and how much besides, the worst order of pairs rounds away.

    Each is carried from part to part, as is the largest magnitude there can be; where a part may overflow, all is lost.
    """
    dtype, devices = chain.product.dtype, program.mesh.devices
    largest, relative = dict(tops), dict.fromkeys(tops, 0.0)
    floors = dict.fromkeys(tops, 0.0)
    for pair in pairs:
        terms = math.prod(program.shape(tuple(set(chain.meeting(pair)).difference(chain.dims(pair.whole)))))
        once = math.log1p(_of_product(terms, accumulator(dtype).unit, dtype.unit, devices))
        left, right, whole = pair.left, pair.right, pair.whole
        top = terms * largest[left] * largest[right]
        grown = math.exp(min(100.0, once + relative[left] + relative[right]))
        floor = terms * grown * (floors[left] * largest[right] + (largest[left] + floors[left]) * floors[right])
        fits = math.isfinite(floor) and (whole == chain.whole or top * grown <= _largest(dtype))
        floor = floor + _floor(dtype) if fits else math.inf
        largest[whole] = max(top, largest.get(whole, 0.0))
        relative[whole] = max(once + relative[left] + relative[right], relative.get(whole, 0.0))
        floors[whole] = max(floor, floors.get(whole, 0.0))
    return _roundings(1, relative[chain.whole]), floors[chain.whole]


def _product(expr: Product, below: Sequence[_Estimate], program: Program) -> _Estimate:
    names = [operand.dims for operand in expr.operands]
    sizes = dict(zip((d for dims in names for d in dims), (n for o in below for n in o.value.shape), strict=True))
    terms = math.prod(size for dim, size in sizes.items() if dim not in expr.dims)
    summing = accumulator(multiplied(operand.dtype for operand in expr.operands)).unit
    gamma = _of_product(terms, summing, expr.dtype.unit, program.mesh.devices)
    value = contract([o.value for o in below], names, expr.dims)
    magnitude = contract([o.magnitude for o in below], names, expr.dims)
    # (M_A + E_A)·(M_B + E_B) − M_A·M_B is the error brought along, less the rounding of the difference.
    grown = contract([o.magnitude + o.error for o in below], names, expr.dims)
    brought = _brought(below, names, expr.dims)
    return _limited(_Estimate(value, magnitude, brought + gamma * grown + _floor(expr.dtype)), expr.dtype)


def _brought(below: Sequence[_Estimate], names: Sequence[tuple[str, ...]], wanted: tuple[str, ...]) -> Values:
    if len(below) == 1:
        return contract([below[0].error], names, wanted)
    left, right = below
    first = contract([left.magnitude, right.error], names, wanted)
    return first + contract([left.error, right.magnitude + right.error], names, wanted)


def _call(expr: Call, below: Sequence[_Estimate], program: Program) -> _Estimate:
    unit = max(expr.dtype.unit, *(operand.dtype.unit for operand in expr.operands))
    function = FUNCTIONS[expr.function]
    value = call(expr, [o.value for o in below])
    if function.arity == 2:
        return _sum(expr, below, value, _roundings(program.mesh.devices + 1, unit))
    if function.over_dims:
        return _over_dims(expr, below[0], value, unit)
    operand = below[0]
    moved = [np.abs(call(expr, [operand.value + t * operand.error]) - value) for t in np.linspace(-1, 1, 9)]
    error = 1.5 * np.max(moved, axis=0)
    if expr.function not in _EXACT:
        size = contract([np.abs(operand.value)], [expr.operands[0].dims], expr.dims)
        error = error + _ROUNDINGS * unit * (size + np.abs(value)) + _floor(expr.dtype)
    if function.linear:  # still part of a sum over devices
        return _Estimate(value, contract([operand.magnitude], [expr.operands[0].dims], expr.dims), error)
    return _Estimate(value, np.abs(value) + error, error)


def _sum(expr: Call, below: Sequence[_Estimate], value: Values, gamma: float) -> _Estimate:
    dims = [operand.dims for operand in expr.operands]
    magnitude = np.add(*(align(o.magnitude, d, expr.dims) for o, d in zip(below, dims, strict=True)))
    error = np.add(*(align(o.error, d, expr.dims) for o, d in zip(below, dims, strict=True)))
    return _Estimate(value, magnitude, error + gamma * (magnitude + error))


def _over_dims(expr: Call, below: _Estimate, value: Values, unit: float) -> _Estimate:
    dims = expr.operands[0].dims
    axis = tuple(dims.index(dim) for dim in expr.over)
    largest = np.max(below.error, axis=axis, keepdims=True)
    if expr.function in _EXACT:
        left = tuple(dim for dim in dims if dim not in expr.over)
        error = contract([np.max(below.error, axis=axis)], [left], expr.dims)
        return _Estimate(value, np.abs(value) + error, error)
    size = np.max(np.abs(below.value), axis=axis, keepdims=True)
    terms = math.prod(below.value.shape[i] for i in axis)
    relative = np.expm1(2 * largest + 4 * unit * size) + (terms + _ROUNDINGS) * unit
    spread = contract([np.broadcast_to(relative, below.value.shape)], [dims], expr.dims)
    error = np.abs(value) * spread + _floor(expr.dtype)
    return _Estimate(value, np.abs(value) + error, error)


def _transposed(found: _Estimate, dims: tuple[str, ...], wanted: tuple[str, ...]) -> _Estimate:
    value, magnitude, error = (contract([part], [dims], wanted) for part in (found.value, found.magnitude, found.error))
    return _Estimate(value, magnitude, error)


def _rounded(found: _Estimate, gamma: float) -> _Estimate:
    return _Estimate(found.value, found.magnitude, found.error + gamma * (found.magnitude + found.error))


def _limited(found: _Estimate, dtype: DType) -> _Estimate:
    """No promise where the type may overflow, or where nothing can be said."""
    lost = np.isnan(found.error) | (found.magnitude + found.error > _largest(dtype))
    return _Estimate(found.value, found.magnitude, np.where(lost, np.inf, found.error))


def _largest(dtype: DType) -> float:
    return _LARGEST.get(dtype.name, float(np.finfo(np.float32).max)) if dtype.unit else math.inf


def _of_product(terms: int, summing: float, unit: float, devices: int) -> float:
    """γ: the relative error of so many terms added, and of partial sums rounded, one a device."""
    return _roundings(terms + devices, summing) + _roundings(devices + 1, unit)


def _roundings(count: int, unit: float) -> float:
    """The relative error of so many roundings, one after another."""
    return math.expm1(min(count * unit, 100.0))


def _floor(dtype: DType) -> float:
    return _TINY.get(dtype.name, 2.0**-126) if dtype.unit else 0.0
