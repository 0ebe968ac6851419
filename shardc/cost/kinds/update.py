"""What the arrays of an optimizer's update alone are for: a step with no forward, and so no products that sum.

    m_new = 0.9 ⊙ m[D_X, F] + 0.1 ⊙ g[D_X, F]; W_new = W[D_X, F] - 0.01 ⊙ m_new

An array *comes out again* as an output of its dims and type that depends on it; of those an output depends on, the one
that the fewest outputs depend on, and of these the first. Of what comes out again, *weights* are what no other output
depends on, W, and *optimizer* state is the rest, m. What comes in alone, with the dims of a weight, are *gradients*.
Of `W - 0.01 ⊙ g` either may be the weight: it is the first, and the other as large.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost.kinds.flow import Flow
from shardc.ir import dtypes
from shardc.ir.plan import Einsum
from shardc.ir.sharding import Array


@dataclass(frozen=True, slots=True)
class Update:
    """Inputs, but for `again`, which has the output that each of them comes out as."""

    again: dict[int, int]
    weights: frozenset[int]
    gradients: frozenset[int]

    @property
    def state(self) -> frozenset[int]:
        return frozenset(self.again) - self.weights


def update(flow: Flow, deps: list[int]) -> Update | None:
    """Nothing of a program with products that sum, or where some output is none of these."""
    if any(
        _contracts(flow, link.sources, link.target) for _, link, step in flow.steps() if isinstance(step.op, Einsum)
    ):
        return None
    again = _again(flow, deps)
    if set(again.values()) != set(flow.outputs):
        return None
    weights = frozenset(one for one in again if _outputs_of(flow, deps, one) == [again[one]])
    dims = {flow.values[one].dims for one in weights}
    gradients = frozenset(one for one in flow.inputs if one not in again and flow.values[one].dims in dims)
    bits = sum(1 << flow.inputs.index(one) for one in gradients)
    if not weights or not all(deps[output] & bits for output in again.values()):
        return None
    return Update(again, weights, gradients)


def _contracts(flow: Flow, sources: tuple[int, ...], target: int) -> bool:
    """Whether it is a product of two that sums a dim of both."""
    shared = set.intersection(*(set(flow.values[source].dims) for source in sources))
    return len(sources) > 1 and not shared <= set(flow.values[target].dims)


def _outputs_of(flow: Flow, deps: list[int], one: int) -> list[int]:
    """The outputs that depend on an input."""
    bit = 1 << flow.inputs.index(one)
    return [output for output in flow.outputs if deps[output] & bit]


def _again(flow: Flow, deps: list[int]) -> dict[int, int]:
    """Of each input that comes out again its output; those of the fewest inputs find theirs first."""
    found = dict[int, int]()
    floats = [one for one in flow.inputs if flow.values[one].dtype.kind is dtypes.Kind.FLOAT]
    for output in sorted(flow.outputs, key=lambda number: deps[number].bit_count()):
        alike = [
            one
            for one in floats
            if one not in found
            and output in _outputs_of(flow, deps, one)
            and _is_alike(flow.values[one], flow.values[output])
        ]
        if alike:
            found[min(alike, key=lambda one: len(_outputs_of(flow, deps, one)))] = output
    return found


def _is_alike(one: Array, other: Array) -> bool:
    return (one.dims, one.shape, one.dtype) == (other.dims, other.shape, other.dtype)
