"""Syntax tree → program: declarations first, then the statements in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from shardc.errors import ShardcError, Source, Span, nearest
from shardc.ir.chains import widened
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, use_moved, uses
from shardc.ir.mesh import Mesh
from shardc.ir.program import For, Input, Program, Statement, check_divisible
from shardc.ir.sizes import shared_sizes
from shardc.notation import calls, slips, tree
from shardc.notation.agreement import check_agreement
from shardc.notation.checks import check_statement
from shardc.notation.declared import DEFAULT_DTYPE, check_axes, declared, dtype, word
from shardc.notation.limits import check_bytes, check_sizes_named
from shardc.notation.loops import bind_anew, check_carried, resolve_loop, stacked
from shardc.notation.one_order import in_one_order
from shardc.notation.printer import print_statement
from shardc.notation.products import Expressions, Wanted
from shardc.notation.returns import check_returns, unreturned
from shardc.notation.scope import Known, Scope
from shardc.notation.summed import summed_early
from shardc.notation.trips import with_trips
from shardc.notation.unknown import listed, part
from shardc.notation.unnamed import with_names
from shardc.notation.whole import whole_on_the_way


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller says beside the text; it overrides what the text declares."""

    mesh: Mesh | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    dtype: DType | None = None
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    chip: str | None = None
    topology: str | None = None
    exact: bool = False  # of arrays that exist: declarations must say the same


def given(parsed: tree.Tree, mesh: Mesh) -> tuple[Input, ...]:
    """The inputs of a text without loops, every array of which has a name: what it uses and has not made."""
    check_axes(mesh)
    scope = Scope(mesh, {}, DEFAULT_DTYPE, {}, slips.stems(parsed, mesh, ()))
    lost = slips.lost_subscripts(parsed, mesh, {})
    if lost is not None:
        raise lost
    made = set[str]()
    for statement in slips.statements(parsed):
        for array in tree.arrays(statement.expr):
            if array.name not in made and array.name not in scope.arrays:
                scope.give(array, *scope.read(array))
        made.add(statement.result.name)
    return tuple(scope.inputs)


def resolve(parsed: tree.Tree, options: Options, source: Source) -> Program:
    parsed = with_trips(with_names(parsed))
    mesh, sizes, words = declared(parsed)
    if options.exact:
        check_agreement(parsed, options.mesh, options.sizes, options.dtypes)
    mesh = options.mesh if options.mesh is not None else mesh
    check_axes(mesh)
    by_arrays = frozenset(options.sizes).difference(sizes) if options.exact else frozenset[str]()
    sizes |= options.sizes
    stems = slips.stems(parsed, mesh, sizes)
    names = Counter(one.result.name for one in tree.statements(parsed.items))
    again = frozenset(name for name, count in names.items() if count > 1)
    scope = Scope(mesh, sizes, options.dtype or dtype(words), options.dtypes, stems, again, by_arrays)
    lost = slips.lost_subscripts(parsed, mesh, sizes)
    if lost is not None:
        raise lost
    statements = _statements(parsed.items, scope)
    if not statements:
        raise ShardcError("SHC102", "the text has no statement", help="add one: `A[I, J] · B[J, K] → C[I, K]`")
    program = Program(
        mesh,
        (),
        scope.dtype,
        tuple(scope.inputs),
        statements,
        options.chip or word(words, "chip"),
        options.topology or word(words, "topology"),
        check_returns(parsed, scope, statements),
        spans=tuple(scope.spans.items()),
    )
    check_sizes_named(parsed, program, sizes)
    sizes = sizes | shared_sizes(sizes, program.renamed)
    known = tuple((dim, sizes[dim]) for dim in program.dims if dim in sizes)
    program = replace(program, sizes=known, warn=partial(_warnings, parsed, program, scope, options))
    check_divisible(program)
    check_bytes(program)
    return program


# --- statements


def _statements(
    items: Sequence[tree.Item], scope: Scope, later: Sequence[tree.Item] = ()
) -> tuple[Statement | For, ...]:
    """What the items bind, in order; declarations are none of them. `later` follows the loop that they are in."""
    found: list[Statement | For] = []
    for place, item in enumerate(items):
        if isinstance(item, tree.Statement):
            found.append(_statement(item, scope))
        elif isinstance(item, tree.For):
            found.append(resolve_loop(item, scope, (*items[place + 1 :], *later), _statements))
    return tuple(found)


