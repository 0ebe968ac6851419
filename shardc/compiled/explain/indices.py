"""The small integers of a compiled program, worked out for every device: where each one's slice begins.

    %id = u32[] partition-id()
    %table = s32[8] constant({0, 2, 4, 6, 0, 2, 4, 6})
    %at = s32[1] dynamic-slice(%table, %id)                   device 5 begins at 2

Whatever is not known here gives None, and so does what depends on the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from shardc.compiled.hlo.text import Computation, Instruction, Module

Values: TypeAlias = "np.ndarray[Any, Any]"  # [devices, *sizes]
_MOST = 1 << 16  # elements of what is still an index
_DEPTH = 64
_INTEGER = re.compile(r"-?\d+|true|false")
_SAME = ("bitcast", "reshape", "convert", "copy", "copy-start", "copy-done", "optimization-barrier")
_BINARY: dict[str, Callable[[Values, Values], Values]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a // np.where(b == 0, 1, b),  # of counts, which are not negative
    "remainder": lambda a, b: a % np.where(b == 0, 1, b),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift-left": lambda a, b: a << np.minimum(b, 62),
    "shift-right-logical": lambda a, b: a >> np.minimum(b, 62),
    "shift-right-arithmetic": lambda a, b: a >> np.minimum(b, 62),
}
_COMPARED: dict[str, Callable[[Values, Values], Values]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A computation where it is called: what its parameters are, the caller knows."""

    computation: Computation
    outer: Scope | None = None
    caller: Instruction | None = None
    path: str = ""  # the calls on the way here: two scopes of one path are one

    @staticmethod
    def of(computation: Computation, callers: Sequence[tuple[Computation, Instruction]]) -> Scope:
        """Where a computation is reached by these calls, outermost first."""
        computations = [*(outer for outer, _ in callers), computation]
        scope = Scope(computations[0])
        for inner, (_, caller) in zip(computations[1:], callers, strict=True):
            scope = scope.enter(inner, caller)
        return scope

    def enter(self, computation: Computation, caller: Instruction) -> Scope:
        return Scope(computation, self, caller, f"{self.path}{caller.name}:{computation.name}/")

    @property
    def called_by(self) -> str:
        return self.caller.opcode if self.caller is not None else ""


@dataclass(frozen=True, slots=True)
class Indices:
    """Works out integers of one module, for all its devices at once."""

    module: Module
    _known: dict[tuple[str, str], Values | None] = field(default_factory=dict)

    def of(self, scope: Scope, name: str, depth: int = 0) -> Values | None:
        """The value on every device, or None if it is not known."""
        key = (scope.path, name)
        if key not in self._known:
            self._known[key] = None  # so that a circle ends
            instruction = scope.computation.by_name.get(name)
            if instruction is not None and depth < _DEPTH and _is_small(instruction):
                self._known[key] = self._work_out(scope, instruction, depth + 1)
        return self._known[key]

    def _work_out(self, scope: Scope, instruction: Instruction, depth: int) -> Values | None:
        devices, sizes = self.module.partitions, instruction.shapes[0].sizes
        match instruction.opcode:
            case "partition-id":
                return np.arange(devices)
            case "replica-id" if self.module.replicas == 1:
                return np.zeros(devices, dtype=np.int64)
            case "constant":
                return _constant(instruction, devices)
            case "parameter":
                return self._given(scope, instruction, depth)
            case "get-tuple-element":
                return self._carried(scope, instruction, depth)
            case "fusion" | "call" if len(instruction.called()) == 1:
                inner = scope.enter(self.module.computation(instruction.called()[0]), instruction)
                return self.of(inner, inner.computation.root.name, depth)
        found = [self.of(scope, name, depth) for name in instruction.operands]
        known = [value for value in found if value is not None]
        if not known or len(known) < len(found):
            return None
        result = _apply(instruction, known)
        return None if result is None or result.size != devices * prod(sizes) else result.reshape(devices, *sizes)

    def _given(self, scope: Scope, parameter: Instruction, depth: int) -> Values | None:
        number = int(parameter.literal)
        if scope.outer is None or scope.caller is None or scope.called_by not in ("fusion", "call"):
            return None
        return self.of(scope.outer, scope.caller.operands[number], depth)

    def _carried(self, scope: Scope, element: Instruction, depth: int) -> Values | None:
        """What a loop hands on unchanged is what it was before the loop."""
        body, loop, outer = scope.computation, scope.caller, scope.outer
        source = body.by_name.get(element.operands[0])
        if source is None or source.opcode != "parameter" or loop is None or outer is None or loop.opcode != "while":
            return None
        place, start = int(element.attributes.get("index", "-1")), outer.computation.by_name.get(loop.operands[0])
        if body.root.opcode != "tuple" or start is None or start.opcode != "tuple":
            return None
        kept = body.by_name.get(body.root.operands[place])
        if kept is None or kept.opcode != "get-tuple-element" or kept.attributes.get("index") != str(place):
            return None
        return self.of(outer, start.operands[place], depth)


def _is_small(instruction: Instruction) -> bool:
    shape = instruction.shapes[0] if instruction.shapes else None
    return shape is not None and shape.dtype[0] in "sup" and prod(shape.sizes) <= _MOST


def _constant(instruction: Instruction, devices: int) -> Values | None:
    sizes = instruction.shapes[0].sizes
    words = _INTEGER.findall(instruction.literal)
    if len(words) != prod(sizes):  # of a long one the text is `{...}`
        return None
    numbers = np.array([int(word) if word.lstrip("-").isdigit() else word == "true" for word in words], dtype=np.int64)
    return np.broadcast_to(numbers.reshape(1, *sizes), (devices, *sizes))


def _apply(instruction: Instruction, found: list[Values]) -> Values | None:
    opcode = instruction.opcode
    if opcode in _SAME:
        return found[0]
    if opcode in _BINARY and len(found) == 2:
        return _BINARY[opcode](found[0].astype(np.int64), found[1].astype(np.int64))
    match opcode, found:
        case "compare", [left, right]:
            compared = _COMPARED.get(instruction.attributes.get("direction", ""))
            return compared(left, right).astype(np.int64) if compared else None
        case "select", [choice, yes, no]:
            return np.where(choice != 0, yes, no)
        case "clamp", [low, value, high]:
            return np.clip(value, low, high)
        case "broadcast", [value] if value.ndim == 1:
            sizes = instruction.shapes[0].sizes
            return np.broadcast_to(value.reshape(-1, *[1] * len(sizes)), (len(value), *sizes))
        case "dynamic-slice", [table, *starts]:
            return _sliced(table, starts, instruction.shapes[0].sizes)
        case _:
            return None


def _sliced(table: Values, starts: list[Values], sizes: tuple[int, ...]) -> Values:
    """Each device's slice; a start beyond the end is moved back, as HLO defines it."""
    rows = []
    for device, values in enumerate(table):
        begin = [min(max(int(s[device]), 0), n - k) for s, n, k in zip(starts, values.shape, sizes, strict=True)]
        rows.append(values[tuple(slice(b, b + k) for b, k in zip(begin, sizes, strict=True))])
    return np.stack(rows)
