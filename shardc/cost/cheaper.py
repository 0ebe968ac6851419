"""Models by which some moves take less, for searches that know of a step nothing of what is around it.

    narrow          f32 that is sent as bf16 (`lowering.rounded`), by the bytes of f32: what brings the fewest of the
                    text's bytes is found by what takes the least of the compiler's time
    beside_products AllGathers and CollectivePermutes of which the compiler hides a part beside products
                    (`cost.prefetch`): a scatter and a gather take less than the AllReduce whose bytes they bring

A plan that is found so is priced as it will be done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from shardc.cost.alone import Alone
from shardc.cost.chips import Chip
from shardc.cost.links.level import Traffic
from shardc.cost.model import CostModel
from shardc.cost.rate import Rate
from shardc.ir.collectives import Move
from shardc.ir.dtypes import DTYPES, DType
from shardc.ir.exchange import Pairs
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Op
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Array, Sharding
from shardc.lowering.rounds import rounds_before
from shardc.lowering.scatters import LocalBlock
from shardc.lowering.target import Target
from shardc.lowering.timed import gathers_beside_products, hides_permutes

_HIDDEN = 0.3  # of what is sent beside a product, as most of that is which plans of whole programs begin early


@lru_cache(maxsize=64)
def narrow(model: CostModel) -> CostModel:
    """A model by which moves of what is rounded take half the bytes, but for sums; of one model the same."""
    return _Cheaper(model, _is_narrow, 0.5, DTYPES["bf16"])


@lru_cache(maxsize=64)
def beside_products(model: CostModel) -> CostModel:
    """A model by which moves take what is not hidden of them; of one model the same."""
    kinds = hidden_beside_products(model.target)
    return _Cheaper(model, lambda move: move.facts.kind in kinds, 1 - _HIDDEN)


def _is_narrow(move: Move) -> bool:
    return rounds_before(move.facts)


def hidden_beside_products(target: Target) -> frozenset[Kind]:
    """The kinds of moves that the compiler of a slice does beside products."""
    permutes = target.names_slice and hides_permutes(target)
    known = ((Kind.GATHER, gathers_beside_products(target)), (Kind.PERMUTE, permutes))
    return frozenset(kind for kind, is_hidden in known if is_hidden)


@dataclass(frozen=True, slots=True, eq=False)
class _Cheaper:
    """All but what such a move takes, this share of the whole, is as of the `dear` model."""

    dear: CostModel
    applies: Callable[[Move], bool]
    share: float
    sent_as: DType | None = None  # else as it is

    @property
    def chip(self) -> Chip:
        return self.dear.chip

    @property
    def mesh(self) -> Mesh:
        return self.dear.mesh

    @property
    def target(self) -> Target:
        return self.dear.target

    @property
    def alone(self) -> Alone:
        return self.dear.alone

    def rate(self, move: Move) -> Rate:
        return self._less(move, self.dear.rate(move))

    def emitted(self, move: Move, block: LocalBlock | None, before: Sharding | None = None) -> Rate:
        return self._less(move, self.dear.emitted(move, block, before))

    def formula(self, move: Move, before: Array) -> str:
        sent = before if self.sent_as is None or not self.applies(move) else replace(before, dtype=self.sent_as)
        return self.dear.formula(move, sent)

    def leaves_output_apart(self, op: Op, rank: int) -> bool:
        return self.dear.leaves_output_apart(op, rank)

    def symbols(self) -> dict[str, float]:
        return self.dear.symbols()

    def has_parts(self, axis: str) -> bool:
        return self.dear.has_parts(axis)

    def sent(self, pairs: Pairs) -> Traffic | None:
        return self.dear.sent(pairs)

    def refined(self, by: Refinement) -> CostModel | None:
        finer = self.dear.refined(by)
        return None if finer is None else _Cheaper(finer, self.applies, self.share, self.sent_as)

    def _less(self, move: Move, rate: Rate) -> Rate:
        return _of(rate, self.share) if self.applies(move) else rate


def _of(rate: Rate, share: float) -> Rate:
    then = None if rate.then is None else _of(rate.then, share)
    near_bytes, near = int(rate.near_bytes / share), rate.near_s_per_byte * share
    return replace(rate, s_per_byte=rate.s_per_byte * share, then=then, near_bytes=near_bytes, near_s_per_byte=near)
