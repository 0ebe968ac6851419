"""Plans compiled by the TPU's compiler, with no TPU: predicted beside compiled."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib import util
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner

import shardc
from shardc import cli
from shardc.machines import tpu

pytest.importorskip("libtpu")

pytestmark = pytest.mark.tpu

ROOT = Path(__file__).parents[2]
SIZES = {"I": 2048, "J": 4096, "K": 2048}
EXHAUSTIVE = pytest.mark.exhaustive
MATMUL = "A[I, J_X] · B[J_X, K] → C[I_X, K]"


def bench():
    spec = util.spec_from_file_location("bench_verify", ROOT / "tests/benchmark/bench_verify.py")
    module = util.module_from_spec(spec)
    sys.modules["bench_verify"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("plans", (4, pytest.param(20, marks=pytest.mark.long)))
def test_random_plans_are_compiled_as_planned(plans):
    verified = [case.plan().verify() for case in bench().cases(plans, seed=1)]
    exact = [abs(v.compiled_bytes - v.predicted_bytes) <= 0.01 * v.predicted_bytes for v in verified]
    ratios = [v.predicted_memory.total_bytes / v.compiled_memory.total_bytes for v in verified]
    assert sum(exact) >= 0.95 * len(exact)
    assert sum(abs(ratio - 1) <= 0.1 for ratio in ratios) >= 0.9 * len(ratios)
    for v in verified:  # an exception has a name
        assert v.agrees or all(match.agrees or match.rewrite for match in v.steps)


@pytest.mark.parametrize(
    "count", (8, pytest.param(24, marks=pytest.mark.exhaustive), pytest.param(400, marks=pytest.mark.long))
)
def test_collectives_of_any_rank_are_compiled_as_planned(count):
    """Also of dims of one element on a device, and of what products leave, which lay otherwise in one of sixty."""
    assert not [case for case in bench().collectives(count, seed=count) if not case.plan().verify().agrees]


@pytest.mark.parametrize("count", (6, pytest.param(40, marks=pytest.mark.exhaustive)))
def test_moves_of_digits_are_compiled_as_planned(count):
    assert not [case for case in bench().uneven(count, seed=count) if not case.plan().verify().agrees]


@pytest.mark.parametrize("count", (6, pytest.param(40, marks=pytest.mark.exhaustive)))
def test_given_sums_are_scattered_as_planned(count):
    """Whatever reads them: of 80 six were summed whole, those along a first dim that an exchange read next."""
    assert not [case for case in bench().sums(count, seed=count) if not case.plan().verify().agrees]


@pytest.mark.parametrize(
    ("text", "mesh", "dims", "topology"),
    [
        ("A[B, C, D, E_X]{U_Y} → A[B, C, D, E_XY]", "X=2,Y=4", "B=8,C=16,D=512,E=1024", "v5e:2x4"),
        ("R[B_X, C, D, E]{U_Y} → S[B_XY, C, D, E]; S → T[C, B_XY, D, E]", "X=2,Y=2", "B=16,C=8,D=128,E=256", "v5e:2x2"),
        ("A[B, D_YZ]{U_X} → A[B_ZX, D_Y]", "X=2,Y=4,Z=2", "B=256,D=2048", "v5e:4x4"),
        ("A[B, D_X]{U_Y} → A[B, D]", "X=8,Y=2", "B=2048,D=256", "v5p:2x2x4"),
        ("A[B, D_X] · W[D, F_YX] → C[B_Y, F_X]", "X=8,Y=2", "B=512,D=2048,F=1024", "v5e:4x4"),
        ("A[B, D_Y]{U_X} → A[B, D_X]", "X=2,Y=8", "B=4096,D=256", "v5e:4x4"),
        ("A[B, D_YX] · W[D_X, F] → C[B_YX, F]", "X=8,Y=2", "B=4096,D=4096,F=256", "v5e:4x4"),
        (
            "H[B_Y, F_X] = In[B_Y, D_X] · W1[D_Y, F_X]; G = gelu(H); Out[B_Y, D_X] = G · W2[F_X, D_Y]",
            "X=8,Y=2",
            "B=512,D=4096,F=2048",
            "v5e:4x4",
        ),
    ],
)
def test_what_reads_a_scatter_does_not_make_it_a_sum(text, mesh, dims, topology):
    """Each was an AllReduce and a slice, since what reads the share would have had its dims in another order."""
    plan = shardc.plan(text, mesh=mesh, dims=dims, topology=topology, dtype="bf16")
    assert plan.verify().agrees and "with_layout_constraint(" in plan.source()


@pytest.mark.parametrize("text", ["A[I_Z, J_Y] · B[J_YX, K] → C[I_YXZ, K]", "A[I, J_ZXY] · B[J_XY, K] → C[I_YX, K]"])
def test_small_shares_in_digits_are_scattered_behind_products(text):
    """Of shares of 1 × 8 × 256, as they are, the compiler made sums."""
    options = {"mesh": "X=2,Y=2,Z=2", "topology": "v5p:2x2x2", "dtype": "bf16", "objective": "bytes"}
    assert shardc.plan(text, dims={"I": 64, "J": 128, "K": 256}, **options).verify().agrees


@pytest.mark.long
@pytest.mark.parametrize("number", (2, pytest.param(4, marks=pytest.mark.long)))
def test_reshards_take_at_most_twice_their_size(number):
    """In temporaries, of the larger of input and output: of sixteen by bytes one may take more."""
    topology = f"v5p:{number}x{number}x{number}"
    drawn = [c for c in bench().cases(120, seed=2) if "·" not in c.text and c.topology == topology][:16]
    plans = [replace(case, options=case.options | {"objective": "bytes"}).plan() for case in drawn]
    memory = [plan.verify().compiled_memory for plan in plans if plan.steps]
    over = [m for m in memory if m.temporary_bytes > 2.001 * max(m.argument_bytes, m.output_bytes)]
    assert len(memory) > 11 and len(over) <= 1


@pytest.mark.parametrize(
    ("text", "mesh", "dims", "topology"),
    [
        ("A[I_XY, J] → A[I, J_X]", "X=64,Y=4", "I=8192,J=8192", "v5p:4x8x8"),
        ("A[I, J_YZX] → A[I_YZ, J]", "X=4,Y=4,Z=4", "I=4096,J=16384", "v5p:4x4x4"),
    ],
)
def test_exchanges_onto_a_digit_keep_their_lanes(text, mesh, dims, topology):
    plan = shardc.plan(text, mesh=mesh, dims=dims, topology=topology, dtype="bf16", objective="bytes")
    memory = plan.verify().compiled_memory
    assert memory.temporary_bytes <= 2.01 * max(memory.argument_bytes, memory.output_bytes)


@pytest.mark.parametrize(
    ("text", "dims", "most"),
    [
        ("A[I, J_ZYX] → A[I_YZ, J]", {"I": 8192, "J": 8192}, 1.51),
        ("A[I, J_YX] → A[I_Y, J]", {"I": 8192, "J": 4096}, 1.26),
    ],
)
def test_a_gather_along_the_last_digit_has_whole_tiles(text, dims, most):
    """As rows of what is above; with the digit above as a dim of its own it took 2.5 times the size, and 1.5."""
    plan = shardc.plan(text, mesh="X=4,Y=4,Z=4", dims=dims, topology="v5p:4x4x4", dtype="bf16", objective="bytes")
    assert plan.steps[-1].op == "Reshape" and plan.steps[-2].op == "AllGather"
    memory = plan.verify().compiled_memory
    assert memory.temporary_bytes <= most * max(memory.argument_bytes, memory.output_bytes)


# Where buffers are placed in order of time, and the largest first would reach less far, as it is taken to be.
LESS = {("A[I_XY, J] → A[I, J_X]", "v5p:2x2x2"): 0.857}


@pytest.mark.parametrize(
    ("text", "dims", "topology", "objective"),
    [
        ("A[I, J, K_XY] → A[I, J, K_Z]", "I=1024,J=2048,K=512", "v5p:2x2x2", "time"),  # gathered turned, then sliced
        ("A[B_ZY, I, J] · W[B, J_ZX, K_Y] → C[B_YX, I, K_Z]", "B=64,I=1024,J=1024,K=2048", "v5p:2x2x2", "time"),
        ("A[I_YX, J_Z] → A[I, J_XY]", "I=2048,J=8192", "v5p:4x4x4", "time"),  # gathered from where it arrived
        ("A[I_XZ, J_Y, K] → A[I, J_YZ, K]", "I=2048,J=1024,K=1024", "v5p:2x2x2", "bytes"),  # and not, of three dims
        ("A[I, J_ZYX] → A[I_ZX, J_Y]", "I=2048,J=4096", "v5p:4x4x4", "bytes"),  # pieces of half their lanes
        ("A[I_X, J_Z] · W[J_Z, K_XY] → C[I, K]", "I=8192,J=2048,K=2048", "v5p:4x4x4", "bytes"),  # copied to reshape
        ("A[I_XY, J] → A[I, J_X]", "I=8192,J=8192", "v5p:2x2x2", "bytes"),  # 0.857: see LESS
        ("A[I, J_XY] → A[I_X, J]", "I=8192,J=8192", "v5p:2x2x2", "bytes"),  # made flat before it is gathered by rows
        ("A[I, J_X, K_Y] → A[I, J, K_YX]", "I=512,J=1024,K=1024", "v5p:4x4x4", "bytes"),  # lanes along the joined dim
        ("A[I, J, K_YX] → A[I, J_X, K]", "I=16,J=1024,K=4096", "v5p:4x4x4", "bytes"),  # joined in memory, then gathered
        ("A[I_X, J] → B[I, J]; C[I_X, J] → D[I, J]", "I=4096,J=4096", "v5p:2x2x2", "bytes"),  # each copied at the end
        ("A[I_X, J] → B[I, J_X]; C[I_X, J] → D[I, J_X]", "I=4096,J=4096", "v5p:2x2x2", "bytes"),  # and so exchanged
        (  # but not of three dims, which are turned
            "A[I_X, J, K] → B[I, J, K_X]; C[I_X, J, K] → D[I, J, K_X]",
            "I=256,J=256,K=256",
            "v5p:2x2x2",
            "bytes",
        ),
    ],
)
def test_no_less_memory_is_promised_than_is_taken(text, dims, topology, objective):
    """Between 0.43 and 0.91 of it were, when copies were taken to lie on the chip or in the output's room; where a
    smaller share is promised today, that is pinned."""
    mesh = dict.fromkeys("XYZ", int(topology[4]))
    found = shardc.plan(text, mesh=mesh, dims=dims, topology=topology, dtype="bf16", objective=objective).verify()
    least = LESS.get((text, topology), 0.94)
    assert least <= found.predicted_memory.total_bytes / found.compiled_memory.total_bytes <= 1.1


ATTENTION = (
    "P[B_X, T, S] = softmax_S(Q[B_X, T, E] ·_E K[S, E]); O[B_X, T, E] = P ·_S V[S, E]",
    "P[B_X, H, T, S] = softmax_S(Q[B_X, T, H, E] ·_E K[B_X, S, H, E]); O[B_X, T, H, E] = P ·_S V[B_X, S, H, E]",
)
MLP = "h[B_X, F] = x[B_X, D] · W[D, F]; y[B_X, D] = relu(h) · V[F, D]"
GATED = """
n = x[B_X, D] ⊙ rsqrt(mean_D(square(x)) + 1e-6) ⊙ g[D]
y[B_X, D] = x + (silu(n ·_D W[D_X, F_Y]) ⊙ (n ·_D V[D_X, F_Y])) ·_F U[F_Y, D_X]
"""


@pytest.mark.parametrize(
    ("text", "backward", "dims", "mesh", "topology"),
    [
        (MLP, True, "B=65536,D=2048,F=8192", "X=8", "v5e:2x4"),  # 1.8: dV first, then dh in the place of h
        (MLP, True, "B=65536,D=2048,F=8192", "X=8", "v5p:2x2x2"),
        (GATED, True, "B=8192,D=4096,F=14336", "X=2,Y=4", "v5p:2x2x2"),  # 1.06: depth first
        (ATTENTION[0], True, "B=32,T=2048,S=2048,E=128", "X=8", "v5p:2x2x2"),
        (ATTENTION[1], True, "B=32,T=1024,S=1024,H=16,E=128", "X=8", "v5p:2x2x2"),  # batched: not in their place
        (  # 1.17: what was added up where a product left it is scaled in the place of an output
            "h[B_X, F_Y] = A[B_X, D] · W[D, F_Y]; y[B_X, E] = (h ⊙ rsqrt(mean_F(square(h)))) · V[F_Y, E]",
            False,
            "B=32768,D=8192,F=16384,E=8192",
            "X=2,Y=4",
            "v5e:2x4",
        ),
        pytest.param(  # 1.17: what is multiplied by elements lies as what it reads, and becomes an output there
            "h[B_X, F] = A[B_X, D_Y] · W[D_Y, F]; r[B_X] = max_F(h); n = h ⊙ r; m[B_X] = max_F(n); y = n - m",
            False,
            "B=32768,D=8192,F=16384",
            "X=2,Y=4",
            "v5e:2x4",
            marks=pytest.mark.xfail(reason="1.125: what the second maximum reads is promised beside h", strict=True),
        ),
        (  # 0.8: W is on the chip, and what is made of its product in memory
            "h[B_X, F_Y] = A[B_X, D] · W[D, F_Y]; y[B_X, F_Y] = softmax_F(neg(h))",
            False,
            "B=32768,D=8192,F=16384",
            "X=4,Y=4",
            "v5e:4x4",
        ),
    ],
)
def test_what_is_computed_with_a_product_lies_where_it_was_seen_to(text, backward, dims, mesh, topology):
    program = shardc.parse(text, dims=dims, mesh=mesh, topology=topology, dtype="bf16")
    found = shardc.plan(shardc.grad(program, whole=True) if backward else program).verify()
    assert 0.99 <= found.predicted_memory.total_bytes / found.compiled_memory.total_bytes <= 1.01


@pytest.mark.long
def test_of_rings_that_add_up_all_partial_products_are_promised():
    """Of a feed-forward block with its gradients, both rings at once: 0.52 of it were promised when they took turns."""
    text = (ROOT / "examples/mlp.shard").read_text(encoding="utf-8")
    program = shardc.parse(text, dims={"B": 8192, "D": 8192, "F": 32768}, topology="v5e:2x4")
    found = shardc.plan(shardc.grad(program, whole=True)).verify()
    assert 0.8 <= found.predicted_memory.total_bytes / found.compiled_memory.total_bytes <= 1.1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("example", "times", "topology", "mesh"),
    [
        ("tensor_parallel", 4, "v5e:4x4", {"Y": 16}),  # 3.0: of each collective over part of an axis 64 KiB
        pytest.param(
            "zero_1", 32, "v5p:2x2x2", {"X": 8}, marks=EXHAUSTIVE
        ),  # 0.85: three gathers' copies, made at once
        pytest.param("hybrid_sharding", 32, "v5e:4x4", {"P": 4, "X": 4}, marks=pytest.mark.long),  # 0.85: beside a ring
    ],
)
def test_outputs_that_are_gathered_lie_beside_what_others_need(example, times, topology, mesh):
    assert 0.94 <= promised_of_gradients(example, times, topology, mesh) <= 1.1


@pytest.mark.long
@pytest.mark.parametrize(
    ("example", "mesh"),
    [
        ("causal_attention", {"data": 2, "model": 4}),  # 1.25: y was to be made first, as the text has it
        pytest.param(
            "llama_layer",
            {"data": 2, "model": 4},
            marks=pytest.mark.xfail(reason="0.91: in order of time the heap reaches further", strict=True),
        ),
        ("zero_3", {"X": 8}),
    ],
)
def test_small_arrays_take_as_much_as_is_promised_with_gradients(example, mesh):
    """Depth first, and what functions leave on the chip; of the largest example 96 MB, of the smallest 76. The first
    is at 1.106: 4 MB of what two slices are read for find room on the chip."""
    assert 0.94 <= promised_of_gradients(example, 32, "v5p:2x2x2", mesh) <= 1.11


def promised_of_gradients(example, times, topology, mesh):
    """Over what is compiled, of an example with its gradients, every dim of more than 8 so many times as large."""
    text = (ROOT / f"examples/{example}.shard").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(mesh|chip|topology) .*$", "", text)
    line = re.search(r"(?m)^dims .*$", text)[0]
    larger = re.sub(r"\d+", lambda size: str(int(size[0]) * (times if int(size[0]) > 8 else 1)), line)
    program = shardc.parse(text.replace(line, larger), mesh=mesh, topology=topology)
    found = shardc.plan(shardc.grad(program, whole=True)).verify()
    return found.predicted_memory.total_bytes / found.compiled_memory.total_bytes


@pytest.mark.long
def test_what_a_trip_makes_and_carries_is_on_the_chip_while_it_is_small():
    """x and h of 32 MiB, and what a trip makes; 32 were promised, and 80 where that has 48."""
    text = "h[B_X, D] = softmax_D(u[B_X, D]); for L { t[B_X, F] = gelu(x[B_X, D] · Win[L, D, F]); "
    text += "x[B_X, D] = x + t · Wout[L, F, D] }; y[B_X, D] = softmax_D(x + h) + h; return y"
    for width in (2048, 3072):
        dims = {"B": 65536, "D": 2048, "F": width, "L": 4}
        found = shardc.plan(text, mesh="X=8", dims=dims, topology="v5e:2x4", dtype="bf16").verify()
        memory = found.predicted_memory.temporary_bytes, found.compiled_memory.temporary_bytes
        assert [size // 2**20 for size in memory] == [0, 0]


@pytest.mark.long
@pytest.mark.parametrize("topology", ["v5p:2x2x2", pytest.param("v5e:2x4", marks=pytest.mark.long)])
def test_what_a_trip_takes_lies_in_no_output(topology):
    """The gradient of x, which is gathered in each trip, and gathered to an output after all: 0.85 and 0.89 before."""
    text = "for L { x[B_X, D] = relu(x[B_X, D] ·_D V[L, D, F_Y]) ·_F U[L, F_Y, D] }; return x"
    dims = {"L": 4, "B": 16384, "D": 4096, "F": 4096}
    program = shardc.parse(text, mesh="X=2,Y=4", dims=dims, topology=topology, dtype="bf16")
    found = shardc.plan(shardc.grad(program, whole=True)).verify()
    assert 0.9 <= found.predicted_memory.total_bytes / found.compiled_memory.total_bytes <= 1.1


@pytest.mark.exhaustive
@pytest.mark.parametrize(("mebibytes", "taken"), [(16, 0), (48, 48)])
def test_what_functions_alone_leave_is_on_a_chip_of_v5p_while_it_is_small(mebibytes, taken):
    """An array that two products read, of four others, which are too many to be read by both."""
    text = "h[B_X, D] = a[B_X, D] ⊙ b[B_X, D] + c[B_X, D] ⊙ d[B_X, D]; y[B_X, E] = h · W[D, E]; z[B_X, E] = h · V[D, E]"
    dims = {"B": 8 * mebibytes * 256, "D": 2048, "E": 128}
    found = shardc.plan(text, mesh="X=8", dims=dims, topology="v5p:2x2x2", dtype="bf16").verify()
    memory = found.predicted_memory.temporary_bytes, found.compiled_memory.temporary_bytes
    assert [size // 2**20 for size in memory] == [taken, taken]


@pytest.mark.parametrize(
    ("text", "dims", "topology"),
    [
        ("A[I, J_YX] → A[I_YX, J]", "I=16384,J=16384", "v5e:4x4"),
        pytest.param("A[I_X, J_Y] · B[J_Y, K] → C[I_X, K_Y]", "I=8192,J=4096,K=8192", "v5e:2x4", marks=EXHAUSTIVE),
    ],
)
def test_what_finds_room_on_the_chip_takes_no_memory_and_the_rest_does(text, dims, topology):
    """64 MiB between were promised of the reshard; without gathers that come early nothing of the product's."""
    mesh = {"X": int(topology[4]), "Y": 4}
    program = shardc.parse(text, mesh=mesh, dims=dims, topology=topology, dtype="bf16")
    asked = {"objective": "bytes"} if "·" in text else {}  # by time dC is gathered early as well
    found = shardc.plan(shardc.grad(program, whole=True) if "·" in text else program, **asked).verify()
    assert 0.99 <= found.predicted_memory.total_bytes / found.compiled_memory.total_bytes <= 1.01


