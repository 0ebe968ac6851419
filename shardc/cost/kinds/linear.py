"""In which values of a schedule some inputs, taken together, are linear, and nothing else is added to them."""

from __future__ import annotations

from enum import Enum

from shardc.cost.kinds.flow import Flow, Link
from shardc.ir.calls import fills_zeros, linear_operands
from shardc.ir.digits import Reshape
from shardc.ir.plan import Apply, Einsum, Loop, Step


class State(Enum):
    """How a value depends on the inputs."""

    UNKNOWN = "not made yet"
    ZERO = "it is zero"
    FREE = "not at all"
    LINEAR = "each of its terms has one of them"
    OTHER = "otherwise"


def states(flow: Flow, inputs: int) -> list[State]:
    """Of each value how it depends on these inputs, a bit for each."""
    found = [State.UNKNOWN] * len(flow.values)
    for place, number in enumerate(flow.inputs):
        found[number] = State.LINEAR if inputs >> place & 1 else State.FREE
    changed = True
    while changed:
        changed = False
        for link in flow.links:
            met = _met([found[link.target], _of(link, [found[source] for source in link.sources])])
            changed |= met is not found[link.target]
            found[link.target] = met
    return found


def _of(link: Link, below: list[State]) -> State:
    if link.step is None:
        return below[0]
    return State.UNKNOWN if State.UNKNOWN in below else _step(link.step, below)


def _step(step: Step, below: list[State]) -> State:
    match step.op:
        case Einsum():
            return _product(below)
        case Apply(function, _, numbers):
            if fills_zeros(function, numbers) or (function == "mul" and 0 in numbers):
                return State.ZERO
            terms = {0} if function == "cast" else linear_operands(function, numbers)  # but for what it rounds
            others = [state for place, state in enumerate(below) if place not in terms]
            if not all(state in (State.FREE, State.ZERO) for state in others):
                return State.OTHER
            return _met([state for place, state in enumerate(below) if place in terms] or [State.FREE])
        case Reshape():
            return below[0]
        case Loop():
            raise AssertionError("loops are passed through")
        case _:
            assert step.op.facts.is_move
            return below[0]


def _product(below: list[State]) -> State:
    if State.ZERO in below:
        return State.ZERO
    if below.count(State.LINEAR) > 1 or State.OTHER in below:
        return State.OTHER
    return State.LINEAR if State.LINEAR in below else State.FREE


def _met(states: list[State]) -> State:
    """Of a sum of terms, or of what a loop finds in one trip or another."""
    found = set(states) - {State.UNKNOWN}
    if not found:
        return State.UNKNOWN
    if found == {State.ZERO}:
        return State.ZERO
    found -= {State.ZERO}
    return found.pop() if len(found) == 1 else State.OTHER
