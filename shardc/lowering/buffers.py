"""What a step's form takes of memory while it runs: the buffers that it takes and gives back, in order.

    ReduceScatter of C[I, J]{U_XY} in rounds over X and Y, on 4×4
        take between, a quarter of C, apart from what outputs hold; the operand is done; take result; leave it

Which copies the TPU's compiler makes is said in `lowering.tpu`; `cost.allocation` walks a heap with this.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, assert_never

from shardc.ir.collectives import (
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    Slice,
    UnevenExchange,
)
from shardc.ir.digits import Reshape
from shardc.ir.exchange import tails
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Einsum, Op
from shardc.ir.sharding import Array
from shardc.lowering import scattered, tpu
from shardc.lowering.copies import copies_to_reshape
from shardc.lowering.forms import Gathered, InOneRound, InRounds, InTurns, OneForm, Pieces, Plain, PlainOp, Scattered
from shardc.lowering.scatters import Along, Scattering, share_of
from shardc.lowering.target import Shape
from shardc.lowering.tiles import LANES, tiled_bytes, up


class Where(Enum):
    """Where a buffer may lie."""

    HEAP = "anywhere"
    APART = "not where an output will be: what a collective leaves"
    OWN = "an output's own buffer, if the step leaves an output"


@dataclass(frozen=True, slots=True)
class Take:
    """A buffer of so many bytes under a name."""

    name: str
    size: int
    where: Where = Where.HEAP


@dataclass(frozen=True, slots=True)
class Give:
    """It is given back."""

    name: str


@dataclass(frozen=True, slots=True)
class Done:
    """Operands that nothing else reads give their buffers back."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The result is in this buffer; all others are given back."""

    name: str


@dataclass(frozen=True, slots=True)
class InPlace:
    """The result lies where the operand did, if nothing else reads that and it is no argument; else apart."""

    size: int


@dataclass(frozen=True, slots=True)
class Same:
    """The result is the operand's buffer under another shape."""


Action: TypeAlias = Take | Give | Done | Leave | InPlace | Same
Actions: TypeAlias = Iterator[Action]


@dataclass(frozen=True, slots=True)
class Blocks:
    """A step's operand and result, whether the result becomes an output as it is, whether a collective alone reads
    it, and whether there are products around."""

    before: Array
    after: Array
    mesh: Mesh
    is_output: bool
    moves_on: bool = False
    has_products: bool = False

    @property
    def taken(self) -> int:
        return size_of(self.before, self.mesh)

    @property
    def left(self) -> int:
        return size_of(self.after, self.mesh)


def size_of(array: Array, mesh: Mesh) -> int:
    """The bytes of a device's block, in tiles."""
    return tiled_bytes(array.local_shape(mesh), array.dtype.bytes)


def actions(form: OneForm, blocks: Blocks) -> Actions:
    """What a form takes and gives back."""
    match form:
        case Plain(op):
            return _plain(op, blocks)
        case Gathered():
            return _gathered(form, blocks)
        case Scattered(stages):
            return _scattered(stages, blocks)
        case Pieces(op):
            return _pieces(op, blocks)
        case InTurns(op):
            return _turns(op, blocks)
        case InOneRound():
            return _permuted(blocks)
        case InRounds(op):
            return _rounds(op, blocks)
        case _:
            assert_never(form)


def _plain(op: PlainOp, blocks: Blocks) -> Actions:
    match op:
        case Einsum() | Apply() | Mask():
            return iter((Take("result", blocks.left, Where.OWN), Leave("result")))
        case Slice():
            return iter((Take("result", tpu.off_chip(blocks.left), Where.OWN), Leave("result")))
        case CollectivePermute():
            return _permuted(blocks)
        case AllReduce():
            return iter((InPlace(blocks.left),))
        case Reshape():
            if copies_to_reshape(blocks.before, blocks.after, blocks.mesh):
                return iter((Take("result", blocks.left, Where.OWN), Leave("result")))
            return iter((Same(),))
        case AllToAll():
            return _exchange(op, blocks)
        case _:
            assert_never(op)


def _permuted(blocks: Blocks) -> Actions:
    return iter((Take("result", blocks.left, Where.APART), Leave("result")))


