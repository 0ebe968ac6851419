"""What a page is made of, and how much of it a page has room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shardc.compiled.verify import Verification
from shardc.report.front import FrontView
from shardc.report.pictures.plan import Pictured

MOST = 500_000  # bytes of a page


@dataclass(frozen=True, slots=True)
class Reported:
    """A plan, its source, and what more was asked for or could be had."""

    plan: Pictured
    source: str
    front: FrontView | None = None
    verification: Verification | None = None
    unverified: str = ""  # why not, where a slice is named


@dataclass(frozen=True, slots=True)
class Room:
    """How much is shown: counts, `code` of characters. `pictures` is bytes of the pictures of these steps, on so many
    `devices`; if not `in_part` it is taken only where all of these steps are drawn."""

    in_part: bool
    drawn: Literal["every step", "steps that take time", "steps that move something"]
    devices: int
    statements: int
    steps: int
    others: int  # alternatives of a statement
    code: int
    pictures: int = 0


# The first that keeps the page under MOST is taken; what is left then is for pictures.
ROOMS = (
    Room(False, "every step", 32, 60, 300, 10, 120_000),
    Room(False, "steps that take time", 32, 60, 300, 10, 120_000),
    Room(False, "steps that move something", 32, 60, 300, 8, 80_000),
    Room(True, "steps that move something", 16, 40, 150, 4, 60_000),
    Room(True, "steps that move something", 16, 20, 60, 2, 20_000),
    Room(True, "steps that move something", 16, 5, 20, 1, 4_000),
)


def cut(text: str, most: int) -> str:
    """Whole lines of a text; the last says what is left out."""
    if len(text) <= most:
        return text
    lines = text[:most].splitlines()[:-1] or [text[:most]]
    return "\n".join([*lines, f"… {len(text) - len(''.join(lines)):,} more characters"])
