"""The sizes that stand as numbers in emitted code, read as the small ones that they stand for.

jnp.arange(256)                   positions of a dim of 256, on one device, or of more on several
jnp.full((8192 // 4, 512), 0)     an array of one number, its first dim shared by four devices
jax.lax.scan(…, length=32)        a loop's trips
jnp.broadcast_to(M, (4, 8, 64))   as many dims; of what size, only what it meets says, and JAX takes no other
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from shardc.proving.faults import Unread, require
from shardc.proving.tensors import Shape, Tensor, shaped


def share_of(size: int, parts: int, literals: Mapping[int, int]) -> int:
    """The part of a dim of that size that each of so many devices has. A part of 1 is repeated where it meets another,
    and is to be 1 in the code as well."""
    require(size in literals, f"{size} is the size of no dim")
    share = literals[size] // parts
    require(share > 1 or size == parts, f"{size} // {parts} is the part of no device")
    return share


def are_numbers(extents: Sequence[ast.expr]) -> bool:
    """Whether a shape is of numbers alone, as `shape_of` reads them."""
    return all(isinstance(each, ast.Constant | ast.BinOp) for each in extents)


def widened(block: Tensor, rank: int) -> Tensor:
    """With dims of 1 in front."""
    return shaped(block, (1,) * (rank - len(block.shape)) + block.shape)


def shape_of(extents: Sequence[ast.expr], literals: Mapping[int, int]) -> Shape:
    """The shape that `(8192 // 4, 512)` stands for."""
    found = list[int]()
    for extent in extents:
        match extent:
            case ast.Constant(int(size)):
                found.append(share_of(size, 1, literals))
            case ast.BinOp(ast.Constant(int(size)), ast.FloorDiv(), ast.Constant(int(parts))):
                found.append(share_of(size, parts, literals))
            case _:
                raise Unread(ast.unparse(extent))
    return tuple(found)
