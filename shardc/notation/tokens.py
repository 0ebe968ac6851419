"""What tokens are called in messages, and which brackets are open at one."""

from __future__ import annotations

import re

from shardc.errors import Source, Span

CLOSER = {"(": "RPAR", "[": "RSQB", "{": "RBRACE"}
CLOSING = {")": "(", "]": "[", "}": "{"}
QUIET = re.compile(r"#[^\n]*|(?<![\w'])'[^'\n]*'|\"[^\"\n]*\"|[][(){}]")  # after a letter ' is a prime
WORDS = {
    "NAME": "a name", "NUMBER": "a number", "WORD": "a word", "STRING": "a quoted name", "COLLECTIVE": "a collective",
    "ARROW": "`→`", "DOT": "`·`", "ODOT": "`⊙`", "PLUS": "`+`", "MINUS": "`-`", "EQUAL": "`=`", "COMMA": "`,`",
    "COLON": "`:`", "PERIOD": "`.`", "SUB": "`_`", "QUERY": "`?`", "OPEN": "`<`", "CLOSE": "`>`",
    "COMPARE": "a comparison", "SLASH": "`/`", "BAR": "`|`",
    "INFINITY": "`inf`",
    "FUNCTION": "a function", "ROOT": r"`\sqrt`", "FRACTION": r"`\frac`", "LPAR": "`(`",
    "RPAR": "`)`", "LSQB": "`[`", "RSQB": "`]`", "LBRACE": "`{`", "RBRACE": "`}`", "_NL": "the end of the line",
    "$END": "the end of the text",
    "KW_MESH": "`mesh`", "KW_MESH_CALL": "`Mesh(`", "KW_DIMS": "`dims`", "KW_RETURN": "`return`",
    "KW_DTYPE": "`dtype`", "KW_CHIP": "`chip`", "KW_TOPOLOGY": "`topology`",
}  # fmt: skip


def expected_words(expected: set[str]) -> str:
    """Kinds of tokens, as a list with `or`."""
    words = [word for kind, word in WORDS.items() if kind in expected]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def open_brackets(source: Source, end: int) -> list[Span]:
    """The brackets that are open at an offset, outermost first."""
    opened: list[Span] = []
    for found in QUIET.finditer(source.text, 0, end):
        mark = found.group()
        if mark in CLOSER:
            opened.append(Span(source, found.start(), found.end()))
        elif opened and CLOSING.get(mark) == opened[-1].text:
            opened.pop()
    return opened
