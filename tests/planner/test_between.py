"""Prices between shardings, as the tables of whole programs have them, beside paths of single moves."""

import math

import networkx as nx
import numpy as np
import pytest

import shardc
from shardc.cost.copied import copy_cost, laid_cost
from shardc.interface.hardware import Hardware
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum
from shardc.ir.sharding import Array
from shardc.lowering.forms import Laid
from shardc.planner import Objective
from shardc.planner.options import Options
from shardc.planner.problem import Problem
from shardc.planner.statement.copies import waiting
from shardc.planner.whole import prices
from shardc.planner.whole.arrays import Entity, Lying
from shardc.planner.whole.nodes import Known, Nodes
from shardc.planner.whole.prices import NEVER, Scale
from shardc.planner.whole.spaces import spaces_of
from shardc.rules.moves import moves

MESH, DIMS = "X=2,Y=2,Z=2", ("I", "J")
SHARE, APART, OTHER = "a share", "what becomes an output by a copy", "what is one as it is"


def nodes_of(topology, is_typed):
    """An array as tables of a program have it, and its nodes."""
    program = shardc.parse("A[I, J] → B[I, J]", mesh=MESH, dims="I=4096, J=8192", topology=topology)
    model = Hardware().model(program)
    problem = Problem(program, model, Objective.TIME, program.mesh.names, Options(is_typed=is_typed))
    spaces = spaces_of(program, program.mesh.names)
    search = problem.search(program.inputs[0])
    entity = Entity(search, "A", DIMS, search.dtype, frozenset(MESH), 1, spaces.within(DIMS))
    return entity, Nodes(Scale.of(Objective.TIME, 1 << 40, 1 << 30), spaces, Known())


def paths_of(entity, is_typed):
    """Edges from (sharding, what came last) to the next, in picoseconds: a share that a collective reads is cut out,
    one Slice after another is one, and what has become an output may be copied."""
    search, found = entity.search, nx.DiGraph()
    model, mesh = search.model, search.graph.mesh
    for number in entity.states.numbers:
        before = search.graph.shardings[number]
        block = Array("A", DIMS, search.shape, before, search.dtype)
        cut, copied = (
            cost.time_s * 1e12 for cost in (laid_cost(Laid.SHARE, block, model, 0), copy_cost(block, model, 0))
        )
        for move in moves(before, mesh, mesh.names, is_typed):
            time, end = model.emitted(move, None, before).time_ps(block.local_bytes(mesh)), move.leaves(before)
            is_share, is_apart = move.facts.kind is Kind.SLICE, model.leaves_output_apart(move, len(DIMS))
            kind = SHARE if is_share else APART if is_apart else OTHER
            for last in (SHARE, APART, OTHER):
                paid = cut if last is SHARE and not is_share else 0
                found.add_edge((before, last), (end, kind), weight=time + paid)
        for last in (SHARE, APART, OTHER):
            found.add_edge((before, last), (before, "read"), weight=0)
            found.add_edge((before, last), (before, "output"), weight=0 if last is OTHER else copied)
    return found


@pytest.mark.parametrize("topology", ["v5p:2x2x2", "v5e:2x4"])
@pytest.mark.parametrize("is_typed", [False, True])
def test_tables_know_what_is_cut_out_and_what_is_copied(topology, is_typed, monkeypatch):
    """From every sharding to every other, to be read there and to be an output: as the least of all paths."""
    monkeypatch.setattr(prices, "_add_routes", lambda *_: None)  # whole axes alone, as moves have them
    entity, nodes = nodes_of(topology, is_typed)
    every = [entity.search.graph.shardings[number] for number in entity.states.numbers]
    paths, places = paths_of(entity, is_typed), np.arange(len(every))
    output = Lying(0, places, 1, nodes._copied(entity, places), is_output=True)
    read = nodes.between(entity)
    given = nodes._with_more(read, entity, output, output.more)
    off = []
    for at, before in enumerate(every):
        least = nx.single_source_dijkstra_path_length(paths, (before, OTHER))
        for to, after in enumerate(every):
            for table, end in ((read, "read"), (given, "output")):
                wanted, found = least.get((after, end)), int(table[at, to])
                if wanted is None or found >= NEVER:
                    assert wanted is None and found >= NEVER, (before, after, end)
                elif not math.isclose(wanted, nodes.scale.first(found), abs_tol=20):  # each step a picosecond
                    off.append((str(before), str(after), end, wanted / 1e6, nodes.scale.first(found) / 1e6))
    assert not off, (len(off), off[:10])


