"""The memory of a training step by kind, beside the plan's other figures: as a table, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tabulate import tabulate

from shardc.cost.kinds.held import ByKind, Held, Kept
from shardc.cost.kinds.playbook import SCORES_UNDROPPED, UNDROPPED, Layers
from shardc.cost.kinds.told import Kind
from shardc.io.units import in_bytes, in_seconds
from shardc.ir.plan import Cost

_BOOKED = (Kind.WEIGHTS, Kind.GRADIENTS, Kind.OPTIMIZER)  # what the books count for each parameter


def kinds_table(found: ByKind) -> str:
    """What is given, left and held at the peak of each kind; then what forward leaves for backward."""
    rows = [_row(held) for held in found.held]
    total = [in_bytes(sum(getattr(held, each) for held in found.held)) for each in ("given", "left", "peak")]
    headers = ("kind", "given", "left", "at the peak", "for each parameter")
    parts = [f"memory by kind, {found.parameters:,} parameters", _table(headers, [*rows, ("all", *total, "")])]
    if found.kept:
        parts += ["", "activations", _kept(found)]
    if found.layers is not None:
        parts += ["", *_playbook(found, found.layers)]
    return "\n".join(parts)


def _kept(found: ByKind) -> str:
    """What forward leaves for backward; of transformer layers in the units of the playbook's formula as well."""
    headers = ["kept", "as", "bytes", "each trip", "formula"]
    rows = [[one.made, str(one.array), in_bytes(one.bytes), _each(one), one.formula] for one in found.kept]
    rows.append(["all", "", in_bytes(sum(one.bytes for one in found.kept)), "", ""])
    if found.layers is not None:
        headers.append("/ (L·s·b·h)")
        whole = [one.whole for one in found.kept]
        for row, count in zip(rows, [*whole, sum(whole)], strict=True):
            row.append(f"{count / found.layers.unit:.2f}")
    return _table(headers, rows)


def _playbook(found: ByKind, layers: Layers) -> Iterator[str]:
    """What is kept, all devices together, beside the playbook's formula."""
    named = ", ".join(f"{name} = {dims}" for name, dims in layers.dims)
    yield f"beside the Ultra-Scale Playbook, on all devices: L·s·b·h = {layers.unit:,}; L = {layers.layers}, {named}"
    rows = [
        ("what is kept", sum(one.whole for one in found.kept)),
        ("L·s·b·h·(34 + 5·a·s/h)", layers.bytes_of()),
        ("without dropout: 32 + 2·a·s/h", layers.bytes_of(UNDROPPED, SCORES_UNDROPPED)),
    ]
    shown = [(name, in_bytes(count), f"{count / layers.unit:.2f}") for name, count in rows]
    yield _table(("activations", "bytes", "/ (L·s·b·h)"), shown)


def choices_table(plans: Sequence[tuple[str, ByKind | None, Cost]]) -> str:
    """What is made again for backward, what is kept then, and what that costs."""
    rows = [
        (
            way,
            in_bytes(sum(one.bytes for one in kinds.kept) if kinds is not None else 0),
            in_bytes(cost.peak_bytes),
            in_seconds(cost.compute_s),
            in_seconds(cost.time_s),
        )
        for way, kinds, cost in plans
    ]
    return f"made again for backward\n{_table(('made again', 'kept', 'peak memory', 'compute', 'time'), rows)}"


def kinds_fields(found: ByKind) -> dict[str, Any]:
    """The same for `--json`."""
    return {
        "parameters": found.parameters,
        "kinds": {
            held.kind.value: {
                "given_bytes": held.given,
                "left_bytes": held.left,
                "peak_bytes": held.peak,
                "formula": held.formula,
                "bytes_per_parameter": held.per_parameter,
            }
            for held in found.held
        },
        "activations": [
            {
                "made": one.made,
                "sharding": str(one.array),
                "bytes": one.bytes,
                "bytes_on_all": one.whole,
                "trips": one.rows,
                "formula": one.formula,
            }
            for one in found.kept
        ],
        **({} if found.layers is None else {"playbook": _formula(found.layers)}),
    }


def _formula(layers: Layers) -> dict[str, Any]:
    sizes = {"L": layers.layers, "b": layers.rows, "s": layers.tokens, "h": layers.hidden, "a": layers.heads}
    without = layers.bytes_of(UNDROPPED, SCORES_UNDROPPED)
    return {**sizes, "dims": dict(layers.dims), "bytes": layers.bytes_of(), "bytes_without_dropout": without}


def _row(held: Held) -> Sequence[str]:
    is_booked = held.kind in _BOOKED and held.parameter
    share = f"{held.parameter} B" + (f" = {held.per_parameter:.3g} B" if "/" in held.parameter else "")
    return (held.kind.value, *map(in_bytes, (held.given, held.left, held.peak)), share if is_booked else "")


def _each(one: Kept) -> str:
    return f"{in_bytes(one.bytes // one.rows)} ×{one.rows}" if one.rows > 1 else ""


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)
    return "\n".join(f"  {line.rstrip()}" for line in text.splitlines())
