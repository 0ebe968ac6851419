"""How far a search may go: over which axes, how many shardings, how many bytes."""

from __future__ import annotations

import math

from shardc.errors import ShardcError
from shardc.ir.plan import Schedule
from shardc.ir.program import Program, Statement, operands
from shardc.ir.sharding import Axes
from shardc.planner.objective import Objective
from shardc.planner.root import mentioned
from shardc.rules.products import count_placements

MAX_PLACEMENTS = 20_000


def axes_to_search(program: Program, objective: Objective) -> tuple[Axes, tuple[str, ...]]:
    """The axes to search over, and what to say of it.

    By time, those that the program writes: what stands along the others is a copy of the same computation, and
    an engineer who keeps it so has reasons that the program does not tell. By bytes, all that exceed 1, since a
    reduction over X is cheaper on slices over an idle Y; unless that is too many to search.
    """
    written = mentioned(program)
    rank = max((width(statement) for statement in program.statements), default=0)
    ways = count_placements(len(written), rank)
    if ways > MAX_PLACEMENTS:
        raise ShardcError(
            "SHC408",
            f"{rank} dims meet over {len(written)} mesh axes: {ways} ways to lie; the budget is {MAX_PLACEMENTS}",
            help="merge mesh axes, or split the statement so that fewer dims or axes meet",
        )
    if objective is Objective.TIME:
        return written, ()
    mesh = program.mesh
    every = tuple(name for name in mesh.names if mesh.size(name) > 1 or name in written)
    if count_placements(len(every), rank) <= MAX_PLACEMENTS:
        return every, ()
    left = [name for name in every if name not in written]
    return written, (f"searched over the axes written; not over {', '.join(left)}",) if left else ()


def check_bytes(schedule: Schedule) -> None:
    """SHC406 for an array of 2^63 bytes or more."""
    for array in schedule.values:
        size = math.prod(array.shape) * array.dtype.bytes
        if size >= 2**63:
            raise ShardcError(
                "SHC406",
                f"`{array.name}` has {array.dtype.bytes}·{'·'.join(map(str, array.shape))} bytes; the limit is 2^63",
                help="make its dims smaller",
            )


def width(statement: Statement) -> int:
    """The most dims that meet in one operation of a statement."""
    widest = len(statement.dims)
    pending = [statement.expr]
    while pending:
        expr = pending.pop()
        below = operands(expr)
        widest = max(widest, len({dim for operand in below for dim in operand.dims} | set(expr.dims)))
        pending += below
    return widest
