"""The order in which JAX lays a mesh on a TPU slice, said without JAX: `jax.make_mesh` on the slice's chips.

    v5p:4x4x4, sizes 4, 16         Y = 16 on the physical axes 0 and 1, X = 4 on 2: the last axis chooses first
    v5e:4x8, sizes 8, 4            the same: whole physical axes, where sizes allow
    v5e:4x4, sizes 16              a closed walk, 0 1 2 3 7 6 5 9 10 11 15 14 13 12 8 4: neighbours are neighbours
    v5e:2x2, sizes 2, 2            the walk 0 1 3 2, cut in two: [[0, 1], [3, 2]]

Chips are counted with the first physical axis fastest. Most meshes take whole physical axes. Where none does, and
`jax.make_mesh` refuses, the order is that of `mesh_utils.create_device_mesh` with `allow_split_physical_axes=True`,
which the refusal asks for. Small slices of some chips have walks of their own, by a table. All of this follows
`jax._src.mesh_utils` as of JAX 0.10.2; the tests hold it against the JAX that is installed, device by device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import prod

Sizes = tuple[int, ...]
Shares = tuple[Sizes, ...]  # per mesh axis, how much of each physical axis it takes

_SQUARE = (0, 1, 3, 2)
_EIGHT = (0, 1, 2, 3, 7, 6, 5, 4)
_SIXTEEN = (0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4)
_TRAY = (0, 1, 2, 3, 6, 7, 4, 5)


def walk(chip: str, sizes: Sizes, shape: Sizes) -> tuple[Sizes, ...] | None:
    """The chips, by coordinates, in the order of the mesh's devices, where a walk through them is it; else None."""
    found = _WALKS[chip](sizes, shape) if chip in _WALKS else None
    if found is None:
        return None
    chips = list(_tiled(shape) if chip == "v3" else _first_fastest(shape))
    return tuple(chips[number] for number in found)


def shares(sizes: Sizes, shape: Sizes) -> Shares | None:
    """What each mesh axis takes of each physical one: whole axes if that goes, else parts; None if neither does.

    Of a physical axis that several mesh axes share, the later ones take the inner parts.
    """
    padded = shape + (1,) * (3 - len(shape))  # JAX counts three axes, and an axis of one chip may go along
    found = _whole(sizes, padded) or _split(sizes, padded)
    return None if found is None else tuple(taken[: len(shape)] for taken in found)


def factorings(size: int, left: Sizes, allowed: Sizes | None = None) -> Iterator[Sizes]:
    """Every way to write a size as a product of divisors of what is left of each (allowed) physical axis."""

    def extend(axis: int, size: int) -> Iterator[Sizes]:
        if axis == len(left):
            if size == 1:
                yield ()
            return
        usable = allowed is None or axis in allowed
        for part in range(1, left[axis] + 1 if usable else 2):
            if left[axis] % part == 0 and size % part == 0:
                for rest in extend(axis + 1, size // part):
                    yield (part, *rest)

    yield from extend(0, size)


def _whole(sizes: Sizes, shape: Sizes) -> Shares | None:
    """The last mesh axis chooses first: as many physical axes as multiply to its size, the first such choice."""
    left = list(shape)
    found = [(1,) * len(shape)] * len(sizes)
    for axis, size in reversed(list(enumerate(sizes))):
        choices = (chosen for count in range(len(left), 0, -1) for chosen in combinations(range(len(left)), count))
        taken = next((chosen for chosen in choices if prod(left[place] for place in chosen) == size), ())
        if not taken and size > 1:
            return None
        found[axis] = tuple(shape[place] if place in taken else 1 for place in range(len(shape)))
        left = [0 if place in taken else rest for place, rest in enumerate(left)]
    return tuple(found)


def _split(sizes: Sizes, shape: Sizes) -> Shares | None:
    """The same, by parts: an axis wants most of whole physical axes, then most of them, then those begun already."""
    left = shape
    found = [(1,) * len(shape)] * len(sizes)

    def liked(taken: Sizes) -> tuple[int, int, int, Sizes]:
        whole = [part for part, size in zip(taken, shape, strict=True) if part == size]
        begun = [part for part, rest, size in zip(taken, left, shape, strict=True) if rest < size]
        return prod(whole), sum(part > 1 for part in whole), prod(begun), taken

    for axis, size in reversed(list(enumerate(sizes))):
        best = max(factorings(size, left), key=liked, default=None)
        if best is None:
            return None
        found[axis] = best
        left = tuple(rest // part for rest, part in zip(left, best, strict=True))
    return tuple(found)


def _first_fastest(shape: Sizes) -> Iterator[Sizes]:
    """(0, 0), (1, 0), …, (0, 1), …"""
    if not shape:
        yield ()
        return
    for rest in _first_fastest(shape[1:]):
        for place in range(shape[0]):
            yield (place, *rest)


def _tiled(shape: Sizes) -> Iterator[Sizes]:
    """Host by host, four chips each: (0, 0), (1, 0), (0, 1), (1, 1), (2, 0), …"""
    tiles = tuple(-(-size // 2) for size in shape)
    for tile in _first_fastest(tiles):
        for inner in _first_fastest((2,) * len(shape)):
            place = tuple(2 * at + inside for at, inside in zip(tile, inner, strict=True))
            if all(at < size for at, size in zip(place, shape, strict=True)):
                yield place


def _lite(sizes: Sizes, shape: Sizes) -> Sizes | None:
    """v5e, v6e: hosts of four or eight chips, and one walk round 4×4 if all of it is one axis."""
    if sorted(shape)[-2:] == [2, 2] and prod(shape) == 4:
        return _SQUARE
    if prod(shape) == 8:
        return _EIGHT
    return _SIXTEEN if sorted(shape)[-2:] == [4, 4] and prod(shape) == max(sizes) == 16 else None


def _trays(sizes: Sizes, shape: Sizes) -> Sizes | None:
    """v7x: eight devices at a time, where no more than 2×2 lie side by side."""
    chips = prod(shape)
    if chips % 8 or chips > 32 or max(shape[:2]) > 2:
        return None
    return tuple(place + start for start in range(0, chips, 8) for place in _TRAY)


def _hosts(sizes: Sizes, shape: Sizes) -> Sizes:
    """v3: the order of the devices, but for eight that are a tray."""
    chips = prod(shape)
    if chips != 8 and sizes[-1] != 8:
        return tuple(range(chips))
    return tuple(place + start for start in range(0, chips, 8) for place in _TRAY)


_WALKS: dict[str, Callable[[Sizes, Sizes], Sizes | None]] = {"v5e": _lite, "v6e": _lite, "v7x": _trays, "v3": _hosts}
