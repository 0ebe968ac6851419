"""`-o FILE`: a result in a file, whole or not at all, or else where it goes without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from shardc.io import streams
from shardc.io.files import check_output, write_output

_Command = TypeVar("_Command", bound=Callable[..., Any])
force_option = click.option("--force", is_flag=True, help="Replace FILE if it exists.")


@dataclass(frozen=True, slots=True)
class Output:
    """The file that an option named, if any, which takes the place of none that is read."""

    file: str | None
    sources: Sequence[str]
    force: bool

    @classmethod
    def of(cls, file: str | None, sources: Sequence[str], force: bool, option: str = "-o") -> Output:
        """Refused before the work that it is to hold."""
        if file is not None:
            check_output(file, sources=sources, force=force)
        elif force:
            streams.say(f"warning: --force does nothing without {option}")
        return cls(file, sources, force)

    def takes(self, text: str) -> bool:
        """Whether there is a file, which then holds the text."""
        if self.file is None:
            return False
        write_output(text, self.file, sources=self.sources, force=self.force)
        return True


def with_output(help: str) -> Callable[[_Command], _Command]:
    """`-o FILE` of what else goes to standard output, which `-` names as well; and `--force`."""

    def with_both(command: _Command) -> _Command:
        named = click.option("-o", "--output", metavar="FILE", callback=_no_dash, help=help)
        return named(force_option(command))

    return with_both


def _no_dash(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    return None if value == "-" else value
