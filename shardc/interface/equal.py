"""What is equal to its copies, wherever they were made: pickled, copied, or found again."""

from __future__ import annotations

from abc import ABC
from operator import attrgetter
from typing import Any, ClassVar


class ByParts(ABC):
    """Equal where all parts are: attributes, by name, of which the first is hashed."""

    _parts: ClassVar[tuple[str, str, *tuple[str, ...]]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByParts) or type(self) is not type(other):
            return NotImplemented
        parts: Any = attrgetter(*self._parts)
        return self is other or bool(parts(self) == parts(other))

    def __hash__(self) -> int:
        return hash(attrgetter(self._parts[0])(self))
