"""What a compiled program moves and need not: findings, each with its cost, the bound, and what would do.

A finding is made only where the change of sharding is known exactly and the planner's way moves at least 5 % less, in
no more time; whatever is not understood is passed over. Arrays so small that hops decide are judged by bytes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from shardc.compiled.explain import digits
from shardc.compiled.explain.change import Change, Start, change_of
from shardc.compiled.explain.digits import View
from shardc.compiled.explain.flow import Kept
from shardc.compiled.explain.indices import Scope
from shardc.compiled.explain.search import Better, Compiled, Gathering, dtype_of
from shardc.compiled.hlo.collectives import Collective
from shardc.compiled.hlo.text import Instruction, UnreadableHlo
from shardc.ir.sharding import Sharding, spell
from shardc.planner import Objective

REMATERIALIZED = "full rematerialization"
GATHERED = "gathered, then sliced"
SUMMED = "summed on every device, then sliced"
TWICE = "gathered twice"
PLANNED = "a cheaper plan"
WORTHWHILE = 0.95
_ODD = (UnreadableHlo, LookupError, ValueError)  # HLO that is not as known here is passed over


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wasteful. Bytes and seconds are of all its runs; the better ones are the planner's."""

    kind: str
    where: tuple[str, ...]  # source lines: of the collective, of the slice
    what: str
    collectives: tuple[str, ...]  # names of instructions
    wire_bytes: int
    time_s: float
    better_bytes: int
    better_s: float
    bound_bytes: int | None
    statement: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Split:
    """An AllReduce and a slice that are the compiler's way to do a ReduceScatter; the program asked for no more."""

    collective: str
    wire_bytes: int
    time_s: float
    meant_bytes: int
    meant_s: float


@dataclass(slots=True)
class Waste:
    """What has been found so far, in order of the program."""

    compiled: Compiled
    findings: list[Finding] = field(default_factory=list)
    split: list[Split] = field(default_factory=list)
    places: dict[str, str] = field(init=False)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.places = self.compiled.places()

    def look(self) -> None:
        for scope in self.compiled.scopes():
            for instruction in scope.computation.instructions:
                if instruction.name in self.compiled.collectives and instruction.name not in self._seen:
                    with suppress(*_ODD):
                        self._look_at(scope, instruction)
            with suppress(*_ODD):
                self._repeated(scope)
        self.findings.sort(key=lambda finding: finding.better_bytes - finding.wire_bytes)

    def _look_at(self, scope: Scope, instruction: Instruction) -> None:
        match self.compiled.collectives[instruction.name].kind:
            case "AllGather":
                self._gather(scope, instruction)
            case "AllReduce":
                self._sum(scope, instruction)

    def _gather(self, scope: Scope, gather: Instruction) -> None:
        """`A[I_X, J] → A[I, J] → A[I, J_X]`: a device gathers what it then throws away."""
        found = self.compiled.gathering(scope, gather)
        start = None if found is None else _of_gather(self.compiled, scope, found, gather.name)
        ends = None if start is None or found is None else self.compiled.flow.kept(scope, found.result, start.view)
        if start is None or not ends or len({end.gathers for end in ends}) > 1:
            return
        names = (gather.name, *ends[0].gathers)
        change = self._change(start, ends, names)
        better = None if change is None else self._better(change, names)
        if change is None or better is None:
            return
        self._seen.update(names)
        kind = REMATERIALIZED if change.is_whole and not ends[0].multiplied else GATHERED
        what = _what_was_gathered(change, ends)
        self._add(kind, names, ends, what, change, better, _remedy(change, better, ends, self.compiled.explicit))

    def _sum(self, scope: Scope, total: Instruction) -> None:
        """`C[I]{U_X} → C[I] → C[I_X]`: the sum of everything goes to everyone, who keep a part."""
        start = _of_sum(self.compiled, total)
        ends = None if start is None else self.compiled.flow.kept(scope, total, start.view)
        if start is None or not ends or any(end.gathers for end in ends):
            return
        change = self._change(start, ends, ())
        better = None if change is None else self._better(change, (total.name,))
        if change is None or better is None:
            return
        self._seen.add(total.name)
        count = self.compiled.collectives[total.name].count
        if all(_is_of_one_operation(total, end.instruction) for end in ends):
            meant = (better.cost.wire_bytes * count, better.cost.time_s * count)
            self.split.append(Split(total.name, *self.compiled.cost((total.name,)), *meant))
            return
        what = f"every device is given the whole sum {change.before}, and keeps a part of it"
        wanted = f"{change.before.name}{spell(change.before.dims, change.after)}"
        remedy = f"ask for {wanted} where the sum is made, with no replicated sharding in between"
        self._add(SUMMED, (total.name,), ends, what, change, better, remedy)

    def _change(self, start: Start, ends: Sequence[Kept], names: Sequence[str]) -> Change | None:
        groups = {name: self.compiled.collectives[name].groups for name in names if name in self.compiled.collectives}
        return change_of(start, ends, groups, self.compiled.mesh) if len(groups) == len(names) else None

    def _better(self, change: Change, names: Sequence[str]) -> Better | None:
        """The planner's way, if it moves less in no more time. Where hops decide, as with small arrays, less alone."""
        wire, seconds = self.compiled.cost(names)
        runs = self.compiled.collectives[names[0]].count
        found = self.compiled.better(change)
        if found is None:
            return None
        if found.cost.wire_bytes * runs <= WORTHWHILE * wire and found.cost.time_s * runs <= seconds:
            return found
        found = self.compiled.better(change, Objective.BYTES) if self.compiled.is_latency(names) else None
        return found if found is not None and found.cost.wire_bytes * runs <= WORTHWHILE * wire else None

    def _add(
        self,
        kind: str,
        names: tuple[str, ...],
        ends: Sequence[Kept],
        what: str,
        change: Change,
        better: Better,
        remedy: str,
    ) -> None:
        compiled = self.compiled
        lines = [self.places.get(name, "") for name in names]
        lines += [compiled.module.source(end.instruction) for end in ends]
        wire, seconds = compiled.cost(names)
        runs = compiled.collectives[names[0]].count
        block = " (the block of one device along the other axes)" if change.is_local else ""
        block += "; at this size hops decide, not bytes" if compiled.is_latency(names) else ""
        self.findings.append(
            Finding(
                kind,
                tuple(dict.fromkeys(line for line in lines if line)),
                what + block,
                names,
                wire,
                seconds,
                better.cost.wire_bytes * runs,
                better.cost.time_s * runs,
                better.bound_bytes * runs,
                better.statement if change.before.sharding != change.after else f"keep {change.before}",
                remedy,
            )
        )

    def _repeated(self, scope: Scope) -> None:
        """The same array, gathered over the same groups again."""
        first: dict[object, str] = {}
        for instruction in scope.computation.instructions:
            name = instruction.name
            one = self.compiled.collectives.get(name)
            found = self.compiled.gathering(scope, instruction) if one and one.kind == "AllGather" else None
            if one is None or found is None or not one.wire_bytes or _is_again_on_purpose(one):
                continue
            origin = self.compiled.copied_from(scope, found.operand)
            place = found.operation.attributes.get("dimensions")
            key = (origin.name if origin else name, one.groups, place, one.local_bytes, one.count)
            if key in first and not self._seen & {name, first[key]}:
                self._again(scope, name, found, first[key])
            first.setdefault(key, name)

    def _again(self, scope: Scope, name: str, found: Gathering, first: str) -> None:
        given = self.compiled.argument(scope, found.operand)
        wire, seconds = self.compiled.cost((name,))
        sources = (self.places.get(each, "") for each in (first, name))
        self.findings.append(
            Finding(
                TWICE,
                tuple(dict.fromkeys(source for source in sources if source)),
                f"{given.name if given else 'an array'} is gathered again, over the same devices, as {first} did",
                (first, name),
                wire,
                seconds,
                0,
                0.0,
                0,
                "",
                "gather it once, and use the result in both places",
            )
        )


