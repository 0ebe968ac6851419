"""What planning may cost: a plan for every statement, within a budget of counted work, and how far it may be off."""

import functools
import json
import math
import re
import sys
import time
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.cost import LinkModel, chip, topology
from shardc.cost.topology import Part, place
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.planner import Objective, budget, plan_program, plan_with_subaxes
from shardc.planner.options import Method
from shardc.planner.problem import Problem
from shardc.planner.program import progress
from shardc.planner.program.finer import Finer
from shardc.planner.statement import strategies
from shardc.planner.statement.nodes import table_of
from shardc.testing import (
    Case,
    assert_equal_on_every_device,
    assert_equivalent,
    assert_schedule_legal,
    matmuls,
    programs,
    reshards,
)

SECONDS = 2.0  # of one processor, for a statement's plan, its table and its JSON
DIMS, AXES = "IJKLMNPQR", "STUVWXYZ"
GAP = re.compile(r"the search ended with its budget; gap ([0-9.]+)")


def mesh_of(*sizes):
    return dict(zip(AXES, sizes, strict=False))


@st.composite
def arrays(draw, dims, axes):
    """`[I_X, J_{Y,Z}]`: each axis on some dim, or on none."""
    lie = {dim: [] for dim in dims}
    for axis in draw(st.permutations(axes)):
        dim = draw(st.sampled_from([*dims, None]))
        if dim is not None:
            lie[dim].append(axis)
    return "[" + ", ".join(f"{dim}_{{{','.join(on)}}}" if on else dim for dim, on in lie.items()) + "]"


@st.composite
def statements(draw, shapes, meshes):
    """A product of arrays of these dims, the last of them the result, on one of the meshes."""
    mesh = mesh_of(*draw(st.sampled_from(meshes)))
    *given_dims, result = draw(st.sampled_from(shapes))
    some = [f"{name}{draw(arrays(dims, list(mesh)))}" for name, dims in zip("ABCDEFGH", given_dims, strict=False)]
    name = "A" if len(some) == 1 else "O"
    text = " · ".join(some) + f" → {name}{draw(arrays(result, list(mesh)))}"
    sizes = {dim: math.prod(mesh.values()) for dim in sorted(set("".join((*given_dims, result))))}
    return Case(text, Mesh.of(mesh), sizes)


