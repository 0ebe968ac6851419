"""Pictures by what they hold: the right blocks, bytes on the right links, bars as long as steps take."""

import itertools
import math
import re
import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import cli
from shardc.compiled.replay.timeline import Event, Timeline
from shardc.errors import ShardcError
from shardc.ir.dtypes import dtype
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, How, Loop, Step, operands_of, single_steps
from shardc.ir.sharding import Array, Sharding
from shardc.lowering.together import candidates
from shardc.report.pictures import blocks, links_picture, style, timeline_picture
from shardc.report.pictures.held import grid, held, shown
from shardc.report.pictures.marks import Rect, Text
from shardc.report.pictures.picture import Picture
from shardc.report.pictures.plan import Pictured, picture
from shardc.report.view import every_view, steps
from shardc.simulate.layout import expected_blocks
from shardc.testing import strategies

pytest.importorskip("drawsvg", reason="pictures need drawsvg: pip install 'shardc[report]'")

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture):
    return ElementTree.fromstring(picture.svg)


def groups(root, look):
    return [group for group in root.iter(f"{SVG}g") if look in group.get("class", "").split()]


def numbers(text):
    return tuple(int(each) for each in text.split(",") if each)


# --- blocks


@st.composite
def arrays(draw):
    mesh = draw(strategies.meshes(max_axes=3, max_size=4))
    rank = draw(st.integers(0, 3))
    sharding = draw(strategies.shardings(mesh, rank))
    shape = tuple(mesh.product(axes) * draw(st.integers(1, 3)) for axes in sharding.dims)
    return Array("A", tuple("IJK"[:rank]), shape, sharding, dtype("f32")), mesh


def looks(cell):
    """The fill and the texture of a device's cell."""
    found = [rect.get("class", "").split() for rect in cell.iter(f"{SVG}rect")]
    fills = [look for rect in found for look in rect if re.fullmatch(r"f\d", look)]
    textures = [look for rect in found for look in rect if re.fullmatch(r"x\d", look)]
    assert len(fills) == 1 and len(textures) <= 1
    return fills[0], *textures


@settings(max_examples=30)
@given(arrays())
def test_cells_look_alike_exactly_where_devices_hold_the_same(drawn):
    array, mesh = drawn
    cells = {numbers(cell.get("data-device")): cell for cell in groups(parsed(blocks(array, mesh)), "cell")}
    assert set(cells) == set(itertools.product(*map(range, shown(mesh)))), "a cell for each device that is drawn"
    whole = np.arange(math.prod(array.shape)).reshape(array.shape)
    reduced = Array(array.name, array.dims, array.shape, Sharding(array.sharding.dims), array.dtype)
    laid = expected_blocks(whole, reduced, mesh)
    summed = [mesh.names.index(axis) for axis in sorted(array.sharding.unreduced)]
    truth = {at: (laid[at].tobytes(), tuple(at[place] for place in summed)) for at in cells}
    for one, other in itertools.combinations(cells, 2):
        assert (looks(cells[one]) == looks(cells[other])) == (truth[one] == truth[other])
    for at, cell in cells.items():
        corner = np.unravel_index(int(laid[at].flat[0]), array.shape) if array.shape else ()
        own = array.local_shape(mesh)
        assert numbers(cell.get("data-block")) == tuple(int(n) // size for n, size in zip(corner, own, strict=True))
        hatched = any("plus" in rect.get("class", "").split() for rect in cell.iter(f"{SVG}rect"))
        assert hatched == bool(array.sharding.unreduced)


@settings(max_examples=30)
@given(arrays())
def test_the_black_square_is_where_the_block_is_in_the_array(drawn):
    array, mesh = drawn
    for cell in groups(parsed(blocks(array, mesh)), "cell"):
        [black] = [rect for rect in cell.iter(f"{SVG}rect") if rect.get("class") == "k"]
        [around] = [rect for rect in cell.iter(f"{SVG}rect") if rect.get("class") == "map"]
        side = float(around.get("width"))
        counts, block, dims = (
            array.sharding.blocks(mesh),
            numbers(cell.get("data-block")),
            numbers(black.get("data-dims")),
        )
        cut = [dim for dim, count in enumerate(counts) if count > 1]
        assert len(dims) == min(2, len(counts)) and len(set(cut) & set(dims)) == min(2, len(cut)), "what is cut is seen"
        (rows, row), (columns, column) = [(1, 0)] * (2 - len(dims)) + [(counts[dim], block[dim]) for dim in dims]
        assert float(black.get("x")) == pytest.approx(side * column / columns, abs=0.01)
        assert float(black.get("y")) == pytest.approx(side * row / rows, abs=0.01)
        assert float(black.get("width")) == pytest.approx(max(side / columns, 1.5), abs=0.01)


@given(strategies.meshes(max_axes=4, max_size=4))
def test_no_two_cells_lie_on_each_other(mesh):
    drawn = shown(mesh)
    plane = grid(drawn, (50, 20), 3)
    places = [plane.place(at) for at in itertools.product(*map(range, drawn))]
    for (x, y), (u, v) in itertools.combinations(places, 2):
        assert abs(x - u) >= 50 or abs(y - v) >= 20
    assert max(x for x, _ in places) + 50 <= plane.width + 1e-9
    assert max(y for _, y in places) + 20 <= plane.height + 1e-9


def test_of_a_large_mesh_the_first_devices_are_drawn_and_it_says_so():
    found = shardc.plan("A[I_X, J_Y] → A[I, J_Y]", mesh={"X": 256, "Y": 16}, dims={"I": 4096, "J": 4096})
    root = parsed(found.picture())
    text = " ".join(root.itertext())
    assert len(groups(root, "cell")) <= 2 * 32
    assert "of 256" in text and "of 16" in text


@settings(max_examples=12)
@given(strategies.programs())
def test_every_step_is_drawn_with_what_it_is_given_and_what_it_leaves(case):
    found = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    root = parsed(found.picture())
    drawn = [text.get("data-array") for text in root.iter(f"{SVG}text") if text.get("data-array")]
    wanted = [name for step in every_view(found.steps) if not step.steps for name in (*step.operands, step.result)]
    assert drawn == (wanted or [array.sharding for array in found.inputs])
    cells = len(groups(root, "cell"))
    assert cells == len(drawn) * math.prod(shown(found.schedule.mesh))


def looped():
    """A plan's one step, done three times along L: as a program with a loop has it."""
    found = shardc.plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 2**10, "J": 2**10})
    body = found.schedule.block
    outer = [Array("A", ("L", *v.dims), (3, *v.shape), Sharding(((), *v.sharding.dims)), v.dtype) for v in body.values]
    [one] = body.steps
    cost = replace(one.cost, wire_bytes=3 * one.cost.wire_bytes, time_s=3 * one.cost.time_s)
    step = Step(Loop("L", 3, False, body, 0, 0), (0,), (1,), 0, cost)
    schedule = replace(found.schedule, block=Block(tuple(outer), (0,), (1,), (step,)))
    view = replace(found._view, steps=steps(schedule.steps, schedule.values, schedule.mesh))
    return Pictured(view, schedule, found._model), one


