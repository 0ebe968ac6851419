"""What an operation is, it says itself, or a table says that is closed: no list of classes or of names, and no default
branch.

`isinstance(op, A | B)`, `case _:` after some operations, and a set, a tuple or a dict of their names are silent where
an operation is added. Facts (`ir.operations`, rows of `ir.functions`) and a `match` that `assert_never` closes are not:
without them the type checker names the place.
"""

import ast
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from shardc.ir.collectives import COLLECTIVE_NAMES, Move, apply, uneven_exchange
from shardc.ir.dtypes import DTYPES
from shardc.ir.functions import FUNCTIONS, SUMS
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Local, Loop
from shardc.ir.sharding import Array, Sharding
from shardc.lowering.forms import Form
from shardc.rules.moves import masks, moves
from shardc.simulate.steps import step

ROOT = Path(__file__).parents[2] / "shardc"
OPERATIONS = {kind.__name__ for kind in (*get_args(Move), *get_args(Local), Loop)}
FORMS = {kind.__name__ for kind in get_args(Form)}
FUNCTION_NAMES = {*FUNCTIONS, *SUMS}
ENUMS = {"How", "Along"}  # what forms are told apart by
ALIASES = {"Move", "Local", "Single", "Op", "Form", "OneForm", "PlainOp"}

DEFINED = {"shardc.ir.collectives", "shardc.ir.plan", "shardc.ir.digits", "shardc.lowering.forms"}

# Classes that are no moves: what is said of one alone, the type checker tells from a smaller union, which is closed.
APART = {
    "Loop": "it alone has a block of its own, which every walk goes into",
    "Looped": "the same",
    "Reshape": "a route is of moves and reshapes",
    "Einsum": "it alone multiplies",
    "Apply": "it alone has numbers, and a row in the table of functions",
    "Gathered": "it alone depends on the steps around it",
}
# Where one move is told from all others, and why that is right whatever is added.
ALONE = {
    "planner/statement/build.py": (
        {"Slice", "JointScatter"},
        "two Slices of one dim are one; one scatter over dims is several",
    ),
    "cost/together.py": ({"AllGather"}, "of what is done in chunks it alone is no product"),
    "lowering/together.py": ({"AllReduce"}, "it alone may be of maxima"),
    "planner/program/sliced.py": ({"Slice"}, "it alone takes a part of what lies there"),
    "planner/program/scattered.py": ({"AllReduce", "Slice"}, "these two, in this order, are a ReduceScatter"),
    "lowering/buffers.py": ({"AllToAll"}, "the same as of copies, below"),
    "lowering/copies.py": ({"AllToAll"}, "it alone takes pieces of one dim to another as they lie in a block"),
    "lowering/flow.py": ({"UnevenExchange"}, "it alone leaves copies that JAX's types do not know of"),
    "lowering/laid.py": ({"Plain"}, "of all forms it alone is told how its result lies"),
    "proving/reduced.py": ({"Scattered"}, "of all forms it alone folds a dim"),
    "testing/sides.py": ({"AllToAll"}, "it alone names two dims"),
    "emit/steps/variables.py": ({"UnevenExchange"}, "it alone takes names for its tables"),
}
# Where names stand in lists, how many, and why that is right whatever is added.
LISTED = {
    "ir/collectives.py": (1, "where the notation's names are defined"),
    "ir/functions.py": (3, "where functions are defined"),
    "ir/sharding.py": (1, "where reductions are named"),
    "ir/scalars.py": (1, "values that are exact: of another function it is a float"),
    "backward/derivatives.py": (4, "the table of derivatives, whose test names what it lacks"),
    "backward/walk.py": (3, "names of what is read twice: another is named, or is written twice"),
    "compiled/explain/indices.py": (1, "instructions of HLO"),
    "compiled/explain/needless.py": (2, "instructions of HLO, and which a compiled call does over fewer axes"),
    "compiled/explain/notated.py": (4, "primitives of JAX; of another it is said that it cannot be told"),
    "compiled/explain/wish.py": (1, "primitives of JAX"),
    "compiled/verify.py": (3, "what compilers were seen to put in which's place: another is told as no match"),
    "lowering/rounds.py": (1, "functions that the compiler was seen to move before a rounding"),
    "lowering/tpu.py": (1, "functions that the compiler was seen to make several instructions of"),
    "lowering/work.py": (2, "functions that were seen to take more than an addition"),
    "notation/functions.py": (1, "what an error advises"),
    "notation/instead.py": (1, "words of other languages"),
    "notation/spell.py": (2, "what stands in a sum, and casts, as their rows' signs have it"),
    "planner/bounds/bound.py": (2, "sums, and products of elements: a bound says nothing of others"),
    "simulate/scales.py": (
        9,
        "how far results lie from 0: others are taken for about 1; inputs are sought",
    ),
    "testing/drawn_loops.py": (1, "drawn"),
    "testing/mixed.py": (2, "drawn"),
    "testing/operations.py": (1, "instructions of HLO"),
    "testing/partial.py": (1, "drawn"),
    "testing/strategies.py": (1, "drawn"),
}
# Where some operations are matched and the rest left, and why.
DEFAULTS = {
    "ir/legal.py": "the rest is a Move, by the type of what it is given to",
    "testing/models.py": "laws of prices are said of some moves",
    "testing/letters.py": "a text that names no move is refused",
}


