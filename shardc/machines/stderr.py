"""What compilers write on the process's standard error, past Python: caught, so that it can be reported."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_FD = 2
_ONE = threading.RLock()  # the descriptor belongs to the process


@dataclass(slots=True)
class Caught:
    """The text, complete when the block has ended."""

    text: str = ""
    _into: int | None = None  # the descriptors of what is caught into, and of where it was going
    _before: int | None = None

    @contextmanager
    def let_by(self) -> Iterator[None]:
        """What is written meanwhile goes where it was going: progress is to be seen while it is made."""
        if self._into is None or self._before is None:
            yield
            return
        _flush()
        os.dup2(self._before, _FD)
        try:
            yield
        finally:
            _flush()
            os.dup2(self._into, _FD)


@contextmanager
def caught_stderr() -> Iterator[Caught]:
    """Whatever is written to file descriptor 2 inside the block, Python's own included, goes to `.text`.

    >>> with caught_stderr() as caught:
    ...     written = os.write(2, b"as a compiler does")
    >>> caught.text
    'as a compiler does'

    Where there is no standard error nothing is caught and nothing changes. Other threads that ask for it wait.
    """
    caught = Caught()
    with _ONE:
        _flush()
        try:
            saved = os.dup(_FD)
        except OSError:
            yield caught
            return
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), _FD)
            caught._into, caught._before = file.fileno(), saved
            try:
                yield caught
            finally:
                caught._into = caught._before = None
                _flush()
                os.dup2(saved, _FD)
                os.close(saved)
                file.seek(0)
                caught.text = file.read().decode("utf-8", errors="replace")


def _flush() -> None:
    """Python keeps lines of its own back; a closed or replaced sys.stderr has none."""
    with suppress(AttributeError, ValueError, OSError):
        sys.stderr.flush()
