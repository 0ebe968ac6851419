"""One compiled program, and what is asked of it when waste is looked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardc.compiled.explain.change import Change, Given
from shardc.compiled.explain.flow import Flow
from shardc.compiled.explain.indices import Scope
from shardc.compiled.hlo.collectives import Collective
from shardc.compiled.hlo.text import Instruction, Module
from shardc.compiled.replay.pricing import price
from shardc.cost.model import LinkModel
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES, DType
from shardc.ir.mesh import Mesh
from shardc.ir.names import RESERVED
from shardc.ir.plan import Cost
from shardc.ir.program import Input, Pattern, Program, Statement, Use
from shardc.ir.sharding import Array, Sharding, spell
from shardc.planner import Objective, planned_at_once

_COPIES = frozenset({"copy", "copy-start", "copy-done", "convert", "bitcast", "reshape"})
_RUNS = frozenset({"while", "conditional", "call"})
_DONE = "AsyncCollectiveDone"
_MOST_SEARCHED = 16  # dims times axes of a change that is worth planning
_MOST_COPIES = 64
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")


@dataclass(frozen=True, slots=True)
class Better:
    """The planner's way for a change: its cost, and the bytes that no method gets below."""

    program: Program
    cost: Cost
    bound_bytes: int

    @property
    def statement(self) -> str:
        return self.program.statements[0].text


@dataclass(frozen=True, slots=True)
class Gathering:
    """A gather of one array: the operation, what it gathers, and the instruction that has the result."""

    operation: Instruction
    operand: str
    result: Instruction


