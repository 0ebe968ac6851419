"""Partial sums at the border of a program: inputs that arrive so, as plain arrays of one more dim. Nothing moves.

    A[I, J]{U_X}, a block [I, J] on each device  →  A[X, I, J] in P("X"), a block [1, I, J] on each device

JAX types such an input `f32[8]{U:X}`. It refuses most operations on that type (a dynamic slice, an einsum, a product of
two such values), and casts it to nothing else: only a sum ends it. As blocks of a plain array partial sums are what
those of a local product are, values that vary along X, and every step takes them.

In the shard_map that lays a block below a new dim JAX is told not to check types, since it is they that it changes; so
its derivative has to be said as well, where JAX would sum over X. Backwards the block loses that dim again: the
gradient of each partial sum is that of the sum, equal along X, which JAX types `f32[8]{R:X}`.

An output is typed `{U:X}` by a cast within the steps; but for a mesh of one device, on which JAX lowers no shard_map
with such an output: there the one partial sum is the sum, and is typed after the steps.

An output that is equal along X, and of a type that varies there (`flow`), leaves the steps as a block of an array of
one more dim as well, and loses it in another shard_map that does not check types. There JAX's own derivative is right:
each of the equal blocks gets its share of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.emit.allowed import ALIKE, APART, FINE, MAPPED, TOGETHER
from shardc.emit.exprs import Call, Const, Expr, Items, Line, Name, call, names_in
from shardc.emit.steps.spec import apart, blocks, left, spec
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array, Axes, Sharding
from shardc.lowering.flow import untyped_along

_BLOCK, _EQUAL = "sums", "blocks"


@dataclass(frozen=True, slots=True)
class Border:
    """Lines before the steps, which make of a program's parameters what the steps take, and after them."""

    before: tuple[Line, ...]
    after: tuple[Line, ...]

    def __bool__(self) -> bool:
        return bool(self.before or self.after)


_HELPERS = (("jnp.expand_dims", APART), ("jnp.squeeze", TOGETHER))


def border(schedule: Schedule, parameters: tuple[str, ...], results: tuple[str, ...]) -> Border:
    """What is to be done to the inputs that arrive as partial sums, and to outputs on one device that leave so."""
    values, mesh = schedule.values, schedule.mesh
    ins = {name: values[value] for name, value in zip(parameters, schedule.inputs, strict=True)}
    outs = {name: values[value] for name, value in zip(results, schedule.outputs, strict=True)}
    before = tuple(
        Line(name, _apart(Name(name), array.sharding, mesh), f"{array}, a block for each device")
        for name, array in ins.items()
        if array.sharding.unreduced
    )
    after = tuple(
        Line(name, call("jax.reshard", Name(name), spec(array.sharding, mesh)), str(array))
        for name, array in outs.items()
        if array.sharding != left(array.sharding, mesh)
    )
    assert schedule.by is None or not (before or after), "axes are cut where no partial sums come in or go out"
    untyped = untyped_along(schedule.block)
    for name, value in zip(results, schedule.outputs, strict=True):
        if untyped[value]:
            after += _alike(name, values[value], mesh.ordered(untyped[value]), schedule)
    return Border(before, after)


def one_block(value: Expr) -> Expr:
    """A device's own partial sum, of the array that `border` makes."""
    return call("jnp.squeeze", value, axis=Const(0))


def helpers(around: Border) -> tuple[tuple[str, tuple[str, ...], Expr], ...]:
    """The functions that a border names: name, parameters, what is returned."""
    found = _HELPERS if around.before else ()
    parted = tuple((name, ("_", _BLOCK), call(function, Name(_BLOCK), axis=Const(0))) for function, name in found)
    named = any(ALIKE in names_in(line.expr) for line in around.after)
    return (*parted, (ALIKE, (_EQUAL,), call("jnp.squeeze", Name(_EQUAL), axis=Const(0)))) if named else parted


def _alike(name: str, array: Array, untyped: Axes, schedule: Schedule) -> tuple[Line, ...]:
    """One of the blocks that are equal along these axes."""
    mesh = schedule.mesh
    mapped = call(
        "jax.shard_map",
        Name(ALIKE),
        **({} if schedule.by is None else {"mesh": Name(FINE)}),
        in_specs=spec(blocks(array.sharding, untyped), mesh),
        out_specs=spec(array.sharding, mesh),
        check_vma=Name("False"),
    )
    return Line(MAPPED, mapped, ""), Line(name, Call(Name(MAPPED), (Name(name),)), str(array))


def _apart(value: Name, sharding: Sharding, mesh: Mesh) -> Call:
    """`linear_call(forwards, backwards, None, A)`; both take nothing first, since neither needs another value."""
    given = spec(sharding, mesh)
    plain, gradient = spec(apart(sharding, mesh), mesh), spec(sharding, mesh, unreduced="reduced")
    return call(
        "jax.custom_derivatives.linear_call",
        _unchecked(APART, given, plain),
        _unchecked(TOGETHER, plain, gradient),
        Const(None),
        value,
    )


def _unchecked(function: str, takes: Expr, leaves: Expr) -> Call:
    nothing = Call(Name("P"), ())
    return call(
        "jax.shard_map",
        Name(function),
        in_specs=Items((nothing, takes)),
        out_specs=leaves,
        check_vma=Name("False"),
    )
