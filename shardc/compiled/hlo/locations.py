"""Where an operation of StableHLO comes from: `loc(#loc12)`, and what the lines `#loc12 = loc(…)` say of it.

#loc3 = loc("model.py":12:4 to :20)
#loc7 = loc(callsite(#loc3 at #loc4))
#loc9 = loc("jit(f)/attention/psum"(#loc7))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_USE = re.compile(r"loc\((#loc\d*)\)\s*$")
_NAMED = re.compile(r'"((?:[^"\\]|\\.)*)"\((#loc\d*)\)')
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):')
_OTHER = re.compile(r"#loc\d*")


@dataclass(frozen=True, slots=True)
class Locations:
    lines: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> Locations:
        return cls(dict(_LINE.findall(text)))

    def of_op(self, text: str) -> tuple[str, str]:
        """The names that the program gave to an operation's place, and its innermost `file.py:12`; empty if unknown."""
        used = _USE.search(text)
        if used is None:
            return "", ""
        line = self.lines.get(used.group(1), "")
        named = _NAMED.fullmatch(line)
        return named.group(1) if named else "", self._file(line)

    def _file(self, line: str) -> str:
        found = _FILE.match(line)
        if found:
            return f"{found.group(1)}:{found.group(2)}"
        first = _OTHER.search(line)  # of a callsite, the called; of several, the first
        return self._file(self.lines.get(first.group(), "")) if first else ""
