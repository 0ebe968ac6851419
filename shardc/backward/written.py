"""The statements of a backward program in the making."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from shardc.backward.terms import ZERO, printed, use, uses
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Pattern
from shardc.ir.sharding import Dims


@dataclass(frozen=True, slots=True)
class Line:
    """A statement, its text with marks for the arrays."""

    name: str
    dims: Dims
    pattern: Pattern
    text: str
    dtype: DType | None = None  # to be cast to, if it comes out as another
    again: bool = False  # binds anew what its loop carries

    @property
    def is_zero(self) -> bool:
        """Whether it is an array of zeros, which is of any type."""
        return self.text == ZERO

    def calling(self, name: Callable[[str], str]) -> Line:
        """The same with other names for the arrays in it."""
        return replace(self, text=printed(self.text, lambda mark, dims: use(name(mark), dims).text))


@dataclass(frozen=True, slots=True)
class Lines:
    """A loop."""

    dim: str
    down: bool
    body: tuple[Written, ...]


Written: TypeAlias = Line | Lines


def every_line(written: Iterable[Written]) -> Iterator[Line]:
    """Those of loops too."""
    for each in written:
        if isinstance(each, Line):
            yield each
        else:
            yield from every_line(each.body)


def each_line(each: Written, made: Callable[[Line], Iterable[Written]]) -> Iterator[Written]:
    """The statement, or those of a loop, with others in their places."""
    if isinstance(each, Line):
        yield from made(each)
    else:
        yield Lines(each.dim, each.down, tuple(new for one in each.body for new in each_line(one, made)))


def named(written: Iterable[Written]) -> Iterator[str]:
    """The arrays that the lines use."""
    return (name for line in every_line(written) for name, _ in uses(line.text))


def in_use(written: Iterable[Written], wanted: Iterable[str]) -> tuple[Written, ...]:
    """What the arrays that are wanted need."""
    given, needed, before = tuple(written), set(wanted), -1
    while len(needed) > before:  # what a loop carries is needed for what it carries
        before, kept = len(needed), _needed(given, needed)
    return kept


def _needed(written: tuple[Written, ...], needed: set[str]) -> tuple[Written, ...]:
    """What binds something needed; all that this uses is needed as well."""
    kept: list[Written] = []
    for each in reversed(written):
        if isinstance(each, Lines):
            body = _needed(each.body, needed)
            kept += [Lines(each.dim, each.down, body)] if body else []
        elif each.name in needed:
            kept.append(each)
            needed |= {name for name, _ in uses(each.text)}
    return tuple(reversed(kept))
