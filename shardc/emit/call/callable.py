"""A schedule as a function of global arrays: its steps under `shard_map`, in parts where some are left to XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from shardc.emit.allowed import FINE
from shardc.emit.call.applied import defined, do, evaluate, per_device, returned
from shardc.emit.call.inside import with_own_gradient
from shardc.emit.call.refined import on_given_mesh
from shardc.emit.steps.calls import Body, body
from shardc.emit.steps.partial_sums import Border, border, helpers
from shardc.emit.steps.parts import Part, is_in_parts, parts
from shardc.emit.steps.spec import in_specs, out_specs
from shardc.ir.plan import Schedule


def function(schedule: Schedule, scopes: bool = False, mesh: jax.sharding.Mesh | None = None) -> Callable[..., Any]:
    """The program as a function of global arrays, on the mesh in force, which is `mesh` where it is known; not jitted.

    With `scopes` the operations of step 2 are named `step2` for the compiler.
    """
    if schedule.by is None:
        return on_steps_mesh(schedule, scopes)
    whole: Callable[..., Any] = on_given_mesh(
        schedule, schedule.by, lambda fine: on_steps_mesh(schedule, scopes, fine), mesh
    )
    return whole


def on_steps_mesh(schedule: Schedule, scopes: bool = False, mesh: Any = None) -> Callable[..., Any]:
    """The same for arrays that lie on the mesh of the steps, where axes are cut."""
    if is_in_parts(schedule):
        if mesh is None and _is_free():
            return _in_parts(schedule, scopes)
        schedule = schedule.blocking
    described = body(schedule)
    steps = per_device(described, scopes)
    if not schedule.mesh.axes:
        return steps
    ins, outs = evaluate(in_specs(schedule), {}), evaluate(out_specs(schedule), {})
    # The plan's axes by name: inside another shard_map, or a vmap over axes, they are not all of the mesh.
    names = set(schedule.mesh.names)
    around = border(schedule, described.parameters, described.results)
    if mesh is None and jax.sharding.get_abstract_mesh().manual_axes and not (around or _has_parts(schedule)):
        return with_own_gradient(steps, ins, outs, names)
    mapped: Callable[..., Any] = jax.shard_map(steps, mesh=mesh, in_specs=ins, out_specs=outs, axis_names=names)
    return _within(around, described, mapped, mesh) if around else mapped


def _within(around: Border, described: Body, mapped: Callable[..., Any], mesh: Any) -> Callable[..., Any]:
    """The steps, between the lines before and after them, which are of this mesh where axes are cut."""

    def program(*arrays: Any) -> Any:
        variables: dict[str, Any] = {name: defined(names, result) for name, names, result in helpers(around)}
        variables |= {FINE: mesh, **dict(zip(described.parameters, arrays, strict=True))}
        for line in around.before:
            do(line, variables)
        found = mapped(*(variables[name] for name in described.parameters))
        variables |= dict(zip(described.results, found if len(described.results) > 1 else (found,), strict=True))
        for line in around.after:
            do(line, variables)
        return returned(described.results, variables)

    return program


def _is_free() -> bool:
    """Whether every axis of the mesh in force is the program's to use, and of one kind."""
    mesh = jax.sharding.get_abstract_mesh()
    return not mesh.manual_axes and len(set(mesh.axis_types)) <= 1


def _has_parts(schedule: Schedule) -> bool:
    return any(schedule.values[number].sharding.unreduced for number in (*schedule.inputs, *schedule.outputs))


def _in_parts(schedule: Schedule, scopes: bool) -> Callable[..., Any]:
    """The parts one after another, as a function of whole arrays on the mesh in force."""
    whole = parts(schedule)
    functions = [(part.body, _function(part, scopes)) for part in whole.parts]

    def program(*arrays: Any) -> Any:
        variables = dict(zip(whole.parameters, arrays, strict=True))
        for part, function in functions:
            found = function(*(variables[name] for name in part.parameters))
            variables |= dict(zip(part.results, found if len(part.results) > 1 else (found,), strict=True))
        return returned(whole.results, variables)

    return program


def _function(part: Part, scopes: bool) -> Callable[..., Any]:
    function, leaves = per_device(part.body, scopes), evaluate(out_specs(part.schedule), {})
    if part.left:
        left: Callable[..., Any] = jax.sharding.auto_axes(function, out_sharding=leaves)
        return left
    mapped: Callable[..., Any] = jax.shard_map(
        function, in_specs=evaluate(in_specs(part.schedule), {}), out_specs=leaves
    )
    return mapped
