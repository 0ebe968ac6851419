"""Element types. One row each; every other room asks this table.

Which type two have together is said by a lattice, as JAX has it (jax.numpy.promote_types):

    bool → uint8 → uint16 → uint32 → uint64 ─┐                 ┌→ f8_…, f4_…
    bool → int8  → int16  → int32  → int64  ─┴→ (some float) ──┼→ bf16 ─┬→ f32 → f64 ─→ c128
           uint8 → int16, uint16 → int32, uint32 → int64       └→ f16  ─┘  └──→ c64 ──┘
    bool → int4, uint4

The type of a product of two is the lowest that both lead to. From the narrow floats, and from int4, nothing leads on:
f8_e5m2 · f32 has no type. Where only `(some float)` is common, of int32 · uint64, the type is f64.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from shardc.errors import ShardcError, Span, nearest


class Kind(Enum):
    FLOAT = "float"
    INT = "int"
    BOOL = "bool"
    COMPLEX = "complex"


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `unit` is the unit round-off of a float (0 of others). What only `moves` is not multiplied,
    nor an argument of functions."""

    name: str  # as the notation writes it
    bytes: int  # of an element on its own: of int4 as well
    kind: Kind
    jax: str  # its name in jax.numpy
    unit: float = 0.0
    moves: bool = False
    lowest: float = 0.0  # the lowest finite number of a float that is an argument of functions

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_narrow(self) -> bool:
        """Too narrow to sum in: products add up in f32 or int32 instead."""
        return self.bytes < 4

    @property
    def adds(self) -> bool:
        """Whether there may be partial sums of it."""
        return not self.moves or self.kind is Kind.COMPLEX

    @property
    def is_wide(self) -> bool:
        """JAX has it in 64-bit mode alone."""
        return self.bytes == (16 if self.kind is Kind.COMPLEX else 8)

    def __str__(self) -> str:
        return self.name


_TABLE = (
    DType("f4_e2m1fn", 1, Kind.FLOAT, "float4_e2m1fn", 2.0**-2, moves=True),
    DType("f8_e3m4", 1, Kind.FLOAT, "float8_e3m4", 2.0**-5, moves=True),
    DType("f8_e4m3", 1, Kind.FLOAT, "float8_e4m3", 2.0**-4, moves=True),
    DType("f8_e4m3b11fnuz", 1, Kind.FLOAT, "float8_e4m3b11fnuz", 2.0**-4, moves=True),
    DType("f8_e4m3fn", 1, Kind.FLOAT, "float8_e4m3fn", 2.0**-4, lowest=-448.0),
    DType("f8_e4m3fnuz", 1, Kind.FLOAT, "float8_e4m3fnuz", 2.0**-4, moves=True),
    DType("f8_e5m2", 1, Kind.FLOAT, "float8_e5m2", 2.0**-3, lowest=-57344.0),
    DType("f8_e5m2fnuz", 1, Kind.FLOAT, "float8_e5m2fnuz", 2.0**-3, moves=True),
    DType("f8_e8m0fnu", 1, Kind.FLOAT, "float8_e8m0fnu", 2.0**-1, moves=True),
    DType("bf16", 2, Kind.FLOAT, "bfloat16", 2.0**-8, lowest=-(2 - 2.0**-7) * 2.0**127),
    DType("f16", 2, Kind.FLOAT, "float16", 2.0**-11, lowest=-65504.0),
    DType("f32", 4, Kind.FLOAT, "float32", 2.0**-24, lowest=-(2 - 2.0**-23) * 2.0**127),
    DType("f64", 8, Kind.FLOAT, "float64", 2.0**-53, lowest=-(2 - 2.0**-52) * 2.0**1023),
    DType("int4", 1, Kind.INT, "int4", moves=True),
    DType("uint4", 1, Kind.INT, "uint4", moves=True),
    DType("int8", 1, Kind.INT, "int8"),
    DType("uint8", 1, Kind.INT, "uint8"),
    DType("int16", 2, Kind.INT, "int16"),
    DType("uint16", 2, Kind.INT, "uint16"),
    DType("int32", 4, Kind.INT, "int32"),
    DType("uint32", 4, Kind.INT, "uint32"),
    DType("int64", 8, Kind.INT, "int64"),
    DType("uint64", 8, Kind.INT, "uint64"),
    DType("bool", 1, Kind.BOOL, "bool", moves=True),
    DType("c64", 8, Kind.COMPLEX, "complex64", moves=True),
    DType("c128", 16, Kind.COMPLEX, "complex128", moves=True),
)