def test_the_steps_of_a_loop_are_drawn_once_after_its_name():
    plan, one = looped()
    root = parsed(picture(plan, "steps"))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "step 1: Loop_L ×3, in each trip:" in texts
    assert [text.get("data-array") for text in root.iter(f"{SVG}text") if text.get("data-array")] == [
        "A[I_X, J]",
        "A[I, J]",
    ]
    assert "step 1.1: AllGather" in "".join(parsed(picture(plan, "links")).itertext())
    bars = groups(parsed(picture(plan, "timeline")), "bar")  # one on the row of each way round
    three = pytest.approx(3 * one.cost.time_s * 1e12, rel=1e-6)
    assert [int(bar.get("data-duration")) for bar in bars] == [three, three]
    assert len(groups(parsed(picture(plan, "memory")), "bar")) == 2


# --- links


PLACES = (
    {"mesh": {"X": 4, "Y": 2}, "chip": "v5e"},
    {"mesh": {"X": 16, "Y": 3}, "chip": "v5e"},
    {"mesh": {"X": 4, "Y": 4}, "topology": "v5p:4x4x1"},
    {"mesh": {"X": 4, "Y": 16}, "topology": "v5p:4x4x4"},
    {"mesh": {"X": 8, "Y": 2}, "topology": "v5e:4x4"},
    {"mesh": {"X": 2, "Y": 2}, "topology": "v5e:2x2"},  # a walk: what differs along X alone is at opposite corners
    {"mesh": {"X": 5, "Y": 3}, "chip": "v5e", "wraparound": "X=one-way,Y=ring"},
)


