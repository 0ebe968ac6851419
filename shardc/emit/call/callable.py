"""The same description, applied: no text is executed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, assert_never

import jax
import jax.numpy as jnp
import numpy as np

from shardc.emit.allowed import CARRIED, METHODS, NAMES, ROWS, TRIP, TURN
from shardc.emit.call.inside import with_own_gradient
from shardc.emit.call.refined import on_given_mesh
from shardc.emit.exprs import Attr, BinOp, Call, Code, Const, Expr, Index, Items, Keyword, Line, Loop, Name, Scan
from shardc.emit.steps import extremes
from shardc.emit.steps.calls import Body, body
from shardc.emit.steps.partial_sums import Border, border, helpers
from shardc.emit.steps.spec import in_specs, out_specs
from shardc.ir.plan import Schedule

_MODULES = {"jax": jax, "jnp": jnp, "np": np}
_BARE = {"P": jax.P, "list": list, "int": int, "zip": zip, "True": True, "False": False}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_BRACKETS: dict[str, Callable[[list[Any]], Any]] = {"()": tuple, "[]": list, "{}": set}


def function(schedule: Schedule, scopes: bool = False) -> Callable[..., Any]:
    """The program as a function of global arrays, on the mesh of `jax.set_mesh`; not jitted.

    With `scopes` the operations of step 2 are named `step2` for the compiler.
    """
    if schedule.by is None:
        return on_steps_mesh(schedule, scopes)
    whole: Callable[..., Any] = on_given_mesh(schedule, schedule.by, lambda mesh: on_steps_mesh(schedule, scopes, mesh))
    return whole


def on_steps_mesh(schedule: Schedule, scopes: bool = False, mesh: Any = None) -> Callable[..., Any]:
    """The same for arrays that lie on the mesh of the steps, where axes are cut."""
    described = body(schedule)
    per_device = _per_device(described, scopes)
    if not schedule.mesh.axes:
        return per_device
    ins, outs = evaluate(in_specs(schedule), {}), evaluate(out_specs(schedule), {})
    # The plan's axes by name: inside another shard_map, or a vmap over axes, they are not all of the mesh.
    names = set(schedule.mesh.names)
    around = border(schedule, described.parameters, described.results)
    if mesh is None and jax.sharding.get_abstract_mesh().manual_axes and not (around or _has_parts(schedule)):
        return with_own_gradient(per_device, ins, outs, names)
    mapped: Callable[..., Any] = jax.shard_map(per_device, mesh=mesh, in_specs=ins, out_specs=outs, axis_names=names)
    return _within(around, described, mapped) if around else mapped


def _within(around: Border, described: Body, mapped: Callable[..., Any]) -> Callable[..., Any]:
    """The steps, between the lines before and after them."""

    def program(*arrays: Any) -> Any:
        variables: dict[str, Any] = {name: _defined(names, result) for name, names, result in helpers(around)}
        variables |= dict(zip(described.parameters, arrays, strict=True))
        for line in around.before:
            _do(line, variables)
        found = mapped(*(variables[name] for name in described.parameters))
        variables |= dict(zip(described.results, found if len(described.results) > 1 else (found,), strict=True))
        for line in around.after:
            _do(line, variables)
        return _returned(described, variables)

    return program


def _returned(described: Body, variables: Mapping[str, Any]) -> Any:
    results = tuple(variables[name] for name in described.results)
    return results[0] if len(results) == 1 else results


def _defined(parameters: tuple[str, ...], result: Expr) -> Callable[..., Any]:
    """`def name(parameters): return result`."""
    return lambda *values: evaluate(result, dict(zip(parameters, values, strict=True)))


_BARE |= {name: _defined(names, result) for name, names, result in extremes.helpers()}


def _has_parts(schedule: Schedule) -> bool:
    return any(schedule.values[number].sharding.unreduced for number in (*schedule.inputs, *schedule.outputs))


def _per_device(described: Body, scopes: bool) -> Callable[..., Any]:
    def program(*arrays: Any) -> Any:
        variables = dict(zip(described.parameters, arrays, strict=True))
        _do_all(described.code, variables, scopes)
        return _returned(described, variables)

    return program


def _do_all(lines: Sequence[Code], variables: dict[str, Any], scopes: bool) -> None:
    for code in lines:
        with nullcontext() if code.step is None or not scopes else jax.named_scope(f"step{code.step}"):
            _do(code, variables, scopes)


def _do(code: Code, variables: dict[str, Any], scopes: bool = False) -> None:
    match code:
        case Line(target, expr):
            variables[target] = evaluate(expr, variables)
        case Loop(count, lines):
            for variables[TURN] in range(count):
                for line in lines:
                    _do(line, variables)
        case Scan():
            variables[TRIP] = _trip(code, variables, scopes)
            variables[CARRIED], variables[ROWS] = evaluate(code.call, variables)
        case _:
            assert_never(code)


def _trip(scan: Scan, around: Mapping[str, Any], scopes: bool) -> Callable[[Any, Any], Any]:
    def trip(carried: Any, rows: Any) -> Any:
        variables = {**around, CARRIED: carried, ROWS: rows}
        _do_all(scan.code, variables, scopes)
        return evaluate(scan.leaves, variables)

    return trip


def evaluate(expr: Expr, variables: Mapping[str, Any]) -> Any:
    """What the printed expression would give."""
    match expr:
        case Name(name):
            return variables[name] if name in variables else _resolve(name)
        case Const(value):
            return value
        case Items(items, brackets):
            return _BRACKETS[brackets]([evaluate(item, variables) for item in items])
        case Call(function, args):
            return _call(function, args, variables)
        case Attr(value, name):
            assert name in METHODS, name
            return getattr(evaluate(value, variables), name)
        case Index(value, index):
            return evaluate(value, variables)[index if isinstance(index, int) else variables[index.name]]
        case BinOp(left, symbol, right):
            return _OPERATORS[symbol](evaluate(left, variables), evaluate(right, variables))
        case Keyword():
            raise AssertionError("only inside a call")
        case _:
            assert_never(expr)


def _call(function: Expr, args: tuple[Expr, ...], variables: Mapping[str, Any]) -> Any:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for arg in args:
        match arg:
            case Keyword(name, value):
                keywords[name] = evaluate(value, variables)
            case _:
                positional.append(evaluate(arg, variables))
    return evaluate(function, variables)(*positional, **keywords)


def _resolve(name: str) -> Any:
    """A name of the allow-list."""
    if name in _BARE:
        return _BARE[name]
    assert name in NAMES, name
    first, *rest = name.split(".")
    found: Any = _MODULES[first]
    for part in rest:
        found = getattr(found, part)
    return found
