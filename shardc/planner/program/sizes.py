"""Sizes for dims that the user gave none: divisible by what the program writes on them."""

from __future__ import annotations

import math
from dataclasses import replace

from shardc.ir.program import Program

PLANNED = 4096


def large(program: Program) -> Program:
    """Missing sizes become 4096, or the next multiple of the axes written on the dim, and a note says so."""
    return _filled(program, {dim: _up(PLANNED, _unit(program, dim)) for dim in _missing(program)})


def small(program: Program) -> Program:
    """Missing sizes become small, divisible by all that the dim is cut into, and distinct."""
    found: dict[str, int] = {}
    used = {size for _, size in program.sizes}
    for dim in _missing(program):
        unit = _unit(program, dim)
        size = next(k * unit for k in range(2, 10_000) if k * unit not in used)
        used.add(size)
        found[dim] = size
    return _filled(program, found)


def _filled(program: Program, sizes: dict[str, int]) -> Program:
    if not sizes:
        return program
    chosen = ", ".join(f"{dim}={size}" for dim, size in sizes.items())
    warning = f"no size given, so {chosen}; `dims` or --dims sets it"
    return replace(program.with_sizes(sizes), warnings=(*program.warnings, warning))


def _missing(program: Program) -> list[str]:
    known = {dim for dim, _ in program.sizes}
    return [dim for dim in program.dims if dim not in known]


def _unit(program: Program, dim: str) -> int:
    return math.lcm(*(program.mesh.product(axes) for axes, _ in program.shardings_of(dim)))


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
