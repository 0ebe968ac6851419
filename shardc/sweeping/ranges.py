"""What is swept, read from text: sizes of a dim or an axis, or every split of a number of devices.

B=1k..16M        doubled from 1,024 to 16,777,216: k, M and G are 1024, 1024² and 1024³, as sizes mostly are
B=1k..16M*4      four times as much each time
B=1k..8k+1k      so much more each time
B=512,768,1k     these
X*Y=64           every way to share 64 devices out among X and Y
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardc.errors import ShardcError
from shardc.io.units import size_in_units

MOST = 1000  # points of a sweep
_RANGE = re.compile(r"(\w+)\.\.(\w+?)(?:([*+])(\w+))?")
_HELP = "write B=1k..16M (doubled), B=1k..8k+1k, B=512,768 or X*Y=64"


@dataclass(frozen=True, slots=True)
class Over:
    """Names that are set together, and the sizes that they take, in order: of `X*Y=4` (1, 4), (2, 2), (4, 1)."""

    text: str
    names: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]


def over(text: str) -> Over:
    """One quantity to sweep. SHC001 where the text is none."""
    if not isinstance(text, str):
        raise ShardcError("SHC001", f"what is swept is a {type(text).__name__}", help='give text, as in "B=1k..16M"')
    names, equals, values = text.replace(" ", "").partition("=")
    split = tuple(names.split("*"))
    if not equals or not all(split) or len(set(split)) < len(split):
        raise _malformed(text, "no sizes" if not equals else "names that are empty, or twice the same")
    if len(split) > 1:
        return Over(text, split, tuple(_splits(_number(values, text), len(split))))
    return Over(text, split, tuple((size,) for size in dict.fromkeys(_sizes(values, text))))


def points(swept: Sequence[Over]) -> list[dict[str, int]]:
    """Every combination, the last quantity the fastest. SHC001 for too many, or for a name that is swept twice."""
    names = [name for each in swept for name in each.names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ShardcError("SHC001", f"`{twice}` is swept twice", help="sweep each size once")
    count = math.prod(len(each.sizes) for each in swept)
    if count > MOST:
        raise ShardcError(
            "SHC001", f"{count} points are too many", note=f"at most {MOST}", help="sweep in larger steps"
        )
    combined = itertools.product(*(each.sizes for each in swept))
    return [dict(zip(names, itertools.chain(*sizes), strict=True)) for sizes in combined]


def _sizes(values: str, text: str) -> Iterator[int]:
    found = _RANGE.fullmatch(values)
    if found is None:
        yield from (_number(value, text) for value in values.split(","))
        return
    first, last = _number(found[1], text), _number(found[2], text)
    step = _number(found[4], text) if found[4] else 2
    if first > last or (found[3] != "+" and step < 2):
        raise _malformed(text, "no sizes between these" if first > last else "steps that lead nowhere")
    if found[3] == "+" and (last - first) // step > MOST:
        raise ShardcError("SHC001", f"`{text}` has too many sizes", note=f"at most {MOST}", help="take larger steps")
    size = first
    while size < last:
        yield size
        size = size + step if found[3] == "+" else size * step
    yield last


def _splits(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a count as a product of so many sizes, the first ascending."""
    if parts == 1:
        yield (count,)
        return
    for size in (size for size in range(1, count + 1) if count % size == 0):
        yield from ((size, *rest) for rest in _splits(count // size, parts - 1))


def _number(text: str, whole: str) -> int:
    size = size_in_units(text)
    if not size:
        raise _malformed(whole, f"`{text}` is no size")
    if size > 2**40:
        raise _malformed(whole, f"`{text}` is too large")
    return size


def _malformed(text: str, why: str) -> ShardcError:
    return ShardcError("SHC001", f"malformed sweep `{text[:200]}`: {why}", help=_HELP)
