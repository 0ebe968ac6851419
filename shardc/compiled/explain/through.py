"""What an operation of a compiled program makes of an array that it is given.

    transpose, reshape, copy, tanh, add, …      the array goes on, seen otherwise
    dot, reduce                                 it goes on along the dims that are kept
    concatenate                                 it goes on as a block of the whole
    pad, reverse, a slice                       it goes on along the other dims; those are *blurred*: no longer followed
    sort, scatter, all-reduce, all-to-all, …    all of it is needed
    anything else                               it is lost sight of

Of a slice that is the same on every device, only a part goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias

from shardc.compiled.explain import digits
from shardc.compiled.explain.digits import View
from shardc.compiled.hlo.text import Computation, Instruction

_NAMES = """
abs add add-dependency and atan2 bitcast-convert cbrt ceil clamp compare convert cosine count-leading-zeros divide erf
exponential exponential-minus-one floor is-finite log log-plus-one logistic maximum minimum multiply negate not or
popcnt power reduce-precision remainder round-nearest-afz round-nearest-even rsqrt select shift-left
shift-right-arithmetic shift-right-logical sign sine sqrt subtract tan tanh xor
"""
ELEMENTWISE = frozenset(_NAMES.split())
KEEPS = frozenset({"copy", "copy-start", "copy-done", "optimization-barrier", "opt-barrier"})
_NEEDING = """
all-reduce all-to-all cholesky collective-broadcast collective-permute fft gather outfeed reduce-scatter
rng-bit-generator scatter send sort topk triangular-solve
"""
_NEEDS_ALL = frozenset(_NEEDING.split())
_REMARKS = frozenset({"AssumeGatherIndicesInBound"})  # custom calls that give back what they are given


@dataclass(frozen=True, slots=True)
class Piece:
    """The same part on every device: of a view, along one dim, from here to there."""

    view: View
    dim: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class On:
    """The array goes on in the operation's result, seen so."""

    view: View
    multiplied: bool = False  # some of its dims were summed over
    is_blurred: bool = False  # some of its dims are no longer followed
    part: str = ""  # if only a part of it goes on, and not another one on each device: why it is not known which
    piece: Piece | None = None  # or that part


@dataclass(frozen=True, slots=True)
class NeedsAll:
    """Every device needs all of it here."""

    why: str


@dataclass(frozen=True, slots=True)
class Lost:
    """What becomes of it is not known."""

    why: str


SAME, UNKNOWN = "a part of it is used, the same on every device", "a part of it is used, at places that are not known"
_EDGES = re.compile(r"\[(\d+):(\d+)(?::(\d+))?\]")

Outcome: TypeAlias = On | NeedsAll | Lost


@dataclass(frozen=True, slots=True)
class Use:
    """An array that an operation is given."""

    computation: Computation
    given: Instruction
    view: View
    user: Instruction
    layouts: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.user.shapes[0].sizes


def through(use: Use) -> Outcome:
    """What an operation makes of an array; slices by place, gathers and what is called are the caller's work."""
    opcode = use.user.opcode
    if opcode.removesuffix("-start") in _NEEDS_ALL:
        return NeedsAll(f"{opcode.removesuffix('-start')} needs all of it")
    target = use.user.attributes.get("custom_call_target", "").strip('"')
    if opcode == "custom-call" and target not in _REMARKS:
        return Lost(f"goes into custom-call `{target}`")
    if len(use.user.shapes) != 1 and opcode not in ("copy-start", "reduce"):
        return Lost(f"goes into {opcode} of several arrays")
    if opcode in KEEPS or (opcode in (*ELEMENTWISE, "custom-call") and use.sizes == digits.sizes_of(use.view)):
        return On(use.view)
    rule = _RULES.get(opcode)
    found = None if rule is None else rule(use)
    return Lost(f"goes into {opcode}, in a way that is not followed") if found is None else found


def is_spent(view: View) -> bool:
    """Is none of the array's own dims left? Then all of it has been used."""
    return not any(digit.origin != digits.FOREIGN for dim in view for digit in dim)


def blurred(view: View, sizes: tuple[int, ...], dims: Collection[int]) -> View:
    """Along these dims the array is no longer followed."""
    return tuple(digits.foreign(sizes[n]) if n in dims else dim for n, dim in enumerate(view))


