"""Syntax tree → text. What it prints parses back to the same tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, assert_never

from shardc.notation import tree

SpellArray: TypeAlias = Callable[[tree.Array], str]

_ASCII = str.maketrans({"·": "*", "→": "->", "⊙": ".*"})


def print_tree(printed: tree.Tree, ascii: bool = False) -> str:
    """The canonical text of a tree, a statement a line; with ASCII signs if asked."""
    text = "\n".join(print_item(item) for item in printed.items) + "\n"
    return text.translate(_ASCII) if ascii else text


def print_expr(printed: tree.Expr) -> str:
    """An expression alone."""
    return _expr(printed, print_array)


def print_item(item: tree.Item) -> str:
    """A declaration, a statement, a loop."""
    match item:
        case tree.MeshDecl(axes):
            return print_mesh(axes)
        case tree.DimsDecl(sizes):
            return "dims " + _bindings(sizes)
        case tree.WordDecl(keyword, value):
            return f"{keyword} {value}"
        case tree.Statement():
            return print_statement(item)
        case tree.For(dim, body, down=down):
            return print_loop(dim, down, [print_item(each) for each in body])
        case tree.Return(names):
            return "return " + ", ".join(names)
        case _:
            assert_never(item)


def print_loop(dim: str, down: bool, body: Iterable[str]) -> str:
    """`for L {`, the statements, each in a line of its own, `}`."""
    inside = ("    " + text.replace("\n", "\n    ") for text in body)
    return "\n".join([loop_head(dim, down), *inside, "}"])


def loop_head(dim: str, down: bool) -> str:
    return f"for {'-' if down else ''}{dim} {{"


def print_mesh(axes: Iterable[tuple[str, int]]) -> str:
    axes = tuple(axes)
    return "mesh " + _bindings(axes) if axes else "Mesh({})"


def _bindings(sizes: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes)


def print_array(array: tree.Array) -> str:
    """`Name: dtype[I_X, J]{U_Y}`, as written."""
    dtype = f": {array.dtype}" if array.dtype else ""
    if array.dims is None:
        return array.name + dtype
    dims = ", ".join(_dim(dim) for dim in array.dims)
    partial = "{U_" + _below(array.unreduced) + "}" if array.unreduced else ""
    return f"{array.name}{dtype}[{dims}]{partial}"


def print_statement(statement: tree.Statement, spell: SpellArray = print_array) -> str:
    """A statement, each array as `spell` spells it."""
    result, expr = spell(statement.result), _expr(statement.expr, spell)
    return f"{result} = {expr}" if statement.result_first else f"{expr} → {result}"


def _dim(dim: tree.Dim) -> str:
    if dim.free:
        return dim.name + "_?"
    return f"{dim.name}_{_below(dim.axes)}" if dim.axes else dim.name


def _below(names: tuple[str, ...]) -> str:
    """`J`, `{J,K}`: what stands below a sign."""
    return names[0] if len(names) == 1 else "{" + ",".join(names) + "}"


def _expr(expr: tree.Expr, spell: SpellArray) -> str:
    match expr:
        case tree.Array():
            return spell(expr)
        case tree.Chain(operands, operators):
            texts = [_inside(operand, spell, tree.Chain, tree.Sum, tree.Comparison) for operand in operands]
            return texts[0] + "".join(
                f" {_operator(sign)} {text}" for sign, text in zip(operators, texts[1:], strict=True)
            )
        case tree.Sum(operands, signs):
            texts = [_inside(operand, spell, tree.Sum, tree.Comparison) for operand in operands]
            return texts[0] + "".join(f" {sign} {text}" for sign, text in zip(signs, texts[1:], strict=True))
        case tree.Comparison(left, sign, right):
            return f"{_inside(left, spell, tree.Comparison)} {sign} {_inside(right, spell, tree.Comparison)}"
        case tree.Neg(operand):
            return "-" + _inside(operand, spell, tree.Chain, tree.Sum, tree.Comparison, tree.Neg)
        case tree.Call(name, over, operands):
            return f"{name}{_subscript(over)}({', '.join(_expr(operand, spell) for operand in operands)})"
        case tree.Number(text):
            return text
        case tree.Size(dim):
            return f"|{dim}|"
        case tree.Index(dim):
            return f"index_{dim}"
        case tree.Named(name, subscript, operand):
            return f"{name}{_subscript(subscript)}({_expr(operand, spell)})"
        case _:
            assert_never(expr)


def _inside(expr: tree.Expr, spell: SpellArray, *looser: type[tree.Expr]) -> str:
    text = _expr(expr, spell)
    return f"({text})" if isinstance(expr, looser) else text


def _subscript(names: tuple[str, ...]) -> str:
    return "_" + _below(names) if names else ""


def _operator(operator: tree.Operator) -> str:
    if operator.elementwise or operator.divides:
        return "/" if operator.divides else "⊙"
    return "·_LOCAL" if operator.local else "·" + _subscript(operator.label)
