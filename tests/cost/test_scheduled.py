"""The orders that the compiler may take: each a legal one, of the same steps."""

import pytest

import shardc
from shardc.cost.held_up import multiplies
from shardc.cost.inside import Inside
from shardc.cost.on_chip import brought_early
from shardc.cost.scheduled import Rings, orders_early, orders_of_least
from shardc.ir.mesh import Mesh
from shardc.lowering.fusion import readers_of

FEED_FORWARD = "Tmp[B_X, F] = In[B_X, D] · Win[D_X, F]; Out[B_X, D] = relu(Tmp) · Wout[F, D_X]"
SIZES = {"B": 16384, "D": 8192, "F": 32768}


@pytest.fixture(scope="module")
def block():
    program = shardc.parse(FEED_FORWARD, mesh={"X": 8}, dims=SIZES, topology="v5e:2x4", dtype="bf16")
    return shardc.plan(shardc.grad(program, whole=True)).schedule.block


def of_least(block):
    """With what is computed where it is read, and so makes no array."""
    sizes = [array.local_bytes(Mesh.of({"X": 8})) for array in block.values]
    return list(orders_of_least(block, Inside.of(block, block.steps, readers_of(block.steps), 12, ()), sizes))


def test_every_order_makes_what_it_reads_before(block):
    early, least = list(orders_early(block, {}, Rings())), of_least(block)
    assert len(early) == len(least) == 3
    for steps in (*early, *least):
        there = set(block.inputs)
        for step in steps:
            assert there.issuperset(step.operands)
            there.update(step.results)
        assert there.issuperset(block.outputs) and len({step.results for step in steps}) == len(steps)


def test_weights_are_gathered_first_and_outputs_come_last(block):
    *_, steps = orders_early(block, {}, Rings())
    assert [step.name for step in steps[:2]] == ["AllGather", "AllGather"]
    assert all(set(step.results) <= set(block.outputs) for step in steps[-2:])
    _, plain, turned = of_least(block)
    assert plain[-1].name == turned[-1].name == "ReduceScatter"


def test_what_leaves_least_in_memory_comes_first():
    """Both large arrays of B and F are made first as the text has it: one after the other, where each is summed at
    once."""
    text = "a[B, F] = x[B, D] · W[D, F]; b[B, F] = x · V[D, F]; c[B] = sum_F(gelu(a)); d[B] = sum_F(gelu(b))"
    text += "; e[D, F] = x · a; g[D, F] = x · b; return c, d, e, g"
    program = shardc.parse(text, mesh={"X": 8}, dims={"B": 64, "D": 4, "F": 64}, dtype="bf16")
    block = shardc.plan(program, idle="keep").schedule.block
    steps, *_ = of_least(block)
    names = [block.values[step.result].name for step in steps]
    assert not names.index("a") < names.index("b") < max(names.index("c"), names.index("e"))
    assert not names.index("b") < names.index("a") < max(names.index("d"), names.index("g"))


def test_of_equals_what_most_steps_read_comes_first():
    """Beside a both e and g take as much: g is read twice, e by the caller alone."""
    text = "a[B, F] = x[B, D] · W[D, F]; e[B, F] = a ⊙ a; g[B, F] = exp(a); c[B, F] = g ⊙ a; d[B, F] = g - c"
    program = shardc.parse(text + "; return e, d", mesh={"X": 8}, dims={"B": 64, "D": 4, "F": 64}, dtype="bf16")
    block = shardc.plan(program, idle="keep").schedule.block
    steps, *_ = of_least(block)
    names = [block.values[step.result].name for step in steps]
    assert names.index("a") < names.index("g") < names.index("e")


