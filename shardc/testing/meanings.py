"""Two programs or plans, run on the same inputs: where their outputs differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from shardc import api, simulate
from shardc.ir.dtypes import DType, Kind
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Array
from shardc.planner.program import sizes as chosen
from shardc.results import Plan
from shardc.simulate.layout import close
from shardc.testing.edges import Edge
from shardc.testing.rewrites import axes_in
from shardc.testing.saying import element
from shardc.testing.sides import widened
from shardc.testing.values import Seen

Meant: TypeAlias = str | Program | Plan

_SIZES = (2, 3, 4)  # of dims without one, in turn


def unlike(one: Meant, other: Meant, seed: int, seen: Seen, edge: Edge | None = None) -> str | None:
    """Where two programs or plans mean something else, on these inputs; None if nowhere. `seen` is told of all that is
    compared."""
    sides = _sides(one, other)
    at = _where(*sides)
    names = [list(side.inputs) for side in sides]
    if sorted(names[0]) != sorted(names[1]):
        return f"{at}: the inputs differ: {', '.join(names[0])}, and {', '.join(names[1])} in the other"
    for name, shape in sides[0].inputs.items():
        if sides[1].inputs[name] != shape:
            return f"{at}: the inputs differ: {name} has the shape {shape}, and {sides[1].inputs[name]} in the other"
    inputs = _inputs(sides[0], seed, edge)
    if inputs is None:
        return None
    wholes = dict(zip(names[0], inputs, strict=True))
    if edge is not None and any(overflows(s.program, [wholes[name] for name in s.inputs], edge) for s in sides):
        return None
    try:
        found, wanted = (side.results([wholes[name] for name in side.inputs]) for side in sides)
    except (simulate.IllegalStep, simulate.ReplicaMismatch) as error:
        return f"{at}: {error}"
    if len(found) != len(wanted):
        return f"{at}: {len(found)} outputs, and {len(wanted)} in the other"
    for number, pair in enumerate(zip(found, wanted, strict=True)):
        wrong = _apart(sides, number, *pair, edge)
        if wrong is not None:
            return f"{at}: {wrong}" if edge is None else f"{at}: {wrong}, {edge}"
        seen.add(number, pair[0])
    return None


def overflows(program: Program, wholes: Sequence[Any], edge: Edge) -> bool:
    """Whether a program means something else in wider types: of whole numbers past the end of theirs nothing is judged.

    Floats are computed in float64 whatever their type.
    """
    if not edge.large or not any(array.dtype.kind is Kind.INT for array in program.inputs):
        return False
    wide = api.parse(widened(str(program)))
    found = zip(*(simulate.reference(each, wholes) for each in (program, wide)), strict=True)
    return not all(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc") for one, other in found)


def _inputs(side: _Side, seed: int, edge: Edge | None) -> Sequence[Any] | None:
    if edge is None:
        return simulate.sample_inputs(side.program, seed)
    shapes = side.inputs
    return edge.inputs([(shapes[array.name], array.dtype) for array in side.program.inputs])


@dataclass(frozen=True, slots=True)
class _Side:
    """A program with its sizes; where it is planned, the plan, which is run."""

    program: Program
    plan: Plan | None

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        sizes = dict(self.program.sizes)
        return {array.name: tuple(sizes[dim] for dim in array.dims) for array in self.program.inputs}

    @property
    def outputs(self) -> list[str]:
        if self.plan is not None:
            return [array.name for array in self.arrays]
        return [self.program.results[number].name for number in self.program.outputs]

    @property
    def dtypes(self) -> list[DType]:
        """Of the outputs."""
        return [self.program.results[number].dtype for number in self.program.outputs]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The outputs as they lie, of a plan."""
        return () if self.plan is None else tuple(self.plan.schedule.given(n) for n in self.plan.schedule.outputs)

    def results(self, wholes: Sequence[Any]) -> list[Any]:
        if self.plan is None:
            return list(simulate.reference(self.program, wholes))
        found = self.plan.simulate(*wholes)
        return list(found) if isinstance(found, tuple) else [found]


def _sides(one: Meant, other: Meant) -> tuple[_Side, _Side]:
    """Both with the sizes and the mesh of the plan that there is, or a program's own; other sizes are small."""
    plans = [given for given in (one, other) if isinstance(given, Plan)]
    programs = [given for given in (one, other) if isinstance(given, Program)]
    axes = axes_in([given for given in (one, other) if isinstance(given, str)])
    mesh = Mesh.of(dict.fromkeys(axes, 1))  # a program means the same on every mesh
    mesh = plans[0].schedule.given_mesh if plans else programs[0].mesh if programs else mesh
    sizes = dict(plans[0].dims) if plans else {}
    sides = []
    for given in (one, other):
        if isinstance(given, Plan):
            sides.append(_Side(given.program, given))
            continue
        program = given if isinstance(given, Program) else api.parse(given, mesh=mesh, dtype="f32")
        sizes = {**_small(program, sizes), **sizes, **dict(program.sizes)}
        sides.append(_Side(program.with_sizes({dim: sizes[dim] for dim in program.dims}), None))
    return sides[0], sides[1]


def _small(program: Program, known: dict[str, int]) -> dict[str, int]:
    """Sizes for dims that have none, at most four where that divides them."""
    found = dict[str, int]()
    for same in chosen.without_size(program):
        unit = chosen.unit_of(program, same)
        given = next((known[dim] for dim in same if dim in known), 0)
        fits = [size for size in _SIZES if size % unit == 0]
        used = {*(known[dim] for dim in program.dims if dim in known), *found.values()}
        size = given or next((size for size in fits if size not in used), fits[-1] if fits else unit)
        found |= dict.fromkeys(same, size)
    return found


def _where(*sides: _Side) -> str:
    sizes = dict[str, int]()
    for dim, size in (pair for side in sides for pair in side.program.sizes):
        sizes.setdefault(dim, size)
    spelled = ", ".join(f"{dim}={size}" for dim, size in sizes.items()) or "no dims"
    mesh = next((str(side.plan.schedule.given_mesh) for side in sides if side.plan is not None), "")
    return f"on mesh {mesh}; {spelled}" if mesh else f"with {spelled}"


def _apart(sides: Sequence[_Side], number: int, found: Any, wanted: Any, edge: Edge | None) -> str | None:
    """How an output differs: at which element of which device, where there is a plan."""
    name = sides[0].outputs[number]
    if found.shape != wanted.shape:
        return f"{name} has the shape {found.shape}, and {wanted.shape} in the other"
    wrong = ~close(found, wanted) if edge is None else edge.apart(found, wanted, sides[0].dtypes[number])
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    on = "".join(f", {holder}," for holder in _holders(sides, number, place))
    return f"{name} at {place}{on} is {found[place]}, and {wanted[place]} in the other"


def _holders(sides: Sequence[_Side], number: int, place: tuple[int, ...]) -> Iterator[str]:
    """The first device of a plan that has an element, and where in its block, unless it has a partial sum of it."""
    for side in sides:
        if side.plan is not None and not (array := side.arrays[number]).sharding.unreduced:
            mesh, block = side.plan.schedule.given_mesh, array.local_shape(side.plan.schedule.given_mesh)
            wanted = tuple(at // size for at, size in zip(place, block, strict=True))
            for device in mesh.coordinates():
                if array.sharding.block_of(device, mesh) == wanted:
                    inside = (at % size for at, size in zip(place, block, strict=True))
                    yield f"{element(mesh, (*device.values(), *inside))} of {array}"
                    return
