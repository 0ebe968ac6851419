"""How large inputs are to be, so that a result is about 1, whatever it sums over.

The logarithm of the size of every value is a sum of those of inputs and a constant: that of `A[I, J] · B[J, K]` is
a + b + ½·log2 J, where values are of either sign. What one would like is 0 for each product, more so for what a
function bends (`softmax`, `gelu`, `exp`), and most for what it cuts (`int8`), or compares with a number, which is to be
reached; least squares finds the inputs' sizes that come nearest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from shardc.ir.calls import places
from shardc.ir.dtypes import DType, Kind
from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands, parts_of
from shardc.ir.functions import FUNCTIONS, Gives
from shardc.ir.program import For, Program, Statement, every_statement
from shardc.ir.scalars import number

Sizes = NDArray[np.float64]  # a number for each input, and a constant
_POSITIVE_ONLY = {"log": 0, "log1p": 0, "sqrt": 0, "rsqrt": 0, "div": 1}  # by the place of the argument
_NEVER_NEGATIVE = frozenset({"exp", "exp2", "square", "abs", "relu", "sigmoid", "softmax", "sqrt", "rsqrt", "index"})
_KEEP_SIGN = frozenset({"add", "mul", "div", "max", "min", "minimum", "where", "cast", "widen"})
_DEGREE = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5}  # of others 1
# About 1, whatever is put in.
_BOUNDED = frozenset({"exp", "exp2", "log", "log1p", "tanh", "sigmoid", "softmax", "logsumexp", "sin", "cos", "sign"})
_STRAIGHT = frozenset({"relu", "abs", "neg", "max", "min", "sign", "cast", "widen", *_DEGREE})  # alike at every size
_SCALED = frozenset({"mul", "div"})
_LEAVE_ONE = frozenset({"minimum", "maximum"})  # of two, compared
_REACHED = 64.0  # a number that is larger, or as small, is compared with so that none reaches it
_TURNED, _BENT, _SUMMED, _INPUT = 6.0, 3.0, 1.0, 0.05  # how much it matters that these are about 1


@dataclass(slots=True)
class _Wishes:
    program: Program
    places: dict[str, int]
    known: dict[str, Sizes] = field(default_factory=dict)
    rows: list[Sizes] = field(default_factory=list)

    def walk(self, statements: tuple[Statement | For, ...]) -> None:
        """Of a loop one trip; what it carries on had better stay as large as it was."""
        for each in statements:
            if isinstance(each, For):
                before = {name: self.known[name] for name in each.carried}
                self.walk(each.body)
                for name, sizes in before.items():
                    self._wished(self.known[name] - sizes, _SUMMED)
            else:
                self.known[each.name] = self.of(each.expr)

    def of(self, expr: Expr) -> Sizes:
        """The size of an expression's values; what is wished of it and of its parts is noted."""
        match expr:
            case Use(name=name):
                return self.known[name]
            case Named(operand=operand):
                return self.of(operand)
            case Product(operands=below):
                found = np.sum([self.of(operand) for operand in below], axis=0)
                found[-1] += (1.0 if _is_square(expr) else 0.5) * math.log2(self._terms(expr))
                return self._wished(found, _SUMMED)
            case Call(operands=below, function=name):
                return self._call(name, expr, [self.of(operand) for operand in below])
            case _:
                assert_never(expr)

    def _call(self, name: str, expr: Call, below: list[Sizes]) -> Sizes:
        row = FUNCTIONS[name]
        nothing = np.zeros(len(self.program.inputs) + 1)
        if not below:
            return self._constant(expr)
        if row.gives is Gives.BOOL or name in _LEAVE_ONE:
            self._reaching(expr, below[0])
        if row.gives is Gives.BOOL:
            self._wished(below[0] - below[-1], _SUMMED)  # so that either may be the larger
            return nothing
        stand = places(row, expr.numbers)
        below = [each for place, each in zip(stand, below, strict=True) if place not in row.conditions]
        if name in _SCALED:
            return self._scaled(expr, below, stand)
        if not below or row.arity > 1 == len(below):  # beside a number
            return below[0] if below else nothing
        if len(below) > 1:
            self._wished(below[0] - below[1], _SUMMED)  # so that neither is lost beside the other
            return np.asarray(np.mean(below, axis=0))
        if name not in _STRAIGHT or _is_cut(expr):
            self._wished(below[0], _TURNED if _is_cut(expr) else _BENT)
        if name not in _BOUNDED:
            return below[0] * _DEGREE.get(name, 1.0)
        found = np.zeros_like(below[0])
        if name == "softmax":
            found[-1] = -math.log2(math.prod(self.program.shape(expr.over)))
        return found

    def _constant(self, expr: Call) -> Sizes:
        """What is made of no array: an index is half as large as its dim."""
        found = np.zeros(len(self.program.inputs) + 1)
        if expr.function == "index":
            found[-1] = math.log2(max(2, math.prod(self.program.shape(expr.dims))) / 2)
        return found

    def _reaching(self, expr: Call, sizes: Sizes) -> None:
        """What is compared with a number is to be as large as that, and about 1 where that is less."""
        for scalar in expr.numbers:
            value = abs(number(scalar, dict(self.program.sizes))) if scalar is not None else 0
            if 1 / _REACHED <= value <= _REACHED:
                over = sizes.copy()
                over[-1] -= max(0.0, math.log2(value))
                self._wished(over, _TURNED)

    def _scaled(self, expr: Call, below: list[Sizes], stand: tuple[int, ...]) -> Sizes:
        """What is multiplied by a number, or divided."""
        signs = [-1.0 if expr.function == "div" and place == 1 else 1.0 for place in (0, 1)]
        found = np.sum([signs[place] * each for place, each in zip(stand, below, strict=True)], axis=0)
        for place, scalar in enumerate(expr.numbers):
            value = abs(number(scalar, dict(self.program.sizes))) if scalar is not None else 1
            found[-1] += signs[place] * math.log2(value) if 0 < value < math.inf else 0.0
        return np.asarray(found)

    def _wished(self, sizes: Sizes, weight: float) -> Sizes:
        self.rows.append(weight * sizes)
        return sizes

    def _terms(self, expr: Product) -> int:
        summed = {dim for operand in expr.operands for dim in operand.dims}.difference(expr.dims)
        return max(1, math.prod(self.program.shape(tuple(summed))))