DTYPES: dict[str, DType] = {row.name: row for row in _TABLE}
_SPELLINGS: dict[str, DType] = DTYPES | {row.jax: row for row in _TABLE} | {"fp32": DTYPES["f32"]}
_SPELLINGS |= {row.name.replace("int", ""): row for row in _TABLE if row.name.startswith("uint")}  # u32
_SPELLINGS |= {row.name.replace("int", "i"): row for row in _TABLE if row.name.startswith("int")}  # i8
_SPELLINGS |= {"s8": DTYPES["int8"], "s32": DTYPES["int32"], "fp16": DTYPES["f16"], "fp8": DTYPES["f8_e4m3fn"]}
_SPELLINGS |= {"bool_": DTYPES["bool"]}

_SOME_FLOAT = "some float"
_NARROWEST = tuple(row.name for row in _TABLE if row.kind is Kind.FLOAT and row.bytes == 1)
_LEADS_TO: dict[str, tuple[str, ...]] = {
    "bool": ("uint8", "int8", "int4", "uint4"),
    "uint8": ("uint16", "int16"),
    "uint16": ("uint32", "int32"),
    "uint32": ("uint64", "int64"),
    "uint64": (_SOME_FLOAT,),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": (_SOME_FLOAT,),
    _SOME_FLOAT: (*_NARROWEST, "bf16", "f16"),
    "bf16": ("f32",),
    "f16": ("f32",),
    "f32": ("f64", "c64"),
    "f64": ("c128",),
    "c64": ("c128",),
}


def dtype(name: str, span: Span | None = None) -> DType:
    """The element type of that name, in the notation's, JAX's or NumPy's spelling; SHC213 if there is none."""
    found = _SPELLINGS.get(name)
    if found is not None:
        return found
    near = nearest(name, _SPELLINGS)
    raise ShardcError(
        "SHC213",
        f"unknown dtype `{name}`",
        span=span,
        help=f"did you mean `{near}`?" if near else "one of " + ", ".join(DTYPES),
    )


def is_dtype(name: str) -> bool:
    """Whether `dtype` knows the name."""
    return name in _SPELLINGS


def accumulator(operand: DType) -> DType:
    """The type in which products of this type are summed: f32 or int32, or wider."""
    if not operand.is_narrow:
        return operand
    if operand.kind is Kind.FLOAT:
        return DTYPES["f32"]
    return DTYPES["uint32" if operand.name.startswith("u") else "int32"]


@lru_cache
def promoted(left: DType, right: DType) -> DType | None:
    """The type that JAX gives two together: bf16 and f32 → f32, int32 and bf16 → bf16. None where it gives none."""
    common = _above(left.name) & _above(right.name)
    least = [name for name in common if common <= _above(name)]
    if not least:
        return None
    return DTYPES["f64" if least[0] == _SOME_FLOAT else least[0]]


@lru_cache
def _above(name: str) -> frozenset[str]:
    """A type and all that it leads to."""
    return frozenset([name]).union(*(_above(more) for more in _LEADS_TO.get(name, ())))


def multiplied(operands: Iterable[DType]) -> DType:
    """The type in which the elements of a product's operands meet, each brought to it first.

    Compilers also multiply what JAX has no common type for, f8_e4m3fn by f8_e5m2: then the wider.
    """
    first, *others = operands
    for other in others:
        first = promoted(first, other) or max(first, other, key=lambda row: row.bytes)
    return first
