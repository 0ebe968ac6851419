"""Of which type an array is that is weakly typed, as JAX has it of Python's numbers: of the type that it meets.

    x[B, D] ⊙ c[]                x in bf16: c is taken in bf16, where an f32 of its own would make f32 of both
    n[B] ⊙ c[] ⊙ x[B, D]         n in int32: what it makes with c is a float, and as weakly typed as c

An array is taken in one type. Where a program has it meet several, bf16 here and f32 there, it keeps its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from shardc.ir.calls import places
from shardc.ir.dtypes import DType, Kind, multiplied
from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands, parts_of
from shardc.ir.functions import FUNCTIONS, Gives
from shardc.ir.program import For, Program, Statement

_KINDS = (Kind.BOOL, Kind.INT, Kind.FLOAT, Kind.COMPLEX)  # of a weakly typed one the later counts, whatever it meets


@dataclass(frozen=True, slots=True)
class _Value:
    """Of a weakly typed one `dtype` is what it is if it meets none, and `made_of` the inputs that it is made of."""

    dtype: DType
    is_weak: bool = False
    made_of: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Walk:
    """The values of the names known so far, and the types that each weakly typed input has met."""

    known: dict[str, _Value]
    met: dict[str, set[DType]]

    def through(self, statements: Iterable[Statement | For]) -> None:
        for each in statements:
            if isinstance(each, For):
                self.through(each.body)
                self.through(each.body)  # with what the first trip carries to the next
            else:
                self.known[each.name] = self._value(each.expr)

    def _value(self, expr: Expr) -> _Value:
        found = dict[int, _Value]()
        for each in reversed([*parts_of(expr)]):  # what is below comes first
            found[id(each)] = self._made(each, [found[id(below)] for below in operands(each)])
        return found[id(expr)]

    def _made(self, expr: Expr, below: Sequence[_Value]) -> _Value:
        match expr:
            case Use():
                return self.known[expr.name]
            case Named():
                return below[0]
            case Product():
                return self._together(below)
            case Call():
                return self._called(expr, below)

    def _called(self, call: Call, below: Sequence[_Value]) -> _Value:
        row = FUNCTIONS[call.function]
        stand = zip(places(row, call.numbers), below, strict=True)
        plain = [value for place, value in stand if place not in row.conditions]
        if row.gives is Gives.ASKED or not plain:  # where(M, 1.0, 0.5) is of numbers alone
            return _Value(call.dtype, is_weak=bool(below) and row.gives is not Gives.ASKED)
        found = self._together(plain)
        if row.gives is Gives.BOOL:
            return _Value(call.dtype)
        if found.is_weak or found.dtype.kind is not call.dtype.kind:  # of integers a float
            return _Value(call.dtype, found.is_weak, found.made_of)
        return found

    def _together(self, values: Sequence[_Value]) -> _Value:
        """What several make with each other: of weakly typed ones alone, or of a later kind than the others, another
        such; and else of the others' type, which the weakly typed ones meet."""
        weak, strong = ([each for each in values if each.is_weak is is_weak] for is_weak in (True, False))
        made_of = frozenset[str]().union(*(each.made_of for each in weak))
        if not strong:
            return _Value(multiplied(each.dtype for each in weak), True, made_of)
        met = multiplied(each.dtype for each in strong)
        if not weak:
            return _Value(met)
        own = multiplied(each.dtype for each in weak)
        if _KINDS.index(own.kind) > _KINDS.index(met.kind):
            return _Value(own, True, made_of)
        if own.kind is met.kind:  # integers are brought to the type of any float that they meet
            for name in made_of:
                self.met[name].add(met)
        return _Value(met)


def types_met(program: Program, weak: Collection[str]) -> dict[str, DType]:
    """For each weakly typed input the type that it meets; its own where it meets none, or several.

    >>> from shardc.notation import parse
    >>> scaled = parse("s = c[] ⊙ c; y = s ⊙ x[I]", dtypes={"c": "f32", "x": "bf16"})
    >>> {name: str(dtype) for name, dtype in types_met(scaled, ["c"]).items()}
    {'c': 'bf16'}
    """
    values = {each.name: _Value(each.dtype) for each in program.inputs}
    known = values | {name: _Value(values[name].dtype, True, frozenset([name])) for name in weak}
    walk = _Walk(known, {name: set() for name in weak})
    walk.through(program.statements)
    return {name: next(iter(met)) if len(met) == 1 else values[name].dtype for name, met in walk.met.items()}
