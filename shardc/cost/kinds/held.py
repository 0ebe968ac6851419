"""The bytes of a device by kind: what the step is given, what it leaves, what it holds at its peak.

At the peak the kinds add up to the plan's figure of memory. Where no slice is named they are the buffers alive then.
Where one is, they are its arguments and outputs, and of its temporaries those of each kind that have a buffer then:
what is left, copies and what the compiler lays beside them, are temporaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from shardc.cost.allocation import Allocation
from shardc.cost.formulas import over
from shardc.cost.kinds.alive import at_peak
from shardc.cost.kinds.critical import off_path
from shardc.cost.kinds.flow import Flow, Path
from shardc.cost.kinds.playbook import Layers, layers_of
from shardc.cost.kinds.told import Kind, Told, told
from shardc.cost.memory import allocated_of
from shardc.ir.plan import Einsum, Schedule, every_block
from shardc.ir.program import Program, every_statement
from shardc.ir.sharding import Array, Axes
from shardc.lowering import work
from shardc.lowering.buffers import size_of
from shardc.lowering.fusion import fused
from shardc.lowering.target import Target


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of one kind. `formula` is of the larger of what is given and left; of activations, of what is kept.

    `parameter` is what that is for each parameter of the model: `12/X`, and `per_parameter` its value.
    """

    kind: Kind
    given: int
    left: int
    peak: int
    formula: str
    parameter: str
    per_parameter: float


@dataclass(frozen=True, slots=True)
class Kept:
    """An array that backward reads of forward."""

    array: Array
    made: str  # `In`, `relu(Tmp)`
    bytes: int
    whole: int  # the bytes of the array, all devices together
    rows: int  # the trips of the loop that stacks it, else 1
    formula: str


@dataclass(frozen=True, slots=True, repr=False)
class ByKind:
    """The memory of a training step by kind; `shardc memory` shows it as a table."""

    held: tuple[Held, ...]
    kept: tuple[Kept, ...]
    parameters: int  # of the model, on all devices
    layers: Layers | None = None  # where it is one of transformer layers
    off_path: frozenset[Path] = frozenset()  # the collectives that are off the critical path

    def __repr__(self) -> str:
        """A line, as a notebook shows it."""
        return f"<ByKind: at the peak {', '.join(f'{each.kind.value} {each.peak:,} B' for each in self.held)}>"


def held_by_kind(schedule: Schedule) -> ByKind | None:
    """Nothing of what is no training step (`told`)."""
    found = told(schedule.block)
    return None if found is None else _Count(schedule, found, allocated_of(schedule)).by_kind()


