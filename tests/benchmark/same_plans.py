"""Whether a change left plans, prices and sources as they were, over 720 random programs and what the books write.

    python tests/benchmark/same_plans.py --write before.json      # in the tree as it was
    python tests/benchmark/same_plans.py --against before.json    # in the tree as it is: what differs, and how

The programs are drawn from a seed: reshards and products of one to three axes, chains, functions and programs of
several statements, by bytes and by time, on chips with and without a slice; then every example of `examples/` and
every expression of the golden files that plans. A plan's entry is its steps, its cost and a hash of its source.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

import shardc

ROOT = Path(__file__).parents[2]
MESHES = (("X=4", "v5e"), ("X=2,Y=2", "v5p"), ("X=4,Y=2", "v5e"), ("X=2,Y=3", "v5p"), ("X=2,Y=2,Z=2", "v5p:2x2x2"))
MESHES += (("X=4,Y=4", "v5e:4x4"), ("X=2,Y=4,Z=2", "H100"))
SIZES = (16, 48, 96, 480, 4096, 8192)
FUNCTIONS = ("relu", "gelu", "exp", "neg")
Entry = dict[str, Any]


def programs(count: int, seed: int, meshes: Sequence[tuple[str, str]] = MESHES) -> Iterator[tuple[str, dict[str, Any]]]:
    """Texts, each with the options it is planned with."""
    drawn = random.Random(f"same plans {seed}")
    for _ in range(count):
        mesh, hardware = drawn.choice(meshes)
        axes = [part.split("=")[0] for part in mesh.split(",")]
        text = drawn.choice((_reshard, _product, _product, _chain, _function, _several))(drawn, axes)
        options = {"mesh": mesh, "dims": _sizes(drawn, mesh), "dtype": drawn.choice(("bf16", "f32"))}
        options["topology" if ":" in hardware else "chip"] = hardware
        yield text, options | {"objective": drawn.choice(("bytes", "time"))}


def _sizes(drawn: random.Random, mesh: str) -> str:
    least = math.lcm(16, math.prod(int(part.split("=")[1]) for part in mesh.split(",")))
    return ", ".join(f"{dim}={drawn.choice([size for size in SIZES if size % least == 0])}" for dim in "IJKLM")


def _array(drawn: random.Random, name: str, dims: str, axes: list[str]) -> str:
    on: dict[str, list[str]] = {dim: [] for dim in dims}
    for axis in drawn.sample(axes, len(axes)):
        place = drawn.choice([*dims, None])
        if place is not None:
            on[place].append(axis)
    return f"{name}[" + ", ".join(dim + ("_" + "".join(some) if some else "") for dim, some in on.items()) + "]"


def _reshard(drawn: random.Random, axes: list[str]) -> str:
    dims = drawn.choice(("IJ", "IJ", "IJK"))
    return f"{_array(drawn, 'A', dims, axes)} → {_array(drawn, 'A', dims, axes)}"


def _product(drawn: random.Random, axes: list[str]) -> str:
    first, second, result = drawn.choice(
        (("IJ", "JK", "IK"), ("IJ", "JK", "IK"), ("IJK", "IKL", "IJL"), ("IJ", "J", "I"))
    )
    arrays = [_array(drawn, name, dims, axes) for name, dims in (("A", first), ("B", second), ("C", result))]
    return f"{arrays[0]} · {arrays[1]} → {arrays[2]}"


def _chain(drawn: random.Random, axes: list[str]) -> str:
    arrays = [_array(drawn, name, dims, axes) for name, dims in zip("ABCD", ("IJ", "JK", "KL", "IL"), strict=True)]
    return f"{arrays[0]} · {arrays[1]} · {arrays[2]} → {arrays[3]}"


def _function(drawn: random.Random, axes: list[str]) -> str:
    a, b, c = (_array(drawn, name, dims, axes) for name, dims in zip("ABC", ("IJ", "JK", "IK"), strict=True))
    return drawn.choice(
        (f"softmax_J({a}) → {_array(drawn, 'S', 'IJ', axes)}", f"{drawn.choice(FUNCTIONS)}({a}) · {b} → {c}")
    )


def _several(drawn: random.Random, axes: list[str]) -> str:
    a, b, c = (_array(drawn, name, dims, axes) for name, dims in zip("ABC", ("IJ", "JK", "IL"), strict=True))
    second = drawn.choice((f"{drawn.choice(FUNCTIONS)}(T)", "T + T"))
    last = f"{c} = T · {_array(drawn, 'E', 'KL', axes)}"
    return f"T = {a} · {b}\n{last}\n{_array(drawn, 'F', 'IK', axes)} = {second}"


def golden() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every example, and every expression of the golden files with a mesh."""
    for path in sorted((ROOT / "examples").glob("*.shard")):
        yield path.read_text(encoding="utf-8"), {}
    for entry in json.loads((ROOT / "tests" / "data" / "notation.json").read_text(encoding="utf-8")):
        if isinstance(entry.get("text"), str) and entry.get("mesh"):
            yield entry["text"], {"mesh": entry["mesh"], "dims": entry.get("dims") or None}


def entry(text: str, options: dict[str, Any]) -> Entry:
    """What a text is planned as, or the code that it is refused with."""
    try:
        plan = shardc.plan(text, **options)
    except shardc.ShardcError as error:
        return {"refused": error.code}
    steps = [f"{step.result} = {step.op}({', '.join(step.operands)}) {step.wire_bytes} B" for step in plan.steps]
    cost = {name: getattr(plan.cost, name) for name in ("wire_bytes", "flops", "time_s", "peak_bytes")}
    return {"steps": steps, **cost, "source": hashlib.sha256(plan.source().encode()).hexdigest()[:16]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--against", metavar="FILE")
    parser.add_argument("--programs", type=int, default=720)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = {
        json.dumps([text, options], ensure_ascii=False): entry(text, options)
        for text, options in (*programs(asked.programs, asked.seed), *golden())
    }
    if asked.write:
        Path(asked.write).write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
    before = json.loads(Path(asked.against).read_text(encoding="utf-8")) if asked.against else found
    print(tabulate(compared(before, found), headers=("programs", "as before", "differ", "of these in price")))
    for key in (key for key in found if before.get(key) != found[key]):
        print(f"\n{key}\n  before {before.get(key)}\n  now    {found[key]}")


def compared(before: dict[str, Entry], now: dict[str, Entry]) -> list[tuple[int, int, int, int]]:
    differ = [key for key in now if before.get(key) != now[key]]
    prices = [k for k in differ if any(before.get(k, {}).get(n) != now[k].get(n) for n in ("wire_bytes", "time_s"))]
    return [(len(now), len(now) - len(differ), len(differ), len(prices))]


if __name__ == "__main__":
    main()
