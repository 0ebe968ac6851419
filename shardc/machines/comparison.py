"""What devices computed beside what NumPy says: equal, not equal, or not checkable, and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from shardc import simulate
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array
from shardc.simulate import Allowed, Undecided


class Verdict(Enum):
    """`NOT_CHECKABLE` is no kind of equal: what rounding allows, a wrong result might keep."""

    EQUAL = "equal"
    NOT_EQUAL = "not equal"
    NOT_CHECKABLE = "not checkable"


_SPELLED = {
    Verdict.EQUAL: "equal to NumPy",
    Verdict.NOT_EQUAL: "NOT EQUAL to NumPy",
    Verdict.NOT_CHECKABLE: "NOT CHECKABLE",
}


@dataclass(frozen=True, slots=True)
class OutputReport:
    """One output: how many shards were compared, and the figures of the one nearest to its limits, or beyond.

    `max_error` and `rms_error` are of its elements, `bound` and `rms_bound` what they may be, `spread` how far its
    values lie apart. A figure is None where there is none, and `reason` says why.
    """

    sharding: str
    shards: int
    verdict: Verdict
    max_error: float | None = None
    bound: float | None = None
    rms_error: float | None = None
    rms_bound: float | None = None
    spread: float | None = None
    reason: str | None = None

    @property
    def ok(self) -> bool:
        return self.verdict is Verdict.EQUAL

    @property
    def ratio(self) -> float:
        """The error by what is allowed, the larger of the two; infinite where nothing is allowed, or nothing known."""
        if self.max_error is None or self.bound is None:
            return math.inf
        pairs = [(self.max_error, self.bound), (self.rms_error or 0.0, self.rms_bound or 0.0)]
        return max(float(_ratio(np.array([error]), np.array([bound]))[0]) for error, bound in pairs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict.value, "ok": self.ok}

    def __str__(self) -> str:
        text = _SPELLED[self.verdict] + (f": {self.reason}" if self.reason else "")
        if self.max_error is not None:
            text += f"; largest error {self.max_error:.2g}, allowed {self.bound:.2g}"
        if not self.rms_bound:
            return text
        rms = f"root mean square {self.rms_error:.2g}, allowed {self.rms_bound:.2g}"
        return f"{text}; {rms}, values spread by {self.spread:.2g}"


@dataclass(frozen=True, slots=True)
class RunReport:
    """`ok` if every shard of every output is within its bound; integers must be equal. `on`: what the devices are."""

    devices: int
    outputs: tuple[OutputReport, ...]
    on: str = "simulated devices"

    @property
    def ok(self) -> bool:
        return self.verdict is Verdict.EQUAL

    @property
    def verdict(self) -> Verdict:
        """The worst of the outputs'."""
        found = {output.verdict for output in self.outputs}
        order = (Verdict.NOT_EQUAL, Verdict.NOT_CHECKABLE)
        return next((verdict for verdict in order if verdict in found), Verdict.EQUAL)

    @property
    def max_error(self) -> float | None:
        """None where an output's is not known."""
        errors = [output.max_error for output in self.outputs]
        return None if None in errors else max((error for error in errors if error is not None), default=0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "devices": self.devices,
            "on": self.on,
            "outputs": [output.to_json() for output in self.outputs],
            "verdict": self.verdict.value,
            "ok": self.ok,
            "max_error": self.max_error,
        }

    def __str__(self) -> str:
        where = f"shards on {self.devices} {self.on}"
        return "\n".join(f"{output.sharding}: {output.shards} {where}, {output}" for output in self.outputs)


def report_of(
    schedule: Schedule,
    wholes: Sequence[Any],
    results: Sequence[Any],
    say: Callable[[str], None] = lambda line: None,
    seed: int = 0,
    telling: bool = True,
) -> RunReport:
    """Every device's shard of every result with what it must be; another shape or dtype is not equal.

    `seed` is that of an unreduced input's parts. What would be equal whatever the inputs is not checkable; with
    `telling` False nobody asks, where the results of several inputs are looked at together.
    """
    say("the NumPy reference")
    expected = simulate.reference(schedule.program, wholes)
    limits = simulate.allowed(schedule, wholes, expected, seed, say)
    reports = [
        _compared(array, result, whole, limit, schedule.given_mesh)
        for array, result, whole, limit in zip(schedule.results, results, expected, limits, strict=True)
    ]
    found = RunReport(schedule.mesh.devices, tuple(reports))
    return _told(found, schedule, wholes, expected, limits, say) if telling else found


def _told(
    found: RunReport,
    schedule: Schedule,
    wholes: Sequence[Any],
    expected: Sequence[Any],
    limits: Sequence[simulate.Limit],
    say: Callable[[str], None],
) -> RunReport:
    """What is equal as it would be whatever the inputs is not checkable; what would be with another factor, so said."""
    equal = [report.ok for report in found.outputs]
    if not any(equal):
        return found
    say("the NumPy reference of other inputs")
    reasons = simulate.untold(schedule, expected, limits, equal)
    equal = [each and reason is None for each, reason in zip(equal, reasons, strict=True)]
    remarks = simulate.unscaled(schedule, wholes, expected, limits, equal)
    told = zip(found.outputs, reasons, remarks, strict=True)
    return replace(found, outputs=tuple(_with_reason(*each) for each in told))


def _with_reason(report: OutputReport, reason: str | None, remark: str | None) -> OutputReport:
    if reason is not None:
        return replace(report, verdict=Verdict.NOT_CHECKABLE, reason=reason)
    return replace(report, reason="; ".join(filter(None, (report.reason, remark))) or None)


