"""Waste in compiled programs: what becomes of an array, which change of sharding that is, and what is said of it."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardc.compiled import Reader, collectives, read_hlo
from shardc.compiled.explain import digits
from shardc.compiled.explain.change import Start, axes_of, change_of, coordinates
from shardc.compiled.explain.explain import explanation_of
from shardc.compiled.explain.findings import GATHERED, REMATERIALIZED, SUMMED, TWICE
from shardc.compiled.explain.flow import At, Flow, layouts_of
from shardc.compiled.explain.indices import Scope
from shardc.compiled.explain.remat import rematerializations, tiles
from shardc.compiled.explain.search import array_name, dtype_of
from shardc.cost import CHIPS, LinkModel
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding, spell

sys.path.insert(0, str(Path(__file__).parent))
from combined import WHOLE, Combined, Moved, combined

MESH = Mesh.of({"X": 2, "Y": 4})
CUBE = Mesh.of({"X": 2, "Y": 2, "Z": 3})
SIZES = (12, 24, 36)
IJK = ("I", "J", "K")


class Lowered:
    """What `explain` is given."""

    explicit, memory, jaxpr, outputs, flops = False, (), None, (), 0.0

    def __init__(self, text, mesh=MESH, inputs=(), platform="tpu", warnings=""):
        self.text, self.mesh, self.inputs, self.platform, self.warnings = text, mesh, inputs, platform, warnings


def explained(text, mesh=MESH, **given):
    return explanation_of(Lowered(text, mesh, **given), LinkModel.of(mesh, CHIPS["v5p"]))


def program(*lines, devices=8, computations=""):
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule test, is_scheduled=true, num_partitions={devices}\n\n{computations}\n"
        f"ENTRY %main (param: f32[8]) -> f32[8] {{\n{body}\n}}\n"
    )


# --- digits


@st.composite
def rearrangements(draw):
    """Shapes of a few factors, and transposes and reshapes of them."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    steps = []
    shape = list(sizes)
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            order = draw(st.permutations(range(len(shape))))
            steps.append(("transpose", tuple(order)))
            shape = [shape[place] for place in order]
        else:
            flat = [f for size in shape for f in ([2, 3] if size == 6 else [2, 2] if size == 4 else [size])]
            cuts = draw(st.lists(st.booleans(), min_size=len(flat), max_size=len(flat)))
            shape = []
            for factor, cut in zip(flat, cuts, strict=True):
                shape = [*shape[:-1], shape[-1] * factor] if shape and not cut else [*shape, factor]
            steps.append(("reshape", tuple(shape)))
    return tuple(sizes), steps


def index_by_digits(view, sizes):
    """For every element of the rearranged array, the flat index where it began."""
    shape = digits.sizes_of(view)
    found = np.zeros(shape, dtype=int)
    for place, dim in enumerate(view):
        number = np.arange(shape[place])
        inner = shape[place]
        for digit in dim:
            inner //= digit.size
            stride = math.prod(sizes[digit.origin + 1 :]) * digit.stride
            column = number // inner % digit.size * stride
            found += column.reshape([-1 if axis == place else 1 for axis in range(len(shape))])
    return found


@given(rearrangements())
def test_digits_say_where_each_element_went(case):
    sizes, steps = case
    array = np.arange(math.prod(sizes)).reshape(sizes)
    view = digits.whole(sizes)
    for what, how in steps:
        array = array.transpose(how) if what == "transpose" else array.reshape(how)
        view = digits.transposed(view, how) if what == "transpose" else digits.reshaped(view, how)
        assume(view is not None)
    assert digits.sizes_of(view) == array.shape
    assert (index_by_digits(view, sizes) == array).all()


@given(st.permutations(range(3)), st.permutations(range(2)))
def test_a_bitcast_reads_the_same_bytes_in_another_layout(before, after):
    array = np.arange(2 * 6 * 4).reshape(2, 6, 4)
    memory = array.transpose(tuple(reversed(before))).ravel()
    sizes = (12, 4)
    outer = tuple(reversed(after))
    expected = memory.reshape([sizes[dim] for dim in outer]).transpose(np.argsort(outer))
    view = digits.rearranged(digits.whole((2, 6, 4)), before, sizes, after)
    assume(view is not None)
    assert (index_by_digits(view, (2, 6, 4)) == expected).all()


def test_a_dim_that_cuts_a_digit_unevenly_is_not_said():
    assert digits.reshaped(digits.whole((6, 4)), (4, 6)) is None
    assert digits.reshaped(digits.whole((4, 6)), (2, 12)) is not None


def test_digits_in_another_order_are_not_one_digit():
    turned = digits.transposed(digits.reshaped(digits.whole((6,)), (2, 3)), (1, 0))
    assert digits.reshaped(turned, (6,)) == ((*turned[0], *turned[1]),)
    assert digits.reshaped(digits.reshaped(digits.whole((6,)), (2, 3)), (6,)) == digits.whole((6,))


