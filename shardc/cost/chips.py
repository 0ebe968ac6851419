"""Chips: one row each. Sources in the row; units in the field comments.

TPU rows: *How To Scale Your Model*, chapter 2, tables of TPU specs. GPU rows: the same book's chapter
on GPUs, from NVIDIA's data sheets. Link bandwidth is that of one link, one way.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.errors import ShardcError, Span, nearest
from shardc.ir.dtypes import DType

DEFAULT_CHIP = "v5p"


@dataclass(frozen=True, slots=True)
class Chip:
    name: str
    flops: float  # bf16 FLOP/s
    narrow_flops: float  # int8 or fp8 OP/s
    hbm_bytes: float
    hbm_bandwidth: float  # B/s
    link_bandwidth: float  # B/s one way, per link of a torus axis, or NVLink egress per GPU
    ring: bool = True  # links run both ways round a ring; else a switch
    hop_latency: float = 1e-6  # s

    @property
    def bandwidth(self) -> float:
        """B/s that one mesh axis brings a device: both directions of a ring, or the switch port."""
        return 2 * self.link_bandwidth if self.ring else self.link_bandwidth

    def peak(self, dtype: DType) -> float:
        """OP/s of products of this type. Types of four bytes run at the bf16 rate over bytes/2."""
        if dtype.bytes == 1:
            return self.narrow_flops
        return self.flops * 2 / dtype.bytes


_TABLE = (
    Chip("v3", 1.4e14, 1.4e14, 32e9, 9.0e11, 1e11),
    Chip("v4p", 2.75e14, 2.75e14, 32e9, 1.2e12, 4.5e10),
    Chip("v5e", 1.97e14, 3.94e14, 16e9, 8.1e11, 4.5e10),
    Chip("v5p", 4.59e14, 9.18e14, 96e9, 2.8e12, 9e10),
    Chip("v6e", 9.20e14, 1.84e15, 32e9, 1.6e12, 9e10),
    Chip("v7x", 2.30e15, 4.61e15, 192e9, 7.4e12, 9e10),
    Chip("H100", 9.9e14, 2.0e15, 80e9, 3.4e12, 450e9, ring=False),
    Chip("H200", 9.9e14, 2.0e15, 141e9, 4.8e12, 450e9, ring=False),
    Chip("B200", 2.3e15, 4.5e15, 192e9, 8.0e12, 900e9, ring=False),
    Chip("GB200", 2.3e15, 4.5e15, 192e9, 8.0e12, 900e9, ring=False),
)

CHIPS: dict[str, Chip] = {row.name: row for row in _TABLE}
_SPELLINGS = {name.lower(): row for name, row in CHIPS.items()} | {
    "v4": CHIPS["v4p"],
    "v5litepod": CHIPS["v5e"],
    "tpu7x": CHIPS["v7x"],
}


def chip(name: str, span: Span | None = None) -> Chip:
    """The chip of that name; SHC223 if there is none."""
    found = _SPELLINGS.get(name.lower())
    if found is not None:
        return found
    near = nearest(name, CHIPS)
    raise ShardcError(
        "SHC223",
        f"unknown chip `{name}`",
        span=span,
        help=(f"did you mean `{near}`? " if near else "") + "known chips: " + ", ".join(CHIPS),
    )
