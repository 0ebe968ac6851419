"""The grammar, loaded once, and the parser that LALR(1) makes of it.

The parser's table takes longer to make than most plans, so that it is kept (`io/kept.py`) by what it is made of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.errors import Source
from shardc.io.kept import kept
from shardc.io.text import json_text

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

_OPENING = {"LPAR", "LSQB", "LBRACE"}
_CLOSING = {"RPAR", "RSQB", "RBRACE"}
_OPTIONS: dict[str, Any] = {
    "parser": "lalr",
    "start": ["start", "mesh_body", "dims_body"],
    "keep_all_tokens": True,
    "maybe_placeholders": False,
}


class _Newlines:
    """Between lexer and parser: a line break inside brackets does not end a statement, but in those of a loop."""

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        around: list[bool] = []  # of each bracket that is open, whether it is a loop's
        is_loop = False
        for token in stream:
            if token.type in _OPENING:
                around.append(is_loop and token.type == "LBRACE")
                is_loop = False
            elif token.type in _CLOSING and around:
                around.pop()
            is_loop = token.type == "KW_FOR" or (is_loop and token.type in ("MINUS", "NAME"))
            if token.type != "_NL" or token == ";" or not around or around[-1]:
                yield token


def syntax(source: Source, start: str) -> Tree[Any]:
    """The parse tree of a text that was scanned; a coded error where it does not follow the grammar."""
    from lark.exceptions import UnexpectedInput

    try:
        return _parser().parse(source.text, start=start)
    except UnexpectedInput as error:
        from shardc.notation.diagnose import diagnose  # most texts have no fault

        raise diagnose(source, error) from None


@cache
def _parser() -> Lark:
    return parser_of(_text())


def parser_of(grammar: str) -> Lark:
    """The parser of this grammar, by the table that is kept of it, or by one that is made now and kept."""
    from lark import Lark, __version__

    text = kept(json_text(["table", __version__, _OPTIONS, grammar]), lambda: _table(grammar))
    try:
        table = json.loads(text, object_hook=_numbered)
        table["data"]["options"]["postlex"] = _Newlines()
        return Lark.load(table)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # a file that is not what was kept
        return Lark(grammar, postlex=_Newlines(), **_OPTIONS)


def _table(grammar: str) -> str:
    """What `Lark.save` writes, but as JSON: of a file that another wrote, no code is run."""
    from lark import Lark
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    data, memo = Lark(grammar, postlex=_Newlines(), **_OPTIONS).memo_serialize([TerminalDef, Rule])
    del data["options"]["postlex"]
    return json_text({"data": data, "memo": memo})


def _numbered(fields: dict[str, Any]) -> dict[str | int, Any]:
    """JSON's keys are text; those of states, tokens and rules are numbers."""
    return {int(key) if key.isdigit() else key: value for key, value in fields.items()}


def _text() -> str:
    """The installed package has the grammar inside; a checkout has it beside the package."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "grammar" / "shardc.lark"
    checkout = package.parent / "grammar" / "shardc.lark"
    return (installed if installed.is_file() else checkout).read_text(encoding="utf-8")
