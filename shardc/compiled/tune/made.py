"""What a compiler made of a program, and made once: its text and what it allocates, kept by what it was given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from shardc.compiled.compare import Side, memory_of, side_of_text
from shardc.cost.allocation import Allocation
from shardc.cost.model import LinkModel
from shardc.io.kept import kept
from shardc.io.text import json_text
from shardc.machines.libtpu import installed
from shardc.machines.tpu import compiled


@dataclass(frozen=True, slots=True)
class Made:
    """A compiled program, as far as a replay needs it."""

    text: str  # HLO, scheduled
    memory: Allocation

    def side(self, name: str, model: LinkModel) -> Side:
        """Replayed. Raises UnreadableHlo."""
        return side_of_text(name, self.text, self.memory, model)


def made(lowered: Any, mesh: Any, options: Mapping[str, str] | None = None) -> Made:
    """Of `jax.jit(f).lower(…)` on the described chips of `mesh`. SHC308 for what the compiler refuses."""
    found = json.loads(kept(_content(lowered, mesh, options or {}), lambda: _compiled(lowered, mesh, options)))
    return Made(found["text"], Allocation(**found["memory"]))


def _content(lowered: Any, mesh: Any, options: Mapping[str, str]) -> str:
    """All that the compiler goes by: the module, the chips in order, the options, and which compiler it is."""
    chips = [(device.device_kind, tuple(device.coords)) for device in mesh.devices.flat]
    versions = [metadata.version("jax"), installed(), "memory as it lies"]
    return "\n".join([json_text([chips, dict(options), versions]), lowered.as_text()])


def _compiled(lowered: Any, mesh: Any, options: Mapping[str, str] | None) -> str:
    found = compiled(lowered, mesh, options)
    memory = memory_of(found)
    assert memory is not None, "the TPU's compiler says what it allocates"
    return json_text({"text": found.as_text(), "memory": asdict(memory)})
