"""Which JAX emitted code is written for."""

from __future__ import annotations

import re
from importlib import metadata

from shardc.errors import ShardcError

LEAST = (0, 10)


def check_jax() -> None:
    """SHC307 for a JAX that is older: asked wherever a program is handed to JAX, before JAX is imported."""
    found = metadata.version("jax")
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < LEAST:
        least = ".".join(map(str, LEAST))
        raise ShardcError(
            "SHC307",
            f"JAX {found} is installed; programs are written for {least} and newer",
            help=f"pip install 'jax>={least}'",
        )
