"""What the TPU's compiler rounds to bf16 of a program in f32, and where: rules, as in `lowering.tpu`."""

from __future__ import annotations

from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.operations import Facts, Kind
from shardc.ir.plan import Apply, Op
from shardc.lowering.observed import seen


@seen(
    "0.0.42.1",
    "f32 that products alone read, which round it to bf16, is rounded where it is made, or before it is moved to them: "
    "gathered, exchanged, permuted or sliced once or several times, by a ring or in chunks; of partial sums what is "
    "added up is f32",
)
def rounds_before(move: Facts) -> bool:
    """Whether what it leaves is rounded before it, if that is rounded."""
    return move.is_move and not move.reduces


_LEAVES_GIVEN = frozenset({"relu", "abs", "maximum", "minimum", "where"})


@seen(
    "0.0.42.1",
    "f32 that a relu, an abs, a maximum, a minimum or a `where` reads, whose result products alone read, was gathered "
    "as bf16, on v5e and v5p; what is negated, squared, scaled, added to, or taken the sign of was not",
)
def leaves_what_it_is_given(function: str) -> bool:
    """Whether each number that a function leaves is one of those that it is given, or is that but for its sign, so that
    they may as well be rounded before."""
    return function in _LEAVES_GIVEN


@seen(
    "0.0.42.1",
    "the shares of a softmax and a product that reads them are one kernel, to which the other operand is moved as f32, "
    "on v5e and v5p; where a relu lies between, as bf16",
)
def is_one_kernel(before: Op) -> bool:
    """Whether a product is one kernel with what left its operand."""
    return isinstance(before, Apply) and Through.RESULT in FUNCTIONS[before.function].through


@seen(
    "0.0.42.1",
    "what a product left in f32, rounded after it, was copied before it was exchanged; one of bf16 that names no type "
    "left its pieces as they are sent: of twelve products of four dims on v5p:2x2x2 and v5e:2x4 six took 0.86 to 0.9 "
    "of the time so, the others as long. Of two dims it took as long, and more memory: two copies of it. Before what "
    "is no exchange such products took longer now and then: 1.49 times as long where a loop adds them up",
)
def copies_what_it_was_asked_for(reader: Facts, rank: int) -> bool:
    """Whether what reads a product's result of so many dims has it copied if the product was asked for another type."""
    return reader.kind is Kind.EXCHANGE and rank > 3


@seen(
    "0.0.42.1",
    "an AllGather over the axes over which its operand was just scattered, along the same dim, for a product, is an "
    "AllReduce of f32 with that ReduceScatter, on v5e:2x4, v5e:4x4 and v5p:2x2x2. Where others read the parts, or they "
    "are an output, both are there, and of f32",
)
def are_one_sum(before: Op, after: Op) -> bool:
    """Whether a sum and what is next done with it are one sum."""
    kinds = before.facts.kind, after.facts.kind
    return kinds == (Kind.SCATTER, Kind.GATHER) and (before.axes, before.on) == (after.axes, after.on)


@seen(
    "0.0.42.1",
    "`S = f32(x · W)`, of which a logsumexp, a sum, or both were made, lay in bf16, and that of an argument nowhere, "
    "on v5e and v5p; `S: f32 = x · W` in f32. As an output it lay in f32",
)
def widens_as_it_reads(op: Op) -> bool:
    """Whether each function that reads a step's result makes it anew."""
    return isinstance(op, Apply) and op.function == "widen"


@seen(
    "0.0.42.1",
    "`max_V(f32(S))` and a logsumexp of f32(S), with V over devices, sent what each had as bf16, on v5e and v5p; "
    "`min_V(f32(S))`, and the largest of relu(f32(S)) and of 2 ⊙ f32(S), were f32",
)
def leaves_the_largest(op: Op) -> bool:
    """Whether a step leaves the largest of some numbers, which may as well be sent in the type in which they were."""
    return isinstance(op, Apply) and FUNCTIONS[op.function].reduces == "max"
