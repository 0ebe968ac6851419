"""Bytes that no method gets below.

A program's bound adds those of outputs that have no input in common: each step of a plan moves one array, and so serves
one of them. Of outputs that share an input the largest counts, since what is moved for one may serve the others:

    B[I, J] = A[I_X, J];  C[I, J_X] = A       B needs 3/4 of A, C of what B has nothing
    B[I, J] = A[I_X, J];  D[I, J] = C[I_X, J]     3/4 of A, and 3/4 of C

What is computed on the way is seen through: an output needs what it would, were all inputs but one or two known to all.

    relu(A[I, J_X] · V[J, K]) + B → C[I, K]       what the product does
    sum_J(A[I, J_X]) ⊙ V[I, K] → C[I, K]          a number for each row, to add partial sums
    relu(x · W) · V[F, D_X] → C[B_X, D]           what a product of V and a known array does, as far as that is of rank
    for L { S[L, I, K] = A[L, I, J_X] · V[L, J, K] }      what one trip does, for each
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from shardc.cost.bounds import bytes_to_reshard
from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands
from shardc.ir.functions import FUNCTIONS, Gives
from shardc.ir.plan import Schedule
from shardc.ir.program import For, Input, Program, read_by
from shardc.ir.sharding import Dims, Sharding
from shardc.planner.bounds.received import Matmul, Operand, received
from shardc.planner.bounds.sent import by_products, sent

_SUMS = ("add", "sub")


@dataclass(frozen=True, slots=True)
class _Needs:
    """What an array needs of an input: for each element along these dims at least one number, made of the input's.

    `sharding` is where the input lies along them; over the axes of dims that were summed its parts are partial sums.
    """

    name: str
    dims: Dims
    sharding: Sharding
    itemsize: int  # the least of any type that it has had: what is sent may be of any
    is_given: bool = True  # the input itself, in whichever sharding


@dataclass(frozen=True, slots=True)
class _Multiplied:
    """What an array needs that has the elements of the product of two inputs: so often what one product does."""

    operands: tuple[_Needs, _Needs]
    dims: Dims
    itemsize: int
    along: Dims  # the dims of the loops in which it is done, which are none of the product's own
    times: int = 1  # with rows of their own for both operands
    is_of_inputs: bool = True  # and not of an input and what is known to all
    cut: tuple[tuple[str, int], ...] = ()  # so much of a dim alone is looked at


@dataclass(frozen=True, slots=True)
class _Value:
    """What a name stands for: what it needs, each by itself; the inputs that it was made from, and those of which each
    alone makes it zero where it is zero.

    `rank` has some of its dims, and of which rank it can be as a matrix of these by the others; None if it is of full
    rank whichever they are.
    """

    dims: Dims
    needs: tuple[_Needs | _Multiplied, ...]
    inputs: frozenset[str]
    zero_with: frozenset[str] = frozenset()
    rank: Mapping[frozenset[str], int] | None = field(default_factory=dict)

    def seen_as(self, dims: Dims, along: Dims = ()) -> _Value:
        """Under other dims, position by position; in loops but for those that they run along."""
        own = tuple(dim for dim in self.dims if dim not in along) if len(dims) < len(self.dims) else self.dims
        if own == dims:
            return self
        new = dict(zip(own, dims, strict=True))
        kept = [need for need in self.needs if isinstance(need, _Needs)]
        needs = tuple(replace(need, dims=tuple(new.get(dim, dim) for dim in need.dims)) for need in kept)
        return _Value(dims, needs, self.inputs, self.zero_with, None if self.rank is None else {})


def lower_bound(schedule: Schedule) -> int:
    """The wire bytes that every plan of the program needs; 0 where none is known.

    Of what an output needs the largest counts: of an input in another sharding, the most bytes that a device must hold
    and does not; of a product of two inputs what `received` and `sent` count. What is computed of both needs no less
    than of either, were the other known to all. Nothing of what lies, or may lie, as the planner likes.
    """
    program = schedule.program
    found: list[tuple[frozenset[str], int]] = []
    for value, dims, wanted in _outputs(program):
        bounds = [_bound(need, dims, wanted, program) for need in value.needs] if wanted is not None else []
        bound, inputs = max(bounds, default=0), value.inputs
        for other in [other for other in found if other[0] & inputs]:
            found.remove(other)
            inputs, bound = inputs | other[0], max(bound, other[1])
        found.append((inputs, bound))
    return sum(bound for _, bound in found)


def _outputs(program: Program) -> list[tuple[_Value, Dims, Sharding | None]]:
    """Each output's value, its dims, and its sharding if that is given."""
    by_name = {array.name: _given(array) for array in program.inputs}
    values, results = list(_values(program, by_name, ())), program.results
    return [(values[n], results[n].dims, results[n].pattern.exact) for n in program.outputs]


