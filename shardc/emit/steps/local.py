"""The lines of local steps: products, functions of ir.functions, loops."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from shardc.emit.allowed import HIGHEST, LAID, LEFT, RIGHT, TOTAL, TRIP
from shardc.emit.exprs import (
    Attr,
    BinOp,
    Call,
    Code,
    Const,
    Each,
    Expr,
    Index,
    Items,
    Keyword,
    Line,
    Name,
    Scan,
    axes_argument,
    call,
    method,
    numbers,
    size_of,
)
from shardc.errors import ShardcError
from shardc.ir.calls import arguments, meeting, places, result_type, whole
from shardc.ir.dtypes import DType, accumulator, multiplied
from shardc.ir.functions import FUNCTIONS, Function, Gives
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply
from shardc.ir.scalars import Number
from shardc.ir.sharding import Array, Dims


def letters(dims: Dims) -> dict[str, str]:
    """A letter for each dim: its initial in lower case where all of these differ, else a, b, c, …."""
    if len(dims) > len(string.ascii_letters):
        raise ShardcError(
            "SHC402", f"{len(dims)} dims meet in one product; an einsum has letters for 52", help="split the statement"
        )
    initials = [dim[0].lower() for dim in dims]
    if len(set(initials)) == len(dims):
        return dict(zip(dims, initials, strict=True))
    return dict(zip(dims, string.ascii_lowercase + string.ascii_uppercase, strict=False))


def einsum(operands: tuple[Array, ...], names: tuple[Expr, ...], result: Array) -> Call:
    """`jnp.einsum("ij,jk->ik", A, B)`; sums of narrow types are kept in f32 or int32.

    Of operands of two types one is brought to the other's, or both to a third: `A.astype(jnp.float32)`.
    """
    names, subscripts = _alike(operands, names), _subscripts(operands, result)
    summing = summing_type(operands, result)
    if summing is None:
        return call("jnp.einsum", subscripts, *names)
    if len(operands) == 1:  # a sum alone does not heed a preferred type
        return call("jnp.einsum", subscripts, as_type(names[0], summing))
    return call("jnp.einsum", subscripts, *names, preferred_element_type=type_name(summing))


def summed_as_is(operands: tuple[Array, ...], names: tuple[Expr, ...], result: Array) -> Call:
    """`jnp.einsum("ij,jk->ik", A, B)`, whatever it adds up in."""
    return call("jnp.einsum", _subscripts(operands, result), *_alike(operands, names))


def with_vector_twice(product: Expr, place: int) -> Expr:
    """`jnp.einsum("nm,am->an", A, jnp.broadcast_to(v, (2,) + v.shape))` of `jnp.einsum("nm,m->n", A, v)`."""
    match product:
        case Call(Attr(value, name), arguments):  # rounded to the type of the result
            return Call(Attr(with_vector_twice(value, place), name), arguments)
        case Call(function, (Const(str(subscripts)), *operands)):
            shape = BinOp(Items((Const(2),)), "+", Attr(operands[place], "shape"))
            operands[place] = call("jnp.broadcast_to", operands[place], shape)
            return Call(function, (Const(_with_rows(subscripts, place)), *operands))
        case _:
            raise AssertionError("a product is an einsum")


def _with_rows(subscripts: str, place: int) -> str:
    """`nm,am->an` of `nm,m->n`: a letter that it has not."""
    given, left = subscripts.split("->")
    terms = given.split(",")
    letter = next(each for each in string.ascii_letters if each not in subscripts)
    terms[place] = letter + terms[place]
    return ",".join(terms) + "->" + letter + left


def by_terms(product: Expr, arrays: tuple[Array, ...], dim: str) -> Expr:
    """`sum(jnp.einsum("bm,bn->bmn", left, right) for left, right in zip(jnp.unstack(A, axis=2), …))` of
    `jnp.einsum("bmk,bkn->bmn", A, B)`, K term by term."""
    match product:
        case Call(Attr(value, name), arguments):  # rounded to the type of the result
            return Call(Attr(by_terms(value, arrays, dim), name), arguments)
        case Call(function, (Const(str(subscripts)), *operands)):
            places = [array.dims.index(dim) for array in arrays]
            letter = subscripts[places[0]]
            term = Call(function, (Const(subscripts.replace(letter, "")), Name(LEFT), Name(RIGHT), *operands[2:]))
            rows = (call("jnp.unstack", x, axis=Const(at)) for x, at in zip(operands, places, strict=False))
            return call("sum", Each(term, (LEFT, RIGHT), call("zip", *rows)))
        case _:
            raise AssertionError("a product is an einsum")


def _subscripts(operands: tuple[Array, ...], result: Array) -> Const:
    known = letters(tuple(dict.fromkeys(dim for array in operands for dim in array.dims)))
    *given, left = ("".join(known[dim] for dim in array.dims) for array in (*operands, result))
    return Const(",".join(given) + "->" + left)


def summing_type(operands: tuple[Array, ...], result: Array) -> DType | None:
    """The type in which a product adds up, or None if that is simply the operands' own."""
    if len(operands) == 1 and set(operands[0].dims) == set(result.dims):
        return None  # a transposition
    factors = multiplied(array.dtype for array in operands)
    adds = any(dim not in result.dims for array in operands for dim in array.dims)
    if factors == result.dtype and not adds:
        return None  # rounded once either way
    widest = accumulator(factors)
    chosen = result.dtype if result.dtype.bytes > widest.bytes else widest
    return None if factors == chosen else chosen


