"""Functions and plans held against what a program means, on every shard."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from shardc import api, simulate
from shardc.errors import ShardcError
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.program import Program
from shardc.ir.sharding import Array, spell
from shardc.machines.comparison import OutputReport, Verdict, blocks_of, report_of
from shardc.planner.program import sizes
from shardc.results import Plan
from shardc.testing.edges import EDGES, FEW_EDGES, FINE, Edge
from shardc.testing.meanings import overflows, unlike
from shardc.testing.refusals import count_of
from shardc.testing.rewrites import axes_in, meshes_of
from shardc.testing.saying import element, lines, name_of, where
from shardc.testing.sides import dtype_in
from shardc.testing.values import Seen

_A_PROGRAM = "A[I_X, J] · B[J, K] → C[I_X, K]"
_LARGEST = 4  # elements along a dim that has no size, where as few may be
_FEW_DEVICES = 16  # that share out even a dim without axes
_SEEDS = 2**32
_LONG = 4  # devices: on two, one way round a ring is as good as the other
_DRAWS = 3  # of the arrays: of four elements one draw in sixteen has no negative number
_ON_A_MESH = re.compile(r"(?:^|[;\n])\s*mesh\s")


def assert_matches_reference(
    function: Callable[..., Any],
    program: str | Program,
    *,
    mesh: Mapping[str, int] | Mesh | None = None,
    dims: Mapping[str, int] | None = None,
    dtype: str | None = None,
    seed: int = 0,
) -> None:
    """A function of JAX arrays means what a program means: every device's shard of each result, against NumPy.

    `function` takes arrays that lie as the program's inputs, under `jax.set_mesh`, and returns its outputs, each as
    it is to lie (one: bare); it may call `jax.shard_map`, say. On `mesh`, or the text's own, or on every mesh of one or
    two devices along each axis, and of four along one, that the devices there are allow, the smallest first. Floats may
    be off by what rounding the program's own steps in `dtype` (f32, if the text says none) explains; integers not at
    all. What a Program says of these stands.

    A dim without a size has at most four elements, if its axes allow, and a few more on the last mesh, when nothing
    was wrong with four; there three draws are tried. On each mesh one draw has floats of nine bits, or all that a
    narrower type has: what goes through bf16 where the program has f32 is told apart, what keeps ten bits (tf32) not.

    Raises AssertionError with the mesh, the device, the element and both values; also where `dtype` rounds so much
    that a wrong result could pass. What the function raises itself has a note of the mesh and the sizes.

    >>> import jax
    >>> from shardc.testing import assert_matches_reference
    >>> def local(a, b):
    ...     return jax.lax.psum_scatter(a @ b, "X", scatter_dimension=0, tiled=True)
    >>> def matmul(a, b):
    ...     return jax.shard_map(local, in_specs=(jax.P(None, "X"), jax.P("X")), out_specs=jax.P("X"))(a, b)
    >>> assert_matches_reference(matmul, "A[I, J_X] · B[J_X, K] → C[I_X, K]")
    """
    _check_given(function, program)
    count_of("the seed", seed, 0, _SEEDS)
    if isinstance(program, Program) and any(given is not None for given in (mesh, dims, dtype)):
        raise ShardcError("SHC001", "a program has its mesh, its sizes and its type", help="give text, or the program")
    once, seen = _traced_once(function), Seen()
    for number, (schedule, draws) in enumerate(_schedules(program, mesh, dims, dtype, _devices())):
        edges = (FINE,) if number else (*EDGES, FINE)  # but for sums over devices the smallest mesh tells all
        found = (_mismatch(once, schedule, given, seen, edge) for given, edge in _inputs(seed, draws, edges))
        wrong = next((each for each in found if each is not None), None)
        if wrong is not None:
            at = where(schedule.given_mesh, dict(schedule.program.sizes))
            raise AssertionError(f"{at}: {wrong}{lines(function=name_of(function), program=program)}")
    seen.check()


def _inputs(seed: int, draws: int, edges: Sequence[Edge]) -> list[tuple[int, Edge | None]]:
    """What is drawn by several seeds, then at edges."""
    return [*(((seed + more) % _SEEDS, None) for more in range(draws)), *((seed, edge) for edge in edges)]


def _check_given(function: object, program: object) -> None:
    if not callable(function):
        raise ShardcError("SHC001", f"{function!r} is no function", help="give one of JAX arrays")
    if not isinstance(program, str | Program):
        raise ShardcError("SHC001", f"{program!r} is no program", help=f'give "{_A_PROGRAM}"')


def assert_equivalent(one: str | Program | Plan, other: str | Program | Plan, *, seed: int = 0) -> None:
    """Two programs, or plans, mean the same: their outputs, in order, on the same inputs, in float64 or int64.

    A plan is run as planned, on virtual devices; a program as what it means on whole arrays, which no mesh changes, on
    the sizes of the plan beside it, else on at most four elements a dim. Inputs are paired by name. Raises
    AssertionError with the sizes, the element and both values; of a plan with the mesh and the device too.

    >>> from shardc.testing import assert_equivalent
    >>> assert_equivalent("C[I, K] = A[I, J] · B[J, K]; D[I] = sum_K(C)", "D[I] = A[I, J] · sum_K(B[J, K])")
    >>> assert_equivalent("C[I, K] = A[I, J] · B[J, K]", "C[I, K] = relu(A[I, J] · B[J, K])")
    Traceback (most recent call last):
    AssertionError: with I=2, J=3, K=4: C at (0, 0) is -0.625, and 0.0 in the other
      one:   C[I, K] = A[I, J] · B[J, K]
      other: C[I, K] = relu(A[I, J] · B[J, K])
    """
    for given in (one, other):
        if not isinstance(given, str | Program | Plan):
            raise ShardcError("SHC001", f"{given!r} is no program or plan", help=f'give "{_A_PROGRAM}"')
    seed = count_of("the seed", seed, 0, _SEEDS)
    is_planned = isinstance(one, Plan) or isinstance(other, Plan)
    draws, edges = (1, FEW_EDGES) if is_planned else (_DRAWS, EDGES)  # programs have few elements
    seen, tried = Seen(), _inputs(seed, draws, edges)
    found = (unlike(one, other, given, seen, edge) for given, edge in tried)
    wrong = next((each for each in found if each is not None), None)
    if wrong is not None:
        texts = [given.program if isinstance(given, Plan) else given for given in (one, other)]
        raise AssertionError(f"{wrong}{lines(one=texts[0], other=texts[1])}")
    seen.check()


def _traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    from shardc.testing.on_devices import traced_once

    return traced_once(function)


def _mismatch(function: Callable[..., Any], schedule: Schedule, seed: int, seen: Seen, edge: Edge | None) -> str | None:
    """What is wrong with what a function leaves on the mesh of a plan; None if nothing is."""
    from shardc.machines.run import at_ends, in_64_bits, placed, simulated_mesh
    from shardc.testing.on_devices import called, check_results

    mesh, inputs = schedule.given_mesh, [schedule.given(number) for number in schedule.inputs]
    devices = simulated_mesh(schedule, mesh)
    wholes = simulate.sample_inputs(schedule.program, seed) if edge is None else edge.inputs(_taken(inputs))
    if wholes is None or (edge is not None and overflows(schedule.program, wholes, edge)):
        return None
    with in_64_bits(at_ends(schedule)):
        found = called(function, placed(schedule, wholes, devices, seed), devices, inputs, mesh)
    results = tuple(found) if isinstance(found, tuple | list) else (found,)
    if len(results) != len(schedule.outputs):
        return f"{len(results)} results, and {len(schedule.outputs)} outputs"
    check_results(results, mesh, inputs)
    outputs = [schedule.given(number) for number in schedule.outputs]
    for array, result in zip(outputs, results, strict=True):
        wrong = _lies_otherwise(array, result, mesh)
        if wrong is not None:
            return wrong
    report = report_of(schedule, wholes, results, seed=seed, telling=False)
    expected = simulate.reference(schedule.program, wholes)
    compared = zip(outputs, report.outputs, results, expected, strict=True)
    for place, (array, output, result, whole) in enumerate(compared):
        if edge is not None and not _tells(edge, array, mesh, output, result, whole):
            continue
        if output.verdict is not Verdict.EQUAL:
            return _wrong(array, mesh, output, result, whole) + (f", {edge}" if edge is not None else "")
        seen.add(place, np.asarray(whole))
    return None


def _taken(inputs: Sequence[Array]) -> list[tuple[tuple[int, ...], DType]]:
    return [(array.shape, array.dtype) for array in inputs]


def _tells(edge: Edge, array: Array, mesh: Mesh, output: OutputReport, result: Any, whole: Any) -> bool:
    """Whether what a function leaves at an edge is to be judged: no rounding turns it, and if it is wrong it is so by
    more than rounding explains, and where the program means a number."""
    if output.verdict is not Verdict.NOT_EQUAL:
        return output.verdict is Verdict.EQUAL
    found, wanted = blocks_of(result, mesh), simulate.wanted(whole, array, mesh)
    found = simulate.summed(found, array, mesh) if array.sharding.unreduced else found
    return bool((edge.apart(found, wanted, array.dtype) & np.isfinite(wanted)).any())


def _lies_otherwise(array: Array, result: Any, mesh: Mesh) -> str | None:
    """How a result differs from an output in type, shape, or what each device has of it; None if in nothing."""
    from shardc.testing.on_devices import described

    if result.dtype.name != array.dtype.jax or result.shape != array.shape:
        return (
            f"the result is {result.dtype} of {result.shape}, where {array}, {array.dtype} of {array.shape}, is wanted"
        )
    block, wanted = result.addressable_shards[0].data.shape, array.local_shape(mesh)
    if block == wanted:
        return None
    lies = array.name + spell(array.dims, described(result).sharding)
    return f"the result lies as {lies}, blocks {block}, where {array}, blocks {wanted}, is wanted"


def _wrong(array: Array, mesh: Mesh, output: OutputReport, result: Any, whole: Any) -> str:
    """The element that is farthest off, and what is said of all. Of partial sums it is what they add up to."""
    if output.verdict is Verdict.NOT_CHECKABLE:
        return f"{array}: {output}"
    wanted, found = simulate.wanted(whole, array, mesh), blocks_of(result, mesh)
    found = simulate.summed(found, array, mesh) if array.sharding.unreduced else found
    with np.errstate(invalid="ignore"):
        off = np.where((found == wanted) | np.isnan(found) & np.isnan(wanted), 0, np.abs(found - wanted))
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape))
    sums = "sums to" if array.sharding.unreduced else "has"
    said = f"; {output}" if output.bound else f"; {output.reason}" if output.reason else ""
    return f"{element(mesh, place)} of {array} {sums} {found[place] + 0} where {wanted[place] + 0} is wanted{said}"


def _schedules(
    program: str | Program,
    mesh: Mapping[str, int] | Mesh | None,
    dims: Mapping[str, int] | None,
    dtype: str | None,
    most: int,
) -> Iterator[tuple[Schedule, int]]:
    """On every mesh, the smallest first, then on the last with larger sizes, where they were chosen; and how many draws
    of the arrays are tried. Then on meshes on which going one way round is not going the other."""
    if isinstance(program, Program):
        small, long = [program], list[Program]()
    else:
        dtype = "f32" if dtype is None and dtype_in(program) is None else dtype
        meshes = [(mesh,), ()] if mesh is not None or _ON_A_MESH.search(program) else _meshes(program, dims, most)
        small, long = ([api.parse(program, mesh=m, dims=dims, dtype=dtype) for m in some] for some in meshes)
    few, more = [_filled(each, _few) for each in small], _filled(small[-1], _more)
    if more.sizes == few[-1].sizes:
        few.pop()
    tried = [*((each, 1) for each in few), (more, _DRAWS), *((_filled(each, _few), 1) for each in long)]
    for each, draws in tried:
        yield api.planned(each, may_cut=False).schedule, draws


def _meshes(text: str, dims: Mapping[str, int] | None, most: int) -> tuple[list[Mesh], list[Mesh]]:
    """Of a text's axes: one or two devices along each; then four along one."""
    axes = axes_in([text])
    if not axes:
        api.parse(text, dims=dims)
        so = 'shard it, as in "A[I_X, J]", or give mesh={"data": 2}'
        raise ShardcError("SHC001", "a program without axes is run on one device alone", help=so)
    long = [Mesh.of({axis: _LONG if axis == one else 1 for axis in axes}) for one in axes if most >= _LONG]
    return meshes_of(axes, 2, most), long


