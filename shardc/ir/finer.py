"""Steps on a finer mesh, as they are: the same blocks on the same devices, each axis spelled by its parts.

    C[I_X] = AllGather_Y A[I_XY]   →   C[I_{X0,X1}] = AllGather_{Y0,Y1} A[I_{X0,X1,Y0,Y1}]         X=2·3, Y=2·5

What two refinements of one mesh have in common is the coarsest that is finer than both, where there is one: 12 = 2·6
and 12 = 4·3 are both seen in 2·2·3, while 6 = 2·3 and 6 = 3·2 are never seen at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import mul
from typing import cast

from shardc.ir.collectives import Move
from shardc.ir.mesh import MAX_AXES
from shardc.ir.plan import Block, Loop, Op, Step, Strategy
from shardc.ir.refine import Refinement, refinement
from shardc.ir.sharding import Array, Sharding


@dataclass(frozen=True, slots=True)
class OnFiner:
    """What is on the coarse mesh of a refinement, as it is on the fine one. Costs stay what they are."""

    by: Refinement

    def array(self, array: Array) -> Array:
        return replace(array, sharding=self.by.sharding(array.sharding))

    def block(self, block: Block) -> Block:
        return replace(block, values=tuple(map(self.array, block.values)), steps=tuple(map(self.step, block.steps)))

    def strategy(self, strategy: Strategy) -> Strategy:
        values, steps = map(self.array, strategy.values), map(self.step, strategy.steps)
        return replace(strategy, values=tuple(values), steps=tuple(steps))

    def step(self, step: Step) -> Step:
        return replace(step, op=self._op(step.op))

    def _op(self, op: Op) -> Op:
        if isinstance(op, Loop):
            return replace(op, body=self.block(op.body))
        return cast(Move, op).over(self.by.axes, self.by.fine) if op.facts.is_move else op


def in_common(one: Refinement, other: Refinement, taken: Iterable[str]) -> Refinement | None:
    """The coarsest refinement of their mesh that is finer than both; None if there is none, or of too many axes. Its
    names are not among those taken."""
    sizes = dict[str, tuple[int, ...]]()
    for axis, size in one.coarse.axes:
        ends = sorted({*_ends(axis, one), *_ends(axis, other), size})
        if any(after % before for before, after in pairwise(ends)):
            return None
        if len(ends) > 1:
            sizes[axis] = tuple(after // before for before, after in pairwise([1, *ends]))
    axes = len(one.coarse.axes) + sum(len(parts) - 1 for parts in sizes.values())
    return refinement(one.coarse, sizes, taken) if axes <= MAX_AXES else None


def joined(by: Refinement, shardings: Sequence[Sharding]) -> dict[str, tuple[int, ...]]:
    """The sizes of the parts of axes if parts are joined that are neighbours in all shardings, in order."""
    found: dict[str, tuple[int, ...]] = {}
    for axis, parts in by.parts:
        (last, size), *others = parts
        sizes = [size]
        for name, size in others:
            if all(_together(last, name, sharding) for sharding in shardings):
                sizes[-1] *= size
            else:
                sizes.append(size)
            last = name
        if len(sizes) > 1:
            found[axis] = tuple(sizes)
    return found


def further(by: Refinement, finer: Refinement) -> Refinement:
    """From the fine mesh of one refinement to that of a finer one of the same mesh."""
    return Refinement(by.fine, tuple(_further(by, finer)))


def _further(by: Refinement, finer: Refinement) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    for axis in by.coarse.names:
        parts = iter(finer.axes([axis]))
        for name in by.axes([axis]):
            size, run = by.fine.size(name), list[tuple[str, int]]()
            while size > 1 or not run:
                part = next(parts)
                run.append((part, finer.fine.size(part)))
                size //= finer.fine.size(part)
            yield name, tuple(run)


def _ends(axis: str, by: Refinement) -> Iterator[int]:
    """Where the parts of an axis end, counted from the major one."""
    return accumulate((by.fine.size(name) for name in by.axes([axis])), mul)


def _together(first: str, second: str, sharding: Sharding) -> bool:
    """Whether the second follows the first wherever one of them is."""
    if (first in sharding.unreduced) != (second in sharding.unreduced):
        return False
    if first not in sharding.sharded or second not in sharding.sharded:
        return first not in sharding.sharded and second not in sharding.sharded
    return any((first, second) in pairwise(axes) for axes in sharding.dims)
