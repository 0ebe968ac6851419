"""The forward part as text, with what the backward part needs of it bound to names that last.

for L {
    x_before[L, B, D] = x        x is another array after each trip: the gradients are of this one
    h = x ·_D W[L, D, F]         bound in this loop alone, and named after it as h[L, …]: its rows are kept
    x = x + …
}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shardc.backward.keys import Held, Keyed, Keys
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Pattern, uses
from shardc.ir.program import Program, Statement
from shardc.ir.sharding import Dims
from shardc.notation.printer import print_loop


@dataclass(frozen=True, slots=True)
class Names:
    """What the backward part calls the arrays that it names."""

    keys: Keys
    kept: Mapping[str, str]

    @classmethod
    def of(cls, keys: Keys, marks: Iterable[str], fresh: Callable[[str], str], after: bool) -> Names:
        """For these marks; `after` the forward part, where a name is what was bound to it last."""
        kept: dict[str, str] = {}
        for root in (keys.root(mark) for mark in marks if mark in keys.held):
            if root not in kept:
                plain = _plain(keys, root, after)
                kept[root] = keys.held[root].name if plain else fresh(_longer(keys, root))
        return cls(keys, kept)

    def spelled(self, mark: str) -> tuple[str, str | None]:
        """The name of an array or a gradient, and of an array that is kept its key."""
        root = self.keys.root(mark) if mark in self.keys.held else None
        return (mark, None) if root is None else (self.kept[root], root)


def _plain(keys: Keys, root: str, after: bool) -> bool:
    """Whether an array goes by its own name."""
    name = keys.held[root].name
    same = [key for key, array in keys.held.items() if array.name == name and array.of is None]
    first = {array.name for array in keys.program.inputs}
    return root == name if name in first and not after else len(same) == 1 or root == keys.last.get(name)


def _longer(keys: Keys, root: str) -> str:
    name = keys.held[root].name
    if root in keys.begun:
        return f"{name}_before"
    return f"{name}_after" if root == keys.last.get(name) else name


def forward(keys: Keys, names: Names) -> list[str]:
    """The forward part, and in it what is kept under another name than its own."""
    kept = {root: name for root, name in names.kept.items() if name != keys.held[root].name}
    return list(_Forward(keys, kept).texts())


@dataclass(slots=True)
class _Forward:
    keys: Keys
    kept: dict[str, str]
    known: set[str] = field(default_factory=set)  # names that were used or bound

    def texts(self) -> Iterator[str]:
        for array in self.keys.program.inputs:
            yield from self.keep([array.name])
        yield from self.each(self.keys.body)

    def each(self, body: Sequence[Keyed]) -> Iterator[str]:
        for each in body:
            if isinstance(each, Statement):
                yield each.text
                self.known |= {self.keys.held[key].name for key in (each.name, *(one.name for one in uses(each.expr)))}
                yield from self.keep([each.name])
                continue
            begun = list(self.keep(carried.first for carried in each.carried))
            yield print_loop(each.loop.dim, each.loop.down, [*begun, *self.each(each.body)])
            yield from self.keep(carried.after for carried in each.carried)
            yield from self.keep(rows.outside for rows in each.stacked)

    def keep(self, keys: Iterable[str]) -> Iterator[str]:
        """Statements that give an array its second name."""
        for key in keys:
            if key in self.kept:
                dims, pattern = self.keys.whole(key)
                yield f"{self.kept.pop(key)}{pattern.spell(dims)} = {self.origin(self.keys.held[key])}"

    def origin(self, array: Held) -> str:
        if array.name in self.known:
            return array.name
        self.known.add(array.name)
        given = next(one for one in self.keys.program.inputs if one.name == array.name)
        return array.name + shown(self.keys.program, given.dtype, given.pattern, given.dims)


def shown(program: Program, dtype: DType, pattern: Pattern, dims: Dims) -> str:
    """What follows a name at its first use: its type, if that is not the program's, and how it lies."""
    typed = "" if dtype == program.dtype else f": {dtype}"
    return typed + pattern.spell(dims)