def input_exponents(program: Program) -> dict[str, int]:
    """For each input the power of two that its values are to be multiplied by."""
    count = len(program.inputs)
    if not count:
        return {}
    units = np.eye(count + 1)
    wishes = _Wishes(program, {array.name: place for place, array in enumerate(program.inputs)})
    for place, array in enumerate(program.inputs):
        free = array.dtype.kind is Kind.FLOAT
        wishes.known[array.name] = units[place] if free else np.zeros(count + 1)
        wishes.rows.append(_INPUT * units[place])
    wishes.walk(program.statements)
    rows = np.array(wishes.rows)
    found = np.linalg.lstsq(rows[:, :count], -rows[:, count], rcond=None)[0]
    return {array.name: _within(array.dtype, float(size)) for array, size in zip(program.inputs, found, strict=True)}


def _within(dtype: DType, exponent: float) -> int:
    """What the type has room for below its ordinary values."""
    most = {1: 2, 2: 6}.get(dtype.bytes, 40) if dtype.name != "bf16" else 40
    return round(max(-most, min(most, exponent)))


def to_be_positive(program: Program) -> frozenset[str]:
    """The inputs under a root or a logarithm whose argument may else be below 0."""
    never: dict[str, bool] = {array.name: False for array in program.inputs}
    made_of = {array.name: frozenset({array.name}) for array in program.inputs}
    found: set[str] = set()
    sizes = dict(program.sizes)

    def inputs(expr: Expr) -> frozenset[str]:
        below = operands(expr)
        return made_of[expr.name] if isinstance(expr, Use) else frozenset().union(*map(inputs, below))

    def is_never_negative(expr: Expr) -> bool:
        below = operands(expr)
        signs = [is_never_negative(operand) for operand in below]
        if isinstance(expr, Use):
            return never[expr.name]
        if not isinstance(expr, Call):
            return all(signs) or (isinstance(expr, Product) and len(below) == 2 and below[0] == below[1])
        row = FUNCTIONS[expr.function]
        signs += [number(scalar, sizes) >= 0 for scalar in expr.numbers if scalar is not None]
        for place, operand, sign in zip(places(row, expr.numbers), below, signs, strict=False):
            if _POSITIVE_ONLY.get(expr.function) == place and not sign:
                found.update(inputs(operand))
        kept = signs[1:] if expr.function == "where" and expr.numbers[:1] in ((), (None,)) else signs
        keeps = expr.function in _KEEP_SIGN and all(kept)
        return expr.function in _NEVER_NEGATIVE or keeps or (expr.function == "maximum" and any(signs))

    for statement in every_statement(program):
        never[statement.name] = is_never_negative(statement.expr)
        made_of[statement.name] = inputs(statement.expr)
    return frozenset(found)


def to_be_told_apart(program: Program) -> frozenset[str]:
    """The inputs of which floats are made that are compared with one another: `p == max_E(p)`. Where two are alike but
    for rounding, that decides, and no result says whether it is right."""
    made_of = {array.name: frozenset({array.name}) for array in program.inputs}
    found: set[str] = set()

    def inputs(expr: Expr) -> frozenset[str]:
        below = operands(expr)
        of = made_of.get(expr.name, frozenset()) if isinstance(expr, Use) else frozenset().union(*map(inputs, below))
        is_compared = isinstance(expr, Call) and FUNCTIONS[expr.function].gives is Gives.BOOL
        if is_compared and len(below) == 2 and all(each.dtype.kind is Kind.FLOAT for each in below):
            found.update(of)
        return of

    for _ in range(2):  # what a loop carries is made of what it is bound to at the end of a trip, too
        for statement in every_statement(program):
            made_of[statement.name] = made_of.get(statement.name, frozenset()) | inputs(statement.expr)
    return frozenset(found)


def dims_of_extremes(program: Program) -> frozenset[str]:
    """The dims that a largest or least value is taken over: `max_E(p)`."""
    calls = [each for statement in every_statement(program) for each in parts_of(statement.expr)]
    extremes = [each for each in calls if isinstance(each, Call) and FUNCTIONS[each.function].name in ("max", "min")]
    return frozenset(dim for each in extremes for dim in each.over)


def _is_cut(expr: Call) -> bool:
    """Whether floats are made whole numbers: of those below 1 nothing is left."""
    return expr.dtype.kind is Kind.INT and any(each.dtype.kind is Kind.FLOAT for each in expr.operands)


def _is_square(expr: Product) -> bool:
    """Whether what is summed is never negative, so that nothing cancels: sum_J(A ⊙ A), sum_J(exp(A))."""
    only = expr.operands[0]
    if (
        len(expr.operands) == 1
        and isinstance(only, Product)
        and set(only.dims) >= {d for o in only.operands for d in o.dims}
    ):
        return _is_square(only)
    if len(expr.operands) == 1:
        return isinstance(only, Call) and only.function in _NEVER_NEGATIVE
    return expr.operands[0] == expr.operands[1]


assert FUNCTIONS.keys() >= _POSITIVE_ONLY.keys() | _NEVER_NEGATIVE | _KEEP_SIGN | _BOUNDED | _STRAIGHT | _SCALED
