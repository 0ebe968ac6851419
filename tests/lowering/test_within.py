"""Which products are done within those that read them."""

import pytest

import shardc
from shardc.cost.near import Near

PAIR = "h = relu(x[B_X, D] · W[D, F]); y[B_X, E] = h · V[F, E]"
SIZES = {"B": 8192, "D": 256, "F": 4096, "E": 256, "G": 512, "N": 8, "T": 512, "S": 1024}


def nowhere(text, topology="v5e:2x2", **sizes):
    dims = {dim: size for dim, size in (SIZES | sizes).items() if f"{dim}" in text}
    plan = shardc.plan(text, mesh="X=4", topology=topology, dims=dims, dtype="bf16", overlap="off")
    values = plan.schedule.values
    return [values[each].name.partition("_")[0] for each in Near.of(plan.schedule.block, plan._model).nowhere]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "sizes", "found"),
    [
        (PAIR, {}, ["h"]),
        (PAIR, {"E": 512}, []),
        (PAIR, {"D": 512}, []),
        (f"{PAIR}; return h, y", {}, []),
        ("h = x[B_X, D] · W[D, F]; y[B_X, E] = softmax_F(h) · V[F, E]", {}, []),
        ("h = relu(x[B_X, D] · W[D, F]); y[B_X, E] = h · V[F, E]; z[B_X, E] = h · U[F, E]", {}, []),
        ("s = relu(q[N_X, T, E] ·_E k[N_X, S, E]); o[N_X, T, D] = s · v[N_X, S, D]", {"N": 64}, ["s"]),
        ("g = relu(x[B_X, D] · W[D, G]); u = relu(g · U[G, F]); y[B_X, E] = u · V[F, E]", {"F": 512}, ["g"]),
    ],
)
def test_one_that_alone_is_read_of_small_matrices(text, sizes, found):
    assert nowhere(text, **sizes) == found


@pytest.mark.instant
def test_on_chips_that_were_looked_at():
    assert nowhere(PAIR, "v5p:2x2x1") == ["h"] and nowhere(PAIR, "v6e:2x2") == []