def names_in(node):
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def known_in(name, tree):
    """The names of operations and forms that a module has from where they are defined, or defines."""
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in DEFINED]
    found = {alias.asname or alias.name for node in froms for alias in node.names}
    if "shardc." + name.removesuffix(".py").replace("/", ".") in DEFINED:
        found |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return (OPERATIONS | FORMS | ALIASES) & found


def told_apart(name, tree):
    """Of each `isinstance`, the operations that it names."""
    known = known_in(name, tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            found = names_in(node.args[1]) & known
            if found:
                yield found


def open_ended(name, tree):
    """Of each `match` over operations, or their names, the names, if its last branch takes what is left and asks no
    fact of it."""
    known = known_in(name, tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Match):
            continue
        classes = {p.cls.id for case in node.cases for p in ast.walk(case.pattern) if is_class(p)}
        named = {value for case in node.cases for p in ast.walk(case.pattern) if (value := value_of(p)) is not None}
        found, last = (classes & known) | named, node.cases[-1]
        asks = any(isinstance(each, ast.Attribute) and each.attr == "facts" for each in ast.walk(last))
        if found and takes_all(last.pattern) and not asks and "assert_never" not in names_in(last):
            yield found


def value_of(pattern):
    """The name of an operation, or of a member of an enum, that a pattern is; else None."""
    match pattern:
        case ast.MatchValue(ast.Constant(str(text))) if text in OPERATIONS | FORMS:
            return text
        case ast.MatchValue(ast.Attribute(ast.Name(kind), member)) if kind in ENUMS:
            return f"{kind}.{member}"


def listed(name, tree):
    """Of each set, tuple, list or dict the operations, forms and functions in it, or that it has as keys, if several:
    as classes or by name. What is asked of `isinstance`, and types, are no such lists."""
    known, others = known_in(name, tree), set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=inner):
                others |= {*ast.walk(inner)}
            case ast.Call(ast.Name("isinstance"), [_, inner]):
                others |= {*ast.walk(inner)}
    for node in ast.walk(tree):
        if node not in others:
            items = [*members(node)]
            found = {each.id for each in items if isinstance(each, ast.Name)} & known
            found |= {each.value for each in items if isinstance(each, ast.Constant)} & (
                OPERATIONS | FORMS | FUNCTION_NAMES
            )
            if len(found) > 1:
                yield found


def members(node):
    match node:
        case ast.Tuple(items) | ast.List(items) | ast.Set(items) | ast.Dict(items):
            yield from items


def is_class(pattern):
    return isinstance(pattern, ast.MatchClass) and isinstance(pattern.cls, ast.Name)


def takes_all(pattern):
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def faults(name, text):
    """What is not as it should be in a module of that name."""
    tree = ast.parse(text)
    alone = ALONE.get(name, (set(), ""))[0]
    found = [
        f"isinstance of {sorted(kinds)}"
        for kinds in told_apart(name, tree)
        if len(kinds) > 1 or not kinds <= alone | set(APART)
    ]
    found += [f"default after {sorted(kinds)}" for kinds in open_ended(name, tree) if name not in DEFAULTS]
    lists = [f"list of {sorted(kinds)}" for kinds in listed(name, tree)]
    return found + (lists if len(lists) > LISTED.get(name, (0, ""))[0] else [])


@pytest.mark.instant
@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_list_of_operations_or_functions_and_no_default_branch(path):
    assert faults(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) == []


