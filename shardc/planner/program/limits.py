"""How far a search may go: over which axes, how many shardings, how many bytes; and the refusal of the last."""

from __future__ import annotations

import math

from shardc.errors import ShardcError
from shardc.ir.plan import Schedule
from shardc.ir.program import Program, Statement
from shardc.ir.sharding import Axes
from shardc.planner.meshes.idle import may_be_apart, mentioned, useful_together, width
from shardc.rules.products import count_placements

MAX_PLACEMENTS = 20_000
MAX_LEANER = 16  # plans, each leaner before the last statement, that a memory limit is tried with


class TooLarge(ShardcError):
    """No plan that is found keeps a memory limit; `least` is the smallest peak of those that were met."""

    def __init__(self, program: Program, memory: int, least: int) -> None:
        super().__init__(
            "SHC410",
            f"no plan found keeps {memory} bytes per device; the smallest peak found is {least}",
            span=program.statements[0].span if len(program.statements) == 1 else None,
            help=f"--memory {least}, or shard the arrays over more axes",
        )
        self.least = least


def is_alone(program: Program) -> bool:
    """Whether one statement is all that is planned: what the plan may cost at most, that may."""
    return len(program.statements) == 1 and isinstance(program.statements[0], Statement)


def axes_to_search(program: Program, with_idle: bool) -> tuple[Axes, tuple[str, ...]]:
    """The axes to search over, and what to say of it: those that the program writes, and the idle ones if asked for.

    A reduction over X is cheaper on slices over an idle Y. Where idle axes are many they move as one (`idle`).
    """
    written, dims = mentioned(program), width(program)
    mesh = program.mesh
    idle = tuple(name for name in mesh.names if mesh.size(name) > 1 and name not in written)
    if not with_idle or not idle:
        return written, ()
    if may_be_apart(program, written + idle):
        return mesh.ordered(written + idle), ()
    if count_placements(len(written) + 1, dims) > MAX_PLACEMENTS:
        return written, (f"searched over the axes written; not over {', '.join(idle)}",)
    together = useful_together(program, idle)
    note = f"searched over the axes written, and over {', '.join(together)} as one"
    left = ", ".join(name for name in idle if name not in together)
    notes = (note + (f"; not over {left}" if left else ""),) if len(idle) > 1 else ()
    return mesh.ordered(written + together), notes


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
