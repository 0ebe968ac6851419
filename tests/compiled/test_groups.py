"""Groups of devices: each form in which compilers print them says the same, and the mesh's axes come back from them."""

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardc.compiled.hlo.groups import axes_of_groups, axes_of_pairs, read_groups, read_pairs
from shardc.compiled.hlo.text import UnreadableHlo
from shardc.ir.mesh import Mesh


@st.composite
def meshes(draw, sizes=(1, 2, 3, 4, 6, 8), most=4):
    names = draw(st.lists(st.sampled_from(["X", "Y", "Z", "data", "model"]), min_size=1, max_size=most, unique=True))
    mesh = Mesh.of({name: draw(st.sampled_from(sizes)) for name in names})
    assume(mesh.devices <= 256)
    return mesh


@st.composite
def meshes_and_axes(draw, **options):
    mesh = draw(meshes(**options))
    return mesh, tuple(draw(st.lists(st.sampled_from(mesh.names), min_size=1, unique=True)))


def groups_of(mesh, axes, device_ids=None):
    """Device by device: those that agree on all other axes, in the order of `axes`, the first of them the slowest."""
    device_ids = device_ids or range(mesh.devices)
    found = {}
    for device, place in zip(device_ids, mesh.coordinates(), strict=True):
        rest = tuple(place[name] for name in mesh.names if name not in axes)
        found.setdefault(rest, []).append((tuple(place[name] for name in axes), device))
    return tuple(tuple(device for _, device in sorted(members)) for members in found.values())


def as_list(groups):
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def as_iota(mesh, axes):
    order = [mesh.names.index(name) for name in (*(n for n in mesh.names if n not in axes), *axes)]
    n = mesh.product(axes)
    counted = ",".join(map(str, mesh.sizes))
    return f"[{mesh.devices // n},{n}]<=[{counted}]T({','.join(map(str, order))})"


def as_axes(mesh, axes, device_ids=None):
    ids = f", device_ids=({','.join(map(str, device_ids))})" if device_ids else ""
    sizes = ",".join(f"'{name}'={size}" for name, size in mesh.axes)
    return f"mesh[{sizes}]{ids} {{{','.join(map(repr, axes))}}}"


def as_bare_axes(mesh, axes, device_ids=None):
    return as_axes(mesh, axes, device_ids).replace("'", "").replace("mesh[", "@mesh<").replace("]", ">", 1)


@given(meshes_and_axes())
def test_groups_printed_in_each_form_read_back_the_same(drawn):
    mesh, axes = drawn
    groups = groups_of(mesh, axes)
    for text in (as_list(groups), as_iota(mesh, axes), as_axes(mesh, axes), as_bare_axes(mesh, axes)):
        assert read_groups(text, mesh.devices) == groups, text


@given(meshes_and_axes(), st.randoms(use_true_random=False))
def test_a_mesh_of_other_device_numbers_is_read(drawn, random):
    mesh, axes = drawn
    ids = list(range(mesh.devices))
    random.shuffle(ids)
    groups = groups_of(mesh, axes, ids)
    assert read_groups(as_axes(mesh, axes, ids), mesh.devices) == groups
    assert read_groups(as_bare_axes(mesh, axes, ids), mesh.devices) == groups


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_device_numbers_may_be_counted_up_and_transposed(rows, columns, inner):
    ids = [row * columns + column for column in range(columns) for row in range(rows)]
    n = rows * columns
    listed = read_groups(as_axes(Mesh.of({"X": n}), ("X",), ids), n)
    assert read_groups(f"mesh['X'={n}], device_ids=([{rows},{columns}]T(1,0)) {{'X'}}", n) == listed
    assert read_groups(f"@mesh<X={n}>, device_ids=([{rows},{columns}]T(1,0)) {{X}}", n) == listed


@given(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=4), st.data())
def test_parts_of_an_axis_are_axes_of_a_finer_mesh(sizes, data):
    """'Y':(2)3 of Y=12 is the middle one of Y = a·b·c with a=2, b=3, c=2."""
    finer = Mesh.of({"X": 2, **{f"Y{place}": size for place, size in enumerate(sizes)}})
    axes = tuple(data.draw(st.lists(st.sampled_from(finer.names), min_size=1, unique=True)))
    whole = math.prod(sizes)
    spelled = [
        "'X'" if name == "X" else f"'Y':({math.prod(sizes[: int(name[1:])])}){finer.size(name)}" for name in axes
    ]
    text = f"mesh['X'=2,'Y'={whole}] {{{','.join(spelled)}}}"
    assert read_groups(text, finer.devices) == groups_of(finer, axes), text


