"""The collectives of a compiled program: what each brings to a device, how often, and where it comes from.

Reading them at face value goes wrong in known ways, each of which has its place here:

- `all-gather-start` and `all-gather-done`, or `async-start` of a computation, are one collective.
- So are the fusions into which v5e's compiler cuts an asynchronous one: `AsyncCollectiveStart` in the first, a part
  beside each product, `AsyncCollectiveDone` in the last. Each of them shows it whole.
- `fusion(…), kind=kCustom, calls=%all-reduce-scatter` is a ReduceScatter. Inside stands an all-reduce over an
  array that is padded until its shares are whole tiles, of which each device keeps a slice; beside it stand small
  permutes (*halos*), which bring each device the rows that the padding put on its neighbour.
- What a while loop's body does is done as often as the loop runs, and what its condition does once more.
- Several arrays in one collective are one collective of their bytes; a group of one device moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, assert_never

from shardc.compiled.hlo.groups import Groups, axes_of_groups, axes_of_pairs, read_groups, read_pairs
from shardc.compiled.hlo.loops import trip_count
from shardc.compiled.hlo.text import Computation, Instruction, Module
from shardc.ir.collectives import COLLECTIVE_NAMES, all_but_own
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.sharding import Axes

KINDS = {
    "all-gather": "AllGather",
    "all-reduce": "AllReduce",
    "reduce-scatter": "ReduceScatter",
    "all-to-all": "AllToAll",
    "ragged-all-to-all": "AllToAll",
    "collective-permute": "CollectivePermute",
    "collective-broadcast": "CollectiveBroadcast",
}


Callers: TypeAlias = tuple[tuple[Computation, Instruction], ...]


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of a compiled program.

    `local_bytes` of one device before it, unpadded; `wire_bytes` received by the busiest device, each time it runs.
    """

    kind: str
    name: str  # of the instruction
    local_bytes: int
    wire_bytes: int
    group_size: int
    groups: Groups  # of a permute, its pairs
    axes: Axes | None  # None without a mesh, or where groups are not made of whole axes
    is_async: bool = False
    count: int = 1  # how often it runs
    count_known: bool = True
    part_of: str = ""  # the padded ReduceScatter that a halo permute belongs to
    padded: bool = False
    scope: str = ""  # the names that the program gave to this place
    source: str = ""
    algorithm: str = ""  # as the compiler names it
    arrays: tuple[int, ...] = ()  # of several arrays moved together, the local bytes of each; of one, its own

    @property
    def total_bytes(self) -> int:
        return self.wire_bytes * self.count


@dataclass(frozen=True, slots=True)
class Met:
    """A collective where it runs: the instruction that does it, and the calls on the way there, outermost first."""

    collective: Collective
    computation: Computation
    instruction: Instruction
    callers: Callers


