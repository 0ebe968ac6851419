"""How long JAX takes to trace a function of many `shardc.einsum`s, and to lower it, beside one of `jnp.einsum`s.

    python tests/benchmark/bench_trace.py --products 50
    python tests/benchmark/bench_trace.py --beside TREE       # another checkout as well

Four functions of as many products each: one text and shape, as many layers have; a text and shape for each; the same
again, traced a second time; and the nine products of a transformer's layer, over and over. Each round has texts and
sizes that no round before it had, so that nothing is planned before it is timed but in the third. Times are of the
processor; ratios are medians over the rounds, in which the functions, and the checkouts, are timed in turn. The first
round of a process, which loads JAX, is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)  # before anything starts JAX's devices: hence E402 below

import jax.numpy as jnp  # noqa: E402  # after its devices are set
from bench_speed import of  # noqa: E402  # after its devices are set
from tabulate import tabulate  # noqa: E402  # after its devices are set

import shardc  # noqa: E402  # after its devices are set

TEXT = "A[I_X, J_Y] · B{0}[J_X, K_Y] → C[I_X, K_Y]"
KINDS = ("one text and shape", "each its own", "each its own, a second time")
LAYER = "a layer's nine, over and over"
# A layer's products, as jnp.einsum spells them; B lies along X, H and F along Y.
NINE = {
    **dict.fromkeys(("q", "k", "v"), "bsd,dhk->bshk"),
    "scores": "bshk,bthk->bhst",
    "mixed": "bhst,bthk->bshk",
    "out": "bshk,hkd->bsd",
    **dict.fromkeys(("gate", "up"), "bsd,df->bsf"),
    "down": "bsf,fd->bsd",
}
SIZES = {"b": 64, "s": 2048, "t": 2048, "h": 32, "k": 128, "f": 14336}
ALONG = {"b": "X", "h": "Y", "f": "Y"}
HERE = Path(__file__).resolve().parents[2]
Function: TypeAlias = Callable[..., list[jax.Array]]
Times: TypeAlias = list[float]  # to trace, and to trace and lower, in seconds: shardc's, then JAX's


def ours(places: list[int]) -> Function:
    return lambda x, *weights: [shardc.einsum(TEXT.format(n), x, w) for n, w in zip(places, weights, strict=True)]


def theirs(x: jax.Array, *weights: jax.Array) -> list[jax.Array]:
    return [jnp.einsum("ij,jk->ik", x, w, out_sharding=jax.P("X", "Y")) for w in weights]


def layers(products: int, number: int) -> tuple[Function, Function, list[Any]]:
    """So many products of layers, shardc's and JAX's, and their arrays: in sizes and names of this number."""
    sizes, mesh = SIZES | {"d": 4096 + 8 * number}, jax.sharding.get_abstract_mesh()
    texts, calls, arrays = list[str](), list[partial[jax.Array]](), list[Any]()
    for name, equation in [*NINE.items()] * products:
        letters = equation.replace("->", ",").split(",")
        specs = [jax.P(*map(ALONG.get, each)) for each in letters]
        x, w, y = (
            f"[{', '.join(dim.upper() + (f'_{ALONG[dim]}' if dim in ALONG else '') for dim in each)}]"
            for each in letters
        )
        texts.append(f"x{number}{x} · W{name}{number}{w} → {name}{number}{y}")
        calls.append(partial(jnp.einsum, equation, out_sharding=specs[2]))
        for each, spec in zip(letters[:2], specs, strict=False):
            shape, lies = [sizes[dim] for dim in each], jax.NamedSharding(mesh, spec)
            arrays.append(jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=lies))
    first = 2 * products
    return (
        lambda *given: [shardc.einsum(t, *pair) for t, pair in zip(texts, batched(given), strict=False)],
        lambda *given: [call(*pair) for call, pair in zip(calls, batched(given), strict=False)],
        arrays[:first],
    )


def written(dim: str) -> str:
    return dim.upper() + (f"_{ALONG[dim]}" if dim in ALONG else "")


def batched(given: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    return zip(given[::2], given[1::2], strict=True)


def seconds(function: Function, *given: Any) -> Times:
    start = time.process_time()
    traced = jax.jit(lambda *arrays: function(*arrays)).trace(*given)
    middle = time.process_time()
    traced.lower()
    return [middle - start, time.process_time() - start]


def rounds(products: int) -> Iterator[dict[str, Times]]:
    """The times of each kind of function, round after round."""
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        x = jax.device_put(jnp.ones((64, 64)), jax.P("X", "Y"))
        for number in count():
            first = (products + 1) * number
            alone, *places = range(first, first + products + 1)
            found = dict[str, Times]()
            for kind, named in zip(KINDS, ([alone] * products, places, places), strict=True):
                sizes = {place: jax.device_put(jnp.ones((64, 8 * place + 8)), jax.P("X", "Y")) for place in set(named)}
                weights = [sizes[place] for place in named]
                found[kind] = seconds(ours(named), x, *weights) + seconds(theirs, x, *weights)
            mine, base, arrays = layers(products, number)
            found[LAYER] = seconds(mine, *arrays) + seconds(base, *arrays)
            yield found


class Tracing:
    """A process in which a checkout traces, a round when it is asked for one."""

    def __init__(self, tree: Path, products: int) -> None:
        command = [sys.executable, __file__, "--answer", "--products", str(products)]
        self._process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=of(tree), cwd=tree)

    def round(self) -> dict[str, Times]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        found: dict[str, Times] = json.loads(self._process.stdout.readline())
        return found


def answer(products: int) -> None:
    for _, found in zip(sys.stdin, rounds(products), strict=False):
        print(json.dumps(found), flush=True)


def compared(trees: dict[str, Path], products: int, times: int) -> Iterator[tuple[object, ...]]:
    sides = {name: Tracing(tree, products) for name, tree in trees.items()}
    found = [{name: side.round() for name, side in sides.items()} for _ in range(times + 1)][1:]
    for kind in (*KINDS, LAYER):
        for name in trees:
            every = [each[name][kind] for each in found]
            ratios = [(mine / base, whole / whole_base) for mine, whole, base, whole_base in every]
            mine, _, base, _ = map(statistics.median, zip(*every, strict=True))
            yield (
                kind,
                name,
                f"{1e3 * mine:.1f}",
                f"{1e3 * base:.1f}",
                *map(statistics.median, zip(*ratios, strict=True)),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--beside", type=Path, metavar="TREE")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answer:
        answer(asked.products)
        return
    trees = {"this": HERE} if asked.beside is None else {"other": asked.beside.resolve(), "this": HERE}
    headers = ["products", "checkout", "shardc.einsum, ms", "jnp.einsum, ms", "ratio", "ratio with lowering"]
    print(tabulate(compared(trees, asked.products, asked.rounds), headers, floatfmt=".2f"))


if __name__ == "__main__":
    main()