@pytest.mark.exhaustive
@pytest.mark.parametrize(("rows", "contracted"), [(4096, 4096), (6144, 4096), (4096, 2048)])
def test_the_largest_argument_of_a_product_is_on_the_chip_before_the_program_starts(rows, contracted):
    """A weight of 64 MiB, beside which a result of 64 or 96 has no room; one of 32, beside which one of 64 has."""
    dims = {"I": 8 * rows, "J": contracted, "K": 8192, "L": 128}
    text = "T[I_X, K] = A[I_X, J] · W[J, K]; O[I_X, L] = T · D[K, L]"
    found = shardc.plan(text, mesh="X=8", topology="v5e:2x4", dims=dims, dtype="bf16", idle="keep").verify()
    assert found.predicted_memory.temporary_bytes // 2**20 == found.compiled_memory.temporary_bytes // 2**20


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("text", "contracted", "most"),
    [
        ("A[I, J_Y] · B[J_Y, K_X] → C[I, K_X]", 16384, 1.02),  # a ring whose sum goes to all
        pytest.param(  # chunks gathered to an output, seven of eight beside it
            "A[I_Y, J] · B[J, K_X] → C[I, K_X]", 8192, 1.05, marks=pytest.mark.long
        ),
        pytest.param(  # beside what is read: 0.68
            "T[I, K] = A[I_Y, J] · B[J, K]; C[I, L_X] = T · D[K, L_X]", 8192, 1.02, marks=pytest.mark.long
        ),
        ("A[I_Y, J_X] · B[J, K_X] → C[I_Y, K_X]", 8192, 1.1),  # a ring that gathers
    ],
)
def test_what_is_done_as_one_is_promised_with_what_it_holds(text, contracted, most):
    dims = {"I": 16384, "J": contracted, "K": 16384} | ({"L": 8192} if "L" in text else {})
    plan = shardc.plan(text, mesh="X=4,Y=4", dims=dims, topology="v5e:4x4", dtype="bf16", overlap="on")
    found = plan.verify()
    assert any(step.form for step in plan.steps) and plan.cost.peak_bytes == found.predicted_memory.total_bytes
    assert 0.98 <= found.predicted_memory.total_bytes / found.compiled_memory.total_bytes <= most


