"""What is said of a name that nothing bears here: an axis that the mesh lacks, an array that nothing binds."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from shardc.errors import ShardcError, Span, nearest
from shardc.ir.mesh import Mesh


def unknown_axis(word: str, span: Span | None, mesh: Mesh, otherwise: str = "") -> ShardcError:
    """SHC201 for a subscript; `otherwise` is what else might have been meant."""
    names = mesh.names
    if not names:
        return ShardcError(
            "SHC201",
            f"unknown mesh axis `{word}`: no mesh is declared",
            span=part(span, word),
            help=_or(f"declare one: `mesh {word}=4`", otherwise),
        )
    letters = [letter for letter in word if letter not in mesh]
    run = len(letters) < len(word) and all(len(axis) == 1 for axis in names)
    missing = letters[0] if run else word
    near = nearest(missing, names)
    return ShardcError(
        "SHC201",
        f"unknown mesh axis `{missing}`; the mesh has {', '.join(f'`{name}`' for name in names)}",
        span=part(span, missing),
        help=_instead(near, missing, otherwise),
    )


def unknown_array(name: str, span: Span | None, known: Iterable[str], dims: Container[str]) -> ShardcError:
    """SHC217 for a name without brackets that nothing binds before it; it may be that of a dim, whose size is meant."""
    near = nearest(name, known)
    help = f"write its dims at its first use: `{name}[I, J]`; of a single number `{name}[]`"
    if name in dims:
        help = f"`{name}` is a dim; its size is `|{name}|`, the positions along it are `index_{name}`"
    elif near:
        help = f"did you mean `{near}`?"
    return ShardcError("SHC217", f"array `{name}` is not defined", span=span, help=help)


def bound_in_loop(name: str, span: Span | None, loops: Sequence[str], dims: Iterable[str]) -> ShardcError:
    """SHC226 for a name that is used after the only loop that binds it; with the loops around that are over as well."""
    rows = f"`{name}{listed((*loops, *dims))}`"
    return ShardcError(
        "SHC226",
        f"`{name}` is bound in the loop along `{loops[-1]}` alone, and is used after it",
        span=span,
        note="it is gone after each trip",
        help=f"bind `{name}` before the loop, to carry it; or stack what the trips leave, {rows}",
    )


def listed(dims: Iterable[str]) -> str:
    """`[I, J]`."""
    return "[" + ", ".join(dims) + "]"


def part(span: Span | None, word: str) -> Span | None:
    """The place of a word in a span, from the right, where subscripts stand."""
    if span is None:
        return None
    at = span.text.rfind(word)
    return span if at < 0 else Span(span.source, span.start + at, span.start + at + len(word))


def _instead(near: str | None, missing: str, otherwise: str) -> str:
    told = f"use one of them, or declare `mesh {missing}=…`" if near is None else f"did you mean `{near}`?"
    return _or(told, otherwise)


def _or(told: str, otherwise: str) -> str:
    if not otherwise:
        return told
    return f"{told} Or, {otherwise}" if told.endswith("?") else f"{told}; or, {otherwise}"
