"""The arrays that a program's collectives move, one by one: several may travel in one collective.

    %all-reduce.3 = (f32[16,16], f32[16]) all-reduce(%dot.5, %dot.6)     two parts, of 1024 and of 64 bytes

What a part is of, and where it arrives, is said here; what becomes of it there, `flow` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.compiled.explain.flow import At
from shardc.compiled.explain.indices import Scope
from shardc.compiled.hlo.collectives import KINDS, Collective, Met, Reader, is_fused_scatter, wire_bytes
from shardc.compiled.hlo.text import Instruction, Module, Shape

_DONE = "AsyncCollectiveDone"


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a collective, where it runs."""

    key: str  # the collective's path and name, and, of several arrays, the number
    scope: Scope
    collective: Collective
    operation: Instruction  # the all-gather, all-reduce, …, which may stand in a fusion
    operand: Instruction | None  # what is moved; None if that is not seen
    local_bytes: int
    wire_bytes: int  # each time it runs
    arrives: tuple[tuple[At, Shape], ...]  # where its result is, or the pieces of it; nowhere if that is not seen

    @property
    def total_bytes(self) -> int:
        return self.wire_bytes * self.collective.count

    @property
    def is_one_of_several(self) -> bool:
        return len(self.collective.arrays) > 1

    @property
    def shape(self) -> Shape | None:
        return self.operand.shapes[0] if self.operand is not None and len(self.operand.shapes) == 1 else None


def parts_of(reader: Reader) -> tuple[Part, ...]:
    """Every array of every collective that moves bytes, in order of the program."""
    return tuple(part for met in reader.met() if met.collective.wire_bytes for part in _parts(met, reader.module))


def _parts(met: Met, module: Module) -> Iterator[Part]:
    one, scope = met.collective, Scope.of(met.computation, met.callers)
    key = f"{scope.path}{met.instruction.name}"
    operation, operands, arrivals = _moved(met, scope, module)
    before = received = 0
    for number, size in enumerate(one.arrays):
        before += size
        until = wire_bytes(one.kind, one.group_size, before)
        yield Part(
            key if len(one.arrays) == 1 else f"{key}#{number}",
            scope,
            one,
            operation,
            operands[number] if number < len(operands) else None,
            size,
            until - received,
            arrivals[number] if number < len(arrivals) else (),
        )
        received = until


_Moved = tuple[Instruction, list[Instruction | None], list[tuple[tuple[At, Shape], ...]]]


def _moved(met: Met, scope: Scope, module: Module) -> _Moved:
    """The operation, and for each array what is moved and where it arrives."""
    instruction, computation = met.instruction, met.computation
    if instruction.opcode != "fusion":
        operands = [computation.by_name.get(name) for name in instruction.operands]
        return instruction, operands, list(_arrivals(met, scope))
    if is_fused_scatter(instruction):
        taken = [computation.by_name.get(name) for name in instruction.operands]
        alike = len(instruction.shapes) == len(met.collective.arrays)
        operands = taken if len(met.collective.arrays) == 1 == len(taken) else []
        return instruction, operands, [((at, shape),) for at, shape in _elements(scope, instruction)] if alike else []
    return _cut(met, scope, module)


def _arrivals(met: Met, scope: Scope) -> Iterator[tuple[tuple[At, Shape], ...]]:
    instruction, count = met.instruction, len(met.collective.arrays)
    result = instruction
    if instruction.opcode.endswith("-start"):
        ends = (
            i for i in met.computation.instructions if i.opcode.endswith("-done") and instruction.name in i.operands
        )
        found = next(ends, None)
        if found is None:
            return
        result = found
    elements = _elements(scope, result)
    if count == 1 and len(elements) == len(instruction.operands):
        yield tuple(elements)  # one array, or one in pieces
    elif len(elements) == count:
        yield from ((element,) for element in elements)


def _elements(scope: Scope, result: Instruction) -> list[tuple[At, Shape]]:
    if len(result.shapes) == 1:
        return [(At(scope, result), result.shapes[0])]
    return [(At(scope, result, number), shape) for number, shape in enumerate(result.shapes)]


def _cut(met: Met, scope: Scope, module: Module) -> _Moved:
    """An asynchronous collective in parts, which stand in fusions with other work.

    %start = (…) fusion(%a), calls=%begin        all-gather(%param), channel_id=1, inside
    %done = bf16[…] fusion(…), calls=%end        the same channel inside, AsyncCollectiveDone at the root
    """
    begin = module.computation(met.instruction.called()[0])
    inner = next(i for i in begin.instructions if i.opcode in KINDS)
    given = begin.by_name.get(inner.operands[0])
    known = given is not None and given.opcode == "parameter" and len(inner.operands) == 1
    operand = met.computation.by_name.get(met.instruction.operands[int(given.literal)]) if known and given else None
    for other in met.computation.instructions:
        if other.opcode != "fusion" or len(other.called()) != 1 or operand is None:
            continue
        end = module.computation(other.called()[0])
        channels = {i.attributes.get("channel_id") for i in end.instructions if i.opcode == inner.opcode}
        is_end = _DONE in end.root.attributes.get("custom_call_target", "")
        if is_end and channels == {inner.attributes.get("channel_id", "")} and len(other.shapes) == 1:
            return inner, [operand], [((At(scope, other), other.shapes[0]),)]
    return inner, [operand], []
