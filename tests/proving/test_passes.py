"""What each pass leaves is what the one before it left, for every value, on all devices: for every form there is."""

import ast
from collections import Counter
from dataclasses import replace
from itertools import combinations, islice
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings

import shardc
from shardc.emit.allowed import BARRIER
from shardc.emit.text.source import source
from shardc.ir.collectives import AllReduce, AllToAll, Slice
from shardc.ir.plan import Apply, Einsum, How
from shardc.ir.sharding import MAX, MIN, SUM
from shardc.lowering import tpu
from shardc.lowering.as_one import may_be_cut
from shardc.lowering.forms import Gathered, Looped, OneForm, Pieces, Plain, PlainMove, Scattered
from shardc.lowering.lower import lower
from shardc.lowering.scatters import Along
from shardc.lowering.together import all_of, apart, candidates
from shardc.pipeline import codes_of, wrong_after
from shardc.proving.faults import Fault
from shardc.proving.passes import InSmall, wrong_of_code, wrong_of_forms, wrong_of_plan, wrong_of_program
from shardc.testing import backward_programs, loops, matmuls, mixed_programs, partial_programs, programs, reshards

ROWS, COLUMNS = "A[I, J_X] · B[J_X, K] → C[I_X, K]", "A[I, J_X] · B[J_X, K] → C[I, K_X]"
VECTOR = "A[I, J_X] · B[J_X] → C[I_X]"
WHOLE = "A[I, J_XYZ] · B[J_XYZ, K] → C[I_XZY, K]"
BOTH, EACH = "A[I, J_XY] · B[J_XY, K] → C[I_X, K_Y]", "A[I, J_XYZ] · B[J_XYZ, K] → C[I_Z, K_YX]"
ADDED = "T = C[I, K] + A[I, J_X] · B[J_X, K]; S[I, K_X] = T + D[I, L_X] · E[L_X, K]"
AGAIN = """W[D, F] = AllGather(W[D_X, F]); Y[B, F] = A[B, D] · W[D, F]
W[D, F] = AllGather(W[D_X, F]); Z[B, F] = C[B, D] · W[D, F]"""
LOOP = "for L { x[B_X, D] = relu(x[B_X, D] · W[L, D, E_X] ·_E V[L, E_X, D]) }; return x"
DOWN = "for -L { x[B] = exp(x[B] ⊙ W[L, B_X]); S[L, B] = x }"
TWO = "H[B_Y, F_X] = In[B_Y, D_X] · V[D_Y, F_X]; G = gelu(H); Out[B_Y, D_X] = G · W[F_X, D_Y]"
FOUR, EIGHT, THREE = ("X=4", "v5p:2x2x1"), ("X=8", "v5p:2x2x2"), ("X=2,Y=2,Z=2", "v5p:2x2x2")
MET = "G[I_X, J] = AllGather_Y(A[I_X, J_Y]); H[J, K_Y] = AllGather_X(B[J_X, K_Y]); C[I_X, K_Y] = G · H"
TWO_BY_FOUR = ("X=2,Y=4", "v5e:2x4")
CASES = {  # a text, its mesh and slice, dims
    "a slice and a sum": ("A[I, J_X] · B[J_X, K] → C[I_X, K]", ("X=2,Y=2", None), {}),
    "two operands gathered": (MET, ("X=2,Y=4", None), {}),
    "an exchange": ("A[I_X, J] → A[I, J_X]", ("X=4", None), {}),
    "a thin exchange": ("A[I_X, J] → A[I, J_X]", ("X=4", None), {"I": 4, "J": 4096}),
    "a permute": ("A[I_XY, J] → A[I_YX, J]", ("X=2,Y=4", None), {}),
    "a permute of partial sums": ("A[I_XY, J]{U_Z} → A[I_YX, J]{U_Z}", ("X=2,Y=2,Z=2", None), {}),
    "pieces in turns": ("A[I_X, J_Y] → A[I_YX, J]", ("X=2,Y=2", None), {}),
    "a gather of two dims": ("A[I_X, J_Y] → A[I, J]", ("X=2,Y=4", None), {}),
    "pieces to the front": ("A[I_YX, J] → A[I, J_XY]", ("X=2,Y=4", None), {}),
    "other axes": ("A[I_X] → A[I_Y]", ("X=2,Y=3", None), {}),
    "other axes, as large": ("A[I_X] → A[I_Y]", ("X=3,Y=3", None), {"I": 3}),
    "pieces of unequal sizes": ("A[I_X, J_Y] → A[I_Y, J_X]", ("X=2,Y=3", None), {}),
    "partial sums": ("A[I, J]{U_X} → A[I, J_X]", ("X=4", None), {}),
    "partial sums that stay": ("A[I, J]{U_XY} → A[I, J]{U_Y}", ("X=2,Y=2", None), {}),
    "a softmax across devices": ("S[B_X, T_Y] = softmax_T(A[B_X, T_Y])", ("X=2,Y=2", None), {}),
    "a minimum across devices": ("S[B] = min_T(A[B, T_Y])", ("Y=4", None), {}),
    "positions": ("A[I] = index_I >= 3; C[I_X] = A", ("X=2", None), {}),
    "digits": ("A[I_XY, J_Z] → A[I_ZY, J_X]", ("X=4,Y=2,Z=2", None), {}),
    "a digit's elements as rows": ("A[I, J_XY] → A[I_X, J]", ("X=4,Y=2", "v5p:2x2x2"), {"I": 4096, "J": 8192}),
    "a finer mesh": ("T[I_?, K_?] = A[I, J_X] · B[J, K_X]; Out[I] = max_K(T)", ("X=4", None), {"I": 2, "J": 8, "K": 4}),
    "a loop": (LOOP, ("X=2", None), {"L": 3}),
    "a loop the other way round": (DOWN, ("X=2", None), {"L": 3}),
    "a move that is done again": (AGAIN, ("X=4", None), {}),
    "one copy among zeros": (ADDED, ("X=2", None), {}),
    "stacked": (COLUMNS, FOUR, {"I": 260, "J": 2048, "K": 256}),
    "folded": (VECTOR, FOUR, {"I": 8192, "J": 2048}),
    "turned": (ROWS, FOUR, {"I": 8192, "J": 2048, "K": 16}),
    "turned, and apart": (COLUMNS, FOUR, {"I": 512, "J": 2048, "K": 256}),
    "exchanged": (ROWS, FOUR, {"I": 12, "J": 2048, "K": 5}),
    "in rounds": (WHOLE, THREE, {"I": 128, "J": 2048, "K": 256}),
    "in rounds, stacked": (WHOLE, THREE, {"I": 1032, "J": 2048, "K": 130}),
    "two dims": (BOTH, TWO_BY_FOUR, {"I": 128, "J": 2048, "K": 1024}),
    "two dims, exchanged": (BOTH, TWO_BY_FOUR, {"I": 8, "J": 2048, "K": 12}),
    "two dims, in rounds": (EACH, THREE, {"I": 128, "J": 2048, "K": 1024}),
    "in parts": (ROWS, EIGHT, {"I": 128, "J": 2048, "K": 256}),
    "in parts, folded": (VECTOR, EIGHT, {"I": 16384, "J": 2048}),
}  # fmt: skip
GATHERED_IN_PARTS = "A[I_X, J] · B[J_X, K] → C[I_X, K]", EIGHT, {"I": 4096, "J": 64, "K": 48}
OTHER = {SUM: MAX, MAX: SUM, MIN: MAX}
SETTINGS = settings(
    max_examples=3, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
DRAWN = [matmuls(), programs(), reshards(), partial_programs(), loops(), backward_programs(), mixed_programs()]


def planned(text, slice_, dims):
    """What `wrong_after` takes."""
    mesh, topology = slice_
    plan = shardc.plan(text, mesh=mesh, dims=dims, dtype="f32", topology=topology, objective="bytes", idle="keep")
    return text, shardc.parse(text, mesh=mesh, dims=dims, dtype="f32"), plan.schedule, plan.chip


def in_every_form(schedule, most=99):
    """As it is, each product with collectives beside it as one, and all of it left to XLA."""
    yield schedule
    for ordered, group in islice(candidates(schedule), most):
        yield replace(ordered, together=(group,))
    if may_be_cut(schedule):
        yield replace(schedule, by_xla=True)


def wrong(text, unsized, schedule, chip, most=99):
    return [fault for each in in_every_form(schedule, most) for fault in wrong_after(text, unsized, each, chip)]


LONG = ("in parts, folded", "folded")


@pytest.mark.instant
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive if name in LONG else ()) for name in CASES]
)
def test_every_pass_leaves_what_the_one_before_it_left(name):
    assert wrong(*planned(*CASES[name])) == []


