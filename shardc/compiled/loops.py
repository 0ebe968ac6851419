"""How often a while loop runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardc.compiled.hlo import Computation, Instruction, Module

_COUNT = re.compile(r'"known_trip_count":\{"n":"?(\d+)"?\}')
_INTEGER = re.compile(r"-?\d+")


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """The compiler's own count if it left one; else that of a counter with known start, step and limit; else None.

    while (i < 8) with i from 0 by 1: the condition's root is compare(i, 8), direction=LT; the body's tuple has
    add(i, 1) in i's place; the loop's tuple has 0 there.
    """
    known = _COUNT.search(loop.attributes.get("backend_config", ""))
    if known:
        return int(known.group(1))
    body = module.computation(loop.attributes["body"].lstrip("%"))
    limit = _limit(module, module.computation(loop.attributes["condition"].lstrip("%")))
    if limit is None:
        return None
    start, step = _start(computation, loop, limit.place), _step(body, limit.place)
    return None if start is None or not step else _count(start, step, limit)


@dataclass(frozen=True, slots=True)
class _Limit:
    """The loop runs while element `place` of its tuple is `direction` (LT, NE, …) `value`."""

    place: int
    direction: str
    value: int


def _count(start: int, step: int, limit: _Limit) -> int | None:
    """How many of start, start + step, … satisfy the condition before the first that does not."""
    distance = (limit.value - start) * (1 if step > 0 else -1)
    match limit.direction, step > 0:
        case ("LT", True) | ("GT", False):
            return max(0, -(-distance // abs(step)))
        case ("LE", True) | ("GE", False):
            return max(0, distance // abs(step) + 1)
        case ("NE", _) if distance >= 0 and distance % abs(step) == 0:
            return distance // abs(step)
        case _:
            return None


_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def _limit(module: Module, condition: Computation) -> _Limit | None:
    """The comparison at the root; compilers like to put it into a fusion of its own."""
    root, inside, given = condition.root, condition, {}
    if root.opcode in ("fusion", "call"):
        inside = module.computation(root.called()[0])
        given = dict(zip((p.name for p in inside.parameters), root.operands, strict=False))
        root = inside.root
    if root.opcode != "compare" or len(root.operands) != 2:
        return None
    sides = [condition.by_name[given[name]] if name in given else inside.by_name[name] for name in root.operands]
    direction = root.attributes.get("direction", "")
    if _constant(sides[0]) is not None:
        sides, direction = sides[::-1], _MIRRORED.get(direction, direction)
    place, value = _element(sides[0]), _constant(sides[1])
    return None if place is None or value is None else _Limit(place, direction, value)


def _start(computation: Computation, loop: Instruction, place: int) -> int | None:
    given = computation.by_name.get(loop.operands[0])
    if given is None or given.opcode != "tuple" or place >= len(given.operands):
        return None
    return _constant(_copied(computation, given.operands[place]))


def _step(body: Computation, place: int) -> int | None:
    root = body.root
    if root.opcode != "tuple" or place >= len(root.operands):
        return None
    added = _copied(body, root.operands[place])
    if added.opcode not in ("add", "subtract") or len(added.operands) != 2:
        return None
    sides = [_copied(body, name) for name in added.operands]
    sign = 1 if added.opcode == "add" else -1
    for one, other, factor in ((sides[0], sides[1], sign), (sides[1], sides[0], 1)):
        by = _constant(other)
        if _element(one) == place and by is not None:
            return by * factor
    return None


def _copied(computation: Computation, name: str) -> Instruction:
    found = computation.by_name[name]
    while found.opcode in ("copy", "bitcast") and found.operands:
        found = computation.by_name[found.operands[0]]
    return found


def _constant(instruction: Instruction) -> int | None:
    if instruction.opcode != "constant" or not _INTEGER.fullmatch(instruction.literal.strip()):
        return None
    return int(instruction.literal)


def _element(instruction: Instruction) -> int | None:
    if instruction.opcode != "get-tuple-element":
        return None
    return int(instruction.attributes.get("index", "-1"))
