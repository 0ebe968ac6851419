"""What was seen of a compiler, kept with the rule that it taught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_Rule = TypeVar("_Rule", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen, and of which libtpu."""

    libtpu: str
    what: str


OBSERVATIONS: dict[str, Observation] = {}  # by the name of the rule


def seen(libtpu: str, what: str) -> Callable[[_Rule], _Rule]:
    """Keeps an observation with the rule that it taught."""

    def keep(rule: _Rule) -> _Rule:
        OBSERVATIONS[rule.__name__] = Observation(libtpu, what)
        return rule

    return keep
