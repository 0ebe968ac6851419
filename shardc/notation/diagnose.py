"""Why a text does not follow the grammar, in the user's words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shardc.errors import ShardcError, Source, Span
from shardc.ir.dtypes import is_dtype
from shardc.ir.functions import NAMED
from shardc.notation.instead import KEYWORD, LOGIC, LOOKUP, LOOP, TWO_SIGNS, instead_of
from shardc.notation.literals import is_name_gone_wrong, neither
from shardc.notation.tokens import CLOSER, CLOSING, QUIET, WORDS, expected_words, open_brackets

if TYPE_CHECKING:
    from lark import Token
    from lark.exceptions import UnexpectedInput, UnexpectedToken

_OPERATORS = {"DOT", "ODOT", "SLASH", "PLUS", "MINUS", "COMPARE"}
_CLOSED = {"RSQB", "RBRACE", "RPAR"}
_ENDS = {"_NL", "$END"}
_SPECIFICATION = re.compile(r"\s*(?P<all>[A-Za-z]+(?:\s*,\s*[A-Za-z]+)*\s*->\s*[A-Za-z]*)\s*")


class _Stop:
    """Where the parser stopped: the token, the one before it, and what it would have taken."""

    def __init__(self, source: Source, error: UnexpectedInput) -> None:
        from lark.exceptions import UnexpectedToken

        assert isinstance(error, UnexpectedToken)
        self.source = source
        self.kind = error.token.type
        start = len(source.text) if self.kind == "$END" else error.token.start_pos or 0
        end = start if self.kind == "$END" else error.token.end_pos or start
        self.span = Span(source, start, end)
        self.text = self.span.text
        self.expected: set[str] = set(error.accepts or error.expected)
        before = _last_token(error)
        self.before_kind = before.type if before is not None else "_NL"
        self.before = Span(source, before.start_pos or 0, before.end_pos or 0) if before is not None else None
        self.open = open_brackets(source, start)

    @property
    def is_after_operand(self) -> bool:
        between = self.source.text[self.before.end : self.span.start] if self.before else ""
        return self.before_kind in _CLOSED or (self.before_kind in {"NUMBER", "BAR"} and not between.strip())

    @property
    def statement(self) -> Span:
        """From the statement's first character to the end of the token before."""
        end = self.before.end if self.before else self.span.start
        start = max(self.source.text.rfind(mark, 0, end) for mark in "\n;") + 1
        skipped = re.compile(r"\s*").match(self.source.text, start)
        return Span(self.source, skipped.end() if skipped else start, end)


def _last_token(error: UnexpectedToken) -> Token | None:
    """The token before the one that did not fit: the rightmost leaf of what the parser holds."""
    from lark import Token

    stack = error.interactive_parser.parser_state.value_stack if error.interactive_parser else []
    last = stack[-1] if stack else None
    while last is not None and not isinstance(last, Token):
        last = last.children[-1] if last.children else None
    return last


def diagnose(source: Source, error: UnexpectedInput) -> ShardcError:
    from lark.exceptions import UnexpectedToken

    if not isinstance(error, UnexpectedToken):
        return _character(source, error.pos_in_stream or 0)
    stop = _Stop(source, error)
    for rule in _RULES:
        found = rule(stop)
        if found is not None:
            return found
    return _plain(stop)


def _reserved(stop: _Stop) -> ShardcError | None:
    """`mesh[I, J] → …`: a word of the declarations stands where an array's name should."""
    if not stop.before_kind.startswith("KW_") or stop.kind not in {"LSQB", "ARROW", "EQUAL", "COLON", *_OPERATORS}:
        return None
    assert stop.before is not None
    return ShardcError(
        "SHC107", f"array `{stop.before.text}` is a reserved word", span=stop.before, help="choose another name"
    )


def _begins_with_a_digit(stop: _Stop) -> ShardcError | None:
    """`1A[I, J] → …`."""
    if stop.before_kind != "NUMBER" or stop.before is None or not is_name_gone_wrong(stop.before.text):
        return None
    return neither(stop.before.text, stop.before)


