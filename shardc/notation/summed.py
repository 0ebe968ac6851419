"""What a plain `·` sums though others keep it, where nothing says that it is meant: a warning each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import permutations

from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands, parts_of, uses
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import Program, Statement, every_statement
from shardc.notation import tree
from shardc.notation.slips import statements, subscripts


def summed_early(parsed: tree.Tree, program: Program) -> Iterator[str]:
    """A warning for each result without brackets whose `·` sums what others keep.

    `p = softmax_S(q[B, T, E] · k[B, S, E]); y[B, T, E] = p · v[B, S, E]` adds up the scores of all sequences B, the
    first dim of both; `a = x[B, D] · g[D]; y[B, D] = x + a` sums D, along which `a` is then repeated.
    """
    made = tuple(zip(every_statement(program), statements(parsed), strict=True))
    for place, (statement, written) in enumerate(made):
        if written.result.dims is not None:
            continue
        meant, name = set(subscripts(written.expr)), statement.name
        readers = [each for each, _ in made[place:]]
        for summed in _sums(statement.expr):
            found = [(dim, reader) for dim in summed if (reader := _reader(readers, name, dim, summed, statement.expr))]
            if not found or meant.intersection(summed):
                continue
            dim, reader = found[0]
            batch = summed[: max(1, len(summed) - 1)]  # the last is multiplied
            beside = [each for each in batch if each in reader.dims]
            kept = ", ".join(f"{each}_?" for each in dict.fromkeys((*beside, *statement.dims)))
            sums = summed[0] if len(summed) == 1 == len(dim) else "{" + ",".join(summed) + "}"
            yield (
                f"the `·` of `{name}` sums {', '.join(summed)}, and `{reader.name}` has {dim} beside it; name "
                f"the dims that it keeps, `{name}[{kept}]`, or write `·_{sums}` if it is meant"
            )


def _sums(expr: Expr) -> Iterator[tuple[str, ...]]:
    """Of each product of two the dims that both have and that it sums."""
    for part in parts_of(expr):
        if isinstance(part, Product) and len(part.operands) == 2:
            summed = tuple(dim for dim in part.operands[0].dims if dim in _summed(part))
            if summed:
                yield summed


def _summed(product: Product) -> set[str]:
    left, right = product.operands
    return {*left.dims}.intersection(right.dims).difference(product.dims)


def _reader(readers: Iterable[Statement], name: str, dim: str, summed: Collection[str], expr: Expr) -> Statement | None:
    """The first statement that has a dim beside what was summed over it: the statement that sums is first of them."""
    is_first, is_product = any(_are_first(part, dim) for part in parts_of(expr)), _is_of(expr, None, dim)
    for place, reader in enumerate(readers):
        if place and is_first and _has_beside(reader, name, dim):
            return reader
        of = name if place else None
        if (is_product or not place) and any(_is_repeated(part, of, dim) for part in parts_of(reader.expr)):
            return reader
    return None


def _are_first(part: Expr, dim: str) -> bool:
    """Whether it is a product of two that sums the dim that both have first."""
    if not isinstance(part, Product) or len(part.operands) != 2:
        return False
    return dim in _summed(part) and all(operand.dims[0] == dim for operand in part.operands)


def _has_beside(statement: Statement, name: str, dim: str) -> bool:
    """Whether a statement's result has a dim that it takes from another array than the one of this name."""
    used = list(uses(statement.expr))
    beside = any(use.name != name and dim in use.dims for use in used)
    return beside and dim in statement.dims and any(use.name == name for use in used)


def _is_repeated(part: Expr, name: str | None, dim: str) -> bool:
    """Whether the array of this name, or where none is said a product that summed the dim, is repeated along it:
    element by element, beside an array that has it."""
    if not _is_elementwise(part) or dim not in part.dims:
        return False
    pairs = permutations(operands(part), 2)
    return any(dim in other.dims and dim not in one.dims and _is_of(one, name, dim) for one, other in pairs)


def _is_of(expr: Expr, name: str | None, dim: str) -> bool:
    """Whether an operand is that array, or that product, but for what is done to each element."""
    waiting = [expr]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Use) and found.name == name:
            return True
        if name is None and isinstance(found, Product) and len(found.operands) == 2 and dim in _summed(found):
            return True
        waiting += operands(found) if _is_elementwise(found) else ()
    return False


def _is_elementwise(expr: Expr) -> bool:
    """Whether each element is made of one element of each operand, and one operand has all its dims."""
    match expr:
        case Product():
            return any(set(each.dims) == set(expr.dims) for each in expr.operands) and not any(
                set(each.dims).difference(expr.dims) for each in expr.operands
            )
        case Call():
            return not FUNCTIONS[expr.function].over_dims
        case Use() | Named():
            return False
