"""What is best at each of many prices, of which few are asked for.

What is best at two prices is best at all between: what a choice costs at a price lies on a line, and the least of all
lines is concave.

    price     1  2  4  8  16  32  64  128
    best      A  A  A  A  B   B   B   B       asked for at 1, 2, 8, 128, 32, 16, in this order
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

_Best = TypeVar("_Best")


def changes(best: Callable[[int], _Best], prices: range, are_alike: Callable[[_Best, _Best], bool]) -> Iterator[_Best]:
    """What is best at the first price, then each that is another than the one before. Steps are doubled as long as
    nothing changes, then halved to where it does."""
    low, step, end = prices[0], 1, prices[-1]
    known = {low: best(low)}
    yield known[low]
    while low < end:
        high = min((price for price in known if price > low), default=min(low + step, end))
        if high not in known:
            known[high] = best(high)
        if are_alike(known[low], known[high]):
            low, step = high, 2 * step
        elif high > low + 1:
            middle = (low + high) // 2
            known[middle] = best(middle)
        else:
            yield known[high]
            low, step = high, 1
