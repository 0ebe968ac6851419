"""HLO text, as XLA's compilers print it, read into data.

    ENTRY %main (param: bf16[8,4]) -> bf16[8,16] {
      %param = bf16[8,4]{1,0:T(8,128)(2,1)} parameter(0)
      ROOT %ag = bf16[8,16]{1,0} all-gather(%param), replica_groups=[2,4]<=[8], dimensions={1}, metadata={…}
    }

Only structure is read here: shapes, operands, attributes as text. What they mean is the other modules' work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

from shardc.compiled.hlo.sources import sources

_BITS = {
    "pred": 8,
    **{f"{kind}{bits}": bits for kind in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128},
    **{"token": 0, "opaque": 0, "f4e2m1fn": 4, "f8e8m0fnu": 8},
}


class UnreadableHlo(ValueError):
    """The text is not HLO as known here."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An array of a program as each device holds it: `bf16[8,4]`. `space` 0 is HBM, others are on the chip."""

    dtype: str
    sizes: tuple[int, ...]
    space: int = 0

    @property
    def bytes(self) -> int:
        bits = _BITS.get(self.dtype)
        if bits is None:
            bits = 8 if self.dtype.startswith("f8") else 32
        return (prod(self.sizes) * bits + 7) // 8


Shapes: TypeAlias = tuple[Shape, ...]


@dataclass(frozen=True)
class Instruction:
    """`%name = shapes opcode(operands), attributes`; a tuple's shapes lie flat."""

    name: str
    opcode: str
    shapes: Shapes
    operands: tuple[str, ...]
    literal: str  # what stands in the brackets: a constant's value, a parameter's number
    attributes: dict[str, str]
    is_root: bool = False

    @property
    def bytes(self) -> int:
        return sum(shape.bytes for shape in self.shapes)

    @cached_property
    def backend(self) -> dict[str, Any]:
        """The compiler's own notes on the instruction; empty if there are none."""
        text = self.attributes.get("backend_config", "")
        if not text.startswith("{"):
            return {}
        try:
            found = json.loads(text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def metadata(self) -> dict[str, str]:
        """`op_name`, `source_file`, `source_line`, `stack_frame_id`, as far as they are there."""
        text = self.attributes.get("metadata", "")
        return {key: value.strip('"') for key, value in _METADATA.findall(text)}

    def called(self) -> tuple[str, ...]:
        """The computations that it names: of a fusion, a call, a while, a conditional, an async start."""
        return tuple(
            name.strip().lstrip("%")
            for key in _CALLS
            if key in self.attributes
            for name in self.attributes[key].strip("{}").split(",")
            if name.strip()
        )


@dataclass(frozen=True)
class Computation:
    """Instructions in order; in a scheduled module that is the order of execution."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @property
    def root(self) -> Instruction:
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: int(i.literal)))


@dataclass(frozen=True)
class Module:
    """A compiled program for one device."""

    name: str
    computations: dict[str, Computation]
    entry: Computation
    partitions: int
    is_scheduled: bool
    sources: dict[int, str] = field(default_factory=dict)  # `file.py:12`, by stack frame
    replicas: int = 1

    @property
    def devices(self) -> int:
        return self.partitions * self.replicas

    def computation(self, name: str) -> Computation:
        if name not in self.computations:
            raise UnreadableHlo(f"no computation {name}")
        return self.computations[name]

    def source(self, instruction: Instruction) -> str:
        """The user's line behind an instruction, `file.py:12`; empty if the compiler kept none."""
        metadata = instruction.metadata
        if "source_file" in metadata:
            return f"{metadata['source_file']}:{metadata.get('source_line', '?')}"
        frame = metadata.get("stack_frame_id", "")
        return self.sources.get(int(frame), "") if frame.isdigit() else ""


_CALLS = (
    *("calls", "to_apply", "called_computations", "body", "condition"),
    *("branch_computations", "true_computation", "false_computation"),
)
_METADATA = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s}]+)')
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_BARE_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \{$")  # as some printers leave out the signature
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,<=\s]*)\](\{[^}]*\})?")
_SPACE = re.compile(r"S\((\d+)\)")
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\],]')
_COMMENT = re.compile(r"/\*.*?\*/")
_NAME = re.compile(r"%?([\w.\-]+)$")


