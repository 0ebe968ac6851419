"""What the commands are asked that print what differs from a table of `tests/golden`, and write it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Lines: TypeAlias = dict[str, list[str]]  # of a table: of each case what is known


def asked(doc: str | None, draws: bool = False) -> argparse.Namespace:
    """`--write`; and where cases may be drawn anew `--draw` so many, by a `--seed`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if draws:
        parser.add_argument("--draw", type=int)
        parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def kept(table: Path) -> Lines:
    """What a table has, nothing before it is first written."""
    found: Lines = json.loads(table.read_text("utf-8")) if table.exists() else {}
    return found


def told(doc: str | None, table: Path, now: Callable[[], Lines]) -> None:
    """The command of a table of lines: what differs, case by case; with `--write` the table is as it is now."""
    options = asked(doc)
    before, after = kept(table), now()
    for name, lines in after.items():
        old = before.get(name, [])
        apart = [f"  known {line}" for line in old if line not in lines]
        apart += [f"  now   {line}" for line in lines if line not in old]
        if apart:
            print(name, *apart, sep="\n")
    if options.write:
        table.write_text(json.dumps(after, ensure_ascii=False, indent=1) + "\n", "utf-8")
