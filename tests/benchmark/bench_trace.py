"""How long JAX takes to trace a function of many `shardc.einsum`s, beside one of as many `jnp.einsum`s.

    python tests/benchmark/bench_trace.py --products 50

Three functions of as many products each: one text and shape, as many layers have; a text and shape for each; and
the same again, traced a second time. Each is timed in turn with its twin, in rounds, with nothing else kept between
rounds than what a user's process keeps; the ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)  # before anything starts JAX's devices: hence E402 below

import jax.numpy as jnp  # noqa: E402
from tabulate import tabulate  # noqa: E402

import shardc  # noqa: E402
from shardc.emit.call import transforms  # noqa: E402

TEXT = "A[I_X, J_Y] · B{0}[J_X, K_Y] → C[I_X, K_Y]"


def ours(places: list[int]) -> Callable[..., list[jax.Array]]:
    return lambda x, *weights: [shardc.einsum(TEXT.format(n), x, w) for n, w in zip(places, weights, strict=True)]


def theirs(x: jax.Array, *weights: jax.Array) -> list[jax.Array]:
    return [jnp.einsum("ij,jk->ik", x, w, out_sharding=jax.P("X", "Y")) for w in weights]


def seconds(function: Callable[..., list[jax.Array]], x: jax.Array, weights: list[jax.Array]) -> float:
    start = time.process_time()
    jax.jit(lambda *arrays: function(*arrays)).trace(x, *weights)
    return time.process_time() - start


def forget() -> None:
    """As in a new process."""
    jax.clear_caches()
    transforms._einsum.cache_clear()


def ratios(count: int, rounds: int) -> list[list[object]]:
    mesh = jax.make_mesh((4, 2), ("X", "Y"))
    rows = []
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((64, 64)), jax.P("X", "Y"))
        same = [jax.device_put(jnp.ones((64, 64)), jax.P("X", "Y"))] * count
        other = [jax.device_put(jnp.ones((64, 8 * n + 8)), jax.P("X", "Y")) for n in range(count)]
        for name, weights, places, anew in (
            ("one text and shape", same, [0] * count, True),
            ("each its own", other, list(range(count)), True),
            ("each its own, a second time", other, list(range(count)), False),
        ):
            found = []
            for _ in range(rounds):
                if anew:
                    forget()
                mine = seconds(ours(places), x, weights)
                if anew:
                    forget()
                found.append((mine, seconds(theirs, x, weights)))
            ratio = statistics.median(mine / base for mine, base in found)
            rows.append([name, *(f"{1e3 * statistics.median(side):.1f}" for side in zip(*found, strict=True)), ratio])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--products", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rows = ratios(given.products, given.rounds)
    print(tabulate(rows, ["products", "shardc.einsum, ms", "jnp.einsum, ms", "ratio"], floatfmt=".2f"))


if __name__ == "__main__":
    main()