# --- axes


@given(st.permutations(["X", "Y", "Z"]), st.integers(1, 3))
def test_axes_are_read_off_how_devices_count(order, length):
    axes = tuple(order[:length])
    places = coordinates(CUBE)
    values = np.zeros(CUBE.devices, dtype=int)
    for axis in axes:
        values = values * CUBE.size(axis) + places[axis]
    assert axes_of(values, CUBE.product(axes), CUBE) == axes
    assert axes_of((values + 1) % CUBE.product(axes), CUBE.product(axes), CUBE) is None


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("{devices=[4,1,2]<=[2,4]T(1,0)}", (("Y",), (), ("X",))),
        ("{devices=[1,8,1]<=[8]}", ((), ("X", "Y"), ())),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", (("X",), ())),
        ("{devices=[2,2]0,1,2,3}", None),
        ("{devices=[8]7,6,5,4,3,2,1,0}", None),
        ("{devices=[8]0,1,2,3,4,5,6,7}", (("X", "Y"),)),
        ("{mesh['X'=2,'Y'=4], [{'Y'}, {}, {'X'}]}", (("Y",), (), ("X",))),
        ("{mesh['axis_0'=2,'axis_1'=4], [{}, {'axis_1', 'axis_0'}]}", ((), ("Y", "X"))),
        ("{mesh['X'=8], [{'X'}]}", (("X", "Y"),)),
        ("{mesh['X'=4,'Y'=2], [{'X'}]}", None),
        ("{mesh['X'=2,'Y'=4], [{'Y':(1)2}]}", None),
        ("{mesh['X'=2,'Y'=2], [{'Y'}]}", None),
        ("{replicated}", None),
        ("{maximal device=3}", None),
        ("{devices=[2,1,4]<=[8] last_tile_dims={manual}}", None),
        ("{devices=[2,4]<=[2,4]T(2,0)}", None),
        ("nonsense", None),
    ],
)
def test_tiles_of_devices_are_a_sharding(text, axes):
    assert tiles(text, MESH) == (None if axes is None else Sharding.of(axes))


# --- gathers and slices


def table(values):
    return "{" + ", ".join(str(int(value)) for value in values) + "}"


def blocks(axes, mesh):
    places = coordinates(mesh)
    number = np.zeros(mesh.devices, dtype=int)
    for axis in axes:
        number = number * mesh.size(axis) + places[axis]
    return number


def groups_over(axes, mesh):
    """Groups of the devices that differ along these axes alone, in their order."""
    rest = blocks([axis for axis in mesh.names if axis not in axes], mesh)
    order = blocks(axes, mesh)
    rows = [sorted(np.flatnonzero(rest == row), key=lambda device: order[device]) for row in sorted(set(rest))]
    return "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in rows) + "}"


@st.composite
def shardings(draw, mesh, rank):
    dims = [[] for _ in range(rank)]
    for axis in draw(st.permutations(mesh.names)):
        place = draw(st.integers(-1, rank - 1))
        if place >= 0:
            dims[place].append(axis)
    return Sharding.of(dims)


def resharding_by_force(before, after, mesh, order, arithmetic):
    """The program that gathers a dim after the other, then slices: before → replicated → after."""
    local = list(before.local_shape(SIZES, mesh))
    lines = [
        f"%param = f32[{','.join(map(str, local))}]{{2,1,0}} parameter(0), metadata={{op_name=\"params[\\'w\\']\"}}"
    ]
    last = "param"
    for number, dim in enumerate(order):
        if not before.dims[dim]:
            continue
        local[dim] = SIZES[dim]
        shape = ",".join(map(str, local))
        lines.append(
            f"%ag.{number} = f32[{shape}]{{2,1,0}} all-gather(%{last}), "
            f"replica_groups={groups_over(before.dims[dim], mesh)}, dimensions={{{dim}}}"
        )
        lines.append(f"%cp.{number} = f32[{shape}]{{0,1,2}} copy(%ag.{number})")
        last = f"cp.{number}"
    lines.append("%id = u32[] partition-id()")
    starts = []
    for dim, axes in enumerate(after.dims):
        size = SIZES[dim] // mesh.product(axes)
        if arithmetic and axes == mesh.names[-1:]:
            lines += [
                f"%n.{dim} = u32[] constant({mesh.size(axes[0])})",
                f"%s.{dim} = u32[] constant({size})",
                f"%r.{dim} = u32[] remainder(%id, %n.{dim})",
                f"%at.{dim} = u32[] multiply(%r.{dim}, %s.{dim})",
            ]
        else:
            lines += [
                f"%t.{dim} = s32[{mesh.devices}]{{0}} constant({table(blocks(axes, mesh) * size)})",
                f"%d.{dim} = s32[1]{{0}} dynamic-slice(%t.{dim}, %id), dynamic_slice_sizes={{1}}",
                f"%at.{dim} = s32[] bitcast(%d.{dim})",
            ]
        starts.append(f"%at.{dim}")
    wanted = ",".join(map(str, after.local_shape(SIZES, mesh)))
    lines.append(f"ROOT %ds = f32[{wanted}]{{2,1,0}} dynamic-slice(%{last}, {', '.join(starts)})")
    return program(*lines, devices=mesh.devices)


