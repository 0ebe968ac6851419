"""What becomes of an array in a compiled program: is all of it used, or does each device keep a part?

Followed are the ways in which an array stays itself, or is computed with element by element or along other dims:
copies, conversions, transposes, reshapes, elementwise functions, products along the dims that they keep, further
gathers; into fusions and out again. The ends looked for are dynamic-slices that begin elsewhere on each device. Any
other use, and anything not known here, is a use of the whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from shardc.compiled.explain import digits
from shardc.compiled.explain.digits import Digit, View
from shardc.compiled.explain.indices import Indices, Scope, Values
from shardc.compiled.hlo.text import Computation, Instruction, Module

_NAMES = """
abs add and atan2 bitcast-convert cbrt ceil clamp compare convert cosine divide erf exponential exponential-minus-one
floor is-finite log log-plus-one logistic maximum minimum multiply negate not or power reduce-precision remainder
round-nearest-afz round-nearest-even rsqrt select sign sine sqrt subtract tan tanh xor
"""
_ELEMENTWISE = frozenset(_NAMES.split())
_KEEPS = frozenset({"copy", "copy-start", "copy-done", "optimization-barrier", "all-gather-done", "all-reduce-done"})
_ENTERS = frozenset({"fusion", "call"})
_MOST_STEPS = 5000
_LAYOUT = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = \w+\[[\d,]*\]\{([\d,]*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kept:
    """An end: a dynamic-slice. `view` is what it slices, `size` what a device keeps, `starts` where it begins."""

    instruction: Instruction
    view: View
    size: tuple[int, ...]
    starts: Values  # [devices, dims]
    gathers: tuple[str, ...]  # further gathers on the way
    multiplied: bool  # a product is on the way


@dataclass(frozen=True, slots=True)
class _Step:
    """A value on its way."""

    scope: Scope
    instruction: Instruction
    view: View
    gathers: tuple[str, ...] = ()
    multiplied: bool = False

    def to(self, instruction: Instruction, view: View | None, multiplied: bool = False) -> list[_Step] | None:
        if view is None:
            return None
        return [replace(self, instruction=instruction, view=view, multiplied=self.multiplied or multiplied)]


def layouts_of(text: str) -> dict[str, tuple[int, ...]]:
    """Each array's layout, minor to major, by the name of its instruction."""
    return {name: tuple(map(int, filter(None, order.split(",")))) for name, order in _LAYOUT.findall(text)}


