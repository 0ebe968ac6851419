"""One side of a rewrite, given as text, as moves, or as a function: what every device holds after it.

    "A[I, J_X] = AllToAll_X(A[I_X, J])"                   statements of the notation, with collectives by name
    Moves("A[I_X, J]", AllToAll(("X",), 0, 1))            moves of an array
    jax.shard_map(…)                                      a function of JAX arrays, on the mesh in force

Texts and moves are run on virtual devices in NumPy; functions on the devices that JAX has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from shardc import api, simulate
from shardc.errors import ShardcError
from shardc.ir.collectives import AllToAll, Move, apply
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove, ToDims, require
from shardc.ir.plan import Schedule
from shardc.ir.program import Program
from shardc.ir.sharding import Array
from shardc.planner.program.sizes import unit_of
from shardc.testing.refusals import check_move
from shardc.testing.saying import name_of

Values: TypeAlias = NDArray[Any]
Held: TypeAlias = tuple[Array, Values]  # an array, and what every device holds of it

_PLANS = 64  # that are kept
INTEGERS = "int32"  # the type of an array where no text says one
_DTYPE = re.compile(r"(?:^|[;\n])\s*dtype\s+(\w+)")


def dtype_in(text: str) -> str | None:
    """The type that a text says all its arrays have that have none of their own."""
    found = _DTYPE.search(text)
    return found[1] if found else None


_WIDEST = {
    **dict.fromkeys(("int8", "int16", "int32"), "int64"),
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint64"),
    **dict.fromkeys(("f8_e4m3fn", "f8_e5m2", "bf16", "f16", "f32"), "f64"),
    "c64": "c128",
}
_TYPED = re.compile(rf"(:\s*|\bdtype\s+)({'|'.join(_WIDEST)})\b")


def widened(text: str) -> str:
    """A text whose arrays have the widest types. A cast is not a type: what it does is meant."""
    return _TYPED.sub(lambda found: found[1] + _WIDEST[found[2]], text)


def spelled(array: Array) -> str:
    """As the notation writes it, with its type unless that is what is taken without one."""
    written = str(array)
    return written if array.dtype.name == INTEGERS else f"{array.name}: {array.dtype}{written[len(array.name) :]}"


@dataclass(frozen=True)
class Moves:
    """An array as the notation writes it, and what is done to it: `Moves("A[I_X, J]", AllToAll(("X",), 0, 1))`.

    Moves are those of `shardc.ir.collectives`, their dims counted from 0. SHC001 for anything else; IllegalMove, when
    run, where a sharding does not allow one, or where there is no such dim or axis.
    """

    source: str
    moves: tuple[Move, ...] = field(default=())

    def __init__(self, source: str, *moves: Move) -> None:
        if not isinstance(source, str):
            raise ShardcError("SHC001", f"{source!r} is no array", help='give "A[I_X, J]"')
        for move in moves:
            check_move(move)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "moves", moves)

    def __str__(self) -> str:
        return "; ".join([self.source, *map(str, self.moves)])


_ILLEGAL = ("SHC202", "SHC204", "SHC211", "SHC212", "SHC219", "SHC220")  # what shardings do not allow


class Refused(Exception):
    """A text or moves that are not legal on a mesh, and so leave nothing there to compare, and why."""


@contextmanager
def _refusals() -> Iterator[None]:
    """Around what is of a text or of moves alone: what a function raises is its user's. What is wrong with a text on
    every mesh, as a name that is not known, is the caller's too."""
    try:
        yield
    except ShardcError as error:
        if error.code not in _ILLEGAL:
            raise
        raise Refused(error.message) from error
    except (IllegalMove, simulate.IllegalStep) as error:
        raise Refused(str(error)) from error


