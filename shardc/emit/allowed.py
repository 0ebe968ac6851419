"""What emitted code may say. The printer is checked against this table, and the callable resolves through it."""

from __future__ import annotations

import ast
import builtins
import keyword
import re

from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES
from shardc.ir.functions import FUNCTIONS
from shardc.ir.names import GREEK

# The functions of an AllReduce to the largest that has a gradient.
TO_OWNERS, LARGEST_AND, LARGEST = EXTREMES = ("to_owners", "largest_and", "largest")
LAID = "with_layout_constraint"
NAMES: frozenset[str] = frozenset(
    {
        *EXTREMES,
        "jax.custom_gradient",
        "jax.tree_util.Partial",
        "jax.lax.all_gather",
        "jax.lax.psum_scatter",
        "jax.lax.psum",
        "jax.lax.pmax",
        "jax.lax.pmin",
        "jax.lax.stop_gradient",
        "jax.lax.optimization_barrier",
        "jax.lax.all_to_all",
        "jax.lax.ppermute",
        "jax.lax.dynamic_slice_in_dim",
        "jax.lax.dynamic_slice",
        "jax.lax.dynamic_update_slice",
        "jax.lax.dynamic_update_slice_in_dim",
        "jax.lax.empty",
        "jax.lax.select",
        "jax.lax.axis_index",
        "jax.lax.pcast",
        "jax.lax.scan",
        "jax.custom_derivatives.linear_call",
        "jax.lax.with_sharding_constraint",
        "jax.reshard",
        "jax.shard_map",
        "jnp.einsum",
        "jnp.sum",
        "jnp.split",
        "jnp.unstack",
        "jnp.stack",
        "jnp.squeeze",
        "jnp.add",
        "jnp.multiply",
        "jnp.transpose",
        "jnp.take",
        "jnp.broadcast_to",
        "jnp.zeros_like",
        "jnp.concatenate",
        "jnp.expand_dims",
        "np.arange",
        "np.roll",
        "np.array",
        "P",
        "P.UNCONSTRAINED",
        "Layout",
        LAID,
        "False",
        "list",
        "int",
        "zip",
        "sum",
        "range",
    }
    | {function.jax for function in FUNCTIONS.values() if "." in function.jax}
    | {f"jnp.{dtype.jax}" for dtype in DTYPES.values()}
)
METHODS = frozenset({"astype", "dtype", "shape", "reshape", "transpose", "ravel", "tolist", "split"})
BARRIER = "jax.lax.optimization_barrier"
# What emitted loops count with, and the variables that they are about.
TURN, PLACE, PIECE, JOINED = LOOPED = ("turn", "place", "piece", "joined")
# What exponentials are shifted by, and their sum.
HIGHEST, TOTAL = EXPONENTIALS = ("highest", "total")
# And by which an exchange in pieces of unequal sizes says who sends what.
TABLE, PAIRS = TABLES = ("table", "pairs")
# The function of a loop, and what it takes and leaves.
TRIP, CARRIED, ROWS = SCANNED = ("trip", "carried", "rows")
# What the emitted code of a program with axes cut names, beside its arrays.
REFINED, FINE = ("refined", "fine")
BORDER = frozenset({REFINED, "mesh", FINE, "mapped", "results"})
# The functions of a program that takes partial sums.
STEPS, APART, TOGETHER = PARTED = ("steps", "apart", "together")
# And of one that leaves what is equal on devices, and of a type that cannot say so.
ALIKE, MAPPED = ("alike", "mapped")
# The functions of a program in parts: what runs on each device, and what is left to XLA's partitioner.
RUN, PRODUCT, WHOLE = PARTS = ("run", "product", "whole")
# What a ring hands to its neighbours, one way and the other, where it stands, and the way through several axes.
STANDS, RIGHT, LEFT, AROUND = RING = ("stands", "right", "left", "around")
# The blocks of two operands that meet, and go round an axis each.
ACROSS, DOWN = MEETING = ("across", "down")
# Names that a program's variable must not take: those of the module itself, and what Python calls its own.
MODULE = frozenset({"jax", "jnp", "np", "program"}) | {name for name in NAMES if "." not in name}
TAKEN = MODULE.union(LOOPED, SCANNED, EXPONENTIALS, keyword.kwlist, keyword.softkwlist, dir(builtins))