@given(st.data())
def test_a_gather_and_a_slice_are_read_as_the_change_that_they_are(data):
    before, after = data.draw(shardings(CUBE, 3)), data.draw(shardings(CUBE, 3))
    assume(before.sharded and after.sharded)
    order = data.draw(st.permutations(range(3)))
    text = resharding_by_force(before, after, CUBE, order, data.draw(st.booleans()))
    module = read_hlo(text)
    gathers = [c for c in Reader(module, CUBE).all() if c.kind == "AllGather"]
    first = module.entry.by_name[gathers[0].name]
    local = before.local_shape(SIZES, CUBE)
    dim = next(place for place in order if before.dims[place])
    view = digits.gathered(digits.whole(local), dim, gathers[0].group_size, first.name)
    start = Start("w", view, local, DTYPES["f32"])
    ends = Flow(module, layouts_of(text)).uses([(At(Scope(module.entry), first), view)]).ends
    found = change_of(start, ends, {c.name: c.groups for c in gathers}, CUBE)
    assert (found.before.sharding, found.after, found.before.shape) == (before, after, SIZES)


@given(st.data())
def test_what_is_found_is_cheaper_and_above_the_bound(data):
    before, after = data.draw(shardings(CUBE, 3)), data.draw(shardings(CUBE, 3))
    assume(before.sharded and after.sharded)
    text = resharding_by_force(before, after, CUBE, range(3), False)
    given_array = Array("params['w']", ("a", "b", "c"), SIZES, before, DTYPES["f32"])
    found = explained(text, CUBE, inputs=(given_array,))
    for finding in found.findings:
        assert finding.kind == REMATERIALIZED
        assert finding.bound_bytes <= finding.better_bytes <= 0.95 * finding.wire_bytes
        assert finding.better_s <= finding.time_s or "hops decide" in finding.what
        if finding.better_bytes:
            assert finding.statement == f"w{spell(IJK, before)} → w{spell(IJK, after)}"
            assert f'einsum("{finding.statement}", w)' in finding.remedy
        assert finding.wire_bytes == found.wire_bytes


def remat(before, after, **given_):
    before, after = Sharding.of(before), Sharding.of(after)
    array = Array("params['w']", ("a", "b", "c"), SIZES, before, DTYPES["f32"])
    return explained(resharding_by_force(before, after, CUBE, range(3), False), CUBE, inputs=(array,), **given_)


def test_a_full_rematerialization_is_told_with_its_bound_and_remedy():
    (finding,) = remat([["Y"], [], ["X"]], [[], ["X", "Y"], []]).findings
    assert finding.kind == REMATERIALIZED
    assert finding.statement == "w[I_Y, J, K_X] → w[I, J_XY, K]"
    assert finding.bound_bytes == 12 * 24 * 36 * 4 * 3 // 16
    assert finding.remedy == 'w = shardc.einsum("w[I_Y, J, K_X] → w[I, J_XY, K]", w)'


def test_an_argument_that_lies_otherwise_than_was_said_is_told_by_its_block():
    before, after = Sharding.of([["Y"], [], []]), Sharding.of([[], ["Y"], []])
    text = resharding_by_force(before, after, CUBE, range(3), False)
    for wrong in (Sharding.of([["X", "Y"], [], []]), Sharding.of([["Z", "Y"], [], []])):
        given_array = Array("w", IJK, SIZES, wrong, DTYPES["f32"])
        (finding,) = explained(text, CUBE, inputs=(given_array,)).findings
        assert "(the block of one device" in finding.what
        assert finding.statement == "w[I_Y, J, K] → w[I, J_Y, K]"


def test_a_gather_that_is_needed_is_no_finding():
    assert not remat([["Y"], [], ["X"]], [[], [], ["X"]]).findings[1:]
    text = program(
        "%param = f32[12,4] parameter(0)",
        "ROOT %ag = f32[12,16] all-gather(%param), replica_groups=[2,4]<=[8], dimensions={1}",
    )
    found = explained(text)
    assert found.findings == () and "nothing wasteful found" in str(found)
    assert [(row.label, row.wire_bytes) for row in found.collectives] == [("AllGather_Y", 3 * 12 * 4 * 4)]