def blocks_of(result: Any, mesh: Mesh) -> Any:
    """What each device holds, as one array of the mesh's shape and the local shape, in precision."""
    shards = [np.asarray(shard.data) for shard in result.addressable_shards]
    found = shards[0].dtype
    kind: type[Any] = np.complex128 if np.issubdtype(found, np.complexfloating) else np.float64
    kind = np.int64 if np.issubdtype(found, np.integer) or found == np.bool_ else kind
    return np.stack(shards).astype(kind).reshape((*mesh.sizes, *shards[0].shape))


@dataclass(frozen=True, slots=True)
class _Error:
    """Of one shard: the largest error, their mean square, and whether what is not finite is so in both."""

    largest: float
    square: float
    finite: bool


def _compared(array: Array, result: Any, whole: Any, limit: Allowed | Undecided | None, mesh: Mesh) -> OutputReport:
    if result.shape != array.shape or result.dtype.name != array.dtype.jax:
        reason = f"the result is {result.dtype.name}{list(result.shape)}"
        return OutputReport(str(array), mesh.devices, Verdict.NOT_EQUAL, reason=reason)
    pairs = _shards(array, result, whole, mesh)
    if isinstance(limit, Undecided):
        return _decided(array, mesh, pairs, limit)
    if limit is None:
        largest = max(float(np.max(np.abs(found - wanted), initial=0)) for found, wanted in pairs)
        verdict = Verdict.NOT_EQUAL if largest else Verdict.EQUAL
        return OutputReport(str(array), mesh.devices, verdict, largest, 0.0)
    return _judged(array, mesh, [_error(found, wanted) for found, wanted in pairs], limit)


def _decided(array: Array, mesh: Mesh, pairs: Iterator[tuple[Any, Any]], limit: Undecided) -> OutputReport:
    """Of whole numbers that floats decide: equal where no rounding turns them."""
    errors = [
        np.where(limit.where[place], 0, np.abs(found - wanted))
        for place, (found, wanted) in zip(np.ndindex(mesh.sizes), pairs, strict=True)
    ]
    largest = max(float(np.max(error, initial=0)) for error in errors)
    if largest:
        return OutputReport(str(array), mesh.devices, Verdict.NOT_EQUAL, largest, 0.0)
    share = f"a rounding may turn {np.mean(limit.where):.0%} of the values"
    if not limit.checkable:
        return OutputReport(str(array), mesh.devices, Verdict.NOT_CHECKABLE, reason=share)
    return OutputReport(str(array), mesh.devices, Verdict.EQUAL, largest, 0.0, reason=share)


def _shards(array: Array, result: Any, whole: Any, mesh: Mesh) -> Iterator[tuple[Any, Any]]:
    """Each device's block, and what it must be. Of partial sums it is their sum that is compared."""
    local = array.local_shape(mesh)
    wanted = simulate.wanted(whole, array, mesh)
    if array.sharding.unreduced:
        found = simulate.summed(blocks_of(result, mesh), array, mesh)
        yield from ((found[place], wanted[place]) for place in np.ndindex(mesh.sizes))
        return
    for shard, place in zip(result.addressable_shards, np.ndindex(mesh.sizes), strict=True):
        yield np.asarray(shard.data).astype(wanted.dtype).reshape(local), wanted[place]


def _error(found: Any, wanted: Any) -> _Error:
    fits = np.isfinite(wanted)
    alike = np.array_equal(np.where(fits, 0, wanted), np.where(np.isfinite(found), 0, found), equal_nan=True)
    off = np.subtract(found, wanted, out=np.zeros(wanted.shape), where=fits & np.isfinite(found))
    return _Error(float(np.max(np.abs(off), initial=0)), float(np.mean(np.square(off))) if off.size else 0.0, alike)


def _judged(array: Array, mesh: Mesh, errors: Sequence[_Error], limit: Allowed) -> OutputReport:
    largest = np.array([error.largest for error in errors])
    rms = np.sqrt(np.array([error.square for error in errors]))
    if limit.pooled:
        largest = np.full_like(largest, largest.max())
        rms = np.full_like(rms, np.sqrt(np.mean(np.square(rms))))
    over = np.maximum(_ratio(largest, limit.largest), _ratio(rms, limit.rms))
    worst = int(np.argmax(over))
    verdict, reason = _verdict(errors, float(over[worst]), limit, array)
    if not all(error.finite for error in errors):  # what is left of a shard where it is finite says nothing of it
        return OutputReport(str(array), mesh.devices, verdict, reason=reason)
    if verdict is Verdict.NOT_CHECKABLE and not limit.lost:
        worst = int(np.argmin(np.where(limit.checkable, math.inf, limit.spread)))
    figures = (largest[worst], limit.largest[worst], rms[worst], limit.rms[worst], limit.spread[worst])
    error, bound, rms_error, rms_bound, spread = map(float, figures)
    return OutputReport(str(array), mesh.devices, verdict, error, bound, rms_error, rms_bound, spread, reason)


def _ratio(error: Any, bound: Any) -> Any:
    """Error by what is allowed; of nothing allowed, 0 or infinitely much."""
    return np.where(error <= 0, 0.0, np.divide(error, bound, out=np.full(error.shape, math.inf), where=bound > 0))


def _verdict(errors: Sequence[_Error], over: float, limit: Allowed, array: Array) -> tuple[Verdict, str | None]:
    if limit.lost:
        return Verdict.NOT_CHECKABLE, f"a rounding makes values of {array.dtype} infinite, or none"
    if not all(error.finite for error in errors):
        return Verdict.NOT_EQUAL, "what is not finite is not the same"
    if over > 1:
        return Verdict.NOT_EQUAL, None
    if not limit.checkable.all():
        apart = f"less than {simulate.TOLD_APART} times what rounding to {array.dtype} allows"
        return Verdict.NOT_CHECKABLE, f"values lie apart by {apart}, so that a wrong result might pass"
    return Verdict.EQUAL, None
