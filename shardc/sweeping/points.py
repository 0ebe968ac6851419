"""Plans over many sizes: each point is the program with those sizes, planned as it would be alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

from shardc.api import PlanOptions, parse, plan
from shardc.errors import ShardcError, nearest
from shardc.interface.arguments import dims_of, mesh_of
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.report.view import StepView
from shardc.results import Plan
from shardc.sweeping.ranges import Over, over, points
from shardc.sweeping.result import Swept
from shardc.sweeping.rows import Row, neighbours
from shardc.sweeping.standing import Stands

_HALVINGS = 8
_OF_PARSE = ("mesh", "dims", "dtype", "chip", "topology", "dcn", "name")


def sweep(
    text: str | Program, *swept: str, say: Callable[[str], None] | None = None, **options: Unpack[PlanOptions]
) -> Swept:
    """A program planned at every size, or every split of its axes: a row each, the crossings and the best.

    `swept` is one or two of "B=1k..16M" (doubled; also "B=1k..8k+1k", "B=512,768"), an axis in the same words, or
    "X*Y=64", every split of 64 devices; of two, every combination. Options as of `plan`; `say` is told of each point.
    What is not legal at a point (a size that its axes do not divide, a limit of memory) is said in its row.
    ShardcError where no point is legal.

    The backward half of a product under data parallelism, by the chapter on training: B/X = C/W = 2,550.

    >>> backward = "dW[D, F] = In[B_X, D] · dOut[B_X, F]; dIn[B_X, D] = dOut[B_X, F] · W[D, F]"
    >>> sizes = {"D": 2048, "F": 8192}
    >>> found = sweep(backward, "B=4k..64k", mesh={"X": 4}, dims=sizes, chip="v5p", formula="book")
    >>> [row.limited_by for row in found.rows]
    ['communication', 'communication', 'compute', 'compute', 'compute']
    >>> round(found.crossings[0].at / 4)
    2550
    """
    text = str(text) if isinstance(text, Program) else text
    quantities = tuple(over(one) for one in swept)
    if not 1 <= len(quantities) <= 2:
        raise ShardcError("SHC001", f"{len(quantities)} quantities to sweep", help='give one or two, as in "B=1k..16M"')
    every = points(quantities)
    base = _base(text, quantities, options)
    rows = []
    for number, point in enumerate(every):
        if say is not None:
            say(f"{number} of {len(every)} points planned; now {_spelled(point)}")
        rows.append(_row(text, base, point, options))
    refusals = [row.refused for row in rows if row.refused is not None]
    if len(refusals) == len(rows):
        raise refusals[0]
    probes = tuple(
        probe
        for own, one, other in neighbours(rows, quantities)
        for probe in _between(own, one, other, lambda point: _row(text, base, point, options))
    )
    return Swept(
        tuple(statement.text for statement in base.statements), quantities, tuple(rows), base.mesh.names, probes
    )


def _between(own: slice, one: Row, other: Row, planned: Callable[[Mapping[str, int]], Row]) -> Iterator[Row]:
    """Rows on the way to where two neighbours' limits change, each halfway: the plan may be another there. Between
    splits there is none."""
    for _ in range(_HALVINGS if own.stop - own.start == 1 else 0):
        (name, first), (_, last) = one.sizes[own.start], other.sizes[own.start]
        if last - first < 2:
            return
        middle = planned({**dict(one.sizes), name: (first + last) // 2})
        if middle.refused is not None:  # the axes do not divide it
            return
        yield middle
        one, other = (middle, other) if middle.limited_by == one.limited_by else (one, middle)


def _base(text: str, swept: Sequence[Over], options: Mapping[str, Any]) -> Program:
    """The program with the sizes that it has without a sweep. SHC001 for what is swept and is not of it."""
    program = _parsed(text, swept, {key: value for key, value in options.items() if key in _OF_PARSE})
    known = (*program.mesh.names, *program.dims)
    for name in (name for each in swept for name in each.names):
        if name not in known:
            near = nearest(name, known)
            help = f"did you mean `{near}`?" if near else "sweep one of " + ", ".join(known)
            raise ShardcError("SHC001", f"`{name}` is neither a dim of the program nor an axis of its mesh", help=help)
    for each in swept:
        named = (name in program.mesh and (_shards(name, text) or name not in program.dims) for name in each.names)
        if len(each.names) > 1 and not all(named):
            raise ShardcError("SHC001", f"`{each.text}` splits devices, among axes only", help="sweep dims by ranges")
    return program


def _parsed(text: str, swept: Sequence[Over], options: dict[str, Any]) -> Program:
    """Axes that no mesh declares are declared by their sweep: in `A[I_X] → A[I]`, `X=2..8`. So is `data=2..8` in
    `A[I_data] → B[I_data]`, where without it `I_data` is the name of a dim."""
    names = [(name, len(each.names) > 1) for each in swept for name in each.names]
    fault = None
    try:
        found = parse(text, **options)
        known = {*found.mesh.names, *found.dims}
        if all(name in known or not _shards(name, text) for name, _ in names):
            return found
    except ShardcError as error:
        if error.code != "SHC201":  # not of axes
            raise
        fault = error
    given = mesh_of(options.get("mesh"))
    declared = dict(given.axes) if given is not None else {}
    missing = {name: 1 for name, is_split in names if _shards(name, text) or is_split}
    if fault is not None and not missing:
        raise fault
    return parse(text, **{**options, "mesh": Mesh.of({**missing, **declared})})


def _shards(axis: str, text: str) -> bool:
    """Whether a name is one of an axis, or begins the names of some, wherever the text has it so."""
    return f"_{axis}" in text


def _row(text: str, base: Program, point: Mapping[str, int], options: Mapping[str, Any]) -> Row:
    sizes = tuple(point.items())
    try:
        found = _planned(text, base, point, options)
    except ShardcError as error:
        return Row(sizes, error)
    cost = found.cost
    steps = [step for step in _every(found.steps) if step.axes and step.wire_bytes]
    moves = "; ".join(_move(step.op, step.axes) for step in steps) or "none"
    parts = cost.compute_s, cost.communication_s, cost.time_s, cost.wire_bytes, cost.flops, cost.peak_bytes
    return Row(sizes, None, *parts, moves, _stands(found, point))


def _stands(found: Plan, point: Mapping[str, int]) -> Stands:
    mesh, dims = (
        tuple((name, size) for name, size in sizes.items() if name not in point) for sizes in (found.mesh, found.dims)
    )
    return Stands(mesh, found.chip, found.dtype, dims, found.notes)


def _planned(text: str, base: Program, point: Mapping[str, int], options: Mapping[str, Any]) -> Plan:
    mesh = Mesh.of([(axis, point.get(axis, size)) for axis, size in base.mesh.axes])
    dims = {**(dims_of(options.get("dims")) or {}), **{name: n for name, n in point.items() if name not in base.mesh}}
    return plan(text, **{**options, "mesh": mesh, "dims": dims or None})


def _every(steps: Iterable[StepView]) -> Iterator[StepView]:
    """Those of loops too, each once."""
    for step in steps:
        yield from _every(step.steps) if step.steps else (step,)


def _move(op: str, axes: Sequence[str]) -> str:
    return f"{op}_{''.join(axes) if all(len(axis) == 1 for axis in axes) else ','.join(axes)}"


def _spelled(point: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in point.items())