def _given(array: Input) -> _Value:
    exact = array.pattern.exact
    needs = () if exact is None else (_Needs(array.name, array.dims, exact, array.dtype.bytes),)
    return _Value(array.dims, needs, frozenset([array.name]), frozenset([array.name]), None)


def _values(program: Program, by_name: dict[str, _Value], along: Dims) -> Iterator[_Value]:
    """What the statements bind, in order, also noted in `by_name`; in a loop along a dim, of all trips together."""
    for statement in program.statements:
        if isinstance(statement, For):
            left = _of_loop(program, statement, by_name, along)
        else:
            found = _value(statement.expr, by_name, program, along).seen_as(statement.dims, along)
            left = {statement.name: found}
        yield from left.values()
        by_name |= left


def _of_loop(program: Program, loop: For, by_name: dict[str, _Value], along: Dims) -> dict[str, _Value]:
    """Of the rows that are stacked those of all trips are needed; of what is carried nothing is known."""
    inputs = frozenset[str]().union(*(by_name[name].inputs for name in read_by(loop)))
    carried = {name: _Value(by_name[name].dims, (), inputs) for name in loop.carried}
    inside, (trips,) = dict(by_name) | carried, program.shape((loop.dim,))
    for _ in _values(program.inside(loop), inside, (*along, loop.dim)):
        pass
    left = dict(carried)
    for rows in loop.stacked:
        needs = tuple(_repeated(need, loop.dim, trips) for need in inside[rows.name].needs)
        left[rows.name] = _Value(rows.dims, needs, inputs, inside[rows.name].zero_with)
    return left


def _repeated(need: _Needs | _Multiplied, dim: str, trips: int) -> _Needs | _Multiplied:
    """A product of two arrays of which each trip has rows of its own is done in each: of what is known to all any."""
    if isinstance(need, _Multiplied) and all(dim in each.dims for each in need.operands[: 1 + need.is_of_inputs]):
        return replace(need, times=need.times * trips)
    return need


def _value(expr: Expr, by_name: dict[str, _Value], program: Program, along: Dims) -> _Value:
    if isinstance(expr, Use):
        return by_name[expr.name].seen_as(expr.dims, along)
    below = [_value(operand, by_name, program, along) for operand in operands(expr)]
    if isinstance(expr, Named):
        return below[0]
    inputs = frozenset[str]().union(*(value.inputs for value in below))
    needs = [
        found
        for place, value in enumerate(below)
        for need in value.needs
        if _stands_alone(need, value, [*below[:place], *below[place + 1 :]], expr)
        and (found := _passed_on(need, expr)) is not None
    ]
    products = _products(expr, below, program, along) if isinstance(expr, Product) else ()
    return _Value(expr.dims, (*products, *needs), inputs, _zero_with(expr, below), _rank(expr, below, program))


def _rank(expr: Product | Call, below: Sequence[_Value], program: Program) -> Mapping[frozenset[str], int] | None:
    """Of a product of generic matrices what is summed limits it; what is computed element by element is as before."""
    if isinstance(expr, Call) or not any({*value.dims}.difference(expr.dims) for value in below):
        return _rank_of_elements(expr, below)
    if len(below) != 2 or any(value.rank is not None for value in below):
        return {}
    left, right = (frozenset(value.dims) for value in below)
    inner = math.prod(program.shape(tuple(left & right)))
    return {} if left & right & {*expr.dims} else {left - right: inner, right - left: inner}


