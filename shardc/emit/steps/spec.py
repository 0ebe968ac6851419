"""A sharding as `jax.P`, described; and the specs of what the steps take and leave."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.emit.exprs import Call, Const, Expr, Items, Keyword, Name, axes_argument
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Axes, Sharding
from shardc.lowering.flow import untyped_along


def spec(sharding: Sharding, mesh: Mesh, unreduced: str = "unreduced") -> Call:
    """`P("X", None)`, `P(("X", "Y"), None, unreduced={"Z"})`; of a gradient `reduced={"Z"}`."""
    args: tuple[Expr, ...] = tuple(axes_argument(axes) if axes else Const(None) for axes in sharding.dims)
    if sharding.unreduced:
        axes = tuple(Const(axis) for axis in mesh.ordered(sharding.unreduced))
        args += (Keyword(unreduced, Items(axes, "{}")),)
    return Call(Name("P"), args)


def apart(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Partial sums as an array of one more dim: `A[I, J]{U_XY}` as `A[_XY, I, J]`; what is reduced as it is."""
    partial = mesh.ordered(sharding.unreduced)
    return Sharding((partial, *sharding.dims)) if partial else sharding


def in_specs(schedule: Schedule) -> Items:
    """Partial sums come apart: see `partial_sums`."""
    given = [apart(schedule.values[value].sharding, schedule.mesh) for value in schedule.inputs]
    return Items(tuple(spec(sharding, schedule.mesh) for sharding in given))


def left(sharding: Sharding, mesh: Mesh) -> Sharding:
    """How the steps leave an output: on one device its only partial sum is the sum."""
    return sharding if mesh.devices > 1 else Sharding(sharding.dims)


def out_specs(schedule: Schedule) -> Expr:
    """One spec for one result, else a tuple."""
    untyped = untyped_along(schedule.block)
    leaves = (
        blocks(left(schedule.values[value].sharding, schedule.mesh), schedule.mesh.ordered(untyped[value]))
        for value in schedule.outputs
    )
    return joined([spec(sharding, schedule.mesh) for sharding in leaves])


def blocks(sharding: Sharding, untyped: Axes) -> Sharding:
    """What is equal along some axes, and of a type that varies, as an array of one more dim: `A[_X, I_Y]`."""
    return Sharding((untyped, *sharding.dims), sharding.unreduced) if untyped else sharding


def joined(specs: Sequence[Expr]) -> Expr:
    return specs[0] if len(specs) == 1 else Items(tuple(specs))