class Side(Protocol):
    """What a comparison asks of a side. `units`, `inputs` and `run` raise Refused where it is not legal."""

    def axes(self) -> tuple[str, ...]: ...

    def units(self, mesh: Mesh) -> dict[str, int]:
        """What the size of each dim must be a multiple of."""
        ...

    def inputs(self, mesh: Mesh, sizes: dict[str, int]) -> tuple[Array, ...]: ...

    def run(self, mesh: Mesh, sizes: dict[str, int], wholes: Sequence[Values], seed: int) -> tuple[Held, ...]: ...

    def wider(self) -> Side:
        """The same of the widest types of each kind, in which less overflows and rounds."""
        ...


@dataclass(frozen=True)
class TextSide:
    """Statements of the notation. Axes are those of `mesh`, of the text's own mesh, or one-letter subscripts."""

    text: str
    names: tuple[str, ...]
    dtype: str = INTEGERS  # unless the text says one

    def __str__(self) -> str:
        return self.text

    def axes(self) -> tuple[str, ...]:
        return self.names

    @_refusals()
    def units(self, mesh: Mesh) -> dict[str, int]:
        return units_of(self._program(mesh))

    @_refusals()
    def inputs(self, mesh: Mesh, sizes: dict[str, int]) -> tuple[Array, ...]:
        schedule = self._schedule(mesh, sizes)
        return tuple(schedule.given(number) for number in schedule.inputs)

    @_refusals()
    def run(self, mesh: Mesh, sizes: dict[str, int], wholes: Sequence[Values], seed: int) -> tuple[Held, ...]:
        schedule = self._schedule(mesh, sizes)
        blocks = simulate.run(schedule, wholes, seed)
        return tuple((schedule.values[n], held) for n, held in zip(schedule.outputs, blocks, strict=True))

    def wider(self) -> Side:
        return replace(self, text=widened(self.text), dtype=_WIDEST.get(self.dtype, self.dtype))

    def _program(self, mesh: Mesh) -> Program:
        return api.parse(self.text, mesh=mesh, dtype=dtype_in(self.text) or self.dtype)

    def _schedule(self, mesh: Mesh, sizes: dict[str, int]) -> Schedule:
        return _planned(self, mesh, tuple(sizes.items()))


@lru_cache(maxsize=_PLANS)
def _planned(side: TextSide, mesh: Mesh, sizes: tuple[tuple[str, int], ...]) -> Schedule:
    """A text is run on many inputs, and planned once."""
    program = side._program(mesh)
    kept = {dim: size for dim, size in sizes if dim in program.dims}
    return api.planned(program.with_sizes(kept), objective="bytes", may_cut=False).schedule


@dataclass(frozen=True)
class MovesSide:
    """Moves of one array, each as the simulator does it."""

    given: Moves
    names: tuple[str, ...]
    dtype: str = INTEGERS

    def __str__(self) -> str:
        return str(self.given)

    def axes(self) -> tuple[str, ...]:
        return self.names

    @_refusals()
    def units(self, mesh: Mesh) -> dict[str, int]:
        found = units_of(self._program(mesh))
        for array in self._ways(mesh, found)[1:]:
            cuts = zip(array.dims, array.sharding.dims, strict=True)
            found |= {dim: math.lcm(found[dim], mesh.product(axes)) for dim, axes in cuts}
        return found

    @_refusals()
    def inputs(self, mesh: Mesh, sizes: dict[str, int]) -> tuple[Array, ...]:
        return self._ways(mesh, sizes)[:1]

    @_refusals()
    def run(self, mesh: Mesh, sizes: dict[str, int], wholes: Sequence[Values], seed: int) -> tuple[Held, ...]:
        ways = self._ways(mesh, sizes)
        held = simulate.scatter(wholes[0], ways[0], mesh, seed)
        for move, before, after in zip(self.given.moves, ways, ways[1:], strict=False):
            held = simulate.step(move, (held,), (before,), after, mesh)
        return ((ways[-1], held),)

    def wider(self) -> Side:
        return replace(
            self, given=Moves(widened(self.given.source), *self.given.moves), dtype=_WIDEST.get(self.dtype, self.dtype)
        )

    def _program(self, mesh: Mesh) -> Program:
        return api.parse(f"{self.given.source} → {self.given.source}", mesh=mesh, dtype=self.dtype)

    def _ways(self, mesh: Mesh, sizes: dict[str, int]) -> tuple[Array, ...]:
        """The array as given, and after each move."""
        (given,) = self._program(mesh).inputs
        sharding = given.pattern.exact
        if sharding is None:
            raise IllegalMove(f"{self.given.source} leaves a sharding open")
        shape = tuple(sizes[dim] for dim in given.dims)
        ways = [Array(given.name, given.dims, shape, sharding, given.dtype)]
        for move in self.given.moves:
            ways.append(_moved(ways[-1], move, mesh))
        return tuple(ways)


