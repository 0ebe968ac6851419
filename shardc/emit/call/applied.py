"""The description of emitted code, applied: no text is executed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, assert_never

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint

from shardc.emit.allowed import CARRIED, LAID, METHODS, NAMES, ROWS, TRIP, TURN
from shardc.emit.call.products import einsum
from shardc.emit.exprs import (
    Attr,
    BinOp,
    Call,
    Code,
    Const,
    Each,
    Expr,
    Index,
    Items,
    Keyword,
    Line,
    Loop,
    Name,
    Scan,
)
from shardc.emit.steps import extremes
from shardc.emit.steps.calls import Body

_MODULES = {"jax": jax, "jnp": jnp, "np": np}
_BARE: dict[str, Any] = {
    "P": jax.P,
    "jnp.einsum": einsum,
    "P.UNCONSTRAINED": jax.P.UNCONSTRAINED,
    "Layout": Layout,
    LAID: with_layout_constraint,
    "list": list,
    "int": int,
    "zip": zip,
    "sum": sum,
    "True": True,
    "False": False,
}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
}
_BRACKETS: dict[str, Callable[[list[Any]], Any]] = {"()": tuple, "[]": list, "{}": set}


def returned(names: Sequence[str], variables: Mapping[str, Any]) -> Any:
    """The variables of these names, one bare."""
    results = tuple(variables[name] for name in names)
    return results[0] if len(results) == 1 else results


def defined(parameters: tuple[str, ...], result: Expr) -> Callable[..., Any]:
    """`def name(parameters): return result`."""
    return lambda *values: evaluate(result, dict(zip(parameters, values, strict=True)))


_BARE |= {name: defined(names, result) for name, names, result in extremes.helpers()}


def per_device(described: Body, scopes: bool) -> Callable[..., Any]:
    """The lines, applied."""

    def program(*arrays: Any) -> Any:
        variables = dict(zip(described.parameters, arrays, strict=True))
        with _ranks_promoted():
            _do_all(described.code, variables, scopes)
        return returned(described.results, variables)

    return program


def _ranks_promoted() -> AbstractContextManager[None]:
    """Of `A + b` a program's text says which dims b lacks: JAX may repeat it along these whatever it refuses others."""
    if jax.config.jax_numpy_rank_promotion == "allow":  # type: ignore[attr-defined]  # JAX adds it as it starts
        return nullcontext()
    allowed: AbstractContextManager[None] = jax.numpy_rank_promotion("allow")
    return allowed


def _do_all(lines: Sequence[Code], variables: dict[str, Any], scopes: bool) -> None:
    for code in lines:
        with nullcontext() if code.step is None or not scopes else jax.named_scope(f"step{code.step}"):
            do(code, variables, scopes)


def do(code: Code, variables: dict[str, Any], scopes: bool = False) -> None:
    """One line, or a loop of some."""
    match code:
        case Line(target, expr):
            variables[target] = evaluate(expr, variables)
        case Loop(count, lines):
            for variables[TURN] in range(count):
                for line in lines:
                    do(line, variables)
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
        case Each(value, names, every):
            found = evaluate(every, variables)
            return [evaluate(value, {**variables, **dict(zip(names, each, strict=True))}) for each in found]
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