@dataclass(frozen=True, slots=True)
class Compiled:
    """The program, its values' ways, its mesh and prices, and how its arguments lie."""

    module: Module
    flow: Flow
    mesh: Mesh
    model: LinkModel
    collectives: dict[str, Collective]
    given: tuple[Given | None, ...] = ()  # by number of the entry's parameter
    explicit: bool = False  # Explicit axes: JAX's types say how each array lies

    def scopes(self, scope: Scope | None = None) -> Iterator[Scope]:
        """The computations that run in order: the entry, bodies of loops, branches."""
        scope = Scope(self.module.entry) if scope is None else scope
        yield scope
        for instruction in scope.computation.instructions:
            for name in instruction.called() if instruction.opcode in _RUNS else ():
                yield from self.scopes(scope.enter(self.module.computation(name), instruction))

    def cost(self, names: Sequence[str]) -> tuple[int, float]:
        """Wire bytes and seconds of collectives, over all their runs."""
        found = [self.collectives[name] for name in names]
        picoseconds = sum(price(one, self.model).time_ps * one.count for one in found)
        return sum(one.total_bytes for one in found), picoseconds / 10**12

    def places(self) -> dict[str, str]:
        """Each collective's source line; of one that the compiler put in, that of its nearest use, or its operand."""
        found = {}
        for scope in self.scopes():
            for instruction in scope.computation.instructions:
                if instruction.name in self.collectives:
                    own = self.collectives[instruction.name].source
                    found[instruction.name] = (
                        own or self._used_at(scope, instruction) or self._made_at(scope, instruction)
                    )
        return found

    def _used_at(self, scope: Scope, instruction: Instruction) -> str:
        """The source line of the nearest use that has one."""
        users = self.flow.users(scope.computation)
        waiting = [instruction]
        for _ in range(_MOST_COPIES):
            nearest = [user for made in waiting for user in users.get(made.name, ())]
            lines = [line for user in nearest if (line := self._line(user))]
            if lines or not nearest:
                return lines[0] if lines else ""
            waiting = nearest[:_MOST_COPIES]
        return ""

    def _made_at(self, scope: Scope, instruction: Instruction) -> str:
        known = [scope.computation.by_name[name] for name in instruction.operands if name in scope.computation.by_name]
        return next((line for made in known if (line := self._line(made))), "")

    def _line(self, instruction: Instruction) -> str:
        """Its own line, or the first in what a fusion calls."""
        inside = instruction.called() if instruction.opcode == "fusion" else ()
        bodies = [self.module.computation(name).instructions for name in inside]
        lines = (self.module.source(one) for one in [instruction, *(one for body in bodies for one in body)])
        return next((line for line in lines if line), "")

    def is_latency(self, names: Sequence[str]) -> bool:
        """Would collectives of one byte take as long? Then hops decide, and bytes cost nothing yet."""
        found = [self.collectives[name] for name in names]
        return all(price(replace(one, local_bytes=1), self.model) == price(one, self.model) for one in found)

    def copied_from(self, scope: Scope, name: str) -> Instruction | None:
        """The instruction that a value is a copy of, its shape kept."""
        found = scope.computation.by_name.get(name)
        for _ in range(_MOST_COPIES):
            before = None if found is None else self._before(scope, found)
            if before is None:
                break
            found = before
        return found

    def _before(self, scope: Scope, copy: Instruction) -> Instruction | None:
        """What an instruction copies; None if it is no copy."""
        before = scope.computation.by_name.get(copy.operands[0]) if copy.operands else None
        if before is None or not before.shapes or not copy.shapes or before.shapes[0].sizes != copy.shapes[0].sizes:
            return None
        if copy.opcode in _COPIES:
            return before
        if copy.opcode != "fusion" or len(copy.operands) != 1 or len(copy.called()) != 1:
            return None
        inner = scope.enter(self.module.computation(copy.called()[0]), copy)
        origin = self.copied_from(inner, inner.computation.root.name)
        return before if origin is not None and origin.opcode == "parameter" else None

    def gathering(self, scope: Scope, instruction: Instruction) -> Gathering | None:
        """The gather of one array that an instruction is, or begins.

        %start = (…) fusion(%a), calls=%begin        all-gather(%param), channel_id=1, inside
        %done = bf16[…] fusion(…), calls=%end        the same channel inside, AsyncCollectiveDone at the root
        """
        if instruction.opcode.removesuffix("-start") == "all-gather":
            return (
                Gathering(instruction, instruction.operands[0], instruction) if len(instruction.operands) == 1 else None
            )
        inner = self._inside(instruction, "all-gather")
        if inner is None or len(inner.operands) != 1:
            return None
        inside = self.module.computation(instruction.called()[0]).by_name[inner.operands[0]]
        for other in scope.computation.instructions:
            end = self._inside(other, "all-gather")
            same = end is not None and end.attributes.get("channel_id") == inner.attributes.get("channel_id", "")
            root = self.module.computation(other.called()[0]).root if same else other
            if _DONE in root.attributes.get("custom_call_target", "") and inside.opcode == "parameter":
                return Gathering(inner, instruction.operands[int(inside.literal)], other)
        return None

    def _inside(self, fusion: Instruction, opcode: str) -> Instruction | None:
        """The only instruction of that kind in what a fusion calls."""
        if fusion.opcode != "fusion" or len(fusion.called()) != 1:
            return None
        found = [i for i in self.module.computation(fusion.called()[0]).instructions if i.opcode == opcode]
        return found[0] if len(found) == 1 else None

    def argument(self, scope: Scope, name: str) -> Given | None:
        """The argument that a value is a copy of; its sharding only where it fits what a device is given."""
        origin = self.copied_from(scope, name)
        if scope.outer is not None or origin is None or origin.opcode != "parameter":
            return None
        number = int(origin.literal)
        known = self.given[number] if number < len(self.given) else None
        if known is None:
            return Given(array_name(origin.metadata.get("op_name", "")))
        lies = known.sharding
        if lies is None or lies.rank != len(known.shape) or not lies.divides(known.shape, self.mesh):
            return replace(known, sharding=None)
        fits = lies.local_shape(known.shape, self.mesh) == origin.shapes[0].sizes
        return known if fits else replace(known, sharding=None)

    def better(self, change: Change, objective: Objective = Objective.TIME) -> Better | None:
        """The planner's way, by time over the change's own axes; None where it has none, or would search long."""
        array, after = change.before, change.after
        if len(array.dims) * len(array.sharding.used | after.used) > _MOST_SEARCHED:
            return None
        program = resharding(array, after, self.mesh)
        try:
            found = planned_at_once(program, self.model, objective)
        except ShardcError:
            return None
        return Better(program, found.cost, found.bound_bytes)


def resharding(array: Array, after: Sharding, mesh: Mesh) -> Program:
    """`A[I_X, J] → A[I, J_X]`, as a program."""
    name, dims, kind = array.name, array.dims, array.dtype
    before, wanted = Pattern.exactly(array.sharding), Pattern.exactly(after)
    text = f"{array} → {name}{spell(dims, after)}"
    statement = Statement(name, dims, wanted, Use(name, dims, before, kind), kind, text)
    sizes = tuple(zip(dims, array.shape, strict=True))
    return Program(mesh, sizes, kind, (Input(name, dims, before, kind),), (statement,))


def array_name(text: str, otherwise: str = "A") -> str:
    """A name for the notation: `params['layer_0']['w']` is w."""
    words = [word for word in _WORD.findall(text) if word not in RESERVED]
    return words[-1][:32] if words else otherwise


def dtype_of(hlo: str) -> DType | None:
    """The element type that HLO calls `bf16`, `s32`, `pred`."""
    return _DTYPE_BY_HLO.get(hlo)


_DTYPE_BY_HLO = {
    **{d.name: d for d in DTYPES.values() if not d.name.startswith(("int", "uint", "f8"))},
    **{f"{d.name[0].replace('i', 's')}{8 * d.bytes}": d for d in DTYPES.values() if "int" in d.name},
    "f8e4m3fn": DTYPES["f8_e4m3fn"],
    "f8e5m2": DTYPES["f8_e5m2"],
    "pred": DTYPES["int8"],
}