ON_V5P = {"mesh": MESH, "dims": "B=16384, D=16384, H=8192", "topology": "v5p:2x2x2", "dtype": "bf16"}
PRODUCTS = "".join(f"{name}[B_Z, H_X] = {{0}} · W{name}[D_Z, H_X]\n" for name in "QKV") + "return Q, K, V"
BROUGHT = [
    "x[B_Z, D_Y] = In[B_Z, D_X]\n" + PRODUCTS.format("x"),
    "x[B_Z, D_Y] = In[B_Z, D_X]\n"
    + "".join(f"w{name}[D_Y, H_X] = W{name}[D_Z, H_X]\n{name}[B_Z, H_X] = x · w{name}\n" for name in "QKV")
    + "return Q, K, V",
]


def test_whole_blocks_go_to_an_idle_axis_where_the_compiler_sends_them_beside_products():
    """7,412 µs; 8,002 of the plan that gathers and slices, by tables that know of no permute beside a product."""
    free = shardc.plan(PRODUCTS.format("In[B_Z, D_X]"), **ON_V5P)
    moved = [(step.axes, step.operands[0][:2]) for step in free.steps if step.op == "CollectivePermute"]
    assert moved == [(("X", "Y"), "In"), (("Y", "Z"), "WQ"), (("Y", "Z"), "WK"), (("Y", "Z"), "WV")]
    assert [shardc.plan(text, **ON_V5P).cost for text in BROUGHT] == [free.cost, free.cost]


def test_in_a_loop_they_do_not_go():
    """What a loop takes has to say along which axes it is equal."""
    texts = (
        "z[I_Y, J] = x[I_X, J]; return z",
        "for L { x[I_X, J] = relu(x[I_X, J] + y[L, I_X, J]) }; z[I_Y, J] = x; return z",
    )
    given = {"mesh": "X=2,Y=2", "dims": "I=4096, J=8192", "topology": "v5p:2x2x1"}
    plans = shardc.plan(texts[0], **given), shardc.plan(texts[1], **given | {"dims": f"{given['dims']}, L=4"})
    assert ["CollectivePermute" in {step.op for step in plan.steps} for plan in plans] == [True, False]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "rows", "waits"),
    [
        ("b[J, K] = B[J_X, K]; C[I_X, K] = A[I_X, J] · b", 4096, True),  # b is as large as a part of A
        ("b[J, K] = B[J_X, K]; C[I_X, K] = A[I_X, J] · b", 4092, False),
        ("a[I, J] = A[I_X, J]; C[I, K_X] = a · B[J, K_X]", 256, False),
        ("a[I, J] = A[I_X, J]; C[I, K_X] = a · B[J, K_X]", 252, True),
        ("b[J, K] = B[J, K] + B; C[I_X, K] = A[I_X, J] · b", 4096, False),  # nothing was sent
    ],
)
def test_a_product_waits_for_the_smaller_operand_and_of_two_as_large_for_the_second(text, rows, waits):
    schedule = shardc.plan(
        text, mesh="X=4", dims={"I": rows, "J": 512, "K": 1024}, chip="v5p", dtype="bf16", idle="keep", overlap="off"
    ).schedule
    found = [schedule.steps[place].op for place in waiting(schedule.steps, 0, schedule.values, schedule.mesh)]
    assert len(found) == waits and all(isinstance(op, Einsum) for op in found)
