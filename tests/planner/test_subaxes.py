"""Axes cut into sub-axes: what refining keeps, what the parts' links cost, and how cheap the plans are."""

import ast
import itertools
import json
import math
import re

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.cost import Layout, LinkModel, chip, topology
from shardc.cost.links.level import Factor
from shardc.cost.links.torus import Line
from shardc.cost.links.torus_links import _between
from shardc.emit.allowed import check_source
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    ReduceScatter,
)
from shardc.ir.finer import joined
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement, refined, refinement
from shardc.ir.sharding import Sharding, spell
from shardc.planner import Objective, plan_program, plan_with_subaxes
from shardc.planner.program import sizes
from shardc.planner.program.finer import MARGIN
from shardc.rules.placements import placements
from shardc.testing import (
    assert_equal_on_every_device,
    assert_schedule_legal,
    matmul_oracle,
    matmuls,
    programs,
    reshards,
    shardings,
    shortest_path_oracle,
)

GRID = "A[I_X, J] · B[J, K_X] → C[I_X, K]"
HARDWARE = (  # mesh, layout, chip: rings, lines, X on two lines, on a part of one, over two domains, over DCN
    ({"X": 16}, None, "v5p"),
    ({"X": 16, "Y": 4}, Layout(topology("v5p:4x4x4")), "v5p"),
    ({"X": 16}, Layout(topology("v5e:4x4")), "v5e"),
    ({"X": 8, "Y": 8}, Layout(topology("v5p:4x4x4")), "v5p"),
    ({"X": 8, "Y": 2}, Layout(wraparound=(("X", "one-way"),)), "v5p"),
    ({"X": 16}, None, "H100"),
    ({"X": 12, "Y": 4}, None, "H100"),
    ({"P": 4, "X": 4}, Layout(dcn=("P",)), "v5p"),
)


