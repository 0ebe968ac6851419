"""Tokens of a parse tree: their names without dress, and their places."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from lark import Token
from lark.visitors import Transformer_NonRecursive

from shardc.errors import Source, Span
from shardc.ir.names import GREEK

_FONT = re.compile(r"\\[a-z]+[ \t]*\{[ \t]*([\w']+)[ \t]*\}")
_BRACED = re.compile(r"\{[ \t]*([\w']+)[ \t]*\}")
_GREEK = re.compile(r"\\([A-Za-z]+)(?![A-Za-z])(?![ \t]*\{)[ \t]*")
_PRIME = re.compile(r"\^\\prime|\^\{\\prime\}")

Kids: TypeAlias = list[Any]


class Places(Transformer_NonRecursive[Any, Any]):
    """One method a rule. `kids` holds every token, so that spans reach to the last bracket."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source

    def _name(self, token: Token) -> str:
        return plain(token)

    def _span(self, token: Token) -> Span:
        return Span(self.source, token.start_pos or 0, token.end_pos or 0)

    def _around(self, kids: Kids) -> Span:
        """From the first child to the last."""
        return self._places(kids[0])[0].to(self._places(kids[-1])[-1])

    def _places(self, kid: Any) -> list[Span]:
        if isinstance(kid, Token):
            return [self._span(kid)]
        if isinstance(kid, tuple):
            return [part for part in kid if isinstance(part, Span)]
        return [kid.span]


def plain(token: str) -> str:
    r"""A name without its dress: `\text{In}` → `In`, `W_\text{in}` → `W_in`, `I_{XY}` → `I_XY`, `\sigma'` → `σ'`."""
    if "\\" in token:
        token = _GREEK.sub(lambda found: GREEK.get(found[1], found[0]), _PRIME.sub("'", token))
        token = _FONT.sub(r"\1", token)
    return _BRACED.sub(r"\1", token)