@st.composite
def partial_sums(draw, ranks, meshes):
    """Partial sums over many axes, which are to be added up, and to lie on others."""
    mesh, rank = mesh_of(*draw(st.sampled_from(meshes))), draw(st.sampled_from(ranks))
    summed = draw(st.lists(st.sampled_from(list(mesh)), min_size=len(mesh) // 2, unique=True))
    given, result = draw(arrays(DIMS[:rank], sorted({*mesh} - {*summed}))), draw(arrays(DIMS[:rank], list(mesh)))
    text = f"A{given}{{U_{{{','.join(summed)}}}}} → B{result}"
    return Case(text, Mesh.of(mesh), dict.fromkeys(DIMS[:rank], math.prod(mesh.values())))


def chain_of(count):
    given_dims = [DIMS[n : n + 2] for n in range(count)]
    return (*given_dims, "I" + given_dims[-1][-1])


RESHARDS = statements([(DIMS[:rank],) * 2 for rank in range(1, 7)], [(2,) * 8, (2,) * 6, (2, 3, 4, 2, 3), (4, 6, 5)])
DEAR = st.one_of(
    RESHARDS,
    statements([("BHSE", "BHTE", "BHTD", "BHSD"), ("BST", "BTE", "BSE")], [(2, 2, 2), (4, 2, 2, 2), (2,) * 5]),
    statements([chain_of(count) for count in range(3, 9)], [(4, 2), (2, 2, 4), (2, 4, 2, 2)]),
    statements([("IJ", "JK", "IK"), ("IJK", "JKL", "IL")], [(2,) * 5, (2, 3, 2, 2, 2, 2), (2,) * 8]),
    partial_sums([1, 2, 3, 4], [(2,) * 5, (2,) * 6, (2,) * 8, (2, 3, 2, 2, 2)]),
)


def seconds_of(case, objective, topology=None):
    start = time.process_time()
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, objective=objective, topology=topology)
    plan.table()
    plan.to_json()
    return time.process_time() - start, plan


def check_seconds(case, objective):
    """The least of three: at times Python looks through what other tests have left in memory, which takes seconds."""
    took, plan = seconds_of(case, objective)
    for _ in range(2):
        if took >= SECONDS:
            took = min(took, seconds_of(case, objective)[0])
    assert took < SECONDS, f"{took:.2f} s"
    assert_schedule_legal(plan.schedule)


QKV = "Q[b_X,h_Y,s_Z,d] · K[b_X,h_Y,t,d] · V[b_X,h_Y,t,e] → O[b_X,h_Y,s_Z,e]"
SEVEN = "A[I_X,J] · B[J,K_Y] · C[K,L] · D[L,M] · E[M,N_X] · F[N,P] · G[P,R_Y] → O[I_X,R_Y]"


@pytest.mark.parametrize(
    "text, mesh",
    [
        (QKV, {"X": 2, "Y": 2, "Z": 2}),
        ("A[I_X,J] · B[J,K_Y] · C[K,L] · D[L,M_Z] → O[I_X,M]", {"X": 2, "Y": 2, "Z": 2}),
        ("R[I_AC, J_B] · T[J_A, K_DE] → S[I_BD, K_AE]", dict.fromkeys("ABCDE", 2)),
        (SEVEN, {"X": 4, "Y": 2}),
        ("A[I, J, K, L]{U_ABCDEF} → B[I_AB, J_CD, K_E, L_F]", dict.fromkeys("ABCDEF", 2)),
        ("A[I, J, K, L]{U_ABCDEFGH} → B[I_AB, J_CD, K_EF, L_GH]", dict.fromkeys("ABCDEFGH", 2)),
        ("A[I_A, J]{U_BCDEFGH} → B[I_HGF, J_EDCBA]", dict.fromkeys("ABCDEFGH", 2)),
    ],
)
def test_a_statement_is_planned_and_printed_in_two_seconds(text, mesh):
    check_seconds(Case(text, Mesh.of(mesh), {}), "time")


def test_partial_sums_on_a_slice_are_planned_in_two_seconds():
    """Of each permute's blocks it is followed where they go, with nothing known of another plan."""
    case = Case("A[I_S, J_T]{U_U} → B[I_T, J_U]", Mesh.of(mesh_of(4, 4, 4, 4)), {"I": 4096, "J": 4096})
    took = math.inf
    for _ in range(3):
        forget_all()
        took = min(took, seconds_of(case, "time", "v6e:16x16")[0])
    assert took < SECONDS, f"{took:.2f} s"


def forget_all():
    """Nothing is known of another plan, nor of the one before of the same."""
    ours = [module for name, module in sys.modules.items() if name.startswith("shardc")]
    for found in [each for module in ours for each in vars(module).values()]:
        if isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()


@pytest.mark.exhaustive
@settings(max_examples=3, deadline=None)
@given(DEAR, st.sampled_from(["time", "bytes"]))
def test_a_drawn_statement_is_planned_and_printed_in_two_seconds(case, objective):
    check_seconds(case, objective)


@pytest.mark.parametrize("axes", ["ABC", "ABCDEF", "ABCDEFGH"])
@pytest.mark.parametrize("dims", ["I", "IJ", "IJKL"])
def test_partial_sums_go_where_they_are_wanted_at_once(axes, dims):
    """By bytes, over as many axes as there are: also where scatters are too many to list."""
    onto = ", ".join(
        f"{dim}_{{{','.join(axes[place :: len(dims)])}}}" for place, dim in enumerate(dims) if axes[place:]
    )
    text = f"A[{', '.join(dims[: len(axes)])}]{{U_{axes}}} → B[{onto}]"
    mesh = dict.fromkeys(axes, 2)
    plan = shardc.plan(text, mesh=mesh, dims=dict.fromkeys(dims[: len(axes)], 256), objective="bytes")
    assert plan.cost.wire_bytes == plan.bound.wire_bytes
    assert_schedule_legal(plan.schedule)


WORSE = [  # were up to twice as dear as the program as written, once their search had ended
    ("A[I_A,J]{U_BCDEFGH} → B[I_HGF,J_EDCBA]", dict.fromkeys("ABCDEFGH", 2), "bytes"),
    ("A[I, J, K]{U_WVUTSX} → B[I, J_T, K_WSV]", dict.fromkeys("STUVWX", 2), "bytes"),
    (
        "A[I_U, J] · B[J, K_VUS] · C[K, L_TUV] · D[L_V, M_TS] · E[M, N_US] → O[I, N]",
        {"S": 2, "T": 4, "U": 2, "V": 2},
        "time",
    ),
    (
        "A[I_S, J_TV] · B[J_V, K_TU] · C[K_U, L_VTS] · D[L_U, M_TSV] · E[M, N_SV] · F[N_S, P_V] → O[I_VU, P_S]",
        {"S": 2, "T": 4, "U": 2, "V": 2},
        "time",
    ),
]


def check_no_dearer_than_written(text, mesh, dims, objective):
    plan = shardc.plan(text, mesh=mesh, dims=dims, objective=objective)
    written, cost = json.loads(plan.to_json())["as_written"], plan.cost
    if written is not None:
        figure = "time_s" if objective == "time" else "wire_bytes"
        spent, least = getattr(cost, figure), written[figure]
        assert spent <= least * (1 + 1e-9), plan.table()
    return plan


@pytest.mark.parametrize(("text", "mesh", "objective"), WORSE)
def test_what_ended_with_its_budget_is_no_dearer_than_what_is_written(text, mesh, objective):
    dims = {dim: 64 for dim in DIMS + "NOP" if f"{dim}_" in text or f"{dim}," in text or f"{dim}]" in text}
    plan = check_no_dearer_than_written(text, mesh, dims, objective)
    assert_schedule_legal(plan.schedule)
    assert_equivalent(plan, plan.program)


@pytest.mark.exhaustive
@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(DEAR, st.sampled_from(["time", "bytes"]))
def test_no_plan_is_dearer_than_what_is_written(case, objective):
    check_no_dearer_than_written(case.text, case.mesh, case.dims, objective)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("named", "given"),
    [
        ("B[I_{A,B,C}, J_{D,E,F}] = ReduceScatter_{A,B,C,D,E,F}(A)", "A[I, J]{U_ABCDEF}"),
        ("B[I_{B,A}, J_{F,E,D,C}] = ReduceScatter(A)", "A[I, J]{U_ABCDEF}"),
        ("B[I, J, K, L_{H,G,F,E,D,C,B,A}] = ReduceScatter_{H,G,F,E,D,C,B,A}(A)", "A[I, J, K, L]{U_ABCDEFGH}"),
    ],
)
def test_a_scatter_that_is_named_is_found_among_many(named, given):
    mesh = dict.fromkeys("ABCDEFGH", 2)
    plan = shardc.plan(named.replace("(A)", f"({given})"), mesh=mesh, idle="keep")
    assert [step.op for step in plan.steps] == ["ReduceScatter"]


