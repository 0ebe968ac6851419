"""One thing in a module changed: what can be, and the changed functions put in the place of those that are loaded."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).parents[2]
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Pow: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
# Two arguments of which none is the first, by what the function is: the other way round it leaves the same.
_ALIKE = ("math.lcm", "math.gcd", "lcm", "gcd", "np.minimum", "np.maximum", "np.add", "np.multiply")
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
Change = Callable[[Any], None]
Functions = dict[str, list[FunctionType]]  # of each file


@dataclass(frozen=True)
class Mutant:
    """One changed thing of a module: which node in order, what is done to it, and the line as it was."""

    path: Path
    node: int
    kind: str
    line: int
    was: str

    @property
    def tree(self) -> ast.Module:
        """The module, changed, each line where it was."""
        tree = parsed(self.path)
        node = next(other for place, other in enumerate(ast.walk(tree)) if place == self.node)
        dict(_changes(node))[self.kind](node)
        return ast.fix_missing_locations(tree)

    @property
    def tests(self) -> str:
        """Where the tests of its room are."""
        return f"tests/{self.path.parts[1]}/"

    @property
    def is_loaded_anew(self) -> bool:
        """Whether what changes is done while the module is loaded, as a table is, so that no function says it."""
        return any(_is_loading(was) for was, now in _paired(self) if _without_functions(was) != _without_functions(now))

    def put_in_place(self, among: Functions) -> None:
        """The changed functions, in this process, for good."""
        put({was: now for was, now in _paired(self) if was != now}, self.path, among)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.was}"


def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"))


@cache
def _compiled(path: Path) -> CodeType:
    return compiled(parsed(path), path)


def compiled(tree: ast.Module, path: Path) -> CodeType:
    return compile(tree, str(ROOT / path), "exec", dont_inherit=True)


def _paired(mutant: Mutant) -> list[tuple[CodeType, CodeType]]:
    return pairs(_compiled(mutant.path), compiled(mutant.tree, mutant.path))


def pairs(was: CodeType, now: CodeType) -> list[tuple[CodeType, CodeType]]:
    """Each code beside the one in its place."""
    inside = [[part for part in code.co_consts if isinstance(part, CodeType)] for code in (was, now)]
    return [(was, now), *(pair for parts in zip(*inside, strict=True) for pair in pairs(*parts))]


def _is_loading(code: CodeType) -> bool:
    """A module's own code, or a class's."""
    return not code.co_flags & CO_OPTIMIZED


def _without_functions(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(part for part in code.co_consts if not isinstance(part, CodeType)))


def functions() -> Functions:
    """Those that there are now, of each file. To look for them takes as long as a quick test."""
    found = defaultdict[str, list[FunctionType]](list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found[each.__code__.co_filename].append(each)
    return found


def put(codes: dict[CodeType, CodeType], path: Path, among: Functions) -> int:
    """Codes of a module in the place of others, in each function that is there; and how many there are."""
    here = among.get(str(ROOT / path), [])
    for function in here:
        function.__code__ = codes.get(function.__code__, function.__code__)
    return len(here)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a module."""
    tree = parsed(path)
    left_out = {id(part) for node in ast.walk(tree) for part in _left_out(node)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in left_out:
            continue
        for kind, _ in _changes(node):
            yield Mutant(path, number, kind, getattr(node, "lineno", 0), ast.unparse(node)[:80])


def _left_out(node: ast.AST) -> Iterator[ast.AST]:
    """Annotations, decorators, docstrings, messages, types, what is asserted, and what is loaded for types alone."""
    parts: list[ast.AST | None] = []
    match node:
        case ast.FunctionDef():
            parts = [node.returns, *node.decorator_list]
        case ast.ClassDef():
            parts = list(node.decorator_list)
        case ast.AnnAssign(annotation=ast.Name("TypeAlias")):
            parts = [node]
        case ast.arg() | ast.AnnAssign():
            parts = [node.annotation]
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            parts = [node]
        case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name("TYPE_CHECKING"), orelse=[]):
            parts = [node]
        case ast.keyword(arg="strict" | "maxsize" | "repr" | "init"):
            parts = [node]
    for part in parts:
        yield from () if part is None else ast.walk(part)


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            yield "comparison", _set("ops", lambda _: [_COMPARED[type(op)]()])
        case ast.Constant(value=bool(value)):
            yield "constant", _set("value", lambda _: not value)
        case ast.Constant(value=int(value)):
            yield "constant", _set("value", lambda _: value + 1)
        case ast.BinOp(op=op) if type(op) in _COMPUTED:
            yield "operator", _set("op", lambda _: _COMPUTED[type(op)]())
        case ast.BoolOp(op=op):
            yield "operator", _set("op", lambda _: ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield "operator", _set("op", lambda _: ast.UAdd())
        case ast.If() | ast.IfExp():
            yield "condition", _set("test", lambda old: ast.UnaryOp(ast.Not(), old))
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            yield "function", _set("func", lambda _: ast.Name(_CALLED[name], ast.Load()))
        case ast.Call(args=[first, second, *_]) if ast.dump(first) != ast.dump(second) and not _is_alike(node):
            yield "arguments", _set("args", lambda old: [old[1], old[0], *old[2:]])


def _is_alike(node: ast.Call) -> bool:
    return len(node.args) == 2 and ast.unparse(node.func) in _ALIKE


def _set(field: str, value: Callable[[Any], Any]) -> Change:
    return lambda node: setattr(node, field, value(getattr(node, field)))