@given(st.integers(1, 40))
def test_no_groups_are_one_group_of_all(devices):
    assert read_groups("{}", devices) == (tuple(range(devices)),)
    assert read_groups(f"[1,{devices}]<=[{devices}]", devices) == (tuple(range(devices)),)


def test_a_transposed_count_by_hand():
    assert read_groups("[4,2]<=[2,4]T(1,0)", 8) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert read_groups("[2,4]<=[2,2,2]T(1,0,2)", 8) == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert read_groups("{{0,1,2},{3}}", 4) == ((0, 1, 2), (3,))


@given(meshes_and_axes())
def test_the_axes_that_made_the_groups_come_back(drawn):
    mesh, axes = drawn
    expected = tuple(name for name in mesh.names if name in axes and mesh.size(name) > 1)
    assert axes_of_groups(groups_of(mesh, axes), mesh) == expected


@given(meshes(sizes=(2, 3, 4)), st.randoms(use_true_random=False))
def test_only_whole_axes_in_every_group_are_axes(mesh, random):
    """Any cut of the devices into groups is either that of some axes, or of none."""
    ids = list(range(mesh.devices))
    random.shuffle(ids)
    n = random.choice([size for size in range(1, mesh.devices + 1) if mesh.devices % size == 0])
    groups = tuple(tuple(ids[start : start + n]) for start in range(0, mesh.devices, n))
    subsets = [axes for k in range(len(mesh.names) + 1) for axes in itertools.combinations(mesh.names, k)]
    cuts = {axes: {frozenset(group) for group in groups_of(mesh, axes)} for axes in subsets}
    fitting = [axes for axes, cut in cuts.items() if cut == {frozenset(group) for group in groups}]
    assert axes_of_groups(groups, mesh) == (fitting[0] if fitting else None)


@pytest.mark.parametrize("groups", [((0, 1), (2, 3, 4)), ((0, 1), (2, 4)), ((0, 1), (2, 6)), ((0, 1), (2, 2))])
def test_groups_of_different_kinds_have_no_axes(groups):
    assert axes_of_groups(groups, Mesh.of({"X": 2, "Y": 2, "Z": 2})) is None


@given(meshes_and_axes(), st.integers(0, 300))
def test_a_ring_over_one_axis_is_that_axis(drawn, shift):
    mesh, (axis, *_) = drawn
    rings = groups_of(mesh, (axis,))
    pairs = tuple((ring[k], ring[(k + shift) % len(ring)]) for ring in rings for k in range(len(ring)))
    assert read_pairs(as_list(pairs)) == pairs
    assert axes_of_pairs(pairs, mesh) == ((axis,) if shift % mesh.size(axis) else ())


def test_no_pairs():
    assert read_pairs("{}") == ()


WRONG = [
    "",
    "{",
    "{{0,1}",
    "[2,4]<=[9]",
    "[2,4]<=[8]T(1,0)",
    "[2,4]<=[2,4]T(0,0)",
    "mesh['X'=2] {'Y'}",
    "mesh['X'=4] {'X':(3)2}",
    "mesh['X'=4], device_ids=(0,1) {'X'}",
    "something new",
    "{{0,1}} and more",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_read_says_so(text):
    with pytest.raises(UnreadableHlo, match="replica groups"):
        read_groups(text, 8)


@pytest.mark.parametrize("text", ["", "{{0,1,2}}", "{{0}}", "{0,1}", "[2]"])
def test_pairs_that_are_none(text):
    with pytest.raises(UnreadableHlo, match="pairs"):
        read_pairs(text)


@given(st.text(alphabet="{}[](),<=T:'@meshXY0123 device_ids", max_size=40), st.integers(1, 16))
def test_any_text_is_groups_or_unreadable(text, devices):
    try:
        groups = read_groups(text, devices)
    except UnreadableHlo:
        return
    assert all(isinstance(device, int) for group in groups for device in group)
