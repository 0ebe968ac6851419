"""Tuning: what is tried, what is kept, and that it is never slower in replay than XLA's own."""

import json
import os
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import shardc
from shardc import cli
from shardc.compiled.compare import Side
from shardc.compiled.replay.timeline import Event, Timeline
from shardc.compiled.tune.plans import as_planned, by_xla, forms, has_chunks, in_chunks, plans
from shardc.compiled.tune.tuned import Tried, Tuned
from shardc.cost.allocation import Allocation
from shardc.emit.steps import local
from shardc.errors import ShardcError
from shardc.ir.legal import faults_of
from shardc.proving import Proof, Verdict
from shardc.report.tuning import Tuning

SVG = "{http://www.w3.org/2000/svg}"
TEXT, MESH = "In[B_X, D_Y] · W[D_X, F_Y] → Out[B_X, F_Y]", "X=4,Y=4"
PROVED = Proof(Verdict.PROVED, {})
FORMS = ("", "Einsum, ReduceScatter_X left to XLA", "Einsum, ReduceScatter_X as a ring")
DIMS = "B=16384,D=8192,F=16384"


def planned(**options):
    return shardc.plan(TEXT, mesh=MESH, dims=DIMS, topology="v5e:4x4", **options)


def asked(plan, **changes):
    return replace(plan._asked, **changes)


def test_plans_differ_and_are_legal():
    dims = {"I": 32768, "J": 8192, "K": 32768}
    text = "A[I_XYZ, J] · B[J, K_XYZ] → C[I_YZ, K]"  # of several ways at about one price
    plan = shardc.plan(text, mesh="X=2,Y=2,Z=4", dims=dims, topology="v5e:4x4")
    found = list(plans(plan._found, asked(plan), 4))
    assert found[0].name == "the plan" and 1 < len(found) <= 5
    assert len({tuple((step.op, step.operands) for step in each.found.schedule.steps) for each in found}) == len(found)
    assert not [fault for each in found for fault in faults_of(each.found.schedule)]
    assert len(list(plans(plan._found, asked(plan), 0))) == 1


def test_forms_are_legal_and_priced_no_higher_than_their_steps():
    plan = planned()
    (first, *_) = plans(plan._found, asked(plan), 0)
    found = [candidate for _, _, candidate in forms(first, asked(plan))]
    assert [each.how for each in found] == [
        "AllGather_Y, Einsum left to XLA",
        "AllGather_Y, Einsum as a ring",
        "AllGather_Y, Einsum in chunks",
        "AllGather_X, Einsum left to XLA",
        "AllGather_X, Einsum as a ring",
        "AllGather_X, Einsum in chunks",
        "AllGather_Y, AllGather_X, Einsum left to XLA",
        "AllGather_Y, AllGather_X, Einsum as two rings",
    ]
    assert all(not list(faults_of(each.found.schedule)) for each in found)
    in_chunks = [each for each in found if "chunks" in each.how]  # one of eight is not hidden, which may be too much
    assert all(each.predicted_s < first.predicted_s for each in found if each not in in_chunks)


ATTENTION = """s = q[B_X, T, H_Y, E] ·_E k[B_X, S, H_Y, E] / sqrt(|E|)
p = softmax_S(where(index_T >= index_S, f32(s), -inf))
o[B_X, T, H_Y, E] = bf16(p) · v[B_X, S, H_Y, E]"""


def attention(rows=2048):
    dims = {"B": 16, "T": rows, "S": rows, "H": 16, "E": 128}
    return shardc.plan(ATTENTION, mesh="X=2,Y=4", dims=dims, topology="v5e:2x4", dtype="bf16")


def test_what_has_no_room_on_the_chip_is_tried_in_chunks():
    """Of each dim that the scores have, in two counts; scores that find room are not cut."""
    plan = attention()
    uncut = [each for each in plans(plan._found, asked(plan), 4) if not has_chunks(each)]
    found = list(in_chunks(uncut[0], asked(plan)))
    assert has_chunks(next(plans(plan._found, asked(plan), 0))), "the plan has some by its price"
    assert sorted({each.how.partition(" chunks of ")[2] for each in found}) == ["B", "H", "T"]
    assert len({each.how for each in found}) == len(found) == 6 and all(map(has_chunks, found))
    assert not [fault for each in found for fault in faults_of(each.found.schedule)]
    small = attention(rows=256)
    assert not list(in_chunks(next(plans(small._found, asked(small), 0)), asked(small)))


