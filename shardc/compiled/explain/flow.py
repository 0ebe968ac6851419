"""What becomes of an array in a compiled program: is all of it used, or does each device keep a part?

It is followed as far as it stays itself, or is computed with element by element or along other dims (`through`); into
fusions, loops and branches and out again, as an element of a tuple too, and through further gathers. The ends looked
for are dynamic-slices that begin elsewhere on each device. What is not known here is said to be so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from shardc.compiled.explain import digits
from shardc.compiled.explain.digits import View
from shardc.compiled.explain.indices import Indices, Scope, Values
from shardc.compiled.explain.through import (
    SAME,
    UNKNOWN,
    Lost,
    NeedsAll,
    On,
    Outcome,
    Piece,
    Use,
    covered,
    is_block,
    is_spent,
    numbers,
    part_of,
    through,
)
from shardc.compiled.hlo.loops import trip_count
from shardc.compiled.hlo.text import Computation, Instruction, Module

_ENTERS = frozenset({"fusion", "call", "async-start"})
_HANDS_ON = frozenset({"copy", "opt-barrier", "optimization-barrier", "async-update"})
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
class Whole:
    """Some use needs all of the array."""

    why: str


@dataclass(frozen=True, slots=True)
class InParts:
    """Every use ends in a slice."""

    ends: tuple[Kept, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not every use is understood, and none that is needs all."""

    why: str


Uses: TypeAlias = Whole | InParts | Unknown


@dataclass(frozen=True, slots=True)
class At:
    """An array: what an instruction gives, or an element of its tuple."""

    scope: Scope
    instruction: Instruction
    element: int | None = None

    @property
    def key(self) -> tuple[str, str, int | None]:
        return (self.scope.path, self.instruction.name, self.element)


@dataclass(frozen=True, slots=True)
class _OnItsWay:
    """An array on its way."""

    at: At
    view: View
    gathers: tuple[str, ...] = ()
    multiplied: bool = False
    is_blurred: bool = False  # some of its dims are no longer followed
    part: str = ""  # if this is but a part of it: why it is not known which
    piece: Piece | None = None  # or that part

    @property
    def key(self) -> tuple[object, ...]:
        return (self.at.key, self.view, self.multiplied, self.is_blurred, self.part, self.piece)

    def to(self, at: At) -> _OnItsWay:
        return replace(self, at=at)

    def on(self, instruction: Instruction, found: On, element: int | None = None) -> _OnItsWay:
        return replace(
            self,
            at=At(self.at.scope, instruction, element),
            view=found.view,
            multiplied=self.multiplied or found.multiplied,
            is_blurred=self.is_blurred or found.is_blurred,
            part=self.part or found.part or (SAME if self.piece and found.piece else ""),
            piece=self.piece or found.piece,
        )


