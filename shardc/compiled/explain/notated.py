"""A function as a program of the notation, read off its jaxpr, as far as the notation goes.

    d = dot_general x w1; e = relu d; f = dot_general e w2     Y[I_X, L] = relu(x[I_X, J] ·_J w1[J, K_Y]) ·_K w2[K_Y, L]

Products, sums, elementwise functions that the notation has, softmax; transposes and conversions say nothing new, nor
do shardings that the function asks for in between: the planner is to choose them. Anything else, where a result
depends on it, and there is no such program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardc.errors import ShardcError
from shardc.ir.dtypes import DType, dtype
from shardc.ir.functions import FUNCTIONS, Gives


class Unsaid(Exception):
    """The notation has no word for it."""


# What a jaxpr of another version of JAX, or of a primitive with other parameters, may do to a reader.
ODD = (Unsaid, ShardcError, LookupError, AttributeError, TypeError, ValueError)


class Dim:
    """A dim of some array; dims that must agree become one."""

    __slots__ = ("_same", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._same: Dim | None = None

    @property
    def root(self) -> Dim:
        found = self
        while found._same is not None:
            found = found._same
        return found

    def unify(self, other: Dim) -> None:
        one, two = self.root, other.root
        if one.size != two.size:
            raise Unsaid("sizes differ")
        if one is not two:
            two._same = one


@dataclass(eq=False, slots=True)
class Node:
    """An array that is given, multiplied, summed (`·`), or the result of a function."""

    op: str  # "given", "·", or a function's name
    operands: tuple[Node, ...]
    dims: tuple[Dim, ...]
    dtype: DType
    over: tuple[Dim, ...] = ()
    number: int = -1  # of what is given


@dataclass(frozen=True, slots=True)
class Value:
    """A node in some order of its dims, None where it is spread along another's; no node for a scalar."""

    node: Node | None
    dims: tuple[Dim | None, ...] = ()

    @property
    def array(self) -> Node:
        if self.node is None:
            raise Unsaid("a scalar")
        return self.node

    def known(self) -> tuple[Dim, ...]:
        found = tuple(dim for dim in self.dims if dim is not None)
        if len(found) < len(self.dims):
            raise Unsaid("spread")
        return found


@dataclass(slots=True)
class Trace:
    """Walks a jaxpr; what cannot be said is missed only where it is asked for."""

    given: list[Node] = field(default_factory=list)
    values: dict[Any, Value] = field(default_factory=dict)

    def run(self, jaxpr: Any, arguments: Sequence[Value] | None = None) -> list[Value | None]:
        """The values of a jaxpr's results; None for what cannot be said."""
        if arguments is None:
            arguments = [self._given(variable.aval) for variable in jaxpr.invars]
        self.values |= dict(zip(jaxpr.invars, arguments, strict=True))
        for variable in jaxpr.constvars:
            if variable.aval.shape == ():
                self.values[variable] = Value(None)
        for equation in jaxpr.eqns:
            try:
                found = self._equation(equation)
            except ODD:
                continue
            self.values |= {v: value for v, value in zip(equation.outvars, found, strict=True) if value is not None}
        return [self._found(variable) for variable in jaxpr.outvars]

    def _given(self, aval: Any) -> Value:
        dims = tuple(Dim(size) for size in aval.shape)
        self.given.append(Node("given", (), dims, dtype(str(aval.dtype)), number=len(self.given)))
        return Value(self.given[-1], dims) if dims else Value(None)

    def _found(self, variable: Any) -> Value | None:
        if hasattr(variable, "val"):  # a literal
            return Value(None) if getattr(variable.aval, "shape", ()) == () else None
        return self.values.get(variable)

    def value(self, variable: Any) -> Value:
        found = self._found(variable)
        if found is None:
            raise Unsaid("not said")
        return found

    def _equation(self, equation: Any) -> Sequence[Value | None]:
        name = equation.primitive.name
        if name in _CALLS:
            return self._call(equation)
        rule = _RULES.get(name)
        if rule is None:
            raise Unsaid(name)
        return [rule(self, equation)]

    def _call(self, equation: Any) -> Sequence[Value | None]:
        """A function that the notation has by name; else what stands inside."""
        params = equation.params
        inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), None)
        if inner is None:
            raise Unsaid("a call of nothing")
        inside = getattr(inner, "jaxpr", inner)
        arguments = [self.value(variable) for variable in equation.invars]
        word = FUNCTIONS.get(str(params.get("name", "")))
        arrays = [value for value in arguments if value.node is not None]
        if (
            word is not None
            and word.arity == 1
            and word.gives is Gives.SAME
            and not word.over_dims
            and len(arrays) == 1
        ):
            return [_unary(word.name, arrays[0], equation)]
        return Trace(values=dict(self.values)).run(inside, arguments)


def _kind(equation: Any) -> DType:
    return dtype(str(equation.outvars[0].aval.dtype))


def _unary(name: str, value: Value, equation: Any) -> Value:
    return Value(Node(name, (value.array,), value.array.dims, _kind(equation)), value.dims)


def _named(name: str) -> Callable[[Trace, Any], Value]:
    return lambda trace, equation: _unary(name, trace.value(equation.invars[0]), equation)