@pytest.mark.instant
@pytest.mark.parametrize("place", PLACES, ids=str)
@settings(max_examples=8)
@given(data=st.data())
def test_links_carry_what_the_step_moves(place, data):
    """What the picture shows of a step is what its price counts on, and no device takes in less than it receives."""
    axes = ["_X", "_Y", "_XY", ""]
    drawn = data.draw(st.sampled_from([(a, b) for a in axes for b in axes if not set(a) & set(b) - {"_"}]))
    wanted = data.draw(st.sampled_from([(a, b) for a in axes for b in axes if not set(a) & set(b) - {"_"}]))
    summed = data.draw(st.sampled_from([axis for axis in "XY" if axis not in "".join(drawn + wanted)] + [""]))
    given = f"A[I{drawn[0]}, J{drawn[1]}]" + (f"{{U_{summed}}}" if summed else "")
    sides = {"I": 16 * 15 * 64, "J": 16 * 15 * 64}
    found = shardc.plan(f"{given} → A[I{wanted[0]}, J{wanted[1]}]", dims=sides, **place)
    for done in single_steps(found.schedule.block):
        step, picture = done.step.cost, links_picture(done, found._model)
        on_links = _on_links(found, done)
        assert (picture is None) == (step.wire_bytes == 0)
        if picture is None:
            continue
        links = groups(parsed(picture), "link")
        assert links and "data-port" not in picture.svg, "a torus has links"
        bytes_each_way = [int(link.get(f"data-{way}")) for link in links for way in ("forward", "backward")]
        hop = found.symbols["T_hop"]
        rate = found._model.chip.link_bandwidth
        phases = (2 if done.step.name == "AllReduce" else 1) * _calls(found, done)  # one after another
        if links and on_links > 100 * hop:  # the bytes count, and not the hops
            assert max(bytes_each_way) / rate <= on_links * (1 + 1e-6), "no link is slower than the step"
            shared = max(_strides(found, done.step))
            assert max(bytes_each_way) * shared * phases / rate >= on_links * (1 - 1e-6)


def _on_links(found, done):
    """The time of a step without what its devices copy before and after."""
    (before,), mesh = operands_of(done.step, done.block.values), found.schedule.mesh
    rates = [found._model._of_call(call) for call in _moving(found, done)]
    return sum(rate.seconds(before.local_bytes(mesh)) for rate in rates)


def _calls(found, done):
    return len(_moving(found, done))


def _moving(found, done):
    (before,) = operands_of(done.step, done.block.values)
    return [call for call in found._model.calls(done.step.op, before) if call.kind is not Kind.LOCAL]


def _strides(found, step):
    levels = found._model.network.levels(step.op.axes)
    return [line.stride for level in levels for line in getattr(level, "lines", ())] or [1]


def crossing(size, ring):
    """Of an exchange of one piece between every two devices, the pieces over each link each way, counted."""
    forward, backward = [Fraction()] * size, [Fraction()] * size
    for source, target in itertools.permutations(range(size), 2):
        ahead = (target - source) % size
        if not ring:
            shares = [(1, 0)] if target > source else [(0, 1)]
        else:
            shares = [(1, 0)] if 2 * ahead < size else [(0, 1)] if 2 * ahead > size else [(Fraction(1, 2),) * 2]
        for right, left in shares:
            for step in range(ahead if ring else target - source):
                forward[(source + step) % size] += right
            for step in range(size - ahead if ring else source - target):
                backward[(source - step - 1) % size] += left
    return forward, backward


@pytest.mark.instant
@pytest.mark.parametrize(("size", "ring"), [(2, False), (3, False), (4, False), (7, False), (4, True), (5, True)])
def test_an_exchange_crosses_each_link_as_often_as_is_counted(size, ring):
    side = size * 64 * 60
    found = shardc.plan(
        "A[I_X, J] → A[I, J_X]",
        mesh={"X": size},
        dims={"I": side, "J": side},
        chip="v5e",
        wraparound={"X": ring},
        objective="bytes",
    )
    assert [step.op for step in found.steps] == ["AllToAll"]
    piece = found.inputs[0].bytes // size
    links = groups(parsed(found.picture("links")), "link")
    forward, backward = crossing(size, ring)
    assert len(links) == (size if ring else size - 1)
    for link in links:
        at = int(link.get("data-link"))
        assert int(link.get("data-forward")) == pytest.approx(float(forward[at] * piece), abs=1)
        assert int(link.get("data-backward")) == pytest.approx(float(backward[at] * piece), abs=1)


@pytest.mark.instant
@pytest.mark.parametrize(("ring", "forward"), [(False, [1, 2, 3]), (True, [1.5] * 4)])
def test_a_gather_sends_over_each_link_what_lies_behind(ring, forward):
    found = shardc.plan(
        "A[I_X] → A[I]", mesh={"X": 4}, dims={"I": 2**22}, dtype="f32", chip="v5e", wraparound={"X": ring}
    )
    block = found.inputs[0].bytes
    root = parsed(found.picture("links"))
    assert [int(link.get("data-forward")) for link in groups(root, "link")] == [n * block for n in forward]
    assert [int(link.get("data-backward")) for link in groups(root, "link")] == [n * block for n in forward[::-1]]


TORI = (  # a mesh, its slice, how it lies, and an axis or two whose devices are a box of two or three axes
    ({"X": 4, "Y": 4}, "v5e:4x4", {}, "XY"),
    ({"X": 4, "Y": 4}, "v5p:4x4x1", {}, "XY"),
    ({"X": 16}, "v5e:4x4", {}, "X"),  # a walk
    ({"X": 2, "Y": 4}, "v5p:2x2x2", {}, "XY"),
    ({"X": 4, "Y": 16}, "v5p:4x4x4", {}, "Y"),
    ({"X": 4, "Y": 16}, "v5p:4x4x4", {"X": [2]}, "Y"),
    ({"X": 3, "Y": 5}, None, {"X": "ring", "Y": "one-way"}, "XY"),
    ({"X": 2, "Y": 3, "Z": 4}, None, {}, "XYZ"),
)


