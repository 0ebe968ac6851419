"""What groups of devices have of the links follows from where their chips are, and not from the names of axes."""

from itertools import chain, combinations, product

import pytest

from shardc.cost import Layout, LinkModel, chip
from shardc.cost.links.fabric import Fabric
from shardc.cost.links.level import Factor
from shardc.cost.links.routed import routed
from shardc.cost.links.torus_links import groups_of
from shardc.cost.topology import Laid, Topology, lay
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.lowering.forms import Call
from shardc.lowering.scatters import Round

KINDS = (Kind.GATHER, Kind.SCATTER, Kind.SUM, Kind.EXCHANGE)
SLICES = [
    ("v5e", (4, 4), {"X": 4, "Y": 4}),
    ("v5e", (4, 4), {"X": 16}),
    ("v5e", (2, 2), {"X": 2, "Y": 2}),
    ("v5p", (2, 2, 2), {"X": 2, "Y": 4}),
    ("v5p", (4, 4, 4), {"X": 4, "Y": 16}),
    ("v5p", (4, 4, 4), {"X": 8, "Y": 8}),
    ("H100", None, {"X": 4, "Y": 4}),
    ("H100", None, {"X": 2, "Y": 8}),
    ("H100", None, {"X": 16}),
]


def model_of(name, shape, axes):
    layout = Layout() if shape is None else Layout(topology=Topology(chip(name), shape))
    return LinkModel.of(Mesh.of(axes), chip(name), layout)


@pytest.mark.instant
@pytest.mark.parametrize("case", SLICES, ids=str)
def test_a_group_is_priced_by_its_devices_as_by_its_axes(case):
    model = model_of(*case)
    names = model.mesh.names
    for axes in chain.from_iterable(combinations(names, count) for count in range(1, len(names) + 1)):
        levels, groups = model.network.levels(axes), groups_of(model.mesh, axes)
        for kind in KINDS:
            by_axes = model.rate_of(kind, levels, len(groups[0]))
            for each in model.network.grouped(groups):
                by_devices = model.rate_of(kind, each, len(groups[0]))
                assert by_devices.s_per_byte == pytest.approx(by_axes.s_per_byte, rel=1e-12, abs=0)
                assert by_devices.latency_s == pytest.approx(by_axes.latency_s, rel=1e-12, abs=0)


@pytest.mark.instant
@pytest.mark.parametrize(("name", "shape", "count"), [("v5e", (4, 4), 16), ("v5e", (2, 4), 8), ("H100", None, 16)])
def test_no_group_of_a_part_of_an_axis_takes_longer_than_the_part(name, shape, count):
    """Where an axis walks round a slice, some groups lie on a line and others round a corner."""
    model = model_of(name, shape, {"X": count})
    splits = [(count // minor, minor) for minor in range(2, count) if count % minor == 0]
    for split, is_major, kind in product(splits, (False, True), KINDS):
        over = Round(("X",), split, is_major)
        together = model.rate_of(kind, model.levels_of(Call(kind, over)), over.parts(model.mesh)).s_per_byte
        for group in over.groups():
            for levels in model.network.grouped([group]):
                alone = model.rate_of(kind, levels, len(group)).s_per_byte
                assert alone <= together * (1 + 1e-9), (split, is_major, kind, group)


def test_groups_of_other_sizes_are_each_priced():
    """Of domains of eight, ten devices are in two, most of them in one with eight; three others are inside one."""
    network = model_of("H100", None, {"X": 16}).network
    found = list(network.grouped([list(range(10)), [10, 11, 12]]))
    assert [[level.count.value for level in levels] for levels in found] == [[8, 2], [3]]
    assert [level.width.value for level in found[0]] == [chip("H100").link_bandwidth, chip("H100").dcn_bandwidth]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("name", "shape", "axes", "links"),
    [
        ("v5e", (4, 4), {"X": 4, "Y": 4}, [24, 24, 48]),  # of each of four lines three links, both ways
        ("v5p", (4, 4, 4), {"X": 4, "Y": 16}, [128, 256, 384]),  # of sixteen rings four
        ("v5p", (4, 4, 4), {"X": 8, "Y": 8}, [256, 192, 384]),  # a ring cut: pairs of neighbours, and what skips them
        ("H100", None, {"X": 4, "Y": 4}, [0, 0, 0]),  # each device has its own port
    ],
)
def test_the_links_that_groups_are_on(name, shape, axes, links):
    model = model_of(name, shape, axes)
    taken = [model.network.taken(groups_of(model.mesh, each)) for each in (("X",), ("Y",), ("X", "Y"))]
    assert [each.bit_count() for each in taken] == links
    assert taken[0] | taken[1] == taken[2] or not links[2]


def test_an_axis_runs_along_what_its_neighbours_on_a_walk_differ_by():
    """X=2, Y=2 walks round 2×2: (0, 0) (0, 1) (1, 1) (1, 0). From y = 0 to 1 only the second place changes."""
    laid = Laid(Mesh.of({"X": 2, "Y": 2}), (2, 2), {}, ((0, 0), (0, 1), (1, 1), (1, 0)))
    assert [laid.names(axis) for axis in range(2)] == [["X"], ["X", "Y"]]
    assert laid.place(2) == (1, 1)


def test_groups_that_are_no_box_exchange_as_their_blocks_go():
    """Four diagonals of 4×4, of twelve pairs each: what all blocks to all others bring to the busiest link."""
    mesh = Mesh.of({"X": 4, "Y": 4})
    fabric = Fabric.of(lay(mesh, Topology(chip("v5e"), (4, 4)), {}), chip("v5e"), {})
    diagonals = [[4 * row + (row + first) % 4 for row in range(4)] for first in range(4)]
    assert fabric.box(diagonals[0]) is None
    found = routed(diagonals, fabric, Factor("X", 4), "X")
    pairs = [(here, there) for group in diagonals for here in group for there in group if here != there]
    direct = fabric.traffic(pairs)
    assert found.spread.value == pytest.approx(3 / direct.s_per_byte, rel=1e-12) and found.hops.value == direct.hops
