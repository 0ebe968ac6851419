"""Whether XLA's warnings are written at all: its libraries read their log level once, when they are loaded.

JAX's own library and the TPU's compiler are loaded here at a level that lets warnings by, whatever the environment
asks for; what they write is caught. Where somebody loaded them before, it is said that warnings may be missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

_OF_JAX = {"TF_CPP_MIN_LOG_LEVEL": "1"}
_OF_TPU = {"TPU_STDERR_LOG_LEVEL": "1", "TPU_MIN_LOG_LEVEL": "1"}
_ERRORS = "2"  # the TPU compiler's own level; JAX's own is that of warnings


@cache
def jax_warns() -> bool:
    """Loads JAX so that its compiler warns, if nobody loaded it before; whether it does."""
    if "jaxlib" in sys.modules:
        return _let_by(_OF_JAX, unset="1")
    with _environment(_OF_JAX):
        import jax  # noqa: F401  # loaded while the level holds, and used elsewhere
    return True


@cache
def tpu_warns() -> bool:
    """Whether the TPU's compiler warns; asked before it is first loaded here, in `tpu_loading`."""
    return not _is_loaded("libtpu.so") or _let_by(_OF_TPU, unset=_ERRORS)


@contextmanager
def tpu_loading() -> Iterator[None]:
    """While the TPU's compiler may be loaded."""
    tpu_warns()
    with _environment(_OF_TPU):
        yield


def unheard(on_slice: bool) -> tuple[str, ...]:
    """A note where warnings may be missing."""
    if tpu_warns() if on_slice else jax_warns():
        return ()
    library, levels = ("libtpu", _OF_TPU) if on_slice else ("JAX", _OF_JAX)
    return (
        f"{library} was loaded before, at a log level ({', '.join(levels)}) that hides them: XLA's warnings may be "
        "missing; they are there where a process begins with this",
    )


def _let_by(levels: Mapping[str, str], unset: str) -> bool:
    return all((os.environ.get(name) or unset) <= level for name, level in levels.items())


def _is_loaded(library: str) -> bool:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            return any(library in line for line in lines)
    except OSError:
        return False


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """The process's environment with these in it, and afterwards as it was."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
