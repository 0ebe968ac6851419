"""Sizes for dims that the user gave none: divisible by what the program writes on them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from shardc.ir.program import Input, Program, Statement, every_statement
from shardc.ir.sizes import classes

PLANNED = 4096
LEAST = 16  # where a size that the user gave leaves no room for more, that size is what is refused


def large(program: Program) -> Program:
    """Missing sizes become 4096, or the next multiple of the axes written on the dim, and a note says so; less where
    an array would have more bytes than are counted."""
    size, missing = PLANNED, [(same, unit_of(program, same)) for same in without_size(program)]
    while True:
        found = _filled(program, {dim: _up(size, unit) for same, unit in missing for dim in same})
        if size <= LEAST or not missing or _is_counted(found):
            return found
        size //= 2


def _is_counted(program: Program) -> bool:
    sizes = dict(program.sizes)
    arrays: list[Input | Statement] = [*program.inputs, *every_statement(program)]
    return all(math.prod(sizes[dim] for dim in array.dims) * array.dtype.bytes < 2**63 for array in arrays)


def small(program: Program) -> Program:
    """Missing sizes become small, divisible by all that the dim is cut into, and distinct."""
    found: dict[str, int] = {}
    used = {size for _, size in program.sizes}
    for same in without_size(program):
        unit = unit_of(program, same)
        size = next(k * unit for k in range(2, 10_000) if k * unit not in used)
        used.add(size)
        found |= dict.fromkeys(same, size)
    return _filled(program, found)


def _filled(program: Program, sizes: dict[str, int]) -> Program:
    if not sizes:
        return program
    chosen = ", ".join(f"{dim}={size}" for dim, size in sizes.items())
    warning = f"no size given, so {chosen}; `dims` or --dims sets it"
    return replace(program.with_sizes(sizes), warn=partial(_also, program, warning))


def _also(program: Program, warning: str) -> tuple[str, ...]:
    return *program.warnings, warning


def without_size(program: Program) -> list[list[str]]:
    """The dims without a size, each with those that must have the same."""
    known = {dim for dim, _ in program.sizes}
    together = {dim: same for same in classes(program.renamed) for dim in same}
    found = [together.get(dim, [dim]) for dim in program.dims if dim not in known]
    return [same for place, same in enumerate(found) if same not in found[:place]]


def unit_of(program: Program, same: Iterable[str]) -> int:
    """What the size of these dims is to be a multiple of."""
    return math.lcm(*(program.mesh.product(axes) for dim, axes, _ in program.subscripts if dim in same))


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
