"""What a user of this package is told when what is given is of another kind than what is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from shardc.errors import ShardcError
from shardc.interface import arguments
from shardc.ir.collectives import Move
from shardc.ir.mesh import MAX_AXES, MAX_DEVICES, Mesh

MOVES: tuple[type[Any], ...] = get_args(Move)
_A_MOVE = 'give moves of shardc.ir.collectives: AllGather(("X",), 0)'


def count_of(what: str, given: object, least: int, most: int) -> int:
    """A whole number in these limits; SHC001 for anything else."""
    if type(given) is not int or not least <= given <= most:
        raise ShardcError("SHC001", f"{what} is {given!r}", help=f"give a whole number from {least} to {most}")
    return given


def mesh_of(given: object) -> Mesh:
    """As `shardc.plan` takes it: sizes, text, a mesh of JAX; SHC203 for anything else."""
    found = arguments.mesh_of(given)
    if found is None:
        raise ShardcError("SHC203", f"{given!r} is no mesh", help='give {"X": 2, "Y": 2}')
    return found


def meshes_given(given: object) -> Sequence[Mesh]:
    """One mesh at least."""
    one = isinstance(given, Mesh | Mapping | str)
    if one or not isinstance(given, Iterable) or not (found := [*map(mesh_of, given)]):
        raise ShardcError("SHC001", f"{given!r} is no list of meshes", help='give [{"X": 2, "Y": 2}]')
    return found


def check_sizes(min_axes: object, max_axes: object, min_size: object, max_size: object) -> None:
    """What a strategy of meshes may draw; SHC001 where some of it would be no mesh."""
    axes = count_of("max_axes", max_axes, count_of("min_axes", min_axes, 1, MAX_AXES), MAX_AXES)
    size = count_of("max_size", max_size, count_of("min_size", min_size, 1, MAX_DEVICES), MAX_DEVICES)
    if size**axes > MAX_DEVICES:
        so = f"a mesh has at most 2^20 = {MAX_DEVICES}: lower max_axes or max_size"
        raise ShardcError("SHC001", f"{axes} axes of {size} devices each are {size**axes} devices", help=so)


def check_move(move: object) -> None:
    """A move of which every field is what it says that it is; SHC001 for anything else."""
    if not isinstance(move, MOVES):
        raise ShardcError("SHC001", f"{move!r} is no move", help=_A_MOVE)
    kinds = get_type_hints(type(move))
    for field in fields(move):
        value = getattr(move, field.name)
        if not _is_a(value, kinds[field.name]):
            so = f"give {field.name} as {_SAID.get(field.name, 'in shardc.ir.collectives')}"
            raise ShardcError("SHC001", f"`{field.name}` of {move!r} cannot be {value!r}", help=so)


_SAID = {
    "axes": 'a tuple of names: ("X",)',
    "dim": "a whole number, counted from 0",
    "source": "a whole number, counted from 0",
    "parts": 'pairs of a dim and its axes: ((0, ("X",)), (1, ("Y",)))',
    "dims": 'the axes of each dim: (("X",), ())',
}


def _is_a(value: object, kind: Any) -> bool:
    """`tuple[int, ...]` and `tuple[int, str]` by what they hold; no truth value is a number."""
    if get_origin(kind) is not tuple:
        return type(value) is kind
    inside = get_args(kind)
    if not isinstance(value, tuple):
        return False
    if inside[-1] is ...:
        return all(_is_a(each, inside[0]) for each in value)
    return len(value) == len(inside) and all(map(_is_a, value, inside))