@pytest.mark.exhaustive
@settings(max_examples=10, deadline=None, phases=[Phase.generate])  # times differ from try to try: nothing to shrink
@given(DEAR, st.sampled_from(["time", "bytes"]))
def test_many_drawn_statements_are_planned_and_printed_in_two_seconds(case, objective):
    check_seconds(case, objective)


@pytest.mark.exhaustive
@settings(max_examples=15, deadline=None)
@given(RESHARDS, st.sampled_from(["time", "bytes"]))
@example(
    Case(
        "A[d0_X, d1_{Y,Z}, d2, d3] → A[d0, d1, d2_{W,U}, d3_V]",
        Mesh.of(dict.fromkeys("UVWXYZ", 2)),
        dict.fromkeys(["d0", "d1", "d2", "d3"], 8),
    ),
    "time",
)
def test_no_reshard_is_refused_for_its_breadth(case, objective):
    """Up to eight axes and six dims; what it means is held against NumPy on small meshes elsewhere."""
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, objective=objective)
    assert_schedule_legal(plan.schedule)
    assert plan.cost.wire_bytes >= plan.bound.wire_bytes


# --- past the budget: a plan all the same, and its gap


def with_budget(units, task):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(progress, "PLAN", units)
        return task()


def assert_means_the_program(schedule):
    """NumPy on virtual devices, every device's block, against the meaning on whole arrays."""
    assert_schedule_legal(schedule)
    wholes = simulate.sample_inputs(schedule.program)
    blocks, expected = simulate.run(schedule, wholes), simulate.reference(schedule.program, wholes)
    for block, number, whole in zip(blocks, schedule.outputs, expected, strict=True):
        assert_equal_on_every_device(block, whole, schedule.values[number], schedule.mesh, bound=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.one_of(matmuls(), programs()), st.sampled_from(list(Objective)), st.sampled_from([0, 300, 3000, 30_000]))
