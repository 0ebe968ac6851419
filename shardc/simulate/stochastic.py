"""Arithmetic that rounds at random: what a plan's steps may be off by, seen by trying.

A run of a plan's own steps in which each step's result goes to one of its two neighbours in the step's own type,
the coin deciding (0.3 between 0.298 and 0.301 in bf16: either). Runs that differ in nothing but coins lie about as
far apart as a device's results may lie from the exact ones, or twice that: to the nearest is never farther than the
farther neighbour. It follows the steps of the plan, one by one: its order of products, its partial products, what is
summed on a device and what between devices.

    product, sum on a device   in the accumulator's type, then once in the result's: f32, then bf16. Up to 8 terms are
                               added one by one; of more, n terms in a row are n roundings of about the running sum,
                               of both signs, which is √n of them. A sum in blocks rounds less
    AllReduce, ReduceScatter   in the type of the array, after each device's part: f32 on the CPU, or bf16 on the way
                               around a ring, is no worse
    integers beside floats     brought to the product's type first
    function                   each operation of its formula, in the coarsest type it meets, and 4 units of the
                               accumulator's for exp, tanh and what else a library approximates
    other moves                nothing

Runs come in pairs, of the same coins with the other side up: a single rounding, shared by all values, is never missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.ir.calls import meeting, whole
from shardc.ir.dtypes import DTYPES, DType, accumulator, multiplied
from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Einsum, Single
from shardc.ir.sharding import Array
from shardc.simulate.blocks import Part, Values, part_of
from shardc.simulate.steps import step

# Below its smallest normal number a type may flush to 0.
_TINY = {"f8_e4m3fn": 2.0**-6, "f8_e5m2": 2.0**-14, "f16": 2.0**-14, "f64": 2.0**-1022}
_LARGEST = {"f8_e4m3fn": 448.0, "f8_e5m2": 57344.0, "f16": 65504.0, "f64": float(np.finfo(np.float64).max)}
_PARTS = 8  # of a sum
_FEW = 64
_FINE = 2.0**-60  # no sum of such is known to be exact
_AT_ONCE = 1 << 15  # elements, so that what is made of them stays in the cache
_APPROXIMATE = 4  # units, of exp, tanh and their like
_CHOOSE = (
    np.maximum,
    np.minimum,
    np.fmax,
    np.fmin,
    np.negative,
    np.positive,
    np.absolute,
    np.sign,
    np.copysign,
    np.floor,
)
_ROUND_ONCE = (np.add, np.subtract, np.multiply, np.true_divide, np.sqrt, np.square, np.reciprocal)


class Coins:
    """Which way each result goes. The same seed throws the same coins; `mirrored` turns every one over."""

    def __init__(self, seed: int, mirrored: bool) -> None:
        self._generator = np.random.default_rng(seed)
        self._turn = np.uint8(mirrored)

    def thrown(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        count = math.prod(shape)
        drawn = np.frombuffer(self._generator.bytes(-(-count // 8)), np.uint8)
        return (np.unpackbits(drawn, count=count) ^ self._turn).reshape(shape)

    def rounded(self, values: Values, dtype: DType) -> Values:
        """Each value as it is, if the type has it, and otherwise its neighbour towards 0 or the one beyond."""
        found = np.array(values, np.float64, order="C")
        flat = found.reshape(-1)
        for first in range(0, flat.size, _AT_ONCE):
            self._round(flat[first : first + _AT_ONCE], dtype)
        return found

    def _round(self, values: Values, dtype: DType) -> None:
        largest = _LARGEST.get(dtype.name, float(np.finfo(np.float32).max))
        tiny = _TINY.get(dtype.name, 2.0**-126)
        thrown = self.thrown(values.shape)
        sizes = np.abs(values)
        ordinary = (sizes >= tiny) & (sizes <= largest)
        odd = None if ordinary.all() else np.flatnonzero(~ordinary & (values != 0))
        kept = None if odd is None else values[odd]
        cut = 53 + round(math.log2(dtype.unit))  # bits of a double's significand that the type lacks
        bits = values.view(np.int64)
        inexact = bits & ((1 << cut) - 1)
        beyond = thrown & (inexact != 0 if cut else values != 0)  # of f64 nobody knows what is exact
        bits -= inexact
        bits += beyond.astype(np.int64) << cut
        if odd is not None and kept is not None:
            within = np.where(np.abs(kept) < tiny, np.copysign(tiny * thrown[odd], kept), kept)
            values[odd] = np.where(np.abs(within) > largest, np.copysign(math.inf, within), within)
        if sizes.max(initial=0) > largest / 2:
            np.copyto(values, np.copysign(math.inf, values), where=np.abs(values) > largest)

    def off(self, values: Values, by: Values, times: float) -> Values:
        """Each value so many times `by` up or down."""
        found = np.array(values, np.float64, order="C")
        flat, step = found.reshape(-1), np.ascontiguousarray(by).reshape(-1)
        for first in range(0, flat.size, _AT_ONCE):
            part = flat[first : first + _AT_ONCE]
            signs = self.thrown(part.shape) * (2 * times) - times
            part += signs * step[first : first + _AT_ONCE]
        return found


@dataclass(frozen=True, slots=True)
class Precision:
    """`values` is what each operation's result is rounded to, `sums` what is summed in; `coarse` where the rounding
    of the result makes that of its sum vanish."""

    values: DType
    sums: DType
    coarse: bool


class Inexact(np.ndarray[Any, Any]):
    """An array in whose arithmetic each operation rounds: NumPy hands every operation to `__array_ufunc__`."""

    coins: Coins
    precision: Precision

    @classmethod
    def of(cls, values: Values, coins: Coins, precision: Precision) -> Inexact:
        made: Inexact = np.asarray(values).view(cls)
        made.coins, made.precision = coins, precision
        return made

    def __array_finalize__(self, made_of: Any) -> None:
        if isinstance(made_of, Inexact):
            self.coins, self.precision = made_of.coins, made_of.precision

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [np.asarray(value) if isinstance(value, np.ndarray) else value for value in inputs]
        found = self._computed(ufunc, method, plain, options)
        if isinstance(found, tuple) or np.asarray(found).dtype.kind != "f":
            return found
        if out is not None:
            np.asarray(out[0])[...] = found
            return out[0]
        return Inexact.of(found, self.coins, self.precision)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """What only arranges, such as np.where, leaves an array that goes on rounding."""
        found = super().__array_function__(function, types, arguments, options)
        if type(found) is np.ndarray and found.dtype.kind == "f":
            return Inexact.of(found, self.coins, self.precision)
        return found

    def _computed(self, ufunc: Any, method: str, inputs: list[Any], options: dict[str, Any]) -> Any:
        if ufunc is np.matmul:
            return self._matmul(*inputs)
        if (
            ufunc is np.add
            and method == "reduce"
            and inputs[0].dtype.kind == "f"
            and options.get("where", True) is True
        ):
            return self._sum(inputs[0], options)
        found = getattr(ufunc, method)(*inputs, **options)
        if isinstance(found, tuple) or np.asarray(found).dtype.kind != "f" or ufunc in _CHOOSE:
            return found
        if ufunc not in _ROUND_ONCE or method != "__call__":
            unit = _APPROXIMATE * self.precision.sums.unit
            found = self.coins.off(found, np.where(np.isfinite(found), found, 0), unit)
        return self.coins.rounded(found, self.precision.values)

    def _matmul(self, left: Values, right: Values) -> Values:
        def part(first: int, last: int) -> Values:
            found: Values = np.matmul(left[..., first:last], right[..., first:last, :])
            return found

        is_exact = self._is_exact(left.shape[-1], left, right)
        return self._added(left.shape[-1], part, is_exact)

    def _is_exact(self, terms: int, *factors: Values) -> bool:
        """Whether each sum of so many products of these, and each part of it, is a number of the type that sums are in,
        as those of few whole numbers are: it is then the same in any order, and of nothing rounded."""
        bound, quantum = float(terms), 1.0
        for factor in factors:
            bound, quantum = bound * float(np.abs(factor).max(initial=0.0)), quantum * quantum_of(factor)
        return bound * self.precision.sums.unit <= quantum

    def _sum(self, values: Values, options: dict[str, Any]) -> Values:
        given = options.get("axis", 0)
        axes = tuple(range(values.ndim)) if given is None else given if isinstance(given, tuple) else (given,)
        count = math.prod(values.shape[axis] for axis in axes)
        last = np.moveaxis(values, axes, range(values.ndim - len(axes), values.ndim))
        terms = last.reshape(*last.shape[: values.ndim - len(axes)], count)
        is_exact = self._is_exact(count, terms)
        found = self._added(count, lambda first, last: terms[..., first:last].sum(axis=-1), is_exact)
        found = self.coins.rounded(found, self.precision.values)
        return np.expand_dims(found, tuple(axis % values.ndim for axis in axes)) if options.get("keepdims") else found

    def _added(self, terms: int, part: Callable[[int, int], Values], is_exact: bool) -> Values:
        """The parts added up, one after another."""
        if is_exact:
            return part(0, terms)
        sums, total = self.precision.sums, None
        for first, last in _cuts(terms, 1 if self.precision.coarse else _PARTS):
            grown = part(first, last)
            grown = grown if total is None else np.add(total, grown, out=np.asarray(grown))
            if last - first == 1:
                total = self.coins.rounded(grown, sums)
                continue
            size = np.where(np.isfinite(grown), grown, 0)
            total = self.coins.off(grown, size, math.sqrt(last - first) * sums.unit)
        return part(0, 0) if total is None else total


def quantum_of(values: Values) -> float:
    """The largest power of two of which all values are multiples: 0.25 of 1.5 and 0.75; 0 of what is not finite."""
    flat = np.abs(np.asarray(values, np.float64)).reshape(-1)
    found = math.inf
    for first in (0, _FEW):  # most arrays show in a few values that they are fine
        some = flat[first : _FEW if first == 0 else None]
        if not np.isfinite(some).all():
            return 0.0
        fractions, exponents = np.frexp(some[some != 0])
        whole = (fractions * 2.0**53).astype(np.int64)
        lowest = np.ldexp((whole & -whole).astype(np.float64), exponents - 53)
        found = min(found, float(lowest.min(initial=math.inf)))
        if found < _FINE:
            break
    return found


def _cuts(terms: int, parts: int) -> Iterator[tuple[int, int]]:
    """Parts of one term where there are few, so that each addition is rounded by itself; of many, halves."""
    parts = parts if terms <= 8 * parts else 2
    ends = [terms * place // min(parts, max(terms, 1)) for place in range(min(parts, terms) + 1)]
    return pairwise(ends)


def inexact_step(
    op: Single, blocks: Sequence[Values], arrays: Sequence[Array], result: Array, mesh: Mesh, coins: Coins
) -> Values:
    """`steps.step`, rounding at random; the copies of one value are rounded alike."""
    precision = _precision(op, arrays, result)
    if precision is None:
        return step(op, blocks, arrays, result, mesh)
    blocks = [_brought(block, array, op, arrays, mesh, coins) for block, array in zip(blocks, arrays, strict=True)]
    op = _with_numbers(op, precision, coins)
    given = [Inexact.of(block, coins, precision) if block.dtype.kind == "f" else block for block in blocks]
    part = part_of(np.asarray(step(op, given, arrays, result, mesh)), mesh)
    if not result.dtype.unit:
        return part.blocks(mesh)
    return Part(coins.rounded(part.values, result.dtype), part.axes).blocks(mesh)


def _with_numbers(op: Single, precision: Precision, coins: Coins) -> Single:
    """The same with the numbers that are not whole as the type of what they meet has them."""
    if not isinstance(op, Apply) or not any(isinstance(number, float) for number in op.numbers):
        return op
    rounded = (
        float(coins.rounded(np.array(number), precision.values)) if isinstance(number, float) else number
        for number in op.numbers
    )
    return replace(op, numbers=tuple(rounded))


def _brought(block: Values, array: Array, op: Single, arrays: Sequence[Array], mesh: Mesh, coins: Coins) -> Values:
    """In the type that a product is done in: `int32 · bf16` rounds the integers to bf16; floats only get wider."""
    kind = multiplied(each.dtype for each in arrays) if isinstance(op, Einsum) else _met(op, arrays) or array.dtype
    if array.dtype.unit or not kind.unit:
        return block
    part = part_of(block, mesh)
    return Part(coins.rounded(part.values, kind), part.axes).blocks(mesh)


def _precision(op: Single, arrays: Sequence[Array], result: Array) -> Precision | None:
    """None where nothing is rounded: no floats, or nothing computed."""
    floats = [array.dtype for array in (*arrays, result) if array.dtype.unit]
    if not floats:
        return None
    widest = min((accumulator(dtype) for dtype in floats), key=lambda dtype: dtype.unit)
    match op:
        case Einsum():
            return Precision(widest, widest, _is_coarse(result.dtype, widest))
        case Apply():
            met = _met(op, arrays)
            values = met if met is not None and met.unit else max(floats, key=lambda dtype: dtype.unit)
            return Precision(values, widest, _is_coarse(values, widest))
        case move:
            return Precision(floats[0], floats[0], False) if move.facts.reduces else None


def _met(op: Single, arrays: Sequence[Array]) -> DType | None:
    """The type in which a function's arguments meet."""
    if not isinstance(op, Apply) or not arrays:
        return None
    return meeting(FUNCTIONS[op.function], [array.dtype for array in arrays], whole(op.numbers))


def _is_coarse(dtype: DType, sums: DType) -> bool:
    return dtype.unit >= 256 * sums.unit


assert all(name in DTYPES for name in (*_TINY, *_LARGEST))
