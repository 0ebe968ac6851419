"""A product and the gathers of both operands as two rings at once: see `lowering.meeting`.

    across, down = A, B                 both turned to where they meet, one permute each
    C = across · down
    for turn in range(3):
        across, down = to the device before, A along one axis and B along the other
        C = C + across · down

Where a block of B holds several of A, it stays while these come by: the products of a round read a part of it each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardc.emit.allowed import ACROSS, DOWN, PIECE, PLACE, STANDS, TURN
from shardc.emit.exprs import BinOp, Code, Const, Expr, Line, Loop, Name, axes_argument, call, over, size_of
from shardc.emit.steps import local
from shardc.emit.steps.rings import permuted
from shardc.ir.plan import Schedule, Step, Together, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.meeting import Meeting

_ACROSS, _DOWN, _PIECE, _PLACE, _STANDS, _TURN = map(Name, (ACROSS, DOWN, PIECE, PLACE, STANDS, TURN))


def meeting(schedule: Schedule, group: Together, found: Meeting, names: Sequence[str]) -> list[Code]:
    """The lines of a group."""
    *gathers, product = schedule.steps[group.first : group.last + 1]
    given = {gather.result: Name(names[gather.operands[0]]) for gather in gathers}
    fine, coarse = (given[product.operands[place]] for place in (found.fine, 1 - found.fine))
    return list(_Writer(schedule, found, product, Name(names[product.result])).lines(fine, coarse))


@dataclass(frozen=True, slots=True)
class _Writer:
    schedule: Schedule
    meeting: Meeting
    product: Step
    target: Name

    @property
    def arrays(self) -> tuple[Array, ...]:
        return operands_of(self.product, self.schedule.values)

    @property
    def result(self) -> Array:
        return self.schedule.values[self.product.result]

    def lines(self, fine: Name, coarse: Name) -> Iterator[Code]:
        found, mesh = self.meeting, self.schedule.mesh
        axes = found.over(mesh)
        yield Line(ACROSS, permuted(fine, axes, found.fine_turned(mesh)), "to where they meet")
        yield Line(DOWN, permuted(coarse, axes, found.coarse_turned(mesh)), "")
        if found.within == 1:
            yield Line(self.target.name, self._product(_DOWN), str(self.result))
            yield Loop(found.rounds - 1, (*self._sent_on(), *self._added(_DOWN)))
        else:
            yield Line(STANDS, call("jax.lax.axis_index", axes_argument(found.axes[:1])), "")
            for number in range(found.rounds):
                yield from self._round(number)
        rounded = local.rounded(self.target, self.arrays, self.result)
        if rounded != self.target:
            yield Line(self.target.name, rounded, str(self.result))

    def _round(self, number: int) -> Iterator[Code]:
        """The products with one block of the operand that has few."""
        count = self.meeting.within
        first = -number % count
        yield from self._sent_on() if number else ()
        yield from self._part(BinOp(_STANDS, "+", Const(first)) if first else _STANDS)
        if number:
            yield from self._added(_PIECE)
        else:
            yield Line(self.target.name, self._product(_PIECE), str(self.result))
        passed = permuted(_ACROSS, self.meeting.axes[:1], self.meeting.passed)
        place = BinOp(BinOp(_STANDS, "+", Const(first + 1)), "+", _TURN)
        yield Loop(count - 1, (Line(ACROSS, passed, ""), *self._part(place), *self._added(_PIECE)))

    def _sent_on(self) -> Iterator[Line]:
        fine, coarse = self.meeting.axes
        yield Line(ACROSS, permuted(_ACROSS, (fine,), self.meeting.fine_sent_on), "")
        yield Line(DOWN, permuted(_DOWN, (coarse,), self.meeting.coarse_sent_on), "")

    def _part(self, place: Expr) -> Iterator[Line]:
        """What a block of few has for one of many."""
        dim = self.arrays[1 - self.meeting.fine].dims.index(self.meeting.dim)
        size = over(size_of(_DOWN, dim), self.meeting.within)
        yield Line(PLACE, place, "")
        yield Line(PLACE, BinOp(_PLACE, "%", Const(self.meeting.within)), "")
        part = call("jax.lax.dynamic_slice_in_dim", _DOWN, BinOp(_PLACE, "*", size), size, axis=Const(dim))
        yield Line(PIECE, part, "")

    def _added(self, other: Name) -> Iterator[Line]:
        yield Line(PIECE, self._product(other), "")
        yield Line(self.target.name, call("jnp.add", self.target, _PIECE), "")

    def _product(self, other: Name) -> Expr:
        names = (_ACROSS, other) if self.meeting.fine == 0 else (other, _ACROSS)
        return local.einsum(self.arrays, names, self.result)