@pytest.mark.parametrize("topology", ["v5e:4x4", pytest.param("v5p:2x2x4", marks=EXHAUSTIVE)])
@pytest.mark.parametrize(
    "text", ["C[b_Y, I_X, K] = A[b_Y, I, J_X] · B[J_X, K]", "C[I_X, b_Y, K] = A[b_Y, I, J_X] · B[J_X, K]"]
)
def test_a_batch_of_one_on_each_device_is_scattered_as_planned(text, topology):
    """It was summed for all, at twice the bytes: of a dim of one element the compiler makes no ReduceScatter."""
    dims = "b=4,I=512,J=1024,K=1024"
    plan = shardc.plan(text, mesh="Y=4,X=4", dims=dims, topology=topology, dtype="bf16", idle="keep")
    assert [step.op for step in plan.steps][-1] == "ReduceScatter" and plan.verify().agrees


@pytest.mark.parametrize("topology", ["v5e:4x4", pytest.param("v5p:2x2x4", marks=EXHAUSTIVE)])
@pytest.mark.parametrize("dims", ["BHTD", pytest.param("BGHTD", marks=EXHAUSTIVE), "BTHD"])
def test_along_any_dim_of_many_it_is_scattered_as_planned(dims, topology):
    """Along one between the first and the last two it was summed for all."""
    shape, result = ", ".join(dims), ", ".join("H_X" if dim == "H" else dim for dim in dims)
    sizes = {"B": 4, "G": 2, "H": 16, "T": 128, "D": 256}
    plan = shardc.plan(
        f"C[{result}] = ReduceScatter_X(A[{shape}]{{U_X}})", mesh="Y=4,X=4", dims=sizes, topology=topology, dtype="bf16"
    )
    assert plan.verify().agrees