_FUNCTIONS = (
    ["program"],
    [REFINED, "program"],
    [REFINED, ALIKE, "program"],
    [STEPS, "program"],
    [*PARTED, "program"],
    [STEPS, ALIKE, "program"],
    [*PARTED, ALIKE, "program"],
)
_PART = re.compile(rf"({'|'.join(PARTS)})[0-9]*")
_HEADER = frozenset({"jax.jit", STEPS})
_BORDER_CALLS = frozenset(
    {
        "jax.ensure_compile_time_eval",
        "jax.sharding.Mesh",
        "jax.sharding.auto_axes",
        "jax.sharding.use_abstract_mesh",
        "jnp.zeros",
        "mapped",
    }
)
_WITH = re.compile(r"jax\.ensure_compile_time_eval\(\)|jax\.sharding\.use_abstract_mesh\(fine\.abstract_mesh\)")
_LOOP = re.compile(rf"for {TURN} in range\([0-9]+\)")
_ROWS = r"jnp\.unstack\([\w.()]+, axis=[0-9]+\)"
_PAIRS = re.compile(rf"for \(?{LEFT}, {RIGHT}\)? in zip\({_ROWS}, {_ROWS}\)")
_VARIABLE = re.compile(rf"[A-Za-z{''.join(GREEK.values())}]\w*")
IMPORT_LAID = f"from jax.experimental.layout import Layout, {LAID}"
_IMPORTS = frozenset({"import jax", "import jax.numpy as jnp", "import numpy as np", "from jax import P", IMPORT_LAID})
_NODES = (
    ast.Module,
    ast.Import,
    ast.ImportFrom,
    ast.alias,
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.Assign,
    ast.Return,
    ast.Expr,
    ast.Call,
    ast.keyword,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.For,
    ast.GeneratorExp,
    ast.comprehension,
    ast.With,
    ast.withitem,
    ast.BinOp,
    ast.Compare,
    ast.Eq,
    ast.UnaryOp,
    ast.USub,
    ast.Add,
    ast.Sub,
    ast.Mod,
    ast.Mult,
    ast.FloorDiv,
    ast.Load,
    ast.Store,
)


def check_source(text: str) -> str:
    """`text` if it is a module of the kind that we write, and nothing else; otherwise SHC900."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise _refused(type(node).__name__)
        if isinstance(node, ast.Import | ast.ImportFrom) and ast.unparse(node) not in _IMPORTS:
            raise _refused(ast.unparse(node))
        if isinstance(node, ast.Call):
            _check_function(node.func)
        if isinstance(node, ast.Assign):
            _check_targets(node.targets)
        if isinstance(node, ast.For):
            _check_loop(node)
        if isinstance(node, ast.comprehension) and not _PAIRS.fullmatch(ast.unparse(node).strip()):
            raise _refused("terms of another form")
        if isinstance(node, ast.FunctionDef) and node not in tree.body:
            _check_trip(node)
        if isinstance(node, ast.With) and not all(_WITH.fullmatch(ast.unparse(item)) for item in node.items):
            raise _refused("a context of another form")
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    kinds = [type(node) for node in tree.body]
    own = functions[len(EXTREMES) :] if functions[: len(EXTREMES)] == [*EXTREMES] else functions
    in_parts = own[-1:] == ["program"] and all(map(is_part, own[:-1]))
    if kinds[0] is not ast.Expr or not (own in _FUNCTIONS or in_parts):
        raise _refused("a module of another shape")
    if any(kind not in (ast.Import, ast.ImportFrom) for kind in kinds[1 : -len(functions)]):
        raise _refused("a statement beside the imports and the functions")
    return text


def check_variable(name: str) -> str:
    """`name` if it may be a local variable of emitted code."""
    if not _VARIABLE.fullmatch(name) or name in TAKEN:
        raise _refused(f"the variable {name!r}")
    return name


def part_name(kind: str, number: int) -> str:
    """`run`, `run2`, …."""
    return kind if number == 1 else f"{kind}{number}"


def part_names(count: int) -> frozenset[str]:
    """Those of so many parts of each kind."""
    return frozenset(part_name(kind, number) for kind in PARTS for number in range(1, count + 1))


def is_part(name: str) -> bool:
    """Whether a part of a program may have this name."""
    return _PART.fullmatch(name) is not None


def _check_function(function: ast.expr) -> None:
    if isinstance(function, ast.Call) and ast.unparse(function.func) == "jax.custom_gradient":
        return
    dotted = ast.unparse(function)
    if dotted in NAMES or dotted in _HEADER or dotted in _BORDER_CALLS or is_part(dotted):
        return
    if isinstance(function, ast.Attribute) and function.attr in METHODS:
        return
    raise _refused(f"a call of {dotted}")


def _check_targets(targets: list[ast.expr]) -> None:
    names = targets[0].elts if len(targets) == 1 and isinstance(targets[0], ast.Tuple) else targets
    for name in names:
        if len(targets) != 1 or not isinstance(name, ast.Name):
            raise _refused("an assignment of another form")
        if name.id not in (*LOOPED, *SCANNED, *RING, *MEETING, *EXPONENTIALS):
            check_variable(name.id)


def _check_trip(function: ast.FunctionDef) -> None:
    """`def trip(carried, rows):`, the one function inside another."""
    if function.name != TRIP or ast.unparse(function.args) != f"{CARRIED}, {ROWS}" or function.decorator_list:
        raise _refused(f"the function {function.name} inside another")


def _check_loop(loop: ast.For) -> None:
    """`for turn in range(4):` and assignments."""
    head = f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
    if not _LOOP.fullmatch(head) or loop.orelse:
        raise _refused("a loop of another form")
    if not all(isinstance(line, ast.Assign) for line in loop.body):
        raise _refused("a loop over more than assignments")


def _refused(what: str) -> ShardcError:
    return ShardcError("SHC900", f"emitted code holds {what[:80]}", help="please report the program")