def read_hlo(text: str) -> Module:
    """The module that a compiled program's `as_text()` shows. Raises UnreadableHlo."""
    if not text.startswith("HloModule"):
        raise UnreadableHlo("the text does not begin with `HloModule`")
    lines = text.splitlines()
    computations: dict[str, Computation] = {}
    entry = ""
    for name, is_entry, body in _blocks(lines):
        computations[name] = Computation(name, tuple(_instruction(line) for line in body))
        entry = name if is_entry else entry
    if not entry:
        raise UnreadableHlo("the module has no entry computation")
    head = lines[0]
    counts = {key: int(number) for key, number in re.findall(r"(num_partitions|replica_count)=(\d+)", head)}
    return Module(
        re.split(r"[ ,]", head)[1],
        computations,
        computations[entry],
        counts.get("num_partitions", 1),
        "is_scheduled=true" in head,
        sources(lines),
        counts.get("replica_count", 1),
    )


def _blocks(lines: list[str]) -> Iterator[tuple[str, bool, list[str]]]:
    """Each computation's name, whether it is the entry, and its instructions' lines."""
    name, is_entry, body = "", False, list[str]()
    for line in lines:
        head = None if name else _HEADER.match(line) or _BARE_HEADER.match(line)
        if head:
            name, is_entry, body = head.group(2), bool(head.group(1)), []
        elif line.startswith("}") and name:
            yield name, is_entry, body
            name = ""
        elif name and _INSTRUCTION.match(line):
            body.append(line)


def _instruction(line: str) -> Instruction:
    head = _INSTRUCTION.match(line)
    assert head is not None
    shapes, at = _type(line, head.end())
    bracket = line.find("(", at)
    if bracket < 0:
        raise UnreadableHlo(line.strip()[:200])
    parts, end = _group(line, bracket)
    return Instruction(
        head.group(2),
        line[at:bracket].strip(),
        shapes,
        tuple(name for name in map(_operand, parts) if name),
        line[bracket + 1 : end - 1],
        _attributes(line, end),
        bool(head.group(1)),
    )


def _type(line: str, start: int) -> tuple[Shapes, int]:
    """The shapes that a type names, and where the type ends."""
    end = _group(line, start)[1] if line[start] == "(" else line.find(" ", start)
    text = _COMMENT.sub("", line[start:end])
    found = []
    for dtype, sizes, layout in _SHAPE.findall(text):
        space = _SPACE.search(layout)
        dims = tuple(int(size.replace("<=", "")) for size in sizes.split(",") if size.strip())
        found.append(Shape(dtype, dims, int(space.group(1)) if space else 0))
    return tuple(found), end


def _group(line: str, start: int) -> tuple[list[str], int]:
    """The parts between the bracket at `start` and its partner, split at commas; and the place behind it."""
    depth, begin, parts = 0, start + 1, list[str]()
    for match in _STRUCTURE.finditer(line, start):
        mark = match.group()
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
            if depth == 0:
                return [*parts, line[begin : match.start()]], match.end()
        elif mark == "," and depth == 1:
            parts.append(line[begin : match.start()])
            begin = match.end()
    raise UnreadableHlo(f"unclosed bracket: {line.strip()[:200]}")


def _operand(text: str) -> str:
    """The name in `%a`, `a`, or `bf16[8]{0} %a`; empty for a literal."""
    text = _COMMENT.sub("", text).strip()
    match = _NAME.search(text)
    return match.group(1) if match and (text.startswith("%") or " " in text or not text[:1].isdigit()) else ""


def _attributes(line: str, start: int) -> dict[str, str]:
    """`key=value` pairs; the backend's JSON is cut out first, being long and already delimited."""
    found: dict[str, str] = {}
    place = line.find(", backend_config={", start)
    if place >= 0:
        begin = place + len(", backend_config=")
        try:
            _, end = _JSON.raw_decode(line, begin)
        except ValueError:
            _, end = _group(line, begin)
        found["backend_config"] = line[begin:end]
        line = line[:place] + line[end:]
    parts, _ = _group(f"({line[start:].removeprefix(',')})", 0)
    for part in parts:
        key, equals, value = part.strip().partition("=")
        if key == "device_ids" and "replica_groups" in found:  # mesh['X'=2,'Y'=4], device_ids=(…) {'Y'}
            found["replica_groups"] += f", {part.strip()}"
        elif equals:
            found[key] = value
    return found


_JSON = json.JSONDecoder()