def on_torus(place, text):
    """A plan of a text on one of TORI; of those without a slice each mesh axis is a physical one, as is said."""
    mesh, name, how, _ = place
    where = {"chip": "v5p", "wraparound": how} if name is None else {"topology": name, "map": how}
    return shardc.plan(text, mesh=mesh, dims={"I": 240 * 64, "J": 240 * 64}, **where)


def grid_of(found, op):
    """Of the picture of the step of that name the chip of each device, and each link as chips and bytes, both ways."""
    [done] = [done for done in single_steps(found.schedule.block) if done.step.name == op]
    root, mesh = parsed(links_picture(done, found._model)), found.schedule.mesh
    axes = mesh.names if op == "CollectivePermute" else mesh.ordered(done.step.op.axes)
    chips = {}
    for dot in root.iter(f"{SVG}circle"):
        name, number = dot.get("data-device"), 0
        parts = dict(zip(axes, name.split(",") if len(axes) < 3 else name, strict=True))
        for axis in mesh.names:
            number = number * mesh.size(axis) + int(parts.get(axis, 0))
        chips[name] = found._model.network.fabric.laid.place(number)
    ways = ("forward", "backward")
    links = [
        (chips[link.get("data-from")], chips[link.get("data-to")], *(int(link.get(f"data-{way}")) for way in ways))
        for link in groups(root, "link")
    ]
    assert len(links) == len(set(links)) and len(chips) == len(set(chips.values()))
    return done, list(chips.values()), links, [link.get("data-closes") == "1" for link in groups(root, "link")]


@pytest.mark.instant
@pytest.mark.parametrize("place", TORI, ids=str)
def test_a_torus_is_drawn_with_each_link_between_neighbours_and_what_closes(place):
    found = on_torus(place, f"A[I_{place[3]}, J] → A[I, J]")
    fabric = found._model.network.fabric
    _, devices, links, closing = grid_of(found, "AllGather")
    assert len(devices) == math.prod(place[0][axis] for axis in place[3])
    sizes = [len({chip[axis] for chip in devices}) for axis in range(len(fabric.laid.shape))]
    assert math.prod(sizes) == len(devices) and sum(size > 1 for size in sizes) >= 2
    wanted = 0
    for axis, size in enumerate(sizes):
        rows = len(devices) // size
        ring = size > 1 and fabric.kinds[axis] != "line"
        along = [link for link in links if link[0][axis] != link[1][axis]]
        assert len(along) == rows * (size if ring else size - 1)
        round_ = [link for link in along if abs(link[0][axis] - link[1][axis]) > 1]
        assert len(round_) == (rows if ring else 0)
        wanted += len(along)
    assert wanted == len(links)
    for (one, other, _, _), closes in zip(links, closing, strict=True):
        [apart] = [there - here for here, there in zip(one, other, strict=True) if here != there]
        assert (apart < 0) == closes and (closes or apart == 1)


@pytest.mark.instant
@pytest.mark.parametrize("place", TORI, ids=str)
def test_over_each_cut_of_a_torus_goes_what_lies_on_the_other_side(place):
    """Of a gather the devices behind a cut need each block before it, once for all of them at the least."""
    found = on_torus(place, f"A[I_{place[3]}, J] → A[I, J]")
    block = found.inputs[0].bytes
    _, devices, links, _ = grid_of(found, "AllGather")
    for axis in range(len(devices[0])):
        for cut in range(max(chip[axis] for chip in devices)):
            # What closes crosses the cut from the other side.
            ahead = sum(link[2] if link[0][axis] <= cut < link[1][axis] else 0 for link in links)
            ahead += sum(link[3] if link[1][axis] <= cut < link[0][axis] else 0 for link in links)
            back = sum(link[3] if link[0][axis] <= cut < link[1][axis] else 0 for link in links)
            back += sum(link[2] if link[1][axis] <= cut < link[0][axis] else 0 for link in links)
            before = sum(chip[axis] <= cut for chip in devices) * block
            assert ahead >= before - len(links)  # each figure is rounded
            assert back >= len(devices) * block - before - len(links)


