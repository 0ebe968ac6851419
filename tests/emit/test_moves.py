"""Every move by itself, as text: between shardings of small meshes each is proved, whatever else would do it."""

import itertools
from dataclasses import replace

import pytest

from shardc.emit.text.source import source
from shardc.ir.collectives import DirectExchange, JointExchange, UnevenExchange, apply, uneven_exchange
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Call, Pattern, Use
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Block, Schedule, Step, StepCost
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Array, Sharding, spell
from shardc.proving import prove
from shardc.rules.moves import exchange, moves
from shardc.rules.placements import placements

F32, DIMS = DTYPES["f32"], ("I", "J", "K")


def alone(move, mesh, before, shape, topology):
    """A program whose one step is this move."""
    after, dims = apply(move, before, mesh), DIMS[: len(shape)]
    arrays = tuple(Array("A", dims, shape, sharding, F32) for sharding in (before, after))
    one, other = (Pattern.exactly(sharding) for sharding in (before, after))
    statement = Statement("A", dims, other, Use("A", dims, one, F32), F32, f"A{spell(dims, after)}")
    sizes = tuple(zip(dims, shape, strict=True))
    program = Program(mesh, sizes, F32, (Input("A", dims, one, F32),), (statement,), topology=topology)
    return Schedule(program, Block(arrays, (0,), (1,), (Step(move, (0,), (1,), 0, StepCost()),)))


def lying(mesh, rank):
    """Every sharding, with partial sums over one axis and over two as well."""
    partial = ("", *mesh.names[:1], "".join(mesh.names[:2]))
    every = itertools.product(placements(mesh.names, rank), partial)
    return [Sharding(dims, frozenset(axes)) for dims, axes in every if not {*axes} & {a for d in dims for a in d}]


def spread(found, count):
    """So many of these, from the first to the last."""
    found = [*found]
    return found[:: max(1, len(found) // count)]


def unequal(pairs, mesh):
    """The exchanges in unequal pieces between these, with where each begins."""
    found = ((uneven_exchange(before, after.dims, mesh), before) for before, after in pairs)
    return [(move, before) for move, before in found if move is not None]


# Of each mesh the rank, and the slice whose compiler is written for, if one is named.
MESHES = [((4, 2), 2, None), ((2, 4), 2, "v5e:2x4"), ((2, 2, 2), 2, "v5p:2x2x2"), ((4, 4), 2, "v5e:4x4")]
MESHES += [((2, 2, 2), 3, None), ((4, 2, 4), 2, None), ((8, 2), 2, None), ((6, 4), 2, None)]
MESHES += [((4, 4, 4), 3, None)]


@pytest.mark.parametrize(("sizes", "rank", "topology"), MESHES, ids=str)
def test_a_move_by_itself_is_proved(sizes, rank, topology):
    mesh = Mesh.of(zip("XYZ", sizes, strict=False))
    every = [(move, before) for before in lying(mesh, rank) for move in moves(before, mesh, mesh.names)]
    proved(every, mesh, rank, topology)


@pytest.mark.parametrize(("sizes", "rank", "topology"), MESHES, ids=str)
def test_pieces_that_change_devices_in_turns_or_at_once_are_proved(sizes, rank, topology):
    """The kinds of which there are few among all: blocks end within an axis, dims are joined and cut at once."""
    mesh = Mesh.of(zip("XYZ", sizes, strict=False))
    every = [(move, before) for before in lying(mesh, rank) for move in moves(before, mesh, mesh.names)]
    proved([pair for pair in every if isinstance(pair[0], DirectExchange)], mesh, rank, topology, 20)
    proved([pair for pair in every if isinstance(pair[0], JointExchange)], mesh, rank, topology, 10)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["X", "Y", "VW"], ["V", "W", "XY"]),  # halves of two dims are joined, and the third is cut in four
        (["V", "W", "XY"], ["X", "Y", "VW"]),
        (["X", "VY", "W"], ["V", "WX", "Y"]),
        (["VX", "Y", "W"], ["W", "V", "YX"]),
    ],
    ids=str,
)
def test_groups_that_end_within_axes_of_several_dims_are_proved(before, after):
    mesh, given, left = Mesh.of({"V": 2, "W": 2, "X": 4, "Y": 4}), Sharding.of(before), Sharding.of(after)
    move = exchange(given.dims, left.dims, mesh)
    assert move is not None and not move.facts.is_named
    proved([(move, given)], mesh, 3, None)


