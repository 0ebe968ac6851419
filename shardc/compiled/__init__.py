"""What a compiler made of a program: HLO read, held against the plan, replayed, explained."""

from __future__ import annotations

from typing import Any

from shardc.compiled.hlo.collectives import Collective, Reader
from shardc.compiled.hlo.text import Module, UnreadableHlo, read_hlo
from shardc.ir.mesh import Mesh

__all__ = ["Collective", "Module", "Reader", "UnreadableHlo", "collectives", "read_hlo"]


def collectives(compiled: Any, mesh: Mesh | None = None) -> tuple[Collective, ...]:
    """Every collective of a compiled JAX function, or of its HLO text; axes have names if the mesh is given.

    `compiled` is what `jax.jit(f).lower(…).compile()` gives, for whatever backend. Raises UnreadableHlo.
    """
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    return Reader(read_hlo(text), mesh).all()
