"""What a device reaches alone, as its compiler's cycles have it: `calibration.toml`, a section for each chip.

`tests/benchmark/calibrate.py` writes that file, and says what is compiled for it. It holds where a slice is named,
since only then is it known which compiler is asked; elsewhere, and by the book, a device reaches what its chip is sold
for.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from shardc.ir.dtypes import DType


class Moving(NamedTuple):
    """Bytes per second of one type: read, written, gone through for the largest as they lie, and with what is computed
    of each element; and of what one instruction by itself writes, what it takes beyond reading and writing."""

    read: float
    write: float
    largest: float
    computed: float
    bare: float


@dataclass(frozen=True)  # without slots: what moves bytes is kept
class Calibration:
    """Operations of a product per second, by its type; bytes per second that are read, written, and copied, which is to
    lay a block anew; of pieces that an exchange received along the last dim, laid there; of any pieces of one, laid on
    the chip; and of a block that a function over a dim goes through. By which part longer a product takes whose
    operations take as long as its bytes; and, of f32, for each operand that it rounds to bf16 again and again, since
    none is small enough, in bytes, to be held on the chip. How many times longer than its bytes a product takes that is
    added up as a function of elements, of few terms for each number, and of 8 and more. The seconds that a product
    takes, and a function for each time that it goes through a block, however small.

    A core handles about as many elements a second of f32 as of bf16: what is not bound by its memory moves twice the
    bytes.
    """

    int8_flops: float
    bf16_flops: float
    f32_flops: float
    bf16_read: float
    bf16_write: float
    bf16_largest: float
    bf16_computed: float
    bf16_bare: float
    f32_read: float
    f32_write: float
    f32_largest: float
    f32_computed: float
    f32_bare: float
    copy_bandwidth: float
    lanes_bandwidth: float
    near_bandwidth: float
    slowdown: float
    f32_again: float
    f32_held: float
    few_terms: float
    many_terms: float
    product_start: float
    function_start: float

    def moving(self, dtype: DType) -> Moving:
        """Of a type; narrow ones as bf16, wide ones as f32."""
        return self._wide if dtype.bytes > 2 else self._narrow

    @cached_property
    def _wide(self) -> Moving:
        return Moving(self.f32_read, self.f32_write, self.f32_largest, self.f32_computed, self.f32_bare)

    @cached_property
    def _narrow(self) -> Moving:
        return Moving(self.bf16_read, self.bf16_write, self.bf16_largest, self.bf16_computed, self.bf16_bare)


def calibration(chip: str) -> Calibration | None:
    """What is known of a chip, by its name; None where nothing was measured."""
    found = _sections().get(chip)
    return None if found is None else Calibration(**found)


@cache
def _sections() -> dict[str, dict[str, float]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
