"""Sizes of dims: those that must be one, and those that a sharding divides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shardc.errors import ShardcError, Span
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, spell_dim


def shared_sizes(sizes: Mapping[str, int], pairs: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The sizes that dims have from others whose place they name; SHC206 where the two differ."""
    found: dict[str, int] = {}
    for dims in classes(pairs):
        given = {dim: sizes[dim] for dim in dims if dim in sizes}
        if len(set(given.values())) > 1:
            raise _two_sizes(given)
        found |= {dim: size for size in set(given.values()) for dim in dims if dim not in given}
    return found


def following(sizes: Iterable[str], pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Of dims with a size those that have it from another, which stands before them."""
    joined, known = classes(pairs), [*sizes]
    return {dim for dims in joined for dim in [each for each in known if each in dims][1:]}


def classes(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The dims that the pairs join, directly or by way of others, in order."""
    found: list[list[str]] = []
    for pair in pairs:
        joined = [some for some in found if not set(pair).isdisjoint(some)]
        found = [some for some in found if some not in joined]
        found.append(list(dict.fromkeys([*(dim for some in joined for dim in some), *pair])))
    return found


def _two_sizes(given: Mapping[str, int]) -> ShardcError:
    (one, size), *others = given.items()
    other, another = next(pair for pair in others if pair[1] != size)
    return ShardcError(
        "SHC206",
        f"`{other}` names the same dim of an array as `{one}`: {another} is not {size}",
        help=f"give both one size, or leave `{other}` without one",
    )


def not_divisible(dim: str, size: int, axes: Axes, mesh: Mesh, span: Span | None) -> ShardcError:
    parts = mesh.product(axes)
    spelled = ", ".join(f"`{axis}` = {mesh.size(axis)}" for axis in axes)
    many = "axes" if len(axes) > 1 else "axis"
    total = f" ({parts} together)" if len(axes) > 1 else ""
    return ShardcError(
        "SHC204",
        f"dim `{dim}` = {size} is not divisible by mesh {many} {spelled}{total}",
        span=span,
        note=f"{size} mod {parts} = {size % parts}",
        help=f"make {dim} {-(-size // parts) * parts}, or drop `{spell_dim('', axes)}`",
    )