@pytest.mark.instant
@pytest.mark.parametrize("place", [place for place in TORI if place[1] and len(place[0]) > 1], ids=str)
def test_a_permute_takes_the_links_on_the_ways_of_its_blocks(place):
    """All links together carry each block once for each hop of its shortest way; the busiest takes the step's time."""
    found = on_torus(place, "CollectivePermute(A[I_XY, J]) → A[I_YX, J]")
    fabric, block = found._model.network.fabric, found.inputs[0].bytes
    done, devices, links, _ = grid_of(found, "CollectivePermute")
    x, y = place[0]["X"], place[0]["Y"]
    assert len(devices) == x * y
    hops = 0
    for number in range(x * y):  # block number of I_XY is wanted by the device that comes there in the order of I_YX
        target = number % x * y + number // x
        ways = zip(fabric.laid.place(number), fabric.laid.place(target), fabric.laid.shape, fabric.kinds, strict=True)
        for one, other, size, kind in ways:
            apart = abs(one - other)
            hops += min(apart, size - apart) if kind == "ring" else apart
    each_way = [count for link in links for count in link[2:]]
    assert sum(each_way) == pytest.approx(hops * block, rel=1e-6)
    assert max(each_way) / found._model.chip.link_bandwidth == pytest.approx(_on_links(found, done), rel=1e-6)


def test_of_a_large_torus_the_ends_are_drawn_and_it_says_so():
    found = shardc.plan("A[I_XY] → A[I]", mesh={"X": 8, "Y": 9}, dims={"I": 2**16 * 9}, formula="book")
    done, devices, links, _ = grid_of(found, "AllGather")
    assert len(devices) == 36 and len(links) == 2 * 6 * 4
    assert "… 72 in all" in "".join(parsed(links_picture(done, found._model)).itertext())


AROUND = (  # what is done as one with a product: where, and how many blocks go over all links together
    (
        "A[I, J_XY] · B[J_XY, K] → C[I_XY, K]",
        {"X": 4, "Y": 4},
        How.RING,
        "AllGather",
        "XY",
        15 * 16,
    ),  # all to neighbours
    ("A[I, J_X] · B[J_X, K] → C[I_X, K]", {"X": 4, "Y": 4}, How.RING, "ReduceScatter", "X", 2 * (3 + 3) + (3 + 3)),
    # Turned by one place, the last to the first, in two rows, by two in another; then, of one row, three times by one.
    ("In[I_X, J_Y] · W[J_X, K_Y] → Out[I_X, K_Y]", {"X": 4, "Y": 4}, How.RINGS, "AllGather", "Y", 6 + 8 + 6 + 3 * 6),
)


@pytest.mark.instant
@pytest.mark.parametrize("case", AROUND, ids=str)
def test_what_goes_round_beside_a_product_is_drawn_turn_by_turn(case):
    """The links of a turn, as often as there is such a turn, carry each block once for each hop of its way."""
    text, mesh, how, name, axes, passed = case
    sides = {"I": 16384, "J": 8192, "K": 16384}
    found = shardc.plan(text, mesh=mesh, topology="v5e:4x4", dims=sides, overlap="off")
    ordered, group = next(each for each in candidates(found.schedule) if each[1].how is how)
    schedule = replace(ordered, together=(group,))
    steps = [done for done in single_steps(schedule.block) if done.path[0] in group.places]
    [done] = [d for d in steps if d.step.name == name and "".join(schedule.mesh.ordered(d.step.op.axes)) == axes]
    end = done.step.operands[0] if name == "AllGather" else done.step.result
    block = schedule.values[end].local_bytes(schedule.mesh)
    root = parsed(links_picture(done, found._model, schedule))
    ways = ("data-forward", "data-backward")
    total = sum(times * int(link.get(way)) for times, links in turns(root) for link in links for way in ways)
    assert total == passed * block


def turns(root):
    """How often each turn is, and its links."""
    found = []
    for element in root.iter():
        said = "".join(element.itertext()) if element.tag == f"{SVG}text" else ""
        if "the product: " in said:
            times = re.search(r", (\d+) times", said)
            found.append((int(times[1]) if times else 1, []))
        elif "link" in element.get("class", "").split():
            found[-1][1].append(element)
    return found


def test_of_a_product_in_chunks_the_links_are_of_one_chunk():
    texts = {"mesh": {"X": 4}, "topology": "v5e:2x2", "dims": {"I": 16384, "J": 8192, "K": 16384}}
    found = shardc.plan("A[I_X, J] · B[J, K] → C[I, K]", overlap="on", **texts)
    [gather] = [done for done in single_steps(found.schedule.block) if done.step.name == "AllGather"]
    whole = groups(parsed(links_picture(gather, found._model)), "link")
    chunk = groups(parsed(links_picture(gather, found._model, found.schedule)), "link")
    assert [8 * int(link.get("data-forward")) for link in chunk] == [int(link.get("data-forward")) for link in whole]
    assert "each of 8 chunks" in found.picture("links").svg


def test_behind_a_switch_each_device_takes_in_the_wire_bytes():
    found = shardc.plan("A[I_X] → A[I]", mesh={"X": 8}, dims={"I": 2**20}, chip="H100")
    ports = [dot.get("data-in") for dot in parsed(found.picture("links")).iter(f"{SVG}circle") if dot.get("data-port")]
    assert ports == [str(found.cost.wire_bytes)] * 8


