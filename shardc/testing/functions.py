"""Functions and plans held against what a program means, on every shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from shardc import api, simulate
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.program import Program
from shardc.machines.comparison import OutputReport, Verdict, blocks_of, report_of
from shardc.results import Plan
from shardc.testing.rewrites import axes_in, meshes_of
from shardc.testing.sides import units_of

_CLOSE = 1e-9  # of float64's results, by their size: another order of adding, not another value
_SIMULATED = 64


def assert_matches_reference(
    function: Callable[..., Any],
    program: str | Program,
    *,
    mesh: Mapping[str, int] | Mesh | None = None,
    dims: Mapping[str, int] | None = None,
    dtype: str = "f32",
    seed: int = 0,
) -> None:
    """A function of JAX arrays means what a program means: every device's shard of each result, against NumPy.

    `function` takes arrays that lie as the program's inputs, under `jax.set_mesh`, and returns its outputs, each as
    it is to lie (one: bare); it may call `jax.shard_map`, say. On `mesh`, or on every small mesh of the program's
    axes that the devices there are allow, the smallest first. Floats may be off by what rounding the program's own
    steps in `dtype` explains; integers not at all.

    Raises AssertionError with the mesh, the device, the element and both values; also where `dtype` rounds so much
    that a wrong result could pass.

    >>> import jax
    >>> from shardc.testing import assert_matches_reference
    >>> def local(a, b):
    ...     return jax.lax.psum_scatter(a @ b, "X", scatter_dimension=0, tiled=True)
    >>> def matmul(a, b):
    ...     return jax.shard_map(local, in_specs=(jax.P(None, "X"), jax.P("X")), out_specs=jax.P("X"))(a, b)
    >>> assert_matches_reference(matmul, "A[I, J_X] · B[J_X, K] → C[I_X, K]")
    """
    if not callable(function):
        raise ShardcError("SHC001", f"{function!r} is no function", help="give one of JAX arrays")
    for schedule in _schedules(program, mesh, dims, dtype, _devices()):
        _assert_matches(function, schedule, seed)


def assert_equivalent(one: str | Program | Plan, other: str | Program | Plan, *, seed: int = 0) -> None:
    """Two programs, or plans, mean the same: their outputs, in order, on the same inputs, in float64 or int64.

    A plan is run as planned, on virtual devices; a program as what it means on whole arrays, on the sizes of the plan
    beside it, else on the smallest that its axes divide. Inputs are paired by name. Raises AssertionError with the
    sizes, the element and both values.

    >>> from shardc.testing import assert_equivalent
    >>> assert_equivalent("C[I, K] = A[I, J] · B[J, K]; D[I] = sum_K(C)", "D[I] = A[I, J] · sum_K(B[J, K])")
    >>> assert_equivalent("C[I, K] = A[I, J] · B[J, K]", "C[I, K] = relu(A[I, J] · B[J, K])")
    Traceback (most recent call last):
    AssertionError: with I=2, J=3, K=4: C at (0, 0) is -0.625, and 0.0 in the other
    """
    sizes, mesh = _shared(one, other)
    both = [_runner(given, mesh, sizes) for given in (one, other)]
    (names, run), (others, also) = both
    if sorted(names) != sorted(others):
        raise AssertionError(f"the inputs differ: {', '.join(names)}, and {', '.join(others)} in the other")
    program = one.program if isinstance(one, Plan) else _sized(one, mesh, sizes)
    wholes = dict(zip(names, simulate.sample_inputs(program, seed), strict=True))
    results = run([wholes[name] for name in names]), also([wholes[name] for name in others])
    if len(results[0]) != len(results[1]):
        raise AssertionError(f"{len(results[0])} outputs, and {len(results[1])} in the other")
    spelled = ", ".join(f"{dim}={size}" for dim, size in sizes.items())
    for (name, found), (_, wanted) in zip(*results, strict=True):
        _assert_close(f"with {spelled}: {name}", found, wanted)


def _assert_matches(function: Callable[..., Any], schedule: Schedule, seed: int) -> None:
    from shardc.machines.run import placed, simulated_mesh
    from shardc.testing.on_devices import called

    devices = simulated_mesh(schedule, schedule.given_mesh)
    wholes = simulate.sample_inputs(schedule.program, seed)
    found = called(function, placed(schedule, wholes, devices, seed), devices)
    results = tuple(found) if isinstance(found, tuple | list) else (found,)
    on = f"mesh {schedule.given_mesh}" if schedule.given_mesh.axes else "one device"
    where = f"on {on}; {_sizes_of(schedule.program)}"
    if len(results) != len(schedule.outputs):
        raise AssertionError(f"{where}: {len(results)} results, and {len(schedule.outputs)} outputs")
    for place, result in enumerate(results):
        if not hasattr(result, "addressable_shards"):
            raise AssertionError(f"{where}: result {place} is {type(result).__name__}, and no array on JAX's devices")
    report = report_of(schedule, wholes, results, seed=seed)
    expected = simulate.reference(schedule.program, wholes)
    for number, output, result, whole in zip(schedule.outputs, report.outputs, results, expected, strict=True):
        if output.verdict is not Verdict.EQUAL:
            raise AssertionError(f"{where}: {_wrong(schedule, number, output, result, whole)}")


def _wrong(schedule: Schedule, number: int, output: OutputReport, result: Any, whole: Any) -> str:
    """The element that is farthest off, and what is said of all."""
    array, mesh = schedule.given(number), schedule.given_mesh
    if output.reason is not None or array.sharding.unreduced:
        return f"{array}: {output}"
    wanted, found = simulate.expected_blocks(whole, array, mesh), blocks_of(result, mesh)
    if wanted.shape != found.shape:
        return f"{array}: blocks of {found.shape[len(mesh.axes) :]}, where {wanted.shape[len(mesh.axes) :]} is wanted"
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.abs(found - wanted))), wanted.shape))
    count = len(mesh.axes)
    device = ", ".join(f"{axis}={i}" for axis, i in zip(mesh.names, place[:count], strict=True))
    return (
        f"device ({device}) at {place[count:]} of {array} has {found[place]} where {wanted[place]} is wanted; {output}"
    )


def _schedules(
    program: str | Program, mesh: Mapping[str, int] | Mesh | None, dims: Mapping[str, int] | None, dtype: str, most: int
) -> Iterator[Schedule]:
    if isinstance(program, Program) or mesh is not None:
        parsed = program if isinstance(program, Program) else api.parse(program, mesh=mesh, dims=dims, dtype=dtype)
        yield api.planned(_filled(parsed), may_cut=False).schedule
        return
    for small in meshes_of(axes_in([program]), 2, most):
        parsed = api.parse(program, mesh=small, dims=dims, dtype=dtype)
        yield api.planned(_filled(parsed), may_cut=False).schedule


def _devices() -> int:
    from shardc.testing.on_devices import count_of_devices

    return count_of_devices()


def _filled(program: Program) -> Program:
    """Missing sizes become small, distinct, and divisible by what is written on the dim."""
    from shardc.planner.program import sizes

    return sizes.small(program)


def _shared(one: str | Program | Plan, other: str | Program | Plan) -> tuple[dict[str, int], Mesh]:
    """The sizes and the mesh that both are run with: a plan's, or a program's own, or small ones."""
    for given in (one, other):
        if isinstance(given, Plan):
            return dict(given.dims), given.schedule.given_mesh
    unplanned = [given for given in (one, other) if not isinstance(given, Plan)]
    axes = axes_in([given for given in unplanned if isinstance(given, str)])
    meshes = [given.mesh for given in unplanned if isinstance(given, Program)]
    mesh = meshes[0] if meshes else Mesh.of(dict.fromkeys(axes, 2))
    programs = [given if isinstance(given, Program) else api.parse(given, mesh=mesh) for given in unplanned]
    sizes: dict[str, int] = {}
    for program in programs:
        declared = dict(program.sizes)
        for place, (dim, unit) in enumerate(units_of(program).items()):
            sizes.setdefault(dim, declared.get(dim, unit * (place + 2)))
    return sizes, mesh


def _sized(given: str | Program, mesh: Mesh, sizes: Mapping[str, int]) -> Program:
    program = given if isinstance(given, Program) else api.parse(given, mesh=mesh, dtype="f32")
    return program.with_sizes({dim: sizes[dim] for dim in program.dims if dim in sizes})


def _runner(
    given: str | Program | Plan, mesh: Mesh, sizes: Mapping[str, int]
) -> tuple[list[str], Callable[[list[Any]], list[tuple[str, Any]]]]:
    """The names of the inputs, and a function from them to the outputs, each with its name."""
    if isinstance(given, Plan):
        schedule = given.schedule
        names = [schedule.values[number].name for number in schedule.inputs]
        return names, lambda wholes: _named(schedule, given.simulate(*wholes))
    program = _sized(given, mesh, sizes)
    names = [array.name for array in program.inputs]
    outputs = [program.results[number].name for number in program.outputs]
    return names, lambda wholes: list(zip(outputs, simulate.reference(program, wholes), strict=True))


def _named(schedule: Schedule, results: Any) -> list[tuple[str, Any]]:
    every = results if isinstance(results, tuple) else (results,)
    return [(schedule.values[n].name, found) for n, found in zip(schedule.outputs, every, strict=True)]


def _assert_close(what: str, found: Any, wanted: Any) -> None:
    if found.shape != wanted.shape:
        raise AssertionError(f"{what} has the shape {found.shape}, and {wanted.shape} in the other")
    exact = found.dtype.kind in "iub" and wanted.dtype.kind in "iub"
    size = 0.0 if exact else float(np.max(np.abs(np.where(np.isfinite(wanted), wanted, 0)), initial=0))
    wrong = ~((found == wanted) | (np.abs(found - wanted) <= _CLOSE * size) | (found != found) & (wanted != wanted))
    if wrong.any():
        place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        raise AssertionError(f"{what} at {place} is {found[place]}, and {wanted[place]} in the other")


def _sizes_of(program: Program) -> str:
    return ", ".join(f"{dim}={size}" for dim, size in program.sizes)
