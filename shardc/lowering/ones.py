"""Sums of what lies in memory: as a product with ones.

    db[F] = sum_{B,T}(dy[B, T, F])                                               of bf16, for a TPU

    db = jnp.einsum("btf->f", dy.astype(jnp.float32)) …
    db = jnp.einsum("btf,abt->af", dy, jnp.broadcast_to(jnp.bfloat16(1), (2, …)), …)[0]

Of the first the compiler makes a loop that adds up element by element, of the second a product, which is as fast as dy
is read (`lowering.timed.adds_up_by_ones`). It adds up in f32 either way; what is computed of dy before is rounded to
its own type, as the text has it. The ones are two equal rows, since of one it would make that loop again
(`lowering.vectors`).

A sum stays a loop where it costs nothing: with a product's tiles, which are at hand, and beside a loop that reads as
much and writes: of `y[B, T, F] = relu(dy)` and `sum_{B,T}(dy)` one. Of tiles that met another array it is by itself
(`lowering.apart`): `y = x + o · W; sum_D(y ⊙ y)`. Of sums of exponentials see `lowering.shares`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Block, Einsum, Loop, Step, ValueNumber, operands_of
from shardc.lowering.apart import met_apart
from shardc.lowering.fusion import Reads, kinds_of, needs_whole, readers_of
from shardc.lowering.laid import laid_in_order
from shardc.lowering.rounded import NARROW
from shardc.lowering.target import Target
from shardc.lowering.timed import adds_up_by_ones
from shardc.lowering.tpu import sums_what_meets_tiles


def by_ones(block: Block, target: Target) -> Mapping[int, frozenset[int]]:
    """The results of a block that are added up so, and of each what is read for it."""
    exponentials = {step.results[0] for step in block.steps if step.op == Apply("exp")}
    every = (step for step in block.steps if _is_long(step, block, target.mesh))
    sums = [step for step in every if step.operands[0] not in exponentials]
    if not sums:
        return {}
    laid = laid_in_order(block, target)
    around = _Around.of(block, met_apart(block, laid) if sums_what_meets_tiles(target) else frozenset())
    return {step.result: around.read(step) for step in sums if around.is_alone(step)}


def _is_long(step: Step, block: Block, mesh: Mesh) -> bool:
    """Whether it is a sum of many numbers each, along dims that stand side by side."""
    if not isinstance(step.op, Einsum) or len(step.operands) != 1:
        return False
    (array,), result = operands_of(step, block.values), block.values[step.result]
    if array.dtype != NARROW or not set(result.dims) < set(array.dims):
        return False
    sizes = array.local_shape(mesh)
    over = [place for place, dim in enumerate(array.dims) if dim not in result.dims]
    summed = math.prod(sizes[place] for place in over)
    is_run = over == [*range(over[0], over[-1] + 1)]
    return is_run and adds_up_by_ones(array.local_bytes(mesh), summed, math.prod(sizes) // max(1, summed))


@dataclass(frozen=True, slots=True)
class _Around:
    block: Block
    readers: Mapping[int, list[Step]]
    kinds: Mapping[ValueNumber, Reads]
    leaves: Mapping[int, frozenset[int]]  # what as large a value is computed of, element by element; else it itself

    @classmethod
    def of(cls, block: Block, apart: frozenset[int]) -> _Around:
        """`apart` is what is summed by itself after it was computed with tiles."""
        kinds, leaves = kinds_of(block, block.steps), dict[int, frozenset[int]]()
        for step in block.steps:
            if isinstance(step.op, Loop):
                continue
            value, rank = step.result, len(block.values[step.result].dims)
            if kinds[value] is Reads.ELEMENTS and not step.op.facts.is_move and value not in apart:
                whole = (each for each in step.operands if len(block.values[each].dims) == rank)
                leaves[value] = frozenset[int]().union(*(leaves.get(each, {each}) for each in whole))
        return cls(block, readers_of(block.steps), kinds, leaves)

    def read(self, step: Step) -> frozenset[int]:
        return self._leaves(step.operands[0])

    def _leaves(self, value: int) -> frozenset[int]:
        return self.leaves.get(value, frozenset({value}))

    def is_alone(self, step: Step) -> bool:
        """Whether no tiles are at hand, and no other loop that reads some of it, and writes."""
        (value,), read = step.operands, self.read(step)
        if any(leaf in read for leaf, kind in self.kinds.items() if kind in (Reads.PRODUCT, Reads.SHARES)):
            return False
        after, rank = self._after(step), len(self.block.values[value].dims)
        beside = (
            result
            for result, kind in self.kinds.items()
            if kind is Reads.ELEMENTS and len(self.block.values[result].dims) == rank and result not in after
        )
        return not any(self._is_written(result) and not read.isdisjoint(self._leaves(result)) for result in beside)

    def _is_written(self, value: int) -> bool:
        """Whether it lies in memory: an output, or what is moved, or read as a whole."""
        return value in self.block.outputs or any(
            needs_whole(reader, self.kinds) for reader in self.readers.get(value, ())
        )

    def _after(self, step: Step) -> set[int]:
        """What waits for a step."""
        found = set[int](step.results)
        for each in self.block.steps:
            found |= set(each.results) if not found.isdisjoint(each.operands) else set()
        return found
