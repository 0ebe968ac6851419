"""Plan → JAX: source text, a callable, and a run on simulated devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardc.emit.supported import check_jax
from shardc.emit.text.source import source

if TYPE_CHECKING:
    import jax

    from shardc.emit.call.program import CompiledProgram
    from shardc.ir.mesh import Mesh
    from shardc.ir.plan import Schedule

__all__ = ["compile", "source"]


def compile(schedule: Schedule, mesh: jax.sharding.Mesh | Mesh | None = None) -> CompiledProgram:
    """The jitted program of a schedule. JAX is imported here, not before."""
    check_jax()
    from shardc.emit.call.program import CompiledProgram

    return CompiledProgram(schedule, mesh)
