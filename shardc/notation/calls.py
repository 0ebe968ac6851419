"""Functions, operators, casts and numbers: which dims their results have, and of what type they are.

What an expression gives is an array's expression, or a number; a function of numbers alone is a number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from shardc.errors import ShardcError, Span
from shardc.ir.calls import holds, meeting, no_room, places, result_type
from shardc.ir.dtypes import DTYPES, DType, Kind, promoted
from shardc.ir.dtypes import dtype as dtype_of
from shardc.ir.expressions import Call, Expr, Named, Product, Use, uses
from shardc.ir.functions import FUNCTIONS, Function, Gives
from shardc.ir.scalars import Folded, Literal, Scalar, Size, is_whole, number, sizes_in
from shardc.notation import tree
from shardc.notation.unknown import listed

Operand: TypeAlias = Expr | Scalar


def dims_of(operand: Operand) -> tuple[str, ...]:
    return operand.dims if isinstance(operand, Use | Product | Call | Named) else ()


def together(operands: Sequence[Operand]) -> tuple[str, ...]:
    """All dims of several operands, in the order of one that has them all, an array's before a mask's; else of first
    use.

    where(index_V == Token[B], Score[B, V], 0) is [B, V]: the mask by itself would be [V, B].
    """
    every = tuple(dict.fromkeys(dim for operand in operands for dim in dims_of(operand)))
    whole = [operand for operand in operands if len(dims_of(operand)) == len(every)]
    return next((dims_of(operand) for operand in sorted(whole, key=_is_spread)), every)


def _is_spread(operand: Operand) -> bool:
    """Whether the dims are in no array's order: those of a product, of no one operand, or of what is made of such."""
    waiting = [operand]
    while waiting:
        made = waiting.pop()
        if not isinstance(made, Call | Product) or (isinstance(made, Call) and not FUNCTIONS[made.function].keeps_dims):
            return False
        waiting += [each for each in made.operands if set(each.dims) == set(made.dims) and _is_alike(each, made)]
    return True


def _is_alike(operand: Expr, made: Call | Product) -> bool:
    """Whether the dims of what is made stand as the operand's: a product may leave them in any order."""
    return isinstance(made, Call) or operand.dims == made.dims


def in_order(array: Expr, dims: tuple[str, ...]) -> Expr:
    """What is spread over all these dims, in the order in which it is read: nothing has to be transposed."""
    if array.dims == dims or set(array.dims) != set(dims) or not _is_spread(array):
        return array
    assert isinstance(array, Call | Product)
    return replace(array, dims=dims, operands=tuple(in_order(each, dims) for each in array.operands))


def applied(
    function: str,
    operands: Sequence[Operand],
    span: Span | None,
    over: tuple[str, ...] = (),
    place: Span | None = None,
) -> Operand:
    """A function of arrays and numbers, elementwise or over dims. `place` is where its name stands."""
    row = FUNCTIONS[function]
    arrays = [operand for operand in operands if isinstance(operand, Use | Product | Call | Named)]
    numbers = [operand for operand in operands if isinstance(operand, Literal | Size | Folded)]
    if not arrays:
        return _folded(row, numbers, place or span)
    if len(arrays) == 2 and not row.conditions:
        arrays = [*meeting_as(*arrays)]
    met = _met(row, arrays, operands, place or span)
    dims = together(operands) if row.keeps_dims else tuple(dim for dim in together(operands) if dim not in over)
    stand = tuple(operand if isinstance(operand, Literal | Size | Folded) else None for operand in operands)
    kept = stand if numbers else ()
    if row.keeps_dims:
        arrays = [in_order(array, dims) for array in arrays]
    return Call(function, tuple(arrays), dims, result_type(row, met), over, kept, span)


def _folded(row: Function, numbers: Sequence[Scalar], span: Span | None) -> Scalar:
    if row.gives is Gives.BOOL or row.conditions or row.over_dims:
        raise ShardcError(
            "SHC222", f"`{row.sign or row.name}` of numbers alone", span=span, help="an array is to be among them"
        )
    folded = Folded(row.name, tuple(numbers))
    _check_number(folded, None, span)
    return folded


def full(scalar: Scalar, dims: tuple[str, ...], dtype: DType, span: Span | None) -> Expr:
    """`h[B, D] = 0`: an array of one number."""
    if dtype.moves:
        raise ShardcError(
            "SHC214",
            f"an array of a number is one to compute with, and {dtype} is not",
            span=span,
            help="declare a type to compute in: `h: f32[B, D] = 0`",
        )
    if dtype.kind is Kind.INT and not is_whole(scalar):
        raise ShardcError(
            "SHC214", f"the array is {dtype}, and the number is not whole", span=span, help="write a whole number"
        )
    _check_number(scalar, dtype, span)
    return Call("full", (), dims, dtype, (), (scalar,), span)


