"""Every move by itself, as text: between shardings of small meshes each is proved, whatever else would do it."""

import itertools

import pytest

from shardc.emit.text.source import source
from shardc.ir.collectives import DirectExchange, JointExchange, apply, uneven_exchange
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern, Use
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Schedule, Step, StepCost
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
    found = ((uneven_exchange(before, after.dims, mesh), before) for before, after in spread(pairs, 24))
    proved([(move, before) for move, before in found if move is not None], mesh, 2, None)


def proved(pairs, mesh, rank, topology, count=30):
    shape = (mesh.devices, *(2 * mesh.devices,) * (rank - 1))
    for move, before in spread(pairs, min(count, 480 // mesh.devices)):
        schedule = alone(move, mesh, before, shape, topology)
        assert not [*faults_of(schedule)]
        found = prove(schedule, source(schedule, "v5p"))
        assert found.holds, (move, before, found)
