"""What a device reaches alone, as its compiler's cycles have it: `calibration.toml`, a section for each chip.

`tests/benchmark/calibrate.py` writes that file, and says what is compiled for it. It holds where a slice is named,
since only then is it known which compiler is asked; elsewhere, and by the book, a device reaches what its chip is sold
for.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Calibration:
    """Operations of a product per second, by its type; bytes per second that are read, written, and copied, which is to
    lay a block anew; of a block whose pieces are brought together for an exchange, and laid where they belong; and of
    one that a function over a dim goes through. By which part longer a product takes whose operations take as long as
    its bytes."""

    int8_flops: float
    bf16_flops: float
    f32_flops: float
    read_bandwidth: float
    write_bandwidth: float
    copy_bandwidth: float
    exchange_bandwidth: float
    pass_bandwidth: float
    slowdown: float


def calibration(chip: str) -> Calibration | None:
    """What is known of a chip, by its name; None where nothing was measured."""
    found = _sections().get(chip)
    return None if found is None else Calibration(**found)


@cache
def _sections() -> dict[str, dict[str, float]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
