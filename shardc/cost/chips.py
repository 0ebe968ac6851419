"""Chips: one row each, and where each constant comes from. A new chip is a row here, or a TOML file.

Two profiles exist because the sources disagree by about a tenth on link speed: `book` has the scaling book's
figures, so that its worked problems come out; `spec` has the vendors'.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from shardc.errors import ShardcError, Span, nearest
from shardc.io.files import read_text
from shardc.ir.dtypes import DType

DEFAULT_CHIP = "v5p"
PROFILES = ("book", "spec")


class LinkKind(Enum):
    """What joins chips; `cost.links` has a file for each."""

    TORUS = "torus"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Chip:
    """Constants of one chip. Bandwidths are bytes per second; those of links are one way.

    A TPU has `torus_dims`: each axis has a link each way, and closes to a ring when its size is `wraps_at`, or
    when all sizes are multiples of `wraps_multiples`. A GPU has `domain`: so many share an NVLink switch, and
    beyond it each has its part of the node's egress. `dcn_bandwidth` is of a chip over the data-centre network.
    """

    name: str
    flops: float  # bf16 FLOP/s
    narrow_flops: float  # int8 or fp8 OP/s
    hbm_bytes: float
    hbm_bandwidth: float
    link_bandwidth: float
    dcn_bandwidth: float
    spec_link_bandwidth: float = 0.0  # the vendor's figure, if it differs
    torus_dims: int = 0
    wraps_at: int = 0
    wraps_multiples: int = 0
    domain: int = 0
    largest: str = ""
    hop_latency: float = 1e-6  # s
    source: str = ""
    clock: float = 0.0  # Hz of the matrix units, in which the compiler counts cycles; 0 where unknown

    @property
    def is_torus(self) -> bool:
        return self.torus_dims > 0

    @property
    def most_chips(self) -> float:
        """Of the largest slice that there is, as `16×16` or `9216 chips` says it."""
        sizes = re.findall("[0-9]+", self.largest)
        return math.prod(map(int, sizes)) if sizes else math.inf

    @property
    def links(self) -> LinkKind:
        """The kind of its links."""
        return LinkKind.TORUS if self.is_torus else LinkKind.SWITCH

    def peak(self, dtype: DType) -> float:
        """OP/s of products of this type, summed in f32 or int32; types wider than bf16 in proportion."""
        return self.narrow_flops if dtype.bytes == 1 else self.flops * 2 / dtype.bytes

    def wraps(self, shape: tuple[int, ...]) -> tuple[bool, ...]:
        """Which axes of a slice of that shape are rings."""
        if self.wraps_multiples:
            cubes = all(size % self.wraps_multiples == 0 for size in shape)
            return (cubes,) * len(shape)
        return tuple(size == self.wraps_at for size in shape)

    def in_profile(self, profile: str) -> Chip:
        return (
            replace(self, link_bandwidth=self.spec_link_bandwidth or self.link_bandwidth) if profile == "spec" else self
        )


_TPU = (
    "How To Scale Your Model, ch. 2: FLOP/s, HBM, ICI, DCN, pod size, wraparound; ch. 3: hop latency; "
    "spec link: cloud.google.com/tpu/docs, system architecture of the generation"
)
_V3 = "How To Scale Your Model, ch. 2 (DCN as v4p, for want of a figure)"
_GPU = (
    "How To Scale Your Model, ch. 12 (GPUs): FLOP/s, HBM, NVLink egress, node egress over its GPUs; "
    "NVIDIA data sheets of H100, H200, HGX B200, GB200 NVL72"
)

# Clocks. v3, v4: Jouppi et al., "TPU v4", ISCA 2023, table 4. v5e: How To Scale Your Model, ch. 2. v5p: the vendor's
# 459 TFLOP/s over 2·128² FLOPs a cycle in each of 8 matrix units. v6e and v7x: unpublished; the vendor's 918 TFLOP/s
# over 2^19 FLOPs a cycle, and 2307 TFLOP/s over twice that (a chip is two devices), the least powers of two above what
# the compiler's own cycle counts of large products come to (456 and 445 thousand FLOPs a cycle and device).
_CLOCKS = {"v3": 0.94e9, "v4p": 1.05e9, "v5e": 1.5e9, "v5p": 1.75e9, "v6e": 1.75e9, "v7x": 2.2e9}

_TABLE = (
    Chip("v3", 1.4e14, 1.4e14, 32e9, 9.0e11, 1e11, 6.25e9, 0, 2, wraps_at=32, largest="32×32", source=_V3),
    Chip("v4p", 2.75e14, 2.75e14, 32e9, 1.2e12, 4.5e10, 6.25e9, 4.69e10, 3, 0, 4, 0, "16×16×16", source=_TPU),
    Chip("v5e", 1.97e14, 3.94e14, 16e9, 8.1e11, 4.5e10, 3.125e9, 5e10, 2, 16, 0, 0, "16×16", source=_TPU),
    Chip("v5p", 4.59e14, 9.18e14, 96e9, 2.8e12, 9e10, 6.25e9, 1e11, 3, 0, 4, 0, "16×20×28", source=_TPU),
    Chip("v6e", 9.20e14, 1.84e15, 32e9, 1.6e12, 9e10, 1.25e10, 1e11, 2, 16, 0, 0, "16×16", source=_TPU),
    Chip("v7x", 2.30e15, 4.61e15, 192e9, 7.4e12, 9e10, 1.25e10, 1e11, 3, 0, 4, 0, "9216 chips", source=_TPU),
    Chip("H100", 9.9e14, 2.0e15, 80e9, 3.4e12, 450e9, 50e9, domain=8, source=_GPU),
    Chip("H200", 9.9e14, 2.0e15, 141e9, 4.8e12, 450e9, 50e9, domain=8, source=_GPU),
    Chip("B200", 2.3e15, 4.5e15, 192e9, 8.0e12, 900e9, 50e9, domain=8, source=_GPU),
    Chip("GB200-NVL72", 2.3e15, 4.5e15, 192e9, 8.0e12, 900e9, 50e9, domain=72, source=_GPU),
)

CHIPS: dict[str, Chip] = {row.name: replace(row, clock=_CLOCKS.get(row.name, 0.0)) for row in _TABLE}
_SPELLINGS = {name.lower(): row for name, row in CHIPS.items()} | {
    "v4": CHIPS["v4p"],
    "v5litepod": CHIPS["v5e"],
    "tpu7x": CHIPS["v7x"],
    "gb200": CHIPS["GB200-NVL72"],
    "gb200 nvl72": CHIPS["GB200-NVL72"],
}


def chip(name: str, span: Span | None = None) -> Chip:
    """The chip of that name, or of that `.toml` file; SHC223 if there is none."""
    if name.endswith(".toml"):
        return from_toml(Path(name))
    found = _SPELLINGS.get(name.lower())
    if found is not None:
        return found
    near = nearest(name, CHIPS)
    raise ShardcError(
        "SHC223",
        f"unknown chip `{name}`",
        span=span,
        help=(f"did you mean `{near}`? " if near else "")
        + "known chips: "
        + ", ".join(CHIPS)
        + "; another's constants may stand in a FILE.toml",
    )


_NAME = re.compile(r"[A-Za-z0-9 ._-]{1,64}")
_LEAST, _MOST = 1e-12, 1e30
_LONGEST = 16 * 1024  # characters of a file
_TEXTS = frozenset({"name", "source", "largest"})
_COUNTS = frozenset({"torus_dims", "wraps_at", "wraps_multiples", "domain"})
_NEEDED = ("name", "flops", "narrow_flops", "hbm_bytes", "hbm_bandwidth", "link_bandwidth", "dcn_bandwidth")


def from_toml(path: Path) -> Chip:
    """A chip from a file whose keys are the fields of Chip; SHC223 for each missing or impossible one."""
    text = read_text(str(path), missing="give the name of a chip, or a TOML file")
    if len(text) > _LONGEST:  # reading TOML may take quadratic time
        raise ShardcError(
            "SHC401", f"`{path}` is longer than {_LONGEST} characters", help="a chip takes a line a field"
        )
    import tomllib  # most chips are rows of this module

    try:
        given = tomllib.loads(text)
    except ValueError as error:  # not TOML, or a number of thousands of digits
        raise ShardcError(
            "SHC223", f"`{path}` is not TOML: {error}", help="write `flops = 4.59e14`, a line each"
        ) from None
    except RecursionError:
        raise ShardcError(
            "SHC223", f"`{path}` is nested too deeply", help="write `flops = 4.59e14`, a line each"
        ) from None
    faults = [*_missing(given), *(fault for key, value in given.items() if (fault := _fault(key, value)))]
    if not faults and bool(given.get("torus_dims")) == bool(given.get("domain")):
        faults = ["give `torus_dims` (a TPU) or `domain` (a GPU), one of the two"]
    if faults:
        raise ShardcError(
            "SHC223", f"`{path}`: " + "; ".join(faults), help="`shardc chips` shows chips that are complete"
        )
    constants: dict[str, Any] = {
        key: value if key in _TEXTS | _COUNTS else float(value) for key, value in given.items()
    }
    return Chip(**constants)


def _missing(given: dict[str, object]) -> list[str]:
    return [f"`{key}` is missing" for key in _NEEDED if key not in given]


def _fault(key: str, value: object) -> str | None:
    known = [field.name for field in fields(Chip)]
    if key not in known:
        near = nearest(key, known)
        return f"unknown field `{key}`" + (f", did you mean `{near}`?" if near else "")
    if key == "name":
        fits = isinstance(value, str) and _NAME.fullmatch(value)
        return None if fits else "`name` is not 1 to 64 letters, digits, spaces, `.`, `_` or `-`"
    if key in _TEXTS:
        return None if isinstance(value, str) and value else f"`{key}` = {value!r} is not a text"
    if key in _COUNTS:
        return None if type(value) is int and 0 <= value < 10**6 else f"`{key}` = {value!r} is not a count"
    if not isinstance(value, int | float) or isinstance(value, bool) or not _LEAST <= value <= _MOST:
        shown = f"{value!r}" if not isinstance(value, int) or value.bit_length() < 100 else "a number of many digits"
        return f"`{key}` = {shown} is not a positive number from {_LEAST:g} to {_MOST:g}"
    return None