GATHER = (
    "%param = f32[12,4] parameter(0)",
    "%ag = f32[12,16] all-gather(%param), replica_groups=[2,4]<=[8], dimensions={1}",
    "%id = u32[] partition-id()",
    "%zero = s32[] constant(0)",
)
BY_DEVICE = (
    "%t = s32[8] constant({0, 3, 6, 9, 0, 3, 6, 9})",
    "%d = s32[1] dynamic-slice(%t, %id), dynamic_slice_sizes={1}",
    "%at = s32[] reshape(%d)",
)
OTHERS = (
    "%u = s32[8] constant({4, 8, 12, 0, 4, 8, 12, 0})",
    "%v = s32[1] dynamic-slice(%u, %id), dynamic_slice_sizes={1}",
    "%to = s32[] reshape(%v)",
)
SLICE = "dynamic-slice(%ag, %at, %zero), dynamic_slice_sizes={3,16}"


def test_a_gathered_array_of_which_each_device_keeps_rows():
    found = explained(program(*GATHER, *BY_DEVICE, f"ROOT %ds = f32[3,16] {SLICE}"))
    assert [finding.kind for finding in found.findings] == [GATHERED]
    assert found.findings[0].statement == "A[I, J_Y] → A[I_Y, J]"
    assert found.findings[0].bound_bytes == 12 * 4 * 4 * 3 // 4