def test_a_gather_over_a_part_of_an_axis_after_another(monkeypatch):
    """Of large slices; here already of eight devices."""
    monkeypatch.setattr(tpu, "is_not_gathered_over", lambda axes, target: target.is_all(axes))
    text, unsized, schedule, chip = planned(*GATHERED_IN_PARTS)
    assert any(isinstance(form, Gathered) and form.rounds[0].split for form in lower(schedule).forms)
    assert wrong(text, unsized, schedule, chip) == []


# --- several groups at once: a program is cut before and behind what is left to XLA

BESIDE = [
    # T is the same on all devices along X, and is so no more if a ring makes it: as an output of its part it has to be
    "G[J, K] = AllGather_X B[J, K_X]; T[I, K] = A[I, J] · G; H[K, L_X] = AllGather_Y D[K_Y, L_X]; C[I, L_X] = T · H",
    "G[J, K] = AllGather_X B[J, K_X]; T[I_Y, K] = A[I_Y, J] · G; H[K, L] = AllGather_Y D[K, L_Y]; C[I, L] = T · H",
    # gathered again behind what is left to XLA, by which the program is cut
    """B[J, K] = AllGather(B[J_X, K]); T[I_Y, K] = A[I_Y, J] · B[J, K]; H[K, L] = AllGather_X D[K_X, L]
    C[I_Y, L] = T · H; E[I_Y, J] = C · F[L, J]; B[J, K] = AllGather(B[J_X, K]); R[I_Y, K] = E · B[J, K]""",
]


