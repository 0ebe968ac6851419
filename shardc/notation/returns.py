"""`return Out, M2`: which results a program gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.errors import ShardcError, Span, nearest
from shardc.ir.program import For, Program, Statement, bindings_of, read_by
from shardc.notation import tree
from shardc.notation.scope import Scope


def check_returns(parsed: tree.Tree, scope: Scope, statements: Sequence[Statement | For]) -> tuple[str, ...] | None:
    """The names that the text returns; None if it leaves that to what nothing uses."""
    places = [place for place, item in enumerate(parsed.items) if isinstance(item, tree.Return)]
    if not places:
        return None
    if places[0] + 1 < len(parsed.items):
        after = parsed.items[places[0] + 1]
        raise ShardcError(
            "SHC101",
            "this follows the `return`, which ends the text",
            span=after.span,
            help="move it before the `return`",
        )
    returned = parsed.items[places[0]]
    assert isinstance(returned, tree.Return)
    made = {bound.name for statement in statements for bound in bindings_of(statement)}
    for place, (name, span) in enumerate(zip(returned.names, returned.spans, strict=True)):
        if name not in made:
            raise _not_made(name, span, scope, made)
        if name in returned.names[:place]:
            raise ShardcError("SHC205", f"`{name}` is returned twice", span=span, help="name each output once")
    return returned.names


def _not_made(name: str, span: Span | None, scope: Scope, made: set[str]) -> ShardcError:
    if name in scope.gone and name not in scope.arrays:
        return scope.after_its_loop(name, span)
    if name in scope.arrays:
        return ShardcError(
            "SHC217",
            f"`{name}` is an input, and no statement makes it",
            span=span,
            help=f"give the result a name of its own: `Out = {name}`",
        )
    near = nearest(name, sorted(made))
    told = f"did you mean `{near}`?" if near else f"the statements make {', '.join(f'`{one}`' for one in sorted(made))}"
    return ShardcError("SHC217", f"there is no array `{name}` to return", span=span, help=told)


def unreturned(program: Program) -> Iterator[str]:
    """A warning for each result that is neither returned nor used."""
    if program.returns is None:
        return
    used = {name for statement in program.statements for name in read_by(statement)}.union(program.returns)
    for name in dict.fromkeys(bound.name for bound in program.results):
        if name not in used:
            yield f"`{name}` is neither returned nor used, and is not computed"