@pytest.mark.parametrize(
    "rest",
    [
        # the same slice on every device, at a place that is computed from data, or that is not known
        ("%at = s32[] constant(3)", f"ROOT %ds = f32[3,16] {SLICE}"),
        ("%at = s32[] parameter(1)", f"ROOT %ds = f32[3,16] {SLICE}"),
        (
            "%wide = s32[8] iota(), iota_dimension=0",
            "%at = s32[] custom-call(%wide, %id)",
            f"ROOT %ds = f32[3,16] {SLICE}",
        ),
        # another use of the whole
        (*BY_DEVICE, f"%ds = f32[3,16] {SLICE}", "ROOT %r = (f32[3,16], f32[12,16]) tuple(%ds, %ag)"),
        (
            *BY_DEVICE,
            f"%ds = f32[3,16] {SLICE}",
            "ROOT %r = f32[12,12] dot(%ag, %ag), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        ),
        # the whole is the result
        (*BY_DEVICE, f"%ds = f32[3,16] {SLICE}", "ROOT %r = f32[12,16] copy(%ag)"),
        # devices that keep different things in the end: other rows, or rows and columns
        (*BY_DEVICE, *OTHERS, f"%ds = f32[3,16] {SLICE}", "ROOT %e = f32[3,16] dynamic-slice(%ag, %to, %zero)"),
        (*BY_DEVICE, *OTHERS, f"%ds = f32[3,16] {SLICE}", "ROOT %e = f32[12,4] dynamic-slice(%ag, %zero, %to)"),
        (
            *(*BY_DEVICE, *OTHERS, "%turned = f32[16,12] transpose(%ag), dimensions={1,0}"),
            *(f"%ds = f32[3,16] {SLICE}", "ROOT %e = f32[4,12] dynamic-slice(%turned, %to, %zero)"),
        ),
        # columns that were not gathered as blocks side by side
        (
            *(
                *BY_DEVICE,
                "%four = f32[12,4,4] reshape(%ag)",
                "%turned = f32[12,4,4] transpose(%four), dimensions={0,2,1}",
            ),
            *("%flat = f32[12,16] reshape(%turned)", "ROOT %ds = f32[3,16] dynamic-slice(%flat, %at, %zero)"),
        ),
        # a part of each block's columns, behind a product
        (
            *(*OTHERS[:1], "%four = f32[12,4,4] reshape(%ag)", "%x = f32[6,12] parameter(1)"),
            "%c = f32[6,4,4] dot(%x, %four), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            *("%t = s32[8] constant({0, 1, 2, 3, 0, 1, 2, 3})", *BY_DEVICE[1:]),
            "ROOT %ds = f32[6,4,1] dynamic-slice(%c, %zero, %zero, %at)",
        ),
        # blocks that overlap
        ("%t = s32[8] constant({0, 1, 2, 3, 0, 1, 2, 3})", BY_DEVICE[1], BY_DEVICE[2], f"ROOT %ds = f32[3,16] {SLICE}"),
        ("%t = s32[8] constant({0, 4, 8, 9, 0, 4, 8, 9})", BY_DEVICE[1], BY_DEVICE[2], f"ROOT %ds = f32[3,16] {SLICE}"),
        # an operation that nobody knows
        (*BY_DEVICE, "%odd = f32[12,16] custom-call(%ag)", "ROOT %ds = f32[3,16] dynamic-slice(%odd, %at, %zero)"),
    ],
)
def test_what_is_used_whole_or_not_understood_is_no_finding(rest):
    assert explained(program(*GATHER, *rest)).findings == ()


def test_a_slice_inside_a_fusion_is_followed_through_bitcasts_and_elementwise_functions():
    inside = (
        "%fused (p0: f32[16,12], p1: s32[]) -> f32[16,3] {\n"
        "  %p0 = f32[16,12]{0,1} parameter(0)\n"
        "  %p1 = s32[] parameter(1)\n"
        "  %z = s32[] constant(0)\n"
        "  %tanh = f32[16,12]{0,1} tanh(%p0)\n"
        "  ROOT %ds = f32[16,3]{0,1} dynamic-slice(%tanh, %z, %p1), dynamic_slice_sizes={16,3}\n"
        "}\n"
    )
    text = program(
        *GATHER,
        *BY_DEVICE,
        "%turned = f32[16,12]{0,1} bitcast(%ag)",
        "ROOT %f = f32[16,3]{0,1} fusion(%turned, %at), kind=kLoop, calls=%fused",
        computations=inside,
    ).replace("f32[12,16] all-gather", "f32[12,16]{1,0} all-gather")
    assert [finding.statement for finding in explained(text).findings] == ["A[I_Y, J] → A[I, J_Y]"]


def in_a_loop(trips, at="%at"):
    """The gather, and a slice whose start was worked out before the loop; `at` is what the loop hands on of it."""
    loop = (
        "%body (p: (s32[], f32[12,4], s32[])) -> (s32[], f32[12,4], s32[]) {\n"
        "  %p = (s32[], f32[12,4], s32[]) parameter(0)\n"
        "  %i = s32[] get-tuple-element(%p), index=0\n"
        "  %x = f32[12,4] get-tuple-element(%p), index=1\n"
        "  %at = s32[] get-tuple-element(%p), index=2\n"
        "  %one = s32[] constant(1)\n  %zero = s32[] constant(0)\n"
        "  %next = s32[] add(%i, %one)\n"
        "  %ag = f32[12,16] all-gather(%x), replica_groups=[2,4]<=[8], dimensions={1}\n"
        "  %ds = f32[3,16] dynamic-slice(%ag, %at, %zero), dynamic_slice_sizes={3,16}\n"
        "  %y = f32[12,4] reshape(%ds)\n"
        f"  ROOT %r = (s32[], f32[12,4], s32[]) tuple(%next, %y, {at})\n}}\n"
        "%cond (p: (s32[], f32[12,4], s32[])) -> pred[] {\n"
        "  %p = (s32[], f32[12,4], s32[]) parameter(0)\n"
        "  %i = s32[] get-tuple-element(%p), index=0\n"
        f"  %n = s32[] constant({trips})\n"
        "  ROOT %less = pred[] compare(%i, %n), direction=LT\n}\n"
    )
    return program(
        "%param = f32[12,4] parameter(0)",
        "%id = u32[] partition-id()",
        "%zero = s32[] constant(0)",
        *BY_DEVICE,
        "%start = (s32[], f32[12,4], s32[]) tuple(%zero, %param, %at)",
        "ROOT %while = (s32[], f32[12,4], s32[]) while(%start), condition=%cond, body=%body",
        computations=loop,
    )


def test_in_a_loop_it_costs_as_often_as_the_loop_runs():
    once, often = (explained(in_a_loop(trips)).findings[0] for trips in (1, 7))
    assert often.wire_bytes == 7 * once.wire_bytes and often.better_bytes == 7 * once.better_bytes
    assert explained(in_a_loop(7, "%i")).findings == (), "in the next round it begins elsewhere"


def test_a_product_of_which_each_device_keeps_columns_needs_no_gather():
    """`w[K, N_Y]` is gathered for `x · w`, of which each device keeps the columns that it had."""
    columns = "%t = s32[8] constant({0, 4, 8, 12, 0, 4, 8, 12})"
    text = program(
        *GATHER,
        columns,
        *BY_DEVICE[1:],
        "%x = f32[6,12] parameter(1)",
        "%c = f32[6,16] dot(%x, %ag), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "ROOT %ds = f32[6,4] dynamic-slice(%c, %zero, %at), dynamic_slice_sizes={6,4}",
    )
    (finding,) = explained(text).findings
    assert (finding.kind, finding.better_bytes, finding.statement) == (GATHERED, 0, "keep A[I, J_Y]")
    turned = text.replace(
        "%c = f32[6,16] dot(%x, %ag)",
        "%t.ag = f32[16,12] transpose(%ag), dimensions={1,0}\n  %c = f32[6,16] dot(%x, %t.ag)",
    )
    assert explained(turned.replace("rhs_contracting_dims={0}", "rhs_contracting_dims={1}")).findings == (finding,)
    rows = text.replace("f32[6,4] dynamic-slice(%c, %zero, %at)", "f32[2,16] dynamic-slice(%c, %at, %zero)")
    rows = rows.replace("{0, 4, 8, 12, 0, 4, 8, 12}", "{0, 2, 4, 0, 0, 2, 4, 0}")
    assert explained(rows).findings == (), "its rows are the other operand's"


# --- sums


def summed(total="jit(f)/dot", cut="jit(f)/tanh"):
    return program(
        "%param = f32[12,16] parameter(0)",
        "%ar = f32[12,16] all-reduce(%param), replica_groups=[2,4]<=[8], to_apply=%add, "
        f'metadata={{op_name="{total}"}}',
        *GATHER[2:],
        *BY_DEVICE,
        "ROOT %ds = f32[3,16] dynamic-slice(%ar, %at, %zero), dynamic_slice_sizes={3,16}, "
        f'metadata={{op_name="{cut}"}}',
    )


def test_a_sum_of_which_each_device_keeps_a_part_should_be_scattered():
    found = explained(summed())
    (finding,) = found.findings
    assert (finding.kind, finding.statement) == (SUMMED, "C[I, J]{U_Y} → C[I_Y, J]")
    assert finding.better_bytes * 2 == finding.wire_bytes == found.wire_bytes


def test_what_the_compiler_made_of_one_scatter_is_a_note():
    found = explained(summed(cut="jit(f)/dot"))
    assert found.findings == () and "ReduceScatter as an AllReduce" in found.notes[0]
    cpu = explained(summed(cut="jit(f)/dot"), platform="cpu")
    assert cpu.findings == () and len(cpu.notes) == 1 and "compiled for the CPU" in cpu.notes[0]


# --- the same gather twice


def twice(second="%copy", groups="[2,4]<=[8]", name="ag.2"):
    return program(
        *GATHER[:2],
        "%copy = f32[12,4] copy(%param)",
        "%other = f32[12,4] parameter(1)",
        f"%{name} = f32[12,16] all-gather({second}), replica_groups={groups}, dimensions={{1}}",
        f"ROOT %sum = f32[12,16] add(%ag, %{name})",
    )


def test_an_array_that_is_gathered_twice():
    (finding,) = explained(twice()).findings
    assert (finding.kind, finding.collectives) == (TWICE, ("ag", "ag.2"))
    assert finding.wire_bytes == 3 * 12 * 4 * 4
    assert explained(twice("%other")).findings == ()
    assert (
        explained(
            twice(groups="[4,2]<=[8]").replace("f32[12,16] all-gather(%copy)", "f32[12,8] all-gather(%copy)")
        ).findings
        == ()
    )
    assert explained(twice(name="ag.remat")).findings == (), "the compiler's own choice, to save memory"


# --- several arrays in one collective


@given(combined())
def test_each_array_of_a_collective_is_judged_by_itself(case):
    """In whatever form it is done, each array fares in its own way: used whole, cut, lost sight of, or in part."""
    found = explained(case.text())
    assert found.wire_bytes == sum(one.total_bytes for one in collectives(case.text(), MESH)) == sum(case.wire)
    (row,) = found.collectives
    assert [array.wire_bytes for array in row.arrays] == case.wire
    judged = case.of_fate(*WHOLE, "cut") if case.is_wasteful else case.of_fate(*WHOLE)
    assert found.judged_bytes == judged, [array.why for array in row.arrays]
    assert sum(left.wire_bytes for left in found.not_judged) == sum(case.wire) - judged
    wasted = sum(array.fate == "cut" for array in case.arrays) if case.is_wasteful else 0
    assert [finding.count for finding in found.findings] == [wasted * case.trips] * bool(wasted)
    assert sum(finding.wire_bytes for finding in found.findings) == case.of_fate("cut") * case.is_wasteful


DATA = Path(__file__).parents[1] / "data" / "hlo"


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("*.hlo")))
def test_every_byte_of_a_saved_program_is_judged_or_said_not_to_be(name):
    text = (DATA / f"{name}.hlo").read_text(encoding="utf-8")
    mesh = Mesh.of({"X": read_hlo(text).devices})
    found = explained(text, mesh)
    total = sum(one.total_bytes for one in collectives(text, mesh))
    assert found.judged_bytes + sum(left.wire_bytes for left in found.not_judged) == total
    assert all(sum(array.wire_bytes for array in row.arrays) == row.wire_bytes for row in found.collectives)


