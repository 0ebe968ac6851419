"""Who reads what in a program's text, by the kind of what reads it.

    n = x ⊙ r; y = n · W; s = sum_D(n)     x is read by elements, n by a product and by a sum

A name stands for what the one statement binds to it, wherever statements end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, assert_never

from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.program import For, Program, Statement, bindings_of, read_by

Met: TypeAlias = Hashable  # an expression, the same in whatever order its products are taken


class Reader(Enum):
    """What reads a value: it is computed there as it is read, but for functions that need it whole, and an end."""

    ELEMENTS = auto()
    SUM = auto()
    THROUGH = auto()  # a function over dims
    PRODUCT = auto()
    WHOLE = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Readers:
    """Of each value what reads it: a kind, and that value. Under other dims, as `h[B, S, D]` of `h[B, T, D]`, it is the
    same value."""

    bound: Mapping[str, Statement]  # the one statement that binds the name
    ends: AbstractSet[Met]  # what the program leaves, and what loops read
    by: Mapping[Met, list[tuple[Reader, Met]]]

    @classmethod
    def of(cls, program: Program) -> Readers:
        straight = [each for each in program.statements if isinstance(each, Statement)]
        times = Counter(made.name for each in program.statements for made in bindings_of(each))
        given = {array.name for array in program.inputs}  # in a loop, what is carried is given, and bound anew
        in_loops = {name for each in program.statements if isinstance(each, For) for name in read_by(each)}
        outputs = {program.results[place].name for place in program.outputs}
        bound = {each.name: each for each in straight if times[each.name] == 1 and each.name not in given}
        found, by = cls(bound, set(), {}), dict[Met, list[tuple[Reader, Met]]]()
        for each in straight:
            for reader, below in _read(each.expr):
                by.setdefault(found.key(below), []).append((reader_of(reader), met(reader)))
        last = in_loops | outputs
        ends = {found.key(each.expr) for each in straight if each.name in last or times[each.name] > 1}
        return cls(bound, ends, by)

    def key(self, expr: Expr) -> Met:
        """A name's is that of what it is bound to."""
        if isinstance(expr, Use):
            made = self.made_by(expr)
            return expr.name if made is None else self.key(made)
        return met(expr)

    def made_by(self, use: Use) -> Expr | None:
        """What a name is bound to; None of what is given, and where it is transposed."""
        made = self.bound.get(use.name)
        return made.expr if made is not None and made.expr.dims == made.dims else None

    def renamed(self, use: Use, dims: Iterable[str]) -> frozenset[str]:
        """Some dims of what a name is bound to, as this use names them."""
        names = dict(zip(self.bound[use.name].dims, use.dims, strict=True))
        return frozenset(names.get(dim, dim) for dim in dims)

    def is_needed(self, key: Met, grows: bool) -> bool:
        """Whether a value is written for itself: at the end of a program, and for what needs it as a whole; products
        so need what is made of smaller arrays."""
        whole = (Reader.WHOLE, Reader.PRODUCT) if grows else (Reader.WHOLE,)
        return key in self.ends or any(kind in whole for kind, _ in self.by.get(key, []))

    def lead_to_end(self, keys: Iterable[Met]) -> bool:
        """Whether one of these values, or what is computed of its elements, is written at the end of a program."""
        return any(
            key in self.ends or self.lead_to_end(by for kind, by in self.by.get(key, []) if kind is Reader.ELEMENTS)
            for key in keys
        )

    def is_read_by_several(self, key: Met) -> bool:
        """Whether it is read more than once, and what is computed of its elements ends in several values: of `n = h ⊙
        silu(h)`, read by two products, n and not silu(h)."""
        if len({by for _, by in self.by.get(key, [])}) < 2:
            return False
        waiting, seen, found = [key], {key}, set[Met]()
        while waiting and len(found) < 2:
            for kind, by in self.by.get(waiting.pop(), []):
                if kind is not Reader.ELEMENTS or by in self.ends:
                    found.add(by)
                elif by not in seen:
                    seen.add(by)
                    waiting.append(by)
        return len(found) > 1

    def is_for_products(self, key: Met, is_for_one: bool = False) -> bool:
        """Whether products alone read a value, or what is computed of its elements; no more than one the value itself
        where it `is_for_one`."""
        kinds = self.by.get(key, [])
        if is_for_one and len({by for kind, by in kinds if kind is Reader.PRODUCT}) > 1:
            return False
        return key not in self.ends and all(
            kind is Reader.PRODUCT or (kind is Reader.ELEMENTS and self.is_for_products(by)) for kind, by in kinds
        )

    def is_multiplied(self, key: Met) -> bool:
        """Whether a product reads a value, or what is computed of its elements."""
        kinds = self.by.get(key, [])
        return any(kind is Reader.PRODUCT or (kind is Reader.ELEMENTS and self.is_multiplied(by)) for kind, by in kinds)

    def all_end_in(self, key: Met, inside: AbstractSet[Met]) -> bool:
        """Whether all that is computed of a value is among these."""
        kinds = self.by.get(key, [])
        return key in inside or (
            bool(kinds)
            and key not in self.ends
            and all(by in inside or (kind is Reader.ELEMENTS and self.all_end_in(by, inside)) for kind, by in kinds)
        )


def _read(expr: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Each part of an expression that reads another, and that."""
    for below in operands(expr):
        yield expr, below
        yield from _read(below)


def is_of_elements(expr: Expr) -> bool:
    """Each element of the result from one of each operand."""
    match expr:
        case Call():
            return not FUNCTIONS[expr.function].over_dims
        case Product():
            return set(expr.dims) == {dim for operand in expr.operands for dim in operand.dims}
        case Use() | Named():
            return False


def reader_of(expr: Expr) -> Reader:
    if isinstance(expr, Call) and expr.function == "again":
        return Reader.WHOLE
    if is_of_elements(expr):
        return Reader.ELEMENTS
    if isinstance(expr, Product):
        return Reader.SUM if len(expr.operands) == 1 else Reader.PRODUCT
    return Reader.THROUGH if isinstance(expr, Call) and FUNCTIONS[expr.function].through else Reader.WHOLE


def loop_dims(expr: Product | Call) -> frozenset[str]:
    """Those over which an operation is a loop: its own, and those that it sums."""
    return frozenset(dim for each in (expr, *expr.operands) for dim in each.dims)


def leaves_tiles(expr: Expr) -> bool:
    """A product of two arrays that each have a dim of their own, and one that is summed; and a softmax."""
    if isinstance(expr, Call):
        return Through.RESULT in FUNCTIONS[expr.function].through
    if not isinstance(expr, Product) or len(expr.operands) < 2:
        return False
    left, right = (set(operand.dims) for operand in expr.operands)
    return bool(left - right and right - left)


def met(expr: Expr) -> Met:
    match expr:
        case Use():
            return expr.name, expr.dims
        case Product():
            return expr.dims, frozenset(Counter(map(met, _factors(expr))).items())
        case Call():
            return expr.function, expr.over, expr.numbers, expr.dims, tuple(map(met, expr.operands))
        case Named():
            return expr
        case _:
            assert_never(expr)


def _factors(product: Product) -> Iterator[Expr]:
    """What a chain multiplies: of `x ⊙ r ⊙ g` x, r and g."""
    for below in product.operands:
        if isinstance(below, Product):
            yield from _factors(below)
        else:
            yield below