def _empty_subscript(stop: _Stop) -> ShardcError | None:
    """`A[I_, J]`."""
    if stop.before_kind != "SUB" or stop.before is None:
        return None
    return ShardcError(
        "SHC101", "no axis after `_`", span=stop.before, help="name an axis, as in `I_X`, or drop the `_`"
    )


def _missing_side(stop: _Stop) -> ShardcError | None:
    if stop.kind in _ENDS and stop.before_kind in {"ARROW", "EQUAL"}:
        assert stop.before is not None
        return ShardcError(
            "SHC104",
            f"nothing follows `{stop.before.text}`",
            span=stop.before,
            help="write both sides: `A[I, J] · B[J, K] → C[I, K]`",
        )
    if stop.kind in {"ARROW", "EQUAL"} and stop.before_kind == "_NL":
        return ShardcError(
            "SHC104",
            f"nothing stands before `{stop.text}`",
            span=stop.span,
            help="write both sides: `A[I, J] · B[J, K] → C[I, K]`",
        )
    if stop.kind in _ENDS and "ARROW" in stop.expected and not stop.open:
        help = "end it with `→ C[…]`, or begin `C[…] =`"
        if stop.statement is not None and "==" in stop.statement.text:
            help += "; `==` compares, elements with elements"
        return ShardcError("SHC104", "the statement has no result", span=stop.statement, help=help)
    return None


def _second_arrow(stop: _Stop) -> ShardcError | None:
    """`A → B → C`, `C = A → B`."""
    if stop.kind not in {"ARROW", "EQUAL"} or stop.open:
        return None
    if not re.search(r"->|→|arrow|\\to|=", stop.statement.text):
        return None
    return ShardcError(
        "SHC105",
        f"a second `{stop.text}` in one statement",
        span=stop.span,
        help="a statement has one `→` or one `=`; write two statements",
    )


def _no_dim(stop: _Stop) -> ShardcError | None:
    """`A[I,, J]`, `A[, J]`, `A[I, ]`; `A[I, 128]`, where a size stands for a dim."""
    commas = "COMMA" in (stop.kind, stop.before_kind)
    if not commas or "NAME" not in stop.expected:
        return None
    if stop.kind == "NUMBER":
        help = f"name the dim, and say how long it is: `A[I, J]` with `dims J={stop.text}`, or --dims J={stop.text}"
        return ShardcError("SHC101", f"`{stop.text}` stands where a dim has its name", span=stop.span, help=help)
    span = stop.span if stop.kind == "COMMA" else stop.before
    return ShardcError("SHC101", "nothing stands beside this `,`", span=span, help="name a dim, or drop the comma")


def _unclosed(stop: _Stop) -> ShardcError | None:
    if not stop.open or stop.text in CLOSING:
        return None
    opening = stop.open[-1]
    if CLOSER[opening.text] not in stop.expected and stop.kind != "$END":
        return None
    if stop.kind in {"NAME", "NUMBER"} and "COMMA" in stop.expected and stop.before is not None:
        between = stop.source.text[stop.before.end : stop.span.start]
        if "\n" not in between:
            written = {"[": "dims by commas: `A[I, J]`", "{": "these by commas: `{X,Y}`"}.get(opening.text)
            written = written or f"arguments by commas; {LOGIC}"
            return ShardcError("SHC101", f"no `,` before `{stop.text}`", span=stop.span, help=f"separate {written}")
    if _closed_later(stop.source, opening, stop.span.start):
        return None
    closer = WORDS[CLOSER[opening.text]]
    return ShardcError("SHC103", f"`{opening.text}` is not closed", span=opening, help=f"close it with {closer}")


def _closed_later(source: Source, opening: Span, start: int) -> bool:
    depth = 0
    for found in QUIET.finditer(source.text, start):
        mark = found.group()
        depth += (mark in CLOSER) - (mark in CLOSING)
        if depth < 0:
            return CLOSING.get(mark) == opening.text
    return False


