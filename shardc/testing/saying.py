"""How a failure says where it is: the mesh, the sizes, the device, the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import indent
from typing import Any

from shardc.ir.mesh import Mesh


def where(mesh: Mesh, sizes: Mapping[str, int]) -> str:
    """`on mesh X=2, Y=2; I=4`."""
    spelled = ", ".join(f"{dim}={size}" for dim, size in sizes.items())
    return f"on {f'mesh {mesh}' if mesh.axes else 'one device'}{f'; {spelled}' if spelled else ''}"


def element(mesh: Mesh, place: tuple[int, ...]) -> str:
    """`device (X=0, Y=1) at (2, 3)`, of a place in the blocks of all devices."""
    count = len(mesh.axes)
    device = ", ".join(f"{axis}={i}" for axis, i in zip(mesh.names, place[:count], strict=True))
    return f"device ({device}) at {place[count:]}"


def lines(**texts: object) -> str:
    """A line for each, beneath a failure; text of several lines begins on its own."""
    said = {name: str(text).strip() for name, text in texts.items()}
    width = max(map(len, said)) + 2
    return "".join(
        f"\n  {name}:\n{indent(text, '    ')}" if "\n" in text else f"\n  {f'{name}:':<{width}}{text}"
        for name, text in said.items()
    )


def name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "a function"))
