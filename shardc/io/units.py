"""Numbers as an engineer reads them: three digits and a unit."""

from __future__ import annotations

import re

_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_FLOPS = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = {"": 1, "k": 2**10, "M": 2**20, "G": 2**30}
_SIZE = re.compile(r"(0|[1-9][0-9]{0,14})([kMG]?)")


def in_bytes(count: float) -> str:
    """`33.6 MB`; decimal units, as bandwidths are."""
    return _scaled(count, _BYTES, "B")


def size_in_units(text: str) -> int | None:
    """A size of a dim as it may be written short: `4k` is 4096, for sizes mostly are powers of two. None if it is none.

    >>> size_in_units("16M"), size_in_units("512"), size_in_units("4kB")
    (16777216, 512, None)
    """
    found = _SIZE.fullmatch(text)
    return None if found is None else int(found[1]) * _SIZES[found[2]]


def in_flops(count: int) -> str:
    return _scaled(float(count), _FLOPS, "FLOP")


def in_seconds(seconds: float) -> str:
    """`373 µs`; 0 is `0`."""
    if seconds == 0:
        return "0"
    if seconds < 1e-9:
        return "<1 ns"
    return _scaled(seconds, _SECONDS, "s")


def in_one_line(text: str) -> str:
    """A statement of several lines, a loop's, in one."""
    return " ".join(text.split())


def _scaled(number: float, units: tuple[tuple[float, str], ...], smallest: str) -> str:
    for scale, unit in units:
        if number >= scale:
            return f"{_three_digits(number / scale)} {unit}"
    return f"{number:.0f} {smallest}" if number else "0"


def _three_digits(number: float) -> str:
    if number >= 100:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"