def rounded(value: Expr, operands: tuple[Array, ...], result: Array) -> Expr:
    """A product of the type in which it adds up, of its result's."""
    summing = summing_type(operands, result)
    return value if summing in (None, result.dtype) else as_type(value, result.dtype)


def _alike(operands: tuple[Array, ...], names: tuple[Expr, ...]) -> tuple[Expr, ...]:
    wanted = multiplied(array.dtype for array in operands)
    pairs = zip(operands, names, strict=True)
    return tuple(name if array.dtype == wanted else as_type(name, wanted) for array, name in pairs)


def as_type(value: Expr, dtype: DType | None) -> Expr:
    return value if dtype is None else method(value, "astype", type_name(dtype))


def in_order(places: Iterable[int]) -> Expr:
    """What is told to lie with its dims in this order, from the major to the minor."""
    return call(LAID, Name(""), call("Layout", Items(tuple(map(Const, places)))))


def type_name(dtype: DType) -> Name:
    return Name(f"jnp.{dtype.jax}")


def aligned(value: Expr, dims: Dims, wanted: Dims) -> Expr:
    """The value with the wanted dims in order; those that it lacks, but for leading ones, have size 1."""
    present = tuple(dim for dim in wanted if dim in dims)
    if present != dims:
        value = call("jnp.transpose", value, Items(tuple(Const(dims.index(dim)) for dim in present)))
    first = wanted.index(present[0]) if present else len(wanted)
    missing = tuple(i - first for i, dim in enumerate(wanted) if dim not in dims and i > first)
    return call("jnp.expand_dims", value, numbers(missing)) if missing else value


def function(
    op: Apply, operands: tuple[Array, ...], names: tuple[Expr, ...], result: Array, mesh: Mesh | None = None
) -> Expr:
    """`jax.nn.softmax(A, axis=1)`, `jnp.add(A, B)`, `jnp.divide(A, 8)`; dims meet by name, types in one."""
    row = FUNCTIONS[op.function]
    if op.function == "index":
        return _positions(result, mesh)
    if op.function == "full":
        return _full(op.numbers[0], result, mesh)
    if row.gives is Gives.ASKED:
        return aligned(as_type(names[0], result.dtype), operands[0].dims, result.dims)
    if row.over_dims:
        return _over_dims(row, op.over, operands[0].dims, names[0], result.dims)
    met = meeting(row, [array.dtype for array in operands], whole(op.numbers))
    lacks = {*result.dims}.difference(*(array.dims for array in operands))
    sides = []
    for place, name, array in zip(places(row, op.numbers), names, operands, strict=True):
        typed = name if place in row.conditions or array.dtype == met else as_type(name, met)
        sides.append(aligned(typed, array.dims, result.dims))
    if lacks:
        sides[0] = call("jnp.broadcast_to", sides[0], _shape(result, mesh))
    numbers = [None if number is None else Const(number) for number in op.numbers]
    found = call(row.jax, *arguments(sides, numbers))
    return found if result.dtype == result_type(row, met) else as_type(found, result.dtype)


def _over_dims(row: Function, over: Dims, dims: Dims, name: Expr, wanted: Dims) -> Expr:
    axis = Keyword("axis", numbers(tuple(dims.index(dim) for dim in over)))
    left = dims if row.keeps_dims else tuple(dim for dim in dims if dim not in over)
    found = Call(Name(row.jax), (name, axis))
    return aligned(call("jax.lax.stop_gradient", found) if row.name == "shift" else found, left, wanted)