def _rank_of_elements(expr: Product | Call, below: Sequence[_Value]) -> Mapping[frozenset[str], int] | None:
    """Of its operand; of a sum that of one which the others can leave alone, being zero; of a product, element by
    element, of any: rows and columns are scaled, and generic arrays of these ranks have at least as high a one."""
    function = expr.function if isinstance(expr, Call) else "mul"
    if _tells_little(function):
        return {}
    for place, value in enumerate(below):
        others = [*below[:place], *below[place + 1 :]]
        if function in _SUMS:
            is_left = all(other.zero_with - value.inputs for other in others)
        else:
            is_left = function in ("mul", "div") and all(_scales(other, value) for other in others)
        if value.dims == expr.dims and value.rank != {} and (not others or is_left):
            return value.rank
    return {}


def _scales(other: _Value, value: _Value) -> bool:
    """Whether an array keeps another's rank, element by element: it scales rows, or has numbers of its own. What is
    made of the same numbers alone may undo them, as in `x / x`."""
    if not {*value.dims} <= {*other.dims}:
        return bool(other.inputs)
    return other.rank != {} and bool(other.inputs - value.inputs)


def _zero_with(expr: Expr, below: Sequence[_Value]) -> frozenset[str]:
    every = [value.zero_with for value in below]
    if isinstance(expr, Product) or (isinstance(expr, Call) and expr.function == "mul"):
        return frozenset[str]().union(*every)
    if not isinstance(expr, Call) or not FUNCTIONS[expr.function].zero_at_zero:
        return frozenset()
    return every[0].intersection(*every[1:]) if len(every) == FUNCTIONS[expr.function].arity else frozenset()


def _stands_alone(need: _Needs | _Multiplied, value: _Value, others: Sequence[_Value], expr: Expr) -> bool:
    """Whether what an operand needs does not hang together with the other operands: it has no input in common with
    them; or it is added to what other inputs can make zero, so that `x + relu(x · W)` needs x, and `x - x` nothing."""
    names = {need.name} if isinstance(need, _Needs) else {operand.name for operand in need.operands}
    shared = [other for other in others if other.inputs & names]
    is_sum = isinstance(expr, Call) and expr.function in _SUMS
    return not shared or (is_sum and all(other.zero_with - value.inputs for other in shared))


def _passed_on(need: _Needs | _Multiplied, expr: Product | Call) -> _Needs | _Multiplied | None:
    """What an operation needs for its operand: as much, were all others known to all; of what is summed, the sums."""
    if isinstance(expr, Call) and _tells_little(expr.function):
        return None
    is_product = isinstance(expr, Product)
    summed = {dim for operand in expr.operands for dim in operand.dims if dim not in expr.dims}
    itemsize = min(need.itemsize, expr.dtype.bytes)
    if isinstance(need, _Multiplied):
        return None if is_product or summed & set(need.dims) else replace(need, itemsize=itemsize)
    gone = [axes for dim, axes in zip(need.dims, need.sharding.dims, strict=True) if dim in summed]
    kept = [(dim, axes) for dim, axes in zip(need.dims, need.sharding.dims, strict=True) if dim not in summed]
    unreduced = need.sharding.unreduced.union(*gone)
    sharding = Sharding(tuple(axes for _, axes in kept), unreduced)
    return _Needs(need.name, tuple(dim for dim, _ in kept), sharding, itemsize, is_given=False)


def _tells_little(function: str) -> bool:
    """Of `where` not every element is needed; of steps such as `sign` and `<` less than the number, as of `shift`."""
    row = FUNCTIONS[function]
    return bool(row.conditions) or row.gives is Gives.BOOL or row.is_flat or function == "shift"