@dataclass(frozen=True)
class Reader:
    """Reads the collectives of one module; axes have names if the mesh is known."""

    module: Module
    mesh: Mesh | None = None

    def all(self) -> tuple[Collective, ...]:
        """Every collective that runs, in order; of a conditional, those of its costliest branch."""
        return tuple(met.collective for met in self.met())

    def met(self) -> tuple[Met, ...]:
        """The same, each with the place where it runs: what is called from two places is met twice."""
        return tuple(self._within(self.module.entry, ()))

    def _within(self, computation: Computation, callers: Callers) -> Iterator[Met]:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            inside = (*callers, (computation, instruction))
            if opcode == "while":
                yield from self._loop(computation, instruction, inside)
            elif opcode == "conditional":
                branches = [tuple(self._called(name, inside)) for name in instruction.called()]
                yield from max(branches, key=lambda found: sum(met.collective.total_bytes for met in found), default=())
            elif opcode.endswith("-start") and opcode.removesuffix("-start") not in KINDS:
                yield from self._wrapped(instruction, inside)
            elif (found := self.collective(computation, instruction)) is not None:
                yield Met(found, computation, instruction, callers)
            elif opcode in ("call", "fusion", "custom-call"):
                for name in instruction.called():
                    yield from self._called(name, inside)

    def _called(self, name: str, callers: Callers) -> Iterator[Met]:
        return self._within(self.module.computation(name), callers)

    def _loop(self, computation: Computation, loop: Instruction, callers: Callers) -> Iterator[Met]:
        trips = trip_count(self.module, computation, loop)
        for part, more in (("condition", 1), ("body", 0)):
            for met in self._called(loop.attributes[part].lstrip("%"), callers):
                found, times = met.collective, 1 if trips is None else trips + more
                known = found.count_known and trips is not None
                yield replace(met, collective=replace(found, count=found.count * times, count_known=known))

    def collective(self, computation: Computation, instruction: Instruction) -> Collective | None:
        """What an instruction is as a collective; None if it is none, or only the end of one."""
        opcode = instruction.opcode.removesuffix("-start")
        if opcode in KINDS:
            if self._goes_on(computation, instruction):
                return None
            found = self._plain(KINDS[opcode], computation, instruction)
            if found.kind == "CollectivePermute":
                whole = self._halo_of(computation, instruction)
                if whole is not None:
                    found = replace(found, part_of=whole.name, scope=whole.scope, source=whole.source)
            return replace(found, is_async=instruction.opcode.endswith("-start"))
        if instruction.opcode.endswith("-start"):
            return next((met.collective for met in self._wrapped(instruction)), None)
        if opcode == "fusion":
            return self._fused(instruction) or self._cut(instruction)
        return None

    def ends(self, computation: Computation, instruction: Instruction) -> str:
        """The name of the instruction whose asynchronous collective this one waits for; empty if it waits for none."""
        if instruction.opcode.endswith("-done"):
            return instruction.operands[0]
        return self._begun(computation, instruction.operands[0]) if self._is(instruction, "AsyncCollectiveDone") else ""

    def _begun(self, computation: Computation, name: str) -> str:
        """The start whose result it is, handed on from fusion to fusion that does a part; empty if it is none's.

            start = fusion(w)                      AsyncCollectiveStart
            T, w1, … = fusion(x, start[0], …)      a product, and a part; w1 is the start[0] that it was given
            done = fusion(w1, …)                   AsyncCollectiveDone

        Their channels do not tell: the compiler gives many collectives one.
        """
        found = computation.by_name[name]
        if found.opcode != "get-tuple-element":
            return ""
        made = computation.by_name[found.operands[0]]
        if self._is(made, "AsyncCollectiveStart"):
            return made.name
        if made.opcode != "fusion":
            return ""
        inner = self.module.computation(made.called()[0])
        given = inner.by_name[inner.root.operands[int(found.attributes["index"])]]
        return self._begun(computation, made.operands[int(given.literal)]) if given.opcode == "parameter" else ""

    def _wrapped(self, start: Instruction, callers: Callers = ()) -> Iterator[Met]:
        """Those of the computations that an asynchronous start runs; it may run several at once."""
        for name in start.called():
            for met in self._called(name, callers):
                yield replace(met, collective=replace(met.collective, name=start.name, is_async=True))

    def _cut(self, fusion: Instruction) -> Collective | None:
        """The fusion that starts an asynchronous collective, of which later fusions do a part each."""
        if not self._is(fusion, "AsyncCollectiveStart"):
            return None
        inner = self.module.computation(fusion.called()[0])
        begun = (i for i in inner.instructions if i.opcode in KINDS)
        found = next((self._plain(KINDS[i.opcode], inner, i) for i in begun), None)
        return found and replace(found, name=fusion.name, is_async=True)

    def _goes_on(self, computation: Computation, instruction: Instruction) -> bool:
        """Whether an instruction is a further part of an asynchronous collective that some fusion starts."""
        return (
            computation is not self.module.entry
            and "async_collective_fusion_config" in instruction.backend
            and instruction.attributes.get("channel_id", "") in self._cut_channels
        )

    @cached_property
    def _cut_channels(self) -> frozenset[str]:
        every = (i for computation in self.module.computations.values() for i in computation.instructions)
        return frozenset().union(*(self._channels(i) for i in every if self._is(i, "AsyncCollectiveStart")))

    def _is(self, fusion: Instruction, target: str) -> bool:
        """Whether it is a fusion that holds such a custom call."""
        if fusion.opcode != "fusion":
            return False
        inner = self.module.computation(fusion.called()[0]).instructions
        return any(i.attributes.get("custom_call_target") == f'"{target}"' for i in inner)

    def _channels(self, fusion: Instruction) -> frozenset[str]:
        """Those of the collectives in a fusion."""
        inner = self.module.computation(fusion.called()[0]).instructions
        return frozenset(i.attributes.get("channel_id", "") for i in inner if i.opcode in KINDS)

    def _fused(self, fusion: Instruction) -> Collective | None:
        """`%all-reduce-scatter`: the all-reduce inside, as the ReduceScatter that it is."""
        if not is_fused_scatter(fusion):
            return None
        inner = self.module.computation(fusion.called()[0])
        for instruction in inner.instructions:
            if instruction.opcode != "all-reduce":
                continue
            operands = [inner.by_name[name] for name in instruction.operands]
            bare = [inner.by_name[o.operands[0]] if o.opcode == "pad" else o for o in operands]
            found = self._plain("ReduceScatter", inner, instruction, tuple(o.bytes for o in bare))
            return replace(
                found,
                name=fusion.name,
                padded=bare != operands,
                scope=fusion.metadata.get("op_name", found.scope),
                source=self.module.source(fusion) or found.source,
                algorithm=_algorithm(fusion),
            )
        return None

    def _plain(
        self, kind: str, computation: Computation, instruction: Instruction, arrays: tuple[int, ...] | None = None
    ) -> Collective:
        if arrays is None:
            arrays = _operand_bytes(kind, computation, instruction)
        local_bytes = sum(arrays)
        if kind == "CollectivePermute":
            groups = read_pairs(instruction.attributes.get("source_target_pairs", "{}"))
            moves = any(source != target for source, target in groups)
            size, axes = (2 if moves else 1), axes_of_pairs(groups, self.mesh) if self.mesh else None
        else:
            groups = read_groups(instruction.attributes.get("replica_groups", "{}"), self.module.devices)
            size, axes = max(map(len, groups)), axes_of_groups(groups, self.mesh) if self.mesh else None
        scope, source = self._place(instruction)
        return Collective(
            kind,
            instruction.name,
            local_bytes,
            wire_bytes(kind, size, local_bytes),
            size,
            groups,
            axes,
            scope=scope,
            source=source,
            algorithm=_algorithm(instruction),
            arrays=arrays,
        )

    def _halo_of(self, computation: Computation, permute: Instruction) -> Collective | None:
        """The padded ReduceScatter whose neighbour's rows a permute brings: its operand is a slice of that result."""
        name = permute.operands[0]
        for _ in range(4):
            instruction = computation.by_name.get(name)
            if instruction is None:
                return None
            if is_fused_scatter(instruction):
                found = self._fused(instruction)
                return found if found is not None and found.padded else None
            if instruction.opcode not in ("slice", "bitcast", "reshape", "copy", "fusion") or not instruction.operands:
                return None
            name = instruction.operands[0]
        return None

    def _place(self, instruction: Instruction) -> tuple[str, str]:
        """Scope and source line. Where the compiler made the instruction anew, its sum still has them."""
        scope, source = instruction.metadata.get("op_name", ""), self.module.source(instruction)
        summed = self.module.computations.get(instruction.attributes.get("to_apply", "").lstrip("%"))
        if summed is not None and not scope:
            scope = next((p.metadata["op_name"] for p in summed.parameters if "op_name" in p.metadata), "")
        if summed is not None and not source:
            source = self.module.source(summed.root)
        return scope, source


