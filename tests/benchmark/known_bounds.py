"""What no method, and no path of moves, gets below, of many drawn programs: `tests/golden/known_bounds.json`.

    python tests/benchmark/known_bounds.py               # which bounds differ from the table now
    python tests/benchmark/known_bounds.py --write       # the same, and the table is written: a bound rose
    python tests/benchmark/known_bounds.py --draw 300    # other programs

Nothing is planned. Of a program there is the bound of all its bytes, what its ends take in memory, and of a product the
three bounds that this is the largest of; of the shardings of an array, what it takes from one to all others, by time
and by bytes, added up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from asked import asked

import shardc
from shardc.cost import LinkModel, chip
from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Sharding
from shardc.planner import Objective
from shardc.planner.bounds.bound import _Multiplied, _of_arrays, _outputs, lower_bound
from shardc.planner.bounds.held import least_held
from shardc.planner.bounds.received import received
from shardc.planner.bounds.sent import by_products, sent
from shardc.planner.paths.graph import Graph
from shardc.planner.paths.search import Search

TABLE = Path(__file__).parents[1] / "golden" / "known_bounds.json"
Entry = dict[str, Any]
SOURCES = (((), ()), (("X",), ()), (("X", "Y"), ()), (("X",), ("Y",)), ((), ("Y",)))
SEARCHED = (("X=4,Y=2", "v5e"), ("X=2,Y=2,Z=2", "v5p"), ("X=2,Y=3", "H100"), ("X=4,Y=4", "v5p"), ("X=8,Y=2", "v6e"))


def bounds(text: str, mesh: str, dims: dict[str, int]) -> Entry:
    """Of a program in f32."""
    try:
        program = shardc.parse(text, mesh=mesh, dims=dims, dtype="f32")
    except ShardcError as error:
        return {"refused": error.code}
    schedule: Any = SimpleNamespace(program=program)
    return {"bytes": lower_bound(schedule), "held": least_held(program), "words": list(_words(program))}


def _words(program: Program) -> Iterator[tuple[int, int, int]]:
    """Of each product that an output needs, the words that a device receives, that a group does, and the busiest."""
    for value, dims, wanted in _outputs(program):
        for need in value.needs if wanted is not None else ():
            if isinstance(need, _Multiplied):
                axes = dict(zip(dims, wanted.dims, strict=True))
                lies = Sharding(tuple(axes.get(dim, ()) for dim in need.dims), wanted.unreduced)
                matmul = _of_arrays(need, lies, program)
                if matmul is not None:
                    yield received(matmul), sent(matmul), by_products(matmul)


def searched(mesh_text: str, name: str, objective: Objective) -> list[int]:
    """From each source to every sharding of an array of two dims, what no path is cheaper than: added up."""
    mesh = Mesh.of({part.split("=")[0]: int(part.split("=")[1]) for part in mesh_text.split(",")})
    model = LinkModel.of(mesh, chip(name))
    search = Search(Graph(mesh, 2, mesh.names), (4608, 2304), DTYPES["bf16"], model, objective)
    found = []
    for dims in SOURCES:
        for summed in ((), ("Z",) if "Z" in mesh.names else ()):
            source = search.graph.number(Sharding(dims, frozenset(summed)))
            goals = search.paths_from(source).price
            found.append(sum(search.bound(source, goal) for goal in goals))
    return found


def known() -> Entry:
    return json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {"programs": [], "searched": []}


def now(table: Entry) -> Entry:
    programs = [case | bounds(case["text"], case["mesh"], case["dims"]) for case in table["programs"]]
    paths = [
        {"mesh": mesh, "chip": name, "objective": each.name, "sums": searched(mesh, name, each)}
        for mesh, name in SEARCHED
        for each in Objective
    ]
    return {"programs": json.loads(json.dumps(programs)), "searched": paths}


def drawn(count: int, seed: int) -> list[Entry]:
    from four_ways import drawn as draw

    from shardc.testing import loops, matmuls, partial_programs, programs, reshards

    strategies = ((matmuls(max_size=3), 4), (programs(), 1), (reshards(max_rank=4), 1), (loops(), 1))
    strategies += ((partial_programs(), 1),)
    every = [case for strategy, times in strategies for case in draw(strategy, 3 * times * count, seed)]
    cases = [{"text": case.text, "mesh": str(case.mesh), "dims": dict(case.dims)} for case in every]
    found = [case for case in cases if bounds(**case).get("bytes")]
    return found[:: max(1, len(found) // (5 * count))]


def main() -> None:
    options = asked(__doc__, draws=True)
    before = known()
    if options.draw:
        before = {"programs": drawn(options.draw, options.seed), "searched": []}
    after = now(before)
    for name, entries in after.items():
        for old, new in zip(before[name], entries, strict=False):
            if old != new and not options.draw:
                print(f"known {old}\nnow   {new}")
    if options.write or options.draw:
        lines = [
            json.dumps(name) + ": [\n" + ",\n".join(map(_line, entries)) + "\n]" for name, entries in after.items()
        ]
        TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _line(entry: Entry) -> str:
    return " " + json.dumps(entry, ensure_ascii=False)


if __name__ == "__main__":
    main()
