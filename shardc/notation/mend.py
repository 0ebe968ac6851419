"""The spelling that does, where a page lost its subscripts: `In[BX, D] *D Win[D, F]` is `In[B_X, D] ·_D Win[D, F]`.

A repair is told only if what it gives can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from shardc.errors import ShardcError
from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.notation.paste import taken_off

MAX_MENDED = 8 * 1024  # characters of a text that is tried anew
_BRACKETS = re.compile(r"\[([^][\n]*)\]")
_UNREDUCED = re.compile(r"\{\s*U\s*([A-Za-z]+)\s*\}")
_LABEL = re.compile(r"([·⋅*@]|\\cdot)[ \t]*([A-Z])[ \t]+(?=[A-Za-z])")
_COLLECTIVE = re.compile(rf"\b({'|'.join(COLLECTIVE_NAMES)})([A-Za-z]+)(?=[ \t]*\()")
_DECLARED = re.compile(r"^[ \t]*mesh[ \t]+([^\n;#]*)", re.MULTILINE)


def with_remedy(error: ShardcError, text: str, axes: Iterable[str], is_read: Callable[[str], bool]) -> ShardcError:
    """The error, with the statement as it can be read, if that is found. `axes` are beside those that it declares."""
    if error.span is None or len(text) > MAX_MENDED:
        return error
    declared = [part.partition("=")[0].strip() for found in _DECLARED.findall(text) for part in found.split(",")]
    bare = taken_off(text)[0]
    mended = _mended(bare, {*axes, *declared})
    number = sum(text.count(end, 0, error.span.start) for end in "\n;")
    before, line = (_statement(each, number) for each in (bare, mended))
    if line.replace(" ", "") != before.replace(" ", "") and (is_read(line) or is_read(mended)):
        if error.code == "SHC221":  # its help is the dims alone
            error.note = f"read as `{line}`"
        else:
            error.help = f"write `{line}`"
    return error


def _statement(text: str, number: int) -> str:
    return " ".join(re.split(r"[\n;]", text)[number].split())


def _mended(text: str, axes: set[str]) -> str:
    known = {word.strip() for inside in _BRACKETS.findall(text) for word in inside.split(",")}

    def dims(found: re.Match[str]) -> str:
        return "[" + ", ".join(_dim(word.strip(), known, axes) for word in found[1].split(",")) + "]"

    def below(found: re.Match[str]) -> str:
        return f"{found[1]}_{found[2]}" if _is_run(found[2], axes) else found[0]

    text = _COLLECTIVE.sub(below, _BRACKETS.sub(dims, text))
    text = _UNREDUCED.sub(lambda found: f"{{U_{found[1]}}}" if _is_run(found[1], axes) else found[0], text)
    return _LABEL.sub(lambda found: f"{found[1]}_{found[2]} ", text)


def _dim(word: str, known: set[str], axes: set[str]) -> str:
    """`BX` → `B_X`, where B is a dim, or one capital letter, and X an axis or a run of axes."""
    for cut in range(len(word) - 1, 0, -1):
        name, part = word[:cut], word[cut:]
        if (name in known or (cut == 1 and name.isupper())) and "_" not in word and _is_run(part, axes):
            return f"{name}_{part}"
    return word


def _is_run(part: str, axes: set[str]) -> bool:
    return part in axes or (bool(part) and all(letter in axes for letter in part))