def _gathered(form: Gathered, blocks: Blocks) -> Actions:
    """One round after another; what lies between is apart too."""
    local, size = blocks.before.local_shape(blocks.mesh), blocks.taken
    is_plain = form.rows is None and len(form.parts) == 1
    is_flat = form.rows is not None and tpu.flattens_rows(local, size)
    if is_flat or (is_plain and tpu.copies_before_gather(local, form.dim)):
        yield Take("copy", size)
        yield Done()
    for each in form.spelled[:-1]:
        size *= each.parts(blocks.mesh)
        yield Take("between", size, Where.APART)
        yield Done()
    if len(form.parts) == 1:
        yield Take("result", blocks.left, Where.APART)
    else:  # piece by piece it is laid along the dims
        yield Take("gathered", blocks.left, Where.APART)
        yield Done()
        yield Take("result", tpu.off_chip(blocks.left), Where.OWN)
    yield Leave("result")


def _scattered(stages: tuple[Scattering, ...], blocks: Blocks) -> Actions:
    """Each stage takes what the one before left."""
    local, held = blocks.before.local_shape(blocks.mesh), ""
    for number, stage in enumerate(stages):
        yield from _stage(stage, local, held, f"left {number}", stage is stages[-1], blocks)
        local, held = share_of(stage.dims, local, blocks.mesh), f"left {number}"
    yield Leave(held)


def _stage(stage: Scattering, local: Shape, held: str, name: str, is_last: bool, blocks: Blocks) -> Actions:
    """What is in `held`, or in the operand, is not needed once it is copied, exchanged, or scattered in a round."""
    itemsize, over = blocks.before.dtype.bytes, Give(held) if held else Done()
    left = tiled_bytes(share_of(stage.dims, local, blocks.mesh), itemsize)
    scratch = list(_scratch(stage, tiled_bytes(local, itemsize), left, name, blocks.mesh, len(local)))
    if scratch:
        yield scratch[0]
        yield over
    yield from scratch[1:]
    yield Take(name, left, Where.OWN if is_last else Where.APART)
    if held and not scratch:
        yield over


def _scratch(stage: Scattering, size: int, left: int, name: str, mesh: Mesh, rank: int) -> Actions:
    """The shares to exchange; what is between two rounds; or the shares stacked, in one copy or two."""
    if stage.is_exchanged:
        yield Take(f"{name}, shares", size, Where.APART)
    elif len(stage.rounds) > 1:
        yield Take(f"{name}, between", left * stage.rounds[-1].parts(mesh), Where.APART)
    elif stage.along is Along.STACKED and len(stage.dims) == 1:
        pieces, stacked = scattered.held_to_stack(size, mesh.product(stage.axes))
        yield Take(f"{name}, pieces", pieces)
        yield Take(f"{name}, stacked", stacked)
        yield Give(f"{name}, pieces")
    elif copies := tpu.copies_to_turn([dim for dim, _ in stage.dims], rank):
        yield Take(f"{name}, stacked", size)
        if copies > 1:
            yield Take(f"{name}, again", size)
            yield Give(f"{name}, stacked")


def _exchange(op: AllToAll, blocks: Blocks) -> Actions:
    """Operand, copy split first; exchanged; copy joined; and again if joined along the last dim."""
    copies, after = tpu.copies_before_exchange(op.dim), blocks.after.local_shape(blocks.mesh)
    if copies:
        yield Take("copy", blocks.taken)
        yield Done()
    yield Take("arrived", blocks.left, Where.APART)
    if copies:
        yield Give("copy")
    yield Done()
    held = "arrived"
    if blocks.moves_on and lies_as_it_arrived(op, blocks):
        return (yield Leave(held))
    in_memory = blocks.is_output or blocks.moves_on
    joined = blocks.left if in_memory else tpu.off_chip(blocks.left)  # on chip: what arrived stays till laid
    if joined and tpu.copies_twice(op.source, after, blocks.is_output):
        yield Take("joined", joined)
        yield Give(held)
        held = "joined"
    if not blocks.is_output:
        yield Take("laid", blocks.left)
        yield Give(held)
        held = "laid"
    yield Leave(held)


