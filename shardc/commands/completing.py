"""What a shell completes a word with, beside names of commands, options and files, which click knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def chips(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of chips, or files with the constants of one."""
    from click.shell_completion import CompletionItem

    from shardc.cost.chips import CHIPS

    return _beginning(CHIPS, incomplete) or [CompletionItem(incomplete, type="file")]


def dtypes(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from shardc.ir.dtypes import DTYPES

    return _beginning(DTYPES, incomplete)


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Error codes, and commands, as `shardc help` takes them."""
    from shardc.errors import CODES

    group = context.find_root().command
    commands = group.list_commands(context) if isinstance(group, click.Group) else []
    return _beginning([*commands, "codes", *CODES], incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # which few need

    return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]
