"""Mesh axes that a program does not write: searched by bytes, and by time where that takes clearly less.

An idle axis saves bytes: a reduction over X is cheaper on slices over idle Y, which are gathered afterwards. Several
of them save most together, as if they were one axis as large as all: what is gathered over S and T at the end does
not depend on how they share the work, and a step on slices over both costs least. (Apart they do better only where S
may cut one array and T another, or a dim that both together do not divide; of 120 random products on up to 6
devices beside idle axes of 4 to 8, in 3.) Each axis searched for itself multiplies the ways to lie, by seven for a
third axis and more for a fourth. So where they would be many, idle axes move as one: under the name of the first.

    mesh X=2, Y=2, S=2, T=4      searched as X=2, Y=2, S=8
    A[I_XS, J]                   stands for A[I_XST, J]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from itertools import chain

from shardc.cost.rate import picoseconds
from shardc.ir.expressions import Named, Pattern, Use, operands
from shardc.ir.plan import Cost
from shardc.ir.program import For, Program, Statement, bindings_of, every_statement, read_by
from shardc.ir.sharding import Axes
from shardc.planner.options import Objective
from shardc.rules.placements import count_placements

MAX_APART = 1000  # ways to lie for the dims that meet, while idle axes are searched each for itself
MAX_PLACEMENTS = 20_000  # the same, while they move as one: beyond, only the axes written are searched over


class Idle(Enum):
    """What a plan may do with the mesh axes that a program does not write."""

    USE = "use"  # where it is cheaper, over them as well
    KEEP = "keep"  # nothing: along them stand copies, as the text has it


def only_moves(program: Program) -> bool:
    """Whether no statement computes anything: reshards, and collectives by name."""
    return all(isinstance(statement.expr, Use | Named) for statement in every_statement(program))


def width(program: Program) -> int:
    """The most dims that meet in one operation."""
    return max(map(width_of, every_statement(program)), default=0)


def width_of(statement: Statement) -> int:
    widest = len(statement.dims)
    pending = [statement.expr]
    while pending:
        expr = pending.pop()
        below = operands(expr)
        widest = max(widest, len({dim for operand in below for dim in operand.dims} | set(expr.dims)))
        pending += below
    return widest


def in_one(program: Program) -> Iterator[list[Statement]]:
    """The statements that a text might as well write as one: what is used once, and lies as the planner likes, with
    what uses it. What is planned by how wide statements are is so the same, wherever the text ends them."""
    used = Counter(name for each in program.statements for name in read_by(each))
    bound = Counter(made.name for each in program.statements for made in bindings_of(each))
    left, waiting = {name for _, name in program.leaving}, dict[str, list[Statement]]()
    for each in program.statements:
        if isinstance(each, For):
            yield from in_one(program.inside(each))
            continue
        made_of = [*chain.from_iterable(waiting.pop(name, ()) for name in read_by(each)), each]
        says_nothing = each.pattern == Pattern.free(len(each.dims))
        if says_nothing and used[each.name] == bound[each.name] == 1 and each.name not in left:
            waiting[each.name] = made_of
        else:
            yield made_of
    yield from waiting.values()  # what only a loop uses


def idle_together(program: Program, pool: Axes) -> Axes:
    """The idle axes of a pool if they move as one; none if each is searched for itself."""
    if len(pool) < 2 or may_be_apart(program, pool):
        return ()
    written = program.axes_written
    idle = tuple(axis for axis in pool if axis not in written)
    return idle if len(idle) > 1 else ()


def may_be_apart(program: Program, pool: Axes) -> bool:
    """Whether each axis of a pool is searched for itself."""
    return count_placements(len(pool), width(program)) <= MAX_APART


def useful_together(program: Program, idle: Axes) -> Axes:
    """Idle axes from the first on; without those that, with the ones before, divide no dim."""
    found: Axes = ()
    for axis in idle:
        size = program.mesh.product((*found, axis))
        if any(extent % size == 0 for _, extent in program.sizes):
            found = (*found, axis)
    return found


def axes_to_search(program: Program, with_idle: bool) -> tuple[Axes, tuple[str, ...]]:
    """The axes to search over, and what to say of it: those that the program writes, and the idle ones if asked for.

    A reduction over X is cheaper on slices over an idle Y. Where idle axes are many they move as one (`idle`).
    """
    written, dims = program.axes_written, width(program)
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


def has_idle(program: Program) -> bool:
    """Whether there are idle axes to search over."""
    return axes_to_search(program, with_idle=True)[0] != program.axes_written


def is_alone(program: Program) -> bool:
    """Whether one statement is all that is planned: what the plan may cost at most, that may."""
    return len(program.statements) == 1 and isinstance(program.statements[0], Statement)


def is_worth_it(over_idle: Cost, plain: Cost, moves: bool) -> bool:
    """Whether it takes a fiftieth less time; a tenth, if it brings more bytes or needs more memory. To move arrays, no
    more bytes are worth it."""
    time, before = picoseconds(over_idle.time_s), picoseconds(plain.time_s)
    if moves:
        return over_idle.wire_bytes <= plain.wire_bytes and time < Objective.TIME.clearly_less(before)
    if over_idle.wire_bytes > plain.wire_bytes or over_idle.peak_bytes > plain.peak_bytes:
        return 10 * time < 9 * before
    return time < Objective.TIME.clearly_less(before)