@pytest.mark.exhaustive
def test_two_rings_are_promised_with_their_sum_in_f32():
    """With their blocks it takes 134 MB more than both operands gathered. Of each operand four blocks come."""
    dims = dict.fromkeys("IJK", 32768)
    text = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]"
    plan = shardc.plan(text, mesh="X=4,Y=4", dims=dims, topology="v5e:4x4", dtype="bf16", idle="keep")
    found = plan.verify()
    assert {step.form for step in plan.steps} == {"rings"} and plan.cost.wire_bytes == 8 * 32768**2 * 2 // 16
    assert found.agrees and found.predicted_memory.total_bytes >= 0.98 * found.compiled_memory.total_bytes


@pytest.mark.parametrize("plans", (pytest.param(15, marks=pytest.mark.exhaustive),))
def test_small_arrays_are_compiled_as_planned(plans):
    verified = [case.plan().verify() for case in bench().cases(plans, seed=4, small=True)]
    assert all(v.agrees for v in verified)
    assert any(match.remark == "exchanged" for v in verified for match in v.steps)


ROWS, COLUMNS = "A[I, J_{0}] · B[J_{0}, K] → C[I_{0}, K]", "A[I, J_{0}] · B[J_{0}, K] → C[I, K_{0}]"


@pytest.mark.parametrize(
    ("text", "mesh", "topology", "size", "dtype"),
    [
        (ROWS.format("XYZ"), "X=2,Y=2,Z=2", "v5p:2x2x2", (1024, 1024), "bf16"),
        (COLUMNS.format("XY"), "X=4,Y=4", "v5e:4x4", (4096, 4096), "f32"),
        (ROWS.format("X"), "X=64", "v5p:4x4x4", (4096, 1000), "bf16"),  # one axis, in two parts; stacked
        (COLUMNS.format("X"), "X=8", "v5p:2x2x2", (640, 1024), "bf16"),
        (ROWS.format("X"), "X=8", "v5e:2x4", (1024, 1024), "int32"),
        (COLUMNS.format("X"), "X=4", "v5p:2x2x1", (2048, 2560), "f32"),  # five tiles a share
        (ROWS.format("X"), "X=4", "v6e:2x2", (64, 100), "f32"),
        ("A[I, J_X] · B[J_X] → C[I_X]", "X=4", "v5p:2x2x1", (65536, 1), "bf16"),
    ],
)
def test_a_scatter_is_compiled_at_its_bytes(text, mesh, topology, size, dtype):
    dims = {"I": size[0], "J": 262144, "K": size[1]}
    plan = shardc.plan(text, mesh=mesh, dims=dims, topology=topology, dtype=dtype, objective="bytes")
    verified = plan.verify()
    assert "ReduceScatter" in [match.kind for match in verified.steps]
    assert verified.agrees, [(match.kind, match.remark) for match in verified.steps]