def _is_again_on_purpose(one: Collective) -> bool:
    """The compiler, and jax.checkpoint, do again what is not worth its memory."""
    return any(word in text for word in ("remat", "checkpoint") for text in (one.name, one.scope))


def _of_gather(compiled: Compiled, scope: Scope, found: Gathering, name: str) -> Start | None:
    """The result of a gather, with the devices of the group as a digit of its dim."""
    operand = scope.computation.by_name[found.operand]
    dims = [int(n) for n in found.operation.attributes.get("dimensions", "").strip("{}").split(",") if n]
    kind = dtype_of(operand.shapes[0].dtype) if len(operand.shapes) == 1 else None
    if kind is None or len(dims) != 1:
        return None
    local, count = operand.shapes[0].sizes, compiled.collectives[name].group_size
    if found.result.shapes[-1].sizes != tuple(n * count if place == dims[0] else n for place, n in enumerate(local)):
        return None
    view = digits.gathered(digits.whole(local), dims[0], count, name)
    given = compiled.argument(scope, operand.name)
    return Start(given.name if given else "A", view, local, kind, given=given)


def _of_sum(compiled: Compiled, total: Instruction) -> Start | None:
    """The result of an AllReduce of one array."""
    axes = compiled.collectives[total.name].axes
    kind = dtype_of(total.shapes[0].dtype) if len(total.shapes) == 1 else None
    if kind is None or not axes or len(total.operands) != 1:
        return None
    sizes = total.shapes[0].sizes
    view: View = digits.whole(sizes)
    return Start("C", view, sizes, kind, axes)


def _is_of_one_operation(total: Instruction, cut: Instruction) -> bool:
    """Did one operation of the program leave both? Then the compiler made two of one."""
    same = ("op_name", "stack_frame_id", "source_file", "source_line")
    return all(total.metadata.get(key) == cut.metadata.get(key) for key in same) or not cut.metadata


def _what_was_gathered(change: Change, ends: Sequence[Kept]) -> str:
    array = change.before
    if ends[0].multiplied:
        return f"{array} is gathered for a product of which every device keeps a part"
    if change.is_whole:
        return f"{array} is gathered whole on every device, which keeps a part of it"
    return f"{array} is gathered, and every device keeps a part of what it gathered"


def _remedy(change: Change, better: Better, ends: Sequence[Kept], explicit: bool) -> str:
    name, held = change.before.name, change.before
    if ends[0].multiplied:
        return f"leave {held} as it lies, and ask the product for the sharding of the slice at once"
    if not better.cost.wire_bytes:
        return f"each device holds its part of {held} already: drop the sharding in between, which asks for the whole"
    if change.is_local:
        return "shardc.reshard, with Explicit axes, or shardc.einsum with both shardings written, finds this path"
    if explicit:
        return f"{name} = shardc.reshard({name}, {spec(change.after)})"
    return f'{name} = shardc.einsum("{better.statement}", {name})'


def spec(sharding: Sharding) -> str:
    """`jax.P("X", None, ("Y", "Z"))`."""
    parts = [repr(axes[0]) if len(axes) == 1 else repr(axes) if axes else "None" for axes in sharding.dims]
    return f"jax.P({', '.join(parts)})".replace("'", '"')