@dataclass(slots=True)
class _Count:
    schedule: Schedule
    told: Told
    allocated: Allocation | None
    hidden: set[int] = field(default_factory=set)  # values that have no buffer: they are computed as they are read

    def by_kind(self) -> ByKind:
        flow = self.told.flow
        self.hidden = set() if self.allocated is None else set(self._fused())
        kept = [number for number in self.told.kept if number not in self.hidden]
        ends = {"given": flow.inputs, "left": flow.outputs}
        given, left = ({kind: self._of(kind, numbers) for kind in Kind} for numbers in ends.values())
        peak = self._peak() if self.allocated is None else self._allocated(self.allocated)
        found = [self._held(kind, given[kind], left[kind], peak[kind], kept) for kind in Kind]
        layers, off = layers_of(self.told, self.schedule.block), off_path(self.told, self.schedule.block)
        return ByKind(tuple(found), tuple(self._kept(number) for number in kept), self.told.parameters, layers, off)

    def _held(self, kind: Kind, given: list[int], left: list[int], peak: int, kept: list[int]) -> Held:
        larger = max(given, left, key=self._bytes)
        arrays = [self.told.flow.values[number] for number in (kept if kind is Kind.ACTIVATIONS else larger)]
        shares = shares_of(arrays, self.told.parameters)
        value = sum(share / self.schedule.mesh.product(axes) for axes, share in shares.items())
        spelled = " + ".join(over([f"{share:.4g}"], axes) for axes, share in shares.items())
        return Held(kind, self._bytes(given), self._bytes(left), peak, formula_of(arrays), spelled, value)

    def _size(self, number: int) -> int:
        array, mesh = self.told.flow.values[number], self.schedule.mesh
        if number in self.hidden:
            return 0
        return array.local_bytes(mesh) if self.allocated is None else size_of(array, mesh)

    def _bytes(self, numbers: Iterable[int]) -> int:
        return sum(map(self._size, numbers))

    def _of(self, kind: Kind, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if self.told.kinds[number] is kind]

    def _peak(self, but: Sequence[int] = ()) -> Counter[Kind]:
        """What is alive at the peak, but for these."""
        found = Counter[Kind]()
        for number, count in at_peak(self.schedule.block, self.told.flow, self._size).items():
            found[self.told.kinds[number]] += 0 if number in but else count * self._size(number)
        return found

    def _allocated(self, allocated: Allocation) -> Counter[Kind]:
        """Arguments and outputs, and of the temporaries what of each kind is alive; the rest is of no other kind."""
        ends = (*self.told.flow.inputs, *self.told.flow.outputs)
        found, alive, room = Counter[Kind](), self._peak(ends), allocated.temporary_bytes
        for number in ends:
            found[self.told.kinds[number]] += self._size(number)
        for kind in Kind:
            taken = room if kind is Kind.TEMPORARIES else min(max(alive[kind], 0), room)
            found[kind] += taken
            room -= taken
        return found

    def _fused(self) -> Iterator[int]:
        """What has no buffer in the compiled program."""
        again = max(work.computes_again(Target.of(self.schedule.program)))
        for path, block in every_block(self.schedule.block):
            first = self.told.flow.first[path]
            yield from (first + number for number in fused(block, block.steps, again).inside)

    def _kept(self, number: int) -> Kept:
        flow = self.told.flow
        array = flow.values[number]
        made = spelled(number, flow, _names(self.schedule.program))
        whole = prod(array.shape) * array.dtype.bytes
        return Kept(array, made, self._size(number), whole, flow.rows.get(number, 1), formula_of([array]))


def formula_of(arrays: Sequence[Array]) -> str:
    """The bytes of a device in the program's symbols, as the books write them: `2·D·F/X + 12·F/X`."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, int]] = {}
    for array in arrays:
        axes = array.sharding.sharded
        key = tuple(sorted(array.dims)), tuple(sorted(axes))
        spelled, count = found.get(key, (over(["", *array.dims], axes), 0))
        found[key] = spelled, count + array.dtype.bytes
    return " + ".join(f"{count}{spelled}" for spelled, count in found.values()) or "0"


def shares_of(arrays: Sequence[Array], parameters: int) -> dict[Axes, float]:
    """Bytes for each parameter, all devices together, of the arrays that lie along the same axes."""
    found = Counter[Axes]()
    for array in arrays:
        found[tuple(sorted(array.sharding.sharded))] += prod(array.shape) * array.dtype.bytes
    return {axes: count / parameters for axes, count in found.items()}


def spelled(number: int, flow: Flow, names: set[str]) -> str:
    """What a value is, by the names that the program has: `Tmp`, `relu(Tmp)`."""
    array, link = flow.values[number], flow.made.get(number)
    if array.name in names or link is None or link.step is None:
        return array.name
    below = [spelled(source, flow, names) for source in link.sources]
    if link.keeps:
        return below[0]
    is_product = isinstance(link.step.op, Einsum) and len(below) > 1
    return " · ".join(below) if is_product else f"{link.step.name}({', '.join(below)})"


def _names(program: Program) -> set[str]:
    return {array.name for array in program.inputs} | {each.name for each in every_statement(program)}