# --- charts


@settings(max_examples=12)
@given(strategies.programs(), st.sampled_from(("v5e", "v5p", "H100")))
def test_bars_of_the_timeline_are_as_long_as_the_steps_take(case, chip):
    found = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, chip=chip)
    timeline = found.timeline
    bars = groups(parsed(found.picture("timeline")), "bar")
    assert [int(bar.get("data-duration")) for bar in bars] == [e.duration_ps for e in timeline.events for _ in e.tracks]
    widths = [float(bar.find(f"{SVG}rect").get("width")) for bar in bars]
    for bar, width in zip(bars, widths, strict=True):
        assert width == pytest.approx(max(640 * int(bar.get("data-duration")) / timeline.step_ps, 1), abs=0.02)


@settings(max_examples=12)
@given(strategies.matmuls(), st.sampled_from(("v5e", "v5p", "H100")), st.sampled_from(("bf16", "f8_e4m3fn", "f32")))
def test_products_lie_on_the_roof(case, chip, kind):
    """They are priced by the roofline: a dot beside it would be a product drawn with other bytes than were priced."""
    found = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, chip=chip, dtype=kind)
    root = parsed(found.picture("roofline"))
    dots = groups(root, "dot")
    priced = [n for n, step in enumerate(found.steps, 1) if step.op == "Einsum" and step.flops and step.time_s]
    assert sorted(int(dot.get("data-step")) for dot in dots) == priced[:16]
    [roof] = [path for path in root.iter(f"{SVG}path") if path.get("data-peak")]
    (x0, y0), (x1, y1), (x2, y2) = re.findall(r"([\d.]+) ([\d.]+)", roof.get("d"))
    for dot in dots:
        circle = dot.find(f"{SVG}circle")
        x, y = float(circle.get("cx")), float(circle.get("cy"))
        (u, v), (s, t) = ((x0, y0), (x1, y1)) if x <= float(x1) else ((x1, y1), (x2, y2))
        share = (x - float(u)) / (float(s) - float(u))
        assert y == pytest.approx(float(v) + share * (float(t) - float(v)), abs=0.2)


def test_on_a_slice_that_was_measured_the_roof_that_is_reached_is_dashed():
    """A product there lies under the data sheet's roof, by what was measured."""
    dims = {"I": 512, "J": 8192, "K": 1024}
    plan = shardc.plan("A[I, J_X] · B[J, K] → C[I, K_X]", mesh={"X": 4}, dims=dims, topology="v5e:2x2")
    root = parsed(plan.picture("roofline"))
    [reached] = [float(path.get("data-reached")) for path in root.iter(f"{SVG}path") if path.get("data-reached")]
    [sheet] = [float(path.get("data-peak")) for path in root.iter(f"{SVG}path") if path.get("data-peak")]
    [dot] = groups(root, "dot")
    assert float(dot.get("data-rate")) < reached < sheet
    assert not [p for p in parsed(picture(looped()[0], "roofline")).iter() if p.get("data-reached")]


@settings(max_examples=12)
@given(strategies.programs())
def test_the_highest_bar_of_memory_is_the_peak(case):
    found = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    bars = groups(parsed(found.picture("memory")), "bar")
    sizes = [int(bar.get("data-bytes")) for bar in bars]
    assert len(sizes) == len(found.steps) + 1
    assert max(sizes) == found.cost.peak_bytes
    assert sizes[0] == sum(array.bytes for array in found.inputs)
    heights = [float(bar.find(f"{SVG}rect").get("height")) for bar in bars]
    for size, height in zip(sizes, heights, strict=True):
        assert height == pytest.approx(size / max(sizes) * max(heights), abs=0.02)


def test_of_thousands_of_steps_the_charts_draw_hundreds_and_the_peak_is_among_them(monkeypatch):
    events = tuple(Event(f"v{n}", "AllGather", ("X",), n * 10, 1 + n % 10) for n in range(3000))
    root = parsed(timeline_picture(Timeline(events, ("compute", "X"), 30_000)))
    bars = groups(root, "bar")
    assert len(bars) == 400 and min(int(bar.get("data-duration")) for bar in bars) == 9
    assert "the longest 400 of 3000 are drawn" in "".join(root.itertext())
    plan = shardc.plan("A[I_X] → A[I]", mesh={"X": 4})
    monkeypatch.setattr("shardc.report.pictures.memory.alive_bytes", lambda *_: range(10**6, 10**6 + 2999))
    bars = groups(parsed(plan.picture("memory")), "bar")
    assert 100 < len(bars) <= 200 and max(int(bar.get("data-bytes")) for bar in bars) == 10**6 + 2998


