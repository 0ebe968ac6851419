"""What will be emitted for each step: its form, decided once, which everything else reads.

    lowering  = target, a form for each step, and for each group of steps that are done as one (`lowering.as_one`)
    form      = Plain       as JAX has it; what a sum leaves behind a barrier
              | Gathered    in one round or in two; a digit as rows; over several dims, then laid along them
              | Scattered   along a dim or several, one after another or together; stacked, folded, exchanged
              | Pieces      pieces to the front, exchanged, laid where they belong
              | InTurns     pieces in turns of a permute
              | InOneRound  whole blocks in a permute, to where their copies were or are to be
              | InRounds    cells in rounds of a permute, by tables
              | Looped      a loop: the lowering of its body
    call      = a collective of JAX over some axes, or over a part of one, of the step's block or a part of it

The emitter prints a form, the callable applies it, prices are sums over its calls, and the memory model asks it for
what lies between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias, assert_never

from shardc.ir.collectives import (
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    Move,
    Slice,
    UnevenExchange,
)
from shardc.ir.digits import Reshape
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum
from shardc.ir.sharding import Axes
from shardc.lowering.scatters import AxesOfDims, Round, Scattering
from shardc.lowering.target import Target

if TYPE_CHECKING:
    from shardc.lowering.as_one import AsOne

Sent: TypeAlias = tuple[Axes, Axes]  # the orders in which devices count the blocks that they hold, and want


class Laid(Enum):
    """What a copy lays anew: a block as it is, or in other tiles; a share of it; pieces of it; pieces beside each other
    along its last dim."""

    WHOLE = auto()
    TILES = auto()
    SHARE = auto()
    PIECES = auto()
    LANES = auto()


@dataclass(frozen=True, slots=True)
class Call:
    """One collective as JAX is asked for it, of `above`/`below` of the step's block; so often, of as much each time.

    A local one is a copy (`lowering.copies`), of a whole block or of pieces that an exchange sends or receives.
    Of permutes whose pairs are known (`lowering.pairs`) `sent` tells who has what, and who wants it.
    """

    kind: Kind
    over: Round
    above: int = 1
    below: int = 1
    times: float = 1
    laid: Laid = Laid.WHOLE
    sent: Sent = ((), ())


def at_once(move: Move) -> Call:
    """A move as it is, whatever a compiler makes of it."""
    times, above, below = move.turns
    return Call(move.facts.kind, Round(move.axes), above, below, times)


PlainMove: TypeAlias = Reshape | AllReduce | AllToAll | CollectivePermute | Slice | Mask
PlainOp: TypeAlias = Einsum | Apply | PlainMove


@dataclass(frozen=True, slots=True)
class Plain:
    """One call, or none: what a local step does, a sum, an exchange of one dim for another, a permute, a slice.

    With `apart` the result is read through a barrier (`lowering.apart`); a product that is `unasked` names no type to
    add up in (`lowering.unasked`), reads the operand `twice` two times (`lowering.vectors`), and adds up the numbers
    along `terms` one by one (`lowering.small`), and is `turned` where its second operand is given first
    (`lowering.turned`); what is `laid` is told in which order its dims lie (`lowering.laid`); numbers are added up
    `by_product` (`lowering.shares`, `lowering.ones`); a mask is made as `wide` as a value that is made of it
    (`lowering.masks`).
    """

    op: PlainOp
    apart: bool = False
    unasked: bool = False
    twice: int | None = None
    terms: str | None = None
    by_product: bool = False
    wide: int | None = None
    turned: bool = False
    laid: tuple[int, ...] | None = None  # its dims' places, from the major to the minor

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        match self.op:
            case Einsum() | Apply() | Reshape() | Slice() | Mask():
                return ()
            case AllReduce() | AllToAll() | CollectivePermute():
                return (at_once(self.op),)
            case _:
                assert_never(self.op)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Over `axes`, major to minor, along `dim`, minor round first; then laid along `parts`, if these are several.

    `to_equal`: JAX has to be told that the result is equal on all devices. It takes no part of an axis then.
    """

    axes: Axes
    dim: int
    rounds: tuple[Round, ...]
    parts: AxesOfDims
    to_equal: bool = False
    rows: int | None = None  # the size of the digit above, as rows of what is above that

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        found, gathered = list[Call](), 1
        for each in self.rounds:
            found.append(Call(Kind.GATHER, each, above=gathered))
            gathered *= each.parts(mesh)
        return tuple(found)

    @property
    def spelled(self) -> tuple[Round, ...]:
        """The rounds as they are written."""
        return (Round(self.axes),) if self.to_equal and any(each.split for each in self.rounds) else self.rounds