def _moved(array: Array, move: Move, mesh: Mesh) -> Array:
    """The array after a move. IllegalMove, with the array, where it does not allow it."""
    try:
        _check_fits(move, array, mesh)
        return replace(array, sharding=apply(move, array.sharding, mesh))
    except IllegalMove as error:
        raise IllegalMove(f"{move} of {array}: {error}") from error


def _check_fits(move: Move, array: Array, mesh: Mesh) -> None:
    """Whether the dims and axes of a move are those of the array and of the mesh."""
    rank = len(array.dims)
    to = move.dims if isinstance(move, ToDims) else ((),) * rank
    dims = "1 dim" if len(to) == 1 else f"{len(to)} dims"
    require(len(to) == rank, f"the array has {rank}, and is not of {dims}")
    for dim in (*((move.source,) if isinstance(move, AllToAll) else ()), *move.on):
        require(0 <= dim < rank, f"the array has no dim {dim}; it has {rank}, counted from 0")
    for axes in (move.axes, tuple(axis for some in to for axis in some)):
        missing = next((axis for axis in axes if axis not in mesh), None)
        require(missing is None, f"the mesh has no axis `{missing}`")
        require(len(set(axes)) == len(axes), "it names an axis twice")


@dataclass(frozen=True)
class FunctionSide:
    """A function of JAX arrays that lie as `given` says, on the mesh in force."""

    function: Callable[..., Any]
    given: tuple[str, ...]
    names: tuple[str, ...]
    dtype: str = INTEGERS

    def __str__(self) -> str:
        return f"{name_of(self.function)}({', '.join(self.given)})"

    def axes(self) -> tuple[str, ...]:
        return self.names

    def units(self, mesh: Mesh) -> dict[str, int]:
        """A function may share a dim out among all devices, whatever its inputs say."""
        return dict.fromkeys(units_of(self._program(mesh)), mesh.devices) if self.given else {}

    def inputs(self, mesh: Mesh, sizes: dict[str, int]) -> tuple[Array, ...]:
        return arrays_of(self._program(mesh), sizes)

    def run(self, mesh: Mesh, sizes: dict[str, int], wholes: Sequence[Values], seed: int) -> tuple[Held, ...]:
        from shardc.testing.on_devices import held_by_devices

        return held_by_devices(self.function, self.inputs(mesh, sizes), wholes, mesh, seed)

    def wider(self) -> Side:
        return replace(self, given=tuple(map(widened, self.given)), dtype=_WIDEST.get(self.dtype, self.dtype))

    def _program(self, mesh: Mesh) -> Program:
        return api.parse("; ".join(f"{array} → {array}" for array in self.given), mesh=mesh, dtype=self.dtype)


def arrays_of(program: Program, sizes: dict[str, int]) -> tuple[Array, ...]:
    """The inputs of a program as arrays of these sizes; AssertionError where the text leaves a sharding open."""
    found = []
    for given in program.inputs:
        sharding = given.pattern.exact
        assert sharding is not None, f"{given.name} leaves a sharding open"
        found.append(Array(given.name, given.dims, tuple(sizes[d] for d in given.dims), sharding, given.dtype))
    return tuple(found)


def units_of(program: Program) -> dict[str, int]:
    """What the size of each dim must be a multiple of."""
    return {dim: unit_of(program, (dim,)) for dim in program.dims}