def test_on_a_slice_the_parts_of_memory_are_what_is_allocated():
    found = shardc.plan("A[I_X, J_Y] · B[J_Y, K] → C[I_X, K_Y]", mesh={"X": 4, "Y": 4}, topology="v5e:4x4")
    bars = groups(parsed(found.picture("memory")), "bar")
    assert [bar.get("data-part") for bar in bars] == ["arguments", "outputs", "temporaries"]
    assert sum(int(bar.get("data-bytes")) for bar in bars) == found.cost.peak_bytes


def test_a_plan_that_does_not_fit_is_drawn_over_the_chips_memory():
    found = shardc.plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 2**17, "J": 2**17}, chip="v5e")
    root = parsed(found.picture("memory"))
    [line] = [path for path in root.iter(f"{SVG}path") if path.get("data-capacity")]
    assert int(line.get("data-capacity")) == found.capacity_bytes < found.cost.peak_bytes
    tallest = min(float(bar.find(f"{SVG}rect").get("y")) for bar in groups(root, "bar"))
    assert tallest < float(re.match(r"M[\d.]+ ([\d.]+)", line.get("d"))[1])


@pytest.mark.parametrize(
    ("text", "mesh", "objective"),
    [
        ("A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]", {"X": 4, "Y": 2}, "time"),
        ("T = A[I_X, J] · B[J_X, K]; D[I_X, L] = T · C[K_X, L]; E[I_X, K] = relu(T)", {"X": 4}, "bytes"),
    ],
)
def test_a_front_has_a_dot_for_each_plan_each_lower_than_the_one_before(text, mesh, objective):
    front = shardc.plan(text, mesh=mesh, objective=objective).pareto()
    circles = [dot.find(f"{SVG}circle") for dot in groups(parsed(front.picture()), "dot")]
    places = [(float(circle.get("cx")), -float(circle.get("cy"))) for circle in circles]
    assert len(places) == len(front) > 1
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in itertools.pairwise(places))


# --- how they look


