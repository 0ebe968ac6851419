"""What a program writes several times, as an array of its own: what it costs does not depend on where statements end.

    y = e ⊙ rsqrt(mean_F(e ⊙ e))      of e = A · B          y_1 = A · B;  y = y_1 ⊙ rsqrt(mean_F(y_1 ⊙ y_1))
    y = sum_K(A · B) ⊙ sum_K(square(A · B))                 y_1 = A · B;  y = sum_K(y_1) ⊙ sum_K(square(y_1))

A search goes through a statement as a tree: each place where an expression stands has it in a sharding of its own, so
that it is made several times. An array is made once, lies where that is best for all that read it, and is kept where it
was moved to. A sum of a product is done before it (`ir.chains`), which is in vain where the product is made anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from shardc.ir.alike import computed
from shardc.ir.chains import summed
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, operands, parts_of, says_steps, uses
from shardc.ir.plan import StatementNumber
from shardc.ir.program import For, Input, Program, Statement, bindings_of, nested
from shardc.planner.whole.arrays import fresh
from shardc.planner.whole.rewrites import Rewritten, Told, as_they_are, bound_to_others

MOST_PRODUCTS = 24  # of a block, of each of which the others are looked at as its sums


def with_arrays_shared(program: Program) -> Iterator[Rewritten]:
    """The program with what is written several times as arrays of their own; then with the sums of such a product as
    sums of the array. Nothing where there is nothing.

    `y = relu(A · B) + exp(A · B)` as `y_1 = A · B; y = relu(y_1) + exp(y_1)`.
    """
    before = program
    for with_sums in (False, True):
        taken = {array.name for array in program.inputs}
        taken |= {made.name for each in nested(program.statements) for made in bindings_of(each)}
        statements, told = _shared(program.inputs, program.statements, taken, with_sums)
        made = replace(program, statements=statements)
        if made != before:
            yield Rewritten(made, told)
        before = made


def _shared(
    inputs: Sequence[Input], statements: Sequence[Statement | For], taken: set[str], with_sums: bool
) -> tuple[tuple[Statement | For, ...], tuple[Told, ...]]:
    """The statements of a program, or of a loop's body, and by which of them each is told."""
    values, roots = _Values({array.name: array.pattern for array in inputs}), dict[int, int]()
    for number, each in enumerate(statements):
        if isinstance(each, Statement) and not says_steps(each.expr):
            roots[number] = values.read(each.expr)
        for bound in bindings_of(each):
            values.bind(bound.name, bound.pattern)
    if with_sums:
        values.sum_products()
    writer = _Writer(values, values.shared([*roots.values()]), taken)
    made, told = list[Statement | For](), list[Told]()
    for number, each in enumerate(statements):
        own = Told(StatementNumber(number))
        if isinstance(each, For):
            body, inside = _shared(each.takes, each.body, taken, with_sums)
            each, own = replace(each, body=body), replace(own, inside=inside)
        elif number in roots and writer.shared:
            made += writer.arrays(roots[number], each.name)
            each = replace(each, expr=writer.read(roots[number], each.expr.dims))
        made.append(each)
        told += [own] * (len(made) - len(told))
    return tuple(made), tuple(told)


def with_sums_first(program: Program) -> Iterator[Rewritten]:
    """The program with each sum of a product that others read too done before it. Nothing where there is none.

    `p = A · B; y = p / sum_K(p)` as `p = A · B; y = p / (A · sum_K(B))`, which reads no array as large as p.
    """
    statements = _with_sums_first(program.statements)
    if statements != program.statements:
        yield Rewritten(replace(program, statements=statements), as_they_are(program.statements))


def _with_sums_first(statements: Sequence[Statement | For]) -> tuple[Statement | For, ...]:
    products, found = dict[str, Product](), list[Statement | For]()
    for each in statements:
        if isinstance(each, For):
            found.append(replace(each, body=_with_sums_first(each.body)))
        else:
            found.append(replace(each, expr=_summed_first(each.expr, products)))
        anew = {*bound_to_others(each)}
        products = {
            name: product
            for name, product in products.items()
            if name not in anew and anew.isdisjoint(use.name for use in uses(product))
        }
        if isinstance(each, Statement) and _is_product(each.expr) and each.expr.dims == each.dims:
            products[each.name] = each.expr
    return tuple(found)


def _summed_first(expr: Expr, products: Mapping[str, Product]) -> Expr:
    """An expression in which each sum of one of these arrays is done by its product."""
    match expr:
        case Product(operands=(Use(name=name, pattern=None) as use,)) if name in products:
            sums = use.dims == products[name].dims and {*expr.dims} < {*use.dims}
            return summed(replace(expr, operands=(products[name],))) if sums else expr
        case Use() | Named():
            return expr
        case _:
            return replace(expr, operands=tuple(_summed_first(operand, products) for operand in expr.operands))