FROM = "from shardc.ir.collectives import AllGather, Slice\nfrom shardc.ir.plan import Local, Loop\n"
BRANCHES = "match op:\n  case AllGather():\n    pass\n  case {}:\n    {}\n"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("x = isinstance(op, AllGather | Slice)", ["isinstance of ['AllGather', 'Slice']"]),
        ("x = isinstance(op, (AllGather, Slice))", ["isinstance of ['AllGather', 'Slice']"]),
        ("x = isinstance(op, AllGather)", ["isinstance of ['AllGather']"]),
        ("x = isinstance(op, Local)", ["isinstance of ['Local']"]),
        ("x = isinstance(op, Loop)", []),
        (BRANCHES.format("_", "pass"), ["default after ['AllGather']"]),
        (BRANCHES.format("left", "f(left)"), ["default after ['AllGather']"]),
        (BRANCHES.format("_", "assert_never(op)"), []),
        (BRANCHES.format("left", "left.facts.reduces"), []),
        ('match name:\n  case "AllGather":\n    pass\n  case _:\n    pass', ["default after ['AllGather']"]),
        ("match how:\n  case How.RING:\n    pass\n  case _:\n    pass", ["default after ['How.RING']"]),
        ("match how:\n  case How.RING:\n    pass\n  case _:\n    assert_never(how)", []),
        ("x = type(op) in (AllGather, Slice)", ["list of ['AllGather', 'Slice']"]),
        ("x = {AllGather: 1, Slice: 2}", ["list of ['AllGather', 'Slice']"]),
        ('x = op.name in ("AllGather", "Slice")', ["list of ['AllGather', 'Slice']"]),
        ('x = frozenset({"InRounds", "InOneRound"})', ["list of ['InOneRound', 'InRounds']"]),
        ('x = {"relu": 1, "sum": 2}', ["list of ['relu', 'sum']"]),
        ('x = ["relu", "a word"]', []),
        ("def f(x: tuple[AllGather, Slice]) -> dict[AllGather, Slice]: ...", []),
    ],
)
def test_the_walk_sees_a_list_and_a_default(code, wrong):
    assert faults("ir/mesh.py", FROM + code) == wrong


def test_what_is_allowed_is_there():
    """A place that is listed and mended leaves the list."""
    texts = {name: ast.parse((ROOT / name).read_text(encoding="utf-8")) for name in (*ALONE, *DEFAULTS, *LISTED)}
    for name, (kinds, _) in ALONE.items():
        assert kinds <= set().union(*told_apart(name, texts[name])), name
    for name in DEFAULTS:
        assert list(open_ended(name, texts[name])), name
    for name, (count, _) in LISTED.items():
        assert len([*listed(name, texts[name])]) == count, name


MESH = Mesh.of({"X": 2, "Y": 2})
STARTS = [
    Sharding.of(["X", ""]),
    Sharding.of(["X", ""], "Y"),
    Sharding.of(["XY", ""]),
    Sharding.of(["X", "Y"]),
    Sharding.of(["", ""], "XY"),
]
EVERY_MOVE = [(before, move) for before in STARTS for move in moves(before, MESH, MESH.names)]
EVERY_MOVE.append((STARTS[0], uneven_exchange(STARTS[0], (("Y",), ()), MESH)))  # no rule's, but of whole paths
EVERY_MOVE += [(before, move) for before in STARTS for move in masks(before, MESH.names)]  # which only come last


def test_the_rules_make_every_move():
    assert {type(move) for _, move in EVERY_MOVE} == set(get_args(Move))


@pytest.mark.parametrize(("before", "move"), EVERY_MOVE, ids=lambda each: type(each).__name__)
def test_what_an_operation_says_of_itself_is_true(before, move):
    """Of every move from some shardings its axes and dims, what it reduces, whether it sends; each is linear."""
    after, facts = apply(move, before, MESH), move.facts
    changed = {axis for axis in MESH.names if place_of(before, axis) != place_of(after, axis)}
    assert changed <= set(move.axes)
    assert facts.reduces == bool(before.unreduced - after.unreduced)
    arrays = [Array("A", ("I", "J"), (8, 8), sharding, DTYPES["int32"]) for sharding in (before, after)]
    draw = np.random.default_rng(1)
    one, other = (draw.integers(0, 99, (*MESH.sizes, *arrays[0].local_shape(MESH))) for _ in range(2))
    left, right, both = (step(move, [blocks], arrays[:1], arrays[1], MESH) for blocks in (one, other, one + other))
    assert np.array_equal(left + right, both)
    alone = one.copy()
    alone[0, 0] = 0  # what device (0, 0) has reaches others exactly where something is sent
    reached = (step(move, [alone], arrays[:1], arrays[1], MESH) != left).any(axis=(2, 3))
    reached[0, 0] = False
    assert reached.any() <= facts.communicates
    assert set(move.on) <= {dim for dim in range(2) if before.dims[dim] != after.dims[dim]}


def place_of(sharding, axis):
    """Where an axis stands: on which dim, after which others; or that it is unreduced."""
    dims = [(dim, axes[: axes.index(axis)]) for dim, axes in enumerate(sharding.dims) if axis in axes]
    return (dims, axis in sharding.unreduced)


def test_names_are_those_of_the_notation():
    """Each name means a class that bears it; of several operations of a name it is the one with its own."""
    for name, kind in COLLECTIVE_NAMES.items():
        assert kind.facts.name == name == kind.__name__ and kind.facts.is_named
    for kind in get_args(Move):
        assert kind.facts.is_move and (kind.facts.name in COLLECTIVE_NAMES or not kind.facts.is_named)