def _check_number(scalar: Scalar, met: DType | None, span: Span | None) -> None:
    """SHC108 of a number that does not exist, SHC214 of one that the type has no room for, where no size is to come."""
    if sizes_in(scalar):
        return
    try:
        found = number(scalar, {})
    except ShardcError as error:
        raise error.at(span) from None
    if met is not None and not holds(met, found):
        raise no_room(met, found, span)


def _met(row: Function, arrays: Sequence[Expr], operands: Sequence[Operand], span: Span | None) -> DType:
    """The type in which the operands meet; SHC214 where they do not."""
    whole = [is_whole(operand) if isinstance(operand, Literal | Size | Folded) else None for operand in operands]
    for place, array in zip(places(row, whole), arrays, strict=True):
        _check_type(row, place in row.conditions, array, span)
    if row.gives is Gives.ASKED:
        return arrays[0].dtype
    plain = [a for place, a in zip(places(row, whole), arrays, strict=True) if place not in row.conditions]
    for left, right in pairwise(plain):
        promote(left, right, span)
    met = meeting(row, [array.dtype for array in arrays], whole)
    for operand in operands:
        if isinstance(operand, Literal | Size | Folded):
            _check_number(operand, met, span)
    return met


def _check_type(row: Function, is_condition: bool, array: Expr, span: Span | None) -> None:
    if is_condition and array.dtype.kind is not Kind.BOOL:
        raise ShardcError(
            "SHC214",
            f"`{row.name}` asks whether {name_of(array)} is true, and it is {array.dtype}",
            span=array.span or span,
            help="compare it: `A != 0`",
        )
    is_truth = row.truths and array.dtype.kind is Kind.BOOL  # masks are made again too
    if not is_condition and row.gives is not Gives.ASKED and not is_truth:
        computes(array.dtype, array, span)
    if array.dtype.kind is Kind.INT and not row.integers and row.gives is not Gives.FLOAT:
        raise ShardcError(
            "SHC214",
            f"`{row.name}` is not for integers, and {name_of(array)} is {array.dtype}",
            span=span,
            help="declare the array as a float, or cast it: `f32(A)`",
        )


def cast(call: tree.Call, operand: Operand) -> Expr:
    """`bf16(A)`: to another type, by rounding where that has fewer digits."""
    if call.over or len(call.operands) != 1:
        raise ShardcError("SHC222", f"`{call.function}` casts one array", span=call.name_span, help="write `f32(A)`")
    if not isinstance(operand, Use | Product | Call | Named):
        raise ShardcError(
            "SHC214",
            "a number has no type of its own, but that of the array it meets",
            span=call.span,
            help="drop the cast, or cast the array",
        )
    wanted, given = dtype_of(call.function, call.name_span), operand.dtype
    if wanted == given:
        return operand
    for dtype in (wanted, given):
        if dtype.kind is Kind.COMPLEX or (dtype is wanted and dtype.moves and dtype.kind is not Kind.BOOL):
            raise ShardcError(
                "SHC214", f"no cast from {given} to {wanted}", span=call.name_span, help="cast to a type to compute in"
            )
    return _cast(operand, wanted, call.span)


def _cast(operand: Expr, wanted: DType, span: Span | None) -> Call:
    given = operand.dtype
    is_exact = wanted.kind is given.kind and given.adds and promoted(wanted, given) == wanted
    return Call("widen" if is_exact else "cast", (operand,), operand.dims, wanted, span=span)


def mean(operand: Expr, over: tuple[str, ...], summed: Expr, span: Span | None) -> Expr:
    """`mean_J(A)` is `sum_J(A) / |J|`, so that it may stay unreduced."""
    count: Scalar = Size(over[0])
    for dim in over[1:]:
        count = Folded("mul", (count, Size(dim)))
    found = applied("div", (summed, count), span)
    assert isinstance(found, Call)
    return found


def as_float(operand: Expr, span: Span | None) -> Expr:
    """Integers as f32, as JAX averages them."""
    if operand.dtype.kind is not Kind.INT:
        return operand
    wanted = DTYPES["f64" if operand.dtype.is_wide else "f32"]
    return Call("cast", (operand,), operand.dims, wanted, span=span)


def check_nested(
    left: Operand, right: Operand, sign: str, span: Span | None, summed: Callable[[], str], kept: Collection[str] = ()
) -> None:
    """One side may lack dims of the other, but not each of the other; positions are met each with each.

    `A[I, J] + b[J]` repeats b along I, `index_T - index_S` is [T, S]; `a[I] + b[J]` is rather a slip. `kept` are the
    dims that a plain `·` in its place would keep; `summed` tells where a dim was lost on the way, if one was.
    """
    mine, others = dims_of(left), dims_of(right)
    if set(mine) <= set(others) or set(others) <= set(mine) or (_is_of_positions(left) and _is_of_positions(right)):
        return
    raise ShardcError(
        "SHC210",
        f"`{sign}` of {listed(mine)} and {listed(others)}: neither has all dims of the other",
        span=span,
        help=summed()
        or "the smaller is repeated along the dims it lacks, so the larger must have them all; of each with each "
        f"it is `{_each_with_each(left, right, sign, kept)}`",
    )