def test_past_its_budget_a_plan_means_the_program_and_says_how_far_it_may_be(case, objective, units):
    """The gap can tell: it is the price over a bound that the cheapest plan is not below."""
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32")
    model = LinkModel.of(program.mesh, chip("v5p"))
    best = plan_program(program, model, objective)
    found = with_budget(units, lambda: plan_program(program, model, objective))
    assert_means_the_program(found.schedule)
    gaps = [statement.gap for statement in found.statements]
    if len(gaps) > 1:  # what one statement leaves is where the next begins
        return
    price = best.cost.time_s if objective is Objective.TIME else best.cost.wire_bytes
    own = found.cost.time_s if objective is Objective.TIME else found.cost.wire_bytes
    assert own >= price or math.isclose(own, price, rel_tol=1e-9)
    if gaps[0] is None:
        assert math.isclose(own, price, rel_tol=1e-9)
        return
    assert any("ended with its budget" in note for note in found.notes)
    scale = 1e12 if objective is Objective.TIME else 1
    rounded = len(best.schedule.steps) if objective is Objective.TIME else 0  # each step up, to a picosecond
    assert gaps[0].bound <= price * scale + rounded
    assert math.isclose(gaps[0].price, own * scale, rel_tol=1e-6, abs_tol=len(found.schedule.steps))


@settings(max_examples=15, deadline=None)
@given(programs(), st.sampled_from([0, 300, 3000]))
@example(Case("B[I_X, J] = A[I_?, J_?] ⊙ A", Mesh.of({"X": 2, "Y": 2}), {"I": 8, "J": 8}), 0)
@example(Case("B[I, J] = A[I_?, J_?] ⊙ (C[I_X, J] - sum_J(A ⊙ C))", Mesh.of({"X": 2, "Y": 2}), {"I": 8, "J": 8}), 300)
@example(
    Case("B[I, J_X] = A[I_?, J_?] ⊙ C[I_?, J_?] + A / C", Mesh.of({"X": 2, "Y": 2}), {"I": 8, "J": 8}), progress.PLAN
)
def test_inputs_that_are_left_open_lie_some_way(case, units):
    """As those of a backward program, whose forward part left them where it liked. One that a statement uses twice
    lies one way, also where it uses another twice, or where the search for that way ended with its budget."""
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32")
    left_open = tuple(replace(given, pattern=Pattern.free(len(given.dims))) for given in program.inputs)
    program = replace(program, inputs=left_open)
    model = LinkModel.of(program.mesh, chip("v5p"))
    assert_means_the_program(with_budget(units, lambda: plan_program(program, model, Objective.TIME)).schedule)


def test_what_only_routes_looked_at_is_proved_of_nothing():
    """A search that ends without a goal proves no price either."""
    program = shardc.parse("A[I_X, J_Y] · B[J, K_Y] → C[I, K_X]", mesh="X=2,Y=2", dims="I=8,J=8,K=8", dtype="f32")
    problem = Problem(program, LinkModel.of(program.mesh, chip("v5p")), Objective.BYTES, program.mesh.names)
    for each in (problem, problem.by_routes()):
        table = table_of(each, program.statements[0].expr)
        assert {table.proved(number) for number in table.seeds} == {0}


def test_the_gap_is_in_the_notes_the_table_and_the_json():
    text = "A[I_X, J_Y] · B[J, K_Y] → C[I, K_X]"
    plan = with_budget(0, lambda: shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=dict.fromkeys("IJK", 512)))
    (note,) = (note for note in plan.notes if "budget" in note)
    assert float(GAP.search(note)[1]) >= 1
    assert note in str(plan)
    assert note in plan.to_json()
    assert not any("budget" in note for note in shardc.plan(text, mesh={"X": 2, "Y": 2}).notes)


