"""A sharding as `jax.P`, described; and the specs of a program's arguments and results."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.backend.exprs import Call, Const, Expr, Items, Keyword, Name, axes_argument
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Sharding


def spec(sharding: Sharding, mesh: Mesh) -> Call:
    """`P("X", None)`, `P(("X", "Y"), None, unreduced={"Z"})`."""
    args: tuple[Expr, ...] = tuple(axes_argument(axes) if axes else Const(None) for axes in sharding.dims)
    if sharding.unreduced:
        axes = tuple(Const(axis) for axis in mesh.ordered(sharding.unreduced))
        args += (Keyword("unreduced", Items(axes, "{}")),)
    return Call(Name("P"), args)


def in_specs(schedule: Schedule) -> Items:
    return Items(tuple(spec(schedule.values[value].sharding, schedule.mesh) for value in schedule.inputs))


def out_specs(schedule: Schedule) -> Expr:
    """One spec for one result, else a tuple."""
    return joined([spec(schedule.values[value].sharding, schedule.mesh) for value in schedule.outputs])


def joined(specs: Sequence[Expr]) -> Expr:
    return specs[0] if len(specs) == 1 else Items(tuple(specs))