@pytest.mark.long
@pytest.mark.tpu
def test_chunks_that_no_price_tells_apart_are_tried(tmp_path, monkeypatch):
    """In chunks of T the compiler makes one loop of the scores and their softmax, in chunks of B two."""
    pytest.importorskip("libtpu")
    monkeypatch.setenv("SHARDC_CACHE", str(tmp_path))
    tuning = attention().tune()
    by_name = {each.candidate.label: each for each in tuning.tried.tried}
    assert tuning.tried.best.candidate.how.endswith("chunks of T")
    assert tuning.tried.best.replayed_s < 0.5 * min(by_name["the plan"].replayed_s, by_name["XLA"].replayed_s)


def test_a_plan_with_something_done_as_one_is_a_candidate_as_it_is():
    plan = planned()
    [as_it_is], [*blocking] = as_planned(plan._found), as_planned(planned(overlap="off")._found)
    assert as_it_is.found.schedule == plan.schedule and plan.schedule.together and not blocking
    (steps, *_) = plans(plan._found, asked(plan), 0)
    assert as_it_is.predicted_s < steps.predicted_s
    assert as_it_is.label in [candidate.label for _, _, candidate in forms(steps, asked(plan))], "tried once"


def test_what_is_left_to_xla_is_on_the_mesh_as_given():
    plan = planned()
    whole = by_xla(plan._found, asked(plan))
    assert whole.found.schedule.by_xla and whole.found.schedule.by is None and whole.predicted_s is None


def test_the_table_and_the_json_tell_what_was_refused_and_what_is_kept():
    plan = planned()
    candidates = [*plans(plan._found, asked(plan), 0), by_xla(plan._found, asked(plan))]
    side = Side("", (), Allocation(1, 1, 2_000_000), Timeline((), (), 5 * 10**6))
    tuned = Tuned((Tried(candidates[0], PROVED, None, "too large"), Tried(candidates[1], PROVED, side)), 1)
    assert [line.split()[-1] for line in str(tuned).splitlines()[2:]] == ["refused", "kept"]
    fields = json.loads(json.dumps(tuned.to_json()))
    assert fields["kept"] == 1 and fields["candidates"][0]["refused"] == "too large"
    assert fields["candidates"][1]["replayed_s"] == 5e-6 and fields["candidates"][1]["predicted_s"] is None


def test_a_notebook_shows_each_candidate_as_a_bar_and_the_plan_that_is_kept():
    pytest.importorskip("drawsvg")
    plan = planned()
    candidates = [*plans(plan._found, asked(plan), 0), by_xla(plan._found, asked(plan))]
    line = Timeline((Event("g", "AllGather", ("X+",), 10**9, 2 * 10**9),), ("X+",), 5 * 10**9)
    side = Side("", (), Allocation(1, 1, 2_000_000), line)
    tuned = Tuned((Tried(candidates[0], PROVED, None, "too large"), Tried(candidates[1], PROVED, side)), 1)
    tuning = Tuning(plan, tuned)
    assert repr(tuning) == "<Tuning: XLA, 5.00 ms, of 2 candidates>"
    shown = tuning._repr_html_()
    assert shown.count("<svg") >= 2 and "<summary>the table</summary>" in shown and str(tuning).splitlines()[0] in shown
    root = ElementTree.fromstring(tuning.picture().svg)
    bars = [group for group in root.iter(f"{SVG}g") if group.get("data-candidate")]
    assert [bar.get("data-kept") for bar in bars] == ["false", "true"]
    assert [bar.get("data-replayed") for bar in bars] == [None, repr(5e-3)]
    assert [bar.get("data-predicted") for bar in bars] == [repr(candidates[0].predicted_s), None]
    bar, waits = (float(rect.get("width")) for rect in bars[1].iter(f"{SVG}rect"))
    assert waits == pytest.approx(bar * 2 / 5, rel=1e-3), "two of five milliseconds wait for links"
    assert "refused" in "".join(bars[0].itertext()) and ", kept" in "".join(bars[1].itertext())