def in_pairs(schedule):
    """Each two groups that have no step in common."""
    for pair in combinations(candidates(schedule), 2):
        if len(apart(pair, lambda each: each)) == 2:
            yield all_of(schedule, pair)


@pytest.mark.instant
@pytest.mark.parametrize("text", BESIDE)
def test_two_groups_at_once(text):
    """Legal, emitted, and what the steps mean; what is gathered again stays so, wherever the program is cut."""
    text, unsized, schedule, chip = planned(text, ("X=2,Y=2", None), dict.fromkeys("IJKL", 8))
    again, barriers, cut = len(lower(schedule).again), source(schedule, chip).count(BARRIER), 0
    for each in in_pairs(schedule):
        cut += any(group.how is How.PARTITIONER for group in each.together)
        assert list(wrong_after(text, unsized, each, chip)) == []
        assert len(lower(each).again) == again and source(each, chip).count(BARRIER) >= barriers
    assert cut, "some program is cut"


def test_a_ring_whose_result_would_cross_a_cut_is_left_out():
    """T is one array for all devices along X where it crosses; a ring leaves each its own."""
    _, _, schedule, _ = planned(BESIDE[0], ("X=2,Y=2", None), dict.fromkeys("IJKL", 8))
    ring, *others = (each for each in candidates(schedule) if each[1].how is How.RING)
    windows = [each for each in candidates(schedule) if each[1].how is How.PARTITIONER]
    found = [all_of(schedule, pair) for pair in ((ring, each) for each in windows) if len(apart(pair, tuple)) == 2]
    assert not others and [[group.how for group in each.together] for each in found] == [[How.PARTITIONER]]


def drawn(case):
    options = {"mesh": case.mesh, "dims": case.dims, "dtype": "f32"}
    plan = shardc.plan(case.text, objective="bytes", **options)
    assert wrong(case.text, shardc.parse(case.text, **options), plan.schedule, plan.chip, most=2) == []


@pytest.mark.parametrize("strategy", DRAWN, ids=str)
def test_every_pass_of_what_is_drawn(strategy):
    SETTINGS(given(strategy)(drawn))()


@pytest.mark.exhaustive
@pytest.mark.parametrize("strategy", DRAWN, ids=str)
def test_every_pass_of_much_that_is_drawn(strategy):
    settings(SETTINGS, max_examples=10)(given(strategy)(drawn))()


# --- the cases have every form


def kinds(schedule):
    """What a form is told apart by."""
    lowering = lower(schedule)
    yield from (group.how for group in schedule.together)
    yield from ["left to XLA"] * schedule.by_xla + ["a finer mesh"] * (schedule.by is not None)
    yield from of_forms(lowering)


def of_forms(lowering):
    yield from ["once more"] * bool(lowering.again)
    for form in lowering.forms:
        yield type(form)
        match form:
            case Plain(op):
                yield type(op)
            case Gathered():
                yield from (
                    ["rows"] * (form.rows is not None) + ["equal"] * form.to_equal + ["laid"] * (len(form.parts) > 1)
                )
            case Scattered(stages):
                yield from (stage.along for stage in stages)
                yield from ["in rounds" for stage in stages if len(stage.rounds) > 1]
                yield from ["part of an axis" for stage in stages if stage.rounds[0].split]
                yield from ["dim by dim"] * (len(stages) > 1)
            case Looped(body):
                yield from of_forms(body)


def test_the_cases_have_every_form():
    found = Counter()
    for case in CASES.values():
        _, _, schedule, _ = planned(*case)
        for each in in_every_form(schedule):
            found.update(kinds(each))
    every = {*get_args(OneForm), Looped, Einsum, Apply, *get_args(PlainMove), *How, *Along}
    every |= {"left to XLA", "a finer mesh", "once more", "rows", "equal", "laid"}
    every |= {"in rounds", "part of an axis", "dim by dim"}
    assert every - {*found} == set()


