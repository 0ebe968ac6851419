"""What a user is told when something is wrong: a code, a place, the values, a remedy.

An error looks like this, in the terminal and, with `--json`, as fields:

    error[SHC204]: dim `I` = 6 is not divisible by mesh axis `X` = 4
     --> mlp.shard:1:5
      | A[I_X, J] · B[J, K] → C[I, K]
      |   ^^^ 6 mod 4 = 2
      = help: make I 8, or drop `_X`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

CODES: dict[str, str] = {
    "SHC001": "a flag or an option's value is malformed",
    "SHC101": "the text does not follow the grammar",
    "SHC102": "the text is empty",
    "SHC103": "a bracket is not closed",
    "SHC104": "a side of the statement is missing",
    "SHC105": "more than one arrow in a statement",
    "SHC106": "a character that does not belong here",
    "SHC107": "a name is reserved or malformed",
    "SHC108": "a number is malformed",
    "SHC109": "the text is not UTF-8",
    "SHC201": "unknown mesh axis",
    "SHC202": "a mesh axis is used twice in one array",
    "SHC203": "a malformed mesh",
    "SHC204": "a dim is not divisible by its axes",
    "SHC205": "a dim occurs twice in one array",
    "SHC206": "a dim has two sizes",
    "SHC207": "an output dim is on no input",
    "SHC208": "a dim's size is unknown",
    "SHC209": "a dim's size is impossible",
    "SHC210": "a dim that the operand does not have",
    "SHC211": "conflicting shardings of a local product",
    "SHC212": "an unreduced value where a reduced one is needed",
    "SHC213": "unknown dtype",
    "SHC214": "mixed dtypes",
    "SHC215": "an integer sum may overflow",
    "SHC216": "64-bit values need jax_enable_x64",
    "SHC217": "an array that is not defined",
    "SHC218": "a name is bound to two different arrays",
    "SHC219": "a named collective does not do what its result says",
    "SHC220": "no sequence of moves leads to the sharding asked for",
    "SHC221": "lost subscripts",
    "SHC222": "unknown function",
    "SHC223": "unknown chip",
    "SHC224": "a topology that does not fit the mesh",
    "SHC226": "a loop that cannot be run as it is written",
    "SHC301": "too few devices",
    "SHC302": "the JAX backend has already started",
    "SHC303": "an argument has another shape",
    "SHC304": "an argument has another dtype",
    "SHC305": "an argument has another sharding",
    "SHC306": "the mesh in force is not the plan's",
    "SHC307": "the installed JAX is not supported",
    "SHC308": "the devices could not run the program",
    "SHC309": "the number of arguments is wrong",
    "SHC310": "a process of the computation is missing, stuck or gone",
    "SHC311": "the TPU compiler is not installed",
    "SHC312": "a compiled program cannot be read",
    "SHC313": "the package that draws pictures is not installed",
    "SHC401": "the text is too long",
    "SHC402": "too many terms",
    "SHC403": "nested too deeply",
    "SHC404": "too many mesh axes",
    "SHC405": "too many devices",
    "SHC406": "an array is too large",
    "SHC407": "a number has too many digits",
    "SHC410": "no plan keeps the memory limit",
    "SHC409": "too many simulated devices",
    "SHC411": "a run that would take too much memory or time",
    "SHC412": "a proof that would take too long, or that code is not followed for",
    "SHC501": "no such file",
    "SHC502": "the path is a directory",
    "SHC503": "the file cannot be read",
    "SHC504": "the output exists",
    "SHC505": "the output is the input",
    "SHC506": "the output cannot be written",
    "SHC507": "a named function cannot be loaded",
    "SHC900": "a bug in shardc",
}

MISMATCH, USAGE, SYNTAX, SEMANTICS, RUNTIME, LIMIT, FILES, BUG, INTERRUPTED = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    70,
    130,
)

_EXIT_BY_FAMILY = {
    "0": USAGE,
    "1": SYNTAX,
    "2": SEMANTICS,
    "3": RUNTIME,
    "4": LIMIT,
    "5": FILES,
    "9": BUG,
}


@dataclass(frozen=True, slots=True)
class Source:
    """A text and where it came from. Offsets count code points of `text`."""

    text: str
    name: str = "<expression>"

    def position(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset, both from 1."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range [start, end) of a source that something was read from."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        return Span(self.source, self.start, other.end)


def _again(code: str, message: str, span: Span | None, note: str, help: str) -> ShardcError:
    return ShardcError(code, message, span=span, note=note, help=help)


class ShardcError(Exception):
    """A refusal. `.code` is a key of CODES, `.span` the place (or None), `.help` the remedy."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        span: Span | None = None,
        note: str = "",
        help: str = "",
    ) -> None:
        assert code in CODES, code
        super().__init__(message)
        self.code = code
        self.message = message
        self.span = span
        self.note = note
        self.help = help

    def __reduce__(self) -> tuple[Callable[..., ShardcError], tuple[object, ...]]:
        """As a process that another started hands it over."""
        return _again, (self.code, self.message, self.span, self.note, self.help)

    @property
    def exit_code(self) -> int:
        """The status that the command line ends with."""
        return _EXIT_BY_FAMILY[self.code[3]]

    def at(self, span: Span | None) -> ShardcError:
        """The same error, with a place if it had none."""
        if self.span is None:
            self.span = span
        return self

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        lines = [f"error[{self.code}]: {in_line(self.message)}"]
        if self.span is not None:
            lines += _excerpt(self.span, in_line(self.note))
        elif self.note:
            lines.append(f"  = note: {in_line(self.note)}")
        if self.help:
            lines.append(f"  = help: {in_line(self.help)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The fields that `--json` prints."""
        place: dict[str, object] | None = None
        if self.span is not None:
            line, column = self.span.source.position(self.span.start)
            place = {
                "source": self.span.source.name,
                "start": self.span.start,
                "end": self.span.end,
                "line": line,
                "column": column,
            }
        return {
            "code": self.code,
            "message": self.message,
            "span": place,
            "note": self.note,
            "help": self.help,
        }


def _excerpt(span: Span, note: str) -> list[str]:
    line, column = span.source.position(span.start)
    text = span.source.line(line).expandtabs(1)
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    caret = " " * (column - 1) + "^" * width
    return [
        f" --> {in_line(span.source.name)}:{line}:{column}",
        f"  | {_printable(text)}",
        f"  | {caret} {note}".rstrip(),
    ]


def _printable(text: str) -> str:
    """What stands above a caret keeps its columns: controls become U+FFFD."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


class _Shown(dict[int, str]):
    """How a terminal is shown a character, by its number: as it is, or, if it might act on it, spelt out."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        self[point] = shown = character if character.isprintable() else _spelt(point)
        return shown


def _spelt(point: int) -> str:
    """`\\u001b`, as in JSON: two of these beyond U+FFFF."""
    if point < 0x10000:
        return f"\\u{point:04x}"
    high, low = divmod(point - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


_IN_LINE = _Shown({ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"})
_IN_LINES = _Shown({ord("\n"): "\n"})


def in_line(text: str) -> str:
    """A user's words in a message: whatever a terminal would act on is spelt out as in JSON, line breaks too.

    >>> in_line("a\\x1b[31m.shard")
    'a\\\\u001b[31m.shard'
    """
    return text.translate(_IN_LINE)


def in_lines(text: str) -> str:
    """The same for a text of several lines; JSON means the same before and after."""
    return text.translate(_IN_LINES)


def flag(given: object, what: str) -> bool:
    """True or False; SHC001 for anything else, of which not all is either."""
    if not isinstance(given, bool):
        raise ShardcError("SHC001", f"{what} is {in_line(repr(given)[:200])}", help="give True or False")
    return given


def nearest(name: str, known: Iterable[str], alike: float = 0.5) -> str | None:
    """The known name most like a mistyped one, or None if nothing is alike: letters in common, of all."""
    import difflib  # most names are known

    known = list(known)
    folded = {k.lower(): k for k in reversed(known)}
    found = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=alike)
    return folded[found[0]] if found else None
