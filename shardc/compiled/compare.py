"""A plan's program beside what XLA makes of the same shardings: what each moves, needs and takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tabulate import tabulate

from shardc.compiled.hlo.collectives import Collective, Reader
from shardc.compiled.hlo.text import read_hlo
from shardc.compiled.replay.replay import replay
from shardc.compiled.replay.timeline import Timeline
from shardc.cost.allocation import Allocation
from shardc.cost.bounds import times_bound
from shardc.cost.model import LinkModel
from shardc.io.text import preformatted
from shardc.io.units import in_bytes, in_seconds
from shardc.ir.sharding import Axes, spell_axes

OURS, THEIRS = "shardc", "jax.jit"


@dataclass(frozen=True, slots=True)
class Tally:
    """All collectives of one kind over the same axes: how often one runs, and the bytes that they bring in all."""

    kind: str
    axes: Axes | None  # None where groups are not made of whole axes
    count: int
    wire_bytes: int

    @property
    def name(self) -> str:
        """`AllGather_XY`."""
        return f"{self.kind}_{spell_axes(self.axes)}" if self.axes is not None else f"{self.kind} over parts of axes"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two programs."""

    name: str
    collectives: tuple[Tally, ...]
    memory: Allocation | None
    timeline: Timeline

    @property
    def wire_bytes(self) -> int:
        return sum(tally.wire_bytes for tally in self.collectives)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "wire_bytes": self.wire_bytes,
            "collectives": [asdict(tally) for tally in self.collectives],
            "memory": asdict(self.memory) if self.memory is not None else None,
            "replayed": self.timeline.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """Median seconds of each side, and the median over the rounds of theirs over ours."""

    ours_s: float
    theirs_s: float
    ratio: float
    rounds: int


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """`print` shows the table; ratios are theirs over ours."""

    ours: Side
    theirs: Side
    bound_wire_bytes: int = 0  # 0: none is known
    measured: Measured | None = None
    warnings: tuple[str, ...] = ()  # of the compiler

    def to_json(self) -> dict[str, Any]:
        return {
            "ours": self.ours.to_json(),
            "theirs": self.theirs.to_json(),
            "bound": {"wire_bytes": self.bound_wire_bytes},
            "measured": asdict(self.measured) if self.measured is not None else None,
            "warnings": list(self.warnings),
        }

    def __repr__(self) -> str:
        ours, theirs = (f"{side.name} {side.wire_bytes:,} wire bytes" for side in (self.ours, self.theirs))
        return f"<Comparison: {ours}, {theirs}>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __str__(self) -> str:
        headers = ("", self.ours.name, self.theirs.name, "ratio")
        table = tabulate(
            list(self.rows()), headers=headers, tablefmt="simple", disable_numparse=True, colalign=_ALIGNED
        )
        return "\n".join([table, *(f"note: {note}" for note in self.notes)])

    @property
    def notes(self) -> tuple[str, ...]:
        """What the replays assumed, and what the compiler warned of."""
        return tuple(dict.fromkeys([*self.ours.timeline.notes, *self.theirs.timeline.notes, *self.warnings]))

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """What is compared, ours, theirs, and theirs over ours."""
        ours, theirs = self.ours, self.theirs
        own, other = ({tally.name: tally for tally in side.collectives} for side in (ours, theirs))
        for name in own | other:
            yield name, _tallied(own.get(name)), _tallied(other.get(name)), ""
        yield _row("wire bytes", ours.wire_bytes, theirs.wire_bytes, in_bytes)
        if times_bound(ours.wire_bytes, self.bound_wire_bytes) is not None:
            bounds = [f"{side.wire_bytes / self.bound_wire_bytes:.2f}×" for side in (ours, theirs)]
            yield f"of the bound, {in_bytes(self.bound_wire_bytes)}", bounds[0], bounds[1], ""
        if ours.memory is not None and theirs.memory is not None:
            for key in ("argument", "output", "temporary"):
                own_size, other_size = (getattr(side, f"{key}_bytes") for side in (ours.memory, theirs.memory))
                yield _row(f"{key} bytes", own_size, other_size, in_bytes)
        for key, label in _TIMES.items():
            yield _row(label, getattr(ours.timeline, key), getattr(theirs.timeline, key), in_seconds)
        if self.measured is not None:
            found = self.measured
            times = (in_seconds(found.ours_s), in_seconds(found.theirs_s))
            yield f"measured, {found.rounds} round{'s' * (found.rounds != 1)}", *times, f"{found.ratio:.2f}"


_ALIGNED = ("left", "right", "right", "right")
_TIMES = {
    "step_s": "replayed time",
    "compute_s": "replayed compute",
    "communication_s": "replayed communication",
    "exposed_s": "not hidden by compute",
}


def side_of(name: str, compiled: Any, model: LinkModel) -> Side:
    """One side, from what `jax.jit(f).lower(…).compile()` gave. Raises UnreadableHlo."""
    return side_of_text(name, compiled.as_text(), memory_of(compiled), model)


def side_of_text(name: str, text: str, memory: Allocation | None, model: LinkModel) -> Side:
    """One side, from its HLO."""
    module = read_hlo(text)
    found = Reader(module, model.mesh).all()
    return Side(name, tallied(found), memory, replay(module, model))


def comparison_of(
    ours: Any,
    theirs: Any,
    model: LinkModel,
    given: LinkModel | None = None,
    *,
    bound_wire_bytes: int = 0,
    rounds: Sequence[tuple[float, float]] = (),
    warnings: Sequence[str] = (),
) -> Comparison:
    """Both compiled programs side by side, ours on the mesh of `model`, theirs on that of `given`, if that is another.

    `rounds` are measured seconds of ours and theirs, in pairs.
    """
    return Comparison(
        side_of(OURS, ours, model),
        side_of(THEIRS, theirs, model if given is None else given),
        bound_wire_bytes,
        _measured(rounds) if rounds else None,
        tuple(warnings),
    )


def tallied(collectives: Sequence[Collective]) -> tuple[Tally, ...]:
    """Sums by kind and axes, in order of the first of each; what moves nothing is left out."""
    sums: dict[tuple[str, Axes | None], tuple[int, int]] = {}
    for one in collectives:
        if one.wire_bytes:
            count, total = sums.get((one.kind, one.axes), (0, 0))
            sums[one.kind, one.axes] = (count + one.count, total + one.total_bytes)
    return tuple(Tally(kind, axes, count, total) for (kind, axes), (count, total) in sums.items())


def memory_of(compiled: Any) -> Allocation | None:
    """Bytes per device, by the compiler's own analysis; None where it makes none."""
    found = compiled.memory_analysis()
    if found is None:
        return None
    return Allocation(found.argument_size_in_bytes, found.output_size_in_bytes, found.temp_size_in_bytes)


def _measured(rounds: Sequence[tuple[float, float]]) -> Measured:
    ours, theirs = zip(*rounds, strict=True)
    return Measured(median(ours), median(theirs), median(b / a for a, b in rounds), len(rounds))


def _row(label: str, ours: float, theirs: float, spelled: Callable[[float], str]) -> tuple[str, str, str, str]:
    ratio = f"{theirs / ours:.2f}" if ours else "–" if theirs else "1.00"
    return label, spelled(ours), spelled(theirs), ratio


def _tallied(tally: Tally | None) -> str:
    return "–" if tally is None else f"{tally.count} × {in_bytes(tally.wire_bytes / tally.count)}"