def _filled(program: Program, chosen: Callable[[int, int, set[int]], int]) -> Program:
    """A size for each dim that has none, by what it must be a multiple of, the devices, and the sizes there are."""
    found: dict[str, int] = {}
    used = {size for _, size in program.sizes}
    for same in sizes.without_size(program):
        size = chosen(sizes.unit_of(program, same), program.mesh.devices, used)
        used.add(size)
        found |= dict.fromkeys(same, size)
    return program.with_sizes(found) if found else program


def _few(unit: int, devices: int, used: set[int]) -> int:
    """Four at most, if that divides; shared out by all devices, as a function may do, several on each, and distinct, as
    far as there is room."""
    unit = whole if (whole := math.lcm(unit, devices)) <= _LARGEST else unit
    several = range(2 * unit, _LARGEST + 1, unit)
    return next((size for size in (*several, unit) if size not in used), max(several, default=unit))


def _more(unit: int, devices: int, used: set[int]) -> int:
    """Shared out by all devices, if these are few, several on each, and distinct."""
    unit = math.lcm(unit, devices) if devices <= _FEW_DEVICES else unit
    return next(size for size in count(2 * unit, unit) if size not in used)


def _devices() -> int:
    from shardc.testing.on_devices import count_of_devices

    return count_of_devices()
