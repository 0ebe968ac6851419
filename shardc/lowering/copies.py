"""What a device copies around the collectives of a form: whole blocks, laid anew, as calls that move nothing.

    AllToAll                        the pieces brought together, and laid where they belong
    AllGather of several dims       what was gathered, laid along them piece by piece
    ReduceScatter of stacked shares the shares, one behind the other; of exchanged ones as of an AllToAll

The price of a move counts them (`cost.model`). A copy to an output that a collective leaves is no part of the move: it
is in `of_output`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from shardc.ir.collectives import AllReduce, AllToAll, CollectivePermute, Slice
from shardc.ir.digits import Reshape
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum
from shardc.ir.sharding import Array
from shardc.lowering.forms import Call, Gathered, InOneRound, InRounds, InTurns, OneForm, Pieces, Plain, Scattered
from shardc.lowering.scatters import Along, Round, Scattering

_HERE = Round(())
_PIECES = Call(Kind.LOCAL, _HERE, pieces=True)


def with_copies(form: OneForm, mesh: Mesh) -> tuple[Call, ...]:
    """The calls of a form, and the copies before or after them."""
    calls = form.calls(mesh)
    match form:
        case Gathered(axes, parts=parts):
            return calls if len(parts) == 1 else (*calls, _copy(above=mesh.product(axes)))
        case Plain(op):
            return (*_around(op), *calls)
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


def of_output(form: OneForm) -> bool:
    """Whether what a form leaves is copied to become an output."""
    match form:
        case Gathered(parts=parts):
            return len(parts) == 1
        case Plain(op):
            return op.facts.kind in (Kind.PERMUTE, Kind.SLICE)
        case InOneRound():
            return True
        case Scattered() | Pieces() | InTurns() | InRounds():
            return False
        case _:
            assert_never(form)


def copies_to_reshape(before: Array, after: Array, mesh: Mesh) -> bool:
    """Whether digits, or dims again, lie in other tiles: where the last dim of a block is cut, or made of several."""
    return before.local_shape(mesh)[-1:] != after.local_shape(mesh)[-1:]


def _around(op: Einsum | Apply | Reshape | AllReduce | AllToAll | CollectivePermute | Slice | Mask) -> tuple[Call, ...]:
    match op:
        case AllToAll():
            return (_PIECES,)
        case Einsum() | Apply() | Reshape() | AllReduce() | CollectivePermute() | Slice() | Mask():
            return ()
        case _:
            assert_never(op)


def _stage(stage: Scattering, before: tuple[Scattering, ...], mesh: Mesh) -> tuple[Call, ...]:
    """Of what the stages before left."""
    shared = mesh.product([axis for each in before for axis in each.axes])
    kind = Kind.EXCHANGE if stage.is_exchanged else Kind.SCATTER
    found = _before(stage.along, shared)
    for each in stage.rounds:
        found.append(Call(kind, each, below=shared))
        shared *= each.parts(mesh)
    return tuple(found)


def _before(along: Along, shared: int) -> list[Call]:
    match along:
        case Along.PLAIN | Along.APART | Along.TURNED:
            return []
        case Along.STACKED | Along.FOLDED:
            return [_copy(below=shared)]
        case Along.EXCHANGED:
            return [replace(_PIECES, below=shared)]
        case _:
            assert_never(along)


def _copy(above: int = 1, below: int = 1) -> Call:
    return Call(Kind.LOCAL, _HERE, above, below)
