"""How meshes lie on hardware, and what groups of devices have of its links: `tests/golden/known_links.json`.

    python tests/benchmark/known_links.py             # which layouts differ from the table now
    python tests/benchmark/known_links.py --write     # the same, and the table is written

Of each layout, drawn: on which chip each device is; what each group of axes has of the links, with its formulas; of
groups that are no axes, and of blocks sent to anybody, what they take; whether axes close, and have parts; the same of
a finer mesh; and of each collective what every link carries. What is long is told by a hash.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

from asked import kept, told

import shardc
from shardc.cost import LinkModel
from shardc.cost.carried import carried
from shardc.cost.layout import SHAPES
from shardc.cost.links import Level
from shardc.cost.links.level import exchanges, gathers
from shardc.cost.wiring import along_of, wiring
from shardc.interface.hardware import Hardware
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.refine import Refinement
from shardc.lowering.forms import Call, Round

TABLE = Path(__file__).parents[1] / "golden" / "known_links.json"
LAYOUTS, SEED = 160, 5
SHAPES_OF = {  # of slices of each chip; of those without a torus the numbers of devices
    "v3": ("2x2", "4x2", "4x4", "8x4", "32x2"),
    "v4": ("2x2x1", "2x2x2", "4x2x2", "4x4x4", "2x2x4", "4x4x8"),
    "v5e": ("2x2", "2x4", "4x2", "4x4", "4x8", "8x4", "8x8", "16x2", "16x4", "1x4", "6x2"),
    "v5p": ("2x2x1", "2x2x2", "4x2x2", "4x4x4", "2x2x4", "4x4x8", "2x3x4", "8x4x2", "4x1x1"),
    "v6e": ("2x2", "2x4", "4x4", "8x2", "16x4"),
    "v7x": ("2x2x1", "2x2x2", "2x2x4", "4x4x4", "2x2x8"),
    "H100": ("8", "16", "64", "24", "4x2", "4x4"),
    "GB200-NVL72": ("8", "144", "72"),
}
NAMES = (  # of slices, some as a cloud has them, which counts cores
    *("v5litepod-16", "v5e-8", "v5litepod-4", "v6e-32", "v3-8", "v3-32", "v4-8", "v4-32", "v5p-8", "v5p-64", "v5p-128"),
    *("v5p-12", "v5e-1", "v4-1", "v4-2", "v9-8", "v5p", "H100:4x2", "H100:3x2", "v5p:2x2x2x1", "v5e:2x2x2", "v5p:0x2"),
)
WALKED = {  # slices on which some meshes are walks
    "v5e:4x4": ("X=16", "X=4,Y=4", "X=2,Y=8"),
    "v5e:2x4": ("X=8", "X=2,Y=4", "X=4,Y=2"),
    "v6e:2x2": ("X=4", "X=2,Y=2"),
    "v7x:2x2x2": ("X=8", "X=2,Y=4"),
    "v7x:2x2x4": ("X=16", "X=4,Y=4"),
    "v3:4x2": ("X=8", "X=2,Y=4"),
    "v3:4x4": ("X=16", "X=2,Y=8"),
}
MOVED = (Kind.GATHER, Kind.SCATTER, Kind.SUM, Kind.EXCHANGE, Kind.PERMUTE)
BLOCK = 1_000_003  # bytes
Layout = tuple[str, dict[str, Any]]


def layouts() -> list[Layout]:
    """A mesh, and what is said of its hardware."""
    draw = random.Random(SEED)
    walks = [(mesh, {"topology": name}) for name, meshes in WALKED.items() for mesh in meshes]
    drawn = [_layout(draw) for _ in range(LAYOUTS)]
    return [*walks, *(("X=8", {"topology": name}) for name in NAMES), *(each for each in drawn if each not in walks)]


def _layout(draw: random.Random) -> Layout:
    name = draw.choice(sorted(SHAPES_OF))
    shape = draw.choice(SHAPES_OF[name])
    sizes = _cut(draw, prod(map(int, shape.split("x"))), draw.choice((1, 2, 2, 3, 3, 4)))
    axes = dict(zip("XYZW", sizes, strict=False))
    options: dict[str, Any] = {}
    if "x" in shape and draw.random() < 0.75:
        options["topology"] = f"{name}:{shape}"
    else:
        options["chip"] = name
    if "x" in shape and draw.random() < 0.25:
        options["wraparound"] = {draw.choice(list(axes)): draw.choice(SHAPES)}
    if "topology" in options and draw.random() < 0.25:
        many = len(shape.split("x"))
        options["map"] = {draw.choice(list(axes)): tuple(sorted(draw.sample(range(many), draw.randint(1, many))))}
    if draw.random() < 0.15:
        axes = {"P": 2} | axes
        options["dcn"] = {"P": 2}
    return ",".join(f"{axis}={size}" for axis, size in axes.items()), options


def _cut(draw: random.Random, devices: int, count: int) -> list[int]:
    """Sizes that multiply to so many."""
    found = [1] * count
    for prime in _primes(devices):
        found[draw.randrange(count)] *= prime
    return found if count == 1 or draw.random() < 0.1 else [size for size in found if size > 1] or [1]


def _primes(number: int) -> Iterator[int]:
    for prime in range(2, number + 1):
        while number % prime == 0:
            number //= prime
            yield prime


def said(mesh: str, options: dict[str, Any]) -> list[str]:
    """What is known of a layout, or why there is none."""
    given = {name: value for name, value in options.items() if name in ("chip", "topology", "dcn")}
    try:
        program = shardc.parse("A[I] → A[I]", mesh=mesh, dims={"I": 1}, **given)
        model = Hardware.of(**{name: value for name, value in options.items() if name != "topology"}).model(program)
    except shardc.ShardcError as error:
        return [f"{error.code} {error.message}; {error.help}"]
    draw = random.Random(f"{mesh} {options}")
    lines = [*_of(model, draw)]
    for by in dict.fromkeys(_finer(draw, model.mesh) for _ in range(2)):
        found = model.refined(by) if by is not None else None
        lines += [f"{by}: {_hash([*_of(found, draw)]) if found is not None else 'not by parts'}"] if by else []
    return lines


def _finer(draw: random.Random, mesh: Mesh) -> Refinement | None:
    """An axis cut in two or more."""
    long = [(name, size) for name, size in mesh.axes if len([*_primes(size)]) > 1]
    if not long:
        return None
    name, size = draw.choice(long)
    sizes = [part for part in _cut(draw, size, draw.choice((2, 2, 3))) if part > 1]
    parts = tuple((f"{name}{place}", part) for place, part in enumerate(sizes))
    return Refinement(mesh, ((name, parts),)) if len(parts) > 1 else None


def _of(model: LinkModel, draw: random.Random) -> Iterator[str]:
    mesh, network = model.mesh, model.network
    if network.fabric is not None:
        laid, near = network.fabric.laid, network.fabric.laid.mesh.devices
        places = "".join(str(laid.place(device)) for device in range(near))
        names = [laid.names(axis) for axis in range(len(laid.shape))]
        yield f"laid {laid.shape} {network.fabric.kinds} {names}, {_hash(places)}"
    yield f"widths {', '.join(f'{name} {value:.6g}' for name, value in network.symbols().items())}"
    parts, closed = ([a for a in mesh.names if is_so(a)] for is_so in (model.has_parts, network.closes))
    yield f"parts {parts}, closed {closed}"
    for count in range(1, len(mesh.names) + 1):
        for axes in combinations(mesh.names, count):
            levels = network.levels(axes)
            links = _hash([_carried(model, Call(kind, Round(axes))) for kind in MOVED])
            yield f"{axes}: {'; '.join(_level(level) for level in levels)}; {_together(levels)}, links {links}"
    parts = [_carried(model, Call(kind, each)) for each in _parts(mesh) for kind in MOVED]
    yield f"groups {_hash([*_grouped(model, draw)])}, parts of an axis {_hash(parts)}"


def _level(level: Level) -> str:
    texts = (level.count, level.width, level.hops, level.exchange(False), level.exchange(True), level.route())
    return f"{type(level).__name__} " + ", ".join(f"{each.text} {each.value:.9g}" for each in texts)


def _together(levels: tuple[Level, ...]) -> str:
    every = [each for book in (False, True) for does in (gathers, exchanges) for each in does(levels, book) if levels]
    return _hash([f"{each.text} {each.value:.9g}" for each in every])


def _parts(mesh: Mesh) -> Iterator[Round]:
    """Of an axis that is all of the mesh, every two parts."""
    for major in range(2, mesh.devices // 2 + 1 if len(mesh.names) == 1 else 0):
        if mesh.devices % major == 0:
            split = (major, mesh.devices // major)
            yield from (Round(mesh.names, split, is_major) for is_major in (False, True))


def _carried(model: LinkModel, call: Call) -> str:
    """What each link of the groups of such a collective carries."""
    size = call.over.parts(model.mesh)
    lines = carried(call.kind, model.levels_of(call), BLOCK, size)
    found = wiring(call, BLOCK, lines, model) if size > 1 else None
    each = [f"{line.line} {line.busiest:.9g} {line.links} {line.is_bound} {along_of(line, call)}" for line in lines]
    if found is None:
        return f"{each}"
    wires = [f"{w.at} {w.along} {w.forward:.9g} {w.backward:.9g} {found.goes_back(w)}" for w in found.wires]
    ends = [(found.end(w), found.closes(w)) for w in found.wires]
    return f"{each} {found.along} {found.axes} {found.devices} {wires} {ends} {found.is_alike} {found.is_bound}"


def _grouped(model: LinkModel, draw: random.Random) -> Iterator[str]:
    """Groups of devices in any order, and blocks sent to anybody."""
    network, every = model.network, list(range(model.mesh.devices))
    for count in range(2, min(7, len(every))):
        draw.shuffle(every)
        groups = [sorted(every[at : at + count]) for at in range(0, len(every) - count + 1, count)][: 1 + count % 3]
        strided = [every[0] + count * place for place in range(3) if every[0] + count * place < len(every)]
        for chosen in (groups, [sorted(strided)] if len(strided) > 1 else groups, [list(range(count))]):
            yield f"{[[_level(level) for level in levels] for levels in network.grouped(chosen)]}"
            yield f"{network.taken(chosen):x} {network.is_far(chosen)}"
        sent = network.sent([(one, other) for one, *_, other in groups])
        yield f"{sent and (f'{sent.s_per_byte:.9g}', sent.hops, f'{sent.links:x}')}"


def _hash(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()[:12]


def now() -> dict[str, list[str]]:
    return {key(*each): said(*each) for each in layouts()}


def key(mesh: str, options: dict[str, Any]) -> str:
    return f"{mesh} {options}"


def known() -> dict[str, list[str]]:
    return kept(TABLE)


def main() -> None:
    told(__doc__, TABLE, now)


if __name__ == "__main__":
    main()