@pytest.mark.exhaustive
@settings(max_examples=4, deadline=None)
@given(st.one_of(RESHARDS, statements([("IJ", "JK", "IK")], [(2, 2, 2), (2, 2, 2, 2)])), st.integers(0, 20_000))
def test_the_same_budget_gives_the_same_bytes_whatever_was_planned_before(case, units):
    """Caches make a second plan quicker; work is counted as if there were none."""
    check_budget(case, units)


@pytest.mark.exhaustive
@settings(max_examples=10, deadline=None)
@given(st.one_of(RESHARDS, statements([("IJ", "JK", "IK")], [(2, 2, 2), (2, 2, 2, 2)])), st.integers(0, 20_000))
def test_many_budgets_give_the_same_bytes_whatever_was_planned_before(case, units):
    check_budget(case, units)


def check_budget(case, units):
    def once():
        return shardc.plan(case.text, mesh=case.mesh, dims=case.dims, objective="bytes").to_json()

    first = with_budget(units, once)
    once()
    assert with_budget(units, once) == first


# --- where sizes of axes share factors


@pytest.mark.instant
@settings(max_examples=30, deadline=None)
@given(reshards(max_axes=2, max_size=6, max_rank=2), st.sampled_from(list(Objective)))
def test_cut_axes_are_no_dearer_than_whole_ones_and_mean_the_same(case, objective):
    text = f"A{spelled(case.source)} → A{spelled(case.target)}"
    dims = dict(zip("IJ", case.shape, strict=False))
    program = shardc.parse(text, mesh=case.mesh, dims=dims, dtype="f32")
    model = LinkModel.of(program.mesh, chip("v5p"))
    whole, found = (plan(program, model, objective) for plan in (plan_program, plan_with_subaxes))
    if objective is Objective.BYTES:
        assert found.bound_bytes <= found.cost.wire_bytes <= whole.cost.wire_bytes
    else:
        assert found.cost.time_s <= whole.cost.time_s * (1 + 1e-9)
    assert_means_the_program(found.schedule)


def spelled(sharding):
    from shardc.ir.sharding import spell

    return spell(tuple("IJ"[: sharding.rank]), sharding)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text, mesh, dims, most",
    [
        ("A[I_X, J_Z] → A[I_Y, J]", {"X": 4, "Y": 6, "Z": 5}, {"I": 12, "J": 10}, 80),
        ("A[I_W] → A[I_X]", {"W": 2, "X": 4}, {"I": 4}, 4),  # as I0·I1: slice I1, gather I0, slice it
        ("A[I_W] → A[I_X]", {"W": 4, "X": 6}, {"I": 12}, 8),  # 36 on whole axes, 12 over X=2·3; in pieces 8
    ],
)
def test_common_factors_of_axes_are_axes_too(text, mesh, dims, most):
    plan = shardc.plan(text, mesh=mesh, dims=dims, dtype="f32", objective="bytes")
    assert plan.cost.wire_bytes == most
    assert_means_the_program(plan.schedule)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text, mesh, dims, deep",
    [
        ("A[I_X, J_Z] → A[I_Y, J]", {"X": 4, "Y": 6, "Z": 5}, {"I": 12, "J": 10}, 0),  # at its bound by routes
        ("A[I_W] → A[I_X]", {"W": 4, "X": 6}, {"I": 12}, 1),
        ("A[I_W] → A[I_X]", {"W": 4, "X": 6, "Z": 16}, {"I": 12}, 0),  # among too many devices
    ],
)
def test_what_is_at_its_bound_or_among_many_devices_is_not_searched_in_digits(monkeypatch, text, mesh, dims, deep):
    tried, methods = Finer._tried, []

    def noting(self, best, by, method=Method.SEARCH):
        methods.append(method)
        return tried(self, best, by, method)

    monkeypatch.setattr(Finer, "_tried", noting)
    shardc.plan(text, mesh=mesh, dims=dims, dtype="f32", objective="bytes")
    assert methods.count(Method.ROUTES_IN_DIGITS) == deep
    assert Method.ROUTES in methods


# --- where a mesh lies on a slice


