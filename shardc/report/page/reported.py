"""What a page is made of, and how much of it a page has room for."""

from __future__ import annotations

from dataclasses import dataclass

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
    """How much is shown. `pictures` is bytes of steps' pictures; the others are counts, `code` of characters."""

    pictures: int
    statements: int
    steps: int
    others: int  # alternatives of a statement
    code: int


# The first that keeps the page under MOST is taken.
ROOMS = (
    Room(230_000, 60, 300, 10, 120_000),
    Room(120_000, 60, 300, 8, 80_000),
    Room(60_000, 40, 150, 4, 60_000),
    Room(0, 20, 60, 2, 20_000),
    Room(0, 5, 20, 1, 4_000),
)


def cut(text: str, most: int) -> str:
    """Whole lines of a text; the last says what is left out."""
    if len(text) <= most:
        return text
    lines = text[:most].splitlines()[:-1] or [text[:most]]
    return "\n".join([*lines, f"… {len(text) - len(''.join(lines)):,} more characters"])
