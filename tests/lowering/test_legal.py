"""What is legal of a lowering: every row holds of every plan's, and finds what is planted for it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import shardc
from shardc.ir.collectives import AllReduce, AllToAll
from shardc.ir.plan import How, Together
from shardc.lowering.forms import Gathered, InOneRound, InRounds, Looped, Pieces, Plain, Scattered
from shardc.lowering.legal import LOWERING, faults_of_lowering
from shardc.lowering.lower import lower
from shardc.lowering.scatters import Along, Round
from shardc.testing import backward_programs, loops, mixed_programs, partial_programs, programs

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "proving"))  # before lowering, which has a test_passes of its own
from bench_memory import named, sizes_on
from test_lower import plans
from test_passes import CASES, in_every_form, planned

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.shard"))
LARGE = "llama.shard"  # takes long to plan


def faults(schedule):
    return [*map(str, faults_of_lowering(schedule, lower(schedule)))]


@pytest.mark.parametrize("name", CASES)
def test_every_form_is_legal(name):
    _, _, schedule, _ = planned(*CASES[name])
    for each in in_every_form(schedule):
        assert faults(each) == []


@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=pytest.mark.exhaustive if path.name == LARGE else ()) for path in EXAMPLES],
)
def test_every_example_on_a_slice_is_legal(path, topology):
    _, text, axes = named(path)
    plan = shardc.plan(text, mesh=sizes_on(topology, axes), topology=topology)
    assert faults(plan.schedule) == []


@settings(max_examples=40, deadline=None)
@given(plans())
def test_what_is_drawn_is_legal(plan):
    for each in in_every_form(plan.schedule, most=4):
        assert faults(each) == []


DRAWN = [programs(), partial_programs(), loops(), backward_programs(), mixed_programs()]


@pytest.mark.parametrize("strategy", DRAWN, ids=str)
@pytest.mark.parametrize("topology", [None, "v5e"], ids=str)
def test_what_is_drawn_of_programs_is_legal(strategy, topology):
    @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def legal(case):
        slice_ = {} if topology is None else {"topology": f"{topology}:{case.mesh.devices}"}
        for each in in_every_form(shardc.plan(case.text, mesh=case.mesh, dims=case.dims, **slice_).schedule, most=2):
            assert faults(each) == []

    legal()


# --- and each row is seen to find what is planted for it


def with_form(change, kind):
    """A lowering whose first form of a kind, in a loop's body too, is another."""

    def planted(schedule, lowering):
        forms = [*lowering.forms]
        place = next(n for n, form in enumerate(forms) if isinstance(form, kind))
        return schedule, replace(lowering, forms=(*forms[:place], change(forms[place]), *forms[place + 1 :]))

    return planted


def on_form(kind, **changed):
    return with_form(lambda form: replace(form, **changed), kind)


def on_stage(**changed):
    return with_form(lambda form: Scattered((replace(form.stages[0], **changed), *form.stages[1:])), Scattered)


def in_body(planted):
    def within(schedule, lowering):
        place = next(n for n, form in enumerate(lowering.forms) if isinstance(form, Looped))
        loop, forms = schedule.steps[place].op, [*lowering.forms]
        forms[place] = Looped(planted(schedule.inside(loop), forms[place].body)[1])
        return schedule, replace(lowering, forms=tuple(forms))

    return within


def on_lowering(**changed):
    return lambda schedule, lowering: (schedule, replace(lowering, **changed))


def without_a_form(schedule, lowering):
    return schedule, replace(lowering, forms=lowering.forms[:-1])


def on_other_target(schedule, lowering):
    return schedule, replace(lowering, target=replace(lowering.target, sides=(16,), generation="v5e"))


def as_one(*groups):
    return lambda schedule, lowering: (replace(schedule, together=tuple(Together(*each) for each in groups)), lowering)


def turned(form):
    return Scattered(tuple(replace(stage, rounds=stage.rounds[::-1]) for stage in form.stages))


