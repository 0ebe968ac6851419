"""The shortest condition on the sizes of axes that is true of some meshes and of no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
        yield f"{name} = 1", lambda mesh, name=name: mesh.size(name) == 1  # type: ignore[misc]
    for one, other in combinations(names, 2):
        yield f"{one} = {other}", lambda mesh, a=one, b=other: mesh.size(a) == mesh.size(b)  # type: ignore[misc]
    for one, other in permutations(names, 2):
        yield f"{one} divides {other}", lambda mesh, a=one, b=other: mesh.size(b) % mesh.size(a) == 0  # type: ignore[misc]
