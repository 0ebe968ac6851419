"""The hardware table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, assert_never

from tabulate import tabulate

from shardc.cost import Chip
from shardc.cost.chips import LinkKind

_COLUMNS = ("chip", "bf16 FLOP/s", "int8, fp8 OP/s", "HBM B", "HBM B/s", "link B/s one way", "DCN B/s", "links")


def chip_table(chips: Sequence[Chip]) -> str:
    """One row a chip; the sources below, numbered."""
    sources = list(dict.fromkeys(chip.source for chip in chips))
    rows = [
        (
            chip.name,
            *(f"{value:.3g}" for value in (chip.flops, chip.narrow_flops, chip.hbm_bytes, chip.hbm_bandwidth)),
            f"{chip.link_bandwidth:.3g}",
            f"{chip.dcn_bandwidth:.3g}",
            f"{_links(chip)} [{sources.index(chip.source) + 1}]",
        )
        for chip in chips
    ]
    notes = [f"[{number}] {source}" for number, source in enumerate(sources, 1)]
    return "\n".join([tabulate(rows, headers=_COLUMNS, tablefmt="simple", disable_numparse=True), "", *notes])


def as_fields(chip: Chip) -> dict[str, Any]:
    return asdict(chip)


def _links(chip: Chip) -> str:
    match chip.links:
        case LinkKind.SWITCH:
            return f"switch, {chip.domain} to a domain"
        case LinkKind.TORUS:
            rings = f"at {chip.wraps_at}" if chip.wraps_at else f"of whole cubes of {chip.wraps_multiples}"
            return f"{chip.torus_dims}D torus, rings {rings}, to {chip.largest}"
        case kind:
            assert_never(kind)
