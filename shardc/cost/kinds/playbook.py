"""The Ultra-Scale Playbook's activation memory, m = L·s·b·h·(34 + 5·a·s/h), for the transformer layers of a program.

It is of bf16 without recomputation, all devices together, by what a layer keeps (Korthikanti et al., 2022), in s·b·h:

    norms        2 inputs                              4
    attention    input, Q, K, V, out                   10     softmax                                   2·a·s/h
    MLP          input, hidden before and after gelu   18
    dropout      2 masks                               2      the softmax's mask, what it leaves        3·a·s/h

It applies where forward has self-attention, a softmax over a dim of keys as long as one of its dims of queries, and an
MLP, something of all tokens with a dim that is neither the tokens', nor the model's, nor a head's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardc.cost.kinds.told import Kind, Told
from shardc.ir.plan import Apply, Block, Done, single_steps
from shardc.ir.sharding import Array

PER_TOKEN, OF_SCORES = 34, 5
UNDROPPED, SCORES_UNDROPPED = 32, 2  # without what dropout keeps, which the notation has not


@dataclass(frozen=True, slots=True)
class Layers:
    """L layers on b rows of s tokens, of h numbers each, with a heads; and which dims these are."""

    layers: int
    rows: int
    tokens: int
    hidden: int
    heads: int
    dims: tuple[tuple[str, str], ...]  # `("s", "T")`, `("a", "G·R")`

    @property
    def unit(self) -> int:
        """L·s·b·h."""
        return self.layers * self.rows * self.tokens * self.hidden

    def bytes_of(self, per_token: int = PER_TOKEN, of_scores: int = OF_SCORES) -> int:
        """The formula's figure: of all devices together."""
        return self.unit * per_token + of_scores * self.layers * self.rows * self.tokens**2 * self.heads


def layers_of(told: Told, block: Block) -> Layers | None:
    """What the formula needs of forward; nothing of what has no such layers, or layers of different sizes."""
    made = [
        (done, done.block.values[done.step.result])
        for done in single_steps(block)
        if told.flow.first[done.path[:-1]] + done.step.result in told.forward
    ]
    given = [told.flow.values[n] for n in told.flow.inputs if told.kinds[n] in (Kind.ACTIVATIONS, Kind.TEMPORARIES)]
    found = [(each, done.times) for done, scores in made if (each := _attention(done, scores, given)) is not None]
    if not found or any(each != found[0][0] for each, _ in found):
        return None
    one, arrays = found[0][0], [array for _, array in made]
    return one.layers(sum(times for _, times in found)) if one.has_mlp(arrays) else None


@dataclass(frozen=True, slots=True)
class _Attention:
    """The dims of its scores and of the model's input, by what they are."""

    rows: tuple[str, ...]
    queries: str
    keys: str
    hidden: tuple[str, ...]
    heads: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]

    def layers(self, count: int) -> Layers:
        sizes = dict(self.sizes)
        b, h, a = (prod(sizes[dim] for dim in dims) for dims in (self.rows, self.hidden, self.heads))
        named = (("b", self.rows), ("s", (self.queries,)), ("h", self.hidden), ("a", self.heads))
        dims = tuple((name, "·".join(dims)) for name, dims in named if dims)
        return Layers(count, b, sizes[self.queries], h, a, dims)

    def has_mlp(self, arrays: Sequence[Array]) -> bool:
        """Whether some array of all tokens has a dim that is of no key, so of no head either, and not the model's."""
        tokens = {*self.rows, self.queries}
        of_keys = {dim for array in arrays if self.keys in array.dims for dim in array.dims}
        known = tokens | of_keys | {*self.hidden, *self.heads}
        return any(tokens < set(array.dims) and not known >= set(array.dims) for array in arrays)


def _attention(done: Done, scores: Array, given: Sequence[Array]) -> _Attention | None:
    """A softmax over keys that are as many as the queries, of an input that has dims beside the tokens'."""
    op = done.step.op
    if not isinstance(op, Apply) or op.function != "softmax" or len(op.over) != 1:
        return None
    (keys,), sizes = op.over, dict(zip(scores.dims, scores.shape, strict=True))
    for array in given:
        tokens = [dim for dim in array.dims if dim in sizes and dim != keys]
        alike = [dim for dim in tokens if sizes[dim] == sizes[keys]]
        hidden = tuple(dim for dim in array.dims if dim not in sizes)
        if alike and hidden:
            rows = tuple(dim for dim in tokens if dim != alike[-1])
            heads = tuple(dim for dim in scores.dims if dim not in (*tokens, keys))
            every = sizes | dict(zip(array.dims, array.shape, strict=True))
            return _Attention(rows, alike[-1], keys, hidden, heads, tuple(sorted(every.items())))
    return None
