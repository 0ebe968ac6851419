"""The memory that a plan promises over what its compiled program takes: `python tests/benchmark/bench_memory.py`.

Every example of `examples/` on three slices of TPUs, at its own sizes and with every dim four times as large; and
chains of functions, drawn from a seed. With `--products` drawn products, with functions, softmaxes and norms between;
with `--gradients` the examples alone, 32 times as large, each forward and backward as one; with `--as-one` products
that are done as one with collectives, on v5e. Needs libtpu. Below 1 a promise is broken. Some of small arrays on v5p
still are: copies that the compiler makes of these are not all known.
What is compiled is counted as it lies in memory (`machines/laid_out.py`).
"""

from __future__ import annotations

import argparse
import math
import random
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

import shardc

SLICES = ("v5e:2x4", "v5e:4x4", "v5p:2x2x2")
AS_ONE = (
    ("a ring's blocks", "A[I_Y, J_X] · B[J, K_X] → C[I_Y, K_X]"),
    ("chunks, a function", "C[I_Y, K] = A[I_Y, J] · B[J, K_X]; E[I_Y, K] = gelu(C)"),
    ("a ring's sums", "A[I_Y, K_X] · B[K_X, J] → C[I_YX, J]"),
    ("and a sum with another", "C[I_YX, J] = A[I_Y, K_X] · B[K_X, J]; E[I_YX, J] = C + D[I_YX, J]"),
    ("a block of two", "H[I_Y, K_X] = A[I_YX, J] · B[J, K_X]; G = gelu(H); E[I_YX, J] = G · C[K_X, J]"),
    ("three products", "H[I_Y, K] = A[I_Y, J_X] · B[J_X, K]; G[I_Y, J_X] = H · C[K, J]; E[I_YX, K] = G · D[J_X, K]"),
)
ON = (("v5e:2x4", "X=4,Y=2"), ("v5e:4x4", "X=4,Y=4"), ("v5e:2x4", "X=8,Y=1"), ("v5e:2x4", "X=2,Y=4"))
OF = ((16384, 8192, 16384), (32768, 4096, 16384), (16384, 16384, 8192))
UNARY = ("relu", "gelu", "silu", "exp", "tanh", "square", "neg")
BINARY = ("+", "-", "⊙", "/")
SIZES = (1024, 2048, 4096, 8192)


def examples() -> Iterator[tuple[str, str, list[str]]]:
    """A name, a text and the names of its axes."""
    yield from map(named, sorted((Path(__file__).parents[2] / "examples").glob("*.shard")))


def named(path: Path) -> tuple[str, str, list[str]]:
    """A file's name, its text without a mesh and a chip, and the names of its axes."""
    text = path.read_text(encoding="utf-8")
    axes = re.findall(r"(\w+)=", next(line for line in text.splitlines() if line.startswith("mesh")))
    return path.stem, re.sub(r"(?m)^(mesh|chip|topology) .*$", "", text), axes


