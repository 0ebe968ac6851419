"""What the arrays of a training step are for, told from what is computed of what, by no name.

    Out[B_X, F] = In[B_X, D] ·_D W[D, F]         forward
    dW[D, F] = In ·_B dOut[B_X, F]               backward
    m_new = 0.9 ⊙ m: f32[D_X, F] + 0.1 ⊙ f32(dW); …; W_new[D, F] = bf16(p_new)

- an *incoming gradient*, dOut, is an input with the dims of an output, Out, that does not depend on it and is made
  before it is read; such outputs, and what they are made of, are *forward*, what is made of dOut is *backward*. Where
  no weight has a gradient so, the first one read is passed over: a loss has targets, of the dims of its output too;
- a *gradient* has the dims of an input that forward reads, and is linear in the incoming gradients: dW. An input that
  it is added to is one too: the sum over the micro-batches so far;
- *weights* are the inputs that have a gradient and no dim of the tokens, and the outputs of their dims and type that
  depend on one and are none: W, W_new. The tokens' dims are those that all products of forward share, and share with
  the inputs that have no gradient, if these have any of them: B. Where each input with a gradient has some dim of
  the tokens, they are those that a loop over tokens takes in each trip as they are, and else, if no dim is common to
  all of them, nothing tells which are weights, and all are;
- *optimizer* state are inputs of a weight's dims that forward does not read and that come out again: an output of the
  same dims and type, each of one input, depends on it and on a gradient: m, m_new;
- *activations* are what is forward, made before backward begins (or before it makes anything `again`) and read for it,
  but for weights: In. As weights, they stay what they are in another sharding, and as the part of a loop's trip;
- all else is *temporaries*: what is used at once, and the step's own dOut and Out.

A program that only updates weights, by gradients that it is given, is told by `update.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from math import prod

from shardc.cost.kinds.flow import Flow
from shardc.cost.kinds.linear import State, states
from shardc.cost.kinds.update import Update, update
from shardc.ir import dtypes
from shardc.ir.plan import Block, Einsum
from shardc.ir.sharding import Array
from shardc.lowering.repeats import is_again


class Kind(Enum):
    """What an array is for."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"


@dataclass(frozen=True, slots=True)
class Told:
    """The kind of each value of a flow, and what forward leaves for backward, each as it is outside of loops."""

    flow: Flow
    kinds: tuple[Kind, ...]
    kept: tuple[int, ...]
    parameters: int  # elements of all weights, on all devices
    forward: frozenset[int]  # what is made before backward begins
    incoming: int  # the incoming gradients: a bit for each input


def told(block: Block) -> Told | None:
    """Nothing of what is no training step: where no gradient comes in, or no weight has one."""
    flow = Flow.of(block)
    deps, passed_over = flow.reached(), 0
    alone = update(flow, deps)
    if alone is not None:
        return _told_of_update(flow, alone)
    while True:
        step = _TrainingStep.of(flow, deps, passed_over)
        found = None if step is None else step.told()
        if step is None or found is not None:
            return found
        passed_over |= 1 << _first_read(
            flow, step.incoming
        )  # what forward reads after an output: the targets of a loss


def _told_of_update(flow: Flow, found: Update) -> Told:
    kinds = [Kind.TEMPORARIES] * len(flow.values)
    of = {Kind.WEIGHTS: found.weights, Kind.OPTIMIZER: found.state, Kind.GRADIENTS: found.gradients}
    for kind, inputs in of.items():
        outputs = {found.again[one] for one in inputs if one in found.again}
        for number in flow.alike({*inputs}, back=False) | flow.alike(outputs, back=True):
            kinds[number] = kind
    parameters = sum(_elements(flow.values[number]) for number in found.weights)
    incoming = sum(1 << flow.inputs.index(one) for one in found.gradients)
    return Told(flow, tuple(kinds), (), parameters, frozenset(), incoming)


