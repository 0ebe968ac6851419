"""Numbers as an engineer reads them: three digits and a unit."""

from __future__ import annotations

_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_FLOPS = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def in_bytes(count: float) -> str:
    """`33.6 MB`; decimal units, as bandwidths are."""
    return _scaled(count, _BYTES, "B")


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