def test_what_is_computed_where_it_is_read_gives_back_what_that_reads():
    """`x · W` is computed with the sum: it gives back `p · M`, and so comes before `q`, which gives back nothing."""
    text = "s[B, F] = x[B, D] · W[D, F] + p[B, R] · M[R, F]; q[B, F] = softmax_F(y[B, F]); return q, s"
    program = shardc.parse(text, mesh={"X": 8}, dims={"B": 64, "D": 4, "F": 64, "R": 4}, dtype="bf16")
    block = shardc.plan(program, idle="keep").schedule.block
    steps, *_ = of_least(block)
    assert [block.values[step.result].name for step in steps][-1] == "q"


def test_one_gather_is_under_way_at_a_time():
    """As compiled for v5e: W, V beside `x · W`, then U beside `h · V`; all three first would be held all along."""
    text = "h[B_X, F] = x[B_X, D] · W[D_X, F]; g[B_X, D] = h · V[F_X, D]; y[B_X, F] = g · U[D_X, F]; return y"
    program = shardc.parse(text, mesh={"X": 8}, dims={"B": 65536, "D": 4096, "F": 8192}, topology="v5e:2x4")
    *_, steps = orders_early(shardc.plan(program).schedule.block, {}, Rings())
    names = [step.name for step in steps]
    assert names == ["AllGather", "AllGather", "Einsum", "AllGather", "Einsum", "Einsum"]


def test_what_is_multiplied_by_elements_is_not_brought_early():
    """`x ⊙ r` reads x where it lies; of what products read W is the largest."""
    text = "n[B, D] = x[B, D] ⊙ r[B]; y[B, F] = n · W[D, F]; return y"
    program = shardc.parse(text, mesh={"X": 8}, dims={"B": 4096, "D": 1024, "F": 1024}, topology="v5e:2x4")
    block = shardc.plan(program, idle="keep").schedule.block
    sizes = [array.local_bytes(Mesh.of({"X": 8})) for array in block.values]
    assert block.values[brought_early(block, sizes, 2**27)].name == "W"


def test_an_array_under_other_dims_is_multiplied_by_elements():
    """T is seen as S: no dim is summed, so that it is no product, beside which a gather would be sent."""
    text = "n[B_X, T] = relu(x[B_X, T]); z[B_X, S] = n[B_X, S] ⊙ u[B_X, S]; return z, n"
    plan = shardc.plan(text, mesh="X=8", dims="B=8,T=16,S=16", topology="v5e:2x4")
    *_, last = plan.schedule.steps
    assert last.name == "Einsum" and last.seen and not multiplies(last, plan.schedule.values)


def test_what_waits_for_a_value_comes_after_it(block):
    """Without, the second gather is taken first; so it is where it reads through a barrier."""
    gathers = [step for step in block.steps if step.name == "AllGather"]
    product = next(step for step in block.steps if gathers[0].result in step.operands)
    *_, steps = orders_early(block, {gathers[1].result: {product.result}}, Rings())
    assert steps.index(product) < steps.index(gathers[1])


def test_what_rings_add_up_is_there_all_at_once():
    """Both gradients of the weights are rings: their partial products come before the products that read the weights
    last, and their sums after all."""
    text = "Tmp[B_X, F_Y] = In[B_X, D_Y] ·_D Win[D_X, F_Y]; Out[B_X, D_Y] = relu(Tmp) ·_F Wout[F_Y, D_X]"
    dims = {"B": 8192, "D": 8192, "F": 32768}
    program = shardc.parse(text, mesh={"X": 4, "Y": 2}, dims=dims, topology="v5e:2x4", dtype="bf16")
    schedule = shardc.plan(shardc.grad(program, whole=True)).schedule
    rings = Rings.of(schedule)
    assert {schedule.values[value].name for value in rings.end} == {"dWin", "dWout"}
    *_, steps = orders_early(schedule.block, {}, rings)
    places = {value: place for place, step in enumerate(steps) for value in step.results}
    begin, end = ([places[value] for value in values] for values in (rings.begin, rings.end))
    weights = {steps[places[value]].name for value in places if max(begin) < places[value] < min(end)}
    assert "Einsum" in weights and max(begin) < min(end) and max(end) == len(steps) - 1
