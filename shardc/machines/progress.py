"""Tells the user what takes long: a line once a second has passed without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

SILENCE = 1.0  # seconds


class Progress:
    """Called with what begins: it is said as soon as the silence has lasted a second. What is quick is never said."""

    def __init__(self, say: Callable[[str], None], silence: float | None = None) -> None:
        self._say, self._silence = say, SILENCE if silence is None else silence
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._waiting: threading.Timer | None = None

    def __call__(self, line: str) -> None:
        self._stop()
        left = self._since + self._silence - time.monotonic()
        if left <= 0:
            self._print(line)
            return
        self._waiting = threading.Timer(left, self._print, [line])
        self._waiting.daemon = True
        self._waiting.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stop()

    def _print(self, line: str) -> None:
        with self._lock:
            self._since = time.monotonic()
            self._say(line)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting.join()
            self._waiting = None
