"""Element types. One row each; every other room asks this table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shardc.errors import ShardcError, Span, nearest


class Kind(Enum):
    FLOAT = "float"
    INT = "int"


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `unit` is the unit round-off of a float (0 for integers)."""

    name: str  # as the notation writes it
    bytes: int
    kind: Kind
    jax: str  # its name in jax.numpy
    unit: float = 0.0

    @property
    def is_narrow(self) -> bool:
        """Too narrow to sum in: products add up in f32 or int32 instead."""
        return self.bytes < 4

    def __str__(self) -> str:
        return self.name


_TABLE = (
    DType("f8_e4m3fn", 1, Kind.FLOAT, "float8_e4m3fn", 2.0**-4),
    DType("f8_e5m2", 1, Kind.FLOAT, "float8_e5m2", 2.0**-3),
    DType("bf16", 2, Kind.FLOAT, "bfloat16", 2.0**-8),
    DType("f16", 2, Kind.FLOAT, "float16", 2.0**-11),
    DType("f32", 4, Kind.FLOAT, "float32", 2.0**-24),
    DType("f64", 8, Kind.FLOAT, "float64", 2.0**-53),
    DType("int8", 1, Kind.INT, "int8"),
    DType("uint8", 1, Kind.INT, "uint8"),
    DType("int16", 2, Kind.INT, "int16"),
    DType("uint16", 2, Kind.INT, "uint16"),
    DType("int32", 4, Kind.INT, "int32"),
    DType("uint32", 4, Kind.INT, "uint32"),
    DType("int64", 8, Kind.INT, "int64"),
    DType("uint64", 8, Kind.INT, "uint64"),
)

DTYPES: dict[str, DType] = {row.name: row for row in _TABLE}
_SPELLINGS: dict[str, DType] = DTYPES | {row.jax: row for row in _TABLE} | {"fp32": DTYPES["f32"]}
_SPELLINGS |= {f"{row.name[0]}{8 * row.bytes}": row for row in _TABLE if row.kind is Kind.INT}  # i8, u32
_SPELLINGS |= {"s8": DTYPES["int8"], "s32": DTYPES["int32"], "fp16": DTYPES["f16"], "fp8": DTYPES["f8_e4m3fn"]}


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


def accumulator(operand: DType) -> DType:
    """The type in which products of this type are summed: f32 or int32, or wider."""
    if not operand.is_narrow:
        return operand
    if operand.kind is Kind.FLOAT:
        return DTYPES["f32"]
    return DTYPES["uint32" if operand.name.startswith("u") else "int32"]
