"""A product in digits, as it is chosen for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shardc.ir.sharding import ShardingNumber
from shardc.rules.digit_products import Digits, Placement
from shardc.rules.routes import Route


@dataclass(frozen=True, slots=True)
class InDigits:
    """A product in digits: the moves of each operand before it, and those of its result."""

    digits: Digits
    operands: tuple[Route, ...]
    placement: Placement
    result: Route
    price: int


# Of the products below a table, by the table's id and the number of its sharding: those that are done in digits.
Chosen: TypeAlias = Mapping[tuple[int, ShardingNumber], InDigits]
