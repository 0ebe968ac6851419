"""The user's lines behind a program: the tables that a compiler prints before the code.

    FileNames
    1 "model.py"
    …
    StackFrames
    5 {file_location_id=4 parent_frame_id=5}

An instruction names a frame, `stack_frame_id=5`; a frame its place in a file, and the frame that called it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_FIELD = re.compile(r"(\w+)=(\d+)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


def sources(lines: list[str]) -> dict[int, str]:
    """By stack frame, the innermost file and line outside the libraries, from the tables before the code."""
    tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
    current: dict[int, str] | None = None
    for line in lines:
        if line in tables:
            current = tables[line]
        elif not line.strip():
            current = None
        elif current is not None:
            first, _, rest = line.partition(" ")
            current[int(first)] = rest
    files = {number: name.strip('"') for number, name in tables["FileNames"].items()}
    places: dict[int, str] = {}
    for number, text in tables["FileLocations"].items():
        fields = dict(_FIELD.findall(text))
        places[number] = f"{files.get(int(fields.get('file_name_id', 0)), '')}:{fields.get('line', '?')}"
    frames = {number: dict(_FIELD.findall(text)) for number, text in tables["StackFrames"].items()}
    lines_of = {number: places.get(int(frame.get("file_location_id", 0)), "") for number, frame in frames.items()}
    return {number: _outside_libraries(number, frames, lines_of) for number in frames}


_LIBRARIES = ("site-packages", "dist-packages", f"{Path(__file__).parents[2]}{os.sep}")  # ours too, wherever it is


def _outside_libraries(frame: int, frames: dict[int, dict[str, str]], lines: dict[int, str]) -> str:
    """The innermost line of a frame's callers that no library holds; the frame's own if all are in libraries.

    None is named of this package's.
    """
    number = frame
    while number in frames:
        if not any(folder in lines[number] for folder in _LIBRARIES):
            return lines[number]
        caller = int(frames[number].get("parent_frame_id", 0)) - 1  # they count from 1, and 1 is none
        number = caller if caller < number else 0
    return "" if _LIBRARIES[-1] in lines[frame] else lines[frame]