def kind_of(name: str) -> Kind:
    """What a collective of that name does with blocks; one of no name of ours sends them on, as a permute does."""
    return COLLECTIVE_NAMES[name].facts.kind if name in COLLECTIVE_NAMES else Kind.PERMUTE


def wire_bytes(name: str, n: int, local_bytes: int) -> int:
    """The bytes that each of n devices receives; `local_bytes` before the collective."""
    if n <= 1:
        return 0
    match kind_of(name):
        case Kind.GATHER:
            return (n - 1) * local_bytes
        case Kind.SUM:
            return all_but_own(n, 2 * local_bytes)
        case Kind.SCATTER | Kind.EXCHANGE:
            return all_but_own(n, local_bytes)
        case Kind.PERMUTE:
            return local_bytes
        case Kind.SLICE | Kind.MASK | Kind.LOCAL | Kind.LOOP:
            return 0
        case kind:
            assert_never(kind)


def is_fused_scatter(instruction: Instruction) -> bool:
    return instruction.opcode == "fusion" and any(
        name.startswith("all-reduce-scatter") for name in instruction.called()
    )


def _operand_bytes(kind: str, computation: Computation, instruction: Instruction) -> tuple[int, ...]:
    """Of each array that is moved."""
    operands = [computation.by_name[name] for name in instruction.operands if name in computation.by_name]
    if instruction.opcode.startswith("ragged"):  # it also names the result's buffer, and what to send and where
        operands = operands[:1]
    if kind == "AllToAll" and "dimensions" not in instruction.attributes:  # one array, cut into a piece for each device
        return (sum(operand.bytes for operand in operands),)
    if kind == "CollectivePermute":
        # A permute into a given buffer also names the buffer, and where to read and write.
        in_place = len(operands) == 4 and operands[2].shapes[0].dtype in ("s32", "u32")
        operands = operands[:1] if in_place else operands
    return tuple(operand.bytes for operand in operands)


def _algorithm(instruction: Instruction) -> str:
    config = instruction.backend.get("collective_algorithm_config", {})
    return " ".join(str(config[key]) for key in ("emitter", "strategy") if config.get(key))