def test_a_gather_over_the_one_axis_of_a_large_slice_is_compiled_at_its_bytes():
    text, dims = "B2[J, K] = AllGather_X(B[J_X, K]); C[I_X, K] = A[I_X, J] · B2", {"I": 65536, "J": 4096, "K": 2048}
    verified = shardc.plan(text, mesh={"X": 64}, dims=dims, topology="v5p:4x4x4", dtype="bf16").verify()
    gathers = [match.remark for match in verified.steps if match.kind == "AllGather"]
    assert verified.agrees and gathers == ["in parts"]


@pytest.mark.exhaustive
def test_no_waste_is_found_in_scatters_of_ours():
    """They are as cheap as any, in whichever way they are written."""
    mesh = jax.sharding.AbstractMesh((8,), ("X",), axis_types=(jax.sharding.AxisType.Explicit,))
    for size, dtype in ((4096, "bf16"), (640, "bf16"), (64, "int32")):
        dims = {"I": size, "J": 16384, "K": size}
        plan = shardc.plan(
            ROWS.format("X"), mesh={"X": 8}, dims=dims, topology="v5p:2x2x2", dtype=dtype, objective="bytes"
        )
        arguments = [
            jax.ShapeDtypeStruct(
                shape, jnp.dtype({"bf16": "bfloat16"}.get(dtype, dtype)), sharding=jax.NamedSharding(mesh, spec)
            )
            for shape, spec in (((size, 16384), jax.P(None, "X")), ((16384, size), jax.P("X")))
        ]
        found = shardc.explain(plan.compile(), *arguments, topology="v5p:2x2x2")
        assert found.findings == () and found.wire_bytes <= 1.1 * plan.cost.wire_bytes  # halos