def _result_last(stop: _Stop) -> ShardcError | None:
    """`A[I] · B[I] = C[]`."""
    if stop.kind != "EQUAL" or "ARROW" not in stop.expected:
        return None
    return ShardcError(
        "SHC101", "`=` after an expression", span=stop.span, help="write `→` here, or the result first: `C[…] = …`"
    )


def _indexed(stop: _Stop) -> ShardcError | None:
    """`In[L, B, D][i]`."""
    if (stop.kind, stop.before_kind) != ("LSQB", "RSQB"):
        return None
    return ShardcError(
        "SHC101",
        "a second pair of brackets on one array",
        span=stop.span,
        help="a statement is of whole arrays: drop the index, and the dim that it is of",
    )


def _missing(stop: _Stop) -> ShardcError | None:
    """`A[I, J] · → C[I]`: an operator with nothing after it."""
    if stop.before_kind not in _OPERATORS or stop.before is None or "NAME" not in stop.expected:
        return None
    return ShardcError(
        "SHC101", f"no array follows `{stop.before.text}`", span=stop.before, help="write an array, as in `B[J, K]`"
    )


def _einsum(stop: _Stop) -> ShardcError | None:
    """`ij,jk->ik`, and in quotes `einsum('ij,jk->ik', A, B)`."""
    quoted = re.search(r"""(['"])([^'"]*->[^'"]*)\1""", stop.source.text)
    found = _SPECIFICATION.fullmatch(quoted[2] if quoted else stop.source.text)
    if found is None:
        return None
    *given, result = (", ".join(letters) for letters in re.findall("[A-Za-z]+|(?<=>)$", found["all"]))
    arrays = [f"{name}[{dims}]" for name, dims in zip("ABDEFGHIJK", given, strict=False)]
    return ShardcError(
        "SHC101",
        "operands without names",
        span=stop.span,
        help=f"name each, with its dims: `{' · '.join(arrays)} → C[{result}]`",
    )


def _between(stop: _Stop) -> ShardcError | None:
    """`A[I, J] B[J, K]`, `2 A[I, J]`, `A[I, J] x B[J, K]`, `(A < B) and (B < C)`."""
    if stop.kind not in {"NAME", "FUNCTION", "SIGMA"} or not stop.is_after_operand or "DOT" not in stop.expected:
        return None
    told = instead_of(stop.text, "a product is written `·`, `*` or `@`")
    return ShardcError("SHC101", f"no operator before `{stop.text.strip()}`", span=stop.span, help=told)


def _called_bare(stop: _Stop) -> ShardcError | None:
    """`sum_D x[B, D]`, `where(not x[B] > 0, …)`: a function whose brackets were left out."""
    if stop.kind != "NAME" or stop.before_kind != "NAME" or stop.before is None or "LPAR" not in stop.expected:
        return None
    name = stop.before.text
    if name.partition("_")[0] not in NAMED or "\n" in stop.source.text[stop.before.end : stop.span.start]:
        return None
    told = f"a function has its arguments in brackets: `{name}({stop.text}…)`"
    return ShardcError("SHC101", f"no `(` after `{name}`", span=stop.before, help=told)


def _in_a_dim(stop: _Stop) -> ShardcError | None:
    """`A[I/X]`, `A[I{X}]`, `A[I + R]`, `E[Tok[B], D]`: neither a subscript nor a name."""
    if not stop.open or stop.open[-1].text != "[" or stop.before_kind != "NAME" or stop.before is None:
        return None
    if not stop.expected >= {"COMMA", "SUB"} or stop.kind in {"NAME", "NUMBER", *_ENDS}:
        return None
    named = re.compile(r"\s*[A-Za-z]\w*").match(stop.source.text, stop.span.end)
    word = named.group().strip() if named is not None else ""
    if stop.text == "[" or (stop.text == ":" and is_dtype(word)):
        told = LOOKUP
    elif stop.text in {"/", ":", "@", "{", "<"} and word:
        told = f"an axis is a subscript of its dim: `{stop.before.text}_{word}`"
    elif stop.text in {"+", "-", "*", "·", "⋅"}:
        told = "a dim is one name; indices are not computed, and dims neither joined nor split"
    else:
        return None
    return ShardcError("SHC101", f"`{stop.text}` stands in a dim", span=stop.span, help=told)


