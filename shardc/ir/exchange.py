"""What an exchange between two shardings by the same axes cuts, and who then sends what.

Both cut the array into equally many blocks, and each device holds one of each. Axes that a dim keeps in front
change nothing; the tails after them do:

    A[I_XY, J] → A[I_Y, J_X], X=4, Y=2      I: tails XY and Y, 8 blocks become 2: 4 blocks are joined to one
                                            J: tails nothing and X, 1 block becomes 4: each block is cut in 4

A device's block is cut into as many pieces as blocks are joined, here 4, and each piece goes to another device
(or stays). Blocks of one dim can be joined or cut where one count divides the other; 2 blocks do not become 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding

Pairs: TypeAlias = tuple[tuple[int, int], ...]  # of devices by their numbers: who sends, and to whom


@dataclass(frozen=True, slots=True)
class Tail:
    """One dim: the axes after those kept in front, before and after, and how many blocks those cut it into."""

    old: Axes
    new: Axes
    before: int
    after: int

    @property
    def joined(self) -> int:
        """How many blocks become one."""
        return max(1, self.before // self.after)

    @property
    def cut(self) -> int:
        """Into how many pieces each block is cut."""
        return max(1, self.after // self.before)


def tails(before: tuple[Axes, ...], after: tuple[Axes, ...], mesh: Mesh) -> tuple[Tail, ...]:
    """The tails of each dim; axes of one device are left out."""
    return tuple([_tail(old, new, mesh) for old, new in zip(before, after, strict=True)])


def pieces(parts: tuple[Tail, ...]) -> int | None:
    """Into how many pieces each device's block is cut; None if blocks do not fit one another."""
    cut = joined = 1
    for part in parts:
        if part.before % part.after == 0:
            joined *= part.before // part.after
        elif part.after % part.before == 0:
            cut *= part.after // part.before
        else:
            return None
    return cut if cut == joined else None


def keeps_some(parts: tuple[Tail, ...]) -> bool:
    """Whether every device keeps a part of what it holds: no dim is cut by other axes than before.

    `A[I_X, J] → A[I, J_X]` keeps some. `A[I_X, J_Y] → A[I_Y, J_X]` does not: device (0, 1) holds the first half
    of I and needs the second.
    """
    return not any([part.old and part.new for part in parts])


def moved(parts: tuple[Tail, ...], mesh: Mesh) -> Axes:
    """The axes of the tails, in the order of the mesh."""
    return mesh.ordered([axis for part in parts for axis in part.old + part.new])


def needed(before: Sharding, after: Sharding, mesh: Mesh) -> tuple[int, int | None]:
    """(n, m): of an array's bytes, some device needs and does not hold 1/n - 1/m, or 1/n if m is None; none more.

    1/n is its block. A device that holds one of several partial sums holds nothing of the sum. Else, where every
    device keeps some, it is in each dim the smaller of the two blocks.
    """
    block = mesh.product(after.sharded)
    if mesh.product(tuple(before.unreduced - after.unreduced)) > 1:
        return block, None
    kept = math.prod(kept_of_dim(old, new, mesh) for old, new in zip(before.dims, after.dims, strict=True))
    return block, kept or None


def kept_of_dim(old: Axes, new: Axes, mesh: Mesh) -> int:
    """n: every device keeps 1/n of a dim, the smaller of its blocks; 0 if it is cut by other axes than before."""
    tail = _tail(old, new, mesh)
    return 0 if tail.old and tail.new else max(mesh.product(old), mesh.product(new))


def received_to_add(total: int, summed: int, block: int, devices: int) -> int:
    """The bytes that a device receives on average, at least, to sum partial sums of an array of so many bytes.

    Before some device has a sum of n, n - 1 others have sent; then it goes to the others of the c that are to have it:
    `devices` / `block`. 0 where devices do not share the bytes evenly, since there collectives round down.
    """
    return 0 if total % devices else total * (summed + devices // block - 2) // devices


@lru_cache(maxsize=1 << 14)
def _tail(old: Axes, new: Axes, mesh: Mesh) -> Tail:
    old = tuple(axis for axis in old if mesh.size(axis) > 1)
    new = tuple(axis for axis in new if mesh.size(axis) > 1)
    kept = 0
    while kept < min(len(old), len(new)) and old[kept] == new[kept]:
        kept += 1
    return Tail(old[kept:], new[kept:], mesh.product(old[kept:]), mesh.product(new[kept:]))
