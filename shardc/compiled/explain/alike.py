"""On which devices a value of a compiled program is the same, as far as the program shows it.

    %s = f32[8] all-reduce(%x), replica_groups={{0,1},{2,3}}     0 0 1 1
    %t = f32[8] multiply(%s, %c)        c a constant             0 0 1 1

A value's *likeness* has a number for each device: where two are equal, so are the values. What an operation makes is
alike where all that it is given is; a collective's result on a device hangs on what its group held; what is not known
here differs everywhere. A loop is gone through until no trip tells more devices apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from shardc.compiled.explain.change import Given, coordinates
from shardc.compiled.explain.indices import Indices, Scope
from shardc.compiled.explain.through import ELEMENTWISE, KEEPS
from shardc.compiled.hlo.collectives import KINDS
from shardc.compiled.hlo.groups import Groups, read_groups, read_pairs
from shardc.compiled.hlo.loops import trip_count
from shardc.compiled.hlo.text import Instruction, Module
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

Likeness: TypeAlias = "np.ndarray[Any, Any]"  # [devices]
Value: TypeAlias = "Likeness | tuple[Value, ...]"  # of a tuple of its elements, or of all of them at once

_NAMES = """
after-all bitcast broadcast complex concatenate convolution copy-done copy-start dot dynamic-slice
dynamic-update-slice fft gather imag map pad real reduce reduce-window reshape reverse rng-bit-generator scatter
select-and-scatter slice sort topk transpose triangular-solve cholesky
"""
_MAKES_ALIKE = frozenset(_NAMES.split()) | ELEMENTWISE | KEEPS  # of the same values the same
_CALLS = frozenset({"fusion", "call", "async-start"})
_HANDS_ON = frozenset({"optimization-barrier", "opt-barrier", "async-update", "async-done"})


@dataclass(frozen=True, slots=True)
class Alike:
    """Likenesses of one program's values: `given` finds the argument that a parameter is."""

    module: Module
    mesh: Mesh
    indices: Indices
    given: Callable[[Scope, str], Given | None]
    _known: dict[str, dict[str, Value]] = field(default_factory=dict)  # by the path of a scope, then by name

    def axes(self, scope: Scope, name: str, along: Axes) -> Axes:
        """Those of some axes along which every device holds the same value."""
        grid = self.of(scope, name).reshape(self.mesh.sizes)
        places = {axis: self.mesh.names.index(axis) for axis in along}
        return tuple(axis for axis, n in places.items() if (grid == grid.take([0], axis=n)).all())

    def of(self, scope: Scope, name: str) -> Likeness:
        """The likeness of a value where it is computed."""
        differs = np.arange(self.module.devices)
        if self.module.replicas > 1 or self.module.devices != self.mesh.devices:
            return differs
        if not self._known:
            self._through(Scope(self.module.entry), ())
        found = self._known.get(scope.path, {}).get(name)
        return differs if found is None else _all_of(found, self.module.devices)

    def _through(self, scope: Scope, given: Sequence[Value]) -> Value:
        """All of a computation, in its order, which has operands before their users; its root."""
        known = self._known[scope.path] = {}
        for instruction in scope.computation.instructions:
            known[instruction.name] = self._made(scope, instruction, known, given)
        return known[scope.computation.root.name]

    def _made(self, scope: Scope, instruction: Instruction, known: dict[str, Value], given: Sequence[Value]) -> Value:
        opcode, differs = instruction.opcode, np.arange(self.module.devices)
        operands = [known.get(name, differs) for name in instruction.operands]
        if opcode == "parameter":
            return given[int(instruction.literal)] if scope.outer is not None else self._argument(scope, instruction)
        if opcode in ("constant", "iota"):
            return np.zeros_like(differs)
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "get-tuple-element":
            return _element(operands[0], int(instruction.attributes["index"]))
        if opcode in _CALLS and len(instruction.called()) == 1:
            return self._through(scope.enter(self.module.computation(instruction.called()[0]), instruction), operands)
        if opcode in ("while", "conditional"):
            return (self._looped if opcode == "while" else self._branched)(scope, instruction, operands)
        if opcode in _HANDS_ON or (opcode.endswith("-done") and opcode.removesuffix("-done") in KINDS):
            return operands[0] if len(operands) == 1 else differs
        if opcode.removesuffix("-start") in KINDS:
            return self._moved(opcode.removesuffix("-start"), instruction, operands)
        found = _joined(operands, self.module.devices) if opcode in _MAKES_ALIKE else differs
        return self._counted(scope, instruction, found) if found.any() else found

    def _argument(self, scope: Scope, parameter: Instruction) -> Likeness:
        """An argument is the same along the axes that do not shard it."""
        argument = self.given(scope, parameter.name)
        if argument is None or argument.sharding is None:
            return np.arange(self.module.devices)
        places = coordinates(self.mesh)
        return _numbered(
            [places[axis] for axis in self.mesh.names if axis in argument.sharding.used], self.mesh.devices
        )

    def _counted(self, scope: Scope, instruction: Instruction, found: Likeness) -> Likeness:
        """Of a small integer its values are known: the place along X is the same for all devices along Y."""
        values = self.indices.of(scope, instruction.name)
        return found if values is None else _numbered(values.reshape(len(found), -1).T, len(found))

    def _looped(self, scope: Scope, loop: Instruction, operands: Sequence[Value]) -> Value:
        condition, body = (self.module.computation(loop.attributes[key].lstrip("%")) for key in ("condition", "body"))
        is_done = bool(trip_count(self.module, scope.computation, loop))  # once at least, as often on every device
        carried: Value = operands[0]
        while True:
            goes_on = _all_of(self._through(scope.enter(condition, loop), [carried]), self.module.devices)
            after = self._through(scope.enter(body, loop), [carried])
            found = _with(_both(carried, after, self.module.devices), goes_on, self.module.devices)
            if _same(found, carried):
                return after if is_done else carried
            carried = found

    def _branched(self, scope: Scope, choice: Instruction, operands: Sequence[Value]) -> Value:
        branches = [self.module.computation(name) for name in choice.called()]
        ways = [
            self._through(scope.enter(each, choice), [own]) for each, own in zip(branches, operands[1:], strict=True)
        ]
        devices = self.module.devices
        found = reduce(lambda left, right: _both(left, right, devices), ways)
        return _with(found, _all_of(operands[0], devices), devices)

    def _moved(self, opcode: str, instruction: Instruction, operands: Sequence[Value]) -> Value:
        """What a device is given hangs on what the devices of its group held, and in part on its place there."""
        differs = np.arange(self.module.devices)
        held = [_all_of(operand, self.module.devices) for operand in operands]
        if opcode == "collective-permute" and len(held) == 1:
            return _sent(held[0], read_pairs(instruction.attributes.get("source_target_pairs", "{}")))
        if opcode not in ("all-gather", "all-reduce", "reduce-scatter", "all-to-all"):
            return differs
        groups = read_groups(instruction.attributes.get("replica_groups", "{}"), self.module.devices)
        if sorted(device for group in groups for device in group) != list(differs):
            return differs
        together = opcode == "all-to-all"  # of several operands each result has some
        has_place = opcode in ("all-to-all", "reduce-scatter")
        each = [_joined(held, self.module.devices)] if together else held
        found = [_brought(one, groups, has_place) for one in each]
        return found[0] if len(found) == 1 else tuple(found)


