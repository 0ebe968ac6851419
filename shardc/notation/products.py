"""Expressions: which dims each part keeps, and of what type it is.

A plain `·` is an einsum over the names as they stand: it sums a dim that nobody outside carries, neither
another operand of an enclosing product nor the result. `·_J` sums J, and ends it: what a later operand
calls J is another dim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from shardc.errors import ShardcError, Span, nearest
from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.dtypes import DType, Kind, accumulator, promoted
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import Call, Expr, Named, Product, Use
from shardc.ir.sharding import Axes
from shardc.notation import tree
from shardc.notation.scope import Scope, listed, part


@dataclass(frozen=True, slots=True)
class Wanted:
    """The dims that the outside of an expression carries. `open`: a bare result, which takes every other dim
    that is not on both operands of a product."""

    dims: frozenset[str]
    open: bool = False

    def plus(self, dims: Iterable[str]) -> Wanted:
        return Wanted(self.dims.union(dims), self.open)


class Expressions:
    """Resolves the expression of one statement. Uses are bound from the left before anything else."""

    def __init__(self, scope: Scope, expr: tree.Expr) -> None:
        self.scope = scope
        self.uses: dict[int, Use] = {id(array): scope.use(array) for array in tree.arrays(expr)}
        self.summed_narrow: DType | None = None  # a sum of narrow integers, which asks for a declared result

    def resolve(self, expr: tree.Expr, wanted: Wanted) -> Expr:
        match expr:
            case tree.Array():
                return self.uses[id(expr)]
            case tree.Chain():
                return self._chain(expr, wanted)
            case tree.Sum():
                return self._sum(expr, wanted)
            case tree.Neg(operand):
                below = self.resolve(operand, wanted)
                _computes(below.dtype, below, expr.span)
                return Call("neg", (below,), below.dims, below.dtype, span=expr.span)
            case tree.Call():
                return self._call(expr, wanted)
            case tree.Named():
                return self._named(expr, wanted)
            case _:
                assert_never(expr)

    # --- products

    def _chain(self, chain: tree.Chain, wanted: Wanted) -> Expr:
        visible = [self.visible(operand) for operand in chain.operands]
        later: list[frozenset[str]] = [frozenset()]
        for dims in reversed(visible[1:]):
            later.append(later[-1] | dims)
        later.reverse()  # later[k]: what the operands after the k-th carry
        made = self.resolve(chain.operands[0], wanted.plus(later[0]))
        for k, operator in enumerate(chain.operators, 1):
            right = self.resolve(chain.operands[k], wanted.plus(later[k]).plus(made.dims))
            made = self._pair(made, operator, right, wanted.plus(later[k]))
        return made

    def _pair(self, left: Expr, operator: tree.Operator, right: Expr, wanted: Wanted) -> Product:
        both = left.dims + tuple(dim for dim in right.dims if dim not in set(left.dims))
        if operator.elementwise:
            self._nested(left.dims, right.dims, "⊙", operator.span)
            keep = frozenset(both)
        else:
            keep = self._kept(left, operator, right, wanted)
        dims = tuple(dim for dim in both if dim in keep)
        span = left.span.to(right.span) if left.span and right.span else operator.span
        return Product((left, right), dims, self._product_dtype(left, right, operator.span), operator.local, span)

    def _kept(self, left: Expr, operator: tree.Operator, right: Expr, wanted: Wanted) -> frozenset[str]:
        shared = frozenset(left.dims) & frozenset(right.dims)
        either = frozenset(left.dims) | frozenset(right.dims)
        carried = either - (shared - wanted.dims) if wanted.open else either & wanted.dims
        if not operator.label:
            return carried
        label = frozenset(self._labels(operator.label, either, operator.span))
        for dim in sorted(label - shared):
            lacking = [operand for operand in (left, right) if dim not in operand.dims]
            whose = " and ".join(_name(operand) for operand in lacking)
            raise ShardcError(
                "SHC210",
                f"the product is over `{dim}`, which {whose} {'do' if len(lacking) > 1 else 'does'} not have",
                span=part(operator.span, dim),
                help=_shared_help(left, right),
            )
        if wanted.open:
            return either - label
        self._also_contracted(operator, [dim for dim in left.dims if dim in shared - label - carried])
        return carried - label

    def _also_contracted(self, operator: tree.Operator, others: Sequence[str]) -> None:
        if not others:
            return
        every = ",".join((*operator.label, *others))
        raise ShardcError(
            "SHC210",
            f"the product also contracts {', '.join(f'`{dim}`' for dim in others)}, which the result lacks",
            span=operator.span,
            help=f"write `·_{{{every}}}`, or keep `{others[0]}` in the result",
        )

    def _product_dtype(self, left: Expr, right: Expr, span: Span | None) -> DType:
        return self._sum_dtype(_promoted(left, right, span))

    def _sum_dtype(self, dtype: DType) -> DType:
        if dtype.kind is not Kind.INT or not dtype.is_narrow:
            return dtype
        self.summed_narrow = dtype
        return accumulator(dtype)

    # --- sums, functions, collectives

    def _sum(self, sum: tree.Sum, wanted: Wanted) -> Expr:
        made = self.resolve(sum.operands[0], wanted)
        for sign, operand in zip(sum.signs, sum.operands[1:], strict=True):
            right = self.resolve(operand, wanted)
            span = made.span.to(right.span) if made.span and right.span else sum.span
            self._nested(made.dims, right.dims, sign, span)
            _same_dtype(made, right, span)
            dims = made.dims if len(made.dims) >= len(right.dims) else right.dims
            made = Call("add" if sign == "+" else "sub", (made, right), dims, made.dtype, span=span)
        return made

    def _nested(self, left: tuple[str, ...], right: tuple[str, ...], sign: str, span: Span | None) -> None:
        """Elementwise, one side may lack dims of the other, but not each of the other."""
        only_left, only_right = set(left) - set(right), set(right) - set(left)
        if not only_left or not only_right:
            return
        raise ShardcError(
            "SHC210",
            f"`{sign}` of {listed(left)} and {listed(right)}: neither has all dims of the other",
            span=span,
            help="the smaller is repeated along the dims it lacks, so the larger must have them all",
        )

    def _call(self, call: tree.Call, wanted: Wanted) -> Expr:
        if call.function != "sum":
            _check_function(call)
        elif not call.over:
            raise ShardcError("SHC222", "`sum` runs over a dim", span=call.name_span, help="name it: `sum_J(…)`")
        inside = self._labels(call.over, self.visible(call.operand), call.name_span)
        below = self.resolve(call.operand, wanted.plus(inside))
        _computes(below.dtype, below, call.name_span)
        over = tuple(self._labels(call.over, frozenset(below.dims), call.name_span))
        for dim in over:
            if dim not in below.dims:
                raise ShardcError(
                    "SHC210",
                    f"`{call.function}` runs over `{dim}`, which {_name(below)} does not have",
                    span=part(call.name_span, dim),
                    help=f"it has {listed(below.dims)}",
                )
        if call.function == "sum":
            dims = tuple(dim for dim in below.dims if dim not in over)
            return Product((below,), dims, self._sum_dtype(below.dtype), span=call.span)
        row = FUNCTIONS[call.function]
        if below.dtype.kind is Kind.INT and not row.integers:
            raise ShardcError(
                "SHC214",
                f"`{call.function}` is not for integers, and {_name(below)} is {below.dtype}",
                span=call.name_span,
                help="declare the array as a float, say bf16",
            )
        dims = below.dims if row.keeps_dims else tuple(dim for dim in below.dims if dim not in over)
        return Call(call.function, (below,), dims, below.dtype, over, call.span)

    def _labels(self, words: Iterable[str], dims: frozenset[str], span: Span | None) -> list[str]:
        """The dims that a label names: each word is a dim, or a run of one-letter dims."""
        found: list[str] = []
        for word in words:
            run = [word] if word in dims or not all(letter in dims for letter in word) else list(word)
            found += run
        for dim in found:
            if found.count(dim) > 1:
                raise ShardcError("SHC205", f"dim `{dim}` is named twice", span=part(span, dim), help="name it once")
        return found

    def _named(self, named: tree.Named, wanted: Wanted) -> Expr:
        below = self.resolve(named.operand, wanted)
        axes, dim = self._named_subscript(named, below)
        return Named(named.collective, axes, dim, below, below.dims, below.dtype, named.span)

    def _named_subscript(self, named: tree.Named, below: Expr) -> tuple[Axes | None, str | None]:
        """`_X`, `_{X,Y}` are axes; of `_{X,K}` the last is a dim, where the collective has one."""
        words = list(named.subscript)
        if not words:
            return None, None
        dim = None
        takes_dim = named.collective not in ("AllReduce", "CollectivePermute")
        last = words[-1]
        is_axes = last in self.scope.mesh or all(letter in self.scope.mesh for letter in last)
        if len(words) > 1 and takes_dim and (last in below.dims or not is_axes):
            dim = words.pop()
            if dim not in below.dims:
                raise ShardcError(
                    "SHC210",
                    f"{_name(below)} has no dim `{dim}`",
                    span=_below(named, dim),
                    help=f"it has {listed(below.dims)}",
                )
        axes = self.scope.axes(words, _below(named, words[0]))
        self.scope.used_axes.update(axes)
        return axes, dim

    # --- what an expression shows to the outside

    def visible(self, expr: tree.Expr) -> frozenset[str]:
        """The dims that an expression could carry: all that no label and no sum has ended."""
        match expr:
            case tree.Array():
                return frozenset(self.uses[id(expr)].dims)
            case tree.Chain(operands, operators):
                shown = set(self.visible(operands[0]))
                for operator, operand in zip(operators, operands[1:], strict=True):
                    shown |= self.visible(operand)
                    shown.difference_update(self._labels(operator.label, frozenset(shown), operator.span))
                return frozenset(shown)
            case tree.Sum(operands):
                return frozenset().union(*(self.visible(operand) for operand in operands))
            case tree.Neg(operand) | tree.Named(operand=operand):
                return self.visible(operand)
            case tree.Call(function, over, operand):
                shown_below = self.visible(operand)
                row = FUNCTIONS.get(function)
                ends = function == "sum" or (row is not None and not row.keeps_dims)
                return shown_below - set(self._labels(over, shown_below, expr.name_span)) if ends else shown_below
            case _:
                assert_never(expr)


def _check_function(call: tree.Call) -> None:
    row = FUNCTIONS.get(call.function)
    span = call.name_span
    if row is None:
        raise _unknown_function(call)
    if row.arity != 1:
        sign = {"add": "+", "sub": "-"}.get(call.function, "+")
        raise ShardcError("SHC222", f"`{call.function}` takes two arrays", span=span, help=f"write `A {sign} B`")
    if row.over_dims and not call.over:
        raise ShardcError(
            "SHC222", f"`{call.function}` runs over a dim", span=span, help=f"name it: `{call.function}_J(…)`"
        )
    if call.over and not row.over_dims:
        raise ShardcError(
            "SHC222", f"`{call.function}` does not run over a dim", span=span, help=f"write `{call.function}(…)`"
        )


def _unknown_function(call: tree.Call) -> ShardcError:
    name, span = call.function, call.name_span
    for collective in COLLECTIVE_NAMES:
        rest = name.removeprefix(collective)
        if rest != name:
            return ShardcError(
                "SHC221", f"lost subscript in `{name}`", span=span, help=f"write `{collective}_{rest}(…)`"
            )
    near = nearest(name, [*FUNCTIONS, "sum", *COLLECTIVE_NAMES])
    return ShardcError(
        "SHC222",
        f"unknown function `{name}`",
        span=span,
        help=f"did you mean `{near}`?" if near else "the functions are " + ", ".join((*FUNCTIONS, "sum")),
    )


def _below(named: tree.Named, word: str) -> Span | None:
    """The place of a word in a collective's subscript."""
    if named.span is None or named.name_span is None:
        return named.span
    at = named.span.source.text.find(word, named.name_span.end, named.span.end)
    return named.span if at < 0 else Span(named.span.source, at, at + len(word))


