"""The prices of moves of f32 that is sent as bf16 (`lowering.rounded`), by the bytes of f32.

A search that goes by it finds what brings the fewest of the text's bytes, and takes the least of the compiler's time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from shardc.cost.alone import Alone
from shardc.cost.chips import Chip
from shardc.cost.links.level import Traffic
from shardc.cost.model import CostModel
from shardc.cost.rate import Rate
from shardc.ir.collectives import Move
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Op
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Array, Sharding
from shardc.lowering.pairs import Pairs
from shardc.lowering.rounds import rounds_before
from shardc.lowering.scatters import LocalBlock
from shardc.lowering.target import Target

_SHARE = 0.5  # of the bytes


@lru_cache(maxsize=64)
def narrow(model: CostModel) -> CostModel:
    """A model by which moves of what is rounded take half the bytes, but for sums; of one model the same."""
    return _Narrow(model)


@dataclass(frozen=True, slots=True, eq=False)
class _Narrow:
    """All but what a move takes is as of the `wide` model."""

    wide: CostModel

    @property
    def chip(self) -> Chip:
        return self.wide.chip

    @property
    def mesh(self) -> Mesh:
        return self.wide.mesh

    @property
    def target(self) -> Target:
        return self.wide.target

    @property
    def alone(self) -> Alone:
        return self.wide.alone

    def rate(self, move: Move) -> Rate:
        return _less(move, self.wide.rate(move))

    def emitted(self, move: Move, block: LocalBlock | None, before: Sharding | None = None) -> Rate:
        return _less(move, self.wide.emitted(move, block, before))

    def formula(self, move: Move, before: Array) -> str:
        return self.wide.formula(move, replace(before, dtype=DTYPES["bf16"]) if rounds_before(move.facts) else before)

    def leaves_output_apart(self, op: Op, rank: int) -> bool:
        return self.wide.leaves_output_apart(op, rank)

    def symbols(self) -> dict[str, float]:
        return self.wide.symbols()

    def has_parts(self, axis: str) -> bool:
        return self.wide.has_parts(axis)

    def sent(self, pairs: Pairs) -> Traffic | None:
        return self.wide.sent(pairs)

    def refined(self, by: Refinement) -> CostModel | None:
        finer = self.wide.refined(by)
        return None if finer is None else narrow(finer)


def _less(move: Move, rate: Rate) -> Rate:
    return _halved(rate) if rounds_before(move.facts) else rate


def _halved(rate: Rate) -> Rate:
    then = None if rate.then is None else _halved(rate.then)
    near_bytes, near = int(rate.near_bytes / _SHARE), rate.near_s_per_byte * _SHARE
    return replace(rate, s_per_byte=rate.s_per_byte * _SHARE, then=then, near_bytes=near_bytes, near_s_per_byte=near)