@dataclass(frozen=True, slots=True)
class _TrainingStep:
    """A training step. Sets of inputs are numbers with a bit for each."""

    flow: Flow
    deps: list[int]
    incoming: int
    forward: int  # the inputs that forward reads

    @classmethod
    def of(cls, flow: Flow, deps: list[int], passed_over: int = 0) -> _TrainingStep | None:
        incoming = _incoming(flow, deps, passed_over)
        forward = 0
        for number in flow.outputs:
            forward |= 0 if deps[number] & incoming else deps[number]
        return cls(flow, deps, incoming, forward) if incoming else None

    def told(self) -> Told | None:
        flow = self.flow
        sums = {number for number in self._inputs(~self.forward & ~self.incoming) if self._is_sum(number)}
        linear = self._linear(sums)
        weights = self._weights({one for one in self._inputs(self.forward) if any(self._alike(one, linear))})
        if not weights:
            return None
        updates = self._updates(weights, linear)
        state = self._state(weights, updates, sums)
        linear = self._linear(sums - state)
        gradients = {number for one in weights for number in self._alike(one, linear)} | (sums - state)
        of_weights = flow.alike(weights, back=False) | flow.alike(updates, back=True)
        kept = self._kept(of_weights)
        found = {
            Kind.ACTIVATIONS: flow.alike(set(kept), back=False),
            Kind.GRADIENTS: flow.alike(gradients, back=True) | flow.alike(gradients, back=False),
            Kind.OPTIMIZER: flow.alike(state, back=False) | flow.alike(state - set(flow.inputs), back=True),
            Kind.WEIGHTS: of_weights,
        }
        kinds = [Kind.TEMPORARIES] * len(flow.values)
        for kind, values in found.items():
            for number in values:
                kinds[number] = kind
        parameters = sum(_elements(flow.values[number]) for number in weights)
        made = (link.target for link in flow.links[: self._begun] if link.step is not None)
        return Told(flow, tuple(kinds), kept, parameters, frozenset(filter(self._is_forward, made)), self.incoming)

    def _inputs(self, among: int) -> Iterator[int]:
        """The inputs of floats among these."""
        return (
            number
            for place, number in enumerate(self.flow.inputs)
            if among >> place & 1 and self.flow.values[number].dtype.kind is dtypes.Kind.FLOAT
        )

    def _bit(self, number: int) -> int:
        return 1 << self.flow.inputs.index(number)

    def _linear(self, sums: Collection[int]) -> set[int]:
        """What depends on the incoming gradients, and is linear in them and these sums."""
        together = self.incoming
        for number in sums:
            together |= self._bit(number)
        found = enumerate(states(self.flow, together))
        return {number for number, state in found if state is State.LINEAR and self.deps[number] & self.incoming}

    def _alike(self, one: int, among: Collection[int]) -> Iterator[int]:
        """What has the dims of a value."""
        return (number for number in among if _same_dims(self.flow.values[number], self.flow.values[one]))

    def _is_sum(self, number: int) -> bool:
        """Whether gradients are added to an input."""
        bit = self._bit(number)
        return any(self.deps[one] & bit for one in self._alike(number, self._linear([number])))

    def _weights(self, found: set[int]) -> set[int]:
        """Those of some inputs with gradients that have no dim of the tokens."""
        values, tokens = self.flow.values, self._tokens(found)
        apart = {number for number in found if not tokens & set(values[number].dims)}
        if apart or not found:
            return apart
        fixed = self._in_each_trip(found, tokens)
        if fixed:
            return fixed
        return set() if tokens.intersection(*(values[number].dims for number in found)) else found

    def _in_each_trip(self, found: set[int], tokens: set[str]) -> set[int]:
        """Those that loops take in each trip as they are, beside tokens that they take row by row."""
        flow = self.flow
        by_row = {number for number in flow.inputs if not flow.rows.keys().isdisjoint(flow.alike({number}, back=False))}
        if not any(tokens.intersection(flow.values[number].dims) for number in by_row):
            return set()
        taken = {flow.outside(inner) for inner in flow.outer}.difference(flow.rows)
        return {number for number in found - by_row if not taken.isdisjoint(flow.alike({number}, back=False))}

    def _tokens(self, found: set[int]) -> set[str]:
        """The dims of the tokens, where these inputs have gradients."""
        values, products = self.flow.values, list[set[str]]()
        for link in self.flow.links:
            is_product = link.step is not None and isinstance(link.step.op, Einsum) and len(link.sources) == 2
            if is_product and self._is_forward(link.target):
                products.append(set(values[link.target].dims))
        tokens = set.intersection(*products) if products else set[str]()
        others = [n for place, n in enumerate(self.flow.inputs) if self.forward >> place & 1 and n not in found]
        return tokens.intersection(dim for number in others for dim in values[number].dims) or tokens

    def _is_forward(self, number: int) -> bool:
        return self.deps[number] != 0 and not self.deps[number] & ~self.forward

    def _is_backward(self, number: int) -> bool:
        return self.deps[number] & self.incoming != 0

    def _updates(self, weights: set[int], linear: set[int]) -> set[int]:
        """The outputs that are weights again: of those of a weight's dims and type, those of the most inputs."""
        found = set[int]()
        own = ~self.forward & ~self.incoming
        left = [number for number in self.flow.outputs if self._is_backward(number) and number not in linear]
        left.sort(key=lambda number: -(self.deps[number] & own).bit_count())
        for one in weights:
            alike = (n for n in self._alike(one, left) if n not in found and self._same_type(n, one))
            found |= set(islice(alike, 1))
        return found

    def _state(self, weights: set[int], updates: set[int], sums: set[int]) -> set[int]:
        """What comes out again, as it came in and as it goes out; the one that the fewest outputs are made of first."""
        left = [number for number in self.flow.outputs if self._is_backward(number) and number not in updates]
        given = [n for n in self._inputs(~self.forward & ~self.incoming) if any(self._alike(n, weights))]
        found = set[int]()
        for one in sorted(given, key=lambda n: sum(bool(self.deps[out] & self._bit(n)) for out in left)):
            bit = self._bit(one)
            alike = (n for n in self._alike(one, left) if self.deps[n] & bit and self._same_type(n, one))
            again = next(alike, None)
            if again is not None and (updates or one not in sums):
                left.remove(again)
                found |= {one, again}
        return found

    def _same_type(self, one: int, other: int) -> bool:
        return self.flow.values[one].dtype == self.flow.values[other].dtype

    @property
    def _begun(self) -> int:
        """The first link of backward, or of what is made again for it."""
        begin = (
            place
            for place, link in enumerate(self.flow.links)
            if link.step and (self._is_backward(link.target) or is_again(link.step.op))
        )
        return next(begin)

    def _kept(self, weights: set[int]) -> tuple[int, ...]:
        """What is forward, and made before backward begins, and read for it, in order."""
        links, begun = self.flow.links, self._begun
        after = {link.target for link in links[begun:] if link.step is not None}
        needed, kept = {n for n in range(len(self.flow.values)) if self._is_backward(n)}, dict[int, None]()
        for link in reversed(links):
            if link.target in needed:
                needed.update(link.sources)
        for link in links[begun:]:
            for source in link.sources if link.step is not None and link.target in needed else ():
                if self._is_forward(source) and source not in after and source not in weights:
                    kept[self.flow.outside(source)] = None
        return tuple(sorted(kept))


