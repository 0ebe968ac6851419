"""The steps of a function over a sharded dim: each device's own, then AllReduces of what is left of the array.

    max_J(A[I, J_X])         M[I]{max_X} = max_J A;  AllReduce
    logsumexp_J(A[I, J_X])   M[I] so;  S[I]{U_X} = sum_J exp(A - M);  AllReduce;  log S + M
    softmax_J(A[I, J_X])     M[I], S[I] so;  exp(A - M) / S

The array itself never moves. What each device does alone is priced as the function of a whole dim is, with
the step that leaves the result. The shift by M changes no result and no derivative, and none is taken through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shardc.ir.collectives import AllReduce, Move
from shardc.ir.expressions import Call
from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Einsum, Op, Rule, StepCost, ValueNumber
from shardc.ir.sharding import MAX, SUM, Array, Dims, Sharding
from shardc.rules.functions import reduced_across


class Steps(Protocol):
    """What appends steps: a Builder."""

    values: list[Array]

    def append(
        self,
        op: Op,
        operands: tuple[ValueNumber, ...],
        result: Array,
        cost: StepCost,
        rule: Rule,
        seen: tuple[Dims, ...] = (),
    ) -> ValueNumber: ...

    def move(self, value: ValueNumber, move: Move, name: str, rule: Rule) -> ValueNumber: ...

    def inner(self, expr: Call) -> str: ...

    def function_cost(self, expr: Call, value: ValueNumber) -> StepCost: ...


def is_across(call: Call, operand: Array, dims: Dims) -> bool:
    """Whether a function runs over a dim that is sharded; `dims` are the operand's where the expression names them."""
    return any(operand.sharding.dims[dims.index(dim)] for dim in call.over)


def across(steps: Steps, mesh: Mesh, call: Call, value: ValueNumber, name: str) -> ValueNumber:
    """The value of a function over a sharded dim of this one."""
    dims, lies = call.operands[0].dims, steps.values[value].sharding
    found = reduced_across(call.function, call.over, dims, call.dims, lies, mesh)
    assert found is not None, "only what the planner found"
    return _Across(steps, mesh, call, value, found[1]).named(name)


@dataclass(frozen=True, slots=True)
class _Across:
    steps: Steps
    mesh: Mesh
    call: Call
    value: ValueNumber
    axes: tuple[str, ...]

    @property
    def _dims(self) -> Dims:
        return self.call.operands[0].dims

    @property
    def _left(self) -> Dims:
        return tuple(dim for dim in self._dims if dim not in self.call.over)

    def named(self, name: str) -> ValueNumber:
        kind = FUNCTIONS[self.call.function].reduces
        if kind:
            return self._largest(self.call.function, name)
        shift = self._largest("shift", self.steps.inner(self.call))
        if self.call.function == "logsumexp":
            shift = self._finite(shift)
        off = self._apply("sub", (self.value, shift), self._dims, "exponents of at most 0")
        weights = self._apply("exp", (off,), self._dims, "each device's own")
        total = self._sum(weights, is_all=self.call.function == "logsumexp")
        if self.call.function == "softmax":
            return self._apply("div", (weights, total), self.call.dims, "shares of the sum", name=name)
        logarithm = self._apply("log", (total,), self._left, "its logarithm")
        return self._apply("add", (logarithm, shift), self.call.dims, "the shift back", name=name)

    def _finite(self, shift: ValueNumber) -> ValueNumber:
        """Of nothing but −inf the lowest number, so that the sum is 0; beside +inf the highest, so that it is +inf."""
        lowest = self.call.dtype.lowest
        above = self._apply("maximum", (shift,), self._left, "a shift above −inf", (None, lowest))
        return self._apply("minimum", (above,), self._left, "a finite shift", (None, -lowest))

    def _largest(self, function: str, name: str) -> ValueNumber:
        """Each device's largest or smallest, then that of all."""
        kind = FUNCTIONS[function].reduces
        dims = self.call.dims if function == self.call.function else self._left
        array = self._array(dims, name, unreduced=True, reduction=kind)
        word = "largest" if kind == MAX else "smallest"
        op = Apply(function, self.call.over)
        own = self.steps.append(
            op,
            (self.value,),
            array,
            self._cost(function == self.call.function),
            self._rule(f"each device's {word}"),
            (self._dims,),
        )
        return self.steps.move(own, AllReduce(self.axes, kind), name, self._rule(f"the {word} of all"))

    def _sum(self, weights: ValueNumber, is_all: bool) -> ValueNumber:
        name = self.steps.inner(self.call)
        array = self._array(self._left, name, unreduced=True)
        cost = self._cost(True) if is_all else StepCost()
        own = self.steps.append(Einsum(), (weights,), array, cost, self._rule("each device's sum"))
        return self.steps.move(own, AllReduce(self.axes), name, self._rule("the sum of all"))

    def _apply(
        self,
        function: str,
        operands: tuple[ValueNumber, ...],
        dims: Dims,
        words: str,
        numbers: tuple[float | None, ...] = (),
        name: str | None = None,
    ) -> ValueNumber:
        array = self._array(dims, name or self.steps.inner(self.call))
        seen = tuple(self._dims if value == self.value else self.steps.values[value].dims for value in operands)
        op = Apply(function, (), numbers)
        cost = self._cost(function == "div") if dims == self._dims else StepCost()
        return self.steps.append(op, operands, array, cost, self._rule(words), seen)

    def _cost(self, is_all: bool) -> StepCost:
        """Of the step that stands for all that each device does by itself: that which leaves shares, or the sum of a
        logarithm, which may be shared before it is taken; or of one that leaves elements on the way."""
        found = self.steps.function_cost(self.call, self.value)
        return found if is_all else StepCost(in_tiles=found.in_tiles)

    def _rule(self, words: str) -> Rule:
        return Rule(f"{self.call.function} over a sharded dim: {words}")

    def _array(self, dims: Dims, name: str, unreduced: bool = False, reduction: str = SUM) -> Array:
        given = self.steps.values[self.value]
        lies = tuple(given.sharding.dims[self._dims.index(dim)] for dim in dims)
        shape = tuple(given.shape[self._dims.index(dim)] for dim in dims)
        partial = frozenset(self.axes) if unreduced else frozenset[str]()
        return Array(name, dims, shape, Sharding(lies, partial, reduction if unreduced else SUM), self.call.dtype)