def sizes_on(topology: str, axes: list[str]) -> dict[str, int]:
    """Of a mesh of one to three axes on a slice."""
    first, *others = map(int, topology.partition(":")[2].split("x"))
    devices = first * math.prod(others)
    sizes = {1: (devices,), 2: (first, devices // first), 3: (2, 2, devices // 4)}[len(axes)]
    return dict(zip(axes, sizes, strict=True))


def larger(text: str, times: int) -> str:
    """Every dim of more than 8 so many times as large."""
    dims = re.search(r"(?m)^dims .*$", text)
    assert dims is not None, "an example says its sizes"
    grown = re.sub(r"=(\d+)", lambda size: f"={int(size[1]) * (times if int(size[1]) > 8 else 1)}", dims[0])
    return text.replace(dims[0], grown)


def chains(count: int, seed: int) -> Iterator[tuple[str, str, list[str]]]:
    """Products with functions, masks and reductions between, of results that are used once or more."""
    drawn = random.Random(f"memory {seed}")
    for number in range(count):
        lines, held = ["dims B=32768, D=8192, F=16384", "x1[B_X, F_Y] = A[B_X, D] · W[D, F_Y]"], ["x1"]
        for step in range(2, drawn.randint(3, 7)):
            one, other = drawn.choice(held), drawn.choice(held)
            kind = drawn.randrange(6)
            lines.append(
                f"x{step} = "
                + (
                    f"{drawn.choice(UNARY)}({one})"
                    if kind < 2
                    else f"{one} {drawn.choice(BINARY)} {other}"
                    if kind < 4
                    else f"{one} ⊙ rsqrt(mean_F(square({other})) + 1e-6)"
                    if kind == 4
                    else f"where(index_F >= index_B, {one}, {other})"
                )
            )
            held.append(f"x{step}")
        end = drawn.choice(("Out[B_X, E] = {} · V[F_Y, E]", "Out[B_X] = sum_F({})", "Out[B_X, F_Y] = softmax_F({})"))
        lines[0] += ", E=8192" if "E" in end else ""
        yield f"chain {number}", "\n".join([*lines, end.format(held[-1])]), ["X", "Y"]


def products(count: int, seed: int) -> Iterator[tuple[str, str, dict[str, int]]]:
    """A name, a text and a mesh: one to three products, functions, softmaxes or norms of what they read, each array
    split anew, so that either operand is gathered or sent; and outputs from the middle."""
    drawn = random.Random(f"products {seed}")
    for number in range(count):
        sizes = {dim: drawn.choice(SIZES) * (4 if dim == "I" else 1) for dim in "IJKL"}
        read, split, ends = "x", _split(drawn, "IJ"), dict[str, None]()
        lines, given = list[str](), f"x[{split}]"
        for place in range(drawn.randint(1, 3)):
            dim, after = "JKL"[place], "KLJ"[place]
            before, held = _before_product(drawn, given, read, dim, split, f"a{place}")
            read, split = f"y{place}", _split(drawn, f"I{after}")
            lines += [*before, f"{read}[{split}] = {held} · W{place}[{_split(drawn, dim + after)}]"]
            given = read
            ends |= {read: None} if drawn.random() < 0.25 else {}
        dims = ", ".join(f"{dim}={size}" for dim, size in sizes.items() if any(dim in line for line in lines))
        text = "\n".join((f"dims {dims}", *lines, f"return {', '.join(ends | {read: None})}"))
        yield f"products {number}", text, dict(zip("XY", drawn.choice(((4, 2), (2, 4))), strict=True))


def _split(drawn: random.Random, dims: str) -> str:
    """Two dims, each split over an axis or over none."""
    axes = drawn.choice(("X ", " X", "XY", "YX", "Y ", " Y"))
    return ", ".join(f"{dim}_{axis}".removesuffix("_ ") for dim, axis in zip(dims, axes, strict=True))


def _before_product(
    drawn: random.Random, given: str, read: str, dim: str, split: str, name: str
) -> tuple[list[str], str]:
    """Statements, and what they lead to: an array as it is, functions of it, its softmax or its norm."""
    match drawn.randrange(6):
        case 0 | 1:
            return [], given
        case 2:
            return [f"{name} = {drawn.choice(UNARY)}({given})"], name
        case 3:
            return [f"{name} = silu({given}) ⊙ {read}"], name
        case 4:
            return [f"{name} = softmax_{dim}({given})"], name
        case _:
            rows = f"n{name}[{split.partition(',')[0]}] = rsqrt(sum_{dim}(square({given})))"
            return [rows, f"{name} = {read} ⊙ n{name}"], name


def as_one() -> Iterator[list[object]]:
    """Where something is done as one."""
    for name, text in AS_ONE:
        for topology, mesh in ON:
            for sizes in OF:
                dims = dict(zip("IJK", sizes, strict=True))
                plan = shardc.plan(text, mesh=mesh, dims=dims, topology=topology, overlap="on")
                if plan.schedule.together:
                    of = ", ".join(f"{dim}={size}" for dim, size in dims.items())
                    yield [f"{name}, {mesh}, {of}", topology, *of_plan(plan)]


def of_plan(plan: shardc.Plan) -> list[object]:
    found = plan.verify()
    promised, compiled = found.predicted_memory.total_bytes, found.compiled_memory.total_bytes
    return [promised, compiled, promised / compiled, ""]


def row(name: str, text: str, axes: list[str] | dict[str, int], topology: str, backward: bool = False) -> list[object]:
    try:
        mesh = axes if isinstance(axes, dict) else sizes_on(topology, axes)
        program = shardc.parse(text, mesh=mesh, topology=topology)
        return [name, topology, *of_plan(shardc.plan(shardc.grad(program, whole=True) if backward else program))]
    except shardc.ShardcError as error:
        return [name, topology, None, None, None, error.code]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--topology", choices=SLICES, action="append")
    parser.add_argument("--only", default="")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--as-one", action="store_true")
    parser.add_argument("--products", type=int, help="so many drawn programs of products alone")
    asked = parser.parse_args()
    every: list[tuple[str, str, list[str] | dict[str, int]]] = list(examples())
    if asked.products:
        every = [(name, f"dtype bf16\n{text}", mesh) for name, text, mesh in products(asked.products, asked.seed)]
        asked.topology = asked.topology or [SLICES[0], SLICES[2]]
    elif asked.gradients:
        every = [(name, larger(text, 32), axes) for name, text, axes in every]
    else:
        every += [(f"{name}, 4 times", larger(text, 4), axes) for name, text, axes in every]
        every += chains(asked.chains, asked.seed)
    rows = (
        list(as_one())
        if asked.as_one
        else [
            row(*case, topology, asked.gradients)
            for case in every
            if asked.only in case[0]
            for topology in asked.topology or list(SLICES)
        ]
    )
    print(
        tabulate(
            rows,
            ["program", "slice", "promised, B", "compiled, B", "÷", "refused"],
            floatfmt=("", "", ",.0f", ",.0f", ".3f", ""),
        )
    )
    ratios = [ratio for *_, ratio, _ in rows if ratio is not None]
    within = sum(0.9 <= ratio <= 1.1 for ratio in ratios)
    short = sum(ratio < 0.9 for ratio in ratios)
    print(f"\nwithin 10 % of what is compiled: {within} of {len(ratios)}; less than that: {short}")
    print(f"mean {statistics.geometric_mean(ratios):.3f}, largest {max(ratios):.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