@pytest.mark.parametrize("sizes", [(2, 3), (4, 6), (3, 4, 2)], ids=str)
def test_an_exchange_in_unequal_pieces_is_proved(sizes):
    mesh = Mesh.of(zip("XYZ", sizes, strict=False))
    pairs = itertools.product([each for each in lying(mesh, 2) if not each.unreduced], repeat=2)
    proved(unequal(spread(pairs, 24), mesh), mesh, 2, None)


def proved(pairs, mesh, rank, topology, count=30):
    shape = (mesh.devices, *(2 * mesh.devices,) * (rank - 1))
    for move, before in spread(pairs, min(count, 480 // mesh.devices)):
        schedule = alone(move, mesh, before, shape, topology)
        assert not [*faults_of(schedule)]
        found = prove(schedule, source(schedule, "v5p"))
        assert found.holds, (move, before, found)


def done_twice(move, mesh, before, shape):
    """The move, something that is made of what it leaves, and the same move again, which waits for that."""
    once = alone(move, mesh, before, shape, None)
    left, dims, lies = once.block.values[1], once.block.values[1].dims, Pattern.exactly(once.block.values[1].sharding)
    (given,) = once.program.inputs
    read, made, *both = Use("A", dims, given.pattern, F32), *(Use(name, dims, lies, F32) for name in "BCD")
    statements = (
        Statement("B", dims, lies, read, F32, "B = A"),
        Statement("C", dims, lies, Call("neg", (made,), dims, F32), F32, "C = -B"),
        Statement("D", dims, lies, read, F32, "D = A"),
        Statement("E", dims, lies, Call("add", tuple(both), dims, F32), F32, "E = C + D"),
    )
    program = replace(once.program, statements=statements, returns=("B", "E"))
    values = (once.block.values[0], *(replace(left, name=name) for name in "BCDE"))
    steps = (
        Step(move, (0,), (1,), 0, StepCost()),
        Step(Apply("neg"), (1,), (2,), 1, StepCost()),
        Step(move, (0,), (3,), 2, StepCost()),
        Step(Apply("add"), (2, 3), (4,), 3, StepCost()),
    )
    return replace(once, program=program, block=Block(values, (0,), (1, 4), steps))


@pytest.mark.parametrize("sizes", [(4, 2), (2, 3)], ids=str)
def test_a_move_that_is_done_again_is_proved_and_reads_through_a_barrier(sizes):
    """Of every kind, of one line and of several: `A_1` is read in the place of A."""
    mesh, kinds = Mesh.of(zip("XYZ", sizes, strict=False)), set()
    whole = [each for each in lying(mesh, 2) if not each.unreduced]
    every = [(move, before) for before in whole for move in moves(before, mesh, mesh.names)]
    found = (
        (uneven_exchange(before, after.dims, mesh), before) for before, after in itertools.product(whole, repeat=2)
    )
    for move, before in (*spread(every, 20), *spread((pair for pair in found if pair[0] is not None), 6)):
        schedule = done_twice(move, mesh, before, (mesh.devices, 2 * mesh.devices))
        assert not [*faults_of(schedule)]
        text = source(schedule, "v5p")
        assert "optimization_barrier" in text and prove(schedule, text).holds, (move, before)
        kinds.add(type(move))
    assert UnevenExchange in kinds and len(kinds) > 4