PRODUCT = ("A[I, J] · B[J, K] → C[I, K]", ("X=2", None), {})
SUM = ("A[I]{U_X} → A[I]", ("X=2,Y=2", None), {})
GATHER = ("A[I_XY, J] → A[I, J]", ("X=2,Y=2", None), {})
SCATTER, ROUNDS = CASES["partial sums"], CASES["in rounds"]
SMALL = (SCATTER[0], SCATTER[1], {"I": 4, "J": 4})
AGAIN, LOOP, FEED = CASES["a move that is done again"], CASES["a loop"], CASES["two operands gathered"]
MASK = ("M = index_T >= index_S; P[B_X, T, S] = where(M, A[B_X, T, S], 0)", ("X=8", "v5e:2x4"), {})
PLANTED = {  # a row: what is planted, in the lowering of which case
    "target": [(PRODUCT, on_other_target), (LOOP, in_body(on_other_target))],
    "forms": [
        (PRODUCT, without_a_form),
        (LOOP, in_body(without_a_form)),
        (LOOP, with_form(lambda _: Gathered((), 0, (), ((0, ()),)), Looped)),
        (SUM, with_form(lambda _: Gathered(("X",), 0, (Round(("X",)),), ((0, ("X",)),)), Plain)),
        (SUM, on_form(Plain, op=AllReduce(("X", "Y")))),
        (GATHER, on_form(Gathered, dim=1)),
        (GATHER, on_form(Gathered, axes=("Y", "X"))),
        (SCATTER, on_stage(dims=((0, ("X",)),))),
        (CASES["pieces of unequal sizes"], with_form(lambda form: InOneRound(form.op), InRounds)),
        (CASES["pieces to the front"], with_form(lambda form: Pieces(AllToAll(("X",), 0, 1)), Pieces)),
    ],
    "about": [
        (PRODUCT, on_form(Plain, terms="I")),
        (PRODUCT, on_form(Plain, terms="L")),
        (PRODUCT, on_form(Plain, twice=2)),
        (PRODUCT, on_form(Plain, terms="J", turned=True)),
        (PRODUCT, on_form(Plain, by_product=True)),
        (SUM, on_form(Plain, unasked=True)),
        (PRODUCT, on_form(Plain, wide=99)),
        (MASK, on_form(Plain, wide=0)),
    ],
    "again": [
        (AGAIN, on_lowering(again=())),
        (AGAIN, on_lowering(again=((0, None),))),
        (AGAIN, lambda schedule, lowering: (schedule, replace(lowering, again=lowering.again * 2))),
        (AGAIN, on_lowering(again=((2, 99),))),
        (PRODUCT, on_lowering(again=((0, None),))),
    ],
    "calls": [
        (GATHER, on_form(Gathered, rounds=(Round(("X", "Q")),))),
        (GATHER, on_form(Gathered, rounds=(Round(("X",)),))),
        (SMALL, on_stage(rounds=(Round(("X",)),) * 3)),
    ],
    "blocks": [
        (GATHER, on_form(Gathered, rounds=(Round(("X",)), Round(("Y",))))),
        (GATHER, on_form(Gathered, rows=3)),
        (SCATTER, on_stage(along=Along.FOLDED)),
        (SCATTER, on_stage(along=Along.APART)),
        (SCATTER, on_stage(left_out=(0,))),
        (ROUNDS, with_form(turned, Scattered)),
    ],
    "together": [
        (FEED, as_one((0, 9, How.RINGS))),
        (FEED, as_one((0, 2, How.RINGS), (1, 2, How.RING))),
        (FEED, as_one((1, 2, How.RINGS))),
        (FEED, as_one((0, 2, How.RING))),
        (FEED, as_one((0, 2, How.CHUNKS))),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("row", "case", "planted"), [(row, *each) for row, some in PLANTED.items() for each in some])
def test_a_row_finds_what_is_planted(row, case, planted):
    """It alone is asked, and it is the first of the table that finds anything."""
    _, _, schedule, _ = planned(*case)
    lowering = lower(schedule)
    assert [*LOWERING[row](schedule, lowering)] == []
    broken = planted(schedule, lowering)
    found = [*LOWERING[row](*broken)]
    assert found and [*faults_of_lowering(*broken)] == found


def test_every_row_is_seen_to_fail():
    assert PLANTED.keys() == LOWERING.keys()