def _same(trace: Trace, equation: Any) -> Value:
    return trace.value(equation.invars[0])


def _power(trace: Trace, equation: Any) -> Value:
    if equation.params.get("y", 2) != 2:
        raise Unsaid("a power")
    return _unary("square", trace.value(equation.invars[0]), equation)


def _transpose(trace: Trace, equation: Any) -> Value:
    value = trace.value(equation.invars[0])
    return Value(value.array, tuple(value.dims[place] for place in equation.params["permutation"]))


def _broadcast(trace: Trace, equation: Any) -> Value:
    value = trace.value(equation.invars[0])
    if value.node is None:
        return value
    places = dict(zip(equation.params["broadcast_dimensions"], value.dims, strict=True))
    sizes = equation.params["shape"]
    found = [places.get(place) for place in range(len(sizes))]
    return Value(value.node, tuple(d if d and d.size == s else None for d, s in zip(found, sizes, strict=True)))


def _dot(trace: Trace, equation: Any) -> Value:
    left, right = (trace.value(variable) for variable in equation.invars)
    dims = left.known(), right.known()
    contracted, batched = equation.params["dimension_numbers"]
    for pairs in (contracted, batched):
        for one, other in zip(*pairs, strict=True):
            dims[0][one].unify(dims[1][other])
    free = [
        [dim for place, dim in enumerate(dims[side]) if place not in contracted[side] and place not in batched[side]]
        for side in (0, 1)
    ]
    result = (*(dims[0][place] for place in batched[0]), *free[0], *free[1])
    return Value(Node("·", (left.array, right.array), result, _kind(equation)), result)


def _reduce(op: str) -> Callable[[Trace, Any], Value]:
    def reduce(trace: Trace, equation: Any) -> Value:
        value, axes = trace.value(equation.invars[0]), equation.params["axes"]
        kept = tuple(dim for place, dim in enumerate(value.known()) if place not in axes)
        over = tuple(dim for place, dim in enumerate(value.known()) if place in axes)
        return Value(Node(op, (value.array,), kept, _kind(equation), over), kept)

    return reduce


def _elementwise(op: str) -> Callable[[Trace, Any], Value]:
    def elementwise(trace: Trace, equation: Any) -> Value:
        values = [trace.value(variable) for variable in equation.invars]
        arrays = [value for value in values if value.node is not None]
        if len(arrays) == 1:
            return _with_scalar(op, equation, arrays[0])
        if len(arrays) != 2:
            raise Unsaid(op)
        if op == "div":
            return _softmax(arrays[0], arrays[1], equation)
        if op not in ("add", "sub", "mul"):
            raise Unsaid(op)
        return _both(op, arrays[0], arrays[1], equation)

    return elementwise


def _with_scalar(op: str, equation: Any, value: Value) -> Value:
    """A factor changes no sharding and is left out; max(x, 0) is relu; max(x, -inf) is x."""
    if op in ("mul", "div") and not hasattr(equation.invars[0], "val"):
        return value
    literal = next((v.val for v in equation.invars if hasattr(v, "val")), None)
    if op == "mul" and literal is not None:
        return value
    if op == "max" and literal is not None and float(literal) == 0:
        return _unary("relu", value, equation)
    if op == "max" and literal is not None and float(literal) == float("-inf"):
        return value
    raise Unsaid(op)


def _both(op: str, left: Value, right: Value, equation: Any) -> Value:
    for one, other in zip(left.dims, right.dims, strict=True):
        if one is not None and other is not None:
            one.unify(other)
    dims = tuple(a or b for a, b in zip(left.dims, right.dims, strict=True))
    known = tuple(dim for dim in dims if dim is not None)
    if len(known) < len(dims):
        raise Unsaid("spread")
    if op == "mul" and left.node is right.node:
        return _unary("square", left, equation)
    return Value(Node("·" if op == "mul" else op, (left.array, right.array), known, _kind(equation)), known)


def _softmax(top: Value, bottom: Value, equation: Any) -> Value:
    """exp(x − max_J x) / sum_J exp(x − max_J x)."""
    below, above = bottom.array, top.array
    if below.op != "·" or below.operands != (above,) or above.op != "exp":
        raise Unsaid("a quotient")
    shifted = above.operands[0]
    if shifted.op == "sub" and shifted.operands[1].op == "max" and shifted.operands[1].operands == shifted.operands[:1]:
        shifted = shifted.operands[0]
    return Value(Node("softmax", (shifted,), above.dims, _kind(equation), below.over), top.dims)


_CALLS = frozenset({"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint"})
_RULES: dict[str, Callable[[Trace, Any], Value]] = {
    "dot_general": _dot,
    "transpose": _transpose,
    "broadcast_in_dim": _broadcast,
    "reduce_sum": _reduce("·"),
    "reduce_max": _reduce("max"),
    "integer_pow": _power,
    "logistic": _named("sigmoid"),
    **{name: _named(name) for name in ("tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs", "square")},
    **{name: _elementwise(name) for name in ("add", "sub", "mul", "div", "max")},
    "add_any": _elementwise("add"),
    **{
        name: _same
        for name in ("convert_element_type", "copy", "sharding_constraint", "reshard", "mesh_cast", "stop_gradient")
    },
    "optimization_barrier": _same,
    "layout_constraint": _same,
}
