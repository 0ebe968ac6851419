"""What a plan means, in NumPy, on virtual devices.

A sharded value is one ndarray, `blocks`, of shape `mesh.sizes + local_shape`: `blocks[x, y]` is what
device (x, y) holds. Integers are computed in int64, floats in float64.
"""

from shardc.simulate.execute import run, trace
from shardc.simulate.layout import ReplicaMismatch, expected_blocks, gather, scatter
from shardc.simulate.reference import reference
from shardc.simulate.samples import sample_inputs
from shardc.simulate.steps import IllegalStep, step
from shardc.simulate.stochastic import Coins
from shardc.simulate.telling import Limit, unscaled, untold
from shardc.simulate.tolerance import TOLD_APART, Allowed, Undecided, allowed, pairs_of, summed, wanted

__all__ = [
    "TOLD_APART",
    "Allowed",
    "Coins",
    "IllegalStep",
    "Limit",
    "ReplicaMismatch",
    "Undecided",
    "allowed",
    "expected_blocks",
    "gather",
    "pairs_of",
    "reference",
    "run",
    "sample_inputs",
    "scatter",
    "step",
    "summed",
    "trace",
    "unscaled",
    "untold",
    "wanted",
]
