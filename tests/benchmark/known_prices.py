"""What single moves cost, and in which form: `tests/golden/known_prices.json`.

    python tests/benchmark/known_prices.py             # which prices differ from the table now
    python tests/benchmark/known_prices.py --write     # the same, and the table is written

On each piece of hardware, for moves spread over all that there are of an array of two or three dims: the bytes that
arrive; picoseconds by the form in which it is written for that block, of any block, and by the rate alone; the formula;
the form; and what the form takes of memory, added up over whatever may be beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from asked import kept, told

import shardc
from shardc.cost import CHIPS, LinkModel
from shardc.cost.rate import picoseconds
from shardc.interface.hardware import Hardware
from shardc.ir.collectives import Move
from shardc.ir.dtypes import DTYPES
from shardc.ir.operations import Kind
from shardc.ir.sharding import Array, Sharding
from shardc.lowering.buffers import Blocks, Take, actions
from shardc.lowering.lower import form
from shardc.lowering.scatters import block_of
from shardc.lowering.spell import words
from shardc.rules.moves import moves
from shardc.rules.placements import placements

TABLE = Path(__file__).parents[1] / "golden" / "known_prices.json"
MOVES = 36  # of each kind of array, and hardware
SHAPES = ((3072, 1536), (384, 2304), (1536, 96, 384))
HARDWARE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("X=4,Y=2", {"chip": "v5e"}),
    ("X=4,Y=2", {"chip": "v5p"}),
    ("X=4,Y=2", {"chip": "v5p", "formula": "book"}),
    ("X=4,Y=2", {"chip": "v5p", "profile": "spec"}),
    ("X=4,Y=2", {"chip": "v5e", "dcn": "Y=2"}),
    ("X=4,Y=2", {"chip": "v5e", "wraparound": "X=line"}),
    ("X=4,Y=2", {"chip": "v5e", "wraparound": "X=one-way"}),
    ("X=2,Y=3,Z=4", {"chip": "v4"}),
    ("X=2,Y=3,Z=4", {"chip": "v7x"}),
    ("X=16,Y=2", {"chip": "v6e"}),
    ("X=32", {"chip": "v3"}),
    ("X=8,Y=2", {"chip": "H100"}),
    ("X=4,Y=4", {"chip": "B200"}),
    ("X=2,Y=2,Z=2", {"topology": "v5p:2x2x2"}),
    ("X=2,Y=4", {"topology": "v5p:2x2x2"}),
    ("X=4,Y=4", {"topology": "v5p:4x2x2", "map": {"X": (0,), "Y": (1, 2)}}),
    ("X=4,Y=4,Z=4", {"topology": "v5p:4x4x4"}),
    ("X=2,Y=4", {"topology": "v5e:2x4"}),
    ("X=4,Y=2", {"topology": "v5e:2x4"}),
    ("X=8", {"topology": "v5e:2x4"}),
    ("X=4,Y=4", {"topology": "v5e:4x4"}),
    ("X=16", {"topology": "v5e:4x4"}),
    ("X=4,Y=4", {"topology": "v6e:4x4"}),
    ("P=2,X=2,Y=4", {"topology": "v5e:2x4", "dcn": "P=2"}),
)


def prices(mesh: str, options: dict[str, Any]) -> list[str]:
    given = {name: value for name, value in options.items() if name in ("chip", "topology", "dcn")}
    program = shardc.parse("A[I] → A[I]", mesh=mesh, dims={"I": 1}, **given)
    model = Hardware.of(**{name: value for name, value in options.items() if name != "topology"}).model(program)
    return [_said(model, move, array) for shape in SHAPES for array, move in _spread(list(_every(model, shape)))]


def chips() -> list[str]:
    """What is known of each chip, which its source says."""
    return [str(asdict(each)) for each in CHIPS.values()]


def products() -> list[str]:
    """What a device takes alone for so many additions and bytes, where that is measured: the longer, and where both
    are as long, more."""
    found = []
    for topology, dtype in product(("v5e:2x4", "v5p:2x2x2", "v6e:2x4", "v4:2x2x2"), ("bf16", "f32", "int8")):
        program = shardc.parse("A[I] → A[I]", mesh="X=8", dims={"I": 8}, topology=topology)
        alone = Hardware.of().model(program).alone
        for flops, size in product((10**9, 3 * 10**9, 10**10, 10**11), (10**6, 10**7, 4 * 10**7, 10**8)):
            taken = picoseconds(alone.seconds(flops, size, size // 3, DTYPES[dtype]))
            moved = picoseconds(alone.moving_s(size, size // 3, DTYPES[dtype]))
            found.append(f"{topology} {dtype} {flops} FLOP, {size} B: {taken} ps, moved {moved} ps")
    return found


def now() -> dict[str, list[str]]:
    moved = {key(mesh, options): prices(mesh, options) for mesh, options in HARDWARE}
    return moved | {"chips": chips(), "products": products()}


def _every(model: LinkModel, shape: tuple[int, ...]) -> Iterator[tuple[Array, Move]]:
    mesh, dtypes = model.mesh, (DTYPES["bf16"], DTYPES["f32"], DTYPES["int8"])
    for summed in ((), mesh.names[:1], mesh.names[-2:]):
        free = tuple(axis for axis in mesh.names if axis not in summed)
        for place, dims in enumerate(placements(free, len(shape))):
            array = Array(
                "A", ("I", "J", "K")[: len(shape)], shape, Sharding(dims, frozenset(summed)), dtypes[place % 3]
            )
            if array.sharding.divides(shape, mesh):
                every = ((array, move) for move in moves(array.sharding, mesh, mesh.names))
                moving = ((array, move) for array, move in every if move.facts.kind is not Kind.SLICE)
                yield from ((array, move) for array, move in moving if move.leaves(array.sharding).divides(shape, mesh))


def _spread(every: list[tuple[Array, Move]]) -> list[tuple[Array, Move]]:
    return every[:: max(1, len(every) // MOVES)]


def _said(model: LinkModel, move: Move, before: Array) -> str:
    mesh, size, block = model.mesh, before.local_bytes(model.mesh), block_of(before, model.mesh)
    after = Array("A", before.dims, before.shape, move.leaves(before.sharding), before.dtype)
    written = form(move, block, model.target)
    rates = (model.emitted(move, block, before.sharding), model.emitted(move, None, before.sharding), model.rate(move))
    times = " ".join(str(rate.time_ps(size)) for rate in rates)
    beside = [Blocks(before, after, mesh, *flags) for flags in product((False, True), repeat=3)]
    taken = sum(each.size for blocks in beside for each in actions(written, blocks) if isinstance(each, Take))
    name = f"{before} {before.dtype} → {after}"
    how = ", ".join(words(written))
    brings = move.wire_bytes(before.sharding, mesh, size)
    return f"{name}: {brings} B; {times} ps; {model.formula(move, before)}; {how}; {taken} B taken"


def known() -> dict[str, list[str]]:
    return kept(TABLE)


def key(mesh: str, options: dict[str, Any]) -> str:
    return f"{mesh} {options}"


def main() -> None:
    told(__doc__, TABLE, now)


if __name__ == "__main__":
    main()
