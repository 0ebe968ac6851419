"""What of f32 is sent and multiplied as bf16 is priced so, where a slice is named."""

import pytest

import shardc
from shardc.cost.cheaper import beside_products, narrow
from shardc.cost.formulas import evaluate
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter
from shardc.ir.plan import every_step
from shardc.lowering.rounded import NARROW, as_kept
from shardc.planner.planned import settled

MESH, SIZES = {"X": 2, "Y": 4}, {"I": 4096, "J": 2048, "K": 4096, "L": 2048, "N": 4}
SLICES = ("v5e:2x4", "v5p:2x2x2")
GATHERED = "C[I_X, K] = A[I_X, J] · B[J_X, K]"
FORWARD = "T[I_X, K_Y] = x[I_X, L] ·_L A[L_X, K_Y]; C[I_X, L] = relu(T) ·_K B[K_Y, L_X]"
LAYERS = "for N { T[I_X, K_Y] = x[I_X, L] ·_L A[N, L_X, K_Y]; x = x + gelu(T) ·_K B[N, K_Y, L_X] }"
SEVERAL = "D[J, K] = relu(B[J_X, K]); C[I_X, K] = A[I_X, J] · D; E[L_Y, K] = G[L_Y, J] · D"


def planned(text, topology="v5e:2x4", sizes=SIZES, **options):
    given = {"mesh": MESH, "dims": sizes, "topology": topology, "dtype": "f32", "overlap": "off", "idle": "keep"}
    return shardc.plan(text, **(given | options))


def trained(text, topology):
    program = shardc.parse(text, mesh=MESH, dims=SIZES, topology=topology, dtype="f32")
    return shardc.plan(shardc.grad(program, whole=True), overlap="off", idle="keep")


ON_BOTH = [
    pytest.param(text, topology, marks=pytest.mark.exhaustive if n > 1 else ())
    for n, text in enumerate(
        [
            GATHERED,
            LAYERS,
            FORWARD,
            SEVERAL,
            "C[I_X, K] = A[I_X, J_Y] · B[J_X, K]",  # both gathered
            "C[I, K_X] = A[I_X, J] · B[J, K]",
            "C[I_X, K] = A[I, J_X] · B[J_X, K]",  # sums stay wide
            "D[J_X, K] = B[J, K]{U_X}; E = D[J, K]; C[I_X, K] = A[I_X, J] · E",  # one sum with its gather
            "D[J, K] = B[J_X, K]; C[I_X, K] = A[I_X, J] · D; F[J, K] = relu(D)",  # read by others as well
            "D[I, K_X] = A[I_X, J] · B[J, K]; C[I, L_X] = D · G[K, L_X]",
        ]
    )
    for topology in SLICES
]


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize(("text", "topology"), ON_BOTH)
def test_a_program_in_f32_is_replayed_as_it_is_priced(text, topology):
    """Priced by the bytes of the text they took 0.58 to 0.83 of it."""
    plan = planned(text, topology)
    assert plan.verify().replayed.step_s == pytest.approx(plan.cost.time_s, rel=0.12)


@pytest.mark.tpu
@pytest.mark.parametrize("sizes", [(8192, 8192, 8192), (16384, 1024, 8192)])
@pytest.mark.parametrize("topology", SLICES)
def test_a_product_in_f32_takes_longer_where_no_operand_is_held(sizes, topology):
    """Two of 256 MiB on v5e took 1.67 times as long as one of 32 MiB and as many operations."""
    plan = planned("C[I, K] = A[I, J] · B[J, K]", topology, dict(zip("IJK", sizes, strict=True)))
    assert plan.verify().replayed.compute_s == pytest.approx(plan.cost.compute_s, rel=0.09)


def test_a_move_costs_half_where_products_round_and_the_bytes_of_the_text():
    wide, plan = planned(f"{GATHERED}; F = B - 1; G[J, K] = F"), planned(GATHERED)
    gather, product = plan.schedule.steps
    assert gather.cost.wire_bytes == gather.cost.as_written.wire_bytes == wide.steps[0].wire_bytes
    rounding = "(4·J·K/X) / W_read_f32 + 2·J·K/X / W_write + 2·J·K/X / W_alone"
    assert gather.cost.formula == f"2·J·K·(X-1)/X / W_X + {rounding}"
    assert product.cost.formula == "2·I·J·K/X / C_f32·1.00873245287855 + T_product"
    assert planned(GATHERED, None, chip="v5e").schedule.steps[0].cost.as_written is None
    assert planned(GATHERED, formula="book").schedule.steps[0].cost.as_written is None


@pytest.mark.instant
@pytest.mark.parametrize("text", [GATHERED, FORWARD, LAYERS, SEVERAL, "C[I_Y, K_X] = A[I, J_XY] · B[J_X, K]"])
@pytest.mark.parametrize("topology", SLICES)
def test_each_step_says_how_its_time_is_made_and_once_more_changes_nothing(text, topology):
    plan = planned(text, topology, SIZES | {"I": 65536, "K": 16384})
    again = settled(plan.schedule, plan._asked.model.on(plan.schedule.by))
    assert [step.cost for step in again.steps] == [step.cost for step in plan.schedule.steps]
    for step in plan.steps:
        assert evaluate(step.formula, plan.symbols) == pytest.approx(step.time_s, rel=1e-6, abs=1e-12), step


@pytest.mark.parametrize("text", [FORWARD, SEVERAL, pytest.param(LAYERS, marks=pytest.mark.exhaustive)])
def test_what_is_priced_as_sent_narrow_is_kept_so(text):
    """What the search takes for it before the steps are known is made good where they are."""
    block = trained(text, "v5p:2x2x2").schedule.block
    for done, lies in zip(every_step(block), every_step(as_kept(block)), strict=True):
        if not done.step.op.facts.communicates:
            continue
        cost, is_narrow = done.step.cost, lies.block.values[lies.step.result].dtype == NARROW
        sent = done.block.values[done.step.operands[0]].dtype.bytes
        assert sent == 4 and cost.formula.replace("2·4·", "4·").startswith("2·" if is_narrow else "4·")
        assert cost.as_written is None or is_narrow == (cost.time_s < cost.as_written.time_s)


def test_only_moves_that_sum_nothing_are_narrow():
    model = planned(GATHERED)._asked.model
    less = narrow(model)
    assert narrow(model) is less and less.symbols() == model.symbols()
    for move in (AllGather(("X",), 0), AllToAll(("X",), 0, 1), CollectivePermute(("X",), ())):
        assert less.rate(move).s_per_byte == model.rate(move).s_per_byte / 2
    for move in (AllReduce(("X",)), ReduceScatter(("X",), 0)):
        assert less.rate(move) == model.rate(move)


def test_the_formula_of_what_is_sent_narrow_says_so_and_of_what_is_hidden_nothing():
    plan = planned("A[I_X, J_Y] → A[I, J]")
    model, array = plan._asked.model, plan.schedule.values[0]
    less, beside = narrow(model), beside_products(model)
    moves = (AllGather(("X",), 0), AllToAll(("X",), 0, 1), AllReduce(("X",)), ReduceScatter(("X",), 0))
    for move, is_less in zip(moves, (True, True, False, False), strict=True):
        for each in (model, less):
            seconds = each.emitted(move, None, array.sharding).seconds(array.local_bytes(model.mesh))
            assert evaluate(each.formula(move, array), plan.symbols) == pytest.approx(seconds, rel=1e-6)
        assert (less.formula(move, array) != model.formula(move, array)) == is_less
        assert beside.formula(move, array) == model.formula(move, array)
