"""The shortest condition on the sizes of axes that is true of some meshes and of no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations, permutations
from typing import TypeAlias

from shardc.ir.mesh import Mesh

Condition: TypeAlias = tuple[str, Callable[[Mesh], bool]]
_MOST_TERMS = 3


def shortest(holds: Mapping[Mesh, bool]) -> str:
    """In words: "always", "never", one condition, or two or three of them joined by `and` or by `or`."""
    if all(holds.values()):
        return "always"
    if not any(holds.values()):
        return "never"
    names = next(iter(holds)).names
    simple = list(_simple(names))
    for count in range(1, _MOST_TERMS + 1):
        for some in combinations(simple, count):
            for word, joined in ((" or ", any), (" and ", all)):
                if all(joined(is_true(mesh) for _, is_true in some) == held for mesh, held in holds.items()):
                    return word.join(name for name, _ in some)
    return "only on " + "; ".join(str(mesh) for mesh, held in holds.items() if held)


def _simple(names: tuple[str, ...]) -> Iterator[Condition]:
    for name in names:
        yield f"{name} = 1", partial(_is_one, name)
    for one, other in combinations(names, 2):
        yield f"{one} = {other}", partial(_are_equal, one, other)
    for one, other in permutations(names, 2):
        yield f"{one} divides {other}", partial(_divides, one, other)


def _is_one(name: str, mesh: Mesh) -> bool:
    return mesh.size(name) == 1


def _are_equal(one: str, other: str, mesh: Mesh) -> bool:
    return mesh.size(one) == mesh.size(other)


def _divides(one: str, other: str, mesh: Mesh) -> bool:
    return mesh.size(other) % mesh.size(one) == 0
