"""A plan beside what the compiler made of it: as a table, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from shardc.compiled.hlo.collectives import Collective
from shardc.compiled.verify import StepMatch, Verification
from shardc.io.units import in_bytes, in_seconds
from shardc.ir.sharding import spell_axes
from shardc.report.table import describe
from shardc.report.view import StepView, every_view

_STEPS = ("step", "predicted", "compiled", "compiled as", "remark")


def verification_table(found: Verification, steps: Sequence[StepView]) -> str:
    """Steps, wire bytes by axes, memory, times; the verdict last. `steps` are those of the plan."""
    steps = list(every_view(steps))
    head = "\n".join([f"compiled for {found.topology}, per device", *(f"note: {note}" for note in found.notes)])
    parts = [head, _table(_STEPS, _steps(found, steps))]
    parts += [_by_axes(found), _memory(found), _by_kind(found), _times(found), "\n".join(_verdict(found, steps))]
    return "\n\n".join(part for part in parts if part)


def verification_fields(found: Verification, steps: Sequence[StepView]) -> dict[str, Any]:
    """The same for `--json`; `step` counts the plan's steps from 0, a loop's own after it."""
    steps = list(every_view(steps))
    return {
        "topology": found.topology,
        "agrees": found.agrees,
        "wire_bytes": {
            "predicted": found.predicted_bytes,
            "compiled": found.compiled_bytes,
            "padding": found.padding_bytes,
        },
        "steps": [
            {
                "step": match.step,
                "statement": steps[match.step].statement,
                "op": match.kind,
                "axes": match.axes,
                "predicted_bytes": match.predicted_bytes,
                "compiled_bytes": match.compiled_bytes,
                "compiled": [_collective(collective) for collective in match.compiled],
                "remark": match.remark,
            }
            for match in found.steps
        ],
        "unforeseen": [_collective(collective) for collective in found.unforeseen],
        "memory": {"predicted": asdict(found.predicted_memory), "compiled": asdict(found.compiled_memory)},
        "time": {
            "predicted": {key: getattr(found.predicted, key) for key in ("compute_s", "communication_s", "time_s")},
            "compiled": found.replayed.to_json(),
        },
        "notes": list(found.notes),
    }


def _steps(found: Verification, steps: Sequence[StepView]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [
        (
            describe(steps[match.step]),
            in_bytes(match.predicted_bytes),
            in_bytes(match.compiled_bytes),
            _kinds(match.compiled),
            match.remark,
        )
        for match in found.steps
    ]
    rows += [("", "", in_bytes(c.total_bytes), _kinds([c]), "not of the plan") for c in found.unforeseen]
    if found.padding:
        rows.append(("", "", in_bytes(found.padding_bytes), _kinds(found.padding), "padding, not counted"))
    return rows


def _kinds(collectives: Sequence[Collective]) -> str:
    names = [
        collective.kind + (f" ×{collective.count}" if collective.count > 1 else "") + ("*" * collective.is_async)
        for collective in collectives
    ]
    return ", ".join(dict.fromkeys(names))


def _by_axes(found: Verification) -> str:
    totals: dict[str, list[int]] = {}
    for match in found.steps:
        _add(totals, spell_axes(match.axes), match)
    for collective in found.unforeseen:
        totals.setdefault(_axes(collective), [0, 0])[1] += collective.total_bytes
    totals["all"] = [found.predicted_bytes, found.compiled_bytes]
    rows = [(axes, in_bytes(before), in_bytes(after)) for axes, (before, after) in totals.items()]
    return _table(("wire bytes over", "predicted", "compiled"), rows)


def _add(totals: dict[str, list[int]], axes: str, match: StepMatch) -> None:
    both = totals.setdefault(axes, [0, 0])
    both[0] += match.predicted_bytes
    both[1] += match.compiled_bytes


def _axes(collective: Collective) -> str:
    return "parts of axes" if collective.axes is None else spell_axes(collective.axes)


def _memory(found: Verification) -> str:
    names = ("argument", "output", "temporary", "total")
    rows = [
        (name, in_bytes(before), in_bytes(after), f"{before / after:.2f}" if after else "")
        for name in names
        for before, after in [[getattr(m, f"{name}_bytes") for m in (found.predicted_memory, found.compiled_memory)]]
    ]
    return _table(("memory", "predicted", "compiled", "ratio"), rows)


def _by_kind(found: Verification) -> str:
    """What each kind is predicted to take of the arguments, outputs and temporaries, beside what these are compiled
    to."""
    if found.kinds is None:
        return ""
    held = found.kinds.held
    parts = {
        "argument": [each.given for each in held],
        "output": [each.left for each in held],
        "temporary": [each.peak - each.given - each.left for each in held],
    }
    parts["total"] = [sum(sizes) for sizes in zip(*parts.values(), strict=True)]
    rows = [
        (name, *map(in_bytes, sizes), in_bytes(getattr(found.compiled_memory, f"{name}_bytes")))
        for name, sizes in parts.items()
    ]
    return _table(("predicted", *(each.kind.value for each in held), "all compiled"), rows)


_SEEN = 0.01  # of a step, that waits at least where it is told


def _times(found: Verification) -> str:
    """What was predicted of a step beside what was replayed, whose parts make the whole."""
    replayed = found.replayed
    rows = [
        ("compute", in_seconds(found.predicted.compute_s), in_seconds(replayed.compute_s)),
        ("communication", in_seconds(found.predicted.communication_s), in_seconds(replayed.communication_s)),
        ("exposed", "", in_seconds(replayed.exposed_s)),
        *(
            [("waiting for memory", "", in_seconds(replayed.waiting_s))]
            if replayed.waiting_s > _SEEN * replayed.step_s
            else []
        ),
        ("step", in_seconds(found.predicted.time_s), in_seconds(replayed.step_s)),
    ]
    return _table(("time", "predicted", "replayed"), rows)


def _verdict(found: Verification, steps: Sequence[StepView]) -> list[str]:
    if found.agrees:
        return ["collectives: as planned, to within 1 % of each one's wire bytes"]
    wrong = [match for match in found.steps if not match.agrees]
    count = len(wrong) + len(found.unforeseen)
    lines = [f"collectives: not as planned in {count} place{'s' * (count > 1)}"]
    lines += [
        f"  {describe(steps[match.step])}: {in_bytes(match.predicted_bytes)} became "
        f"{match.compiled_as or 'nothing'} of {in_bytes(match.compiled_bytes)}"
        + (f": {match.rewrite.why}" if match.rewrite is not None else "")
        for match in wrong
    ]
    return lines + [f"  {c.kind} of {in_bytes(c.total_bytes)} at {c.source or c.name}" for c in found.unforeseen]


def _collective(collective: Collective) -> dict[str, Any]:
    return {
        "op": collective.kind,
        "name": collective.name,
        "axes": collective.axes,
        "wire_bytes": collective.wire_bytes,
        "count": collective.count,
        "async": collective.is_async,
        "padded": collective.padded,
        "source": collective.source,
        "algorithm": collective.algorithm,
    }


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True) if rows else ""