def _brought(held: Likeness, groups: Groups, has_place: bool) -> Likeness:
    rows: list[Any] = [None] * len(held)
    for group in groups:
        for place, device in enumerate(group):
            rows[device] = (tuple(held[list(group)]), place if has_place else 0)
    return _by_first(rows)


def _sent(held: Likeness, pairs: Groups) -> Likeness:
    """Who is sent nothing has zeros."""
    source = {target: given for given, target in pairs}
    return _by_first([int(held[source[device]]) if device in source else -1 for device in range(len(held))])


def _by_first(rows: Sequence[Any]) -> Likeness:
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(row, len(numbers)) for row in rows])


def _numbered(columns: Iterable[Likeness], devices: int) -> Likeness:
    """Alike where all of some are."""
    rows = list(columns)
    return _by_first(list(zip(*(row.tolist() for row in rows), strict=True))) if rows else np.zeros(devices, np.int64)


def _joined(values: Iterable[Value], devices: int) -> Likeness:
    found = {id(each): each for value in values if (each := _all_of(value, devices)).any()}
    return next(iter(found.values())) if len(found) == 1 else _numbered(found.values(), devices)


def _all_of(value: Value, devices: int) -> Likeness:
    return _joined(value, devices) if isinstance(value, tuple) else value


def _element(value: Value, place: int) -> Value:
    return value[place] if isinstance(value, tuple) else value


def _both(left: Value, right: Value, devices: int) -> Value:
    """Alike where both are, element by element."""
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return tuple(_both(one, other, devices) for one, other in zip(left, right, strict=True))
    return _joined([left, right], devices)


def _with(value: Value, choice: Likeness, devices: int) -> Value:
    """And where what decided on it is."""
    if isinstance(value, tuple):
        return tuple(_with(each, choice, devices) for each in value)
    return _joined([value, choice], devices)


def _same(left: Value, right: Value) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return (
        not isinstance(left, tuple) and not isinstance(right, tuple) and len(np.unique(left)) == len(np.unique(right))
    )
