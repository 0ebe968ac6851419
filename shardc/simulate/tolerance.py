"""How far from the reference a float result may be, and whether that tells right from wrong.

What is allowed is derived: runs of the plan's own steps that round at random (`simulate.stochastic`) lie about the
plan's exact run; the root mean square of how far, over each shard, twice over, is allowed in the root mean square,
and three times the farthest for each element. It is compared with the spread of the shard's right values: where twice
the rounding is more than an eighth of the spread, a wrong result could pass, and the shard is not checkable. Where
nothing rounds, nothing is allowed. Shards of few elements are taken together: of 2 numbers neither the spread nor the
rounding says much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array, Sharding
from shardc.simulate.arguments import in_range
from shardc.simulate.blocks import Part, Values, part_of
from shardc.simulate.execute import laid_out, run_blocks
from shardc.simulate.layout import expected_blocks
from shardc.simulate.stochastic import Coins

TOLD_APART = 8  # the spread of values is at least so many times what is allowed
RMS_FACTOR = 2.0
ELEMENT_FACTOR = 3.0
FEW = 64  # elements, of which the statistics are too rough
_PAIRS, _MORE_PAIRS = 3, 16  # of runs
_NO_SPREAD = 4  # fewer values than these are as large as they are, and no spread is asked of them

PerDevice = NDArray[np.float64]


@dataclass(slots=True)
class Allowed:
    """Of one output: a number for each device, in the order of the mesh. `lost`: a rounded run is not finite where
    the exact one is, or the other way round."""

    rms: PerDevice
    largest: PerDevice
    spread: PerDevice
    pooled: bool  # the same for all devices, and to be held against all of them together
    lost: bool = False

    @property
    def checkable(self) -> NDArray[np.bool_]:
        return np.asarray(self.rms * TOLD_APART <= self.spread)


@dataclass(frozen=True, slots=True)
class Undecided:
    """Of an output of whole numbers, or of true and false, that floats decide (`int8(A · B)`, `A · B > 0`): which
    elements a rounding may turn, in the blocks of every device."""

    where: NDArray[np.bool_]

    @property
    def checkable(self) -> bool:
        """Whether those are few."""
        return float(np.mean(self.where)) * TOLD_APART <= 1


def allowed(
    schedule: Schedule,
    wholes: Sequence[Any],
    expected: Sequence[Values],
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> list[Allowed | Undecided | None]:
    """For each output what it may be off by; None for integers, which are equal or not, unless floats decide them."""
    outputs = [schedule.values[number] for number in schedule.outputs]
    if not any(array.dtype.unit for array in outputs) and not _floats_decide(schedule):
        return [None] * len(outputs)
    inputs = laid_out(schedule, wholes, seed)
    say("the plan's steps in NumPy")
    exact = _run(schedule, inputs, None)
    found = [
        _Runs(array, blocks, whole, schedule.mesh)
        for array, blocks, whole in zip(outputs, exact, expected, strict=True)
    ]
    pairs = pairs_of(schedule)
    for pair in range(pairs):
        for mirrored in (False, True):
            say(f"run {2 * pair + mirrored + 1} of {2 * pairs} that rounds at random")
            for runs, blocks in zip(found, _run(schedule, inputs, Coins(pair, mirrored)), strict=True):
                runs.add(blocks)
    return [runs.allowed() if runs.array.dtype.unit else runs.undecided() for runs in found]


def _floats_decide(schedule: Schedule) -> bool:
    """Whether a step makes of floats what is no float."""
    return any(
        schedule.values[operand].dtype.unit and not schedule.values[step.result].dtype.unit
        for step in schedule.steps
        for operand in step.operands
    )


def pairs_of(schedule: Schedule) -> int:
    """How many pairs of runs: more where an output has few elements to take a mean over."""
    outputs = [schedule.values[number] for number in schedule.outputs]
    return _MORE_PAIRS if any(math.prod(array.shape) < FEW for array in outputs) else _PAIRS


def _run(schedule: Schedule, inputs: Mapping[int, Values], coins: Coins | None) -> Iterator[Values]:
    outputs = [schedule.values[number] for number in schedule.outputs]
    with np.errstate(all="ignore"):
        for array, blocks in zip(outputs, run_blocks(schedule, inputs, coins), strict=True):
            yield summed(blocks, array, schedule.mesh)


def summed(blocks: Values, array: Array, mesh: Mesh) -> Values:
    """The blocks, those of partial sums added up: every device has the sum."""
    axes = tuple(mesh.names.index(axis) for axis in mesh.ordered(array.sharding.unreduced))
    if not axes:
        return blocks
    total: Values = np.broadcast_to(in_range(blocks.sum(axis=axes, keepdims=True), array.dtype), blocks.shape)
    return total


def wanted(whole: Values, array: Array, mesh: Mesh) -> Values:
    """What `summed` is to be on every device."""
    reduced = Array(array.name, array.dims, array.shape, Sharding(array.sharding.dims), array.dtype)
    return expected_blocks(whole, reduced, mesh)


@dataclass(slots=True)
class _Runs:
    """What is kept of the runs of one output: sums, not arrays."""

    array: Array
    exact: Values
    whole: Values
    mesh: Mesh
    runs: int = 0
    lost: bool = False
    turned: NDArray[np.bool_] | None = None  # where a run of whole numbers differs
    squares: list[PerDevice] = field(default_factory=list)
    largest: list[PerDevice] = field(default_factory=list)

    def add(self, blocks: Values) -> None:
        if not self.array.dtype.unit:
            turned = np.asarray(blocks != self.exact)
            self.turned = turned if self.turned is None else self.turned | turned
            return
        axes = {*part_of(blocks, self.mesh).axes, *part_of(self.exact, self.mesh).axes}
        found, exact = part_of(blocks, self.mesh, axes), part_of(self.exact, self.mesh, axes).values
        fits = np.isfinite(found.values)
        self.lost = self.lost or bool(np.any(np.isfinite(exact) != fits))
        off = np.subtract(found.values, exact, out=np.zeros(exact.shape), where=fits & np.isfinite(exact))
        self.squares.append(_of_devices(Part(np.square(off), found.axes), self.mesh, np.mean))
        self.largest.append(_of_devices(Part(np.abs(off), found.axes), self.mesh, np.max))

    def undecided(self) -> Undecided | None:
        return None if self.turned is None or not self.turned.any() else Undecided(self.turned)

    def allowed(self) -> Allowed:
        pooled = math.prod(self.array.local_shape(self.mesh)) < FEW
        mean, largest = np.mean(self.squares, axis=0), np.max(self.largest, axis=0)
        if pooled:
            mean, largest = np.full_like(mean, mean.mean()), np.full_like(largest, largest.max(initial=0))
            spread = np.full_like(mean, spread_of(self.whole))
        else:
            laid_out = part_of(wanted(self.whole, self.array, self.mesh), self.mesh)
            spread = _of_devices(laid_out, self.mesh, _spreads)
        return Allowed(RMS_FACTOR * np.sqrt(mean), ELEMENT_FACTOR * largest, spread, pooled, self.lost)


def _of_devices(part: Part, mesh: Mesh, of: Callable[..., Values]) -> PerDevice:
    """One number for each device, of its block."""
    axes = tuple(range(len(part.axes), part.values.ndim))
    return Part(of(part.values, axis=axes), part.axes).blocks(mesh).reshape(-1).astype(np.float64)


def _spreads(values: Values, axis: tuple[int, ...]) -> Values:
    """The standard deviation of what is finite; 0 where nothing is, of which NumPy would warn."""
    fits = np.isfinite(values)
    count = np.maximum(fits.sum(axis=axis, keepdims=True), 1)
    with np.errstate(all="ignore"):
        mean = np.where(fits, values, 0).sum(axis=axis, keepdims=True) / count
        squares = np.square(np.where(fits, values - mean, 0))
        found: Values = np.sqrt(squares.sum(axis=axis) / np.squeeze(count, axis))
    return found


def spread_of(values: Values) -> float:
    """The standard deviation; of very few values the root of their mean square."""
    fits = values[np.isfinite(values)]
    if not fits.size:
        return 0.0
    return float(np.std(fits) if fits.size >= _NO_SPREAD else np.sqrt(np.mean(np.square(fits))))