def covered(pieces: Collection[Piece]) -> bool:
    """Do some of the pieces make up the whole, side by side?"""
    for view, dim in {(piece.view, piece.dim) for piece in pieces}:
        reached = 0
        for start, stop in sorted((p.start, p.stop) for p in pieces if (p.view, p.dim) == (view, dim)):
            reached = max(reached, stop) if start <= reached else reached
        if reached == digits.sizes_of(view)[dim]:
            return True
    return False


def without(use: Use, dims: Collection[int]) -> On:
    """It goes on in a larger or another array, no longer followed along these dims."""
    lost = not is_spent(tuple(use.view[number] for number in dims))
    return On(blurred(use.view, use.sizes, dims), is_blurred=lost)


def numbers(instruction: Instruction, attribute: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", instruction.attributes.get(attribute, "")))


def _seen(view: View | None) -> On | None:
    return None if view is None else On(view)


def _bitcast(use: Use) -> On | None:
    given, made = use.given.shapes[0], use.user.shapes[0]
    if given.bytes != made.bytes or prod(given.sizes) != prod(made.sizes) or digits.sizes_of(use.view) != given.sizes:
        return None
    row_major = tuple(range(len(given.sizes)))[::-1], tuple(range(len(made.sizes)))[::-1]
    before = use.layouts.get(use.given.name, row_major[0])
    after = use.layouts.get(use.user.name, row_major[1])
    return _seen(digits.rearranged(use.view, before, made.sizes, after))


def _broadcast(use: Use) -> On | None:
    placed = numbers(use.user, "dimensions")
    if len(placed) != len(use.view):
        return None
    where = dict(zip(placed, use.view, strict=True))
    return On(tuple(where.get(number, digits.foreign(size)) for number, size in enumerate(use.sizes)))


def _reduce(use: Use) -> On:
    gone = numbers(use.user, "dimensions")
    return On(tuple(dim for number, dim in enumerate(use.view) if number not in gone), multiplied=True)


def _turned(use: Use) -> On:
    return without(use, numbers(use.user, "dimensions"))


def _joined(use: Use) -> On:
    """Beside other arrays along one dim: a block of it, if all that stands before is a whole number of such blocks."""
    (dim,) = numbers(use.user, "dimensions")
    own, name = digits.sizes_of(use.view)[dim], use.given.name
    sizes = [use.computation.by_name[operand].shapes[0].sizes[dim] for operand in use.user.operands]
    before = [sum(sizes[:n]) for n, operand in enumerate(use.user.operands) if operand == name]
    if use.sizes[dim] % own or any(size % own for size in before):
        return without(use, [dim])
    block = (*digits.foreign(use.sizes[dim] // own), *use.view[dim])
    return On((*use.view[:dim], block, *use.view[dim + 1 :]))


def is_block(dim: digits.Dim) -> bool:
    """Does a dim hold the array as a block beside others?"""
    own = [digit.origin != digits.FOREIGN for digit in dim]
    return any(own) and not all(own)


def _padded(use: Use) -> On:
    edges = use.user.attributes.get("padding", "").split("x")
    dims = {n for n, edge in enumerate(edges) if edge.replace("_0", "") not in ("0", "")}
    changed = {n for n, size in enumerate(digits.sizes_of(use.view)) if size != use.sizes[n]}
    return without(use, dims | changed)


def _sliced(use: Use) -> On:
    """At fixed places: the same part on every device."""
    cut = [n for n, size in enumerate(digits.sizes_of(use.view)) if size != use.sizes[n]]
    found = part_of(use.view, use.sizes, cut, SAME)
    edges = _EDGES.findall(use.user.attributes.get("slice", ""))
    if not found.part or len(cut) != 1 or len(edges) <= cut[0] or edges[cut[0]][2] not in ("", "1"):
        return found
    start, stop, _ = edges[cut[0]]
    return replace(found, part="", piece=Piece(use.view, cut[0], int(start), int(stop)))


def part_of(view: View, sizes: tuple[int, ...], cut: Collection[int], part: str) -> On:
    """Along these dims a part goes on; if they hold nothing of the array, all of it does."""
    none = is_spent(tuple(view[number] for number in cut))
    return On(blurred(view, sizes, cut), is_blurred=not none, part="" if none else part)


def _windows(use: Use) -> On | None:
    """`window={size=1x8 stride=1x8}`: summed, or the like, over windows; it goes on along dims where they are of 1."""
    window = dict(re.findall(r"(\w+)=([\dx]+)", use.user.attributes.get("window", "")))
    sizes = [int(size) for size in window.get("size", "").split("x") if size]
    strides = [int(step) for step in window.get("stride", "x".join("1" * len(sizes))).split("x")]
    if len(sizes) != len(use.view) or len(strides) != len(sizes) or any(map(int.__lt__, sizes, strides)):
        return None
    gone = {n for n, size in enumerate(sizes) if size != 1 or digits.sizes_of(use.view)[n] != use.sizes[n]}
    return replace(without(use, gone), multiplied=True)


def _updated(use: Use) -> Outcome:
    """A part of it is overwritten, or it is written into a larger array."""
    sizes = digits.sizes_of(use.view)
    if use.user.operands[0] == use.given.name:
        return On(use.view)
    if use.user.operands[1] != use.given.name or len(sizes) != len(use.sizes):
        return NeedsAll("its values are indices")
    return without(use, {n for n, size in enumerate(sizes) if size != use.sizes[n]})


def _product(use: Use) -> On | None:
    """What of an operand's dims the product keeps; the other operand's are foreign."""
    user = use.user
    if len(user.operands) != 2 or user.operands[0] == user.operands[1]:
        return None
    side = user.operands.index(use.given.name)
    kept_by = _kept_by_dot if user.opcode == "dot" else _kept_by_convolution
    kept = kept_by(use.computation, user, side)
    if kept is None:
        return None
    view = tuple(use.view[kept[n]] if n in kept else digits.foreign(size) for n, size in enumerate(use.sizes))
    return On(view, multiplied=True)


def _kept_by_dot(computation: Computation, dot: Instruction, side: int) -> dict[int, int] | None:
    """By dim of the result, the dim of the operand: batch dims, then the left's free dims, then the right's."""
    ranks = [len(computation.by_name[name].shapes[0].sizes) for name in dot.operands]
    batch = [numbers(dot, f"{name}_batch_dims") for name in ("lhs", "rhs")]
    contracted = [numbers(dot, f"{name}_contracting_dims") for name in ("lhs", "rhs")]
    free = [[d for d in range(ranks[s]) if d not in batch[s] and d not in contracted[s]] for s in (0, 1)]
    first = len(batch[0]) + (len(free[0]) if side else 0)
    if len(batch[0]) + len(free[0]) + len(free[1]) != len(dot.shapes[0].sizes):
        return None
    return dict(enumerate(batch[side])) | dict(enumerate(free[side], start=first))


def _kept_by_convolution(computation: Computation, conv: Instruction, side: int) -> dict[int, int] | None:
    """As of a dot, which is what compilers make of a product. `0bf1_i1o0->0b1f`: b free left, o free right.

    A numbered dim is batched if all have its size, free on one side if the other has 1, contracted if only the
    result has 1.
    """
    labels = re.fullmatch(r"([\w?]+)_([\w?]+)->([\w?]+)", conv.attributes.get("dim_labels", ""))
    if labels is None or "_group_count" in " ".join(conv.attributes):
        return None
    own, free = labels[side + 1], "b" if side == 0 else "o"
    sizes = [computation.by_name[name].shapes[0].sizes for name in conv.operands] + [conv.shapes[0].sizes]
    kept = {}
    for place, label in enumerate(labels[3]):
        if label in "bf":
            mine = free if (label == "b") == (side == 0) else ""
            if mine:
                kept[place] = own.index(mine)
            continue
        left, right, result = (sizes[n][labels[n + 1].index(label)] for n in range(3))
        if result == 1:
            continue
        if result not in (left, right) or (1 not in (left, right) and left != right):
            return None
        if (left, right)[side] == result:
            kept[place] = own.index(label)
    return kept


_RULES: dict[str, Callable[[Use], Outcome | None]] = {
    "transpose": lambda use: On(digits.transposed(use.view, numbers(use.user, "dimensions"))),
    "reshape": lambda use: _seen(digits.reshaped(use.view, use.sizes)),
    "bitcast": _bitcast,
    "broadcast": _broadcast,
    "dot": _product,
    "convolution": _product,
    "reduce": _reduce,
    "concatenate": _joined,
    "reverse": _turned,
    "pad": _padded,
    "reduce-window": _windows,
    "slice": _sliced,
    "dynamic-update-slice": _updated,
}
