"""What a step costs: chips, collectives, local products, memory."""

from shardc.cost.chips import CHIPS, DEFAULT_CHIP, Chip, chip
from shardc.cost.layout import Layout
from shardc.cost.model import CostModel, LinkModel
from shardc.cost.rate import Rate
from shardc.cost.topology import chip_of, topology

__all__ = [
    "CHIPS",
    "DEFAULT_CHIP",
    "Chip",
    "CostModel",
    "Layout",
    "LinkModel",
    "Rate",
    "chip",
    "chip_of",
    "topology",
]
