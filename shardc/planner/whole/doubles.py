"""What a program of exact shardings binds twice alike is bound once: so it is made, and so it is priced.

    y_1 = A · B;  y_2 = A · B;  y = exp(y_1 - max_I(y_2))      y_1 = A · B;  y = exp(y_1 - max_I(y_1))

A statement that has an expression several times has an array for each place. Steps that do the same are one step, and
what they take is read off the text (`lowering.loops`), in which there would be two: y would not wait for the largest of
the tiles that it is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from shardc.ir.expressions import Call, Expr, Named, Pattern, Use, parts_of, says_steps, uses
from shardc.ir.program import For, Program, Statement, bindings_of, nested
from shardc.planner.whole.rewrites import Rewritten, Told


def without_doubles(program: Program, told: Sequence[Told]) -> Rewritten:
    """A program without statements that bind what another has bound, in the same sharding."""
    statements, found = _once(program.statements, told, _Names.of(program))
    return Rewritten(replace(program, statements=statements), found)


@dataclass(frozen=True, slots=True)
class _Names:
    """Those by which arrays are known elsewhere, and those that are other arrays in other places."""

    ends: frozenset[str]  # what a program leaves, and what loops take and leave
    anew: frozenset[str]

    @classmethod
    def of(cls, program: Program) -> _Names:
        every = [*nested(program.statements)]
        loops = [each for each in every if isinstance(each, For)]
        given = [array.name for array in chain(program.inputs, *(loop.takes for loop in loops))]
        bound = Counter(each.name for each in every if isinstance(each, Statement))
        ends = {program.results[number].name for number in program.outputs}
        ends.update(given, (made.name for loop in loops for made in bindings_of(loop)))
        anew = {name for name, times in bound.items() if times > 1} | {name for name in given if name in bound}
        return cls(frozenset(ends), frozenset(anew))


def _once(
    statements: Sequence[Statement | For], told: Sequence[Told], named: _Names
) -> tuple[tuple[Statement | For, ...], tuple[Told, ...]]:
    """The statements of a program, or of a loop's body."""
    first, same = dict[tuple[Expr, Pattern], str](), dict[str, str]()
    found, numbers = list[Statement | For](), list[Told]()
    for each, own in zip(statements, told, strict=True):
        if isinstance(each, For):
            body, inside = _once(each.body, own.inside, named)
            found.append(replace(each, body=body))
            numbers.append(replace(own, inside=inside))
            continue
        expr = _renamed(each.expr, same)
        is_fixed = named.anew.isdisjoint(use.name for use in uses(expr))
        if is_fixed and each.name not in named.ends | named.anew and not _is_done_again(expr):
            made = first.setdefault((expr, each.pattern), each.name)
            if made != each.name:
                same[each.name] = made
                continue
        found.append(replace(each, expr=expr))
        numbers.append(own)
    return tuple(found), tuple(numbers)


def _is_done_again(expr: Expr) -> bool:
    """Whether the text says that it is done again, or which step is done: as often as it is written."""
    return says_steps(expr) or any(isinstance(part, Call) and part.function == "again" for part in parts_of(expr))


def _renamed(expr: Expr, same: Mapping[str, str]) -> Expr:
    match expr:
        case Use(name=name):
            return replace(expr, name=same[name]) if name in same else expr
        case Named(operand=operand):
            return replace(expr, operand=_renamed(operand, same))
        case _:
            return replace(expr, operands=tuple(_renamed(operand, same) for operand in expr.operands))
