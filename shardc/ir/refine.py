"""Axes cut into sub-axes: the same devices seen as a finer mesh, and a program on it.

    X=4, Y=2  →  X0=2, X1=2, Y=2        device (x, y) is (x // 2, x % 2, y)
    A[I_X, J] →  A[I_{X0,X1}, J]        the same blocks on the same devices, since axes run major to minor

Devices keep their order, so that a sharding of whole axes means the same on both meshes. What the fine mesh adds are
shardings by parts of an axis: `A[I_X0, K_X1]`, a grid of 2·2 on an axis of 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use
from shardc.ir.mesh import Mesh
from shardc.ir.program import For, Input, Program, Statement, pinned
from shardc.ir.sharding import Axes, Sharding


@dataclass(frozen=True, slots=True)
class Refinement:
    """A mesh, and of each axis that is cut its sub-axes, names and sizes, major to minor."""

    coarse: Mesh
    parts: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    _names: dict[str, Axes] = field(init=False, repr=False, compare=False)
    _owner: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = {axis: tuple(name for name, _ in cut) for axis, cut in self.parts}
        assert all(math.prod(size for _, size in cut) == self.coarse.size(axis) for axis, cut in self.parts)
        object.__setattr__(self, "_names", {axis: names.get(axis, (axis,)) for axis in self.coarse.names})
        object.__setattr__(self, "_owner", {name: axis for axis, cut in self._names.items() for name in cut})

    @property
    def fine(self) -> Mesh:
        cuts = dict(self.parts)
        return Mesh(tuple(axis for name, size in self.coarse.axes for axis in cuts.get(name, ((name, size),))))

    def axes(self, axes: Iterable[str]) -> Axes:
        """`XY` as `X0 X1 Y`."""
        return tuple(name for axis in axes for name in self._names[axis])

    def sharding(self, sharding: Sharding) -> Sharding:
        return Sharding(tuple(map(self.axes, sharding.dims)), frozenset(self.axes(sharding.unreduced)))

    def pattern(self, pattern: Pattern) -> Pattern:
        dims = tuple(None if axes is None else self.axes(axes) for axes in pattern.dims)
        return Pattern(dims, frozenset(self.axes(pattern.unreduced)))

    def whole(self, sharding: Sharding) -> Sharding | None:
        """The sharding by axes of the coarse mesh that is the same; None where a sub-axis stands alone."""
        dims = [self._joined(axes) for axes in sharding.dims]
        unreduced = self._joined(self.fine.ordered(sharding.unreduced))
        given = tuple(axes for axes in dims if axes is not None)
        if len(given) < len(dims) or unreduced is None:
            return None
        return Sharding(given, frozenset(unreduced))

    def runs(self, axes: Axes) -> Iterator[tuple[str, Axes]]:
        """Each axis of which some of these are parts, and those parts, neighbours together: `X1 Y X0` is X, Y."""
        for axis in dict.fromkeys(self._owner[name] for name in axes):
            run: Axes = ()
            for name in self._names[axis]:
                if name in axes:
                    run += (name,)
                elif run:
                    yield axis, run
                    run = ()
            if run:
                yield axis, run

    def around(self, axis: str, run: Axes) -> tuple[int, int]:
        """The sizes of an axis' parts before a run of them, and after."""
        names, fine = self._names[axis], self.fine
        start = names.index(run[0])
        return fine.product(names[:start]), fine.product(names[start + len(run) :])

    def __str__(self) -> str:
        """`X = X0·X1 (4 = 2·2)`."""
        return ", ".join(
            f"{axis} = {'·'.join(name for name, _ in cut)} "
            f"({self.coarse.size(axis)} = {'·'.join(str(size) for _, size in cut)})"
            for axis, cut in self.parts
        )

    def _joined(self, axes: Axes) -> Axes | None:
        """`X0 X1 Y` as `XY`; None if a part has not all others beside it, in order."""
        found = tuple(dict.fromkeys(self._owner[name] for name in axes))
        return found if self.axes(found) == axes else None


def refinement(mesh: Mesh, sizes: Mapping[str, Sequence[int]], taken: Iterable[str]) -> Refinement:
    """A mesh with axes cut into parts of these sizes, their names not among those taken: X0, X1, …; else X_0, …."""
    used = {*mesh.names, *taken}
    parts = []
    for axis, cut in sizes.items():
        stem = axis
        while any(f"{stem}{number}" in used for number in range(len(cut))):
            stem += "_"
        names = tuple((f"{stem}{number}", size) for number, size in enumerate(cut))
        used |= {name for name, _ in names}
        parts.append((axis, names))
    return Refinement(mesh, tuple(parts))


def refined(program: Program, by: Refinement, inputs: Sequence[Sharding], outputs: Sequence[Sharding]) -> Program:
    """The same program on the finer mesh.

    Its arguments and results lie as given, by whole axes, also where the program leaves that open. Texts stay as
    they are written.
    """
    names = [program.results[number].name for number in program.outputs]
    lies = {name: Pattern.exactly(by.sharding(sharding)) for name, sharding in zip(names, outputs, strict=True)}
    given = zip(program.inputs, inputs, strict=True)
    return replace(
        program,
        mesh=by.fine,
        inputs=tuple(_input(array, by, sharding) for array, sharding in given),
        statements=pinned(tuple(_statement(each, by) for each in program.statements), lies),
    )


def _input(array: Input, by: Refinement, lies: Sharding) -> Input:
    return replace(array, pattern=Pattern.exactly(by.sharding(lies)))


def _statement(statement: Statement | For, by: Refinement) -> Statement | For:
    if isinstance(statement, For):
        takes = tuple(replace(array, pattern=by.pattern(array.pattern)) for array in statement.takes)
        return replace(statement, takes=takes, body=tuple(_statement(each, by) for each in statement.body))
    return replace(statement, pattern=by.pattern(statement.pattern), expr=_expr(statement.expr, by))


def _expr(expr: Expr, by: Refinement) -> Expr:
    match expr:
        case Use(pattern=pattern):
            return replace(expr, pattern=None if pattern is None else by.pattern(pattern))
        case Named(axes=axes, operand=operand):
            return replace(expr, axes=None if axes is None else by.axes(axes), operand=_expr(operand, by))
        case Product(operands=operands) | Call(operands=operands):
            return replace(expr, operands=tuple(_expr(operand, by) for operand in operands))
