"""Replays a compiled program: its entry computation is a schedule, and this walks it with a clock in hand.

    compute  ▆▆▆▆▆▆··▆▆▆▆          all-gather-start; fusion.1; all-gather-done; fusion.2
    X+       ▆▆▆▆▆▆▆▆····
    X-       ▆▆▆▆▆▆▆▆····

Instructions start in order, each when the one before has ended. A synchronous collective holds up what follows; an
asynchronous one runs on its links beside it, until its `done` waits for it. What needs the same links queues.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from shardc.compiled.hlo.collectives import Collective, Reader
from shardc.compiled.hlo.loops import trip_count
from shardc.compiled.hlo.text import Computation, Instruction, Module
from shardc.compiled.replay.pricing import MEMORY_PORT, Price, price
from shardc.compiled.replay.timeline import COMPUTE, MEMORY, Event, Timeline
from shardc.compiled.replay.tracks import in_order
from shardc.compiled.replay.work import FREE, ROOFLINE, operands, work
from shardc.cost.model import LinkModel
from shardc.cost.rate import picoseconds

_WALKED = 1000  # iterations of one loop, at most, that are walked one by one
_UNPRICED = ("send", "recv", "infeed", "outfeed")  # they go to a host, or wait for one


def replay(module: Module, model: LinkModel) -> Timeline:
    """What a device does when, computing by the compiler's cycles, communicating by the cost model."""
    walk = _Walk(module, model, Reader(module, model.mesh))
    walk.run(module.entry)
    state = walk.state
    shown = (track for event in state.events for track in event.tracks)
    tracks = in_order(shown, (COMPUTE, MEMORY), model.mesh)
    end = max([state.now, *(event.end_ps for event in state.events)])
    return Timeline(tuple(state.events), tracks, end, tuple(walk.notes))


@dataclass(slots=True)
class _State:
    """The time, when each resource is free again, and what has started and not been waited for."""

    now: int = 0
    taken: list[tuple[int, int]] = field(default_factory=list)  # what is occupied, a bit each, and until when
    pending: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def copy(self) -> _State:
        return _State(self.now, list(self.taken), dict(self.pending), list(self.events))

    def take(self, links: int, time: int) -> int:
        """Occupies links for so long, as soon as all of them are free; when that begins."""
        self.taken = [(others, until) for others, until in self.taken if until > self.now]
        start = max((until for others, until in self.taken if others & links), default=self.now)
        self.taken.append((links, start + time))
        return start

    def ahead(self) -> list[tuple[int, int]]:
        """How long what is occupied still is."""
        return sorted((links, until - self.now) for links, until in self.taken if until > self.now)


