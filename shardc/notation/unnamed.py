"""Names for arrays that the text gives none: `[A_X, B] → [A, B]` is `Array[A_X, B] → Result[A, B]`.

Each is an array of its own, and is printed without its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, count

from shardc.notation import tree


def with_names(parsed: tree.Tree) -> tree.Tree:
    """The same text, every array under a name that nothing else bears."""
    made = list(tree.statements(parsed.items))
    taken = {array.name for one in made for array in (one.result, *tree.arrays(one.expr))}
    if "" not in taken:
        return parsed
    operands, results = _fresh("Array", taken), _fresh("Result", taken)

    def of_statement(one: tree.Statement) -> tree.Statement:
        return replace(one, expr=tree.over_arrays(one.expr, _named(operands)), result=_named(results)(one.result))

    def of_loop(loop: tree.For) -> tree.For:
        return replace(loop, body=tuple(of_loop(e) if isinstance(e, tree.For) else of_statement(e) for e in loop.body))

    def of(item: tree.Item) -> tree.Item:
        match item:
            case tree.Statement():
                return of_statement(item)
            case tree.For():
                return of_loop(item)
            case _:
                return item

    return replace(parsed, items=tuple(map(of, parsed.items)))


def _named(fresh: Iterator[str]) -> Callable[[tree.Array], tree.Array]:
    return lambda array: array if array.name else replace(array, name=next(fresh), unnamed=True)


def _fresh(word: str, taken: set[str]) -> Iterator[str]:
    """`Array`, `Array_2`, `Array_3`, …, without those that the text uses."""
    return (name for name in chain([word], (f"{word}_{n}" for n in count(2))) if name not in taken)
