"""How long an instruction computes: by the compiler's own cycles where it left some, else by a roofline."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from shardc.compiled.hlo.text import Computation, Instruction, Module
from shardc.cost.chips import Chip
from shardc.cost.rate import picoseconds
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES, DType, dtype

CYCLES, ROOFLINE, FREE = "cycles", "roofline", "free"

# They name values, or read what the device has anyway.
_FREE = frozenset({"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "partition-id", "replica-id"})
_FREE |= {"after-all", "add-dependency", "opt-barrier", "domain"}


@dataclass(frozen=True, slots=True)
class Work:
    """The time, what it was taken from, and the bytes of HBM that are read and written."""

    time_ps: int
    basis: str
    bytes: int


def work(module: Module, computation: Computation, instruction: Instruction, chip: Chip) -> Work:
    """What an instruction costs the units that compute. Index arithmetic, on scalars, is free."""
    shapes = [*instruction.shapes, *(s for o in operands(computation, instruction) for s in o.shapes)]
    if instruction.opcode in _FREE or instruction.attributes.get("custom_call_target") == '"AllocateBuffer"':
        return Work(0, FREE, 0)
    count = sum(shape.bytes for shape in shapes if shape.space == 0)
    cycles = _cycles(instruction)
    if cycles is not None and chip.clock:
        return Work(picoseconds(cycles / chip.clock), CYCLES, count)
    if all(not shape.sizes for shape in shapes):
        return Work(0, FREE, 0)
    flops, kind = flops_of(module, computation, instruction)
    return Work(picoseconds(max(flops / chip.peak(kind), count / chip.hbm_bandwidth)), ROOFLINE, count)


def operands(computation: Computation, instruction: Instruction) -> list[Instruction]:
    return [computation.by_name[name] for name in instruction.operands if name in computation.by_name]


def flops_of(module: Module, computation: Computation, instruction: Instruction) -> tuple[int, DType]:
    """The FLOPs of an instruction's products, those inside a fusion included, and the type that is multiplied. A kernel
    that the compiler puts in a program's place, of an attention for one, says its own."""
    if instruction.opcode == "fusion":
        inside = [module.computation(name) for name in instruction.called()]
        found = [flops_of(module, each, i) for each in inside for i in each.instructions]
        return sum(flops for flops, _ in found), max(found, default=_NONE, key=lambda one: one[0])[1]
    if instruction.opcode == "custom-call":
        return _told(computation, instruction)
    if instruction.opcode not in ("dot", "convolution"):
        return _NONE
    left, right = operands(computation, instruction)[:2]
    each = _contracted(instruction, left.shapes[0].sizes, right.shapes[0].sizes)
    return 2 * prod(instruction.shapes[0].sizes) * each, _kind(left.shapes[0].dtype)


def _told(computation: Computation, instruction: Instruction) -> tuple[int, DType]:
    """What a kernel says that it computes, or is known to: `online-softmax` multiplies shares by a matrix."""
    found = operands(computation, instruction)
    estimate = instruction.backend.get("custom_call_config", {}).get("cost_estimate")
    if not found or (estimate is None and not instruction.name.startswith("online-softmax")):
        return _NONE
    first = found[0].shapes[0]
    by_shapes = 2 * prod(first.sizes) * instruction.shapes[0].sizes[-1]
    return by_shapes if estimate is None else int(estimate.get("flops", 0)), _kind(first.dtype)


def _contracted(instruction: Instruction, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """How many products make up one element of the result."""
    if instruction.opcode == "dot":
        numbers = instruction.attributes.get("lhs_contracting_dims", "{}").strip("{}")
        return prod(left[int(number)] for number in numbers.split(",") if number.strip())
    labels = instruction.attributes.get("dim_labels", "")  # as b01f_01io->b01f
    kernel = labels.partition("_")[2].partition("->")[0]
    return prod(size for label, size in zip(kernel, right, strict=False) if label != "o")


def _cycles(instruction: Instruction) -> int | None:
    notes = instruction.backend
    found = notes.get("window_config", {}).get("estimated_cycles", notes.get("estimated_cycles"))
    return int(found) if found is not None else None


def _kind(name: str) -> DType:
    """An HLO type as one of ours; of an unknown one only the width matters."""
    try:
        return dtype(name)
    except ShardcError:
        return DTYPES["f8_e5m2" if name.startswith(("f8", "f4", "s4", "u4")) else "f32"]


_NONE = (0, DTYPES["f32"])