def _first_reads(flow: Flow) -> dict[int, int]:
    """Which step reads each input first, in their order."""
    as_they_are = flow.reached(lambda link: link.step is None)
    read = dict[int, int]()
    for place, link, _ in flow.steps():
        for source in link.sources:
            for number in _set_bits(as_they_are[source]):
                read.setdefault(number, place)
    return dict(sorted(read.items(), key=lambda each: each[1]))


def _first_read(flow: Flow, among: int) -> int:
    return next(number for number in _first_reads(flow) if among >> number & 1)


def _incoming(flow: Flow, deps: list[int], passed_over: int) -> int:
    """The incoming gradients among the inputs, but for those passed over."""
    made = {link.target: place for place, link in enumerate(flow.links) if link.step is not None}
    made |= {number: place for number, place in _made(flow, made)}
    read, found = _first_reads(flow), 0
    for number in (number for number in read if not passed_over >> number & 1):
        came = flow.values[flow.inputs[number]]
        before = (
            out
            for out in flow.outputs
            if not deps[out] & (found | 1 << number) and made.get(out, len(flow.links)) < read[number]
        )
        if came.dtype.kind is dtypes.Kind.FLOAT and any(_same_dims(flow.values[out], came) for out in before):
            found |= 1 << number
    return found


def _made(flow: Flow, made: dict[int, int]) -> Iterator[tuple[int, int]]:
    """When what a loop leaves is made: when the body makes it."""
    found = dict(made)
    for link in flow.links:
        if link.step is None and link.target not in found and link.sources[0] in found:
            found[link.target] = found[link.sources[0]]
            yield link.target, found[link.target]


def _set_bits(number: int) -> Iterator[int]:
    return (place for place in range(number.bit_length()) if number >> place & 1)


def _same_dims(one: Array, other: Array) -> bool:
    return one.dims == other.dims and one.shape == other.shape


def _elements(array: Array) -> int:
    return prod(array.shape)
