"""Whether what an expression calls is a function, called as it is to be; and what is meant where it is none."""

from __future__ import annotations

from shardc.errors import ShardcError, Span, nearest
from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.dtypes import DTYPES, is_dtype
from shardc.ir.functions import FUNCTIONS, NAMED, SUMS, UNNAMED, Function
from shardc.notation import tree
from shardc.notation.instead import instead_of_function


def check_function(call: tree.Call) -> None:
    row, span = FUNCTIONS.get(call.function), call.name_span
    is_other = instead_of_function("_".join([call.function, *call.over])) is not None  # `log_softmax_D(A)`
    if row is None or is_other or (row.name in UNNAMED and not row.sign):
        raise _unknown_function(call)
    given = len(call.operands)
    if given != row.arity:
        raise _wrong_count(row, given, span)
    if row.over_dims and not call.over:
        raise ShardcError(
            "SHC222", f"`{call.function}` runs over a dim", span=span, help=f"name it: `{call.function}_J(…)`"
        )
    if call.over and not row.over_dims:
        raise ShardcError(
            "SHC222", f"`{call.function}` does not run over a dim", span=span, help=f"write `{call.function}(…)`"
        )


def _wrong_count(row: Function, given: int, span: Span | None) -> ShardcError:
    other = {"max": "maximum", "min": "minimum"}.get(row.name)
    letters = ", ".join("MAB"[:3] if row.arity == 3 else "AB"[: row.arity])
    over = "_J" if row.over_dims else ""
    instead = f"of two arrays `{other}(A, B)` is, element by element"
    return ShardcError(
        "SHC222",
        f"`{row.name}` takes {row.arity} operand{'s' * (row.arity > 1)}, not {given}",
        span=span,
        help=instead if other and given == 2 else f"write `{row.name}{over}({letters})`",
    )


def check_calls(expr: tree.Expr) -> None:
    """SHC222 where an expression calls what is no function, or not as it is to be called."""
    if isinstance(expr, tree.Call) and not is_sum(expr.function) and not is_cast(expr.function):
        check_function(expr)
    for below in tree.below(expr):
        check_calls(below)


_ELSEWHERE = {
    **{"ag": "AllGather", "rs": "ReduceScatter", "ar": "AllReduce", "a2a": "AllToAll"},
    **{"psum": "AllReduce", "psumscatter": "ReduceScatter", "ppermute": "CollectivePermute"},
    **{"swish": "silu", "logistic": "sigmoid", "average": "mean", "avg": "mean", "ln": "log", "lse": "logsumexp"},
}


def _unknown_function(call: tree.Call) -> ShardcError:
    name, span = call.function, call.name_span
    for collective in COLLECTIVE_NAMES:
        rest = name.removeprefix(collective)
        if rest != name:
            return ShardcError(
                "SHC221", f"lost subscript in `{name}`", span=span, help=f"write `{collective}_{rest}(…)`"
            )
    if name[:1].isupper() and not call.over:
        return ShardcError(
            "SHC222",
            f"unknown function `{name}`",
            span=span,
            help=f"the dims of an array stand in square brackets: `{name}[I, J]`",
        )
    words = "_".join((name, *call.over))
    ours, instead = _elsewhere(call), instead_of_function(words)
    near = ours or nearest(name, [*NAMED, *COLLECTIVE_NAMES, *DTYPES], 0.6)
    told = f"did you mean `{near}`?" if near else "the functions are " + ", ".join(NAMED)
    help = told if ours or instead is None else instead
    return ShardcError("SHC222", f"unknown function `{words}`", span=span, help=help)


def _elsewhere(call: tree.Call) -> str | None:
    """Of a name that other libraries use ours, with what is below it: `reduce_scatter_X`, `AG_X`, `average_J`."""
    words = "_".join([call.function, *call.over]).split("_")
    for count in range(len(words), 0, -1):
        name = "".join(words[:count]).lower()
        ours = _ELSEWHERE.get(name) or next((own for own in COLLECTIVE_NAMES if own.lower() == name), None)
        if ours is not None:
            return "_".join([ours, *words[count:]])
    return None


def is_cast(function: str) -> bool:
    return function not in FUNCTIONS and is_dtype(function)


def is_sum(function: str) -> bool:
    """What is a product of one operand in the program, and no function."""
    return function in SUMS
