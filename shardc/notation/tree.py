"""The syntax tree: what was written, before any name is looked up.

A `Dim` keeps its subscript in its name where the two were one word (`I_X`, `d_model`), since only the
mesh can tell them apart. Chains are flat, so that a long product is not a deep tree. Spans are not
compared: trees of two spellings are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

from shardc.errors import Span


@dataclass(frozen=True, slots=True)
class Dim:
    """`I`, `I_X`, `I_XY` as one word; `I_{X,Y}` with its axes apart; `I_?` free."""

    name: str
    axes: tuple[str, ...] = ()
    free: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Array:
    """`Name: dtype[dims]{U_axes}`; `dims` is None for a bare name. Without a name, `[dims]`, it has the name ""."""

    name: str
    dims: tuple[Dim, ...] | None
    unreduced: tuple[str, ...] = ()
    dtype: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    unreduced_span: Span | None = field(default=None, compare=False, repr=False)
    unnamed: bool = False  # whether the name was given by `with_names`


@dataclass(frozen=True, slots=True)
class Operator:
    """`·`, `·_J`, `·_LOCAL`, `⊙`, or `/`."""

    elementwise: bool = False
    label: tuple[str, ...] = ()
    local: bool = False
    divides: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Chain:
    """`A · B ⊙ C`: one operator fewer than operands."""

    operands: tuple[Expr, ...]
    operators: tuple[Operator, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sum:
    """`A + B - C`: one sign fewer than operands."""

    operands: tuple[Expr, ...]
    signs: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Number:
    """`2`, `1e-6`, `inf`, as written."""

    text: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Size:
    """`|D|`."""

    dim: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Index:
    """`index_T`: the positions along a dim."""

    dim: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`A >= B`; `sign` is one of `ir.functions.COMPARISONS`."""

    left: Expr
    sign: str
    right: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Neg:
    """`-A`."""

    operand: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`relu(A)`, `softmax_J(A)`, `sum_{J,K}(A)`, `where(M, A, B)`."""

    function: str
    over: tuple[str, ...]
    operands: tuple[Expr, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    name_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Named:
    """`AllGather_X(A)`, `ReduceScatter_{X,K}(A)`: `subscript` is what stands below the name."""

    collective: str
    subscript: tuple[str, ...]
    operand: Expr
    span: Span | None = field(default=None, compare=False, repr=False)
    name_span: Span | None = field(default=None, compare=False, repr=False)


Expr: TypeAlias = Array | Number | Size | Index | Chain | Sum | Comparison | Neg | Call | Named
Leaf: TypeAlias = Array | Number | Size | Index


@dataclass(frozen=True, slots=True)
class Statement:
    """`expr → result`, or `result = expr` when the result was written first."""

    result: Array
    expr: Expr
    result_first: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MeshDecl:
    """`mesh X=4, Y=2`."""

    axes: tuple[tuple[str, int], ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DimsDecl:
    """`dims I=8, J=16`."""

    sizes: tuple[tuple[str, int], ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    spans: tuple[Span | None, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WordDecl:
    """`dtype bf16`, `chip v5p`, `topology v5p:4x4x4`."""

    keyword: str
    value: str
    span: Span | None = field(default=None, compare=False, repr=False)
    value_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Return:
    """`return Out, M2`."""

    names: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    spans: tuple[Span | None, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class For:
    """`for L { … }`; `for -L { … }` begins at the last index."""

    dim: str
    body: tuple[Statement | For, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    dim_span: Span | None = field(default=None, compare=False, repr=False)
    down: bool = False


Item: TypeAlias = MeshDecl | DimsDecl | WordDecl | Statement | For | Return


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole text; `left_out` are statements that say nothing, as `Loss[B] = …`."""

    items: tuple[Item, ...]
    left_out: tuple[str, ...] = field(default=(), compare=False)


def statements(items: Iterable[Item]) -> Iterator[Statement]:
    """Every statement, those of loops too."""
    for item in items:
        if isinstance(item, Statement):
            yield item
        elif isinstance(item, For):
            yield from statements(item.body)


def loops(items: Iterable[Item]) -> Iterator[For]:
    """Every loop, those inside others too."""
    for item in items:
        if isinstance(item, For):
            yield item
            yield from loops(item.body)


def below(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below one, from the left."""
    match expr:
        case Array() | Number() | Size() | Index():
            return ()
        case Chain(operands) | Sum(operands) | Call(operands=operands):
            return operands
        case Comparison(left, _, right):
            return left, right
        case Neg(operand) | Named(operand=operand):
            return (operand,)
        case _:
            assert_never(expr)


def leaves(expr: Expr) -> Iterator[Leaf]:
    """What an expression is made of, from the left."""
    if isinstance(expr, Leaf):
        yield expr
    for operand in below(expr):
        yield from leaves(operand)


def arrays(expr: Expr) -> Iterator[Array]:
    """Every array that an expression names, from the left."""
    return (leaf for leaf in leaves(expr) if isinstance(leaf, Array))


def over_leaves(expr: Expr, change: Callable[[Leaf], Leaf]) -> Expr:
    """The expression with what it is made of changed, from the left."""
    match expr:
        case Array() | Number() | Size() | Index():
            return change(expr)
        case Chain(operands) | Sum(operands) | Call(operands=operands):
            return replace(expr, operands=tuple(over_leaves(operand, change) for operand in operands))
        case Comparison(left, _, right):
            return replace(expr, left=over_leaves(left, change), right=over_leaves(right, change))
        case Neg(operand) | Named(operand=operand):
            return replace(expr, operand=over_leaves(operand, change))
        case _:
            assert_never(expr)


def over_arrays(expr: Expr, change: Callable[[Array], Array]) -> Expr:
    """The expression with each array changed, from the left."""
    return over_leaves(expr, lambda leaf: change(leaf) if isinstance(leaf, Array) else leaf)
