"""Random plans beside the TPU compiler: wire bytes and memory, predicted and compiled.

    python tests/benchmark/bench_verify.py [--plans 200] [--seed 0] [--small | --collectives | --uneven | --sums]

Reshards and matmuls of rank 2 and 3 on v5p:2x2x2 and v5p:4x4x4, bf16, half the plans each, by the objectives in
turn; needs libtpu. Dims are such that a device holds about a megabyte or more, as it does in practice; `--small`
takes 64 to 512 instead, where tiles and the compiler's short cuts for small arrays show. `--collectives` are one each,
of arrays of two to five dims, some of one element on a device, on five slices; some behind a product. `--uneven`
are products and moves of partial sums over axes of unlike sizes, where moves are of digits of a dim, several in a row.
`--sums` are partial sums of two to four dims that are given, moved to where they lie otherwise, some read after it.
"""

import argparse
import math
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial

import shardc

SLICES = {"v5p:2x2x2": {"X": 2, "Y": 2, "Z": 2}, "v5p:4x4x4": {"X": 4, "Y": 4, "Z": 4}}
LARGE = {2: (2048, 4096, 8192), 3: (512, 1024, 2048)}
SMALL = {2: (64, 128, 256, 512), 3: (64, 128, 256)}
LAID = [
    ("v5e:4x4", {"Y": 4, "X": 4}),
    ("v5e:2x4", {"Y": 2, "X": 4}),
    ("v5e:2x4", {"Y": 1, "X": 8}),
    ("v5p:2x2x2", {"Y": 2, "X": 4}),
    ("v5p:2x2x4", {"Y": 4, "X": 4}),
]
UNEVEN = [
    ("v5e:4x4", {"X": 8, "Y": 2}),
    ("v5e:4x4", {"X": 2, "Y": 8}),
    ("v5e:4x4", {"X": 2, "Y": 4, "Z": 2}),
    ("v5e:2x4", {"X": 2, "Y": 4}),
    ("v5p:2x2x4", {"X": 8, "Y": 2}),
    ("v5p:2x2x4", {"X": 2, "Y": 4, "Z": 2}),
]
SUMS = [
    ("v5e:2x4", {"X": 4, "Y": 2}),
    ("v5e:2x4", {"X": 2, "Y": 4}),
    ("v5e:2x4", {"X": 2, "Y": 2, "Z": 2}),
    ("v5p:2x2x2", {"X": 4, "Y": 2}),
    ("v5p:2x2x2", {"X": 2, "Y": 2, "Z": 2}),
]
HELD = (1, 1, 2, 4, 16, 128, 256)  # elements of a dim that a device holds
MOST = 2**27  # elements of an array, which the compiler takes some seconds for


@dataclass(frozen=True)
class Case:
    text: str
    dims: dict
    topology: str
    mesh: dict
    options: dict

    def plan(self):
        return shardc.plan(self.text, mesh=self.mesh, dims=self.dims, topology=self.topology, **self.options)


