"""What a device copies around the collectives of a form: whole blocks, laid anew, as calls that move nothing.

    AllToAll                        the pieces brought together, and laid where they belong. Of two dims those of the
                                    first lie as they are sent: A[I_X, J] → A[I, J_X] brings, A[I, J_X] → A[I_X, J] lays
                                    them, A[B, I_X, J, K] → A[B, I, J_X, K] does both
    AllGather of several dims       what was gathered, laid along them piece by piece
    ReduceScatter of stacked shares the shares, one behind the other; of exchanged ones as of an AllToAll

The price of a move counts them (`cost.model`). A copy to an output that a collective leaves is no part of the move: it
is in `of_output`; nor is one of an input that it reads, in `of_input`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from shardc.ir.collectives import AllReduce, AllToAll, CollectivePermute, Slice
from shardc.ir.digits import Reshape
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum, Op, Step, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.forms import Call, Gathered, InOneRound, InRounds, InTurns, Laid, OneForm, Pieces, Plain, Scattered
from shardc.lowering.scatters import Along, Round, Scattering
from shardc.lowering.target import Target
from shardc.lowering.tpu import copies_before_exchange, copies_input_too

_HERE = Round(())
_PIECES = Call(Kind.LOCAL, _HERE, times=2, laid=Laid.PIECES)  # brought together, and laid


def with_copies(form: OneForm, mesh: Mesh, rank: int | None) -> tuple[Call, ...]:
    """The calls of a form, and the copies before or after them, of an array of so many dims."""
    calls = form.calls(mesh)
    match form:
        case Gathered(axes, parts=parts):
            return calls if len(parts) == 1 else (*calls, _copy(above=mesh.product(axes)))
        case Plain(op):
            return (*_around(op, rank), *calls)
        case InOneRound():
            return calls
        case Pieces() | InTurns():
            return (_PIECES, *calls)
        case InRounds():
            return (_PIECES, _copy(), *calls)
        case Scattered(stages):
            return tuple(call for at, stage in enumerate(stages) for call in _stage(stage, stages[:at], mesh))
        case _:
            assert_never(form)


def of_output(form: OneForm, rank: int) -> bool:
    """Whether what a form leaves, of so many dims, is copied to become an output."""
    match form:
        case Gathered(parts=parts):
            return len(parts) == 1
        case Plain(op):
            return op.facts.kind in (Kind.PERMUTE, Kind.SLICE) or _leaves_pieces(op, rank)
        case InOneRound():
            return True
        case Scattered() | Pieces() | InTurns() | InRounds():
            return False
        case _:
            assert_never(form)


def of_input(op: Op, after: Array, is_output: bool, target: Target) -> bool:
    """Whether a step that reads an input, and leaves this, copies it too."""
    if not isinstance(op, AllToAll):
        return False
    block, size = after.local_shape(target.mesh), after.local_bytes(target.mesh)
    return copies_input_too(op.dim, block, size, is_output, target)


def copies_to_reshape(before: Array, after: Array, mesh: Mesh) -> bool:
    """Whether digits, or dims again, lie in other tiles: where the last dim of a block is cut, or made of several."""
    return before.local_shape(mesh)[-1:] != after.local_shape(mesh)[-1:]


def is_turn(step: Step, values: Sequence[Array]) -> bool:
    """Whether a step lays an array with its dims in another order, and does no more."""
    if not isinstance(step.op, Einsum) or len(step.operands) != 1:
        return False
    (before,), after = operands_of(step, values), values[step.result]
    return {*before.dims} == {*after.dims} and before.dims != after.dims


def lies_alike(step: Step, values: Sequence[Array], mesh: Mesh) -> bool:
    """Whether an array with its dims in another order lies as before: where those that pass others have one element."""
    before, after = (long_dims(array, mesh) for array in (*operands_of(step, values), values[step.result]))
    return before == after


def long_dims(array: Array, mesh: Mesh) -> list[str]:
    """The dims of which a device has more than one element."""
    return [dim for dim, size in zip(array.dims, array.local_shape(mesh), strict=True) if size > 1]


def _around(
    op: Einsum | Apply | Reshape | AllReduce | AllToAll | CollectivePermute | Slice | Mask, rank: int | None
) -> tuple[Call, ...]:
    match op:
        case AllToAll():
            times = (rank != 2 or copies_before_exchange(op.dim)) + (not _leaves_pieces(op, rank))
            return (replace(_PIECES, times=times, laid=Laid.LANES if op.source + 1 == rank else Laid.PIECES),)
        case Einsum() | Apply() | Reshape() | AllReduce() | CollectivePermute() | Slice() | Mask():
            return ()
        case _:
            assert_never(op)


def _leaves_pieces(op: Op, rank: int | None) -> bool:
    """Whether an exchange leaves the pieces one behind the other, which are two dims' as they belong."""
    return isinstance(op, AllToAll) and op.source == 0 and rank == 2


def _stage(stage: Scattering, before: tuple[Scattering, ...], mesh: Mesh) -> tuple[Call, ...]:
    """Of what the stages before left."""
    shared = mesh.product([axis for each in before for axis in each.axes])
    kind = Kind.EXCHANGE if stage.is_exchanged else Kind.SCATTER
    found = _before(stage, shared, mesh)
    for each in stage.rounds:
        found.append(Call(kind, each, below=shared))
        shared *= each.parts(mesh)
    return tuple(found)


def _before(stage: Scattering, shared: int, mesh: Mesh) -> list[Call]:
    match stage.along:
        case Along.PLAIN | Along.APART | Along.TURNED | Along.TURNED_APART:
            return []
        case Along.STACKED:
            return [replace(_copy(below=shared), times=stage.copies)]
        case Along.FOLDED:
            return [_copy(below=shared)]
        case Along.EXCHANGED:
            return [replace(_PIECES, below=shared)]
        case _:
            assert_never(stage.along)


def _copy(above: int = 1, below: int = 1) -> Call:
    return Call(Kind.LOCAL, _HERE, above, below)