@pytest.mark.parametrize(
    ("topology", "mesh"),
    [("v4:2x2x2", "X=2,Y=4"), ("v5e:4x4", "X=4,Y=4"), ("v6e:2x4", "X=2,Y=4"), ("tpu7x:2x2x2", "X=2,Y=2,Z=2")],
)
def test_every_generation(topology, mesh):
    verified = shardc.plan(MATMUL, mesh=mesh, dims=SIZES, topology=topology, dtype="bf16").verify()
    assert verified.agrees, [(m.kind, m.remark) for m in verified.steps]
    assert verified.replayed.step_s > 0 and verified.predicted_memory.argument_bytes > 0


def test_4096_chips():
    plan = shardc.plan(
        "In[B_X, D_Y] · W[D_XY, F] → Out[B_X, F_Y]",
        mesh={"X": 256, "Y": 16},
        topology="v5p:16x16x16",
        dims={"B": 2**20, "D": 8192, "F": 32768},
        dtype="bf16",
    )
    verified = plan.verify()
    assert verified.agrees and verified.predicted_bytes == plan.cost.wire_bytes


def run(*arguments):
    """The command line in a process of its own, as a user has it."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TPU_")}  # set by other tests
    environment = {**ours, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "shardc", *arguments], stdout=-1, stderr=-1, text=True, env=environment
    )


@pytest.mark.exhaustive
def test_verify_is_quiet_and_two_may_run_at_once():
    arguments = ["verify", MATMUL, "--mesh", "X=2,Y=2", "--dims", "I=1024,J=1024,K=1024", "--topology", "v5p:2x2x1"]
    both = [run(*arguments), run(*arguments)]
    for process in both:
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 0 and stderr == "", stderr
        assert "as planned" in stdout


def test_a_difference_is_exit_1_and_json_says_where():
    # A gather over the whole slice, by one axis, is a sum of zeros: a program with partial sums is left on its mesh.
    text = "A[I_X, J] → A[I, J]; C[J]{U_X} = neg(B[J]{U_X})"
    options = ["--mesh", "X=64", "--dims", "I=1024,J=1024", "--topology", "v5p:4x4x4"]
    result = CliRunner().invoke(cli.shardc, ["verify", text, *options, "--json"], standalone_mode=False)
    found = json.loads(result.stdout)["verification"]
    assert result.return_value == 1 and not found["agrees"]
    assert [step["remark"] for step in found["steps"] if step["predicted_bytes"] != step["compiled_bytes"]] == [
        "zeros summed"
    ]


def test_the_timeline_is_drawn_and_traced_with_the_lines_of_the_file(tmp_path):
    """Each collective's event names the line that it comes from, in a loop too, and no line of ours."""
    file, target = tmp_path / "model.shard", tmp_path / "trace.json"
    file.write_text(
        "mesh X=2, Y=2\ndims L=3, B=256, D=512, F=512\n\nx[B_X, D] = In[B_X, F_Y] · V[F_Y, D]\n"
        "for L {\n    h[B_X, F_Y] = x · W[L, D, F_Y]\n    x[B_X, D] = h · U[L, F_Y, D]\n}\n",
        encoding="utf-8",
    )
    arguments = ["verify", str(file), "--topology", "v5p:2x2x1", "--gantt", "--trace", str(target)]
    result = CliRunner().invoke(cli.shardc, arguments, standalone_mode=False)
    assert result.return_value == 0 and "compute  " in result.stdout
    events = [event for event in json.loads(target.read_text())["traceEvents"] if event["ph"] == "X"]
    assert any(event["dur"] > 0 for event in events)
    lines = {e["args"]["source"]: e["args"]["statement"] for e in events if e["cat"] == "communication"}
    assert lines[f"{file}:4"].startswith("x[B_X, D] = In") and lines[f"{file}:7"].startswith("x[B_X, D] = h")
    assert {e["args"].get("source", f"{file}:4").rpartition(":")[0] for e in events} == {str(file)}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"topology": None}, "SHC224"),
        ({"topology": None, "chip": "H100"}, "SHC224"),
        ({"topology": "v5p:2x1x1", "dcn": {"Y": None}}, "SHC224"),
        ({"topology": "v5p:3x3x3"}, "SHC224"),  # no such slice
    ],
)
def test_what_cannot_be_compiled_is_refused(options, code):
    mesh = {"X": 27} if options["topology"] == "v5p:3x3x3" else {"X": 2, "Y": 2}
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.plan("A[I_X, J] → A[I, J]", mesh=mesh, dims={"I": 108, "J": 64}, **options).verify()
    assert caught.value.code == code


