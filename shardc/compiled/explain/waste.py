"""What a compiled program moves and need not: every array of every collective judged, or said to be not.

An array is judged if every use of what arrives is known, or one that needs all of it is. A finding is made only where
the change of sharding is known exactly and the planner's way moves at least 5 % less, in no more time. Arrays so small
that hops decide are judged by bytes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from shardc.compiled.explain import digits
from shardc.compiled.explain.alike import Alike
from shardc.compiled.explain.change import Change, Start, change_of
from shardc.compiled.explain.digits import View
from shardc.compiled.explain.findings import GATHERED, HELD, REMATERIALIZED, SUMMED, TWICE, WORTHWHILE, Finding
from shardc.compiled.explain.flow import InParts, Kept, Unknown, Uses, Whole
from shardc.compiled.explain.needless import Needless, needless
from shardc.compiled.explain.parts import Part
from shardc.compiled.explain.search import Better, Compiled, dtype_of, is_large
from shardc.compiled.hlo.collectives import Collective
from shardc.compiled.hlo.text import Instruction, UnreadableHlo
from shardc.ir.sharding import Sharding, spell
from shardc.planner import Objective

_ODD = (UnreadableHlo, LookupError, ValueError)  # HLO that is not as known here is not judged
_SCATTERS = ("reduce_scatter", "psum_scatter")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a part was judged; and what became of it, or why it was not."""

    judged: bool
    why: str


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
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    alike: Alike = field(init=False)

    def __post_init__(self) -> None:
        known = self.compiled
        self.alike = Alike(known.module, known.mesh, known.flow.indices, known.argument)

    def look(self) -> None:
        for key, part in self.compiled.parts.items():
            if key in self.verdicts:
                continue  # a finding has it already
            try:
                found = self._held(part) or self._judged(part)
            except _ODD:
                found = Verdict(False, "the program's text is not as known here")
            self.verdicts.setdefault(key, found)
        self._repeated()

    def _held(self, part: Part) -> Verdict | None:
        """A finding where each device along an axis holds already what is summed or gathered over it."""
        found = needless(part, self.alike, self.compiled.model)
        if found is None:
            return None
        self.findings.append(self._of_held(part, found))
        return Verdict(True, HELD)

    def _of_held(self, part: Part, found: Needless) -> Finding:
        wire, seconds = self.compiled.cost((part.key,))
        one, source = part.collective, self.compiled.place(part)
        better = found.wire_bytes * one.count
        return Finding(
            HELD,
            (source,) if source else (),
            found.what,
            (one.name,),
            wire,
            seconds,
            better,
            self._scaled(found.time_s, (part.key,)),
            better,
            "",
            found.remedy,
            one.count,
        )

    def _judged(self, part: Part) -> Verdict:
        if part.collective.part_of:
            return Verdict(True, f"padding of {part.collective.part_of}")
        if not part.arrives:
            return Verdict(False, "where it arrives is not seen")
        view = _gathered_view(part) if part.collective.kind == "AllGather" else None
        if part.collective.kind == "AllGather" and view is None:
            return Verdict(False, "it is gathered in a way that is not followed")
        uses: Uses = self.compiled.flow.uses([(at, view or digits.whole(shape.sizes)) for at, shape in part.arrives])
        match uses:
            case Whole(why):
                return Verdict(True, why)
            case Unknown(why):
                return Verdict(False, why)
            case InParts(ends):
                return self._kept(part, view, ends)
            case _:
                assert_never(uses)

    def _kept(self, part: Part, view: View | None, ends: Sequence[Kept]) -> Verdict:
        """Every device keeps a part of what it was given."""
        shape = part.arrives[0][1]
        if dtype_of(shape.dtype) is None:
            return Verdict(False, f"a part of it is kept, of elements {shape.dtype}, which are not planned")
        if view is not None:
            return self._gather(part, view, ends)
        if part.collective.kind == "AllReduce":
            return self._sum(part, ends)
        return Verdict(False, f"a part is kept of what {part.collective.kind} brings, of which no change is read")

    def _gather(self, part: Part, view: View, ends: Sequence[Kept]) -> Verdict:
        """`A[I_X, J] → A[I, J] → A[I, J_X]`: a device gathers what it then throws away."""
        keys = (part.key, *ends[0].gathers)
        start = _of_gather(self.compiled, part, view)
        if start is None or len({end.gathers for end in ends}) > 1:
            return Verdict(False, "parts of it are kept, in several ways")
        change = self._change(start, ends, keys)
        found = self._better(change, keys)
        if isinstance(found, Verdict) or change is None:
            return found if isinstance(found, Verdict) else _NO_CHANGE
        kind = REMATERIALIZED if change.is_whole and not ends[0].multiplied else GATHERED
        what = _what_was_gathered(change, ends)
        self._add(kind, keys, ends, what, change, found, _remedy(change, found, ends, self.compiled.explicit))
        return self.verdicts[part.key]

    def _sum(self, part: Part, ends: Sequence[Kept]) -> Verdict:
        """`C[I]{U_X} → C[I] → C[I_X]`: the sum of everything goes to everyone, who keep a part."""
        start = _of_sum(part)
        if start is None:
            return Verdict(False, "a part is kept of a sum over parts of axes")
        if any(end.gathers for end in ends):
            return Verdict(False, "a part of it is kept, behind a gather")
        change = self._change(start, ends, ())
        found = self._better(change, (part.key,))
        if isinstance(found, Verdict) or change is None:
            return found if isinstance(found, Verdict) else _NO_CHANGE
        if all(self._is_of_one_operation(part, end.instruction) for end in ends):
            self._note(part, found)
            return Verdict(True, "a ReduceScatter, done as an AllReduce and a slice")
        what = f"every device is given the whole sum {change.before}, and keeps a part of it"
        wanted = f"{change.before.name}{spell(change.before.dims, change.after)}"
        remedy = f"ask for {wanted} where the sum is made, with no replicated sharding in between"
        self._add(SUMMED, (part.key,), ends, what, change, found, remedy)
        return self.verdicts[part.key]

    def _note(self, part: Part, better: Better) -> None:
        wire, seconds = self.compiled.cost((part.key,))
        runs = part.collective.count
        meant = (better.cost.wire_bytes * runs, self._scaled(better.cost.time_s, (part.key,)))
        self.split.append(Split(part.collective.name, wire, seconds, *meant))

    def _change(self, start: Start, ends: Sequence[Kept], keys: Sequence[str]) -> Change | None:
        groups = {key: self.compiled.parts[key].collective.groups for key in keys if key in self.compiled.parts}
        return change_of(start, ends, groups, self.compiled.mesh) if len(groups) == len(keys) else None

    def _better(self, change: Change | None, keys: Sequence[str]) -> Better | Verdict:
        """The planner's way, if it moves less in no more time. Where hops decide, as with small arrays, less alone."""
        if change is None:
            return _NO_CHANGE
        if is_large(change):
            return Verdict(False, "a part of it is kept, over more dims and axes than are planned")
        moved = sum(self.compiled.parts[key].wire_bytes for key in keys)
        seconds = self.compiled.alone(keys)
        found = self.compiled.better(change)
        if found is None:
            return Verdict(False, "a part of it is kept, for which there is no plan")
        if found.cost.wire_bytes <= WORTHWHILE * moved and found.cost.time_s <= seconds:
            return found
        found = self.compiled.better(change, Objective.BYTES) if self.compiled.is_latency(keys) else None
        if found is not None and found.cost.wire_bytes <= WORTHWHILE * moved:
            return found
        return Verdict(True, "a part of it is kept, and nothing moves less in no more time")

    def _scaled(self, seconds: float, keys: Sequence[str]) -> float:
        """A time beside that of parts alone, as it is beside their share of what they travel in."""
        alone = self.compiled.alone(keys)
        return seconds * self.compiled.cost(keys)[1] / alone if alone else 0.0

    def _is_of_one_operation(self, part: Part, cut: Instruction) -> bool:
        """Did one operation of the program leave both? Then the compiler made two of one."""
        name = cut.metadata.get("op_name", "")
        if not cut.metadata or name.rpartition("/")[2] in _SCATTERS:
            return True
        same = ("op_name", "stack_frame_id", "source_file", "source_line")
        made = self.compiled.maker(part) if part.is_one_of_several else None
        sums = [part.operation, *([made] if made is not None else [])]
        return any(all(one.metadata.get(key) == cut.metadata.get(key) for key in same) for one in sums)

    def _add(
        self,
        kind: str,
        keys: tuple[str, ...],
        ends: Sequence[Kept],
        what: str,
        change: Change,
        better: Better,
        remedy: str,
    ) -> None:
        compiled = self.compiled
        cuts = [compiled.module.source(end.instruction) for end in ends]
        lines = [*(compiled.place(compiled.parts[key]) for key in keys), *cuts]
        wire, seconds = compiled.cost(keys)
        first = compiled.parts[keys[0]].collective
        block = " (the block of one device along the other axes)" if change.is_local else ""
        block += "; at this size hops decide, not bytes" if compiled.is_latency(keys) else ""
        self.verdicts.update({key: Verdict(True, kind) for key in keys})
        self.findings.append(
            Finding(
                kind,
                tuple(dict.fromkeys(line for line in lines if line)),
                what + block,
                tuple(dict.fromkeys(compiled.parts[key].collective.name for key in keys)),
                wire,
                seconds,
                better.cost.wire_bytes * first.count,
                self._scaled(better.cost.time_s, keys),
                better.bound_bytes * first.count,
                better.statement if change.before.sharding != change.after else f"keep {change.before}",
                remedy,
                first.count,
                tuple(dict.fromkeys(line for line in cuts if line)),
            )
        )

    def _repeated(self) -> None:
        """The same array, gathered over the same groups again."""
        first: dict[object, str] = {}
        wasted = {key for key, verdict in self.verdicts.items() if verdict.why in (REMATERIALIZED, GATHERED)}
        for key, part in self.compiled.parts.items():
            one = part.collective
            if one.kind != "AllGather" or part.operand is None or _is_again_on_purpose(one):
                continue
            origin = self.compiled.copied_from(part.scope, part.operand.name)
            place = part.operation.attributes.get("dimensions")
            name = origin.name if origin else part.operand.name
            what = (part.scope.path, name, one.groups, place, part.local_bytes, one.count)
            if what in first and not wasted & {key, first[what]}:
                self._again(part, self.compiled.parts[first[what]])
            first.setdefault(what, key)

    def _again(self, part: Part, first: Part) -> None:
        given = self.compiled.argument(part.scope, part.operand.name) if part.operand is not None else None
        wire, seconds = self.compiled.cost((part.key,))
        sources = (self.compiled.place(each) for each in (first, part))
        self.verdicts[part.key] = Verdict(True, TWICE)
        self.findings.append(
            Finding(
                TWICE,
                tuple(dict.fromkeys(source for source in sources if source)),
                f"{given.name if given else 'an array'} is gathered again, over the same devices, "
                f"as {first.collective.name} did",
                tuple(dict.fromkeys((first.collective.name, part.collective.name))),
                wire,
                seconds,
                0,
                0.0,
                0,
                "",
                "gather it once, and use the result in both places",
                part.collective.count,
            )
        )


