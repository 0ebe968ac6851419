"""Reading inputs and writing outputs, whole or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from shardc.errors import ShardcError

MAX_BYTES = 64 * 1024


def read_input(argument: str) -> tuple[str, str]:
    """(text, name) of an expression, a `.shard` file, or `-` for standard input."""
    if argument == "-":
        return _decoded(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>"), "<stdin>"
    if not _is_path(argument):
        return argument, "<expression>"
    return _decoded(_read(Path(argument)), argument), argument


def _is_path(argument: str) -> bool:
    """Expressions have brackets; what has none, or ends in `.shard`, names a file."""
    return argument.endswith(".shard") or (bool(argument.strip()) and "[" not in argument and "\n" not in argument)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ShardcError(
            "SHC501", f"no file `{path}`", help="an expression has brackets, as in 'A[I_X, J] → A[I, J]'"
        ) from None
    except IsADirectoryError:
        raise ShardcError("SHC502", f"`{path}` is a directory", help="name a .shard file in it") from None
    except (OSError, ValueError) as error:
        raise ShardcError("SHC503", f"cannot read `{path}`: {_reason(error)}", help="check its permissions") from None


def _decoded(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise ShardcError("SHC401", f"`{name}` is longer than {MAX_BYTES} bytes", help="split it into several files")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ShardcError(
            "SHC109",
            f"`{name}` is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            help="save it as UTF-8",
        ) from None


def check_output(target: str, *, source: str, force: bool) -> None:
    """Refuses a file that would not be written, before the work that it is to hold. SHC502, SHC504 to SHC506."""
    path = Path(target)
    if path.is_dir():
        raise ShardcError("SHC502", f"`{target}` is a directory", help="name a file")
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise ShardcError("SHC505", f"`{target}` is the input", help="write to another file")
    if path.exists() and not path.is_file():
        raise ShardcError("SHC506", f"`{target}` is not a regular file", help="name a file, or leave -o out")
    if path.exists() and not force:
        raise ShardcError("SHC504", f"`{target}` exists", help="give --force to replace it")
    if not path.parent.is_dir():
        raise ShardcError("SHC506", f"cannot write `{target}`: no such directory", help="make the directory first")


def write_output(text: str, target: str, *, source: str, force: bool) -> None:
    """Writes a file so that it is the old one or the new one at every moment: temporary, fsync, rename."""
    check_output(target, source=source, force=force)
    path = Path(target)
    _sweep(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.shardc-tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ShardcError(
            "SHC506", f"cannot write `{target}`: {_reason(error)}", help="check the directory and the disk"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Removes what killed runs left beside a target: temporaries whose process is gone."""
    for stale in path.parent.glob(f".{path.name}.*.shardc-tmp"):
        number = stale.name.split(".")[-2]
        if number.isdigit() and not _alive(int(number)):
            stale.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
