"""What brackets ask for whole, where hardly anyone means it: `q[B, T, E]` names dims, and says that none is sharded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shardc.ir.expressions import Named, Pattern, Use, uses
from shardc.ir.program import Program, Statement, every_statement


def whole_on_the_way(program: Program) -> Iterator[str]:
    """A warning for each result on the way that its brackets ask for whole, though operands are sharded along its dims,
    and so is what reads it, which asks for nothing.

    `q[B, E] = x[B_X, D] · W[D, E]; y[B_X, E] = relu(q)` gathers q over X; `q[B_?, E_?]`, or `q` alone, need not.
    """
    every, found = [*every_statement(program)], dict[str, str]()
    lies = _as_they_may_lie(program, every)
    for each in reversed(every):
        if not _is_whole(each):
            continue
        sharded = [dim for dim in each.dims if any(dim in _may_be(use, lies) for use in uses(each.expr))]
        readers = [other for other in every if any(use.name == each.name for use in uses(other.expr))]
        gathered = [dim for dim in sharded if any(_is_sharded_in(reader, dim, each.name, lies) for reader in readers)]
        if not gathered:
            lies[each.name] = each.pattern
            continue
        free = ", ".join(f"{dim}_?" for dim in each.dims)
        found[each.name] = (
            f"`{each.name}[{', '.join(each.dims)}]` asks for {', '.join(gathered)} whole on every device; "
            f"`{each.name}[{free}]` leaves it to the planner"
        )
    yield from reversed(found.values())


def _as_they_may_lie(program: Program, every: Sequence[Statement]) -> dict[str, Pattern]:
    """Of each array the sharding that the text asks for; of what is whole on the way, and nobody asks for, any. An
    output of which nothing is said may be whole."""
    outputs = {program.results[place].name for place in program.outputs}
    asked = {use.name for each in every for use in uses(each.expr) if use.pattern is not None}
    found = {array.name: array.pattern for array in program.inputs}
    for each in every:
        is_open, own = _is_whole(each) and each.name not in outputs | asked, each.pattern
        said = Pattern(tuple(axes or () for axes in own.dims)) if each.name in outputs else own
        found[each.name] = Pattern.free(len(each.dims)) if is_open else said
    return found


def _is_whole(statement: Statement) -> bool:
    """Whether it computes what each device is to have all of."""
    is_made = not isinstance(statement.expr, Use | Named)
    return is_made and statement.pattern == Pattern(((),) * len(statement.dims))


def _may_be(use: Use, lies: Mapping[str, Pattern]) -> frozenset[str]:
    """The dims of a use along which it may be sharded."""
    pattern = use.pattern or lies.get(use.name)
    if pattern is None or len(pattern.dims) != len(use.dims):  # in a loop, one of a stack
        return frozenset()
    return frozenset(dim for dim, axes in zip(use.dims, pattern.dims, strict=True) if axes is None or axes)


def _is_sharded_in(reader: Statement, dim: str, name: str, lies: Mapping[str, Pattern]) -> bool:
    """Whether what reads an array has a dim sharded, in its result or in what it reads beside."""
    own = dict(zip(reader.dims, lies[reader.name].dims, strict=False))
    if dim in own:
        return own[dim] is None or own[dim] != ()
    return any(dim in _may_be(use, lies) for use in uses(reader.expr) if use.name != name)
