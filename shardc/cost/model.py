"""The price of a move and of a local product.

The search adds whole picoseconds, so that sums do not depend on their order and equal plans compare equal.

For V = the bytes of the array gathered over the group, on one device, and the levels of the group's network,
inner ones first, with D members and W B/s each (`cost.links`):

    AllGather, ReduceScatter   max over levels of (D-1)/D · V/(W · members inside)
    AllReduce                  twice that
    AllToAll                   max over levels of the share that crosses it
    CollectivePermute          max over levels of the longest route; in rounds as long for all that they bring.
                               Where a slice is named, the busiest link of the ways that its blocks take (`sent`)

and never less than the hops on the way (twice for an AllReduce, once a round) times the latency of one. What is emitted
in rounds, or as another collective, is priced so: a sum over the calls of its form (`lowering.forms`).
`--formula book` drops (D-1)/D, as the book does, and prices each step as one collective.
Source: *How To Scale Your Model*, chapters 3 and 12.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, assert_never

from shardc.cost import formulas
from shardc.cost.alone import Alone
from shardc.cost.chips import Chip
from shardc.cost.layout import Layout
from shardc.cost.links import Factor, Level
from shardc.cost.links.level import Traffic, exchanges, gathers, less_one, slowest, total
from shardc.cost.network import Network, network
from shardc.cost.rate import Rate
from shardc.ir.collectives import Move
from shardc.ir.exchange import Pairs
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind, Turns
from shardc.ir.plan import Loop, Op, Single
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Array, Axes, Sharding
from shardc.lowering.copies import of_output, with_copies
from shardc.lowering.forms import Call, Laid, Sent, at_once
from shardc.lowering.lower import form
from shardc.lowering.pairs import NOTHING, pairs_of, sent_by
from shardc.lowering.scatters import LocalBlock, block_of
from shardc.lowering.target import Target
from shardc.lowering.tpu import on_chip

GATHERED = (Kind.GATHER, Kind.EXCHANGE)  # what has a V that is larger than the block


class CostModel(Protocol):
    """What the planner asks of a cost model."""

    def __hash__(self) -> int: ...

    @property
    def chip(self) -> Chip: ...

    @property
    def mesh(self) -> Mesh: ...

    @property
    def target(self) -> Target:
        """What the moves that it prices are written for."""
        ...

    def rate(self, move: Move) -> Rate:
        """The time of a move as one collective, as a function of the bytes it moves: no form of it takes less."""
        ...

    def emitted(self, move: Move, block: LocalBlock | None, before: Sharding | None = None) -> Rate:
        """The time of what is emitted for a move of a device's block; None: of one of large whole tiles. Whose blocks
        go where is told by the sharding before; without it every permute is as long as the longest."""
        ...

    def formula(self, move: Move, before: Array) -> str:
        """The time of a move of this array, as the books would write it; `symbols` has what it names."""
        ...

    def leaves_output_apart(self, op: Op, rank: int) -> bool:
        """Whether what an operation leaves, of so many dims, is copied to become an output, at a known price."""
        ...

    def symbols(self) -> dict[str, float]:
        """The bandwidths (B/s), the peak rates (FLOP/s) and the latency of a hop (s), by their names in formulas."""
        ...

    @property
    def alone(self) -> Alone:
        """What a device takes for its own work."""
        ...

    def has_parts(self, axis: str) -> bool:
        """Whether parts of a mesh axis have links of their own."""
        ...

    def sent(self, pairs: Pairs) -> Traffic | None:
        """What blocks that go from device to device at once take of the links; None where no ways are known."""
        ...

    def refined(self, by: Refinement) -> CostModel | None:
        """The model of the same devices seen as a finer mesh; None where it cannot tell."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LinkModel:
    """Prices by the links of a network. `book` drops (n-1)/n from gathers, as the book's formulas do.

    Of equal parts `of` makes one model, so that programs share the rates of moves; a model is equal to itself alone.
    """

    network: Network
    target: Target
    alone: Alone
    book: bool = False
    _rates: dict[tuple[type[Move], Axes, Turns], Rate] = field(default_factory=dict, init=False, repr=False)
    _emitted: dict[tuple[Call, ...], Rate] = field(default_factory=dict, init=False, repr=False)
    _ways: dict[Sent, float] = field(default_factory=dict, init=False, repr=False)
    _among: dict[frozenset[tuple[int, int]], float] = field(default_factory=dict, init=False, repr=False)
    _finer: dict[Refinement, LinkModel | None] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        mesh: Mesh,
        chip: Chip,
        layout: Layout | None = None,
        *,
        book: bool = False,
        target: Target | None = None,
    ) -> LinkModel:
        """The model of a mesh on a chip. Without a layout every mesh axis is a physical axis of its own; without a
        target, and by the book, every move is one collective."""
        plain = Target(mesh, is_plain=True)
        return _model(chip, layout or Layout(), book, plain if book or target is None else target)

    def __reduce__(self) -> tuple[object, ...]:
        """Read again it is the one of its parts, with the rates that others found."""
        return _again, self.parts

    @property
    def parts(self) -> tuple[Chip, Layout, bool, Target, Refinement | None]:
        """What it is made of: two models of the same parts give the same prices."""
        by = self.network.by
        target = self.target if by is None else self.target.on(by.coarse)
        return self.chip, self.network.layout, self.book, target, by

    def has_parts(self, axis: str) -> bool:
        return self.network.has_parts(axis)

    def refined(self, by: Refinement) -> LinkModel | None:
        """The same hardware under the axes of a finer mesh; None where parts of axes are not parts of its links."""
        if by not in self._finer:
            finer = self.network.refined(by)
            self._finer[by] = None if finer is None else replace(self, network=finer, target=self.target.on(by.fine))
        return self._finer[by]

    def on(self, by: Refinement | None) -> LinkModel:
        """The model of the mesh that a plan is on, as given or finer."""
        found = self if by is None else self.refined(by)
        assert found is not None, "the plan is priced by it"
        return found

    @property
    def mesh(self) -> Mesh:
        return self.network.mesh

    @property
    def chip(self) -> Chip:
        return self.network.chip

    def rate(self, move: Move) -> Rate:
        key = type(move), move.axes, move.turns  # dims play no part
        found = self._rates.get(key)
        if found is None:
            found = self._of_call(at_once(move))
            if move.facts.kind is Kind.PERMUTE and self._knows_ways:
                found = replace(found, s_per_byte=min(found.s_per_byte, self._apart(move.axes)))
            self._rates[key] = found
        return found

    @property
    def _knows_ways(self) -> bool:
        """Whether permutes are priced by the ways of their blocks."""
        return self.alone.measured is not None and self.network.has_ways

    def _apart(self, axes: Axes) -> float:
        """Seconds per byte of blocks that go all ways at once: no permute takes less."""
        return max((1 / level.width.value for level in self.network.levels(axes)), default=0.0)

    def emitted(self, move: Move, block: LocalBlock | None, before: Sharding | None = None) -> Rate:
        is_one_call = block is None and self.alone.measured is None and not self.target.is_all(move.axes)
        return self.rate(move) if is_one_call else _emitted(self, move, block, before)

    def of_calls(self, move: Move, block: LocalBlock | None, before: Sharding | None) -> Rate:
        """The time of the calls of a move's form."""
        calls = self._calls_of(move, block, before)
        if calls not in self._emitted:
            self._emitted[calls] = self._sum(calls)
        return self._emitted[calls]

    def leaves_output_apart(self, op: Op, rank: int) -> bool:
        is_known = self.alone.measured is not None
        return is_known and not isinstance(op, Loop) and of_output(form(op, None, self.target), rank)

    def calls(self, op: Single, before: Array) -> tuple[Call, ...]:
        """What is emitted for a step on this array, as it is priced."""
        return self._calls_of(op, block_of(before, self.mesh), before.sharding)

    def _calls_of(self, op: Single, block: LocalBlock | None, before: Sharding | None) -> tuple[Call, ...]:
        """The collectives of a step's form, and the copies around them where it is known what these take."""
        found, rank = form(op, block, self.target), None if before is None else before.rank
        calls = found.calls(self.mesh) if self.alone.measured is None else with_copies(found, self.mesh, rank)
        if before is None or not self._knows_ways:
            return calls
        sent = sent_by(found, before, self.mesh)
        return tuple(replace(call, sent=sent) if call.kind is Kind.PERMUTE else call for call in calls)

    def _sum(self, calls: tuple[Call, ...]) -> Rate:
        found: Rate | None = None
        for call in reversed(calls):
            found = replace(self._of_call(call), then=found)
        return found or Rate(0, 0.0)

    def _of_call(self, call: Call) -> Rate:
        """Of the local bytes before the step."""
        if call.kind is Kind.LOCAL:
            return self._of_copy(call)
        levels, part = self.levels_of(call), call.times * call.above / call.below
        rate = self.rate_of(call.kind, levels, call.over.parts(self.mesh))
        per_byte = self._on_ways(call.sent) if call.sent != NOTHING else rate.s_per_byte
        return Rate(rate.latency_s * call.times, per_byte * part)

    def _of_copy(self, call: Call) -> Rate:
        far, near = self.alone.laid_s_per_byte(call.laid)
        part, room = call.times * call.above / call.below, on_chip(self.target) * call.below // call.above
        near_bytes = 0 if call.laid is Laid.WHOLE else room // 2  # beside what is laid
        return Rate(0, far * part, near_bytes=near_bytes, near_s_per_byte=near * part)

    def _on_ways(self, sent: Sent) -> float:
        """Seconds per byte of the blocks of a permute, on the busiest link."""
        if sent not in self._ways:
            if (pairs := frozenset(pairs_of(sent, self.mesh))) not in self._among:  # many permutes are of the same
                traffic = self.network.sent(tuple(pairs))
                assert traffic is not None, "the links are a torus's"
                self._among[pairs] = traffic.s_per_byte
            self._ways[sent] = self._among[pairs]
        return self._ways[sent]

    def sent(self, pairs: Pairs) -> Traffic | None:
        return self.network.sent(pairs) if self.network.has_ways else None

    def levels_of(self, call: Call) -> tuple[Level, ...]:
        """Of parts of an axis, which is all of the mesh, those of the slowest groups, by where their chips are."""
        if call.over.split is None:
            return self.network.levels(call.over.axes)
        return max(self.network.grouped(call.over.groups()), key=lambda levels: self._value(call.kind, levels))

    def _value(self, kind: Kind, levels: tuple[Level, ...]) -> float:
        factor = self._factor(kind, levels)
        return 0.0 if factor is None else factor.value

    def rate_of(self, kind: Kind, levels: tuple[Level, ...], devices: int) -> Rate:
        """The time of such a collective among so many devices, on these levels, whichever axes it names."""
        factor = self._factor(kind, levels)
        if factor is None:
            return Rate(0, 0.0)
        return Rate(self._latency(kind, levels).value, factor.value * (devices if kind in GATHERED else 1))

    def factor(self, move: Move) -> Factor | None:
        """Seconds per byte of V: the gathered array, or the block of a permute. None if nothing moves."""
        return self._factor(move.facts.kind, self.network.levels(move.axes))

    def _factor(self, kind: Kind, levels: tuple[Level, ...]) -> Factor | None:
        if not levels:
            return None
        match kind:
            case Kind.GATHER | Kind.SCATTER:
                return self._gather(levels)
            case Kind.SUM:
                once = self._gather(levels)
                return Factor(f"2·{once.text}" if once.text[0] != "1" else "2" + once.text[1:], 2 * once.value)
            case Kind.EXCHANGE:
                return slowest(exchanges(levels, self.book))
            case Kind.PERMUTE:
                return slowest(level.route() for level in levels)
            case Kind.SLICE | Kind.MASK | Kind.LOCAL | Kind.LOOP:
                return None
            case _:
                assert_never(kind)

    def _gather(self, levels: tuple[Level, ...]) -> Factor:
        return slowest(gathers(levels, self.book))

    def _latency(self, kind: Kind, levels: tuple[Level, ...], times: float = 1) -> Factor:
        hops = total(level.hops for level in levels)
        times *= 2 if kind is Kind.SUM else 1  # there and back
        if times > 1:
            hops = Factor(f"{times}·{hops.text}", times * hops.value)
        text = "T_hop" if hops.text == "1" else f"{hops.text}·T_hop"
        return Factor(text, hops.value * self.chip.hop_latency)

    def formula(self, move: Move, before: Array) -> str:
        done, terms = list[Call](), list[str]()
        for call in self.calls(move, before):
            done.append(call)
            terms += self._term(call, formulas.taken(before, done, self.mesh), before.local_bytes(self.mesh))
        return " + ".join(terms) or "0"

    def _term(self, call: Call, taken: str, size: int) -> list[str]:
        """The time of one call, which takes so much of the step's block, of so many bytes; nothing if nothing moves."""
        if call.kind is Kind.LOCAL:
            is_near, far = size <= self._of_copy(call).near_bytes, "W_lanes" if call.laid is Laid.LANES else "W_copy"
            return [formulas.times(taken, f"{call.times} / {'W_near' if is_near else far}")]
        levels, rate = self.levels_of(call), self._of_call(call)
        factor = self._factor(call.kind, levels)
        if factor is None:
            return []
        if rate.latency_s >= size * rate.s_per_byte:
            return [self._latency(call.kind, levels, call.times).text]
        if call.sent != NOTHING:
            times, width = rate.s_per_byte * levels[0].width.value, levels[0].width.text
            return [f"{taken} / {width}" if times == 1 else f"{taken}·{times:.15g} / {width}"]
        return [formulas.times(taken, factor.text if call.over.split is None else self._told(call, factor))]

    def _told(self, call: Call, factor: Factor) -> str:
        """The links of a part of an axis, told by those of the axis, which have a name."""
        count, known = call.over.parts(self.mesh), self.network.levels(call.over.axes)[0].width
        missing = less_one(Factor(str(count), count))
        return f"{missing.text} / ({missing.value / factor.value / known.value:.15g}·{known.text})"

    def symbols(self) -> dict[str, float]:
        return {"T_hop": self.chip.hop_latency} | self.alone.symbols() | self.network.symbols()


def _again(chip: Chip, layout: Layout, book: bool, target: Target, by: Refinement | None) -> LinkModel:
    return _model(chip, layout, book, target).on(by)


@lru_cache(maxsize=1 << 14)
def _emitted(model: LinkModel, move: Move, block: LocalBlock | None, before: Sharding | None) -> Rate:
    return model.of_calls(move, block, before)


@lru_cache(maxsize=64)
def _model(chip: Chip, layout: Layout, book: bool, target: Target) -> LinkModel:
    alone = Alone.on_slice(chip) if target.names_slice and not book else Alone(chip)
    return LinkModel(network(target.mesh, chip, layout), target, alone, book)
