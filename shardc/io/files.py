"""Reading inputs and writing outputs, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import select
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from shardc.errors import ShardcError
from shardc.io.streams import uninterrupted

MAX_BYTES = 64 * 1024
PATIENCE = 10.0  # seconds that a pipe or a device has to say something
_NO_PAGES = (".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".json", ".csv", ".md", ".txt", ".py", ".shard")
_LONGEST = 180  # bytes of a file's name that its temporary repeats; file systems allow 255


def read_input(argument: str) -> tuple[str, str]:
    """(text, name) of an expression, a `.shard` file, or `-` for standard input."""
    if argument == "-":
        return decoded(_standard_input(), "<stdin>"), "<stdin>"
    if not _is_path(argument):
        return argument, "<expression>"
    return read_text(argument, missing="an expression has brackets, as in 'A[I_X, J] → A[I, J]'"), argument


def _is_path(argument: str) -> bool:
    """Expressions have brackets, an arrow or a `=` between; what has none, or ends in `.shard`, names a file."""
    has = any(mark in argument for mark in ("[", "\n", "->", "→", " = "))
    return argument.endswith(".shard") or (bool(argument.strip()) and not has)


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise ShardcError("SHC503", "standard input is closed", help="name a file, or give an expression")
    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ShardcError("SHC503", f"cannot read standard input: {_reason(error)}", help="name a file") from None


def read_text(path: str, *, missing: str) -> str:
    """A file's text: at most MAX_BYTES, in bounded time, whatever kind of file it is. SHC109, 401, 501, 502, 503."""
    try:
        return decoded(_read(path), path)
    except FileNotFoundError:
        raise ShardcError("SHC501", f"no file `{path}`", help=missing) from None
    except IsADirectoryError:
        raise ShardcError("SHC502", f"`{path}` is a directory", help="name a file in it") from None
    except TimeoutError:
        raise ShardcError(
            "SHC503", f"cannot read `{path}`: nothing came in {PATIENCE:g} s", help="name a file that has an end"
        ) from None
    except (OSError, ValueError) as error:
        raise ShardcError("SHC503", f"cannot read `{path}`: {_reason(error)}", help="check its permissions") from None


def _read(path: str) -> bytes:
    """At most MAX_BYTES + 1 bytes. A pipe is opened without waiting for a writer, who has PATIENCE to come."""
    until = time.monotonic() + PATIENCE
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    data = b""
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        while len(data) <= MAX_BYTES:
            if not regular and not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            more = os.read(descriptor, MAX_BYTES + 1 - len(data))
            if not more:
                break
            data += more
    finally:
        os.close(descriptor)
    return data


def decoded(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise ShardcError("SHC401", f"`{name}` is longer than {MAX_BYTES} bytes", help="name another file, or split it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ShardcError(
            "SHC109",
            f"`{name}` is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            help="save it as UTF-8",
        ) from None


def check_output(target: str, *, sources: Sequence[str], force: bool) -> None:
    """Refuses a file that would not be written, before the work that it is to hold. SHC001, 502, 504 to 506."""
    if target == "-":
        raise ShardcError("SHC001", "`-` is standard output, where the tables go", help="name a file; ./- is one too")
    with _coded(target):
        _replaced(target, sources, force)
        if not os.path.isdir(os.path.dirname(os.path.realpath(target))):
            raise ShardcError("SHC506", f"cannot write `{target}`: no such directory", help="make the directory first")


def check_page(target: str) -> None:
    """SHC001 for a page's file that ends as one of another kind does."""
    if target.lower().endswith(_NO_PAGES):
        raise ShardcError("SHC001", f"`{target}` is no name of a page", help="end it in .html; a picture's in .svg")


def write_output(text: str, target: str, *, sources: Sequence[str], force: bool) -> None:
    """Writes a file so that it is the old one or the new one at every moment: temporary, fsync, rename.

    A symbolic link stays one: the file that it leads to is written. A file that is replaced keeps its mode.
    """
    with _coded(target):
        before = _replaced(target, sources, force)
        with uninterrupted():
            _write(text, os.path.realpath(target), before)


@contextmanager
def _coded(target: str) -> Iterator[None]:
    """SHC506 for what the operating system refuses."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ShardcError(
            "SHC506", f"cannot write `{target}`: {_reason(error)}", help="check the directory and the disk"
        ) from None


def _replaced(target: str, sources: Sequence[str], force: bool) -> os.stat_result | None:
    """What the target is now; None if there is nothing yet. SHC502, 504, 505, 506 where it must not be written."""
    before = _state(target)
    if before is not None and stat.S_ISDIR(before.st_mode):
        raise ShardcError("SHC502", f"`{target}` is a directory", help="name a file")
    if before is not None and any(os.path.samestat(before, source) for source in _states(sources)):
        raise ShardcError("SHC505", f"`{target}` is the input", help="write to another file")
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise ShardcError("SHC506", f"`{target}` is not a regular file", help="name a file, or leave the option out")
    if os.path.lexists(target) and not force:
        where = "" if before is not None else f", a link to `{os.readlink(target)}`, which does not"
        raise ShardcError("SHC504", f"`{target}` exists{where}", help="give --force to replace it")
    return before


def _state(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _states(sources: Sequence[str]) -> list[os.stat_result]:
    """Of the inputs that are files; an expression may be too long to be the name of one."""
    found = []
    for source in sources:
        with suppress(OSError, ValueError):
            found.append(os.fstat(0) if source == "-" else os.stat(source))
    return found


def _write(text: str, path: str, before: os.stat_result | None) -> None:
    folder, name = os.path.split(path)
    stem = f".{name if len(os.fsencode(name)) <= _LONGEST else hashlib.sha256(os.fsencode(name)).hexdigest()}."
    _sweep(folder, stem)
    temporary = os.path.join(folder, f"{stem}{os.getpid()}.shardc-tmp")
    mine = False
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        mine = True
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            _keep(file.fileno(), before)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        mine = False
    finally:
        if mine:
            with suppress(OSError):
                os.unlink(temporary)


def _keep(descriptor: int, before: os.stat_result | None) -> None:
    """The owner, where we may, and the mode of the file that is replaced."""
    if before is None:
        return
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        with suppress(OSError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
    with suppress(OSError):
        os.fchmod(descriptor, before.st_mode & 0o777)


def _sweep(folder: str, stem: str) -> None:
    """Removes what killed runs left beside a target: temporaries whose process is gone."""
    left: list[str] = []
    with suppress(OSError):
        left = os.listdir(folder)
    for name in left:
        number = name.removeprefix(stem).removesuffix(".shardc-tmp")
        if name == f"{stem}{number}.shardc-tmp" and number.isdecimal() and not _alive(int(number)):
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))


def _alive(process: int) -> bool:
    """Whether another process of that number runs; what our own number left was of one that had it before."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
