"""The backward program as text: how each array is spelled where it is first used, what is cast, what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardc.backward.terms import Dims, printed
from shardc.backward.walk import Line, Walk
from shardc.ir.expressions import Pattern
from shardc.ir.program import Input, Program, straight
from shardc.notation import parse


def assembled(program: Program, walk: Walk, wanted: Sequence[Input], whole: bool, remat: bool) -> Program:
    """The text of the lines, parsed; what comes out in another type than its array's is cast, and parsed again."""
    lines = walk.lines
    first = _parsed(program, walk, lines, wanted, whole, remat)
    found = {statement.name: statement.dtype for statement in straight(first)}
    cast = [
        replace(line, text=f"{line.dtype}({line.text})")
        if line.dtype is not None and found[line.name] != line.dtype
        else line
        for line in lines
    ]
    return first if cast == lines else _parsed(program, walk, cast, wanted, whole, remat)


def _parsed(
    program: Program, walk: Walk, lines: Sequence[Line], wanted: Sequence[Input], whole: bool, remat: bool
) -> Program:
    forward = [statement.text for statement in straight(program)] if whole or remat else []
    known = set(walk.own) if forward else set()
    spell = _Speller(program, walk, known).spell
    backward = [
        f"{line.name}{line.pattern.spell(line.dims)} = {printed(line.text, spell)}"
        for line in _in_use(lines, walk, wanted)
    ]
    gradients = [walk.of_name[array.name] for array in wanted]
    outputs = [program.results[number].name for number in program.outputs] if whole else []
    text = "\n".join([*program.declarations, *forward, *backward, "return " + ", ".join([*outputs, *gradients])])
    return parse(text, name="<gradient>")


def _in_use(lines: Sequence[Line], walk: Walk, wanted: Sequence[Input]) -> list[Line]:
    """The lines that some gradient asked for needs."""
    needed = {walk.of_name[array.name] for array in wanted}
    kept = []
    for line in reversed(lines):
        if line.name in needed:
            kept.append(line)
            needed |= {part for number, part in enumerate(line.text.split("\0")) if number % 3 == 1}
    return kept[::-1]


class _Speller:
    """Arrays as the notation writes them: the first use of one that comes in shows how it lies, and its type."""

    def __init__(self, program: Program, walk: Walk, known: set[str]) -> None:
        self.dtype = program.dtype
        self.walk = walk
        self.given = {given: name for name, given in walk.given.items()}
        self.known = (known | {line.name for line in walk.lines}).difference(self.given)
        self.bound = {line.name: line.dims for line in walk.lines}

    def spell(self, name: str, dims: Dims) -> str:
        array = self.given.get(name, name)
        own = self.walk.own[array] if array in self.walk.own else self.bound[array]
        brackets = "" if dims == own else Pattern.free(len(dims)).spell(dims)
        if name in self.known:
            return name + brackets
        self.known.add(name)
        dtype = self.walk.types[array]
        typed = "" if dtype == self.dtype else f": {dtype}"
        return f"{name}{typed}{self.walk.patterns[array].spell(dims)}"