@dataclass(frozen=True, slots=True)
class Flow:
    """Follows values through one module."""

    module: Module
    layouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    indices: Indices = field(init=False)
    _users: dict[str, dict[str, list[Instruction]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", Indices(self.module))

    def kept(self, scope: Scope, start: Instruction, view: View) -> list[Kept] | None:
        """The slices in which every use ends; None if some use is of the whole."""
        found: list[Kept] = []
        waiting: list[_Step] = [_Step(scope, start, view)]
        for _ in range(_MOST_STEPS):
            if not waiting:
                return found or None
            step = waiting.pop()
            onward = self._onward(step, found)
            if onward is None:
                return None
            waiting += onward
        return None

    def _onward(self, step: _Step, found: list[Kept]) -> list[_Step] | None:
        """The next places of a value. Slices go to `found`; None for a use of the whole."""
        steps: list[_Step] = []
        for user in self.users(step.scope.computation).get(step.instruction.name, ()):
            if user.opcode == "dynamic-slice":
                end = self._slice(step, user)
                if end is None:
                    return None
                found.append(end)
                continue
            if user.opcode in _ENTERS:
                further = self._inside(step, user)
            elif user.opcode == "tuple":
                further = self._unpacked(step, user)
            else:
                further = self._after(step, user)
            if further is None:
                return None
            steps += further
        if not step.instruction.is_root:
            return steps
        if step.scope.outer is None or step.scope.caller is None or step.scope.called_by not in _ENTERS:
            return None
        return [*steps, replace(step, scope=step.scope.outer, instruction=step.scope.caller)]

    def _inside(self, step: _Step, user: Instruction) -> list[_Step] | None:
        """The parameters that a value is, in what a fusion calls."""
        if len(user.called()) != 1:
            return None
        inner = step.scope.enter(self.module.computation(user.called()[0]), user)
        parameters = {int(p.literal): p for p in inner.computation.parameters}
        places = [number for number, name in enumerate(user.operands) if name == step.instruction.name]
        if any(number not in parameters for number in places):
            return None
        return [replace(step, scope=inner, instruction=parameters[number]) for number in places]

    def _unpacked(self, step: _Step, packed: Instruction) -> list[_Step] | None:
        """A fusion with several results ends in a tuple, of which the caller takes elements."""
        scope, caller = step.scope.outer, step.scope.caller
        if not packed.is_root or scope is None or caller is None or caller.opcode != "fusion" or caller.is_root:
            return None
        places = {str(n) for n, name in enumerate(packed.operands) if name == step.instruction.name}
        takers = self.users(scope.computation).get(caller.name, [])
        if any(taker.opcode != "get-tuple-element" for taker in takers):
            return None
        return [replace(step, scope=scope, instruction=t) for t in takers if t.attributes.get("index") in places]

    def _after(self, step: _Step, user: Instruction) -> list[_Step] | None:
        """The value after an operation that keeps it in sight."""
        if len(user.shapes) != 1 and user.opcode != "copy-start":
            return None
        sizes = user.shapes[0].sizes
        opcode = user.opcode
        if opcode in _KEEPS or (opcode in _ELEMENTWISE and sizes == digits.sizes_of(step.view)):
            return step.to(user, step.view)
        match opcode:
            case "transpose":
                return step.to(user, digits.transposed(step.view, _numbers(user, "dimensions")))
            case "reshape":
                return step.to(user, digits.reshaped(step.view, sizes))
            case "bitcast":
                return step.to(user, self._bitcast(step, user))
            case "broadcast":
                return step.to(user, _broadcast(step.view, sizes, _numbers(user, "dimensions")))
            case "dot" | "convolution":
                return step.to(user, self._product(step, user), multiplied=True)
            case "all-gather":
                return self._gather(step, user)
            case _:
                return None

    def _bitcast(self, step: _Step, user: Instruction) -> View | None:
        given, made = step.instruction.shapes[0], user.shapes[0]
        if given.bytes != made.bytes or prod(given.sizes) != prod(made.sizes):
            return None
        row_major = tuple(range(len(given.sizes)))[::-1], tuple(range(len(made.sizes)))[::-1]
        before = self.layouts.get(step.instruction.name, row_major[0])
        after = self.layouts.get(user.name, row_major[1])
        return digits.rearranged(step.view, before, made.sizes, after)

    def _gather(self, step: _Step, user: Instruction) -> list[_Step] | None:
        dim = _numbers(user, "dimensions")[0]
        had, has = digits.sizes_of(step.view)[dim], user.shapes[0].sizes[dim]
        if len(user.operands) != 1 or has % had:
            return None
        view = digits.gathered(step.view, dim, has // had, user.name)
        return [replace(step, instruction=user, view=view, gathers=(*step.gathers, user.name))]

    def _product(self, step: _Step, user: Instruction) -> View | None:
        """What of an operand's dims the product keeps; the other operand's are foreign."""
        if len(user.operands) != 2 or user.operands[0] == user.operands[1]:
            return None
        side = user.operands.index(step.instruction.name)
        sizes = user.shapes[0].sizes
        if user.opcode == "dot":
            kept = _kept_by_dot(step.scope.computation, user, side)
        else:
            kept = _kept_by_convolution(step.scope.computation, user, side)
        if kept is None:
            return None
        return tuple(
            step.view[kept[place]] if place in kept else digits.foreign(size) for place, size in enumerate(sizes)
        )

    def _slice(self, step: _Step, user: Instruction) -> Kept | None:
        """A slice of this value, and where it begins on each device."""
        if user.operands[0] != step.instruction.name or step.instruction.name in user.operands[1:]:
            return None
        starts = [self.indices.of(step.scope, name) for name in user.operands[1:]]
        known = [value.reshape(-1) for value in starts if value is not None]
        rank = len(user.shapes[0].sizes)
        if len(known) < rank or any(len(value) != self.module.partitions for value in known):
            return None
        return Kept(user, step.view, user.shapes[0].sizes, np.stack(known, axis=1), step.gathers, step.multiplied)

    def users(self, computation: Computation) -> dict[str, list[Instruction]]:
        """Who reads each instruction of a computation."""
        found = self._users.get(computation.name)
        if found is None:
            found = self._users[computation.name] = {}
            for instruction in computation.instructions:
                for name in dict.fromkeys(instruction.operands):
                    found.setdefault(name, []).append(instruction)
        return found


def _numbers(instruction: Instruction, attribute: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", instruction.attributes.get(attribute, "")))


def _broadcast(view: View, sizes: tuple[int, ...], placed: tuple[int, ...]) -> View | None:
    if len(placed) != len(view):
        return None
    where = dict(zip(placed, view, strict=True))
    return tuple(where.get(number, digits.foreign(size)) for number, size in enumerate(sizes))


def _kept_by_dot(computation: Computation, dot: Instruction, side: int) -> dict[int, int] | None:
    """By dim of the result, the dim of the operand: batch dims, then the left's free dims, then the right's."""
    ranks = [len(computation.by_name[name].shapes[0].sizes) for name in dot.operands]
    batch = [_numbers(dot, f"{name}_batch_dims") for name in ("lhs", "rhs")]
    contracted = [_numbers(dot, f"{name}_contracting_dims") for name in ("lhs", "rhs")]
    free = [[d for d in range(ranks[s]) if d not in batch[s] and d not in contracted[s]] for s in (0, 1)]
    first = len(batch[0]) + (len(free[0]) if side else 0)
    if len(batch[0]) + len(free[0]) + len(free[1]) != len(dot.shapes[0].sizes):
        return None
    return dict(enumerate(batch[side])) | dict(enumerate(free[side], start=first))


def _kept_by_convolution(computation: Computation, conv: Instruction, side: int) -> dict[int, int] | None:
    """As of a dot, which is what compilers make of a product. `0bf1_i1o0->0b1f`: b free left, o free right.

    A numbered dim is batched if all have its size, free on one side if the other has 1, contracted if only the
    result has 1.
    """
    labels = re.fullmatch(r"([\w?]+)_([\w?]+)->([\w?]+)", conv.attributes.get("dim_labels", ""))
    if labels is None or "_group_count" in " ".join(conv.attributes):
        return None
    own, free = labels[side + 1], "b" if side == 0 else "o"
    sizes = [computation.by_name[name].shapes[0].sizes for name in conv.operands] + [conv.shapes[0].sizes]
    kept = {}
    for place, label in enumerate(labels[3]):
        if label in "bf":
            mine = free if (label == "b") == (side == 0) else ""
            if mine:
                kept[place] = own.index(mine)
            continue
        left, right, result = (sizes[n][labels[n + 1].index(label)] for n in range(3))
        if result == 1:
            continue
        if result not in (left, right) or (1 not in (left, right) and left != right):
            return None
        if (left, right)[side] == result:
            kept[place] = own.index(label)
    return kept


def own_block(sizes: tuple[int, ...], dim: int, count: int, name: str) -> View:
    """What a gather over `count` devices leaves of an array: its dim now begins with the devices."""
    return digits.gathered(digits.whole(sizes), dim, count, name)


__all__ = ["Digit", "Flow", "Kept", "Scope", "layouts_of", "own_block"]
