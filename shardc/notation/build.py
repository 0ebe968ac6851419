"""Parse tree → syntax tree. Spellings become one here; literals are read, and refused if malformed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lark import Token
from lark.exceptions import VisitError

from shardc.errors import ShardcError, Source, Span
from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.dtypes import is_dtype
from shardc.ir.names import KEYWORDS, check_name
from shardc.notation import tree
from shardc.notation.declarations import Declarations
from shardc.notation.literals import number_of
from shardc.notation.places import Kids, plain
from shardc.notation.scan import MAX_DEPTH, too_deep

if TYPE_CHECKING:
    from lark import Tree

MAX_TERMS = 1000
MAX_LOOPS = 8  # in each other
INDEX = "index_"  # with a dim, `index_T`: the positions along it
_COMPARED = {"≤": "<=", "≥": ">=", "≠": "!=", "le": "<=", "leq": "<=", "ge": ">=", "geq": ">=", "ne": "!=", "neq": "!="}
_COMPARED |= {"lt": "<", "gt": ">"}


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a subscript, and where it stands."""

    names: tuple[str, ...]
    span: Span


def build(source: Source, parsed: Tree[Any], in_units: bool = False) -> Any:
    """The syntax tree of a parse tree; of an option sizes of dims may be `in_units`, as `4k`."""
    builder = _Builder(source)
    builder.in_units = in_units
    try:
        return builder.transform(parsed)
    except VisitError as wrapped:
        raise wrapped.orig_exc from None


