"""How many files and functions of shardc planning one expression enters: `python tests/benchmark/walk.py`.

    python tests/benchmark/walk.py "A[I_X, J] → A[I, J]" X=8     # another expression and mesh

Counted by `sys.setprofile` in a fresh process, so that no cache of an earlier plan hides a call. Reading the text is
not counted, nor class bodies, module tops and what has no name.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from tabulate import tabulate

import shardc
from shardc.cost import LinkModel, chip
from shardc.planner import Objective, plan_with_subaxes

TEXT, MESH = "A[I, J_X] · B[J, K] → C[I, K_X]", "X=4"
ROOT = Path(shardc.__file__).parent


def entered(text: str, mesh: str, objective: Objective) -> set[CodeType]:
    """The functions of shardc that planning enters."""
    program = shardc.parse(text, mesh=mesh, dims=dict.fromkeys("IJK", 4096), dtype="bf16")
    model, found = LinkModel.of(program.mesh, chip("v5e")), set[CodeType]()

    def seen(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.add(frame.f_code)

    sys.setprofile(seen)
    try:
        plan_with_subaxes(program, model, objective)
    finally:
        sys.setprofile(None)
    ours = {code for code in found if Path(code.co_filename).is_relative_to(ROOT)}
    return {code for code in ours if not code.co_name.startswith("<")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default=TEXT)
    parser.add_argument("mesh", nargs="?", default=MESH)
    asked = parser.parse_args()
    found = entered(asked.text, asked.mesh, Objective.TIME)
    rooms = Counter(Path(code.co_filename).relative_to(ROOT).parts[0] for code in found)
    files = {room: len({c.co_filename for c in found if f"/shardc/{room}" in c.co_filename}) for room in rooms}
    rows = [(room, files[room], count) for room, count in rooms.most_common()]
    print(tabulate([*rows, ("all", sum(files.values()), len(found))], headers=("room", "files", "functions")))


if __name__ == "__main__":
    main()
