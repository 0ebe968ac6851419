"""When two steps are the same one, which is done once, as compilers do it."""

from __future__ import annotations

from typing import TypeAlias

from shardc.ir.dtypes import DType
from shardc.ir.plan import Loop, Op, Rule, ValueNumber
from shardc.ir.sharding import Array, Sharding

Seen: TypeAlias = tuple[tuple[str, ...], ...]  # as of Step
# An operation, its operands, what it leaves.
StepKey: TypeAlias = tuple[Op, tuple[ValueNumber, ...], Seen, tuple[str, ...], Sharding, DType]


def key_of(op: Op, operands: tuple[ValueNumber, ...], seen: Seen, result: Array) -> StepKey:
    """Equal for steps that leave the same."""
    return op, operands, seen, result.dims, result.sharding, result.dtype


def is_done_again(op: Op, rule: Rule) -> bool:
    """Whether a step stands as often as it is asked for: what the text names, and loops, which are not compared."""
    return rule.is_named or isinstance(op, Loop)
