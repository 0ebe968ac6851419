"""How often a while loop runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardc.compiled.hlo.text import Computation, Instruction, Module

_COUNT = re.compile(r'\\?"known_trip_count\\?":\s*\{\s*\\?"n\\?":\s*\\?"?(\d+)')
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
    condition = module.computation(loop.attributes["condition"].lstrip("%"))
    test = _opened(module, condition, condition.root)
    if test.opcode != "compare" or len(test.sides) != 2:
        return None
    counter, limit, direction = *test.sides, test.direction
    place = _element(condition, counter)
    if place is None or _hands_on(body, place):
        counter, limit, direction = limit, counter, _MIRRORED.get(direction, direction)
        place = _element(condition, counter)
    if place is None:
        return None
    start, step = _start(computation, loop, place), _step(module, body, place)
    end = _constant(limit)
    kept = _element(condition, limit)
    if kept is not None and _hands_on(body, kept):
        end = _start(computation, loop, kept)
    return None if start is None or end is None or not step else count(start, step, direction, end)


def count(start: int, step: int, direction: str, limit: int) -> int | None:
    """How many of start, start + step, … are `direction` (LT, NE, …) the limit before the first that is not."""
    distance = (limit - start) * (1 if step > 0 else -1)
    match direction, step > 0:
        case ("LT", True) | ("GT", False):
            return max(0, -(-distance // abs(step)))
        case ("LE", True) | ("GE", False):
            return max(0, distance // abs(step) + 1)
        case ("NE", _) if distance >= 0 and distance % abs(step) == 0:
            return distance // abs(step)
        case _:
            return None


_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


@dataclass(frozen=True, slots=True)
class _Opened:
    """What an instruction computes, and from what; compilers like to put the least thing into a fusion of its own."""

    opcode: str
    direction: str
    sides: tuple[Instruction, ...]


def _opened(module: Module, computation: Computation, instruction: Instruction) -> _Opened:
    """Looks into a fusion of one instruction: its parameters are the fusion's operands."""
    root, inside, given = instruction, computation, dict[str, str]()
    if root.opcode in ("fusion", "call") and root.called():
        inside = module.computation(root.called()[0])
        given = dict(zip((p.name for p in inside.parameters), root.operands, strict=False))
        root = inside.root
    sides = [(computation, given[name]) if name in given else (inside, name) for name in root.operands]
    return _Opened(root.opcode, root.attributes.get("direction", ""), tuple(_copied(*side) for side in sides))


def _hands_on(body: Computation, place: int) -> bool:
    """Whether the body gives back an element of the loop's tuple as it was given it."""
    root = body.root
    if root.opcode != "tuple" or place >= len(root.operands):
        return False
    return _element(body, _copied(body, root.operands[place])) == place


def _start(computation: Computation, loop: Instruction, place: int) -> int | None:
    given = _copied(computation, loop.operands[0])
    if given.opcode != "tuple" or place >= len(given.operands):
        return None
    return _constant(_copied(computation, given.operands[place]))


def _step(module: Module, body: Computation, place: int) -> int | None:
    root = body.root
    if root.opcode != "tuple" or place >= len(root.operands):
        return None
    added = _opened(module, body, _copied(body, root.operands[place]))
    if added.opcode not in ("add", "subtract") or len(added.sides) != 2:
        return None
    one, other = added.sides
    if _element(body, one) == place and (by := _constant(other)) is not None:
        return by if added.opcode == "add" else -by
    if added.opcode == "add" and _element(body, other) == place:
        return _constant(one)
    return None


def _copied(computation: Computation, name: str) -> Instruction:
    found = computation.by_name[name]
    while found.opcode in ("copy", "bitcast", "opt-barrier") and len(found.operands) == 1:
        found = computation.by_name[found.operands[0]]
    return found


def _constant(instruction: Instruction) -> int | None:
    if instruction.opcode != "constant" or not _INTEGER.fullmatch(instruction.literal.strip()):
        return None
    return int(instruction.literal)


def _element(computation: Computation, instruction: Instruction) -> int | None:
    """The place in the loop's tuple, which is the one parameter of condition and body."""
    given = [parameter.name for parameter in computation.parameters]
    if instruction.opcode != "get-tuple-element" or list(instruction.operands) != given:
        return None
    return int(instruction.attributes["index"])
