"""Chains of products: what is multiplied, and in which orders that means the same.

    A[I, J] · B[J, K] · C[K, L] → D[I, L]

has three operands. A *part* is a set of them, an integer with one bit each. Its value has the dims of its
operands that the result, or an operand outside, has too; the others are summed inside:

    001  A[I, J]      011  A·B [I, K]      111  D[I, L]
    010  B[J, K]      110  B·C [J, L]
    100  C[K, L]      101  A·C [I, J, K, L], an outer product

A product in a product is one chain with it unless a dim that it sums stands outside as well: of `In ·_D Win ·_F
Wout[F, D]`, D ends before Wout and begins again there. Such a product is one operand of the chain around it, and
a chain of its own. So is one that forbids communication, and one whose type is not that of its operands.

A sum over dims of a product is the product that sums these as well (`summed`): `sum_B(x ·_T dy)` is `x ·_{B,T} dy`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from shardc.ir.dtypes import DType
from shardc.ir.expressions import Expr, Product, operands

MAX_PARTS = 63  # all of six operands, those that stand together of ten; a chain of more is multiplied as written


@dataclass(frozen=True, slots=True)
class Pair:
    """Two parts that are multiplied."""

    left: int
    right: int

    @property
    def whole(self) -> int:
        return self.left | self.right


@dataclass(frozen=True, slots=True)
class Chain:
    """`product` with the products inside it opened. `written` are its pairs as written, inner ones first."""

    product: Product
    operands: tuple[Expr, ...]
    written: tuple[Pair, ...]

    @property
    def whole(self) -> int:
        return (1 << len(self.operands)) - 1

    def members(self, part: int) -> list[Expr]:
        return [operand for place, operand in enumerate(self.operands) if part >> place & 1]

    def dims(self, part: int) -> tuple[str, ...]:
        """Of the value of a part, in order of first use."""
        if part == self.whole:
            return self.product.dims
        inside = self.members(part)
        if len(inside) == 1:
            return inside[0].dims
        wanted = set(self.product.dims).union(*(operand.dims for operand in self.members(self.whole & ~part)))
        return tuple(dim for dim in dict.fromkeys(dim for operand in inside for dim in operand.dims) if dim in wanted)

    def meeting(self, pair: Pair) -> tuple[str, ...]:
        """The dims that meet in the product of a pair."""
        return tuple(dict.fromkeys(self.dims(pair.left) + self.dims(pair.right)))

    def multiply(self, pair: Pair, left: Expr, right: Expr) -> Product:
        """The product of a pair, of expressions that give its parts."""
        product = self.product
        return Product((left, right), self.dims(pair.whole), product.dtype, product.local, product.span)

    def pairs(self) -> Iterator[Pair]:
        """Every pair that an order may multiply, parts before what they are parts of, as written first.

        Parts that share no dim are multiplied where that is written, or nothing else is possible: an outer product
        is large, and what it sums later is one long sum, whose rounding is worse.
        """
        if self.is_long:
            yield from self.written
            return
        as_written = {pair.whole: pair for pair in self.written}
        parts = sorted(self._parts() | as_written.keys())
        for whole in sorted(parts, key=int.bit_count):
            first = as_written.get(whole)
            if first is not None:
                yield first
            for left in parts:
                pair = Pair(left, whole & ~left)
                if left & whole == left and left & whole & -whole and pair.right in parts and pair != first:
                    yield pair

    @property
    def is_long(self) -> bool:
        """Whether it has too many parts for every pair of them to be looked at."""
        return len(self._parts()) > MAX_PARTS

    def _parts(self) -> set[int]:
        """Those that may be made; of too many, not all.

        A chain A·B·C·D has A·B, B·C and C·D, A·B·C and B·C·D; where B and D share no dim, not B·D.
        """
        single = [1 << place for place in range(len(self.operands))]
        near = [self._near(one) for one in single]
        apart = {self._reached(one, within=self.whole) for one in single}
        found, new = set[int](), set(single)
        while new and len(found) <= MAX_PARTS:
            found |= new
            grown = {part | one for part in new for one, beside in zip(single, near, strict=True) if part & beside}
            joined = {part | other for part in new & apart for other in apart}
            apart |= joined
            new = (grown | joined) - found
        return found

    def may_be_made(self, part: int) -> bool:
        """Whether it holds together, or every operand that it holds together with is in it."""
        return self._reached(part & -part, within=part) == part or self._is_complete(part)

    def _is_complete(self, part: int) -> bool:
        return self._reached(part, within=self.whole) == part

    def _reached(self, found: int, within: int) -> int:
        """What shares a dim with a part, step by step."""
        while (more := found | self._near(found) & within) != found:
            found = more
        return found

    def _near(self, part: int) -> int:
        """The operands that share a dim with one of a part, those of dims among them."""
        dims = {dim for operand in self.members(part) for dim in operand.dims}
        return sum(1 << place for place, operand in enumerate(self.operands) if dims & set(operand.dims))


@dataclass(slots=True)
class _Node:
    expr: Expr
    below: list[_Node] = field(default_factory=list)
    part: int = 0


def is_chain(expr: Expr) -> TypeGuard[Product]:
    """Whether an expression is a product of products, which may be multiplied in other orders."""
    below = expr.operands if isinstance(expr, Product) else ()
    return len(below) > 1 and any(isinstance(operand, Product) for operand in below)


def chain_of(product: Product) -> Chain:
    """The chain of a product of two operands."""
    top = _Node(product)
    opened, leaves = [top], _open(top)
    place = 0
    while place < len(leaves):
        node = leaves[place]
        if _can_open(node.expr, product, leaves):
            leaves[place : place + 1] = _open(node)
            opened.append(node)
        else:
            place += 1
    for number, leaf in enumerate(leaves):
        leaf.part = 1 << number
    written = []
    for node in reversed(opened):
        left, right = node.below
        written.append(Pair(left.part, right.part))
        node.part = left.part | right.part
    return Chain(product, tuple(leaf.expr for leaf in leaves), tuple(written))


def _open(node: _Node) -> list[_Node]:
    node.below = [_Node(expr) for expr in operands(node.expr)]
    return list(node.below)


def _can_open(expr: Expr, around: Product, leaves: Sequence[_Node]) -> bool:
    """Whether no dim that it sums stands in another leaf; in itself none does."""
    if not isinstance(expr, Product) or len(expr.operands) != 2 or expr.local or around.local:
        return False
    if any(dtype != around.dtype for dtype in (expr.dtype, *(operand.dtype for operand in expr.operands))):
        return False
    ended = {dim for operand in expr.operands for dim in operand.dims}.difference(expr.dims)
    return all(ended.isdisjoint(leaf.expr.dims) for leaf in leaves)


def summed(product: Product) -> Product:
    """A sum over dims of one operand, or its dims in another order: done by the product that it is of, if it is of one.

        sum_B(x[B, T, D] ·_T dy[B, T, F])    x ·_{B,T} dy      no array [B, D, F] is made
        sum_J(A[I, J] · B[J, K])             A ·_J B           none [I, J, K]
        sum_K(A[I, J] ·_J B[J, K])           A ·_J sum_K(B)    none [I, K]

    Not of one that multiplies element by element, `sum_J(A[I, J] ⊙ B[I, J])`: that is one loop over elements.
    """
    (below,) = product.operands
    if not isinstance(below, Product) or below.local or below.dtype != product.dtype:
        return product
    meeting = [frozenset(operand.dims) for operand in below.operands]
    if len(meeting) == 2 and frozenset(below.dims) in meeting:
        return product
    return sums_first(replace(below, dims=product.dims, span=product.span))


def sums_first(product: Product) -> Product:
    """A product of two, of which each is summed first over the dims that it alone has: `A[I, J] · B[J, K] → y[I]` as
    `A · sum_K(B)`, which multiplies K times less, and as `jnp.einsum` does it. What has to add up in a wider type than
    its own, int8 in int32, is summed with the product.
    """
    if len(product.operands) != 2 or product.local or any(each.dtype != product.dtype for each in product.operands):
        return product
    left, right = product.operands
    inside = (_kept(left, {*product.dims, *right.dims}), _kept(right, {*product.dims, *left.dims}))
    return replace(product, operands=inside)


def widened(product: Product, dtype: DType) -> Product:
    """A product that adds up in a wider type than that of its operands, as do the sums that are done before it."""
    inside = (widened(each, dtype) if _is_sum(each) else each for each in product.operands)
    return replace(product, operands=tuple(inside) if len(product.operands) > 1 else product.operands, dtype=dtype)


def _is_sum(expr: Expr) -> TypeGuard[Product]:
    return isinstance(expr, Product) and len(expr.operands) == 1 and {*expr.operands[0].dims} != {*expr.dims}


def _kept(expr: Expr, wanted: Set[str]) -> Expr:
    """An expression summed over its other dims."""
    left = tuple(dim for dim in expr.dims if dim in wanted)
    return expr if left == expr.dims else summed(Product((expr,), left, expr.dtype))


def turned(chain: Chain) -> Iterator[Product]:
    """The chain's product as written, then with two pairs turned: of (a · b) · c, a · (b · c) and (a · c) · b."""
    yield chain.product
    tree = {pair.whole: pair for pair in chain.written}
    for outer in chain.written:
        for part, other in ((outer.left, outer.right), (outer.right, outer.left)):
            if part not in tree:
                continue
            inner = tree[part]
            for stays, goes in ((inner.left, inner.right), (inner.right, inner.left)):
                pair = Pair(goes, other)
                if pair.whole in tree or chain.may_be_made(pair.whole):
                    yield _made(chain, {**tree, pair.whole: pair, outer.whole: Pair(stays, pair.whole)}, chain.whole)


def _made(chain: Chain, tree: Mapping[int, Pair], part: int) -> Product:
    """The product of a part, its pairs as a tree says."""
    left, right = (
        _made(chain, tree, below) if below.bit_count() > 1 else chain.members(below)[0]
        for below in (tree[part].left, tree[part].right)
    )
    return chain.multiply(tree[part], left, right)


def orders(chain: Chain, below: Mapping[int, Expr] | None = None) -> Iterator[Product]:
    """The chain's product with its pairs taken in each order, as written first. `below` are its operands instead."""
    parts: dict[int, list[Pair]] = {}
    for pair in chain.pairs():
        parts.setdefault(pair.whole, []).append(pair)

    def made(part: int) -> Iterator[Expr]:
        if part.bit_count() == 1:
            yield chain.operands[part.bit_length() - 1] if below is None else below[part]
            return
        for pair in parts[part]:
            for left in made(pair.left):
                yield from (chain.multiply(pair, left, right) for right in made(pair.right))

    return (found for found in made(chain.whole) if isinstance(found, Product))
