"""What texts carry around formulas, and no formula means: taken off before anything is read.

Every change keeps the length, so that places in what is read are places in what was written.

    1. $C[I, K] \\{ U_X \\} := A[I, J_X] × B[J_X, K]$ (not on critical path)
        C[I, K] \\{ U_X \\}  = A[I, J_X] · B[J_X, K]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.functions import NAMED
from shardc.ir.names import GREEK

_SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_SIGNS = str.maketrans(
    dict.fromkeys(_SPACES, " ")
    | {"×": "·", "−": "-", "⟶": "→", "←": "=", "≔": "=", "$": " ", "`": " ", "∑": "Σ"}
    | {"‘": "'", "’": "'", "′": "'", "“": '"', "”": '"'}
)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.MULTILINE)
_FRAME = re.compile(
    r"\\(?:begin|end)\{[a-z]+\*?\}|(?<!\\)\\[][()]|\*\*(?![ \t]*[0-9]+(?![.)0-9]))"
    r"|\\(?:left|right|[bB]igg?|displaystyle|q?quad|nonumber|notag)(?![A-Za-z])"
)
_GETS = re.compile(r":=|\\(?:leftarrow|gets|coloneqq)(?![A-Za-z])")
_LETTER = "A-Za-z" + "".join(GREEK.values())
_WORD = rf"\\(?:text|math|operatorname|sum|{'|'.join(GREEK)})"
_NUMBER = re.compile(
    rf"[ \t]*(?:>[ \t]*)*(?:(?:\(?[0-9]{{1,3}}[.)]|[a-z][.)]|[*+•‣◦–—])[ \t]+)?(?=[{_LETTER}[(]|{_WORD})"
)
_HEAD = rf"{_NUMBER.pattern}for[ \t]+-?[ \t]*[{_LETTER}][^{{}}\n;#]*\\?\{{[ \t]*"  # of a loop
_PART = re.compile(rf"#[^\n]*|(?P<loop>{_HEAD})|(?:(?!\\\\)[^\n;#])+|\\\\|[\n;]")
_CLOSED = re.compile(r"(\\?\})")
_DASH = re.compile(r"[ \t]*-[ \t]+(?=[^→=]*=)(?!.*(?:→|->|arrow|\\to))")
_GETS_TOO = re.compile(r"[^<=(→]*(<-)(?![^\n]*(?:=|→|->|arrow|\\to))")
_CALLED = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9]*)(?:_\w+)?$")  # a name before brackets, its dims apart
_WORDS = re.compile(rf"\([ \t]*(?!{'|'.join(COLLECTIVE_NAMES)})[A-Za-z']+,?[ \t]+[A-Za-z]")
_UNREDUCED = re.compile(r"(?:\{|<)[\s\\]*U(?:_?\{[^{}]*\}|[^][(){}<>=])*(?:\}|>)$")
_ELLIPSIS = re.compile(r"=[ \t]*(?:…|\.\.\.|\\[lc]?dots)[ \t]*$")


def taken_off(text: str) -> tuple[str, list[str]]:
    """The formulas alone, each in its place; and what was left out that is one."""
    text = _FENCE.sub(_blank, text).translate(_SIGNS)
    text = _GETS.sub(lambda found: "=".rjust(len(found[0])), _FRAME.sub(_blank, text))
    left_out: list[str] = []
    return "".join(_parts(text, left_out)), left_out


def without_frames(text: str) -> str:
    """The same without code fences and what sets formulas, as long as before."""
    return _FRAME.sub(_blank, _FENCE.sub(_blank, text))


def _parts(text: str, left_out: list[str]) -> Iterator[str]:
    """The statements, comments and ends, in order. A line inside brackets goes on with what the one before began."""
    depth = 0
    for found in _PART.finditer(text):
        part = found[0]
        if part[0] == "#" or part in ("\\\\", "\n", ";"):
            yield part
            continue
        if not depth and found["loop"]:
            yield _without_number(part)
            continue
        until = len(part) if depth else _closing(part)
        bare = part[:until] if depth else _formula(part[:until], left_out)
        depth = max(0, depth + _deeper(bare))
        yield bare + _without_remarks_of_loops(part[until:])


def _formula(part: str, left_out: list[str]) -> str:
    """A statement, or the first line of one, alone."""
    bare = _without_number(part)
    bare = bare if _deeper(bare) else _without_remarks(bare)  # `1)` opens nothing
    if gets := _GETS_TOO.match(bare):
        bare = f"{bare[: gets.start(1)]} ={bare[gets.end(1) :]}"
    if not _ELLIPSIS.search(bare):
        return bare
    left_out.append(" ".join(bare.split()))
    return " " * len(bare)


def _closing(part: str) -> int:
    """Where the braces begin that close loops, which began before; its end if there are none."""
    depth = 0
    for found in re.finditer(r"\\?[{}]", part):
        depth += 1 if found[0][-1] == "{" else -1
        if depth < 0:
            return found.start()
    return len(part)


def _without_remarks_of_loops(end: str) -> str:
    """The braces that close loops, without what is said behind them."""
    said = _CLOSED.split(end)
    return said[0] + "".join(text if _CLOSED.fullmatch(text) else _without_remarks("]" + text)[1:] for text in said[1:])


def _deeper(part: str) -> int:
    """How many brackets it opens and leaves open."""
    return sum(part.count(sign) for sign in "([{") - sum(part.count(sign) for sign in ")]}")


def _without_number(part: str) -> str:
    """A statement without the number, the bullet or the quotation mark that its line begins with."""
    found = _NUMBER.match(part) or _DASH.match(part)
    return part if found is None else _blank(found) + part[found.end() :]


def _without_remarks(part: str) -> str:
    """A statement without the remarks in brackets, and the stop, that end its line."""
    end = _end(part, len(part))
    while (end and part[end - 1 : end] == ")") or part[end - 2 : end] in (")*", ")_"):
        star = "" if part[end - 1] == ")" else part[end - 1]
        start = _opening(part, end - 1 - len(star))
        before = part[:start].rstrip(" \t" + star)
        if start < 0 or not _is_remark(before[-80:], part[start:end], len(before) == start):
            break
        end = _end(part, len(part[:start].rstrip(" \t" + star)))
    return part[:end].ljust(len(part))


def _end(part: str, end: int) -> int:
    """Where a statement ends, without blanks and a full stop or comma."""
    end = len(part[:end].rstrip())
    stops = end > 1 and part[end - 1] in ".,:" and not (part[end - 2].isdigit() or part[end - 2] == ".")
    return len(part[: end - 1].rstrip()) if stops else end


def _is_remark(before: str, remark: str, touches: bool) -> bool:
    """Whether brackets are no part of a formula: after an array nothing is called, and words in a row are none, where
    no name `touches` them, which is called so, known or not."""
    if before[-1:] in ("]", ")") or _UNREDUCED.search(before) is not None:
        return True
    called = _CALLED.search(before)
    if called is not None and called[1] in NAMED:
        return False
    return not touches and (before[-1:].isalnum() or before[-1:] == "'") and _WORDS.match(remark) is not None


def _opening(text: str, closing: int) -> int:
    """The place of the bracket that this one closes; -1 if there is none."""
    depth = 0
    for place in range(closing, -1, -1):
        depth += (text[place] == ")") - (text[place] == "(")
        if not depth:
            return place
    return -1


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])
