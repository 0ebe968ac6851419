"""How much of a TPU's memory a compiled program takes, as its compiler lays it out.

What `memory_analysis` says of temporaries is more than that where the heap has gaps: it adds what they take once more,
and more again where collectives are hidden beside products. examples/fsdp.shard with its gradients on v5e:4x4, at 80
times its size, takes 17,200 MiB by that and 12,800 as it lies, and the compiler, which refuses what is above 15.75 GiB,
does not refuse it (libtpu 0.0.42.1). How far the heap reaches stands in a report that the compiler writes where it is
told to. The report counts the handles of tuples as well, which take less than a megabyte and of which no plan knows,
and the analysis does not: the lesser of both is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REPORT = "*memory-usage-report.txt"
_TOTAL = re.compile(r"\(color=0\)\nTotal bytes: (\d+)")  # 0 is the memory beside the chip, the others are on it


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of one device, named as `memory_analysis` names them."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A `jax.stages.Compiled`, and the bytes that all its arrays take as they lie; None where no report says so."""

    made: Any
    laid_bytes: int | None

    def as_text(self) -> Any:
        return self.made.as_text()

    def memory_analysis(self) -> Any:
        found = self.made.memory_analysis()
        if found is None or self.laid_bytes is None:
            return found
        ends = found.argument_size_in_bytes, found.output_size_in_bytes
        return Sizes(*ends, min(found.temp_size_in_bytes, max(0, self.laid_bytes - sum(ends))))


def report_into(folder: str) -> dict[str, str]:
    """The compiler's options that have it write its reports there."""
    return {"xla_dump_to": folder}


def laid_bytes(folder: str) -> int | None:
    """What the last report in a folder says; None where there is none, as of what was compiled before and kept."""
    reports = sorted(Path(folder).rglob(_REPORT), key=lambda path: (path.stat().st_mtime_ns, path.name))
    found = _TOTAL.search(reports[-1].read_text(encoding="utf-8", errors="replace")) if reports else None
    return None if found is None else int(found[1])