_NO_CHANGE = Verdict(False, "parts of it are kept, by no whole axes")


def _is_again_on_purpose(one: Collective) -> bool:
    """The compiler, and jax.checkpoint, do again what is not worth its memory."""
    return any(word in text for word in ("remat", "checkpoint") for text in (one.name, one.scope))


def _gathered_view(part: Part) -> View | None:
    """The result of a gather, with the devices of the group as a digit of its dim."""
    dims = [int(n) for n in part.operation.attributes.get("dimensions", "").strip("{}").split(",") if n]
    if part.shape is None or len(dims) != 1 or len(part.arrives) != 1:
        return None
    local, count = part.shape.sizes, part.collective.group_size
    if part.arrives[0][1].sizes != tuple(n * count if place == dims[0] else n for place, n in enumerate(local)):
        return None
    return digits.gathered(digits.whole(local), dims[0], count, part.key)


def _of_gather(compiled: Compiled, part: Part, view: View) -> Start | None:
    kind = dtype_of(part.arrives[0][1].dtype)
    if kind is None or part.shape is None or part.operand is None:
        return None
    given = compiled.argument(part.scope, part.operand.name)
    return Start(given.name if given else "A", view, part.shape.sizes, kind, given=given)


def _of_sum(part: Part) -> Start | None:
    shape, axes = part.arrives[0][1], part.collective.axes
    kind = dtype_of(shape.dtype)
    return None if kind is None or not axes else Start("C", digits.whole(shape.sizes), shape.sizes, kind, axes)


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