def _name(expr: Expr) -> str:
    """What a message calls an expression."""
    if isinstance(expr, Use):
        return f"`{expr.name}`"
    text = expr.span.text if expr.span else ""
    return f"`{text}`" if text and len(text) <= 60 and "\n" not in text else "the operand"


def _shared_help(left: Expr, right: Expr) -> str:
    shared = [dim for dim in left.dims if dim in right.dims]
    return f"they share {', '.join(f'`{dim}`' for dim in shared)}" if shared else "they share no dim"


def _promoted(left: Expr, right: Expr, span: Span | None) -> DType:
    """The type that JAX gives two operands together; SHC214 where it gives none, or one that only moves."""
    found = promoted(left.dtype, right.dtype)
    if found is None:
        raise ShardcError(
            "SHC214",
            f"{_name(left)} is {left.dtype} and {_name(right)} is {right.dtype}, and JAX has no type for both",
            span=span,
            help="declare both as one type, or convert one before",
        )
    _computes(found, left if left.dtype == found else right, span)
    return found


def _same_dtype(left: Expr, right: Expr, span: Span | None) -> None:
    """Of what is added; only products are promoted."""
    found = _promoted(left, right, span)
    if left.dtype != right.dtype:
        raise ShardcError(
            "SHC214",
            f"{_name(left)} is {left.dtype} and {_name(right)} is {right.dtype}",
            span=span,
            help=f"give both one type, say {found}; only products are promoted",
        )


def _computes(dtype: DType, operand: Expr, span: Span | None) -> None:
    if dtype.moves:
        raise ShardcError(
            "SHC214",
            f"{_name(operand)} is {dtype}; arrays of that type move, and nothing is computed with them",
            span=span,
            help="declare it as a type to compute in, say bf16, and convert it before",
        )
