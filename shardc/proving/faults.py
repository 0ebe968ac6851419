"""How a proof ends that cannot be given: the code does something wrong, or something that is not followed."""

from __future__ import annotations


class Fault(Exception):
    """What the code does wrong."""


class Unread(Exception):
    """What is not followed here: nothing is known of such code."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Fault(what)
