"""What XLA's partitioner warns of: an array replicated in order to reshard it.

    [SPMD] Involuntary full rematerialization. The compiler cannot go from sharding {devices=[4,1,2]<=[2,4]T(1,0)} to
    {devices=[1,8,1]<=[8]} efficiently for HLO operation %param = bf16[16,256,64]{2,1,0} parameter(0), sharding=…,
    metadata={op_name="a"}. As the last resort, SPMD will replicate the tensor …

On X=2, Y=4 that is a[I_Y, J, K_X] → a[I, J_XY, K]. Later versions of JAX write the same as
{mesh['X'=2,'Y'=4], [{'Y'}, {}, {'X'}]} and {mesh['X'=2,'Y'=4], [{}, {'X', 'Y'}, {}]}.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

import numpy as np

from shardc.compiled.explain.change import axes_of, dim_names
from shardc.compiled.explain.search import array_name
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding, spell

_MARK = "nvoluntary full rematerialization"
_SHARDINGS = re.compile(r"from sharding (\{.+?\}) to (?:sharding )?(\{.+?\}) (?:efficiently|without|for HLO)")
_OPERATION = re.compile(r"%?([\w.\-]+) = (\w+)\[[\d,]*\]")
_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FILE = re.compile(r'source_file="([^"]*)"(?:\s+source_line=(\d+))?')
_NAMED = re.compile(r"\{mesh\[([^\]]*)\], \[([^\]]*)\]\}")
_AXIS = re.compile(r"'([^']+)'=(\d+)")
_DIM = re.compile(r"\{([^}]*)\}")
_TILES = re.compile(r"\{(?:maximal|replicated|devices=\[([\d,]+)\](<=\[[\d,]+\](?:T\([\d,]+\))?|[\d,]+)?([^}]*))\}")


@dataclass(frozen=True, slots=True)
class Rematerialization:
    """One warning: the operation, what it is called in the program, from where to where."""

    operation: str
    name: str
    before: Sharding | None
    after: Sharding | None
    source: str
    text: str

    def spelled(self, mesh: Mesh) -> str:
        """`a[I_Y, J, K_X] → a[I, J_XY, K]`; the operation alone where the shardings are not of whole axes."""
        if self.before is None or self.after is None:
            return self.name or self.operation
        dims = dim_names(self.before.rank, mesh)
        name = array_name(self.name)
        return f"{name}{spell(dims, self.before)} → {name}{spell(dims, self.after)}"


def rematerializations(text: str, mesh: Mesh) -> tuple[Rematerialization, ...]:
    """The warnings in what a compiler wrote, each once."""
    found = [_read(line, mesh) for line in text.splitlines() if _MARK in line]
    return tuple({(r.operation, r.before, r.after): r for r in found}.values())


def _read(line: str, mesh: Mesh) -> Rematerialization:
    shardings, operation = _SHARDINGS.search(line), _OPERATION.search(line)
    name, file = _NAME.search(line), _FILE.search(line)
    before, after = (tiles(part, mesh) for part in shardings.groups()) if shardings else (None, None)
    return Rematerialization(
        operation[1] if operation else "",
        name[1] if name else "",
        before,
        after,
        f"{file[1]}:{file[2] or '?'}" if file else "",
        line.strip(),
    )


def tiles(text: str, mesh: Mesh) -> Sharding | None:
    """`{devices=[4,1,2]<=[2,4]T(1,0)}`: dim 0 in 4, dim 2 in 2, by devices that count Y before X: [I_Y, J, K_X].

    None for what is not made of whole axes of the mesh, `{replicated}` among it, whose rank is not said.
    """
    named = _NAMED.fullmatch(text)
    if named is not None:
        return _by_name(named[1], named[2], mesh)
    found = _TILES.fullmatch(text)
    if found is None or not found[1]:
        return None
    sizes = [int(size) for size in found[1].split(",")]
    devices = _devices(found[2] or "", mesh.devices)
    if devices is None or prod(sizes) != mesh.devices:
        return None
    places = np.empty((mesh.devices, len(sizes)), dtype=np.int64)
    places[devices] = np.stack(np.unravel_index(np.arange(mesh.devices), sizes), axis=1)
    rank = len(sizes) - ("last_tile_dim_replicate" in found[3])
    dims = [axes_of(places[:, dim], sizes[dim], mesh) for dim in range(rank)]
    known: list[Axes] = [axes for axes in dims if axes is not None]
    return Sharding.of(known) if len(known) == rank and "last_tile_dims" not in found[3] else None


def _by_name(axes: str, dims: str, mesh: Mesh) -> Sharding | None:
    """`'X'=2,'Y'=4` and `{'Y'}, {}, {'X'}`; whatever the axes are called, they are known by how devices count."""
    sizes = {name: int(size) for name, size in _AXIS.findall(axes)}
    if prod(sizes.values()) != mesh.devices:
        return None
    places = dict(zip(sizes, np.indices(tuple(sizes.values())).reshape(len(sizes), -1), strict=True))
    found = []
    for dim in _DIM.findall(dims):
        names = [name.strip(" '") for name in dim.split(",") if name.strip()]
        if any(name not in sizes for name in names):
            return None
        number = np.zeros(mesh.devices, dtype=np.int64)
        for name in names:
            number = number * sizes[name] + places[name]
        found.append(axes_of(number, prod(sizes[name] for name in names), mesh))
    known = [one for one in found if one is not None]
    return Sharding.of(known) if len(known) == len(found) else None


def _devices(text: str, count: int) -> np.ndarray | None:
    """The devices in order of the tiles: listed, or counted up, seen as so many by so many, transposed."""
    shape, _, order = text.removeprefix("<=").partition("T")
    numbers = [int(number) for number in re.findall(r"\d+", shape)]
    if not text.startswith("<="):
        return np.array(numbers) if sorted(numbers) == list(range(count)) else None
    if prod(numbers) != count:
        return None
    turned = [int(number) for number in re.findall(r"\d+", order)] or list(range(len(numbers)))
    if sorted(turned) != list(range(len(numbers))):
        return None
    return np.arange(count).reshape(numbers).transpose(turned).ravel()
