"""What the commands are asked that print what differs from a table of `tests/golden`, and write it."""

from __future__ import annotations

import argparse


def asked(doc: str | None, draws: bool = False) -> argparse.Namespace:
    """`--write`; and where cases may be drawn anew `--draw` so many, by a `--seed`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if draws:
        parser.add_argument("--draw", type=int)
        parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()