def _type_last(stop: _Stop) -> ShardcError | None:
    """`y[B_X]: f32 = …`."""
    text = stop.source.text
    array = re.compile(r"(?:^|(?<=\W))([^\W\d]\w*'*)\s*(\[[^\[\]]*\])\s*$").search(text[: stop.span.start])
    word = re.compile(r"\s*(\w+)").match(text, stop.span.end)
    if stop.text != ":" or array is None or word is None or not is_dtype(word[1]):
        return None
    told = f"a type stands between the name and the dims: `{array[1]}: {word[1]}{array[2]}`"
    return ShardcError("SHC101", f"`: {word[1]}` after the dims of `{array[1]}`", span=stop.span, help=told)


def _round_brackets(stop: _Stop) -> ShardcError | None:
    """`… -> C(I, K)`."""
    if (stop.kind, stop.before_kind) != ("LPAR", "NAME") or stop.before is None or "LSQB" not in stop.expected:
        return None
    name = stop.before.text
    told = f"the dims of an array stand in square brackets: `{name}[I, J]`"
    if name in ("P", "PartitionSpec", "NamedSharding"):
        told = "a sharding is written at the dims of its array: `A[I_X, J]`"
    return ShardcError("SHC101", f"`(` after `{name}`", span=stop.span, help=told)


def _two_signs(stop: _Stop) -> ShardcError | None:
    """`A[I] ** 2`, `A[I_X] => A[I]`, `A[I_X] → A[I]  // a remark`."""
    around = TWO_SIGNS.search(stop.source.text, max(0, stop.span.start - 1), stop.span.start + 2)
    if around is None:
        return None
    span = Span(stop.source, *around.span())
    return ShardcError("SHC101", f"`{span.text}` is no operator", span=span, help=instead_of(span.text, ""))


def _trailing(stop: _Stop) -> ShardcError | None:
    if not stop.expected & _ENDS or stop.kind in _ENDS or stop.before_kind == "_NL":
        return None
    return ShardcError(
        "SHC101",
        f"`{stop.text}` follows a statement that is complete",
        span=stop.span,
        note=f"expected {expected_words(stop.expected)}",
        help=instead_of(stop.text, "end the statement with a line break or `;`"),
    )


_RULES = (
    _einsum,
    _two_signs,
    _in_a_dim,
    _between,
    _called_bare,
    _round_brackets,
    _type_last,
    _reserved,
    _begins_with_a_digit,
    _empty_subscript,
    _missing_side,
    _second_arrow,
    _no_dim,
    _unclosed,
    _missing,
    _indexed,
    _result_last,
    _trailing,
)


def _plain(stop: _Stop) -> ShardcError:
    found = WORDS[stop.kind] if stop.kind in _ENDS else f"`{stop.text}`"
    in_loop = stop.before_kind == "KW_FOR" or stop.expected == {"LBRACE"}
    told = "an array is written `A[I, J_X]`, a statement `A[I, J] · B[J, K] → C[I, K]`"
    is_keyword = bool(stop.open) and stop.open[-1].text == "(" and stop.kind == "EQUAL"  # `softmax(A[I, J], axis=-1)`
    told = LOOP if in_loop else KEYWORD if is_keyword else told
    return ShardcError("SHC101", f"expected {expected_words(stop.expected)}, found {found}", span=stop.span, help=told)


def _character(source: Source, offset: int) -> ShardcError:
    command = re.compile(r"\\[A-Za-z]+|\\?.", re.DOTALL).match(source.text, offset)
    span = Span(source, offset, command.end() if command else offset + 1)
    known = r"; known are \mathbf, \text, \cdot, \odot, \rightarrow" if span.text.startswith("\\") else ""
    told = instead_of(span.text, f"delete it{known}")
    return ShardcError("SHC106", f"`{span.text}` does not belong here", span=span, help=told)
