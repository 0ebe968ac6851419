"""What the rules say of drawn shardings: `tests/golden/known_rules.json`.

    python tests/benchmark/known_rules.py             # of which rules something differs from the table now
    python tests/benchmark/known_rules.py --write     # the same, and the table is written

Moves one by one, routes, exchanges in unequal pieces, what products and functions leave, in digits too, what the book
makes of a product, and where axes are placed: each of some draws, a line with how much is said and a hash of it. A plan
takes the cheapest of all that, so what a rule adds or leaves out need not be seen there.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import product
from pathlib import Path
from typing import Any

from asked import kept, told

from shardc.ir.digits import reshaped
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern
from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Dims, Sharding
from shardc.rules import digit_products, functions, moves, placements, products, routes, unequal, written

TABLE = Path(__file__).parents[1] / "golden" / "known_rules.json"
SEEDS, NAMES, DIMS = 12, "XYZUVWST", "IJKLMN"
Said = Iterator[Any]  # of one drawn thing after another


def mesh_of(draw: random.Random, axes: int, sizes: tuple[int, ...] = (1, 2, 2, 3, 4, 6)) -> Mesh:
    return Mesh.of({axis: draw.choice(sizes) for axis in NAMES[:axes]})


def sharding_of(draw: random.Random, axes: Axes, rank: int, sums: float = 0.25, free: float = 0.3) -> Sharding:
    """Each axis on a dim, or unreduced, or on none."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    unreduced = []
    for axis in draw.sample(axes, len(axes)):
        if draw.random() < free:
            continue
        if draw.random() < sums or not rank:
            unreduced.append(axis)
        else:
            draw.choice(dims).append(axis)
    return Sharding.of(dims, unreduced)


def alone(draw: random.Random) -> Said:
    """Every move from a sharding, rule by rule; of many axes those rules that go through few."""
    for place in range(24):
        mesh = mesh_of(draw, draw.choice((1, 2, 3, 3)))
        before = sharding_of(draw, mesh.names, draw.randint(0, 3), draw.choice((0, 0.5)))
        pool = tuple(draw.sample(mesh.names, draw.randint(0, len(mesh.names))))
        every = moves.moves(before, mesh, pool, bool(place % 2)), moves.masks(before, pool)
        yield [*every[0], *every[1]]
    for _ in range(6):
        mesh = mesh_of(draw, draw.randint(4, 7), (2, 2, 3))
        rank = draw.randint(1, 4)
        before, goal = sharding_of(draw, mesh.names, rank, 0.9, 0), sharding_of(draw, mesh.names, rank, 0.1, 0)
        some = tuple(draw.sample(sorted(before.unreduced), min(3, len(before.unreduced))))
        for axes in (None, some, mesh.names) if len(before.unreduced) < 5 else (some,):
            yield [*moves.named_scatters(before, mesh, axes)]
        yield moves.scatter_onto(before, goal)
        if rank < 4:
            yield [*moves.scatters(before, mesh, mesh.names)]
    for axes, rank in product(range(3, 6), range(1, 5)):
        mesh = mesh_of(draw, axes, (2, 3))
        before = sharding_of(draw, mesh.names, rank, 0, draw.choice((0, 0.4)))
        some = moves.permutes, moves.changes_of_axes, moves.pieces_exchanged
        yield [len([*rule(before, mesh, mesh.names)]) for rule in some]