def linear(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return linear(colour) @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def oklab(light):
    light = np.clip(light, 0, None)
    mixed = np.cbrt(
        np.array(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
        @ light
    )
    return (
        np.array(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
        @ mixed
    )


# Machado, Oliveira, Fernandes 2009: what is seen without red, green, blue receptors, of linear light.
SIGHTS = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.instant
@pytest.mark.parametrize("sight", SIGHTS)
def test_fills_differ_to_every_eye(sight):
    seen = [oklab(np.clip(np.array(SIGHTS[sight]) @ linear(colour), 0, 1)) for colour in style.FILLS]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 0.1


def test_fills_differ_in_grey():
    grey = sorted(oklab(linear(colour))[0] for colour in style.FILLS)
    assert min(b - a for a, b in itertools.pairwise(grey)) > 0.025


def test_every_text_can_be_read():
    assert min(contrast(colour, style.ON_FILL) for colour in style.FILLS) >= 4.5
    for mode in (style.LIGHT, style.DARK):
        assert min(contrast(mode[ink], mode["paper"]) for ink in ("ink", "soft", "alarm")) >= 4.5


def test_no_two_of_64_shards_look_alike():
    assert len({(style.fill(n), style.texture(n)) for n in range(style.MANY)}) == style.MANY == 64


@pytest.mark.instant
@pytest.mark.parametrize("of", ["steps", "links", "timeline", "roofline", "memory"])
def test_a_picture_can_be_heard_and_copied_and_fetches_nothing(of):
    picture = shardc.plan("A[I, J_X] · B[J, K] → C[I, K_X]", mesh={"X": 4}, chip="v5e").picture(of)
    root = parsed(picture)
    assert root.get("role") == "img" and root.get("aria-label") == picture.title == root.find(f"{SVG}title").text
    assert picture.svg.count("http") == picture.svg.count("http://www.w3.org/")
    assert list(root.iter(f"{SVG}text")), "words are words, and no paths"
    assert "prefers-color-scheme" in picture.svg
    assert picture._repr_svg_() == picture.svg
    named = set(re.findall(r"url\(#([\w-]+)\)", picture.svg))
    assert named <= {each.get("id") for each in root.iter()}


@given(st.text())
def test_whatever_a_text_says_it_stays_text(text):
    mark = Rect(0, 0, 1, 1, "edge", (("fact", text),), text)
    root = parsed(Picture(text, 10, 10, (mark, Text(0, 0, text))))
    assert not list(root.iter(f"{SVG}script"))
    [label] = root.iter(f"{SVG}text")
    [rect] = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "edge"]
    assert label.text or not text.strip()
    assert rect.get("data-fact") == (label.text or "") == root.get("aria-label")


def test_an_unknown_picture_is_refused_with_the_nearest():
    plan = shardc.plan("A[I_X] → A[I]", mesh={"X": 4})
    with pytest.raises(ShardcError, match="did you mean `memory`") as refused:
        plan.picture("memry")
    assert refused.value.code == "SHC001"


def test_a_picture_is_saved_whole_and_replaces_nothing(tmp_path):
    picture = shardc.plan("A[I_X] → A[I]", mesh={"X": 4}).picture()
    target = tmp_path / "plan.svg"
    picture.save(str(target))
    assert ElementTree.parse(target).getroot().tag == f"{SVG}svg"
    with pytest.raises(ShardcError) as refused:
        picture.save(str(target))
    assert refused.value.code == "SHC504"
    picture.save(str(target), force=True)


def test_without_drawsvg_it_says_what_to_install(monkeypatch):
    picture = shardc.plan("A[I_X] → A[I]", mesh={"X": 4}).picture()
    monkeypatch.setitem(__import__("sys").modules, "drawsvg", None)
    with pytest.raises(ShardcError, match=r"shardc\[report\]") as refused:
        picture.svg  # noqa: B018
    assert refused.value.code == "SHC313"


def test_the_picture_in_the_readme_is_of_its_first_example(tmp_path):
    root = Path(__file__).parents[2]
    readme = (root / "README.md").read_text(encoding="utf-8")
    _, *arguments = shlex.split(re.search(r"^\$ shardc (plan .*)$", readme, re.MULTILINE)[1])
    [named] = re.findall(r"^!\[[^\]]+\]\((\S+\.svg)\)$", readme, re.MULTILINE)
    assert cli._status(["report", *arguments, "-o", str(tmp_path / "drawn.svg")]) == 0
    shown, drawn = (ElementTree.parse(path).getroot() for path in (root / named, tmp_path / "drawn.svg"))
    assert content(shown) == content(drawn)


def content(root):
    """What a picture tells: its facts, its words, its looks; not where on the sheet."""
    facts = [sorted((key, value) for key, value in each.items() if key.startswith("data-")) for each in root.iter()]
    return facts, "".join(root.itertext()), [each.get("class") for each in root.iter()]


def test_parts_of_a_sum_are_told_apart():
    mesh = shardc.Mesh.of({"X": 2, "Y": 2})
    array = Array("C", ("I",), (4,), Sharding.of([("X",)], ["Y"]), dtype("f32"))
    assert [(device.block, device.part) for device in held(array, mesh)] == [((0,), 0), ((0,), 1), ((1,), 0), ((1,), 1)]


# --- a sweep


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "over", "options"),
    [
        ("In[B_X, D] · W[D, F_Y] → Out[B_X, F]", ("B=64..8k",), {"mesh": {"X": 4, "Y": 4}, "dims": "D=4096,F=4096"}),
        ("In[B_X, D] · W[D, F_Y] → Out[B_X, F]", ("X*Y=16",), {"dims": "B=4096,D=4096,F=4096"}),
        ("A[I_X, J] · B[J, K] → C[I, K]", ("X=2,4", "I=64..4k"), {"dims": "J=4096,K=4096"}),
    ],
)
def test_a_sweep_has_a_point_for_each_row_and_a_line_where_the_curves_cross(text, over, options):
    swept = shardc.sweep(text, *over, chip="v5p", **options)
    root = parsed(swept.picture())
    legal = [row for row in swept.rows if row.refused is None]
    for name in ("compute", "communication", "time"):
        marks = [each for each in root.iter() if each.get("data-curve") == name]
        drawn = [float(each.get("data-time")) for each in marks]
        assert drawn == [value for row in legal if (value := getattr(row, f"{name}_s")) > 0]
    lines = [float(each.get("data-crossing")) for each in root.iter() if each.get("data-crossing")]
    across = swept.over[-1].names[0]  # the charts are along what is swept last
    assert sorted(lines) == sorted(found.at for found in swept.crossings if found.name == across)
    assert swept.crossings or len(over) == 1
    assert repr(swept).startswith("<Sweep of ") and "\n" not in repr(swept)
    assert str(swept) in "".join(ElementTree.fromstring(f"<p>{swept._repr_html_()}</p>").itertext())


def test_products_at_one_place_of_the_roofline_share_a_line_of_its_list():
    """Every one is a dot; equal ones are named together."""
    text = "; ".join(f"C{n}[I, K] = A[I, J] · B{n}[J, K]" for n in range(3)) + "; D[I, L] = A[I, J] · E[J, L]"
    plan = shardc.plan(text, mesh={"X": 2}, dims={"I": 4096, "J": 4096, "K": 4096, "L": 8}, chip="v5p", idle="keep")
    root = parsed(plan.picture("roofline"))
    named = [each.text for each in root.iter(f"{SVG}text") if each.text.startswith("step")]
    assert len(groups(root, "dot")) == 4
    assert [text.partition(":")[0] for text in named] == ["steps 1, 2, 3", "step 4"]
    assert named[0].endswith("compute-bound") and named[1].endswith("HBM-bound")
