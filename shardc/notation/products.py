"""Expressions: which dims each part keeps, and of what type it is.

A plain `·` is an einsum over the names as they stand: it sums a dim that nobody outside carries, neither
another operand of an enclosing product nor the result. `·_J` sums J, and ends it: what a later operand
calls J is another dim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from shardc.errors import ShardcError, Span
from shardc.ir.chains import summed, sums_first
from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.dtypes import DTYPES, DType, Kind, accumulator
from shardc.ir.expressions import Call, Expr, Named, Product, Use
from shardc.ir.functions import COMPARISONS, FUNCTIONS
from shardc.ir.scalars import Literal, Size
from shardc.ir.sharding import Axes
from shardc.notation import calls, functions, tree
from shardc.notation.calls import Operand, check_nested, computes, name_of, promote
from shardc.notation.scope import Scope
from shardc.notation.unknown import listed, part


@dataclass(frozen=True, slots=True)
class Wanted:
    """The dims that the outside of an expression carries. `open`: a bare result, which takes every other dim
    that is not on both operands of a product."""

    dims: frozenset[str]
    open: bool = False

    def plus(self, dims: Iterable[str]) -> Wanted:
        return Wanted(self.dims.union(dims), self.open)

    def kept_by_product(self, left: Operand, right: Operand) -> frozenset[str]:
        """The dims that a plain `·` of these two keeps."""
        mine, others = frozenset(calls.dims_of(left)), frozenset(calls.dims_of(right))
        return (mine | others) - ((mine & others) - self.dims) if self.open else (mine | others) & self.dims


class Expressions:
    """Resolves the expression of one statement. Uses are bound from the left before anything else."""

    def __init__(self, scope: Scope, expr: tree.Expr) -> None:
        self.scope = scope
        functions.check_calls(expr)
        self.uses = scope.uses(expr)
        self.summed_narrow: DType | None = None  # a sum of narrow integers, which asks for a declared result

    def array(self, expr: tree.Expr, wanted: Wanted, what: str = "a statement") -> Expr:
        """What an expression gives, where that is to be an array."""
        found = self.resolve(expr, wanted)
        if isinstance(found, Use | Product | Call | Named):
            return found
        raise ShardcError(
            "SHC222", f"{what} of numbers alone", span=expr.span, help="name an array in it, as `A[I, J] / 2` does"
        )

    def bound(self, expr: tree.Expr, wanted: Wanted, dims: tuple[str, ...] | None, dtype: DType) -> Expr:
        """What a statement binds. A number alone is an array of that number, where its dims and its type are said."""
        found = self.resolve(expr, wanted)
        if isinstance(found, Use | Product | Call | Named):
            return found
        if dims is not None:
            return calls.full(found, dims, dtype, expr.span)
        raise ShardcError(
            "SHC222",
            "a statement of numbers alone, whose result has no dims",
            span=expr.span,
            help="say them, as `h[B, D] = 0` does; or name an array, as in `A[I, J] / 2`",
        )

    def resolve(self, expr: tree.Expr, wanted: Wanted) -> Operand:
        match expr:
            case tree.Array():
                return self.uses[id(expr)]
            case tree.Number(text):
                return Literal(text)
            case tree.Size(dim, span):
                return Size(self.scope.whole_dim(dim, span))
            case tree.Index(dim, span):
                name = self.scope.whole_dim(dim, span)
                return Call("index", (), (name,), DTYPES["int32"], (name,), span=span)
            case tree.Chain():
                return self._chain(expr, wanted)
            case tree.Sum():
                return self._sum(expr, wanted)
            case tree.Comparison(left, sign, right):
                sides = (self.resolve(left, wanted), self.resolve(right, wanted))
                return calls.applied(COMPARISONS[sign], sides, expr.span)
            case tree.Neg(operand):
                return calls.applied("neg", (self.resolve(operand, wanted),), expr.span)
            case tree.Call():
                return self._call(expr, wanted)
            case tree.Named():
                return self._named(expr, wanted)
            case _:
                assert_never(expr)

    # --- products

    def _chain(self, chain: tree.Chain, wanted: Wanted) -> Operand:
        visible = [self.visible(operand) for operand in chain.operands]
        later: list[frozenset[str]] = [frozenset()]
        for dims in reversed(visible[1:]):
            later.append(later[-1] | dims)
        later.reverse()  # later[k]: what the operands after the k-th carry
        made = self.resolve(chain.operands[0], wanted.plus(later[0]))
        for k, operator in enumerate(chain.operators, 1):
            right = self.resolve(chain.operands[k], wanted.plus(later[k]).plus(calls.dims_of(made)))
            made = self._pair(made, operator, right, wanted.plus(later[k]))
        return made

    def _pair(self, left: Operand, operator: tree.Operator, right: Operand, wanted: Wanted) -> Operand:
        if operator.divides:
            check_nested(
                left, right, "/", operator.span, partial(self._lost, left, right), wanted.kept_by_product(left, right)
            )
            return calls.applied("div", (left, right), _around(left, right, operator.span))
        if isinstance(left, Use | Product | Call | Named) and isinstance(right, Use | Product | Call | Named):
            return self._product(left, operator, right, wanted)
        if operator.label or operator.local:
            raise ShardcError(
                "SHC210",
                "the product is with a number, which has no dims",
                span=operator.span,
                help="write a plain `·`",
            )
        return calls.applied("mul", (left, right), _around(left, right, operator.span))

    def _product(self, left: Expr, operator: tree.Operator, right: Expr, wanted: Wanted) -> Product:
        both = left.dims + tuple(dim for dim in right.dims if dim not in set(left.dims))
        if operator.elementwise:
            check_nested(
                left, right, "⊙", operator.span, partial(self._lost, left, right), wanted.kept_by_product(left, right)
            )
            keep = frozenset(both)
        else:
            keep = self._kept(left, operator, right, wanted)
        dims = tuple(dim for dim in both if dim in keep)
        span = _around(left, right, operator.span)
        left, right = calls.meeting_as(left, right)
        dtype = self._product_dtype(left, right, operator.span)
        both_sides = (calls.in_order(left, dims), calls.in_order(right, dims))
        return sums_first(Product(both_sides, dims, dtype, operator.local, span))

    def _kept(self, left: Expr, operator: tree.Operator, right: Expr, wanted: Wanted) -> frozenset[str]:
        shared = frozenset(left.dims) & frozenset(right.dims)
        either = frozenset(left.dims) | frozenset(right.dims)
        carried = wanted.kept_by_product(left, right)
        if not operator.label:
            return carried
        label = frozenset(self._labels(operator.label, either, operator.span))
        for dim in sorted(label - shared):
            lacking = [operand for operand in (left, right) if dim not in operand.dims]
            whose = " and ".join(name_of(operand) for operand in lacking)
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
        return self._sum_dtype(promote(left, right, span))

    def _sum_dtype(self, dtype: DType) -> DType:
        if dtype.kind is not Kind.INT or not dtype.is_narrow:
            return dtype
        self.summed_narrow = dtype
        return accumulator(dtype)

    def _lost(self, left: Operand, right: Operand) -> str:
        """What to say where a product on the way to one summed a dim of the other: of `s - m` with m[B, T], where
        `s = q[B, T, K] · k[B, S, K]` leaves [T, S]."""
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Use | Product | Call | Named):
                gone = dict(self.scope.summed(one, ""))
                for dim in [each for each in calls.dims_of(other) if each in gone and each not in one.dims]:
                    return self._keeping(dim, gone[dim])
        return ""

    def _keeping(self, dim: str, name: str) -> str:
        known = self.scope.find(name) if name else None
        if known is None:
            return f"a product before it sums {dim}; name there what it is to sum, as `·_J` does"
        kept = ", ".join(f"{each}_?" for each in (dim, *known.dims))
        return f"`{name}` sums {dim}; name the dims that it keeps there: `{name}[{kept}] = …`"

    # --- sums, functions, collectives

    def _sum(self, sum: tree.Sum, wanted: Wanted) -> Operand:
        made = self.resolve(sum.operands[0], wanted)
        for sign, operand in zip(sum.signs, sum.operands[1:], strict=True):
            right = self.resolve(operand, wanted)
            span = _around(made, right, sum.span)
            check_nested(made, right, sign, span, partial(self._lost, made, right))
            made = calls.applied("add" if sign == "+" else "sub", (made, right), span)
        return made

    def _call(self, call: tree.Call, wanted: Wanted) -> Operand:
        if functions.is_cast(call.function):
            return calls.cast(call, self.resolve(call.operands[0], wanted))
        if functions.is_sum(call.function) and (not call.over or len(call.operands) > 1):
            name = call.function
            raise ShardcError(
                "SHC222", f"`{name}` runs over a dim", span=call.name_span, help=f"name it: `{name}_J(…)`"
            )
        if call.over:
            return self._over(call, wanted)
        below = [self.resolve(operand, wanted) for operand in call.operands]
        return calls.applied(call.function, below, call.span, place=call.name_span)

    def _over(self, call: tree.Call, wanted: Wanted) -> Expr:
        """`sum_J(A)`, `softmax_J(A)`."""
        (operand,), span = call.operands, call.name_span
        inside = self._labels(call.over, self.visible(operand), span)
        below = self.array(operand, wanted.plus(inside), f"`{call.function}`")
        computes(below.dtype, below, span)
        over = tuple(self._labels(call.over, frozenset(below.dims), span))
        for dim in over:
            if dim not in below.dims:
                raise ShardcError(
                    "SHC210",
                    f"`{call.function}` runs over `{dim}`, which {name_of(below)} does not have",
                    span=part(span, dim),
                    help=f"it has {listed(below.dims)}",
                )
        if not functions.is_sum(call.function):
            found = calls.applied(call.function, (below,), call.span, over, span)
            assert isinstance(found, Call)
            return found
        below = calls.as_float(below, span) if call.function == "mean" else below
        dims = tuple(dim for dim in below.dims if dim not in over)
        made = summed(Product((below,), dims, self._sum_dtype(below.dtype), span=call.span))
        return made if call.function == "sum" else calls.mean(below, over, made, call.span)

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
        below = self.array(named.operand, wanted, f"`{named.collective}`")
        axes, dim = self._named_subscript(named, below)
        return Named(named.collective, axes, dim, below, below.dims, below.dtype, named.span)

    def _named_subscript(self, named: tree.Named, below: Expr) -> tuple[Axes | None, str | None]:
        """`_X`, `_{X,Y}` are axes; of `_{X,K}` the last is a dim, where the collective has one."""
        words = list(named.subscript)
        if not words:
            return None, None
        dim = None
        takes_dim = COLLECTIVE_NAMES[named.collective].facts.is_along_dims
        last = words[-1]
        is_axes = last in self.scope.mesh or all(letter in self.scope.mesh for letter in last)
        if len(words) > 1 and takes_dim and (last in below.dims or not is_axes):
            dim = words.pop()
            if dim not in below.dims:
                raise ShardcError(
                    "SHC210",
                    f"{name_of(below)} has no dim `{dim}`",
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
            case tree.Index(dim):
                return frozenset({dim})
            case tree.Call(function, over, operands):
                shown_below = frozenset().union(*map(self.visible, operands))
                row = FUNCTIONS.get(function)
                ends = functions.is_sum(function) or (row is not None and not row.keeps_dims)
                return shown_below - set(self._labels(over, shown_below, expr.name_span)) if ends else shown_below
            case _:
                return frozenset().union(*map(self.visible, tree.below(expr)))


def _around(left: Operand, right: Operand, span: Span | None) -> Span | None:
    """From the left operand to the right one, where both have a place."""
    first, last = (getattr(operand, "span", None) for operand in (left, right))
    return first.to(last) if first and last else span


def _below(named: tree.Named, word: str) -> Span | None:
    """The place of a word in a collective's subscript."""
    if named.span is None or named.name_span is None:
        return named.span
    at = named.span.source.text.find(word, named.name_span.end, named.span.end)
    return named.span if at < 0 else Span(named.span.source, at, at + len(word))


def _shared_help(left: Expr, right: Expr) -> str:
    shared = [dim for dim in left.dims if dim in right.dims]
    return f"they share {', '.join(f'`{dim}`' for dim in shared)}" if shared else "they share no dim"
