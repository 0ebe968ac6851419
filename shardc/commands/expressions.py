"""Commands whose arguments may be expressions, which may begin as options do: `-A[I] → B[I]`."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MARK = "\0"  # no argument of a process can hold it
_VALUED = re.compile(r"--[a-z][a-z-]*=|-o(?!.*(?:->|→|arrow|\\to))", re.DOTALL)


class Subcommand(click.Command):
    """A command to which `-A[I] → B[I]` is an expression, and no option: options have no brackets."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self._refuse_swallowed(ctx, args)
        marked = [f"{_MARK}{arg}" if _is_expression(arg) else arg for arg in args]
        try:
            self._refuse_repeated(ctx, marked)
            rest = super().parse_args(ctx, marked)
        except click.UsageError as error:
            told = error.format_message()
            as_given = told.replace(_MARK, "").replace(repr(_MARK)[1:-1], "")
            raise error if as_given == told else click.UsageError(as_given, ctx) from None
        ctx.params = {name: _unmarked(value) for name, value in ctx.params.items()}
        return rest

    def _refuse_repeated(self, ctx: click.Context, args: list[str]) -> None:
        """`--mesh X=2 --mesh Y=4` would drop the first: an option is a list only where it says so."""
        _, _, order = self.make_parser(ctx).parse_args([*args])
        for each, times in Counter(order).items():
            if isinstance(each, click.Option) and times > 1 and not (each.is_flag or each.count or each.multiple):
                raise click.UsageError(f"{each.opts[-1]} is given {times} times, and takes one value", ctx)

    def _refuse_swallowed(self, ctx: click.Context, args: list[str]) -> None:
        """`-o --force` would write a file of that name, and replace none: the value was left out."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        valued = {spelling: each for each in options if not (each.is_flag or each.count) for spelling in each.opts}
        spellings = {"--", *(spelling for each in options for spelling in each.opts)}
        for name, value in takewhile(lambda pair: pair[0] != "--", pairwise(args)):
            if name in valued and value in spellings:
                takes = f"{name} takes {valued[name].make_metavar(ctx)}"
                raise click.UsageError(f"{takes}, and `{value}` stands there", ctx)

    def get_short_help_str(self, limit: int = 45) -> str:
        """As much of the first sentence as ends where a part of it does: nothing is cut off within."""
        text = " ".join((self.help or "").split("\n\n")[0].split())
        for ends in ("[.?;:](?: |$)", ", "):
            found = [text[: each.start() + (each.group()[0] in ".?")] for each in re.finditer(ends, text)]
            fitting = [part for part in found if len(part) <= limit]
            if fitting:
                return fitting[-1]
        return super().get_short_help_str(limit)


def completed(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """An input is completed as a file's name."""
    from click.shell_completion import CompletionItem  # which few need

    return [CompletionItem(incomplete, type="file")]


def _unmarked(value: Any) -> Any:
    match value:
        case str():
            return value.removeprefix(_MARK)
        case tuple():
            return tuple(map(_unmarked, value))
        case _:
            return value


class Commands(click.Group):
    command_class = Subcommand


def _is_expression(argument: str) -> bool:
    return argument.startswith("-") and "[" in argument and not _VALUED.match(argument)
