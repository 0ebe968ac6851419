"""How long the dearest statements take, in seconds of the processor: `python tests/benchmark/bench_limits.py [COUNT]`.

Not a timed test. Random statements of the kinds below, drawn from a seed, each planned and printed as JSON with nothing
known of another: batched products, chains, many axes, arrays of high rank, big slices, partial sums on small ones.
Columns are the worst of each; `refused` counts errors, `cut` plans whose search ended with its budget.
"""

from __future__ import annotations

import functools
import gc
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tabulate import tabulate

from shardc.api import plan
from shardc.errors import ShardcError

LETTERS = "IJKLMNPQR"
AXES = "STUVWXYZ"


@dataclass(frozen=True)
class Case:
    """A statement, its mesh and sizes, and further options."""

    text: str
    mesh: dict[str, int]
    dims: dict[str, int]
    options: dict[str, str]


def sharded(dims: str, axes: list[str], chosen: random.Random, most: float = 0.7) -> str:
    """`[I_X, J_{Y,Z}]`: some of the axes, each on one dim."""
    lie: dict[str, list[str]] = {dim: [] for dim in dims}
    for axis in chosen.sample(axes, len(axes)):
        if dims and chosen.random() < most:
            lie[chosen.choice(dims)].append(axis)
    return "[" + ", ".join(f"{dim}_{{{','.join(on)}}}" if on else dim for dim, on in lie.items()) + "]"


def mesh_of(chosen: random.Random, fewest: int, most: int, sizes: tuple[int, ...]) -> dict[str, int]:
    return {axis: chosen.choice(sizes) for axis in AXES[-chosen.randint(fewest, most) :]}


def case(
    chosen: random.Random, arrays: list[str], mesh: dict[str, int], axes: list[str], size: int = 0, **options: str
) -> Case:
    """Arrays by their dims, the last of them the result."""
    *given, result = arrays
    some = [f"{name}{sharded(dims, axes, chosen)}" for name, dims in zip("ABCDEFGH", given, strict=False)]
    name = "A" if len(given) == 1 else "O"
    text = " · ".join(some) + f" → {name}{sharded(result, axes, chosen)}"
    dims = {dim: size or 2 * math.lcm(math.prod(mesh.values())) for dim in sorted(set("".join(arrays)))}
    return Case(text, mesh, dims, {"objective": chosen.choice(["time", "bytes"]), **options})


def reshard(chosen: random.Random) -> Case:
    mesh, rank = mesh_of(chosen, 4, 8, (2, 2, 2, 3, 4)), chosen.randint(2, 6)
    return case(chosen, [LETTERS[:rank]] * 2, mesh, list(mesh))


def beside_idle(chosen: random.Random) -> Case:
    mesh, rank = mesh_of(chosen, 4, 8, (2, 3, 4)), chosen.randint(1, 4)
    return case(chosen, [LETTERS[:rank]] * 2, mesh, chosen.sample(list(mesh), 2))


def batched(chosen: random.Random) -> Case:
    mesh = mesh_of(chosen, 2, 5, (2, 2, 4))
    batch = "BH"[: chosen.randint(1, 2)]
    given = [f"{batch}ST", f"{batch}TE", f"{batch}ED"][: chosen.randint(2, 3)]
    return case(chosen, [*given, f"{batch}S{given[-1][-1]}"], mesh, list(mesh))


def contracted_twice(chosen: random.Random) -> Case:
    mesh = mesh_of(chosen, 3, 6, (2, 2, 3))
    return case(chosen, ["IJK", "JKL", "IL"] if chosen.random() < 0.5 else ["IJ", "JK", "IK"], mesh, list(mesh))


def chain(chosen: random.Random) -> Case:
    mesh, count = mesh_of(chosen, 1, 4, (2, 2, 4)), chosen.randint(3, 8)
    given = [LETTERS[n : n + 2] for n in range(count)]
    return case(chosen, [*given, given[0][0] + given[-1][-1]], mesh, list(mesh))


def big_slice(chosen: random.Random) -> Case:
    shape = chosen.choice(["64x64x64", "16x16x32", "8x12x16", "4x6x20"])
    left, mesh = math.prod(map(int, shape.split("x"))), dict[str, int]()
    for axis in AXES[:7]:
        size = chosen.choice([n for n in (1, 2, 3, 4, 5, 8, 16) if left % n == 0])
        mesh, left = mesh | {axis: size}, left // size
    mesh[AXES[7]] = left
    return case(chosen, ["IJ", "IJ"], mesh, chosen.sample(list(mesh), 2), topology=f"v5p:{shape}")


def routed_slice(chosen: random.Random) -> Case:
    """Axes that are cut out of those of a slice: where each block goes is followed from chip to chip."""
    topology = chosen.choice(["v6e:16x16", "v5e:8x16", "v5p:4x8x8"])
    left, mesh = math.prod(map(int, topology.partition(":")[2].split("x"))), dict[str, int]()
    while left > 1 and len(mesh) < len(AXES):
        size = left if len(mesh) == len(AXES) - 1 else min(left, chosen.choice([2, 2, 4]))
        mesh, left = mesh | {AXES[len(mesh)]: size}, left // size
    summed, *axes = chosen.sample(list(mesh), min(len(mesh), 4))
    drawn = case(chosen, ["IJ", "IJ"], mesh, axes, topology=topology)
    return replace(drawn, text=drawn.text.replace("] →", f"]{{U_{summed}}} →"))


def mixed(chosen: random.Random) -> Case:
    mesh, rank = mesh_of(chosen, 2, 4, (2, 3, 4, 6, 10, 12)), chosen.randint(1, 4)
    return case(chosen, [LETTERS[:rank]] * 2, mesh, list(mesh))


KINDS: dict[str, Callable[[random.Random], Case]] = {
    kind.__name__.replace("_", " "): kind
    for kind in (reshard, beside_idle, batched, contracted_twice, chain, big_slice, routed_slice, mixed)
}


def forget() -> None:
    """Empty every cache, as in a new process."""
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper):
            found.cache_clear()


def seconds(task: Callable[[], object]) -> float:
    start = time.process_time()
    task()
    return time.process_time() - start


def main(count: int) -> None:
    rows, worst = [], []
    for name, draw in KINDS.items():
        chosen, refused, cut, found = random.Random(20), 0, 0, []
        for _ in range(count):
            drawn = draw(chosen)
            forget()
            try:
                start = time.process_time()
                made = plan(drawn.text, mesh=drawn.mesh, dims=drawn.dims, **drawn.options)
                times = [time.process_time() - start, seconds(made.table), seconds(made.to_json)]
            except ShardcError as error:
                refused += 1
                times = [time.process_time() - start, 0.0, 0.0]
                if refused == 1:
                    print(error.code, drawn, file=sys.stderr)
            else:
                cut += any("budget" in note for note in made.notes)
            found.append((sum(times), *times, drawn))
        dearest = max(found, key=lambda each: each[0])
        columns = [f"{max(each[k] for each in found):.2f}" for k in (1, 2, 3, 0)]
        print(name, columns, dearest[4], file=sys.stderr, flush=True)
        rows.append((name, count, refused, cut, *columns))
        worst.append((name, f"{dearest[0]:.2f}", dearest[4]))
    print(tabulate(rows, headers=("statements", "drawn", "refused", "cut", "plan s", "table s", "JSON s", "all s")))
    for name, total, drawn in worst:
        print(f"\n{name}, {total} s: {drawn.text}\n  {drawn.mesh} {drawn.options}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