def every_placement(sizes, shape):
    """All ways to write each size as a product of parts, one of each side, that multiply to the sides."""
    if not sizes:
        return [()] if all(side == 1 for side in shape) else []
    parts = product(*([d for d in range(1, side + 1) if side % d == 0] for side in shape))
    found = []
    for own in parts:
        if math.prod(own) == sizes[0]:
            left = tuple(side // part for side, part in zip(shape, own, strict=True))
            found += [(own, *others) for others in every_placement(sizes[1:], left)]
    return found


def quality(parts_of, wraps):
    pieces = sum(part.size < part.whole for parts in parts_of for part in parts)
    rates = [
        sum((2 if wraps[p.axis] and p.size * p.stride == p.whole else 1) / p.stride for p in parts)
        for parts in parts_of
        if parts
    ]
    return -pieces, min(rates, default=0), sum(rates)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3), st.data())
def test_a_mesh_lies_as_well_as_the_best_of_all_placements(shape, data):
    left, sizes = math.prod(shape), []
    while left > 1 and len(sizes) < 4:
        sizes.append(data.draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= sizes[-1]
    sizes.append(left)
    wraps = tuple(data.draw(st.booleans()) for _ in shape)
    every = []
    for chosen in every_placement(tuple(sizes), tuple(shape)):
        have, lie = list(shape), []
        for own in chosen:
            have = [side // part for side, part in zip(have, own, strict=True)]
            lie.append([Part(n, size, have[n], shape[n]) for n, size in enumerate(own) if size > 1])
        every.append(quality(lie, wraps))
    found = place(Mesh.of(zip("ABCDE", sizes, strict=False)), tuple(shape), wraps, {})
    assert quality(list(found.parts.values()), wraps) == pytest.approx(max(every))


def test_eight_axes_lie_on_a_large_slice_at_once():
    sizes = {"A": 2, "B": 2, "C": 4, "D": 4, "E": 4, "F": 8, "G": 8, "H": 16}
    start = time.process_time()
    place(Mesh.of(sizes), topology("v5p:64x64x64").shape, (True,) * 3, {})
    assert time.process_time() - start < 0.5
    check_seconds(Case("A[I_A, J] → A[I, J_A]", Mesh.of(sizes), {"I": 64, "J": 64}), "time")


PARTIAL = ("with axes on dims that are written with them", "each is planned after the one before")


@pytest.mark.exhaustive
def test_tables_of_many_shardings_are_not_made_and_the_plan_says_so():
    """Of rank 4 on four axes an array has 2,424 shardings: closing the table of their prices took minutes. On seven
    those without a stray are too many as well."""
    text = "T = P[i_A, j, k, l] · W[l_B, m]; R = T · V[m, n]; S[i, j, k, n_C] = R + Q[i, j, k, n]"
    for mesh, words in (
        ("A=2,B=2,C=2", ()),
        ("A=2,B=2,C=2,D=2", ("with axes on dims that are written with them",)),
        ("A=2,B=2,C=2,D=2,E=2,F=2,G=2", ("each is planned after the one before",)),
    ):
        plan = shardc.plan(text, mesh=mesh, dims=dict.fromkeys("ijklmn", 256))
        said = [words for words in PARTIAL if any(words in note for note in plan.notes)]
        assert said == [*words], (mesh, plan.notes)


def test_the_strategies_of_functions_are_counted_too(monkeypatch):
    """Sums of what lies anywhere have strategies without end: 470,000 of them took half a minute."""
    text = """mesh X=2, Y=4
    dims B=8, S=8, F=8, D=8, T=8
    t[F, T, S_?] = relu(W[F_X, T, S])
    a[F_?, T_?, S_?] = where(t > 0, dt[F, T, S_?], 0)
    dW[F_X, D, S] = ((a[F_?, D_?, S_?] + (b[F_Y, D_?] · (1 + 0 ⊙ index_S)) ⊙ V[S])
        + c[F_?, D_?, S_?] ⊙ sign(W[F_?, D_?, S_?])) + d[F_?, D_?, S_?] ⊙ sign(W[F_?, D_?, S_?])
    return dW"""
    applied = 0

    def counted(*given):
        nonlocal applied
        applied += 1
        assert applied < 3 * budget.STATEMENT // budget.APPLIED, "three statements' work"
        return called(*given)

    called = strategies._Strategies._called
    monkeypatch.setattr(strategies._Strategies, "_called", counted)
    plan = shardc.plan(text, objective="bytes", topology="v5e:2x4")
    assert applied > 1000 and plan.prove().holds
