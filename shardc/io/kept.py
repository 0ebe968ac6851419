"""Texts that took long to make, kept on disk by the content that they were made of.

They lie in `$SHARDC_CACHE`, or in `shardc` where the user's caches are. What cannot be read or written is made again.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def folder() -> Path | None:
    """Where they lie; nowhere, for a user who has no home."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    named = os.environ.get("SHARDC_CACHE")
    if named:
        return Path(named)
    return Path(home) / "shardc" if os.path.isabs(home) else None


def kept(content: str, make: Callable[[], str]) -> str:
    """What was made of this content before, or what `make` gives now."""
    where = folder()
    if where is None:
        return make()
    path = where / f"{hashlib.sha256(content.encode()).hexdigest()}.gz"
    found = _read(path)
    if found is None:
        found = make()
        _write(path, found)
    return found


def _read(path: Path) -> str | None:
    try:
        return gzip.decompress(path.read_bytes()).decode() or None
    except (OSError, EOFError, ValueError, zlib.error):
        return None


def _write(path: Path, text: str) -> None:
    """Whole or not at all: two processes may keep the same at once."""
    import tempfile  # most runs only read

    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(gzip.compress(text.encode(), compresslevel=3))
        os.replace(file.name, path)