def factorings(size):
    """Every way to write a size as an ordered product of factors above 1."""
    yield (size,)
    for first in range(2, size // 2 + 1):
        if size % first == 0:
            yield from ((first, *rest) for rest in factorings(size // first))


@st.composite
def cut_meshes(draw, most=12):
    axes = ("X", "Y")[: draw(st.integers(1, 2))]
    found = {axis: draw(st.sampled_from(list(factorings(draw(st.integers(2, most)))))) for axis in axes}
    mesh = Mesh(tuple((axis, math.prod(parts)) for axis, parts in found.items()))
    return refinement(mesh, {axis: parts for axis, parts in found.items() if len(parts) > 1}, ())


@st.composite
def refined_cases(draw):
    """A program and a cut of its mesh, small enough to plan."""
    case = draw(st.one_of(matmuls(max_axes=2, unreduced=False), programs(), reshards(max_axes=2, unreduced=False)))
    axes = [axis for axis, size in case.mesh.axes if len(list(factorings(size))) > 1]
    assume(axes)
    axis = draw(st.sampled_from(axes))
    parts = draw(st.sampled_from([parts for parts in factorings(case.mesh.size(axis)) if len(parts) > 1]))
    return case, refinement(case.mesh, {axis: parts}, ())


def moves_over(axes):
    """Moves of every kind that has a price of its own."""
    kinds = (
        AllGather(axes, 0),
        ReduceScatter(axes, 0),
        AllReduce(axes),
        AllToAll(axes, 0, 1),
        CollectivePermute(axes, ()),
        DirectExchange(axes, (), 4),
    )
    return kinds


def value_of(text, names):
    """What a formula evaluates to."""
    text = text.replace("·", "*").replace("²", "**2")
    return eval(re.sub(r"⌈([^⌉]*)/2⌉", r"(-(-\1//2))", text), {}, names)


def planned(text, mesh, dims, objective=Objective.BYTES, name="v5p", layout=None, dtype="f32"):
    program = sizes.large(shardc.parse(text, mesh=mesh, dims=dims, dtype=dtype))
    model = LinkModel.of(program.mesh, chip(name), layout)
    return plan_program(program, model, objective), plan_with_subaxes(program, model, objective)


MESHES = st.sampled_from([{"X": 4}, {"X": 6}, {"X": 8}, {"X": 4, "Y": 2}, {"X": 2, "Y": 4}])


def all_shardings(mesh):
    return [Sharding(dims) for dims in placements(tuple(mesh), 2)]


# What refining keeps


@pytest.mark.instant
@given(cut_meshes(), st.data())
def test_a_sharding_of_whole_axes_gives_every_device_the_same_block(by, data):
    sharding = data.draw(shardings(by.coarse, 2))
    finer = by.sharding(sharding)
    assert by.whole(finer) == sharding
    assert finer.blocks(by.fine) == sharding.blocks(by.coarse)
    places = zip(by.coarse.coordinates(), by.fine.coordinates(), strict=True)
    for coarse, fine in places:
        assert sharding.block_of(coarse, by.coarse) == finer.block_of(fine, by.fine)


@pytest.mark.instant
@given(cut_meshes(), st.data())
def test_a_sharding_is_of_whole_axes_or_is_none(by, data):
    """Of all shardings on the fine mesh those are whole that some sharding on the coarse mesh becomes."""
    sharding = data.draw(shardings(by.fine, 2))
    whole = by.whole(sharding)
    assert whole is None or by.sharding(whole) == sharding
    split = {name for _, cut in by.parts for name, _ in cut}
    owners = {name: axis for axis, cut in by.parts for name, _ in cut}
    alone = [name for name in split if {n for n in split if owners[n] == owners[name]} - sharding.used]
    assert whole is None or not set(alone) & sharding.used


def test_parts_that_always_stand_together_are_joined():
    by = refinement(Mesh.of({"X": 8, "Y": 4}), {"X": (2, 2, 2), "Y": (2, 2)}, ())
    lies = [Sharding.of([["X0", "X1"], ["Y0", "Y1", "X2"]]), Sharding.of([["X2"], ["Y0", "Y1"]], ["X0", "X1"])]
    assert joined(by, lies) == {"X": (4, 2)}
    assert joined(by, [*lies, Sharding.of([["X0"], []])]) == {"X": (2, 2, 2)}
    assert joined(by, [Sharding.of([["X1", "X0"], []])])["X"] == (2, 2, 2)
    assert joined(by, [Sharding.of([["X0"], ["X1"]])])["X"] == (2, 2, 2)
    assert joined(by, [Sharding.of([[], []], ["X0"])])["X"] == (2, 4)
    assert joined(by, [Sharding.replicated(2)]) == {}


@settings(max_examples=30)
@given(MESHES, st.data())
def test_no_plan_has_parts_that_always_stand_together(mesh, data):
    a, b, c = (data.draw(st.sampled_from(all_shardings(mesh))) for _ in range(3))
    text = f"A{spell('IJ', a)} · B{spell('JK', b)} → C{spell('IK', c)}"
    schedule = planned(text, mesh, dict.fromkeys("IJK", 48))[1].schedule
    if schedule.by is not None:
        parts = {axis: tuple(size for _, size in cut) for axis, cut in schedule.by.parts}
        assert joined(schedule.by, [array.sharding for array in schedule.values]) == parts


def test_names_of_sub_axes_are_not_taken():
    mesh = Mesh.of({"X": 4, "X0": 2})
    by = refinement(mesh, {"X": (2, 2)}, ["X_0"])
    assert by.fine.names == ("X__0", "X__1", "X0")
    assert str(refinement(Mesh.of({"X": 8}), {"X": (2, 4)}, ())) == "X = X0·X1 (8 = 2·4)"


@settings(max_examples=60)
@given(refined_cases(), st.sampled_from(list(Objective)))
def test_plans_on_refined_meshes_are_legal_and_mean_the_program_on_every_device(case, objective):
    case, by = case
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32")
    model = LinkModel.of(program.mesh, chip("v5p"))
    coarse = plan_program(program, model, objective).schedule
    inputs = [coarse.values[number].sharding for number in coarse.inputs]
    outputs = [coarse.values[number].sharding for number in coarse.outputs]
    found = plan_program(refined(program, by, inputs, outputs), model.refined(by), objective)
    schedule = found.schedule
    assert_schedule_legal(schedule)
    assert [by.whole(schedule.values[number].sharding) for number in schedule.outputs] == outputs
    wholes = simulate.sample_inputs(schedule.program, 0)
    blocks, expected = simulate.run(schedule, wholes), simulate.reference(program, wholes)
    for block, number, whole in zip(blocks, schedule.outputs, expected, strict=True):
        # Both in f64; the checker refuses a bound beyond an eighth of the values' spread.
        bound = 1e-12 * max(1.0, float(np.abs(whole).max(initial=0)))
        assert_equal_on_every_device(block, whole, schedule.values[number], schedule.mesh, bound)


# What the links cost


@pytest.mark.instant
@pytest.mark.parametrize(("mesh", "layout", "name"), HARDWARE)
def test_all_parts_of_an_axis_cost_what_the_axis_costs(mesh, layout, name):
    """And every formula evaluates to its number, those of parts as well."""
    mesh = Mesh.of(mesh)
    model, checked = LinkModel.of(mesh, chip(name), layout), 0
    cuts = [(axis, parts) for axis, size in mesh.axes for parts in factorings(size) if len(parts) > 1]
    for axis, parts in cuts:
        by = refinement(mesh, {axis: parts}, ())
        finer = model.refined(by)
        if finer is None:
            continue
        for count in range(1, len(mesh.names) + 1):
            for axes in itertools.permutations(mesh.names, count):
                for move, same in zip(moves_over(axes), moves_over(by.axes(axes)), strict=True):
                    assert finer.rate(same) == model.rate(move)
                    checked += 1
        names = finer.symbols() | dict(by.fine.axes) | dict(mesh.axes)
        for count in range(1, len(by.fine.names) + 1):
            for axes in itertools.combinations(by.fine.names, count):
                for move in moves_over(axes):
                    factor = finer.factor(move)
                    assert value_of(factor.text, names) == pytest.approx(factor.value, rel=1e-12)
    assert checked


def lines_of(mesh, layout, name, parts, sub_axis):
    by = refinement(Mesh.of(mesh), {"X": parts}, ())
    (level,) = LinkModel.of(by.coarse, chip(name), layout).refined(by).network.levels((sub_axis,))
    return [(line.size, line.stride, line.shape) for line in level.lines]


def test_where_parts_of_an_axis_lie():
    """Worked by hand. The major part skips over the minor ones; the minor part of a ring is not closed."""
    assert lines_of({"X": 16}, None, "v5p", (4, 4), "X0") == [(4, 4, "ring")]
    assert lines_of({"X": 16}, None, "v5p", (4, 4), "X1") == [(4, 1, "line")]
    assert lines_of({"X": 16}, None, "v5p", (2, 4, 2), "X1") == [(4, 2, "line")]
    both = Layout(topology("v5p:4x4x4"))
    assert lines_of({"X": 16, "Y": 4}, both, "v5p", (4, 4), "X0") == [(4, 1, "ring")]
    assert lines_of({"X": 16, "Y": 4}, both, "v5p", (4, 4), "X1") == [(4, 1, "ring")]
    assert lines_of({"X": 16, "Y": 4}, both, "v5p", (2, 8), "X0") == [(2, 2, "ring")]
    assert lines_of({"X": 16, "Y": 4}, both, "v5p", (2, 8), "X1") == [(2, 1, "line"), (4, 1, "ring")]


@pytest.mark.instant
@pytest.mark.parametrize("lengths", [(4,), (8,), (4, 4), (2, 8), (4, 6), (2, 2, 4)])
def test_a_part_of_an_axis_is_a_part_of_its_lines_or_lies_nowhere(lengths):
    """Of its devices it has as many as it is long; it lies on the lines along which these differ."""
    lines = tuple(Line(Factor("X", size), "ring", 1.0, "W_X", 1, lies) for lies, size in enumerate(lengths))
    places = list(itertools.product(*map(range, lengths)))
    for after in range(1, len(places) + 1):
        for size in range(2, len(places) // after + 1):
            part = _between(lines, size, after)
            if part is not None:
                own = [places[n * after] for n in range(size)]
                assert math.prod(line.size for line in part) == size
                assert [line.lies for line in part] == [
                    at for at, of in enumerate(zip(*own, strict=True)) if len({*of}) > 1
                ]
            elif len(places) % (size * after) == 0:
                assert lengths == (4, 6), "powers of two fit"


def test_an_axis_on_two_lines_counts_the_last_one_first():
    """X=16 on 2·8 chips: x is 8·row + column."""
    layout = Layout(topology("v5e:2x8"))
    assert lines_of({"X": 16}, layout, "v5e", (2, 8), "X0") == [(2, 1, "line")]
    assert lines_of({"X": 16}, layout, "v5e", (2, 8), "X1") == [(8, 1, "line")]
    assert lines_of({"X": 16}, layout, "v5e", (4, 4), "X0") == [(2, 1, "line"), (2, 4, "line")]
    assert lines_of({"X": 16}, layout, "v5e", (4, 4), "X1") == [(4, 1, "line")]


def test_parts_of_an_axis_in_and_out_of_a_domain():
    """X=16 on nodes of 8: X0=2 is between nodes, X1=8 inside; of X0=4 half is inside."""
    mesh = Mesh.of({"X": 16})
    for parts, inside in (((2, 8), {"X0": 1, "X1": 8}), ((4, 4), {"X0": 2, "X1": 4})):
        by = refinement(mesh, {"X": parts}, ())
        links = LinkModel.of(mesh, chip("H100")).refined(by).network.links
        assert {name: near for name, (near, _) in links.parts.items()} == inside


def test_a_cut_that_no_link_is_made_of():
    """X=12 beside Y=4 has 2 of its devices in a domain: parts of 4·3 are neither in nor out."""
    mesh = Mesh.of({"X": 12, "Y": 4})
    model = LinkModel.of(mesh, chip("H100"))
    assert model.refined(refinement(mesh, {"X": (4, 3)}, ())) is None
    assert model.refined(refinement(mesh, {"X": (6, 2)}, ())) is not None


def test_a_gather_over_the_major_part_has_a_share_of_the_links():
    """X=16 on a ring, 2·w both ways: X0=4 is four rings on the same links, X1=4 a line with w at its ends."""
    mesh = Mesh.of({"X": 16})
    by = refinement(mesh, {"X": (4, 4)}, ())
    link, size = chip("v5p").link_bandwidth, 1 << 30
    finer = LinkModel.of(mesh, chip("v5p")).refined(by)
    assert finer.rate(AllGather(("X0",), 0)).seconds(size) == pytest.approx(3 * size * 4 / (2 * link))
    assert finer.rate(AllGather(("X1",), 0)).seconds(size) == pytest.approx(3 * size / link)


# Which plans are found


def on_finer_meshes(mesh):
    """Every finer mesh, and of each axis its parts; written apart from `ir.refine`."""
    for cuts in itertools.product(*(list(factorings(size)) for size in mesh.values())):
        parts = {
            axis: [(f"{axis.lower()}{number}", size) for number, size in enumerate(cut)]
            for axis, cut in zip(mesh, cuts, strict=True)
        }
        yield Mesh(tuple(itertools.chain(*parts.values()))), {axis: [n for n, _ in cut] for axis, cut in parts.items()}


def on(sharding, parts):
    return Sharding(tuple(tuple(name for axis in axes for name in parts[axis]) for axes in sharding.dims))


def assert_as_cheap(found, expected):
    """As brute force, or cheaper, where dims are seen as digits."""
    in_digits = any(step.name == "Reshape" for step in found.schedule.steps)
    assert found.cost.wire_bytes <= expected if in_digits else found.cost.wire_bytes == expected


@pytest.mark.exhaustive
@settings(max_examples=60)
@given(MESHES, st.sampled_from([(48, 48, 48), (48, 192, 48), (96, 48, 192)]), st.data())
def test_a_product_is_as_cheap_as_brute_force_on_all_finer_meshes(mesh, shape, data):
    a, b, c = (data.draw(st.sampled_from(all_shardings(mesh))) for _ in range(3))
    dims = dict(zip("IJK", shape, strict=True))
    expected = min(
        matmul_oracle(finer, dims, on(a, parts), on(b, parts), on(c, parts), 4)
        for finer, parts in on_finer_meshes(mesh)
    )
    text = f"A{spell('IJ', a)} · B{spell('JK', b)} → C{spell('IK', c)}"
    coarse, found = planned(text, mesh, dims)
    assert_as_cheap(found, expected)
    assert coarse.bound_bytes == found.bound_bytes <= found.cost.wire_bytes <= coarse.cost.wire_bytes


@settings(max_examples=40)
@given(MESHES, st.data())
def test_a_reshard_is_as_cheap_as_brute_force_on_all_finer_meshes(mesh, data):
    before, after = (data.draw(st.sampled_from(all_shardings(mesh))) for _ in range(2))
    expected = min(
        shortest_path_oracle(finer, (48, 96), on(before, parts), on(after, parts), 4)
        for finer, parts in on_finer_meshes(mesh)
    )
    _, found = planned(f"A{spell('IJ', before)} → A{spell('IJ', after)}", mesh, {"I": 48, "J": 96})
    assert_as_cheap(found, expected)


def test_a_grid_on_one_axis():
    """By hand, bf16, all dims 4096. On one axis of 16 one operand is gathered whole: 15/16 of 33.6 MB.

    As 4·4, with J over X1: A and B by AllToAll, 3/4 of a 16th each; B over X0, and the partial sums of C over X1,
    3/4 of a quarter each. That is 2·(3/64 + 3/16) of 33.6 MB; other cuts do no worse.
    """
    coarse, found = planned(GRID, {"X": 16}, dict.fromkeys("IJK", 4096), dtype="bf16")
    whole = 4096**2 * 2
    assert coarse.cost.wire_bytes == 15 * whole // 16
    assert found.cost.wire_bytes <= 2 * (3 * whole // 64 + 3 * whole // 16) < coarse.cost.wire_bytes


@settings(max_examples=60)
@given(st.one_of(matmuls(max_axes=2), programs(), reshards(max_axes=2)), st.sampled_from(list(Objective)))
def test_a_plan_is_the_plain_one_or_cheaper(case, objective):
    coarse, found = planned(case.text, case.mesh, case.dims, objective)
    if found.schedule.by is None:
        assert found.schedule == coarse.schedule and found.cost == coarse.cost
        return
    limit = coarse.measure(objective)
    assert found.measure(objective) < (limit - limit // MARGIN if objective is Objective.TIME else limit)
    for number, same in zip(found.schedule.inputs, coarse.schedule.inputs, strict=True):
        assert found.schedule.given(number) == coarse.schedule.values[same]
    for number, same in zip(found.schedule.outputs, coarse.schedule.outputs, strict=True):
        assert found.schedule.given(number).sharding == coarse.schedule.values[same].sharding


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "mesh"),
    [
        (GRID, {"X": 7}),  # prime
        ("A[I_X, J] · B[J_X, K] → C[I_X, K]", {"X": 2, "Y": 2}),
        ("A[I, J_X] → A[I_X, J]", {"X": 16}),  # at its bound
        (GRID + "; D[I, J_X] · E[J_X, K] → F[I, K]{U_X}", {"X": 16}),  # gives partial sums
        (GRID + "; F[I, K]{U_X} → H[I_X, K]", {"X": 16}),  # takes them
        ("A[I_X, J] · B[J, K] → C[I_X, K]", {"X": 16}),  # nothing moves
        ("A[I_X, J_Y] · B[J_Z, K_X] → C[I_Z, K_Y]", {"X": 4, "Y": 4, "Z": 4}),  # too many axes to search
    ],
)
def test_axes_that_stay_whole(text, mesh):
    dims = dict.fromkeys("IJK", 7 * 64)
    assert planned(text, mesh, dims)[1].schedule.by is None


def test_by_time_an_axis_is_cut_whose_parts_have_links_of_their_own():
    text, dims = "A[I, J_X] · B[J_X, K] → C[I_X, K]", dict.fromkeys("IJK", 4608)
    rows = Layout(topology("v5e:4x4"), map=(("X", (0, 1)),))  # row by row, not as the walk that JAX makes of it
    for layout, cut in ((None, False), (rows, True)):
        coarse, found = planned(text, {"X": 16}, dims, Objective.TIME, "v5e", layout)
        assert (found.schedule.by is not None) is cut
        assert found.cost.time_s < 0.99 * coarse.cost.time_s or not cut


def test_by_time_the_parts_of_a_line_share_its_links():
    """Even where a cut would save some time, as here."""
    text, dims = "A[I_X, J] · B[J, K_X] → C[I, K_X]", {"I": 1536, "J": 4608, "K": 1536}
    assert planned(text, {"X": 8}, dims, Objective.TIME, "v5e", dtype="bf16")[1].schedule.by is None


def test_a_plan_on_three_parts_of_which_two_stand_together():
    """The even cuts that are tried are 4·4, 2·8, 2·2·4 and 2·4·2; what is found is 8·2."""
    dims = {"I": 8192, "J": 1024, "K": 8192}
    text = "A[I, J_X] · B[J_X, K] → C[I_X, K]"
    found = planned(text, {"X": 16}, dims, Objective.BYTES, "v5e", dtype="bf16")[1]
    assert found.notes[-1] == "X = X0·X1 (16 = 8·2)"


def test_what_the_planner_chose_for_open_shardings_stays():
    text = "A[I_X, J] · B[J, K_X] → C[I_?, K_?]"
    coarse, found = planned(text, {"X": 16}, {"I": 4096, "J": 4096, "K": 4096})
    for number, same in zip(found.schedule.outputs, coarse.schedule.outputs, strict=True):
        assert found.schedule.given(number).sharding == coarse.schedule.values[same].sharding


@pytest.mark.parametrize("objective", list(Objective))
def test_a_memory_limit_that_only_a_finer_mesh_keeps(objective):
    """No operand is whole on any device of a grid."""
    program = sizes.large(shardc.parse(GRID, mesh={"X": 16}))
    model = LinkModel.of(program.mesh, chip("v5p"))
    limit = 21_000_000
    with pytest.raises(shardc.ShardcError) as error:
        plan_program(program, model, objective, limit)
    assert error.value.code == "SHC410"
    found = plan_with_subaxes(program, model, objective, limit)
    assert found.schedule.by is not None and found.cost.peak_bytes <= limit
    with pytest.raises(shardc.ShardcError) as error:
        plan_with_subaxes(program, model, objective, 1_000_000)
    assert error.value.code == "SHC410"


# What is shown and written


def grid(**options):
    return shardc.plan(GRID, mesh={"X": 16}, objective="bytes", **options)


def test_the_table_and_the_json_speak_of_both_meshes():
    plan = grid()
    shown, found = str(plan), json.loads(plan.to_json(1))
    assert "mesh X=16;" in shown and "note: X = X0·X1" in shown and "given A[I_X, J]" in shown
    assert found["mesh"] == {"X": 16} and list(found["split"]) == ["X"]
    assert math.prod(found["split"]["X"].values()) == 16
    assert [array["sharding"] for array in found["inputs"] + found["outputs"]] == [
        "A[I_X, J]",
        "B[J, K_X]",
        "C[I_X, K]",
    ]
    assert {axis for step in found["steps"] for axis in step["axes"]} <= set(found["split"]["X"])
    assert "split" not in json.loads(shardc.plan(GRID, mesh={"X": 2}).to_json(1))


def test_the_formulas_of_a_plan_evaluate_to_its_times():
    for plan in (grid(topology="v5e:4x4"), grid(topology="v5e:4x4", map="X=0+1")):
        the_formulas_evaluate(plan)


def the_formulas_evaluate(plan):
    for step in plan.steps:
        formula = re.sub(r"⌈([^⌉]*)/2⌉", r"(-(-\1//2))", step.formula.replace("·", "*").replace("²", "**2"))
        assert eval(formula, {}, plan.symbols) == pytest.approx(step.time_s, rel=1e-9)


def test_a_statement_lists_the_plan_first():
    statement = grid().statements[0]
    costs = [other.wire_bytes for other in statement.alternatives]
    assert costs[0] == grid().cost.wire_bytes and costs == sorted(costs)


def test_the_source_says_where_the_fine_mesh_comes_from():
    text = grid().source()
    assert text == grid().source() and check_source(text)
    assert "fine = jax.sharding.Mesh(mesh.devices.reshape(" in text
    assert '@jax.sharding.auto_axes(out_sharding=P("X", None))' in text
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == ["refined", "program"]


@pytest.mark.instant
@pytest.mark.parametrize("name", ["fine", "refined", "mapped", "results"])
def test_an_array_does_not_take_the_names_of_the_border(name):
    text = GRID.replace("A[", f"{name}[")
    assert f"def program({name}_1, B)" in shardc.plan(text, mesh={"X": 16}, objective="bytes").source()
    assert f"def program({name}, B)" in shardc.plan(text, mesh={"X": 2}, objective="bytes").source()


@pytest.mark.instant
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("jax.ensure_compile_time_eval()", "open('x')"),
        ("use_abstract_mesh(fine.abstract_mesh)", "use_abstract_mesh(mesh)"),
        ("def refined", "def other"),
        ("mapped(A, B)", "refined(A, B)"),
    ],
)
def test_other_contexts_and_functions_are_refused(old, new):
    text = grid().source()
    assert old in text
    with pytest.raises(shardc.ShardcError) as error:
        check_source(text.replace(old, new))
    assert error.value.code == "SHC900"


def test_renaming_an_axis_renames_the_parts():
    found = shardc.plan(GRID.replace("X", "data"), mesh={"data": 16}, objective="bytes")
    assert found.cost == grid().cost
    assert all(isinstance(part, Refinement) for part in [found.schedule.by])
    assert [name for _, cut in found.schedule.by.parts for name, _ in cut][:2] == ["data0", "data1"]


SUBSCRIPTS = ["", "_X", "_Y", "_XY", "_YX"]


@st.composite
def batched(draw):
    """A product with a dim of batches, and a reshard that has nothing to do with it."""
    dims = iter(draw(st.permutations(["X", "Y"])))
    first, second = (f"_{next(dims)}" for _ in range(2))
    lies = draw(st.sampled_from([(first, first, second), (first, second, ""), (first, first, ""), ("", first, second)]))
    of_b = draw(st.sampled_from(["", second])) if lies[1] != second else ""
    product = f"A[L{lies[0]}, M, N{of_b}] · B[L{lies[1]}, T] → C[M, N{lies[2]}, T]"
    before, after = (draw(st.sampled_from(SUBSCRIPTS)) for _ in range(2))
    return product, f"D[P{before}, Q, R] → E[P, Q{after}, R]"


@settings(max_examples=40)
@example(("A[L_Y, M, N] · B[L_Y, T] → C[M, N_X, T]", "D[P, Q, R] → E[P, Q, R]"))
@given(batched())
def test_beside_an_array_that_moves_a_product_brings_what_it_does_alone(case):
    """Of the example 1,536 bytes once, 1,408 alone: what the other moves left no time to cut an axis."""

    def brings(text):
        sizes = {"L": 16} | dict.fromkeys("MNTPQR", 8)
        plan = shardc.plan(text, mesh="X=2,Y=4", dims=sizes, dtype="f32", chip="v5p", objective="bytes")
        return plan.cost.wire_bytes

    product, other = case
    assert brings(f"{product}; {other}") <= brings(product) + brings(other)


@st.composite
def products(draw):
    """A product of two arrays, and one like it beside it."""
    mesh = draw(st.sampled_from([{"X": 4}, {"X": 6}, {"X": 8}, {"X": 16}, {"X": 4, "Y": 2}]))
    lies = st.sampled_from(["I", "J", "K"])

    def array(name, dims):
        on = {axis: draw(lies) for axis in mesh}
        return name + "[" + ", ".join(dim + "".join(f"_{a}" for a in mesh if on[a] == dim)[:2] for dim in dims) + "]"

    a, b, c = array("A", "IJ"), array("B", "JK"), array("C", "IK")
    return mesh, f"{a} · {b} → {c}", f"{a.replace('A', 'D', 1)} · {b.replace('B', 'E', 1)} → {c.replace('C', 'F', 1)}"


@settings(max_examples=15, deadline=None)
@given(products())
@example(({"X": 4}, "A[I_X, J] · B[J, K_X] → C[I_X, K]", "D[I_X, J] · E[J, K_X] → F[I_X, K]"))
@example(({"X": 16}, "A[I_X, J] · B[J, K_X] → C[I_X, K]", "D[I_X, J] · E[J, K_X] → F[I_X, K]"))
def test_a_product_alone_costs_no_more_than_beside_another(case):
    """On a finer mesh it is looked for in digits too, where it costs as much on whole dims as it did before."""
    mesh, one, other = case
    sizes = dict.fromkeys("IJK", 96)
    alone = [shardc.plan(text, mesh=mesh, dims=sizes, objective="bytes") for text in (one, other)]
    together = shardc.plan(f"{one}; {other}", mesh=mesh, dims=sizes, objective="bytes")
    assert sum(plan.cost.wire_bytes for plan in alone) <= together.cost.wire_bytes
