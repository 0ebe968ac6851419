"""The grammar, loaded once, and the parser that LALR(1) makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardc.errors import Source
from shardc.notation.diagnose import diagnose

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

_OPENING = {"LPAR", "LSQB", "LBRACE"}
_CLOSING = {"RPAR", "RSQB", "RBRACE"}


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
        raise diagnose(source, error) from None


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(
        _text(),
        parser="lalr",
        start=["start", "mesh_body", "dims_body"],
        postlex=_Newlines(),
        keep_all_tokens=True,
        maybe_placeholders=False,
    )


def _text() -> str:
    """The installed package has the grammar inside; a checkout has it beside the package."""
    installed = resources.files("shardc") / "grammar" / "shardc.lark"
    if installed.is_file():
        return installed.read_text(encoding="utf-8")
    checkout = Path(__file__).resolve().parents[2] / "grammar" / "shardc.lark"
    return checkout.read_text(encoding="utf-8")
