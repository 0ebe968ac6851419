"""The moves that lead on from a sharding are all that are legal, each once: rule by rule, of every kind of move."""

import itertools

import pytest

from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    Slice,
    apply,
    in_one_round,
)
from shardc.ir.exchange import moved, pieces, tails
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.sharding import Sharding
from shardc.rules.moves import changes_of_axes, masks, moves, named_scatters, scatter_onto, scatters
from shardc.rules.placements import placements

MESHES = [Mesh.of({"X": 2, "Y": 2}), Mesh.of({"X": 4, "Y": 2}), Mesh.of({"X": 2, "Y": 2, "Z": 3})]


def shardings(mesh):
    every = itertools.product(placements(mesh.names, 2), ("", "X", "XY"))
    return [Sharding(dims, frozenset(axes)) for dims, axes in every if not {*axes} & {a for d in dims for a in d}]


def is_legal(move, before, mesh):
    try:
        return apply(move, before, mesh) is not None
    except IllegalMove:
        return False


def of_every_kind(before, mesh):
    """All that could be asked for, legal or not; each set of axes once where their order says nothing."""
    some = [part for count in range(1, len(mesh.names) + 1) for part in itertools.permutations(mesh.names, count)]
    for axes in some:
        yield from (kind(axes, dim) for kind in (AllGather, ReduceScatter) for dim in (0, 1))
        yield from (AllToAll(axes, 0, 1), AllToAll(axes, 1, 0))
        if list(axes) == sorted(axes):
            yield AllReduce(axes)
        if len(axes) == 1:
            yield from (Slice(axes, dim) for dim in (0, 1))
    for one, other in itertools.product(some, repeat=2):
        if not {*one} & {*other}:
            yield from (kind(((0, one), (1, other))) for kind in (JointGather, JointScatter))
    for dims in placements(mesh.names, 2):
        parts = tails(before.dims, dims, mesh)
        axes = moved(parts, mesh)
        yield JointExchange(axes, dims)
        yield DirectExchange(axes, dims, pieces(parts) or 0)
        whole = in_one_round(before, dims, mesh)
        if (
            whole is not None
            and Sharding(dims).blocks(mesh) == before.blocks(mesh)
            and Sharding(dims).used - before.used
        ):
            yield whole
        changed = {axis for old, new in zip(before.dims, dims, strict=True) if old != new for axis in old + new}
        if changed:
            yield CollectivePermute(mesh.ordered(changed) if axes else (), dims)


def as_one(move, before, mesh):
    """Whether a move of pieces is that of one dim's axes to the end of another, which is a move of its own."""
    if not isinstance(move, JointExchange):
        return False
    return any(
        apply(AllToAll(own[n:], dim, 1 - dim), before, mesh).dims == move.dims
        for dim, own in enumerate(before.dims)
        for n in range(len(own))
    )


@pytest.mark.instant
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_from_every_sharding_there_are_all_legal_moves_each_once(mesh):
    for before in shardings(mesh):
        found = [*moves(before, mesh, mesh.names)]
        legal = {move for move in of_every_kind(before, mesh) if is_legal(move, before, mesh)}
        wanted = {move for move in legal if not as_one(move, before, mesh)}
        assert len(set(found)) == len(found) and set(found) == wanted, (before, set(found) ^ wanted)


@pytest.mark.instant
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_only_axes_of_the_pool_are_sliced_or_kept_in_one_copy(mesh):
    for before, pool in itertools.product(shardings(mesh), ((), ("X",), ("Y",), mesh.names)):
        every = [move for move in moves(before, mesh, mesh.names) if not isinstance(move, Slice)]
        every = [move for move in every if move.leaves(before).used <= before.used.union(pool)]
        sliced = {Slice((axis,), dim) for axis in pool for dim in (0, 1) if axis not in before.used}
        assert {*moves(before, mesh, pool)} == {*every, *sliced}
        assert {*masks(before, pool)} == {Mask((axis,)) for axis in pool if axis not in before.used}


@pytest.mark.instant
@pytest.mark.parametrize(
    ("goal", "move"),
    [
        (Sharding((tuple("A"), ("X", "Y"), ())), JointScatter(((0, ("A",)), (1, ("X", "Y"))))),
        (Sharding(((), ("X", "Y"), ())), ReduceScatter(("X", "Y"), 1)),
        (Sharding(((), ("X", "Y"), ()), frozenset("XY")), None),  # nothing of it is summed
        (Sharding(((), (), ())), None),
        (Sharding((("W",), ("Y",), ())), ReduceScatter(("Y",), 1)),  # W is no sum's
        (Sharding((("Y",), (), ("W", "X"))), ReduceScatter(("Y",), 0)),
    ],
)
def test_of_many_sums_those_are_scattered_at_once_that_the_goal_has_behind_what_is_there(goal, move):
    """Where scatters over four axes and less onto three dims are too many to be listed; else none by itself."""
    assert scatter_onto(Sharding(((), (), ()), frozenset("XYZABC")), goal) == move
    assert scatter_onto(Sharding(((), (), ()), frozenset("XYAB")), goal) is None


def of_twos(axes, rank, held=0):
    """A mesh, and partial sums over so many axes; the first axes shard a dim."""
    mesh = Mesh.of({f"X{place}": 2 for place in range(axes + held)})
    return mesh, Sharding((mesh.names[:held], *[()] * (rank - 1)), frozenset(mesh.names[held:]))


@pytest.mark.instant
@pytest.mark.parametrize(("rank", "is_listed"), [(6, True), (7, True), (8, False)])
def test_three_axes_go_onto_seven_dims_in_as_many_ways_as_are_gone_through(rank, is_listed):
    mesh, sums = of_twos(3, rank)
    assert max(len(move.axes) for move in scatters(sums, mesh, mesh.names)) == (3 if is_listed else 2)
    goal = Sharding((mesh.names, *[()] * (rank - 1)))
    assert scatter_onto(sums, goal) == (None if is_listed else ReduceScatter(mesh.names, 0))
    whole = Sharding(of_twos(2, rank, held=1)[1].dims)
    assert any(changes_of_axes(whole, mesh, mesh.names)) == is_listed


@pytest.mark.instant
@pytest.mark.parametrize(("axes", "rank", "is_listed"), [(6, 4, True), (7, 3, False), (3, 4, True)])
def test_of_a_named_scatter_six_axes_go_onto_four_dims_in_every_way_and_more_onto_one(axes, rank, is_listed):
    mesh, sums = of_twos(axes, rank)
    found = list(itertools.islice(named_scatters(sums, mesh, mesh.names), 4 * rank))
    plain = [ReduceScatter(mesh.names, dim) for dim in range(rank)]
    assert found == plain if not is_listed else len(found) > rank and found[:rank] == plain
    assert list(named_scatters(sums, mesh, (*mesh.names, "Y"))) == []
