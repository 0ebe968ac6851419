"""Which collectives of a training step are off the critical path, as the books' listings mark them.

A layer stands between others. What arrives late is its input, In, and in backward the incoming gradient, dOut; what is
waited for is its output, Out, and the gradient of its input, dIn. A collective is on the critical path if it is made of
what arrives late and what is waited for is made of it:

    AllGather_Y In, for Out               on
    AllGather_X Win                       off: weights are there, so it is done during the layer before
    ReduceScatter_X dWin                  off: nothing in backward waits for it
    AllGather_Y In once more, for dWin    off: In has been there since forward
"""

from __future__ import annotations

from collections.abc import Iterator

from shardc.cost.kinds.flow import Flow, Path
from shardc.cost.kinds.told import Kind, Told
from shardc.ir.plan import Block, single_steps

_ON_THE_WAY = (Kind.ACTIVATIONS, Kind.TEMPORARIES)


def off_path(told: Told, block: Block) -> frozenset[Path]:
    """The places of the steps that move something and are off it."""
    return frozenset(_off_path(told, block))


def _off_path(told: Told, block: Block) -> Iterator[Path]:
    flow, deps = told.flow, told.flow.reached()
    late = 0
    for place, number in enumerate(flow.inputs):
        late |= 1 << place if told.kinds[number] in _ON_THE_WAY else 0
    ends = [number for number in flow.outputs if told.kinds[number] in _ON_THE_WAY]
    forward = _leading(flow, {number for number in ends if not deps[number] & told.incoming})
    waited = {number for number in ends if deps[number] & told.incoming} or set(flow.outputs)  # of a first layer all
    backward = _leading(flow, waited)
    for done in single_steps(block):
        number = flow.first[done.path[:-1]] + done.step.result
        is_backward = deps[number] & told.incoming != 0
        on_it = deps[number] & late and number in (backward if is_backward else forward)
        if done.step.op.facts.communicates and not on_it:
            yield done.path


def _leading(flow: Flow, ends: set[int]) -> set[int]:
    """What these are made of, and they."""
    found, count = set(ends), -1
    while len(found) > count:
        count = len(found)
        for link in reversed(flow.links):
            if link.target in found:
                found.update(link.sources)
    return found
