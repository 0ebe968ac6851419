"""Permutes priced by the ways of their blocks, and what the steps of a plan copy because of one another."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost.chips import chip
from shardc.cost.layout import SHAPES, Layout
from shardc.cost.model import LinkModel
from shardc.ir.collectives import CollectivePermute
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.lowering.lower import form
from shardc.lowering.pairs import pairs_of, sent_by
from shardc.lowering.target import Target
from shardc.testing.oracles import all_moves, all_shardings

SLICES = [
    ("v5p:2x2x2", "X=2,Y=2,Z=2"),
    ("v5e:4x4", "X=4,Y=4"),
    ("v5e:4x4", "X=2,Y=2,Z=4"),
    ("v5p:2x2x4", "X=4,Y=2,Z=2"),
]


def planned(text, mesh, topology, dims, **asked):
    return shardc.plan(text, mesh=mesh, topology=topology, dims=dims, **asked)


def permutes(mesh, rank=2):
    for before in all_shardings(mesh, rank):
        for move in all_moves(before, mesh):
            if isinstance(move, CollectivePermute):
                yield move, before


def held(dims, at, mesh):
    """The number of a device's block, of each dim."""
    found = []
    for axes in dims:
        number = 0
        for axis in axes:
            number = number * mesh.size(axis) + at[axis]
        found.append(number)
    return found


@pytest.mark.instant
@pytest.mark.parametrize("mesh", ["X=2,Y=4", "X=2,Y=2,Z=3"])
def test_a_pair_sends_the_block_that_its_taker_wants(mesh):
    mesh = Mesh.of(dict((name, int(size)) for name, size in (part.split("=") for part in mesh.split(","))))
    every, looked_at = list(mesh.coordinates()), 0
    for move, before in permutes(mesh):
        pairs = pairs_of(sent_by(form(move, None, Target(mesh, is_plain=True)), before, mesh), mesh)
        assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == list(range(mesh.devices))
        for sender, taker in pairs:
            assert held(before.dims, every[sender], mesh) == held(move.dims, every[taker], mesh)
            untouched = set(mesh.names) - set(move.axes)
            assert all(every[sender][axis] == every[taker][axis] for axis in untouched)
        looked_at += 1
    assert looked_at > 3


@pytest.mark.instant
@pytest.mark.parametrize("topology,mesh", SLICES)
def test_no_permute_takes_less_than_the_search_bounds_it_by(topology, mesh):
    model = planned("A[I] → A[I]", mesh, topology, {"I": 4096})._model
    found = set()
    for move, before in permutes(model.mesh):
        rate = model.emitted(move, None, before)
        assert rate.s_per_byte >= model.rate(move).s_per_byte * (1 - 1e-9)
        assert rate.latency_s >= model.rate(move).latency_s * (1 - 1e-9)
        longest = model.emitted(move, None)
        found |= {(rate.s_per_byte < longest.s_per_byte, rate.s_per_byte > longest.s_per_byte)}
    assert found - {(False, False)}, "whose blocks go where makes a difference"


def test_a_permute_is_as_long_as_its_busiest_link():
    """`(x, y) → (y, x)` on 4x4 without wraparound, half of each block along X first. Into the last chip of row 3 go the
    halves of the three before it. The longest way alone is three links along an axis, and so is the unrouted price."""
    model = planned("A[I] → A[I]", "X=4,Y=4", "v5e:4x4", {"I": 4096})._model
    move, before = CollectivePermute(("X", "Y"), (("Y", "X"), ())), Sharding((("X", "Y"), ()))
    of_one_link = 1 / model.chip.link_bandwidth
    assert model.emitted(move, None, before).s_per_byte == pytest.approx(1.5 * of_one_link)
    assert model.emitted(move, None).s_per_byte == pytest.approx(3 * of_one_link)


COMPARED = [
    ("A[I_Y, J] · B[J_Y, K_X] → C[I_Y, K_X]", "X=16,Y=4", "v5p:4x4x4", {"I": 4096, "J": 32768, "K": 16384}),
    ("A[I_XYZ, J] · B[J_X, K_Y] → C[I_XY, K]", "X=2,Y=2,Z=2", "v5p:2x2x2", {"I": 4096, "J": 4096, "K": 16384}),
    ("A[I, J_X] · B[J_X, K] → C[I, K]", "X=4,Y=4", "v5e:4x4", {"I": 4096, "J": 8192, "K": 16384}),
]


@pytest.mark.parametrize("text,mesh,topology,dims", COMPARED)
def test_no_strategy_as_built_is_below_the_plan(text, mesh, topology, dims):
    plan = planned(text, mesh, topology, dims, idle="keep")
    (statement,) = plan._found.statements
    own, *others = statement.cheapest(12)
    assert all(own.time_s <= other.time_s * (1 + 1e-9) for other in others)


def test_what_a_share_is_cut_out_for_is_copied_but_for_a_product():
    moved = planned("A[I_Y, J] → A[I_YX, J]", "X=2,Y=2,Z=2", "v5p:2x2x2", {"I": 8192, "J": 8192}, idle="keep")
    (cut,) = moved.steps
    assert cut.op == "Slice" and cut.formula == "2·I·J/Y/X / W_copy"
    read = planned("A[I, J_X] · B[J, K] → C[I, K]{U_X}", "X=2,Y=2,Z=2", "v5p:2x2x2", dict.fromkeys("IJK", 8192))
    assert all(step.time_s == 0 for step in read.steps if step.op == "Slice")


@pytest.mark.instant
@settings(max_examples=60)
@given(data=st.data())
def test_what_comes_to_a_chip_and_what_leaves_it_differ_by_what_it_takes_and_sends(data):
    """Of the bytes on each link, each way: so none is on another link or goes the other way."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    mesh = Mesh(tuple(zip("XYZ", sizes, strict=False)))
    kinds = data.draw(st.lists(st.sampled_from(SHAPES), min_size=len(sizes), max_size=len(sizes)))
    fabric = LinkModel.of(
        mesh, chip("v5p"), Layout(wraparound=tuple(zip(mesh.names, kinds, strict=True)))
    ).network.fabric
    device = st.integers(0, mesh.devices - 1)
    pairs = data.draw(st.lists(st.tuples(device, device), max_size=4))
    left = Counter()
    for source, target in pairs:
        left[fabric.laid.place(source)] += 1000
        left[fabric.laid.place(target)] -= 1000
    for wire in fabric.wires(pairs, 1000):
        other = list(wire.at)
        other[wire.along] = (other[wire.along] + 1) % fabric.laid.shape[wire.along]
        left[wire.at] -= wire.forward - wire.backward
        left[tuple(other)] += wire.forward - wire.backward
    assert all(abs(count) < 1e-6 for count in left.values())
