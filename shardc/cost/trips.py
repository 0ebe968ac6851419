"""What a loop over chunks takes of memory beside the arrays that it reads and leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Einsum, Loop, Step, ValueNumber, operands_of
from shardc.lowering.copies import long_dims


def fits_on_chip(size: int, fixed: Iterable[int], rows: Iterable[int], trips: int, room: int) -> bool:
    """Whether so many bytes of a trip have room on the chip, beside its rows of what is cut and the largest array that
    all trips read."""
    return size + max(fixed, default=0) + sum(rows) // trips <= room


def lie_on_chip(step: Step, loop: Loop, size: int, sizes: Sequence[int], room: int) -> bool:
    """Whether what a trip takes has room there. Of other loops it was not seen."""
    fixed = [sizes[value] for value in step.operands[: loop.fixed]]
    rows = [sizes[value] for value in (*step.operands[loop.fixed + loop.carried :], *step.results[loop.carried :])]
    return loop.is_of_chunks and fits_on_chip(size, fixed, rows, loop.trips, room)


def laid_anew(step: Step, loop: Loop, renamed: Collection[int], sizes: Sequence[int], mesh: Mesh) -> Iterator[int]:
    """The bytes of copies that products ask for, of rows of arguments under another shape.

    q[B, T, H, E] · k[B, S, H, E] → s[B, T, H, S]     B and H are batched, and T lies before H: rows are laid so before
                                                      the first trip; a few times each in its own
    """
    if not loop.is_of_chunks:
        return
    first = loop.fixed + loop.carried
    for value, row in zip(step.operands[first:], loop.body.inputs[first:], strict=True):
        if value in renamed and _is_batched_behind(row, loop.body, mesh):
            yield sizes[value]


def _is_batched_behind(row: ValueNumber, body: Block, mesh: Mesh) -> bool:
    """Whether a product batches a dim of a row that lies behind another."""
    for step in body.steps:
        if row in step.operands and isinstance(step.op, Einsum) and len(step.operands) > 1:
            arrays = operands_of(step, body.values)
            batched = {*arrays[0].dims} & {*arrays[1].dims} & {*body.values[step.result].dims}
            kinds = [dim in batched for dim in long_dims(arrays[step.operands.index(row)], mesh)]
            if False in kinds and True in kinds[kinds.index(False) :]:
                return True
    return False
