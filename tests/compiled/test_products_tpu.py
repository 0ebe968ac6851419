"""The memory of a few products with functions, softmaxes and norms between them, beside the compiler."""

import re
import sys
from pathlib import Path

import pytest

import shardc
from shardc.machines import tpu

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from bench_memory import products

pytestmark = [pytest.mark.tpu, pytest.mark.skipif(not tpu.is_installed(), reason="no libtpu")]
EXHAUSTIVE = pytest.mark.exhaustive
BROUGHT = "h[B_X, F] = x[B_X, D] · W[D, F]; g[B_X, D] = h · V[F, D]; "
# Promised over compiled of drawn programs, where it is less, or more than a tenth above (libtpu 0.0.42.1).
FOUND = {
    ("v5p:2x2x2", 4): 1.18,
    ("v5p:2x2x2", 5): 0.82,  # pieces of an exchange that is begun early wait in memory until it is read
    ("v5e:2x4", 5): 1.12,
    ("v5p:2x2x2", 7): 0.978,
    ("v5e:2x4", 9): 1.14,
}


def ratio(text, mesh, topology, **dims):
    used = {dim: size for dim, size in dims.items() if re.search(rf"[\[, ]{dim}[_,\]]", text)}
    given = {"dims": used, "dtype": "bf16"} if used else {}
    found = shardc.plan(shardc.parse(text, mesh=mesh, topology=topology, **given)).verify()
    return found.predicted_memory.total_bytes / found.compiled_memory.total_bytes


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        pytest.param(
            "h[B_X, F_Y] = x[B_X, D_Y] · W[D, F_Y]; y[B_X, D_Y] = silu(h) ⊙ h · V[F_Y, D] + x\nreturn y",
            {"B": 16384, "D": 4096, "F": 8192},
            id="three arrays beside what is brought",  # 0.75
        ),
        pytest.param(
            "y[B_X, F_Y] = softmax_D(x[B_X, D_Y]) · W[D, F_Y]",
            {"B": 16384, "D": 4096, "F": 4096},
            id="pieces of 2 MiB",  # 0.80
            marks=EXHAUSTIVE,
        ),
        pytest.param(
            "n[B_X] = rsqrt(sum_D(square(x[B_X, D_Y]))); a[B_X, D_Y] = x ⊙ n; y[B_X, F_Y] = a · W[D, F_Y]\nreturn y",
            {"B": 32768, "D": 2048, "F": 8192},
            id="pieces of a norm",  # 0.89
            marks=EXHAUSTIVE,
        ),
    ],
)
def test_what_is_brought_again_or_cut_is_promised_room(text, dims):
    assert 0.999 <= ratio(text, {"X": 4, "Y": 2}, "v5e:2x4", **dims) <= 1.05


@EXHAUSTIVE
@pytest.mark.parametrize("rows", [32768, 65536])
@pytest.mark.parametrize(
    "end", ["y[B_X, F] = g · U[D, F]", "y[B_X, E] = g · U[D, E]", "z = g - max_D(g); y = z / sum_B(z)"]
)
def test_an_argument_comes_again_with_the_last_product_or_the_functions_behind_it(end, rows):
    sizes = {"B": rows, "D": 4096, "F": 8192, "E": 512}
    assert 0.999 <= ratio(f"{BROUGHT}{end}\nreturn y", {"X": 8}, "v5e:2x4", **sizes) <= 1.05


def test_permutes_of_two_operands_are_there_at_once():
    text = "C[I_Y, K_X] = A[I_X, J] · B[J, K_Y]"
    assert 0.999 <= ratio(text, {"X": 4, "Y": 2}, "v5p:2x2x2", I=8192, J=1024, K=4096) <= 1.05  # 0.93


@EXHAUSTIVE
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
@pytest.mark.parametrize("place", [pytest.param(0, marks=pytest.mark.long), *range(1, 16)])
def test_drawn_products_are_promised_what_they_take(place, topology):
    _, text, mesh = [*products(16, 0)][place]
    found = ratio(f"dtype bf16\n{text}", mesh, topology)
    assert (
        found == pytest.approx(FOUND[topology, place], abs=0.05) if (topology, place) in FOUND else 0.98 <= found <= 1.1
    )