@dataclass(slots=True)
class _Walk:
    module: Module
    model: LinkModel
    reader: Reader
    state: _State = field(default_factory=_State)
    notes: dict[str, None] = field(default_factory=dict)
    prices: dict[str, Price] = field(default_factory=dict)  # by the instruction's name, for loops

    def run(self, computation: Computation) -> None:
        for instruction in computation.instructions:
            self._step(computation, instruction)

    def _step(self, computation: Computation, instruction: Instruction) -> None:
        opcode = instruction.opcode
        if opcode.removesuffix("-done") in _UNPRICED:
            self.notes[f"{opcode} is not priced"] = None
        elif opcode.endswith("-done"):
            self.state.now = max(self.state.now, self.state.pending.pop(instruction.operands[0], 0))
        elif opcode.endswith("-update"):
            self.state.pending[instruction.name] = self.state.pending.pop(instruction.operands[0], 0)
        elif opcode == "while":
            self._loop(computation, instruction)
        elif opcode == "conditional":
            self._branches([self.module.computation(name) for name in instruction.called()])
        elif opcode == "call":
            self.run(self.module.computation(instruction.called()[0]))
        elif (found := self.reader.collective(computation, instruction)) is not None:
            self._communicate(instruction, found)
        elif (begun := self.reader.ends(computation, instruction)) and begun in self.state.pending:
            self.state.now = max(self.state.now, self.state.pending.pop(begun))
        elif opcode.endswith("-start"):
            self._copy(computation, instruction)
        else:
            self._compute(computation, instruction)

    def _communicate(self, instruction: Instruction, collective: Collective) -> None:
        end = self._on_links(collective)
        if collective.is_async:
            self.state.pending[instruction.name] = end
        else:
            self.state.now = end

    def _on_links(self, collective: Collective) -> int:
        """When the collective ends; it begins when all its links are free."""
        cost = self.prices.get(collective.name)
        if cost is None:
            cost = self.prices[collective.name] = price(collective, self.model)
        if not cost.tracks:
            return self.state.now
        start = self.state.take(cost.links, cost.time_ps)
        self.state.events.append(
            Event(
                collective.name,
                collective.kind,
                cost.tracks,
                start,
                cost.time_ps,
                collective.wire_bytes,
                basis="links",
                is_async=collective.is_async,
                scope=collective.scope,
                source=collective.source,
            )
        )
        return start + cost.time_ps

    def _copy(self, computation: Computation, start: Instruction) -> None:
        """A copy that the memory system does beside the computing: through HBM at each end that lies there."""
        done = next((i for i in computation.instructions if start.name in i.operands), start)
        ends = [done.shapes[0].space, *(o.shapes[0].space for o in operands(computation, start)[:1] if o.shapes)]
        moved = done.bytes * ends.count(0)
        time = picoseconds(moved / self.model.chip.hbm_bandwidth)
        begin = self.state.take(MEMORY_PORT, time)
        self.state.pending[start.name] = begin + time
        if time:
            self._event(start, (MEMORY,), begin, time, moved, "memory", is_async=True)

    def _compute(self, computation: Computation, instruction: Instruction) -> None:
        found = work(self.module, computation, instruction, self.model.chip)
        ends = [self.state.now + found.time_ps]
        if instruction.opcode == "fusion":  # a compiler may put a collective beside what it computes
            inside = [self.module.computation(name) for name in instruction.called()]
            for each in inside:
                collectives = (self.reader.collective(each, i) for i in each.instructions)
                ends += [self._on_links(c) for c in collectives if c is not None]
        if found.basis == ROOFLINE:
            self.notes["instructions without the compiler's cycles are priced by a roofline"] = None
        if found.basis != FREE and found.time_ps:
            self._event(instruction, (COMPUTE,), self.state.now, found.time_ps, found.bytes, found.basis)
        self.state.now = max(ends)

    def _event(
        self,
        instruction: Instruction,
        tracks: tuple[str, ...],
        start: int,
        time: int,
        moved: int,
        basis: str,
        is_async: bool = False,
    ) -> None:
        scope = instruction.metadata.get("op_name", "")
        self.state.events.append(
            Event(
                instruction.name,
                instruction.opcode,
                tracks,
                start,
                time,
                moved,
                basis=basis,
                is_async=is_async,
                scope=scope,
                source=self.module.source(instruction),
            )
        )

    def _branches(self, branches: list[Computation]) -> None:
        """A conditional takes as long as its longest branch."""
        before, taken = self.state, list[_State]()
        for branch in branches:
            self.state = before.copy()
            self.run(branch)
            taken.append(self.state)
        self.state = max(taken, key=lambda state: state.now, default=before)

    def _loop(self, computation: Computation, loop: Instruction) -> None:
        """Iterations run until one leaves the links as it found them: those left are like it."""
        trips = trip_count(self.module, computation, loop)
        if trips is None:
            self.notes[f"{loop.name} runs an unknown number of times, and is counted once"] = None
        body = self.module.computation(loop.attributes["body"].lstrip("%"))
        left = 1 if trips is None else trips
        for walked in range(left):
            ahead, began, first = self.state.ahead(), self.state.now, len(self.state.events)
            self.run(body)
            if self.state.ahead() == ahead or walked == _WALKED:
                self._repeat(left - walked, began, first)
                return

    def _repeat(self, times: int, began: int, first: int) -> None:
        """Draws an iteration out to `times` its length: every sum and every overlap is that of so many."""
        state = self.state
        state.events[first:] = [
            replace(
                event,
                start_ps=began + (event.start_ps - began) * times,
                duration_ps=event.duration_ps * times,
                count=event.count * times,
            )
            for event in state.events[first:]
        ]
        state.now = began + (state.now - began) * times