def test_without_a_slice_there_is_nothing_to_tune_for():
    with pytest.raises(ShardcError, match="no slice to compile for") as caught:
        shardc.plan(TEXT, mesh=MESH, dims=DIMS, tuned=True)
    assert caught.value.code == "SHC224"


def test_a_candidate_that_is_wrong_is_told_before_it_is_compiled(monkeypatch):
    """In any form: XLA's own program is written by other code than the steps."""
    plan = planned()
    monkeypatch.setattr(local, "letters", lambda dims: dict(zip(dims, "iji", strict=False)))
    with pytest.raises(ShardcError, match="the program emitted is wrong") as caught:
        plan.tune(0)
    assert caught.value.code == "SHC900"


@pytest.mark.tpu
def test_the_command_keeps_a_module_and_tells_of_each_candidate(tmp_path, monkeypatch, capsys):
    pytest.importorskip("libtpu")
    monkeypatch.setenv("SHARDC_CACHE", str(tmp_path / "cache"))
    words = ["tune", "A[I, J_X] · B[J_X, K] → C[I_X, K]", "--mesh", "X=4", "--topology", "v5e:2x2", "--few", "0"]
    module = tmp_path / "kept.py"
    assert cli._status([*words, "--dims", "I=512,J=512,K=512", "--json", "-o", str(module)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["tuned"]
    times = {(each["plan"], each["form"]): each["replayed_s"] for each in found["candidates"]}
    assert {*times} == {("the plan", form) for form in FORMS} | {("XLA", "")}
    assert {each["proof"] for each in found["candidates"]} == {"proved"}
    assert min(times.values()) == found["candidates"][found["kept"]]["replayed_s"] <= times["XLA", ""]
    assert "def program(A, B)" in module.read_text(encoding="utf-8")
    assert all(line.startswith("… compiling ") for line in err.splitlines())


@pytest.mark.long
@pytest.mark.tpu
def test_what_is_kept_is_never_slower_than_xla(tmp_path, monkeypatch):
    pytest.importorskip("libtpu")
    monkeypatch.setenv("SHARDC_CACHE", str(tmp_path))
    said, before = [], os.fstat(2)

    def say(line):
        assert os.path.samestat(os.fstat(2), before), "progress is not caught with what the compilers write"
        said.append(line)

    tuning = planned().tune(0, say)
    by_name = {each.candidate.label: each for each in tuning.tried.tried}
    blocking, xla = by_name["the plan"], by_name["XLA"]
    kept = tuning.tried.best
    assert kept.replayed_s <= xla.replayed_s < 0.85 * blocking.replayed_s
    # Two rings at once bring a share into its place first: 4 steps over an axis of 4 where a gather takes 3. What they
    # hold is two shares of each operand: no more than one gathered operand.
    assert kept.side.wire_bytes <= 4 / 3 * blocking.side.wire_bytes
    assert kept.side.memory.temporary_bytes < 1.01 * blocking.side.memory.temporary_bytes
    assert kept.candidate.label != "XLA", "of equals the one whose steps are known"
    assert said[0] == "compiling 1 of 3: the plan" and len(said) == len(tuning.tried.tried) == len(by_name)
    assert tuning.plan.notes[-1].startswith("tuned: the plan, AllGather")
    assert json.loads(tuning.plan.to_json())["notes"] == [*tuning.plan.notes]
    made = len(list(tmp_path.iterdir()))
    assert planned().tune(0).tried.to_json() == tuning.tried.to_json()
    assert len(list(tmp_path.iterdir())) == made, "nothing is compiled twice"
    compared = tuning.plan.compare()
    assert compared.ours.timeline.step_s == kept.replayed_s
    assert compared.theirs.timeline.step_s == xla.replayed_s, "what is tried as XLA's is what jax.jit alone makes"