@pytest.mark.parametrize("compiler", ["cpu", "v5p"])
def test_gradients_that_travel_together_are_told_apart(compiler):
    """Weights in shards, asked for whole: so are their gradients, of which each device keeps its rows."""
    text = (DATA / f"sharded_{compiler}.hlo").read_text(encoding="utf-8")
    found = explained(text)
    (row,) = (row for row in found.collectives if row.kind == "AllReduce")
    assert len(row.arrays) == 2 and {array.local_bytes for array in row.arrays} == {4 * 8 * 16, 4 * 16 * 24}
    (finding,) = found.findings
    assert (finding.kind, finding.count, finding.wire_bytes) == (SUMMED, 2, row.wire_bytes)
    assert found.judged_bytes == found.wire_bytes


def test_what_is_handed_to_the_next_trip_is_followed_there():
    """The sum of one trip is cut in the next."""
    state = "(s32[], f32[12,16], f32[])"
    loop = (
        "%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  ROOT %y = f32[] parameter(1)\n}\n"
        f"%body (p: {state}) -> {state} {{\n  %p = {state} parameter(0)\n"
        "  %i = s32[] get-tuple-element(%p), index=0\n  %x = f32[12,16] get-tuple-element(%p), index=1\n"
        "  %t = f32[] get-tuple-element(%p), index=2\n"
        + "".join(f"  {line}\n" for line in (*GATHER[2:], *BY_DEVICE))
        + '  %ds = f32[3,16] dynamic-slice(%x, %at, %zero), metadata={op_name="cut"}\n'
        "  %nil = f32[] constant(0)\n  %u = f32[] reduce(%ds, %nil), dimensions={0,1}, to_apply=%add\n"
        "  %wide = f32[12,16] broadcast(%u), dimensions={}\n"
        '  %ar = f32[12,16] all-reduce(%wide), replica_groups=[2,4]<=[8], to_apply=%add, metadata={op_name="sum"}\n'
        "  %one = s32[] constant(1)\n  %next = s32[] add(%i, %one)\n"
        f"  ROOT %r = {state} tuple(%next, %ar, %u)\n}}\n"
        f"%cond (p: {state}) -> pred[] {{\n  %p = {state} parameter(0)\n"
        "  %i = s32[] get-tuple-element(%p), index=0\n  %n = s32[] constant(3)\n"
        "  ROOT %less = pred[] compare(%i, %n), direction=LT\n}\n"
    )
    text = program(
        *("%param = f32[12,16] parameter(0)", "%zero = s32[] constant(0)", "%nil = f32[] constant(0)"),
        f"%start = {state} tuple(%zero, %param, %nil)",
        f"%while = {state} while(%start), condition=%cond, body=%body",
        "ROOT %out = f32[] get-tuple-element(%while), index=2",
        computations=loop,
    )
    (finding,) = explained(text).findings
    assert (finding.kind, finding.count) == (SUMMED, 3)
    back = text.replace(
        "%out = f32[] get-tuple-element(%while), index=2", "%out = f32[12,16] get-tuple-element(%while), index=1"
    )
    assert explained(back).findings == () and explained(back).not_judged == (), "it is also a result"


