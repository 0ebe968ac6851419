"""Which devices talk to which: the forms in which compilers print it, and the mesh axes that it is.

{{0,4},{1,5}}                     each group's devices
[4,2]<=[2,4]T(1,0)                count from 0 to 7, seen as 2 by 4, transposed, cut into 4 groups of 2
mesh['X'=2,'Y'=4] {'Y'}           by the names of axes, which may be parts of them: 'Y':(1)2
@mesh<X=2,Y=4> {Y}                the same, as some versions print it
{{0,1},{1,0}}                     pairs of source and target
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from math import prod

import numpy as np

from shardc.compiled.hlo.text import UnreadableHlo
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

Groups = tuple[tuple[int, ...], ...]

_LIST = re.compile(r"\{\s*(?:\{[\d,\s]*\}[\s,]*)*\}")
_INNER = re.compile(r"[{\[]([\d,\s]*)[}\]]")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"@?mesh[\[<]([^\]>]*)[\]>](?:,\s*device_ids=\(([^()]*(?:\([^()]*\))?)\))?\s*\{([^}]*)\}")
_MESH_AXIS = re.compile(r"['\"]?([^'\"=,\s]+)['\"]?=(\d+)")
_GROUP_AXIS = re.compile(r"['\"]?([^'\",:\s]+)['\"]?(?::\((\d+)\)(\d+))?")
_DEVICES = re.compile(r"\[([\d,]+)\]T\(([\d,]+)\)")  # count up, seen as so many by so many, transposed


@lru_cache(maxsize=256)
def read_groups(text: str, devices: int) -> Groups:
    """The groups of `replica_groups=`, as device numbers; `{}` is one group of all. Raises UnreadableHlo."""
    text = text.strip()
    mesh, iota = _MESH.fullmatch(text), _IOTA.fullmatch(text)
    try:
        if mesh:
            return _of_mesh(*mesh.groups())
        if iota:
            return _rows(_iota(*iota.groups()))
        if _LIST.fullmatch(text):
            found = tuple(_numbers(inner) for inner in _INNER.findall(text[1:-1]) if inner.strip())
            return found or (tuple(range(devices)),)
    except (KeyError, ValueError):  # sizes that do not fit each other, an axis that is not there
        pass
    raise UnreadableHlo(f"replica groups {text[:80]}")


@lru_cache(maxsize=256)
def read_pairs(text: str) -> Groups:
    """The (source, target) pairs of a permute. Raises UnreadableHlo."""
    if not _LIST.fullmatch(text.strip()):
        raise UnreadableHlo(f"pairs {text[:80]}")
    found = tuple(_numbers(inner) for inner in _INNER.findall(text.strip()[1:-1]))
    if any(len(pair) != 2 for pair in found):
        raise UnreadableHlo(f"pairs {text[:80]}")
    return found


def axes_of_groups(groups: Groups, mesh: Mesh) -> Axes | None:
    """The mesh axes along which each group extends; None where groups are not made of whole axes.

    On X=2, Y=4, {0,4} differs in X alone and has 2 devices: X. {0,1} is a part of Y: None.
    """
    first = groups[0]
    axes = tuple(axis for axis in mesh.names if len({coordinate(device, axis, mesh) for device in first}) > 1)
    if any(len(set(group)) != mesh.product(axes) for group in groups):
        return None
    rest = [axis for axis in mesh.names if axis not in axes]
    for group in groups:
        if len({tuple(coordinate(device, axis, mesh) for axis in rest) for device in group}) != 1:
            return None
    return axes


def axes_of_pairs(pairs: Groups, mesh: Mesh) -> Axes:
    """The axes along which some pair differs."""
    return tuple(
        axis for axis in mesh.names if any(coordinate(s, axis, mesh) != coordinate(t, axis, mesh) for s, t in pairs)
    )


def coordinate(device: int, axis: str, mesh: Mesh) -> int:
    """The device's coordinate along an axis; devices are counted with the last axis fastest."""
    names = mesh.names
    stride = prod(mesh.size(name) for name in names[names.index(axis) + 1 :])
    return device // stride % mesh.size(axis)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number.strip())


def _iota(shape: str, counted: str, order: str | None) -> np.ndarray:
    sizes = _numbers(counted)
    numbers = np.arange(prod(sizes)).reshape(sizes)
    if order:
        numbers = numbers.transpose(_numbers(order))
    return numbers.reshape(_numbers(shape))


def _rows(numbers: np.ndarray) -> Groups:
    return tuple(tuple(int(number) for number in row) for row in numbers.reshape(-1, numbers.shape[-1]))


def _of_mesh(axes: str, device_ids: str | None, grouped: str) -> Groups:
    """Axes are split where a group takes a part: 'Y':(2)2 of Y=8 is the middle one of 2·2·2.

    Raises KeyError or ValueError where they do not fit.
    """
    sizes = {name: int(size) for name, size in _MESH_AXIS.findall(axes)}
    wanted = [(name, int(before or 1), int(size or sizes[name])) for name, before, size in _GROUP_AXIS.findall(grouped)]
    pieces: list[tuple[str, int]] = []  # an axis, and the size of what stands before the piece in it
    shape: list[int] = []
    for name, size in sizes.items():
        ends = {cut for axis, before, part in wanted if axis == name for cut in (before, before * part)}
        for low, high in pairwise([*sorted({1} | ends), size]):
            pieces.append((name, low))
            shape.append(high // low)
    if prod(shape) != prod(sizes.values()):
        raise ValueError("parts that do not divide their axes")
    inside = [pieces.index((name, before)) for name, before, _ in wanted]
    outside = [place for place in range(len(pieces)) if place not in inside]
    numbers = np.arange(prod(shape)) if device_ids is None else _device_ids(device_ids)
    turned = numbers.reshape(shape).transpose(outside + inside)
    return _rows(turned.reshape(-1, prod(shape[place] for place in inside)))


def _device_ids(text: str) -> np.ndarray:
    iota = _DEVICES.fullmatch(text)
    if iota:
        sizes, order = iota.groups()
        return np.arange(prod(_numbers(sizes))).reshape(_numbers(sizes)).transpose(_numbers(order)).ravel()
    return np.array(_numbers(text))