_Next: TypeAlias = list[_OnItsWay] | Kept | NeedsAll | Lost


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

    def uses(self, starts: Sequence[tuple[At, View]]) -> Uses:
        """What becomes of an array, from where it is made, or from where its pieces are."""
        waiting = [_OnItsWay(at, view) for at, view in starts]
        ends: list[Kept] = []
        unknown: list[str] = []
        pieces: list[Piece] = []
        known: set[object] = set()
        while waiting:
            step = waiting.pop()
            if step.key in known:
                continue
            known.add(step.key)
            if len(known) > _MOST_STEPS:
                return Unknown("it goes on for too long to be followed")
            for found in self._onward(step):
                match found:
                    case Kept():
                        ends.append(found)
                    case Lost(why):
                        unknown.append(why)
                    case NeedsAll() if step.part:
                        unknown.append(step.part)
                    case NeedsAll() if step.piece is not None:
                        pieces.append(step.piece)
                    case NeedsAll(why):
                        return Whole(why)
                    case _:
                        waiting += found
        if covered(pieces):
            return Whole("its parts are used, which make up the whole")
        unknown += [SAME] * len(pieces)
        if unknown or not ends:
            return Unknown(unknown[0] if unknown else "nothing is seen to use it")
        return InParts(tuple(ends))

    def _onward(self, step: _OnItsWay) -> list[_Next]:
        """The next places of a value."""
        if is_spent(step.view) and not (step.is_blurred and any(step.view)):
            return [NeedsAll("all of it is used")]
        users = self.users(step.at.scope.computation).get(step.at.instruction.name, ())
        found = [
            self._element(step, user) if step.at.element is not None else self._array(step, user) for user in users
        ]
        return [*found, self._out(step)] if step.at.instruction.is_root else found

    def _array(self, step: _OnItsWay, user: Instruction) -> _Next:
        """Where an array goes that an instruction is given."""
        opcode = user.opcode
        if opcode in _ENTERS or opcode in ("while", "conditional"):
            return self._inside(step, user)
        if opcode == "tuple":
            places = [n for n, name in enumerate(user.operands) if name == step.at.instruction.name]
            return [step.to(At(step.at.scope, user, place)) for place in places]
        if opcode == "dynamic-slice":
            return self._slice(step, user)
        if opcode.removesuffix("-start") == "all-gather":
            return self._gather(step, user)
        if opcode.endswith(("-done", "-update")):
            return [step.to(At(step.at.scope, user))]
        return self._through(step, user)

    def _through(self, step: _OnItsWay, user: Instruction) -> _Next:
        use = Use(step.at.scope.computation, step.at.instruction, step.view, user, self.layouts)
        found: Outcome = through(use)
        if not isinstance(found, On):
            return found
        if step.is_blurred and user.opcode == "slice":
            found = replace(found, part=UNKNOWN)
        several = range(len(user.shapes)) if user.opcode == "reduce" and len(user.shapes) > 1 else (None,)
        return [step.on(user, found, element) for element in several]

    def _element(self, step: _OnItsWay, user: Instruction) -> _Next:
        """Where an element of a tuple goes when the tuple is handed on."""
        place, opcode = step.at.element, user.opcode
        if opcode == "get-tuple-element":
            return [step.to(At(step.at.scope, user))] if user.attributes.get("index") == str(place) else []
        if opcode in _ENTERS or opcode in ("while", "conditional"):
            return self._inside(step, user)
        if opcode in _HANDS_ON:
            return [step.to(At(step.at.scope, user, place))]
        if opcode.endswith("-done"):
            return [step.to(At(step.at.scope, user, place if len(user.shapes) > 1 else None))]
        return Lost(f"goes into {opcode} in a tuple")

    def _inside(self, step: _OnItsWay, user: Instruction) -> _Next:
        """The parameters that a value is, in what an instruction calls."""
        scope, called = step.at.scope, user.called()
        places = [number for number, name in enumerate(user.operands) if name == step.at.instruction.name]
        if user.opcode == "conditional":
            targets = [(called[place - 1], 0) for place in places if 0 < place <= len(called)]
        elif user.opcode == "while":
            targets = [(name, 0) for name in called]
        else:
            targets = [(name, place) for name in called for place in places]
        steps = []
        for name, number in targets:
            inner = scope.enter(self.module.computation(name), user)
            parameters = {int(p.literal): p for p in inner.computation.parameters}
            if number not in parameters:
                return Lost(f"goes into {user.opcode}, in a way that is not followed")
            steps.append(step.to(At(inner, parameters[number], step.at.element)))
        return steps

    def _out(self, step: _OnItsWay) -> _Next:
        """What a computation gives back: to its caller, and in a loop to its next trip."""
        scope, caller, outer = step.at.scope, step.at.scope.caller, step.at.scope.outer
        if caller is None or outer is None:
            return NeedsAll("it is a result")
        back = step.to(At(outer, caller, step.at.element))
        if caller.opcode in _ENTERS or caller.opcode == "conditional":
            return [back]
        if caller.opcode != "while":
            return Lost(f"comes out of {caller.opcode}")
        if caller.attributes["body"].lstrip("%") != scope.computation.name:
            return NeedsAll("it decides whether a loop goes on")
        return [back, step.to(At(scope, scope.computation.parameters[0], step.at.element))]

    def _gather(self, step: _OnItsWay, user: Instruction) -> _Next:
        dim = numbers(user, "dimensions")[0]
        steps = []
        for place, name in enumerate(user.operands):
            if name != step.at.instruction.name:
                continue
            shape = user.shapes[place if user.opcode == "all-gather" else len(user.operands) + place]
            had, has = digits.sizes_of(step.view)[dim], shape.sizes[dim]
            if has % had:
                return Lost("is gathered in a way that is not followed")
            key = f"{step.at.scope.path}{user.name}" + (f"#{place}" if len(user.operands) > 1 else "")
            onward = step.on(user, On(digits.gathered(step.view, dim, has // had, key)))
            is_tuple = len(user.operands) > 1 or user.opcode != "all-gather"
            at = replace(onward.at, element=place if is_tuple else None)
            steps.append(replace(onward, at=at, gathers=(*step.gathers, key)))
        return steps

    def _slice(self, step: _OnItsWay, user: Instruction) -> _Next:
        """What a device keeps, if it is another part on each; else the array goes on along the other dims."""
        name, sizes = step.at.instruction.name, user.shapes[0].sizes
        if user.operands[0] != name or name in user.operands[1:]:
            return NeedsAll("its values are indices")
        had = digits.sizes_of(step.view)
        cut = [n for n, size in enumerate(had) if size != sizes[n]]
        clear = [n for n in cut if not is_block(step.view[n])]
        known = {n: at for n in clear if (at := self._start(step.at.scope, user.operands[n + 1])) is not None}
        alike = [n for n, at in known.items() if (at == at[0]).all()]
        hidden = [n for n in cut if n not in known]
        missed = [n for n in hidden if not self._is_gone_through(step.at.scope, sizes[n], had[n])]
        why = part_of(step.view, sizes, missed, UNKNOWN).part or part_of(step.view, sizes, alike, SAME).part
        why = why or (UNKNOWN if step.is_blurred and (alike or hidden) else "")
        part = replace(part_of(step.view, sizes, {*alike, *hidden}, why), part=why)
        if len(alike) + len(hidden) == len(cut):
            return [step.on(user, part)]
        nowhere = np.zeros(self.module.partitions, dtype=np.int64)
        starts = [nowhere if n in alike else known.get(n, nowhere) for n in range(len(sizes))]
        return Kept(user, part.view, sizes, np.stack(starts, axis=1), step.gathers, step.multiplied)

    def _start(self, scope: Scope, name: str) -> Values | None:
        """Where a slice begins on each device; None if that is not known."""
        found = self.indices.of(scope, name)
        flat = None if found is None else found.reshape(-1)
        return flat if flat is not None and len(flat) == self.module.partitions else None

    def _is_gone_through(self, scope: Scope, size: int, extent: int) -> bool:
        """Does the loop around take as many slices as there are? Then all its trips together use the whole."""
        while scope.outer is not None and scope.caller is not None:
            if scope.called_by == "while":
                trips = trip_count(self.module, scope.outer.computation, scope.caller)
                return trips is not None and trips * size == extent
            scope = scope.outer
        return False

    def users(self, computation: Computation) -> dict[str, list[Instruction]]:
        """Who reads each instruction of a computation."""
        found = self._users.get(computation.name)
        if found is None:
            found = self._users[computation.name] = {}
            for instruction in computation.instructions:
                for name in dict.fromkeys(instruction.operands):
                    found.setdefault(name, []).append(instruction)
        return found