def cases(count, seed=0, small=False):
    draw = random.Random(seed)
    for number in range(count):
        topology = list(SLICES)[number % 2]
        text, rank = program(draw, SLICES[topology])
        sizes = (SMALL if small else LARGE)[rank]
        dims = {dim: draw.choice(sizes) for dim in "BIJK"}
        if "·" in text and rank == 3:
            dims["B"] = draw.choice((64, 128))
        objective = ("time", "bytes")[number // 2 % 2]
        yield Case(text, dims, topology, SLICES[topology], {"objective": objective, "dtype": "bf16"})


def collectives(count, seed=0):
    """One collective each, over X, of two dims; some third one may be split over Y."""
    draw = random.Random(seed)
    for _ in range(count):
        topology, mesh = draw.choice(LAID)
        names = "BGHTD"[: draw.choice((2, 3, 3, 4, 4, 5))]
        before, after = draw.sample(names, 2)
        beside = draw.choice([None, *(name for name in names if name not in (before, after))])
        held = {name: draw.choice(HELD) for name in names}
        over = {before: mesh["X"], after: mesh["X"], beside: mesh["Y"]}
        dims = {name: size * over.get(name, 1) for name, size in held.items()}
        dims |= {} if math.prod(dims.values()) <= MOST else dict.fromkeys(names, 16)
        dims["K"] = 128 * mesh["X"]

        def block(split, beside=beside, names=names):
            axes = {beside: "_Y", split: "_X"}
            return f"[{', '.join(name + axes.get(name, '') for name in names)}]"

        cut = draw.randint(1, len(names) - 1)
        product = f"P[K_X, {', '.join(names[:cut])}] · Q[K_X, {', '.join(names[cut:])}]"
        text = draw.choice(
            (
                f"{product} → C{block(before, None)}",
                f"C{block(None)} = AllGather_X(A{block(before)})",
                f"C{block(before)} = ReduceScatter_X(A{block(None)}{{U_X}})",
                f"C{block(after)} = AllToAll_X(A{block(before)})",
                f"C{block(None)} = AllReduce_X(A{block(None)}{{U_X}})",
                f"A{block(before)} → C{block(after)}",
                f"A{block(None)}{{U_X}} → C{block(after)}",
            )
        )
        options = {"dtype": draw.choice(("bf16", "bf16", "f32")), "idle": "keep", "overlap": "off"}
        yield Case(text, dims, topology, mesh, options)


def uneven(count, seed=0):
    """Products, one after another with a function between, or a move of partial sums, over axes of unlike sizes."""
    draw = random.Random(seed)
    for _ in range(count):
        topology, mesh = draw.choice(UNEVEN)
        dims = {dim: draw.choice((256, 512, 1024, 2048, 4096)) for dim in "BDF"}
        axis = draw.choice(list(mesh))
        others = {name: size for name, size in mesh.items() if name != axis}
        text = draw.choice(
            (
                f"{array(draw, mesh, 'A', 'BD')} · {array(draw, mesh, 'W', 'DF')} → {array(draw, mesh, 'C', 'BF')}",
                f"H = {array(draw, mesh, 'A', 'BD')} · {array(draw, mesh, 'W', 'DF')}; G = gelu(H); "
                f"{array(draw, mesh, 'O', 'BD')} = G · {array(draw, mesh, 'V', 'FD')}",
                f"{array(draw, others, 'A', 'BD')}{{U_{axis}}} → {array(draw, mesh, 'A', 'BD')}",
            )
        )
        yield Case(text, dims, topology, mesh, {"dtype": "bf16"})


def sums(count, seed=0):
    """Partial sums over some axes that are given, moved to wherever each of these axes lies at a dim, or at none."""
    draw = random.Random(seed)
    for _ in range(count):
        topology, mesh = draw.choice(SUMS)
        names = "ABCD"[: draw.choice((2, 3, 3, 4, 4))]
        dims = {dim: draw.choice((8, 16, 32, 64)) for dim in names[:-2]}
        dims |= {names[-2]: draw.choice((128, 512, 1024)), names[-1]: draw.choice((256, 1024, 2048))}
        axes = draw.sample(list(mesh), len(mesh))
        summed, others = axes[: draw.randint(1, len(axes))], {}
        for axis in axes[len(summed) :]:
            others.setdefault(draw.choice(names), []).append(axis)
        after = {dim: list(some) for dim, some in others.items()}
        for axis in summed:
            if draw.random() < 0.85:
                after.setdefault(draw.choice(names), []).append(axis)
        before, left = (", ".join(spelled(dim, some.get(dim)) for dim in names) for some in (others, after))
        text = f"P[{left}] = Q[{before}]{{U_{''.join(summed)}}}" + draw.choice(("", "", "; R = relu(P)"))
        yield Case(text, dims, topology, mesh, {"dtype": "bf16", "idle": "keep"})


def spelled(dim, axes):
    return f"{dim}_{''.join(axes)}" if axes else dim


def array(draw, mesh, name, dims):
    """An array of these dims, each axis of the mesh at one of them or at none."""
    placed = {dim: "" for dim in dims}
    for axis in draw.sample(list(mesh), len(mesh)):
        dim = draw.choice([None, *dims])
        if dim:
            placed[dim] += axis
    return f"{name}[{', '.join(dim + ('_' + axes if axes else '') for dim, axes in placed.items())}]"


def program(draw, mesh):
    kind = draw.randrange(4)
    if kind < 2:
        dims = ("IJ", "IJK")[kind]
        return f"{array(draw, mesh, 'A', dims)} → {array(draw, mesh, 'A', dims)}", len(dims)
    first, second, third = (dims.rjust(kind, "B") for dims in ("IJ", "JK", "IK"))
    arrays = (array(draw, mesh, name, dims) for name, dims in (("A", first), ("W", second), ("C", third)))
    return "{} · {} → {}".format(*arrays), kind


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--small", action="store_true")
    kinds.add_argument("--collectives", action="store_true")
    kinds.add_argument("--uneven", action="store_true")
    kinds.add_argument("--sums", action="store_true")
    options = parser.parse_args()
    counts, remarks, ratios = Counter(), Counter(), []
    asked = (options.uneven, uneven), (options.collectives, collectives), (options.sums, sums)
    drawn = next((each for is_asked, each in asked if is_asked), partial(cases, small=options.small))
    for case in drawn(options.plans, options.seed):
        try:
            found = case.plan().verify()
        except shardc.ShardcError as error:
            counts[f"refused: {error.code}"] += 1
            print(f"{case.text} {case.topology}: {str(error).splitlines()[0][:150]}")
            continue
        counts["compiled"] += 1
        total, wanted = found.compiled_bytes, found.predicted_bytes
        counts["wire bytes within 1 %"] += abs(total - wanted) <= 0.01 * wanted
        counts["every collective within 1 %"] += found.agrees
        ratio = found.predicted_memory.total_bytes / found.compiled_memory.total_bytes
        ratios.append(ratio)
        counts["memory within 10 %"] += abs(ratio - 1) <= 0.1
        remarks.update(match.remark for match in found.steps if match.remark)
        for match in found.steps:
            if not match.agrees:
                print(f"{case.text} {case.topology}: step {match.step}, {match.kind}: {match.remark}")
        for collective in found.unforeseen:
            print(f"{case.text} {case.topology}: unforeseen {collective.kind} of {collective.total_bytes} bytes")
    compiled = counts["compiled"]
    for name, count in counts.items():
        print(f"{name}: {count} of {compiled if name != 'compiled' else options.plans}")
    ratios.sort()
    print("memory, predicted over compiled: " + ", ".join(f"{ratios[len(ratios) * p // 100]:.2f}" for p in (5, 50, 95)))
    print("normalised: " + ", ".join(f"{name} {count}" for name, count in sorted(remarks.items())))


if __name__ == "__main__":
    main()
