"""`index_L` within a loop along L: the number of the trip, a row of positions that are made before the loop.

for L { x = where(index_L < 2, x, 0.5 ⊙ x) }      l[L] = index_L
                                                  for L { x = where(l < 2, x, 0.5 ⊙ x) }
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from shardc.notation import tree


def with_trips(parsed: tree.Tree) -> tree.Tree:
    """The same text; in a loop positions of its own dim are an array's."""
    if not any(map(_position, tree.loops(parsed.items))):
        return parsed
    every = list(tree.statements(parsed.items))
    taken = {array.name for one in every for array in (one.result, *tree.arrays(one.expr))}
    return replace(parsed, items=tuple(_made(parsed.items, taken)))


def _made(items: Iterable[tree.Item], taken: set[str]) -> Iterator[tree.Item]:
    for item in items:
        if isinstance(item, tree.For):
            yield from _loop(item, taken)
        else:
            yield item


def _loop(loop: tree.For, taken: set[str]) -> Iterator[tree.Statement | tree.For]:
    """A loop; before it the positions along its dim, if it names them."""
    position = _position(loop)
    if position is not None:
        name = loop.dim.lower()
        while name in taken:
            name += "'"
        taken.add(name)
        rows = tree.Array(name, (tree.Dim(loop.dim, span=position.span),), span=position.span)
        yield tree.Statement(rows, position, result_first=True, span=position.span)
        loop = replace(loop, body=tuple(_counted(each, loop.dim, name) for each in loop.body))
    body = (one for each in loop.body for one in (_loop(each, taken) if isinstance(each, tree.For) else (each,)))
    yield replace(loop, body=tuple(body))


def _counted(each: tree.Statement | tree.For, dim: str, name: str) -> tree.Statement | tree.For:
    """With that array for each position along the dim."""

    def row(leaf: tree.Leaf) -> tree.Leaf:
        is_position = isinstance(leaf, tree.Index) and leaf.dim == dim
        return tree.Array(name, None, span=leaf.span) if is_position else leaf

    if isinstance(each, tree.For):
        return replace(each, body=tuple(_counted(one, dim, name) for one in each.body))
    return replace(each, expr=tree.over_leaves(each.expr, row))


def _position(loop: tree.For) -> tree.Index | None:
    """The first position along the loop's dim that its body names."""
    leaves = (leaf for one in tree.statements(loop.body) for leaf in tree.leaves(one.expr))
    return next((leaf for leaf in leaves if isinstance(leaf, tree.Index) and leaf.dim == loop.dim), None)