def exponentials(op: Apply, operand: Array, name: Expr, result: Array, target: str) -> list[Line | Expr]:
    """A softmax or logsumexp whose sum is a product with ones.

    highest = jax.lax.stop_gradient(jnp.max(S, axis=1))
    P = jnp.exp(jnp.subtract(S, jnp.expand_dims(highest, 1)))
    total = jnp.einsum("ij,aj->ai", P, …)
    P = jnp.divide(P, jnp.expand_dims(total[0].astype(jnp.bfloat16), 1))
    P = jnp.add(jnp.log(total[0].astype(jnp.bfloat16)), highest)                    of a logsumexp
    """
    place, made, highest = operand.dims.index(op.over[0]), Name(target), Name(HIGHEST)
    along, keeps = Const(place), FUNCTIONS[op.function].keeps_dims
    top, total = call("jnp.max", name, axis=along), as_type(Index(Name(TOTAL), 0), operand.dtype)
    if not keeps:  # of nothing but −inf the lowest number, so that the sum is 0; beside inf the highest, and it is inf
        lowest = operand.dtype.lowest
        top = call("jnp.minimum", call("jnp.maximum", top, Const(lowest)), Const(-lowest))
    shifted = call("jnp.subtract", name, call("jnp.expand_dims", highest, along))
    shares = call("jnp.divide", made, call("jnp.expand_dims", total, along))
    found = shares if keeps else call("jnp.add", call("jnp.log", total), highest)
    left = operand.dims if keeps else tuple(dim for dim in operand.dims if dim not in op.over)
    return [
        Line(HIGHEST, call("jax.lax.stop_gradient", top), ""),
        Line(target, call("jnp.exp", shifted), ""),
        Line(TOTAL, _summed_by_ones(operand, [place], made), ""),
        aligned(found, left, result.dims),
    ]


def summed_by_product(array: Array, name: Name, result: Array) -> list[Expr]:
    """A sum along some dims, of two equal rows: `jnp.einsum("ij,aj->ai", P, …)`, then
    `total[0].astype(jnp.bfloat16)`."""
    over = [place for place, dim in enumerate(array.dims) if dim not in result.dims]
    left = tuple(dim for dim in array.dims if dim in result.dims)
    total = as_type(Index(Name(""), 0), result.dtype)
    return [_summed_by_ones(array, over, name), aligned(total, left, result.dims)]


def _summed_by_ones(array: Array, over: Sequence[int], value: Name) -> Expr:
    """`jnp.einsum("ij,aj->ai", P, jnp.broadcast_to(jnp.bfloat16(1), (2, P.shape[1])), …)`: each sum twice."""
    known = letters(array.dims)
    own = [known[dim] for dim in array.dims]
    summed = "".join(own[place] for place in over)
    left = "".join(letter for letter in own if letter not in summed)
    subscripts = _with_rows(f"{''.join(own)},{summed}->{left}", 1)
    one = Call(type_name(array.dtype), (Const(1),))
    rows = Items((Const(2), *(size_of(value, place) for place in over)))
    ones, kept = call("jnp.broadcast_to", one, rows), type_name(accumulator(array.dtype))
    return call("jnp.einsum", Const(subscripts), value, ones, preferred_element_type=kept)


def _positions(result: Array, mesh: Mesh | None) -> Expr:
    """The positions of a device's block: `jax.lax.axis_index("X") * 256 + jnp.arange(256, dtype=jnp.int32)`."""
    axes = result.sharding.dims[0]
    local = result.shape[0] // (mesh.product(axes) if mesh is not None else 1)
    counted = call("jnp.arange", Const(local), dtype=type_name(result.dtype))
    if not axes:
        return counted
    return BinOp(BinOp(call("jax.lax.axis_index", axes_argument(axes)), "*", Const(local)), "+", counted)


def _full(number: Number | None, result: Array, mesh: Mesh | None) -> Expr:
    """One number in each place of a device's block: `jnp.full((8192 // 4, 512), 0, dtype=jnp.bfloat16)`. It is equal
    on all devices, and stands for what is not: JAX is told so."""
    assert number is not None
    found = call("jnp.full", _shape(result, mesh), Const(number), dtype=type_name(result.dtype))
    axes = mesh.ordered({*result.sharding.sharded, *result.sharding.unreduced}) if mesh is not None else ()
    return call("jax.lax.pcast", found, axes_argument(axes), to=Const("varying")) if axes else found


def _shape(array: Array, mesh: Mesh | None) -> Items:
    """Of a device's block: `(8192 // 4, 512)`."""
    extents = list[Expr]()
    for size, axes in zip(array.shape, array.sharding.dims, strict=True):
        parts = mesh.product(axes) if mesh is not None else 1
        extents.append(Const(size) if parts == 1 else BinOp(Const(size), "//", Const(parts)))
    return Items(tuple(extents))


def scan(code: Sequence[Code], leaves: Expr, taken: tuple[Expr, Expr], trips: int | None, down: bool) -> Scan:
    """A loop of so many trips, or of as many as there are rows, from the last index on where it goes `down`; `taken` is
    what is carried, and rows."""
    length = {} if trips is None else {"length": Const(trips)}
    reverse = {"reverse": Const(True)} if down else {}
    return Scan(tuple(code), leaves, call("jax.lax.scan", Name(TRIP), *taken, **length, **reverse))