def _is_of_positions(operand: Operand) -> bool:
    """Whether it is made of `index_T` and numbers alone."""
    return not isinstance(operand, Use | Product | Call | Named) or not any(uses(operand))


def _each_with_each(left: Operand, right: Operand, sign: str, kept: Collection[str]) -> str:
    """How two operands are met each with each, as they are written: by a `·` where that sums none of their dims, else
    with the left one repeated along what it lacks, whatever stands around them."""
    one, other = _both_written(left, right)
    if {*dims_of(left), *dims_of(right)} <= {*kept} and sign in ("⊙", "/"):
        inverse = _bracketed(other, right) if sign == "⊙" else f"(1 / {_bracketed(other, right)})"
        return f"{_bracketed(one, left)} · {inverse}"
    lacks = [dim for dim in dims_of(right) if dim not in dims_of(left)]
    return f"{repeated(one, lacks)} {sign} {_bracketed(other, right)}"


def repeated(written: str, along: Sequence[str]) -> str:
    """How what is written so is repeated along dims that it lacks."""
    first, *others = (f"index_{dim} >= 0" for dim in along)
    for other in others:
        first = f"and({first}, {other})"
    return f"where({first}, {written}, 0)"


def _both_written(left: Operand, right: Operand) -> tuple[str, str]:
    """Two operands as they are written; or two letters, where one is long."""
    one, other = written(left, ""), written(right, "")
    return (one, other) if one and other else ("A", "B")


def written(operand: Operand, otherwise: str) -> str:
    """An operand as it is written, if its place is known, and is a line with both ends of its brackets."""
    span = getattr(operand, "span", None)
    if span is None or not isinstance(operand, Use | Product | Call | Named):
        return otherwise
    places = [use.span for use in uses(operand) if use.span is not None]
    is_all = all(span.start <= place.start and place.end <= span.end for place in places)
    text: str = span.text
    is_line = len(text) <= 60 and "\n" not in text and text.count("(") == text.count(")")
    return text if is_all and is_line else otherwise


def _bracketed(text: str, operand: Operand) -> str:
    return text if text.isidentifier() or isinstance(operand, Use) else f"({text})"


def name_of(operand: Operand) -> str:
    """What a message calls an operand."""
    if isinstance(operand, Use):
        return f"`{operand.name}`"
    span = operand.span if isinstance(operand, Product | Call | Named) else None
    text = span.text if span else ""
    return f"`{text}`" if text and len(text) <= 60 and "\n" not in text else "the operand"


def meeting_as(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Two operands; `where(M, 1.0, 0.5)`, which is of numbers alone, in the type of the float that it meets, as JAX has
    it: of `where(M, 1.0, 0.5) ⊙ A` with A in bf16 that is bf16, and with a name of its own as well."""
    return _as_met(left, right), _as_met(right, left)


def _as_met(operand: Expr, other: Expr) -> Expr:
    if operand.dtype == other.dtype or {operand.dtype.kind, other.dtype.kind} != {Kind.FLOAT}:
        return operand
    if _meets_as_numbers(other) or not _meets_as_numbers(operand):
        return operand
    if isinstance(operand, Call):
        return replace(operand, dtype=other.dtype)
    return _cast(operand, other.dtype, operand.span)


def _meets_as_numbers(operand: Expr) -> bool:
    return operand.of_numbers if isinstance(operand, Use) else is_of_numbers(operand)


def is_of_numbers(operand: Expr) -> bool:
    """Whether all but its conditions are numbers."""
    if not isinstance(operand, Call) or not operand.numbers:
        return False
    row = FUNCTIONS[operand.function]
    return row.gives is Gives.SAME and bool(row.conditions) and places(row, operand.numbers) == row.conditions


def promote(left: Expr, right: Expr, span: Span | None) -> DType:
    """The type that JAX gives two operands together; SHC214 where it gives none, or one that only moves."""
    found = promoted(left.dtype, right.dtype)
    if found is None:
        raise ShardcError(
            "SHC214",
            f"{name_of(left)} is {left.dtype} and {name_of(right)} is {right.dtype}, and JAX has no type for both",
            span=span,
            help="declare both as one type, or cast one: `bf16(A)`",
        )
    computes(found, left if left.dtype == found else right, span)
    return found


def computes(dtype: DType, operand: Expr, span: Span | None) -> None:
    if dtype.moves:
        raise ShardcError(
            "SHC214",
            f"{name_of(operand)} is {dtype}; arrays of that type move, and nothing is computed with them",
            span=span,
            help="declare it as a type to compute in, say bf16, or cast it: `bf16(A)`",
        )