def test_each_branch_is_given_its_own_operand():
    """Of the array the first branch, which is given another, uses all; the second loses sight of it."""
    branches = (
        "%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  ROOT %y = f32[] parameter(1)\n}\n"
        "%yes (p: f32[12,16]) -> f32[] {\n  %p = f32[12,16] parameter(0)\n  %nil = f32[] constant(0)\n"
        "  ROOT %u = f32[] reduce(%p, %nil), dimensions={0,1}, to_apply=%add\n}\n"
        "%no (q: f32[12,16]) -> f32[] {\n  %q = f32[12,16] parameter(0)\n"
        '  ROOT %v = f32[] custom-call(%q), custom_call_target="odd"\n}\n'
    )

    def given(order):
        return explained(
            program(
                *("%param = f32[12,16] parameter(0)", "%flag = pred[] parameter(1)"),
                "%ar = f32[12,16] all-reduce(%param), replica_groups=[2,4]<=[8], to_apply=%add",
                f"ROOT %out = f32[] conditional(%flag, {order}), branch_computations={{%yes, %no}}",
                computations=branches,
            )
        )

    assert [left.why for left in given("%param, %ar").not_judged] == ["goes into custom-call `odd`"]
    assert given("%ar, %param").not_judged == () == given("%ar, %ar").not_judged


def test_what_is_not_judged_is_said_with_its_reason():
    case = Combined("all-reduce", "plain", (Moved(8, 8, "used"), Moved(8, 4, "lost"), Moved(4, 4, "same")))
    found = explained(case.text())
    assert str(found).endswith("nothing wasteful found in 384 of 672 bytes")
    assert [(left.arrays, left.wire_bytes, left.why) for left in found.not_judged] == [
        (1, 192, "goes into custom-call `odd`"),
        (1, 96, "a part of it is used, the same on every device"),
    ]
    fields = found.to_json()
    assert (fields["judged"]["wire_bytes"], fields["judged"]["of_wire_bytes"]) == (384, 672)
    assert [left["why"] for left in fields["judged"]["not_judged"]] == [left.why for left in found.not_judged]
    assert [array["judged"] for array in fields["collectives"][0]["arrays"]] == [True, False, False]


