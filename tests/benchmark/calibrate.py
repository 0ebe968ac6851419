"""What a device of each generation takes for its own work, by its compiler: `python tests/benchmark/calibrate.py`.

    python tests/benchmark/calibrate.py                 # the table, each figure with the spread of what it is made of
    python tests/benchmark/calibrate.py --write         # the same, into shardc/cost/calibration.toml

Programs that show one kind of work alone are compiled for a slice with no TPU there, and the cycles that the compiler
left are read from the replay: large products for each type, those of f32 also where no operand stays on the chip, and
from which size on; products that mostly read, and that mostly write; what a gather leaves, copied to an output; the
pieces around an exchange, in memory and on the chip; the largest of a block as it lies, and of what is computed of each
element; a sum of two arrays by itself, beside one in a loop with another function; what takes its start and no more. A
figure is the middle one of its programs, in units per second, or seconds of a start. Prices on a slice that is named
are made of these (`cost.calibration`).
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import shardc
from shardc.cost import calibration
from shardc.machines.libtpu import installed

# Of v7x nothing is measured: what its cores take for an exchange is not among the cycles that the compiler leaves.
SLICES = {"v4p": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
PRODUCT, WIDE = "A[I, J] · B[J, K] → C[I, K]", (8192, 2048, 8192)
SQUARE = ((4096, 4096, 4096), (8192, 8192, 8192), WIDE, (2048, 8192, 4096))
HELD = ((4096, 2048, 4096), (2048, 4096, 8192), (2048, 2048, 16384), (8192, 1024, 8192))  # an operand of 32 MiB of f32
STREAMED = ((8192, 8192, 8192), (4096, 8192, 8192), (16384, 4096, 16384))  # of 128 MiB and more
MEBIBYTES = range(16, 144, 8)
READS = ((64, 8192, 8192), (64, 16384, 8192), (8, 8192, 16384))
WRITES = ((8192, 64, 8192), (16384, 32, 8192), (8192, 128, 16384))
BLOCKS = ((8192, 8192), (16384, 8192), (8192, 32768))
GATHERS = ("A[I_X, J] → A[I, J]", "A[I, J_X] → A[I, J]", "A[I_X, J_Y] → A[I, J]")
# What is sent lies anew first, as an input, and what is received again.
EXCHANGES = {"AllToAll_X(A[I, J_X]) → A[I_X, J]": 2, "AllToAll_XY(A[I, J_XY]) → A[I_XY, J]": 4}
LARGE = ((16384, 16384), (8192, 65536), (65536, 8192))
NEAR, SMALL = (
    "AllToAll_X(A[K, I_X, J, L]) → A[K, I, J_X, L]",
    ((256, 64, 8, 128), (512, 32, 8, 128), (1024, 32, 8, 128)),
)
LARGEST, COMPUTED = "max_J(A[I, J]) → C[I]", "max_J(square(A[I, J])) → C[I]"
BARE, FUSED = "C[I, J] = A[I, J] + B[I, J]", "C[I, J] = relu(A[I, J]) + B[I, J]"
# A product whose operations take about as long as its bytes, which a gather left: an input is brought near beforehand.
NARROW = "B2[J, K] = AllGather_X(B[J_X, K]); C[I, K] = A[I, J] ·_LOCAL B2[J, K]"
NARROWS = ((8192, 8192, 256), (4096, 16384, 256), (8192, 16384, 256), (8192, 8192, 384))
# Products of many small matrices, so many of so many rows, terms and columns (`lowering.small`).
MATRICES = "C[I, J, L] = A[I, J, K] · B[I, K, L]"
FEW_TERMS = ((8192, 32, 2, 32), (8192, 32, 4, 32), (2048, 64, 2, 64), (131072, 8, 4, 8), (32768, 2, 4, 64))
MANY_TERMS = ((8192, 32, 8, 32), (8192, 32, 16, 32), (65536, 8, 8, 8), (2048, 64, 32, 64), (8192, 2, 16, 64))
# What takes its start, and little more.
TINY, ONCE = ((8, 128, 128), (8, 256, 128), (16, 128, 128)), "C[I, J] = relu(A[I, J])"
SLOWER = 1.2
MOST = 0.45  # above, a product of more operations would take less (`cost.alone`)
Rates = dict[str, list[float]]


def replayed(text: str, topology: str, sizes: tuple[int, ...], dtype: str = "bf16") -> float:
    """The seconds that a device computes or copies."""
    plan = shardc.plan(
        text, mesh="X=2,Y=2", dims=dict(zip("IJKL", sizes, strict=False)), dtype=dtype, topology=topology, idle="keep"
    )
    return plan.verify().replayed.compute_s


def rates(topology: str) -> Iterator[tuple[str, float]]:
    """The name of a figure, and what one program shows of it."""
    for dtype in ("int8", "bf16", "f32"):
        for i, j, k in HELD if dtype == "f32" else SQUARE:
            text = PRODUCT.replace("C", "C: int32") if dtype == "int8" else PRODUCT
            yield f"{dtype}_flops", 2 * i * j * k / replayed(text, topology, (i, j, k), dtype)
    for dtype, size in (("bf16", 2), ("f32", 4)):
        for i, j, k in READS:
            yield f"{dtype}_read", size * (i * j + j * k) / replayed(PRODUCT, topology, (i, j, k), dtype)
        for i, j, k in WRITES:
            yield f"{dtype}_write", size * i * k / replayed(PRODUCT, topology, (i, j, k), dtype)
        for text, name in ((LARGEST, "largest"), (COMPUTED, "computed")):
            for i, j in BLOCKS:
                yield f"{dtype}_{name}", size * i * j / replayed(text, topology, (i, j), dtype)
        for i, j in BLOCKS:
            alone, fused = (replayed(text, topology, (i, j), dtype) for text in (BARE, FUSED))
            yield f"{dtype}_bare", size * i * j / (alone - fused)
    for sizes in BLOCKS:
        for text in GATHERS:
            yield "copy_bandwidth", 2 * sizes[0] * sizes[1] / replayed(text, topology, sizes)
    for text, parts in EXCHANGES.items():
        for i, j in LARGE:
            yield "lanes_bandwidth", 2 * 2 * i * j / parts / replayed(text, topology, (i, j))
    for sizes in TINY:
        yield "product_start", replayed(PRODUCT, topology, sizes)
        yield "function_start", replayed(ONCE, topology, sizes)
    for sizes in SMALL:
        yield "near_bandwidth", 2 * 2 * math.prod(sizes) / 2 / replayed(NEAR, topology, sizes)


def rounded_again(topology: str, operations: float) -> Iterator[float]:
    """By which part longer a product of f32 takes for each operand that it rounds again, where none stays there."""
    for i, j, k in STREAMED:
        yield max(0.0, replayed(PRODUCT, topology, (i, j, k), "f32") * operations / (2 * i * j * k) - 1) / 2


def operand_held(topology: str, operations: float) -> Iterator[float]:
    """Up to which operand of f32, in bytes, both are rounded once: half a step above those whose product takes no more
    than a fifth longer."""
    for size in MEBIBYTES:
        i, j, k = size * 64, 4096, 16384
        if replayed(PRODUCT, topology, (i, j, k), "f32") < SLOWER * 2 * i * j * k / operations:
            yield (size + MEBIBYTES.step // 2) * 2**20


def slowdowns(topology: str, known: Rates) -> Iterator[float]:
    """By which part longer a product takes, were its operations and its bytes to take equally long."""
    operations, read, written = (statistics.median(known[name]) for name in ("bf16_flops", "bf16_read", "bf16_write"))
    for i, j, k in NARROWS:
        computing, moving = 2 * i * j * k / operations, 2 * (i * j + j * k) / read + 2 * i * k / written
        longer, shorter = max(computing, moving), min(computing, moving)
        slower = replayed(NARROW, topology, (i, j, k)) / longer - 1
        yield min(max(0.0, slower / (shorter / longer) ** 3), MOST)


def by_terms(topology: str, known: Rates, sizes: tuple[tuple[int, int, int, int], ...]) -> Iterator[float]:
    """How many times longer than its bytes a product of small matrices takes."""
    read, written = (statistics.median(known[name]) for name in ("bf16_read", "bf16_write"))
    for i, j, k, m in sizes:
        moving = 2 * i * k * (j + m) / read + 2 * i * j * m / written
        yield replayed(MATRICES, topology, (i, j, k, m)) / moving


def measured(topology: str) -> Rates:
    found: Rates = {}
    for name, rate in rates(topology):
        found.setdefault(name, []).append(rate)
    operations = statistics.median(found["f32_flops"])
    again, held = list(rounded_again(topology, operations)), list(operand_held(topology, operations))
    found |= {"slowdown": list(slowdowns(topology, found)), "f32_again": again, "f32_held": held[-1:]}
    found |= {"few_terms": list(by_terms(topology, found, FEW_TERMS))}
    return found | {"many_terms": list(by_terms(topology, found, MANY_TERMS))}


def shown(figure: tuple[str, list[float]]) -> str:
    name, each = figure
    return f"{name} = {statistics.median(each):.3g}  # of {len(each)}: {min(each):.2e} to {max(each):.2e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--chips", default=",".join(SLICES))
    asked = parser.parse_args()
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    lines = [f"# Written by tests/benchmark/calibrate.py from the cycles that libtpu {installed()} left, {when}."]
    for chip, topology in SLICES.items():
        if chip in asked.chips.split(","):
            lines += [f"\n[{chip}]  # compiled for {topology}", *map(shown, measured(topology).items())]
            print("\n".join(lines), flush=True)
    if asked.write:
        Path(calibration.__file__).with_suffix(".toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