def lies_as_it_arrived(op: Op, blocks: Blocks) -> bool:
    """Whether what an AllToAll leaves is read where it arrived."""
    before, after = (array.local_shape(blocks.mesh) for array in (blocks.before, blocks.after))
    return isinstance(op, AllToAll) and tpu.lies_as_it_arrived(op.source, before, after)


def _pieces(op: AllToAll | JointExchange, blocks: Blocks) -> Actions:
    """Pieces brought to the front, exchanged, and laid where they belong; each in two copies if of the last dim."""
    before, after = (array.local_shape(blocks.mesh) for array in (blocks.before, blocks.after))
    copy = "" if _is_in_order(op, blocks) else "copy"
    if copy:
        yield Take(copy, blocks.taken)
        yield Done()
    if copy and after[-1] < before[-1]:
        yield Take("copy again", tpu.copied_again(blocks.taken))
        yield Give(copy)
        copy = "copy again"
    yield Take("arrived", blocks.left, Where.APART)
    held = "arrived"
    if copy:
        yield Give(copy)
    if blocks.moves_on and lies_as_it_arrived(op, blocks):
        return (yield Leave(held))
    if after[-1] > before[-1] and tpu.copies_twice(len(after) - 1, after, blocks.is_output):
        yield Take("joined", blocks.left)
        yield Give(held)
        held = "joined"
    yield Take("result", blocks.left, Where.OWN)
    yield Leave("result")


def _is_in_order(op: AllToAll | JointExchange, blocks: Blocks) -> bool:
    """Whether the pieces to send already lie one behind the other, in the order of the devices."""
    match op:
        case AllToAll():
            return False
        case JointExchange(_, dims):
            first, *others = tails(blocks.before.sharding.dims, dims, blocks.mesh)
            one = first.new == blocks.mesh.ordered(first.new) and not first.old
            return one and all(part.cut == 1 for part in others)
        case _:
            assert_never(op)


def _turns(op: DirectExchange, blocks: Blocks) -> Actions:
    """Pieces are cut out, sent, and put where they belong."""
    before, mesh = blocks.before, blocks.mesh
    cuts = tails(before.sharding.dims, op.dims, mesh)
    shape = tuple(n // part.cut for n, part in zip(before.local_shape(mesh), cuts, strict=True))
    piece = tiled_bytes(shape, before.dtype.bytes)
    sends_rows = tpu.sends_rows(before.local_shape(mesh))
    if sends_rows:
        piece = _in_rows(shape, before.dtype.bytes)
        yield Take("rows sent", _in_rows(before.local_shape(mesh), before.dtype.bytes), Where.APART)
    sent = max(0, tpu.pieces_off_chip(op.rounds, piece, blocks.has_products))
    yield from (Take(f"sent {number}", piece) for number in range(sent))
    if sends_rows:
        yield Give("rows sent")
    yield Done()
    yield from (Take(f"received {number}", piece, Where.APART) for number in range(op.rounds))
    if tpu.copies_rows(shape, cuts[-1].joined):
        yield Take("rows", _in_rows(shape, before.dtype.bytes))
    if cuts[0].joined > 1 and sent:  # what arrives is laid there at once; elsewhere the whole is made before
        yield Give(f"sent {sent - 1}")
    yield Take("result", blocks.left, Where.OWN)
    yield Leave("result")


def _in_rows(shape: Shape, itemsize: int) -> int:
    """The bytes of a block whose last dim lies along the lanes, whole or not."""
    return itemsize * math.prod(shape[:-1]) * up(shape[-1], LANES)


def _rounds(op: UnevenExchange, blocks: Blocks) -> Actions:
    """The block cut into cells; of each round what is sent and what arrives; all together; and the new block of it."""
    yield Take("cells", blocks.taken)
    yield Done()
    for number, count in enumerate(op.rounds):
        some = -(-blocks.taken * count // op.cells)
        yield Take(f"sent {number}", some)
        yield Take(f"received {number}", some, Where.APART)
        yield Give(f"sent {number}")
    yield Take("joined", blocks.taken + -(-blocks.taken * op.brings // op.cells))
    yield Give("cells")
    yield Take("result", blocks.left, Where.OWN)
    yield Leave("result")
