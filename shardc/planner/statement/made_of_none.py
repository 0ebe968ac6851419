"""What has no operands is made where it is wanted, and is not moved there.

h[B_X, D] = 0; … h[B, D] …     h[B, D] = 0: each device fills what it is to have, and none sends it
G[D, F] = 0; … G[D, F]{U_X}    G[D, F]{U_X} = 0: zeros are partial sums of zeros, and none has to be masked
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.ir.calls import fills_zeros
from shardc.ir.collectives import Move
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Step, ValueNumber
from shardc.lowering.streams import Streams

WRITTEN = Streams((), bare=True)  # of what is not computed as it is read


def made_there(steps: Sequence[Step], value: ValueNumber, move: Move) -> Step | None:
    """The step that makes a value, if it can make what a move leaves of it as well."""
    made = next((step for step in reversed(steps) if value in step.results), None)
    if made is None or made.operands or not isinstance(made.op, Apply):
        return None
    if move.facts.kind is Kind.MASK and not fills_zeros(made.op.function, made.op.numbers):
        return None
    return made