# --- and each is seen to fail


def test_a_wrong_program_is_seen():
    """Axes of the mesh in the names of others mean the same; an operand that is another, not."""
    _, unsized, schedule, _ = planned("A[I, J_X] · B[J_X, K] → C[I, K]", ("X=2", None), {})
    small, sized = InSmall.of(schedule), unsized.with_sizes(dict(schedule.program.sizes))
    other = shardc.parse("A[I, J_X] · A[I, J_X] → T[J_X]; T[J_X] · B[J_X, K] → C[K]", mesh="X=2")
    assert [*wrong_of_program(small, sized, sized)] == []
    assert [*wrong_of_program(small, other.with_sizes(dict(schedule.program.sizes)), sized)] != []


def without_last_step(schedule):
    *kept, last = schedule.steps
    return replace(schedule, block=replace(schedule.block, steps=tuple(kept), outputs=last.operands[:1]))


def test_a_wrong_plan_is_seen():
    _, _, schedule, _ = planned("A[I_X, J] → B[I_X, J]; C[I_X, J] = relu(B[I_X, J])", ("X=2", None), {})
    assert [*wrong_of_plan(InSmall.of(schedule))] == []
    assert any(
        "is not what the program means" in fault for fault in wrong_of_plan(InSmall.of(without_last_step(schedule)))
    )


def changed_forms(form):
    """Each way to have a form a little otherwise that leaves other values."""
    match form:
        case Gathered(axes, dim, rounds, parts):
            turned = tuple(replace(each, axes=each.axes[::-1]) for each in rounds)
            yield from [replace(form, rounds=turned)] if len(axes) > 1 else []
            yield replace(form, rounds=())
            yield from [replace(form, parts=parts[:1])] if len(parts) > 1 else []
            yield from [replace(form, rounds=rounds[::-1])] if len(rounds) > 1 else []
        case Scattered(stages):
            for n, stage in enumerate(stages):
                others = [replace(stage, rounds=stage.rounds[:-1])]
                others += [replace(stage, rounds=stage.rounds[::-1])] if len(stage.rounds) > 1 else []
                yield from (replace(form, stages=(*stages[:n], other, *stages[n + 1 :])) for other in others)
        case Plain(AllReduce(axes, reduction)):
            yield Plain(AllReduce(axes[:-1], reduction) if len(axes) > 1 else AllReduce(axes, OTHER[reduction]))
        case Plain(AllToAll(axes, source, dim)) | Pieces(AllToAll(axes, source, dim)):
            yield replace(form, op=AllToAll(axes, dim, source))
        case Plain(Slice(axes, dim)):
            yield from [Plain(Slice(axes[::-1], dim))] if len(axes) > 1 else []
        case Looped(body):
            for n, inner in enumerate(body.forms):
                for other in changed_forms(inner):
                    yield Looped(replace(body, forms=(*body.forms[:n], other, *body.forms[n + 1 :])))


def test_wrong_forms_are_seen():
    """Of every case, and of its steps, each form that is a little otherwise."""
    tried, survived = 0, []
    for name, case in CASES.items():
        _, _, schedule, _ = planned(*case)
        right, small = lower(schedule), InSmall.of(schedule)
        for n, form in enumerate(right.forms):
            for other in changed_forms(form):
                lowering = replace(right, forms=(*right.forms[:n], other, *right.forms[n + 1 :]))
                tried += 1
                survived += [] if is_wrong(small, lowering) else [(name, other)]
    assert tried >= 30 and survived == []


def is_wrong(small, lowering):
    """Some value is another, or the shapes do not fit."""
    try:
        return bool([*wrong_of_forms(small, lowering)])
    except (AssertionError, ValueError, IndexError):
        return True


def test_wrong_code_is_seen():
    """Each line that makes a value left out: the variable has what it had, or nothing."""
    for name in (
        "a slice and a sum",
        "pieces in turns",
        "pieces of unequal sizes",
        "two dims",
        "a loop",
        "partial sums",
    ):
        _, _, schedule, _ = planned(*CASES[name])
        (code,), small = codes_of(schedule), InSmall.of(schedule)
        assert [*wrong_of_code(small, [code])] == []
        tree = ast.parse(code.text)
        for n, line in enumerate(tree.body):
            text = ast.unparse(ast.Module([*tree.body[:n], *tree.body[n + 1 :]], []))
            try:
                found = [*wrong_of_code(small, [replace(code, text=text)])]
            except (Fault, KeyError, AssertionError, TypeError):
                continue
            assert found or "pcast" in ast.unparse(line), (name, ast.unparse(line))