def from_one_to_another(draw: random.Random) -> Said:
    for _ in range(150):
        mesh = mesh_of(draw, draw.choice((2, 3, 3, 4)), draw.choice(((2,), (2, 3, 4), (1, 2, 2, 4))))
        rank = draw.randint(1, 3)
        sums = draw.choice((0, 0, 0.3))
        source, target = (sharding_of(draw, mesh.names, rank, each) for each in (sums, draw.choice((0, 0, 0, sums))))
        shape = tuple(draw.choice((4, 8, 12, 24, 48)) for _ in range(rank))
        found = [routes.route(source, target, shape, mesh), [*routes.plainly(source, target, mesh)]]
        asked = [routes.depends_on_shape(source, target, mesh), routes.needs_digits(source, target, mesh)]
        yield [*found, *asked, routes.aligned(source, target, shape, mesh)]
    for axes in (6, 7, 8):  # as many ways to put axes to the ends of two dims as are gone through, and more
        mesh = mesh_of(draw, axes + 1, (2,))
        target = sharding_of(draw, mesh.names[1:], 2, 0, 0)
        source = Sharding.of(draw.choice(([mesh.names[:1], ()], [(), mesh.names[:1]])))
        for size in (1 << axes, 1 << axes // 2 + 1):
            yield [routes.route(*pair, (size, size), mesh) for pair in ((source, target), (target, source))]
    for _ in range(3):  # more ways to put axes to the ends of dims than are gone through
        mesh, rank = mesh_of(draw, 6, (2,)), draw.randint(3, 4)
        source, target = (sharding_of(draw, mesh.names, rank, 0, 0.5) for _ in range(2))
        yield routes.route(source, target, (16,) * rank, mesh)


def in_unequal_pieces(draw: random.Random) -> Said:
    for _ in range(16):
        mesh, rank = mesh_of(draw, draw.choice((2, 3)), (2, 3, 4, 6)), draw.randint(1, 3)
        source, target = (sharding_of(draw, mesh.names, rank, draw.choice((0, 0, 0, 0.2))) for _ in range(2))
        shape = tuple(draw.choice((12, 24, 48, 144)) for _ in range(rank))
        yield unequal.unequal(source, target, shape, mesh, mesh.names)
        yield unequal.in_unequal_pieces(source, target, shape, mesh, mesh.names)


def product_of(draw: random.Random) -> tuple[tuple[Dims, ...], Dims]:
    """The dims of one or two operands, and of a result."""
    below = tuple(tuple(draw.sample(DIMS[:4], draw.randint(0, 3))) for _ in range(draw.choice((1, 2, 2, 2))))
    every = sorted({dim for dims in below for dim in dims})
    return below, tuple(draw.sample(every, draw.randint(0, len(every))))


def of_products(draw: random.Random) -> Said:
    for _ in range(60):
        mesh, (below, left) = mesh_of(draw, draw.choice((1, 2, 3))), product_of(draw)
        operands = [sharding_of(draw, mesh.names, len(dims), draw.choice((0, 0, 0.3)), 0.5) for dims in below]
        cases = products.cases_of(mesh.names, below, left, operands)
        yield cases
        yield products.local_product(below, left, operands)
        summed = frozenset(dim for dims in below for dim in dims if dim not in left)
        drawn = {axis: draw.randint(1, 4) for axis in mesh.names if draw.random() < 0.8}
        why = products.Reshard(), products.Before(drawn, summed), products.After(drawn)
        partial = sharding_of(draw, mesh.names, len(left), 0.6, 0.2)
        for dims, operand in zip((*below, left), (*operands, partial), strict=True):
            every = [*moves.moves(operand, mesh, mesh.names), *moves.masks(operand, mesh.names)]
            yield [each.rule(move, dims) for move in every for each in why]
    for _ in range(6):
        mesh, (below, left) = mesh_of(draw, 2), product_of(draw)
        sums = tuple(frozenset(draw.sample(mesh.names, draw.randint(0, 2))) for _ in below)
        yield products.local_products(below, left, mesh.names, sums)


def by_the_book(draw: random.Random) -> Said:
    for _ in range(80):
        mesh, (below, left) = mesh_of(draw, draw.choice((1, 2, 3)), (2,)), product_of(draw)
        operands = [sharding_of(draw, mesh.names, len(dims), 0, 0.4) for dims in below]
        wanted = pattern_of(draw, sharding_of(draw, mesh.names, len(left), draw.choice((0, 0.3))))
        sizes = [draw.choice((1, 2)) for _ in below]
        meet = (("I", "J"), (draw.choice("IJ"),)), ("I", "J")  # an axis may be on both dims of the result
        lies = [sharding_of(draw, mesh.names, rank, 0, 0.1) for rank in (2, 1)]
        yield written.before_product(*meet, lies, Pattern.free(2), draw.sample((1, 2), 2))
        yield written.before_product(below, left, operands, wanted, sizes)
        partial = sharding_of(draw, mesh.names, len(left), 0.6, 0.1)
        goal = written.goal(partial, wanted)
        yield [[*written.reduced(partial, wanted, mesh)], goal]
        lies = sharding_of(draw, mesh.names, len(left), 0)
        yield [*written.resharded(lies, Sharding(goal.dims))]


def pattern_of(draw: random.Random, sharding: Sharding) -> Pattern:
    return Pattern(tuple(None if draw.random() < 0.3 else axes for axes in sharding.dims), sharding.unreduced)


def in_digits(draw: random.Random) -> Said:
    for _ in range(40):
        mesh, (below, left) = mesh_of(draw, draw.choice((2, 3)), (2, 2, 3, 4)), product_of(draw)
        lie = [sharding_of(draw, mesh.names, len(dims), 0, 0.2) for dims in (*below, left)]
        placed = tuple(zip((*below, left), lie, strict=True))
        digits = digit_products.digits_of_dims(placed, mesh)
        names = digits.names(DIMS)
        yield [digits, names, digits.of_dims(left, names), digits.rests(left)]
        ops = [digits.op(dims) for dims, _ in placed]
        seen = [(dims, reshaped(op, each, mesh)) for op, (dims, each) in zip(ops, placed, strict=True)]
        found = digit_products.choices(seen, digits, mesh.names)
        yield [found.count, found.parts(mesh), found]
        for chosen in draw.sample([*product(*found.places)], min(6, found.count)):
            for at in found.placements(chosen, digits):
                cuts = [at.joined(digits, dim, upper, mesh) for dim, upper in digits.cuts]
                yield [at, at.operand(below[0]), at.result(left), cuts]
        yield [digits.without(dim, upper) for dim, upper in digits.cuts]
        yield [digits.joined(in_parts(dims, each, mesh), dims) for dims, each in seen]
        sums = sharding_of(draw, mesh.names, len(left), 0.5)
        goal = sharding_of(draw, mesh.names, len(left), 0)
        rests = draw.sample(range(len(left)), draw.randint(0, min(2, len(left))))
        yield [*digit_products.reductions(sums, goal, rests, mesh)]


def in_parts(dims: Dims, each: Sharding, mesh: Mesh) -> Array:
    shape = tuple(5 * mesh.product(axes) for axes in each.dims)
    return Array("A", tuple(f"{place}" for place in range(each.rank)), shape, each, DTYPES["f32"])


def of_functions(draw: random.Random) -> Said:
    of_arrays = sorted(name for name, row in FUNCTIONS.items() if row.arity)
    for _ in range(200):
        name, mesh = draw.choice(of_arrays), mesh_of(draw, 2)
        rank = draw.randint(0, 3)
        dims = tuple(DIMS[:rank])
        numbers = [draw.choice((None, None, 0, 2)) for _ in range(FUNCTIONS[name].arity)]
        numbers[draw.randrange(len(numbers))] = None
        own = sharding_of(draw, mesh.names, rank, draw.choice((0, 0.4)), 0.5)
        other = sharding_of(draw, mesh.names, rank, 0.3) if draw.random() < 0.3 else own
        operands = [draw.choice((own, own, other)) for number in numbers if number is None]
        over = tuple(draw.sample(dims, draw.randint(0, rank)))
        left = tuple(dim for dim in dims if dim not in over)
        yield functions.applied(name, over, [dims] * len(operands), left, operands, numbers)
        yield functions.reduced_across(name, over, dims, left, own, mesh)


def placed(draw: random.Random) -> Said:
    for axes, rank in product(range(5), range(4)):
        names = tuple(NAMES[:axes])
        yield [*placements.subsets(names)]
        yield [*placements.placements(names, rank)] if axes < 4 else []
        yield [placements.count_placements(axes, rank), placements.count_arrangements(axes, rank)]
        at_home = tuple(tuple(draw.sample(names, draw.randint(0, axes))) for _ in range(rank))
        is_open = tuple(draw.random() < 0.5 for _ in at_home)
        yield [*placements.Homes(at_home, is_open, draw.randint(0, 2)).placements(names, rank)]


RULES: dict[str, Callable[[random.Random], Said]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        alone,
        from_one_to_another,
        in_unequal_pieces,
        of_products,
        by_the_book,
        in_digits,
        of_functions,
        placed,
    )
}


def said(rule: str, seed: int) -> str:
    """Of all draws by a seed how many things are said, and a hash of them."""
    lines = [spelled(each) for each in RULES[rule](random.Random(f"{rule} {seed}"))]
    text = "\n".join(lines)
    return f"{seed}: {len(lines)} {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def spelled(value: Any) -> str:
    """The same in every process: sets in order."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(spelled, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{spelled(key)}: {spelled(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(spelled, value))})"
    if is_dataclass(value):
        own = [f"{each.name}={spelled(getattr(value, each.name))}" for each in fields(value) if each.repr]
        return f"{type(value).__name__}({', '.join(own)})"
    return str(value)


def now() -> dict[str, list[str]]:
    return {rule: [said(rule, seed) for seed in range(SEEDS)] for rule in RULES}


def known() -> dict[str, list[str]]:
    return kept(TABLE)


if __name__ == "__main__":
    told(__doc__, TABLE, now)
