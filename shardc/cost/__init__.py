"""What a step costs: chips, collectives, local products, memory."""

from shardc.cost.chips import CHIPS, DEFAULT_CHIP, Chip, chip
from shardc.cost.model import CostModel, Rate, RingModel
from shardc.cost.topology import chip_of

__all__ = ["CHIPS", "DEFAULT_CHIP", "Chip", "CostModel", "Rate", "RingModel", "chip", "chip_of"]
