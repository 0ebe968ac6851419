"""The books' worked problems about sharding and the cost of collectives, through the public interface."""

import json
import math
from pathlib import Path

import pytest

import shardc
from shardc.cost import chip

ENTRIES = json.loads((Path(__file__).parents[1] / "data" / "costs.json").read_text(encoding="utf-8"))
SIZES = {"I": 4096, "J": 4096}


def planned(given):
    options = {
        name: given[name] for name in ("dims", "mesh", "dtype", "chip", "wraparound", "formula") if name in given
    }
    text = given["expr"] if "->" in given["expr"] else f"{given['expr']} -> {given['expr']}"
    return shardc.plan(text, **options)


def time_of(given):
    return planned(given).cost.time_s


def time_ratio(given, first, second, **options):
    """The times of two reshards, by a single collective each."""
    options = {"mesh": given["mesh"], "formula": given.get("formula", "exact"), "dims": SIZES} | options
    one, other = (shardc.plan(text, **options) for text in (first, second))
    assert len(one.steps) == len(other.steps) == 1
    return one.cost.time_s / other.cost.time_s


def gather_over_scatter(given):
    """Bytes of gathering A, over bytes of reducing and scattering C; both leave C[N, K_X]."""
    plan = shardc.plan("A[N, M_X] · B[M, K] → C[N, K_X]", objective="bytes", **given)
    by_moves = {
        tuple(step.op for step in other.steps if step.op not in ("Einsum", "Slice")): other.wire_bytes
        for other in plan.statements[0].alternatives
    }
    return by_moves["AllGather",] / by_moves["ReduceScatter",]


def all_reduce_bytes(given):
    return shardc.plan(
        "A[I]{U_X} → A[I]", mesh={"X": given["W"]}, dims={"I": given["D"]}, dtype="int8", objective="bytes"
    ).cost.wire_bytes


ANSWERS = {
    "memory-per-device": lambda given: planned(given).inputs[0].bytes,
    "memory-all-devices": lambda given: planned(given).inputs[0].bytes * math.prod(given["mesh"].values()),
    "replication-ratio": lambda given: (
        planned(given).inputs[0].bytes
        * math.prod(given["mesh"].values())
        / (2 * math.prod(planned(given).dims.values()))
    ),
    "latency-threshold-v5e": lambda given: chip(given["chip"]).link_bandwidth * chip(given["chip"]).hop_latency,
    "gather-vs-scatter-ratio": gather_over_scatter,
    "alltoall-ratio": lambda given: time_ratio(given, "A[I_X, J] → A[I, J]", "A[I_X, J] → A[I, J_X]"),
    "alltoall-ratio-oneway": lambda given: time_ratio(
        given, "A[I_X, J] → A[I, J]", "A[I_X, J] → A[I, J_X]", wraparound="X=one-way"
    ),
    "reducescatter-is-allgather-transpose": lambda given: time_ratio(
        given, "A[I, J]{U_X} → A[I_X, J]", "A[I_X, J] → A[I, J]"
    ),
    "allreduce-is-twice": lambda given: time_ratio(given, "A[I, J]{U_X} → A[I, J]", "A[I_X, J] → A[I, J]"),
    "ring-allreduce-traffic": all_reduce_bytes,
}


@pytest.mark.instant
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_the_books_answer(entry):
    answer = ANSWERS.get(entry["id"], time_of)(entry["inputs"])
    assert answer == pytest.approx(entry["expect"], rel=entry["rtol"] or 1e-12), entry.get("note", "")


def test_all_entries_are_there():
    assert len(ENTRIES) == 17
