"""A process's standard streams and its interrupts, as a command meets them: closed, full, broken, at any moment.

What a command prints is of two kinds. Its *result* goes to standard output, and a result that cannot be written is a
failure (SHC506). Its *messages* go to standard error; one that cannot be written is lost, and changes nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TextIO

_INTERRUPTED = 130
_STREAMS = (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))


def prepare() -> None:
    """Before anything else of a command: streams that are there, in UTF-8, and an end for interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started us wants none
        signal.signal(signal.SIGINT, _end)
    for number, (name, mode) in enumerate(_STREAMS):
        _occupy(number, name, mode)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # a stand-in may have no encoding to choose
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]  # TextIO lacks it


def _occupy(number: int, name: str, mode: int) -> None:
    """A closed descriptor is taken, or the next file opened would get its number, and what compilers print.

    Standard input is taken for writing and standard output for reading, so that whoever uses them hears of it.
    """
    with suppress(OSError):
        os.fstat(number)
        return
    with suppress(OSError):
        os.open(os.devnull, mode)  # the lowest number that is free
        if name != "stdin":
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def _end(_number: int, _frame: object) -> None:
    """At once: an exception could be lost in whatever is being imported, compiled or torn down."""
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """An interrupt waits for the end of the block, so that no half-written file is left."""
    waiting: list[int] = []
    try:
        before = signal.signal(signal.SIGINT, lambda number, _: waiting.append(number))
    except ValueError:  # not the main thread, where interrupts arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if waiting:
            signal.raise_signal(signal.SIGINT)


def result(text: str) -> None:
    """Prints a part of the result. Raises OSError."""
    print(text, file=sys.stdout, flush=True)


def show(text: str) -> None:
    """Prints a part of the result that is for a reader: at a terminal so wide as it is, in colour. Raises OSError."""
    if _is_terminal(sys.stdout):
        from shardc.io import terminal

        text = terminal.painted(terminal.fitted(text, terminal.width()))
    result(text)


def width() -> int | None:
    """How many columns a reader's terminal has; None where the result goes elsewhere."""
    if not _is_terminal(sys.stdout):
        return None
    from shardc.io import terminal

    return terminal.width()


def is_watched() -> bool:
    """Whether messages go to a terminal."""
    return _is_terminal(sys.stderr)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # a stand-in; closed
        return False


@contextmanager
def aside() -> Iterator[Callable[[str], None]]:
    """How to say messages in the block, also while somebody catches what a compiler writes to standard error."""
    try:
        stream = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError, AttributeError):  # closed; a stand-in, from which nobody catches
        yield say
        return
    with stream:
        yield partial(say, to=stream)


def say(text: str, to: TextIO | None = None) -> None:
    """Prints a message, or loses it."""
    stream = sys.stderr if to is None else to
    if _is_terminal(stream):
        from shardc.io import terminal

        text = terminal.painted(text)
    try:
        print(text, file=stream, flush=True)
    except (OSError, ValueError):  # full, broken; closed
        silence("stderr")


def silence(name: str) -> None:
    """From here on a stream writes to nowhere: what it still holds would fail again when Python ends."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, getattr(sys, name).fileno())
        os.close(nowhere)