@dataclass(frozen=True, slots=True)
class Scattered:
    """One scattering after another, each of what the one before left."""

    stages: tuple[Scattering, ...]

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        found, shared = list[Call](), 1
        for stage in self.stages:
            kind = Kind.EXCHANGE if stage.is_exchanged else Kind.SCATTER
            for each in stage.rounds:
                found.append(Call(kind, each, below=shared))
                shared *= each.parts(mesh)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of a block brought to the front, exchanged in one AllToAll, and laid where they belong."""

    op: AllToAll | JointExchange

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        return (Call(Kind.EXCHANGE, Round(tuple(axis for axis in self.op.axes if mesh.size(axis) > 1))),)


@dataclass(frozen=True, slots=True)
class InTurns:
    """A piece in each turn of a permute."""

    op: DirectExchange

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        return (at_once(self.op),)


@dataclass(frozen=True, slots=True)
class InOneRound:
    """Whole blocks in one permute: of copies each device sends its own, and each has its own sender.

    `A[I_X] → A[I_Y]` on X=2, Y=2 as `A[I_XY] → A[I_YX]`: (0,1) and (1,0) swap, and then hold blocks 1 and 0.
    """

    op: UnevenExchange

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        return (at_once(self.op),)


@dataclass(frozen=True, slots=True)
class InRounds:
    """Some cells of a block in each round of a permute, by tables of who sends which."""

    op: UnevenExchange

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        return (at_once(self.op),)


@dataclass(frozen=True, slots=True)
class Looped:
    """The steps of its body, each in its form."""

    body: Lowering

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        """None of its own."""
        return ()


# Of a step that leaves one value.
OneForm: TypeAlias = Plain | Gathered | Scattered | Pieces | InTurns | InOneRound | InRounds
Form: TypeAlias = OneForm | Looped


@dataclass(frozen=True, slots=True)
class Lowering:
    """The form of each step of a block, in order; of steps that are done once more, by place, what they wait for, as
    `lowering.flow` says it; and of steps that are done as one, by the place of the first, how that is done."""

    target: Target
    forms: tuple[Form, ...]
    again: tuple[tuple[int, int | None], ...] = ()
    groups: tuple[tuple[int, AsOne], ...] = ()

    def of_part(self, first: int, count: int) -> Lowering:
        """Of so many of the steps, by their places among these."""
        places = range(first, first + count)
        again = tuple((place - first, value) for place, value in self.again if place in places)
        groups = tuple((place - first, form) for place, form in self.groups if place in places)
        return Lowering(self.target, self.forms[first : first + count], again, groups)

    @property
    def wide(self) -> Iterator[tuple[int, int]]:
        """The places of masks that are made wider, each with the value that it is made as wide as."""
        for place, form in enumerate(self.forms):
            match form:
                case Plain(wide=wide):
                    if wide is not None:
                        yield place, wide
                case Gathered() | Scattered() | Pieces() | InTurns() | InOneRound() | InRounds() | Looped():
                    continue
                case _:
                    assert_never(form)

    @property
    def unwritten(self) -> Iterator[tuple[int, int]]:
        """How gathers cut an axis that are in rounds, and are not written so, since what they leave has to be equal."""
        for form in self.forms:
            match form:
                case Gathered():
                    if form.spelled != form.rounds:
                        yield from (each.split for each in form.rounds if each.split is not None)
                case Looped(body):
                    yield from body.unwritten
                case Plain() | Scattered() | Pieces() | InTurns() | InOneRound() | InRounds():
                    continue
                case _:
                    assert_never(form)

    @property
    def calls(self) -> Iterator[Call]:
        """All calls that are emitted, once each; a loop's are its body's."""
        for form in self.forms:
            yield from form.body.calls if isinstance(form, Looped) else form.calls(self.target.mesh)
