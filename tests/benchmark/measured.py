"""Predictions beside the measurements found in print: `python tests/benchmark/measured.py`.

Raw: what `shardc.plan` says. Fitted: with one efficiency e and one latency t per system, t + raw/e, both by least
squares of the relative error over that system's points. Sources: *How To Scale Your Model*, chapter 3 (v5e) and
the chapter on GPUs (H100).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tabulate import tabulate

import shardc

V5E = {"chip": "v5e", "mesh": {"X": 8, "Y": 4}, "dtype": "bf16"}
V5E_RING = {"chip": "v5e", "mesh": {"X": 8, "Y": 16}, "dtype": "bf16"}
NODE = {"chip": "H100", "mesh": {"X": 8}, "dtype": "bf16"}
GATHER, GATHER_X, REDUCE = "A[E_Y, F] → A[E, F]", "A[E_X, F] → A[E, F]", "A[E, F]{U_X} → A[E, F]"


@dataclass(frozen=True)
class Point:
    system: str
    what: str
    predicted: float  # s
    measured: float  # s


def seconds(text: str, rows: int, columns: int, **options: object) -> float:
    return shardc.plan(text, dims={"E": rows, "F": columns}, **options).cost.time_s  # type: ignore[arg-type]  # as given


def bus(size: int, bandwidth: float) -> float:
    """The time of an AllReduce over 8 GPUs whose bus bandwidth was measured: 2·(n-1)/n·V over it."""
    return 2 * 7 / 8 * size / bandwidth


def points() -> list[Point]:
    rows, columns = 16 * 1024, 2048
    ring = 2 * rows * columns * 15 / 16 / (2 * 0.95 * 4.5e10)  # both directions of a link at 95 %
    return [
        Point("v5e", "AllGather_Y bf16[2048_Y, 8192], Y=4, a line", seconds(GATHER, 2048, 8192, **V5E), 680e-6),
        Point("v5e", "AllGather_Y bf16[256_Y, 256], Y=4, a line", seconds(GATHER, 256, 256, **V5E), 8e-6),
        Point(
            "v5e",
            "AllGather_Y of 67 MB, Y=16, a ring, at 95 % of 4.5e10 B/s",
            seconds(GATHER, rows, columns, **V5E_RING),
            ring,
        ),
        Point("H100", "AllGather of 512 MiB in a node", seconds(GATHER_X, 2**14, 2**14, **NODE), 1.5e-3),
        Point("H100", "AllReduce of 1 GB at 370e9 B/s", seconds(REDUCE, 500_000, 1000, **NODE), bus(10**9, 370e9)),
        Point("H100", "AllReduce of 58 MB at 150e9 B/s", seconds(REDUCE, 29_000, 1000, **NODE), bus(58 * 10**6, 150e9)),
    ]


def fitted(chosen: list[Point]) -> tuple[float, float]:
    """(latency in s, efficiency): the least squares of (t + p/e)/m − 1."""
    rows = np.array([[1 / point.measured, point.predicted / point.measured] for point in chosen])
    latency, slowness = np.linalg.lstsq(rows, np.ones(len(chosen)), rcond=None)[0]
    return float(latency), float(1 / slowness)


def main() -> None:
    every = points()
    rows, notes = [], []
    for system in dict.fromkeys(point.system for point in every):
        chosen = [point for point in every if point.system == system]
        latency, efficiency = fitted(chosen)
        notes.append(f"{system}: efficiency {efficiency:.2f}, latency {1e6 * latency:.1f} µs")
        for point in chosen:
            with_fit = latency + point.predicted / efficiency
            numbers = (point.measured, point.predicted, with_fit)
            ratios = (point.predicted / point.measured, with_fit / point.measured)
            rows.append((system, point.what, *(f"{1e6 * n:.1f}" for n in numbers), *(f"{r:.2f}" for r in ratios)))
    headers = ("system", "what", "measured µs", "raw µs", "fitted µs", "raw ÷ measured", "fitted ÷ measured")
    print(tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True))
    print("\n".join(["", *notes]))


if __name__ == "__main__":
    main()