def _products(expr: Product, below: Sequence[_Value], program: Program, along: Dims) -> Iterator[_Multiplied]:
    """Of two operands that have the elements of one input each; and of one that has, with the other known to all."""
    if len(below) != 2:
        return
    ends = [[need for need in value.needs if _is_whole(need, value, along)] for value in below]
    for left, right in product(*ends):
        if isinstance(left, _Needs) and isinstance(right, _Needs) and left.name != right.name:
            itemsize = min(expr.dtype.bytes, left.itemsize, right.itemsize)
            yield _Multiplied((left, right), expr.dims, itemsize, along)
    for (own, other), needs in zip((below, below[::-1]), ends, strict=True):
        for need in needs:
            cut = _cut(need, other, own, expr, program) if isinstance(need, _Needs) else None
            if isinstance(need, _Needs) and cut is not None and need.name not in other.inputs:
                known = replace(need, name="", dims=other.dims, sharding=Sharding(((),) * len(other.dims)))
                yield _Multiplied((need, known), expr.dims, min(expr.dtype.bytes, need.itemsize), along, 1, False, cut)


def _cut(
    need: _Needs, known: _Value, own: _Value, expr: Product, program: Program
) -> tuple[tuple[str, int], ...] | None:
    """How much of what is summed counts, where one operand is known to all: as much as that is of rank. Of the rest it
    is zero, or a number. None where its rank is not known, or devices do not hold as much of it each."""
    summed = frozenset(known.dims).difference(expr.dims)
    if known.rank is None:
        return ()
    if {*known.dims} & {*own.dims} & {*expr.dims} or summed not in known.rank:
        return None
    if known.rank[summed] >= math.prod(program.shape(tuple(summed))):
        return ()
    (dim,) = summed if len(summed) == 1 else ("",)
    axes = dict(zip(need.dims, need.sharding.dims, strict=True)).get(dim)
    is_even = axes is not None and known.rank[summed] % program.mesh.product(axes) == 0
    return ((dim, known.rank[summed]),) if is_even else None


def _is_whole(need: _Needs | _Multiplied, value: _Value, along: Dims) -> bool:
    """Whether each element of an array needs one of its own."""
    return isinstance(need, _Needs) and {*need.dims}.difference(along) == {*value.dims}.difference(along)


def _bound(need: _Needs | _Multiplied, dims: Dims, wanted: Sharding, program: Program) -> int:
    """What the devices that are to have an output so receive at least, for one of its needs."""
    axes = dict(zip(dims, wanted.dims, strict=True))
    if not {*need.dims} <= axes.keys():
        return 0
    lies = Sharding(tuple(axes[dim] for dim in need.dims), wanted.unreduced)
    if isinstance(need, _Multiplied):
        matmul = None if any(axes.get(dim) for dim in need.along) else _of_arrays(need, lies, program)
        if matmul is None:
            return 0
        by_work = by_products(matmul) if need.is_of_inputs else 0  # in another order of the products others are done
        return max(received(matmul), sent(matmul), by_work) * need.itemsize * need.times
    if lies.unreduced and not need.is_given:
        return 0
    total = math.prod(program.shape(need.dims)) * need.itemsize
    return bytes_to_reshard(total, need.sharding, lies, program.mesh)


def _of_arrays(found: _Multiplied, wanted: Sharding, program: Program) -> Matmul | None:
    """The product from its inputs; None if a dim is summed that one alone has."""
    left, right = (_row(operand, found.along) for operand in found.operands)
    alone = set(left.dims) ^ set(right.dims)
    if wanted.unreduced or not alone <= set(found.dims):
        return None
    return Matmul(program.mesh, dict(program.sizes) | dict(found.cut), left, right, Operand(found.dims, wanted))


def _row(operand: _Needs, along: Dims) -> Operand:
    """Of one trip."""
    lies = [(dim, axes) for dim, axes in zip(operand.dims, operand.sharding.dims, strict=True) if dim not in along]
    return Operand(tuple(dim for dim, _ in lies), Sharding(tuple(axes for _, axes in lies), operand.sharding.unreduced))
