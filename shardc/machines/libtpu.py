"""Which libtpu there is and which one JAX names, and what to say where they differ or cannot be read.

JAX's metadata names one in its extra `tpu`: `libtpu==0.0.42.*` of JAX 0.10.2. Others load as well, and some compile
what they cannot show afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from shardc.errors import ShardcError

_NAMED = re.compile(r"libtpu\s*\(?\s*==\s*([0-9][0-9.]*[0-9])(\.\*)?")


def named() -> str | None:
    """The libtpu that the installed JAX names, `0.0.42.*`; None if it names none."""
    for requirement in metadata.requires("jax") or ():
        found = _NAMED.match(requirement)
        if found:
            return found[1] + (found[2] or "")
    return None


def installed() -> str | None:
    try:
        return metadata.version("libtpu")
    except metadata.PackageNotFoundError:
        return None


def fits(version: str, wanted: str) -> bool:
    """`0.0.42.1` is of `0.0.42.*`, and no other."""
    if wanted.endswith(".*"):
        return f"{version}.".startswith(wanted[:-1])
    return version == wanted


def other_libtpu() -> tuple[str, ...]:
    """A note where the libtpu is not the one that JAX names."""
    found, wanted = installed(), named()
    if found is None or wanted is None or fits(found, wanted):
        return ()
    return (
        f"compiled by libtpu {found}; JAX {metadata.version('jax')} names {wanted}, and predictions are of that one",
    )


@contextmanager
def reading(*unreadable: type[Exception]) -> Iterator[None]:
    """SHC312 where what was compiled cannot be read: the compiler cannot show it, or raises what the reader does."""
    import jax

    try:
        yield
    except (jax.errors.JaxRuntimeError, *unreadable) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise ShardcError(
            "SHC312", f"the compiled program cannot be read: {lines[0][:200]}", note=_versions(), help=_remedy()
        ) from error


def _versions() -> str:
    return (
        f"JAX {metadata.version('jax')} names libtpu {named() or 'of no version'}; installed is {installed() or 'none'}"
    )


def _remedy() -> str:
    wanted = named()
    if wanted is None:
        return "install the libtpu that your JAX was released with"
    found = installed()
    if found is not None and fits(found, wanted):
        return "report the program; smaller --dims, or another --topology, may be readable"
    return f"pip install 'libtpu=={wanted}'"