def test_without_libtpu_one_line_says_so(monkeypatch):
    monkeypatch.setattr(tpu, "is_installed", lambda: False)
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.plan(MATMUL, mesh={"X": 4}, dims=SIZES, topology="v5p:2x2x1").verify()
    assert caught.value.code == "SHC311" and caught.value.exit_code == 5 and "shardc[tpu]" in caught.value.help


def test_memory_that_is_not_there_is_a_coded_error():
    plan = shardc.plan(
        "A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 2**19, "J": 2**19}, topology="v5p:2x2x1", dtype="bf16"
    )
    with pytest.raises(shardc.ShardcError) as caught:
        plan.verify()
    assert caught.value.code == "SHC308"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("text", "objective"),
    [("A[I_X, J] · B[J, K_X] → C[I_X, K]", "bytes"), ("A[I, J_X] · B[J_X, K] → C[I_X, K]", "time")],
)
def test_a_plan_with_axes_cut_is_compiled_as_planned(text, objective):
    """X=16 on 4·4 chips: the chips of the fine mesh are those of X, in order."""
    dims = dict.fromkeys("IJK", 4608)
    lies = {"X": (0, 1)} if objective == "time" else None  # row by row; as JAX lays it, on a walk, no cut is quicker
    plan = shardc.plan(text, mesh={"X": 16}, dims=dims, topology="v5e:4x4", objective=objective, map=lies)
    assert plan.schedule.by is not None
    found = plan.verify()
    assert found.agrees and found.compiled_bytes == plan.cost.wire_bytes
    assert not found.unforeseen
    compared = plan.compare()
    assert compared.ours.wire_bytes < compared.theirs.wire_bytes