def test_one_cause_is_one_finding():
    """Three arrays in four trips are one finding of twelve; another change of sharding is another."""
    case = Combined("all-reduce", "looped", tuple(Moved(rows, 4, "cut") for rows in (4, 8, 16)), 4)
    (finding,) = explained(case.text()).findings
    assert (finding.count, finding.wire_bytes) == (12, sum(case.wire))
    assert "in 12 times: m" in str(explained(case.text()))
    text = case.text().replace("dynamic-slice(%w0, %at0, %zero)", "dynamic-slice(%w0, %zero, %at0)")
    text = text.replace("%k0 = s32[] constant(1)", "%k0 = s32[] constant(1)").replace(
        "%d0 = f32[1,4]", "%d0 = f32[4,1]"
    )
    assert sorted(finding.count for finding in explained(text).findings) == [4, 8]


def test_what_is_less_than_a_thousandth_is_no_finding():
    def of(rows):
        return explained(Combined("all-reduce", "plain", (Moved(4, 4, "cut"), Moved(rows, 8, "used"))).text())

    assert [finding.kind for finding in of(16).findings] == [SUMMED]
    small = of(1 << 20)
    assert small.findings == () and small.judged_bytes == small.wire_bytes
    assert small.notes == ("48 bytes are wasted besides, by causes of less than a thousandth each",)


def test_a_computation_that_is_called_twice_is_judged_twice():
    case = Combined("all-reduce", "called", (Moved(8, 8, "used"), Moved(8, 4, "cut")))
    once = explained(case.text())
    text = case.text().replace("%w0 =", "%again = (f32[8,8], f32[8,4]) call(%a0, %a1), to_apply=%apart\n  %w0 =")
    twice = explained(text)
    assert len(twice.collectives) == 2 and twice.wire_bytes == 2 * once.wire_bytes
    assert {left.why for left in twice.not_judged} == {"nothing is seen to use it"}
    assert twice.judged_bytes == once.judged_bytes


# --- warnings, names, text

WARNING = (
    "W1121 06:08:32.7 29551 spmd_partitioner.cc:656] [SPMD] Involuntary full rematerialization. The compiler cannot go "
    "from sharding {devices=[4,1,2]<=[2,4]T(1,0)} to {devices=[1,8,1]<=[8]} efficiently for HLO operation %param = "
    'bf16[16,256,64]{2,1,0} parameter(0), sharding={devices=[4,1,2]<=[2,4]T(1,0)}, metadata={op_name="a" '
    'source_file="model.py" source_line=7}. As the last resort, SPMD will replicate the tensor'
)


def test_the_partitioner_s_warning_is_read():
    (found,) = rematerializations(f"noise\n{WARNING}\n{WARNING}\n", MESH)
    assert found.spelled(MESH) == "a[I_Y, J, K_X] → a[I, J_XY, K]"
    assert (found.operation, found.source) == ("param", "model.py:7")
    odd = rematerializations("Involuntary full rematerialization of something", MESH)
    assert odd[0].before is None and odd[0].spelled(MESH) == ""


def test_a_warning_is_a_note_unless_a_finding_says_it():
    text = program(*GATHER[:1], "ROOT %copy = f32[12,4] copy(%param)")
    assert explained(text, warnings=WARNING).notes == (
        "XLA warns of an involuntary full rematerialization: a[I_Y, J, K_X] → a[I, J_XY, K], model.py:7",
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x", "x"),
        ("params['layer_0']['w']", "w"),
        ("params[\\'w1\\']", "w1"),
        ("", "A"),
        ("[0][1]", "A"),
        ("jnp", "jnp"),
    ],
)
def test_an_argument_s_name_in_the_notation(text, name):
    assert array_name(text) == name


def test_every_element_type_of_hlo_that_the_notation_has():
    assert {name: dtype_of(name).name for name in ("bf16", "f32", "s4", "s8", "u32", "f8e5m2", "pred", "c64")} == {
        "bf16": "bf16",
        "f32": "f32",
        "s4": "int4",
        "s8": "int8",
        "u32": "uint32",
        "f8e5m2": "f8_e5m2",
        "pred": "bool",
        "c64": "c64",
    }
    assert dtype_of("token") is None


def test_the_text_and_the_fields():
    found = remat([["Y"], [], ["X"]], [[], ["X", "Y"], []])
    text = str(found)
    assert "1. full rematerialization" in text and "help: w = shardc.einsum(" in text
    fields = found.to_json()
    assert fields["cost"]["wire_bytes"] == found.wire_bytes == sum(t["wire_bytes"] for t in fields["totals"])
    assert [f["kind"] for f in fields["findings"]] == [REMATERIALIZED]