class _Builder(Declarations):
    """One method a rule."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.terms = 0
        self.depths: dict[int, int] = {}
        self.kept: list[object] = []  # keeps what `depths` knows by id alive
        self.loops: dict[int, int] = {}  # how deep each is
        self.nested: list[object] = []  # keeps what `loops` knows by id alive

    def start(self, kids: Kids) -> tree.Tree:
        return tree.Tree(tuple(kid for kid in kids if not isinstance(kid, Token)))

    # --- arrays

    def dim(self, kids: Kids) -> tree.Dim:
        name, span = self._name(kids[0]), self._around(kids)
        if len(kids) == 3:
            return tree.Dim(check_name(name, "dim", span), free=True, span=span)
        axes: tuple[str, ...] = kids[1].names if len(kids) == 2 else ()
        if len(axes) == 1:
            name, axes = f"{name}_{axes[0]}", ()
        # A name with its subscript may be longer than a name may be; the resolver checks the two apart.
        check_name(name.partition("_")[0], "dim", span)
        return tree.Dim(name, axes, span=span)

    def partial(self, kids: Kids) -> _Names:
        name, span = self._name(kids[0]), self._around(kids)
        axes: tuple[str, ...] = ()
        if len(kids) == 3:
            axes = (self._name(kids[2]),)
        elif len(kids) == 2:
            axes = kids[1].names
        elif "_" in name:
            name, _, rest = name.partition("_")
            axes = (rest,)
        if name != "U" or not axes:
            raise _not_unreduced(name, span)
        return _Names(axes, span)

    def unreduced(self, kids: Kids) -> _Names:
        found: _Names = kids[1]
        return found

    def array(self, kids: Kids) -> tree.Array | tree.Number | tree.Index:
        name = "" if kids[0].type == "LSQB" else self._name(kids[0])
        if len(kids) == 1 and name == "inf":
            return tree.Number(name, self._around(kids))
        if len(kids) == 1 and name.startswith(INDEX):
            return tree.Index(check_name(name.removeprefix(INDEX), "dim", self._span(kids[0])), self._around(kids))
        if name:
            self._check_array(name, self._span(kids[0]))
        turned = [kid for kid in kids if isinstance(kid, Token) and kid.type == "TRANSPOSED"]
        if turned:
            return self._transposed(kids, turned)
        kinds = [kid.type if isinstance(kid, Token) else "" for kid in kids]
        dtype = self._name(kids[2]) if "COLON" in kinds[:2] else None
        dims = tuple(kid for kid in kids if isinstance(kid, tree.Dim)) if "LSQB" in kinds else None
        if isinstance(kids[-1], _Names):
            return tree.Array(name, dims, kids[-1].names, dtype, self._around(kids[:-1]), kids[-1].span)
        return tree.Array(name, dims, (), dtype, self._around(kids))

    def _transposed(self, kids: Kids, turned: list[Token]) -> tree.Array | tree.Number | tree.Index:
        """`W^T[F, D]` is W[D, F]. Dims are matched by name: to turn `W[D, F]^T`, or a bare `W^T`, changes nothing."""
        made = self.array([kid for kid in kids if kid not in turned])
        span = self._around(kids)
        if not isinstance(made, tree.Array):
            return made
        if made.dims is not None and len(made.dims) != 2:
            raise ShardcError(
                "SHC101",
                f"`{span.text}` has {len(made.dims)} dims; a transpose is of two",
                span=span,
                help="drop the `^T`: dims are matched by name, in any order",
            )
        before = turned[0] is kids[1] and made.dims is not None
        return replace(made, dims=made.dims[::-1] if before and made.dims else made.dims, span=span)

    def _check_array(self, name: str, span: Span) -> None:
        check_name(name, "array", span)
        if name in KEYWORDS or name in COLLECTIVE_NAMES or name == "inf" or name.startswith(INDEX):
            raise _reserved(name, span)

    def returns(self, kids: Kids) -> tree.Return:
        names = [kid for kid in kids[1:] if kid.type == "NAME"]
        return tree.Return(tuple(map(self._name, names)), self._around(kids), tuple(map(self._span, names)))

    # --- expressions

    def braced(self, kids: Kids) -> _Names:
        return _Names(tuple(self._name(kid) for kid in kids if kid.type == "NAME"), self._around(kids))

    def subscript(self, kids: Kids) -> _Names:
        if isinstance(kids[0], _Names):
            return kids[0]
        return _Names((self._name(kids[1]),), self._span(kids[1]))

    def operator(self, kids: Kids) -> tree.Operator:
        mark: Token = kids[0]
        label = kids[1].names if len(kids) == 2 else ()
        local = label == ("LOCAL",)
        span = self._around(kids)
        return tree.Operator(mark.type == "ODOT", () if local else label, local, mark.type == "SLASH", span)

    def chain(self, kids: Kids) -> tree.Expr:
        if len(kids) == 1:
            only: tree.Expr = kids[0]
            return only
        return self._deep(tree.Chain(tuple(kids[::2]), tuple(kids[1::2]), self._around(kids)), kids[::2], 0)

    def sum(self, kids: Kids) -> tree.Expr:
        if len(kids) == 1:
            only: tree.Expr = kids[0]
            return only
        signs = tuple(str(kid) for kid in kids[1::2])
        return self._deep(tree.Sum(tuple(kids[::2]), signs, self._around(kids)), kids[::2], 0)

    def comparison(self, kids: Kids) -> tree.Expr:
        if len(kids) == 1:
            only: tree.Expr = kids[0]
            return only
        if len(kids) > 3:
            raise _compared_twice(self._span(kids[3]))
        sign = _COMPARED.get(kids[1].removeprefix("\\"), str(kids[1]))
        return self._deep(tree.Comparison(kids[0], sign, kids[2], self._around(kids)), kids[::2], 0)

    def number(self, kids: Kids) -> tree.Number:
        span = self._span(kids[0])
        return tree.Number(number_of(str(kids[0]), span), span)

    def infinity(self, kids: Kids) -> tree.Number:
        return tree.Number("inf", self._span(kids[0]))

    def size_of(self, kids: Kids) -> tree.Size:
        return tree.Size(self._name(kids[1]), self._around(kids))

    def sigma(self, kids: Kids) -> tree.Expr:
        r"""`Σ_J A[I, J] · B[J]`, `\sum_{J,K} …`: a sum over the product that follows."""
        names = re.findall(r"[A-Za-z0-9_]+", kids[0].partition("_")[2])
        place = self._span(kids[0])
        made = tree.Call("sum", tuple(names), (kids[1],), self._around(kids), place)
        return self._deep(made, [kids[1]], 1)

    def neg(self, kids: Kids) -> tree.Expr:
        return self._deep(tree.Neg(kids[1], self._around(kids)), [kids[1]], 1)

    def group(self, kids: Kids) -> tree.Expr:
        inside: tree.Expr = kids[1]
        return self._deep(replace(inside, span=self._around(kids)), [inside], 0)

    def call(self, kids: Kids) -> tree.Expr:
        place = self._span(kids[0])
        name = self._name(kids[0]).removeprefix("\\")
        function, _, over = (name, "", "") if is_dtype(name) else name.partition("_")  # `f8_e5m2(A)` is a cast
        labels: tuple[str, ...] = (over,) if over else ()
        if isinstance(kids[1], _Names):
            labels += kids[1].names
        operands = [kid for kid in kids if not isinstance(kid, Token | _Names)]
        return self._deep(tree.Call(function, labels, tuple(operands), self._around(kids), place), operands, 1)

    def root(self, kids: Kids) -> tree.Expr:
        r"""`\sqrt{A}`."""
        made = tree.Call("sqrt", (), (kids[2],), self._around(kids), self._span(kids[0]))
        return self._deep(made, [kids[2]], 1)

    def fraction(self, kids: Kids) -> tree.Expr:
        r"""`\frac{A}{B}`."""
        sides, span = (kids[2], kids[5]), self._span(kids[0])
        made = tree.Chain(sides, (tree.Operator(divides=True, span=span),), self._around(kids))
        return self._deep(made, list(sides), 1)

    def named(self, kids: Kids) -> tree.Expr:
        place = self._span(kids[0])
        subscript = kids[1].names if isinstance(kids[1], _Names) else ()
        made = tree.Named(plain(kids[0]), subscript, kids[-1], self._around(kids), place)
        return self._deep(made, [kids[-1]], 1)

    def loop(self, kids: Kids) -> tree.For:
        body = tuple(kid for kid in kids if not isinstance(kid, Token))
        down = kids[1].type == "MINUS"
        dim = kids[1 + down]
        made = tree.For(self._name(dim), body, self._around(kids), self._span(dim), down)
        self.loops[id(made)] = 1 + max((self.loops.get(id(kid), 0) for kid in body), default=0)
        self.nested.append(made)
        if self.loops[id(made)] > MAX_LOOPS:
            raise too_deep(made.dim_span, MAX_LOOPS)
        return made

    def forward(self, kids: Kids) -> tree.Statement:
        return self._statement(kids[2], kids[0], False, kids)

    def backward(self, kids: Kids) -> tree.Statement:
        return self._statement(kids[0], kids[2], True, kids)

    def _statement(self, result: tree.Expr, expr: tree.Expr, first: bool, kids: Kids) -> tree.Statement:
        self.depths.clear()
        self.kept.clear()
        if not isinstance(result, tree.Array):
            assert result.span is not None
            raise _reserved(result.span.text, result.span)
        for leaf in tree.leaves(expr):
            self.terms += 1
            if self.terms > MAX_TERMS:
                raise ShardcError(
                    "SHC402",
                    f"more than {MAX_TERMS} terms",
                    span=leaf.span,
                    help="split the program into several texts",
                )
        return tree.Statement(result, expr, first, self._around(kids))

    def _deep(self, made: tree.Expr, below: list[tree.Expr], step: int) -> tree.Expr:
        """Prefixes nest without brackets; they count towards the same limit."""
        depth = max(self.depths.get(id(kid), 0) for kid in below) + step
        if depth > MAX_DEPTH:
            raise too_deep(made.span)
        self.depths[id(made)] = depth
        self.kept.append(made)
        return made


def _reserved(name: str, span: Span) -> ShardcError:
    return ShardcError("SHC107", f"array `{name}` is a reserved word", span=span, help="choose another name")


def _compared_twice(span: Span) -> ShardcError:
    return ShardcError(
        "SHC101",
        "a comparison has two sides",
        span=span,
        help="compare twice: `and(A < B, B < C)`",
    )


def _not_unreduced(name: str, span: Span) -> ShardcError:
    if name.startswith("U") and len(name) > 1:
        return ShardcError(
            "SHC221", f"lost subscript in `{span.text}`", span=span, help=f"write `{{U_{name[1:]}}}`: unreduced over it"
        )
    return ShardcError(
        "SHC101", f"expected `U_` and an axis, found `{span.text}`", span=span, help="unreduced is written `{U_X}`"
    )
