"""The memory of a training step by kind: weights, gradients, optimizer state, activations, temporaries.

`told` says which array is of which kind, and how that is known; `held` counts their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardc.cost.kinds.held import ByKind
    from shardc.ir.plan import Schedule


def by_kind(schedule: Schedule) -> ByKind | None:
    """Nothing of what is no training step: such a step leaves what forward leaves, and what is made of gradients."""
    if len(schedule.inputs) < 2 or len(schedule.outputs) < 2:
        return None  # nothing to import for
    from shardc.cost.kinds.held import held_by_kind

    return held_by_kind(schedule)