@dataclass(slots=True)
class _Values:
    """The values of a block by numbers: each as it is written first, and of which others it is."""

    lies: dict[str, Pattern]  # of each array what the text says, which a use need not say again
    parts: list[Expr] = field(default_factory=list)
    below: list[tuple[int, ...]] = field(default_factory=list)
    _bound: Counter[str] = field(default_factory=Counter)
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def bind(self, name: str, pattern: Pattern) -> None:
        """From here on the name is another array."""
        self._bound[name] += 1
        self.lies[name] = pattern

    def read(self, expr: Expr) -> int:
        """The number of what an expression computes."""
        waiting: list[int] = []
        for part in reversed([*parts_of(expr)]):
            below = tuple(waiting.pop() for _ in operands(part))
            number = self._numbers.setdefault(self._key(part, below), len(self.parts))
            if number == len(self.parts):
                self.parts.append(part)
                self.below.append(below)
            waiting.append(number)
        return waiting.pop()

    def _key(self, part: Expr, below: tuple[int, ...]) -> Hashable:
        if not isinstance(part, Use):
            return computed(part, below)
        pattern = None if part.pattern == self.lies.get(part.name) else part.pattern
        return replace(part, pattern=pattern), self._bound[part.name]

    def sum_products(self) -> None:
        """Each product that is the sum of another as that: `A · sum_K(B)` as the sum of `A · B`."""
        products = [number for number, part in enumerate(self.parts) if _is_product(part)]
        if len(products) > MOST_PRODUCTS:
            return
        for number in products:
            for other in products:
                wanted, whole = self.parts[number], self.parts[other]
                if {*wanted.dims} < {*whole.dims} and wanted.dtype == whole.dtype:
                    total = Product((self._of_numbers(other),), wanted.dims, wanted.dtype, span=wanted.span)
                    if self._known(summed(total)) == number:
                        self.parts[number], self.below[number] = total, (other,)
                        break

    def _of_numbers(self, number: int) -> Expr:
        """A value as an expression of arrays whose names are numbers."""
        part, below = self.parts[number], self.below[number]
        if isinstance(part, Product):
            return replace(part, operands=tuple(map(self._of_numbers, below)))
        return Use(str(number), part.dims, None, part.dtype)

    def _known(self, expr: Expr) -> int | None:
        """The number of such an expression, if the block has it."""
        if isinstance(expr, Use):
            return int(expr.name)
        below = [number for operand in operands(expr) if (number := self._known(operand)) is not None]
        return self._numbers.get(computed(expr, tuple(below))) if len(below) == len(operands(expr)) else None

    def needed(self, root: int) -> list[int]:
        """The numbers of a value and of all that it is made of, each after what it is made of."""
        found, waiting = dict[int, None](), [(root, False)]
        while waiting:
            number, is_ready = waiting.pop()
            if is_ready:
                found[number] = None
            elif number not in found:
                waiting += [(number, True), *((below, False) for below in reversed(self.below[number]))]
        return [*found]

    def shared(self, roots: Sequence[int]) -> frozenset[int]:
        """The values with a product in them that are read several times."""
        needed = list(dict.fromkeys(number for root in roots for number in self.needed(root)))
        counts, multiplied = Counter(roots), set[int]()
        for number in needed:
            counts.update(self.below[number])
            if _is_product(self.parts[number]) or not multiplied.isdisjoint(self.below[number]):
                multiplied.add(number)
        return frozenset(number for number in multiplied if counts[number] > 1)


def _is_product(part: Expr) -> TypeGuard[Product]:
    return isinstance(part, Product) and len(part.operands) == 2


@dataclass(slots=True)
class _Writer:
    """Writes a block's values as expressions again, those that are shared as arrays."""

    values: _Values
    shared: frozenset[int]
    taken: set[str]  # the names of all arrays
    _written: dict[int, Expr] = field(default_factory=dict)

    def arrays(self, root: int, name: str) -> list[Statement]:
        """The statements that bind what is shared and made of nothing before: one expression reads them first."""
        found = list[Statement]()
        for number in self.values.needed(root):
            if number in self._written:
                continue
            expr = self._written[number] = self._of_below(number)
            if number in self.shared:
                own = fresh(name, self.taken)
                text = f"{own}[{', '.join(expr.dims)}]"
                found.append(Statement(own, expr.dims, Pattern.free(len(expr.dims)), expr, expr.dtype, text, expr.span))
                self._written[number] = Use(own, expr.dims, None, expr.dtype, expr.span)
        return found

    def _of_below(self, number: int) -> Expr:
        part = self.values.parts[number]
        if not isinstance(part, Product | Call):
            return part
        below = zip(self.values.below[number], part.operands, strict=True)
        return replace(part, operands=tuple(self.read(each, operand.dims) for each, operand in below))

    def read(self, number: int, dims: tuple[str, ...]) -> Expr:
        """A value with its dims in the order in which it is read."""
        found = self._written[number]
        return found if found.dims == dims else Product((found,), dims, found.dtype, span=found.span)
