"""One compiled program, and what is asked of it when waste is looked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shardc.compiled.explain.change import Change, Given
from shardc.compiled.explain.flow import Flow
from shardc.compiled.explain.indices import Scope
from shardc.compiled.explain.parts import Part
from shardc.compiled.hlo.collectives import Collective
from shardc.compiled.hlo.text import Instruction, Module
from shardc.compiled.replay.pricing import price
from shardc.cost.model import LinkModel
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES, DType
from shardc.ir.expressions import Pattern, Use
from shardc.ir.mesh import Mesh
from shardc.ir.names import KEYWORDS
from shardc.ir.plan import Cost
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Array, Sharding, spell
from shardc.planner import Objective, planned_at_once

_COPIES = frozenset({"copy", "copy-start", "copy-done", "convert", "bitcast", "reshape"})
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
class Compiled:
    """The program, its values' ways, its mesh and prices, and how its arguments lie."""

    module: Module
    flow: Flow
    mesh: Mesh
    model: LinkModel
    parts: dict[str, Part]  # by key: what its collectives move, in order
    given: tuple[Given | None, ...] = ()  # by number of the entry's parameter
    explicit: bool = False  # Explicit axes: JAX's types say how each array lies
    _planned: dict[tuple[Change, Objective], Better | None] = field(default_factory=dict)

    def cost(self, keys: Sequence[str]) -> tuple[int, float]:
        """Wire bytes and seconds of parts, over all their runs: each its share of the collective's."""
        found = [self.parts[key] for key in keys]
        seconds = sum(
            price(part.collective, self.model).time_ps * part.total_bytes / part.collective.wire_bytes for part in found
        )
        return sum(part.total_bytes for part in found), seconds / 10**12

    def alone(self, keys: Sequence[str]) -> float:
        """Seconds of one run of each part, were each a collective of its own."""
        return sum(price(_alone(self.parts[key]), self.model).time_ps for key in keys) / 10**12

    def place(self, part: Part) -> str:
        """Its source line; of one that the compiler put in, that of its nearest use, or its operand."""
        if part.is_one_of_several:
            own = self._maker_line(part)
        else:
            own = part.collective.source
        return own or self._used_at(part) or self._maker_line(part) or part.collective.source

    def _maker_line(self, part: Part) -> str:
        made = self.maker(part)
        return "" if made is None else self._line(made)

    def maker(self, part: Part) -> Instruction | None:
        """The operation whose result is moved, behind copies that the compiler made."""
        found = part.operand
        for _ in range(_MOST_COPIES):
            if found is None or "op_name" in found.metadata or not found.operands or found.opcode not in _COPIES:
                break
            found = part.scope.computation.by_name.get(found.operands[0])
        return found

    def _used_at(self, part: Part) -> str:
        """The source line of the nearest use that has one."""
        users = self.flow.users(part.scope.computation)
        waiting = [at.instruction for at, _ in part.arrives]
        if any(at.element is not None for at, _ in part.arrives):
            taken = {str(at.element) for at, _ in part.arrives}
            gets = [user for made in waiting for user in users.get(made.name, ())]
            waiting = [user for user in gets if user.attributes.get("index") in taken] or waiting
        for _ in range(_MOST_COPIES):
            nearest = [user for made in waiting for user in users.get(made.name, ())]
            lines = [line for user in nearest if (line := self._line(user))]
            if lines or not nearest:
                return lines[0] if lines else ""
            waiting = nearest[:_MOST_COPIES]
        return ""

    def _line(self, instruction: Instruction) -> str:
        """Its own line, or the first in what a fusion calls."""
        inside = instruction.called() if instruction.opcode == "fusion" else ()
        bodies = [self.module.computation(name).instructions for name in inside]
        lines = (self.module.source(one) for one in [instruction, *(one for body in bodies for one in body)])
        return next((line for line in lines if line), "")

    def is_latency(self, keys: Sequence[str]) -> bool:
        """Would collectives of one byte take as long? Then hops decide, and bytes cost nothing yet."""
        found = [_alone(self.parts[key]) for key in keys]
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
        key = (change, objective)
        if key not in self._planned:
            self._planned[key] = None if is_large(change) else self._plan(change, objective)
        return self._planned[key]

    def _plan(self, change: Change, objective: Objective) -> Better | None:
        program = resharding(change.before, change.after, self.mesh)
        try:
            found = planned_at_once(program, self.model, objective)
        except ShardcError:
            return None
        return Better(program, found.cost, found.bound_bytes)


def _alone(part: Part) -> Collective:
    """A part as a collective of its own."""
    return replace(part.collective, local_bytes=part.local_bytes, wire_bytes=part.wire_bytes)


def is_large(change: Change) -> bool:
    """Would it take long to plan?"""
    return len(change.before.dims) * len(change.before.sharding.used | change.after.used) > _MOST_SEARCHED


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
    words = [word for word in _WORD.findall(text) if word not in KEYWORDS]
    return words[-1][:32] if words else otherwise


def dtype_of(hlo: str) -> DType | None:
    """The element type that HLO calls `bf16`, `s32`, `pred`."""
    return _DTYPE_BY_HLO.get(hlo)


_DTYPE_BY_HLO = {
    **{d.name: d for d in DTYPES.values() if not d.name.startswith(("int", "uint", "f8", "f4", "bool"))},
    **{d.name.replace("uint", "u").replace("int", "s"): d for d in DTYPES.values() if "int" in d.name},
    "f8e4m3fn": DTYPES["f8_e4m3fn"],
    "f8e5m2": DTYPES["f8_e5m2"],
    "pred": DTYPES["bool"],
}
