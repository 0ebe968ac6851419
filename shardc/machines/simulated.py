"""Simulated devices for a function that is named on the command line: as many as its mesh needs.

How many that is, only the function knows. So it is loaded as things are; where its mesh does not find the devices that
it needs, JAX is started again with as many, and what was imported is imported again.
"""

from __future__ import annotations

import re
import sys
from math import prod
from typing import Any

import jax
from jax.extend.backend import clear_backends

from shardc.errors import ShardcError
from shardc.machines.jitted import mesh_of
from shardc.machines.named import is_library, load_target
from shardc.machines.run import MAX_SIMULATED
from shardc.machines.tpu import quiet_without_a_tpu

_USUAL = 8  # of a program that takes what devices there are
_SHORT = (ValueError, IndexError, ZeroDivisionError, AssertionError)  # what too few devices lead to
_SHAPES = (re.compile(r"product of mesh_shape \(([\d, ]+)\)"), re.compile(r"size \d+ into shape \(([\d, ]+)\)"))

Loaded = tuple[Any, tuple[Any, ...]]


def load_on_devices(text: str, devices: int | None = None, on_slice: bool = False) -> Loaded:
    """What `module:function` names, on `devices` simulated ones, or on as many as it needs if there are too few.

    `on_slice`: it is compiled for other devices, so that only the loading needs any. SHC001, SHC409, SHC507.
    """
    quiet_without_a_tpu()
    before = frozenset(sys.modules)
    if devices is not None:
        _start(devices)
        return load_target(text)
    tried: set[int] = set()
    while True:
        try:
            found = load_target(text)
            needs = None if on_slice else _lacking(found)
        except ShardcError as error:
            needs = _missed(error, bool(tried))
            if needs is None or needs in tried:
                raise
        if needs is None or needs in tried:
            return found
        tried.add(needs)
        _forget(before)
        _start(needs)


def _start(count: int) -> None:
    """Lets JAX begin, or begin again, with so many simulated devices."""
    if count > MAX_SIMULATED:
        raise ShardcError(
            "SHC409",
            f"the function needs {count} devices; at most {MAX_SIMULATED} are simulated",
            help="put its arguments on a jax.sharding.AbstractMesh, and give --topology",
        )
    clear_backends()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", count)


def _forget(before: frozenset[str]) -> None:
    """Modules that were imported since, but for those of libraries, may hold devices that are gone."""
    for name in [name for name in sys.modules if name not in before]:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and not is_library(file):
            del sys.modules[name]


def _lacking(found: Loaded) -> int | None:
    """How many devices the arguments' mesh has, if there are fewer; the usual number if it is of one alone."""
    try:
        count = mesh_of(found[1]).devices
    except ShardcError:  # told where the function is looked at
        return None
    if count == 1:
        return _USUAL if len(jax.devices()) == 1 and jax.default_backend() == "cpu" else None
    return count if len(jax.devices()) < count else None


def _missed(error: ShardcError, again: bool) -> int | None:
    """How many devices a program wanted that could not be loaded; None for other errors.

    Where its error does not tell, the usual number is tried, once.
    """
    cause = error.__cause__
    if not isinstance(cause, _SHORT):
        return None
    shapes = [found[1] for pattern in _SHAPES if (found := pattern.search(str(cause)))]
    if not shapes:
        return None if again else _USUAL
    return prod(int(size) for size in re.findall(r"\d+", shapes[0]))