def _statement(written: tree.Statement, scope: Scope) -> Statement:
    result = written.result
    scope.first_uses.clear()
    expressions = Expressions(scope, written.expr)
    whole, as_written = scope.read(result)
    dims, pattern = scope.at_index(result, whole, as_written)
    taken = scope.find(result.name) if scope.parent is not None else None
    if dims is None and taken is not None:
        dims = taken.dims  # what a loop carries keeps its dims
    wanted = Wanted(frozenset(), open=True) if dims is None else Wanted(frozenset(dims))
    own = scope.dtype_of(result) or (taken.dtype if taken is not None else scope.dtype)  # of a number alone
    natural = expressions.bound(written.expr, wanted, dims, own)
    dims = natural.dims if dims is None else dims
    _lacks_none(natural, dims, written, scope)
    expr = _as_declared(_in_order(natural, dims, result, scope), result, scope, expressions)
    expr = in_one_order(expr, dims, scope.read_as)
    known = _check_binding(result, expr, dims, scope)
    news = expr.dtype != natural.dtype or expressions.summed_narrow is not None
    news |= expr.dtype != scope.dtype and isinstance(expr, Call) and expr.function == "full"  # which meets no array
    text = print_statement(written, _Speller(scope, result, expr.dtype if news else None).spell)
    if known is None:
        of_numbers = calls.is_of_numbers(expr) and scope.dtype_of(result) is None
        of_numbers &= result.name not in scope.bound_again
        array = scope.array_of(use_moved(expr))
        known = Known(dims, expr.dtype, whole or (), of_numbers, scope.summed(expr, result.name), array)
        bind_anew(result.name, whole, known, scope)
    elif scope.loop in (whole or ()):  # `y = …; y[L, B] = y` in a loop along L
        known = stacked(result, whole or (), known, scope)
    scope.arrays[result.name] = known
    made = Statement(result.name, dims, pattern or Pattern.free(len(dims)), expr, expr.dtype, text, result.span)
    check_statement(made, scope.mesh)
    return made


def _lacks_none(expr: Expr, dims: Sequence[str], written: tree.Statement, scope: Scope) -> None:
    """SHC210 for dims of an expression that its result does not have, and how they are summed."""
    extra = [dim for dim in expr.dims if dim not in set(dims)]
    if not extra:
        return
    subscript = extra[0] if len(extra) == 1 else "{" + ",".join(extra) + "}"
    product = _plain_product(written.expr, frozenset(extra), scope)
    help = f"sum over it: `sum_{subscript}(…)`"
    if product is not None:
        help = (
            f"a plain `·` keeps what a later operand carries; end it there: `{product[0]} ·_{subscript} {product[1]}`"
        )
    if not set(dims) <= set(expr.dims):
        help = f"no statement splits or joins dims: have {listed(dims)} from the beginning, or {help}"
    lacks = ", ".join(f"`{dim}`" for dim in extra)
    raise ShardcError(
        "SHC210", f"the result `{written.result.name}` lacks {lacks}", span=written.result.span, help=help
    )


def _plain_product(expr: tree.Expr, dims: frozenset[str], scope: Scope) -> tuple[str, str] | None:
    """The first two arrays with all these dims that a `·` stands between."""

    def named(operand: tree.Expr) -> str | None:
        if not isinstance(operand, tree.Array):
            return None
        known = scope.find(operand.name)
        return operand.name if known is not None and dims <= set(known.dims) else None

    if isinstance(expr, tree.Chain):
        for operator, (left, right) in zip(expr.operators, pairwise(map(named, expr.operands)), strict=True):
            if left and right and not (operator.elementwise or operator.divides or operator.label):
                return left, right
    return next((found for each in tree.below(expr) if (found := _plain_product(each, dims, scope))), None)


def _in_order(expr: Expr, dims: tuple[str, ...], result: tree.Array, scope: Scope) -> Expr:
    """The expression with its dims in the result's order; a transposition is a product of one operand."""
    have = frozenset(expr.dims)
    for dim in dims:
        if dim not in have:
            raise _on_no_input(dim, expr, dims, result, scope)
    expr = calls.in_order(expr, dims)
    if expr.dims == dims:
        return expr
    match expr:
        case Product():
            return replace(expr, dims=dims)
        case Named():
            raise ShardcError(
                "SHC210",
                f"a collective keeps the order of dims, {listed(expr.dims)}",
                span=result.span,
                help="transpose in a statement of its own",
            )
        case Use() | Call():
            return Product((expr,), dims, expr.dtype, span=expr.span)


def _on_no_input(dim: str, expr: Expr, dims: tuple[str, ...], result: tree.Array, scope: Scope) -> ShardcError:
    span = next((d.span for d in result.dims or () if d.name.partition("_")[0] == dim or d.name == dim), result.span)
    there = dict.fromkeys(name for use in uses(expr) for name in use.dims)
    if dim in there:
        return ShardcError(
            "SHC207",
            f"dim `{dim}` of the result `{result.name}` was summed before it",
            span=span,
            help=f"drop `{dim}` from the result, or from the label that sums it",
        )
    near, earlier = nearest(dim, there), dict(scope.summed(expr, result.name)).get(dim)
    known = None if earlier is None else scope.find(earlier)
    if known is not None:
        kept = ", ".join(f"{each}_?" for each in (dim, *known.dims))
        keeps = f"`{earlier}` sums {dim}; name the dims that it keeps there: `{earlier}[{kept}] = …`"
        help = keeps + _repeated(expr, dims)
    else:
        help = f"did you mean `{near}`?" if near else f"the operands have {listed(there)}{_repeated(expr, dims)}"
    return ShardcError("SHC207", f"dim `{dim}` of the result `{result.name}` is on no operand", span=span, help=help)


def _repeated(expr: Expr, dims: tuple[str, ...]) -> str:
    """How it has all dims of the result, where it is to be repeated along those that it lacks."""
    if not set(expr.dims) < set(dims):
        return ""
    lacks = [dim for dim in dims if dim not in expr.dims]
    return f"; to repeat an array along {', '.join(lacks)} write `{calls.repeated(calls.written(expr, 'A'), lacks)}`"


def _as_declared(expr: Expr, result: tree.Array, scope: Scope, expressions: Expressions) -> Expr:
    """The expression in the result's declared type: a product may sum in a wider one."""
    declared = scope.dtype_of(result)
    if expressions.summed_narrow is not None and declared is None:
        raise ShardcError(
            "SHC215",
            f"products of {expressions.summed_narrow}, and sums of them, may overflow",
            span=result.span,
            help=f"declare a wider result: `{result.name}: {expr.dtype}[…]`",
        )
    if declared is None or declared == expr.dtype:
        return expr
    if calls.is_of_numbers(expr) and declared.kind is expr.dtype.kind:
        return replace(expr, dtype=declared)
    wider = declared.kind is expr.dtype.kind and declared.bytes > expr.dtype.bytes
    if wider and isinstance(expr, Product) and _adds_up(expr):
        return widened(expr, declared)
    raise ShardcError(
        "SHC214",
        f"`{result.name}` is declared {declared}, and its expression is {expr.dtype}",
        span=part(result.span, result.dtype or result.name),
        help=f"declare it {expr.dtype}, or cast it: `{declared}(…)`; only a product may be summed in a wider type",
    )


def _adds_up(product: Product) -> bool:
    """Whether it multiplies or sums, and does not only lay an array with its dims in another order."""
    return len(product.operands) > 1 or {*product.operands[0].dims} != {*product.dims}


def _check_binding(result: tree.Array, expr: Expr, dims: tuple[str, ...], scope: Scope) -> Known | None:
    """SHC218 for a name that is taken. What it holds already, if it is bound to that again; a loop may bind what it
    reads of outside to an array like it."""
    name = result.name
    known = scope.find(name)
    if known is None:
        return None
    moved = use_moved(expr)
    if moved is not None and moved.name == name and moved.dims == dims:
        return known
    if name in scope.outside:
        check_carried(result, dims, known, expr.dtype, _head(result))
        bind_anew(name, None, known, scope)
        return replace(known, array=object())
    if moved is not None and scope.array_of(moved) is known.array and moved.dims == dims == known.dims:
        return known
    raise ShardcError(
        "SHC218",
        f"`{name}` is bound to another array already",
        span=_head(result),
        help=("for the transposed array " if sorted(dims) == sorted(known.dims) and dims != known.dims else "")
        + "choose another name; a name is bound again only to the same array in another sharding",
    )


def _head(array: tree.Array) -> Span | None:
    r"""The place of an array's name, which its dress may surround: `\mathbf{A}`."""
    if array.span is None:
        return None
    start = array.span.start + max(0, array.span.text.find(array.name))
    return Span(array.span.source, start, start + len(array.name))


class _Speller:
    """Spells a statement's arrays canonically: subscripts resolved, a type only where it is news."""

    def __init__(self, scope: Scope, result: tree.Array, result_type: DType | None) -> None:
        self.scope = scope
        self.result = result
        self.result_type = result_type

    def spell(self, array: tree.Array) -> str:
        dims, pattern = self.scope.read(array)
        brackets = pattern.spell(dims) if dims is not None and pattern is not None else ""
        dtype = self.result_type if array is self.result else self._input_type(array)
        name = "" if array.unnamed else array.name
        return f"{name}: {dtype}{brackets}" if dtype else f"{name}{brackets}"

    def _input_type(self, array: tree.Array) -> DType | None:
        known = self.scope.first_uses.get(id(array))
        return known if known != self.scope.dtype else None


# --- warnings


def _warnings(parsed: tree.Tree, program: Program, scope: Scope, options: Options) -> Iterator[str]:
    """What looks like a slip, and what nothing uses."""
    yield from scope.warnings
    yield from (f"`{left}` does not say how it is made, and is left out" for left in parsed.left_out)
    yield from slips.lone_dims(parsed, program)
    yield from slips.unused_axes(parsed, scope.mesh, scope.used_axes)
    yield from unreturned(program)
    yield from slips.gathered_in_vain(program)
    yield from whole_on_the_way(program)
    yield from summed_early(parsed, program)
    yield from slips.kept_between(program)
    yield from slips.kept_below(parsed, program)
    yield from slips.rounded_positions(program, scope.sizes)
    yield from slips.unused_sizes(scope.sizes, program)
    yield from slips.unused_dtypes(options.dtypes, scope.arrays)
    if (
        options.dtype is not None
        and not options.dtypes
        and all(array.dtype != options.dtype for array in program.inputs)
    ):
        yield f"every array has a type of its own, and dtype {options.dtype} is not used"
