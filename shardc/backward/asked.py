"""What is asked for: the gradients of which inputs, and how each is to lie where that is not as its array does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.errors import ShardcError, in_line, nearest
from shardc.ir.dtypes import Kind
from shardc.ir.expressions import Pattern, Use
from shardc.ir.program import Input, Program, Statement
from shardc.notation import parse

_BETWEEN = re.compile(r",(?![^\[]*\])(?![^{]*\})")  # commas that stand in no brackets


@dataclass(frozen=True, slots=True)
class Gradients:
    """Inputs in the order in which their gradients go out, and the patterns that were told of some."""

    inputs: tuple[Input, ...]
    lies: Mapping[str, Pattern]

    def pattern(self, array: Input) -> Pattern:
        """How a gradient lies: as told, else as its array; of a partial sum it is whole."""
        return self.lies.get(array.name, array.pattern.reduced)


def asked(program: Program, wrt: str | Sequence[str] | None) -> Gradients:
    """Every input of floats, or those of `wrt`: names, or arrays as `W[D, F_X]`, text with commas or a sequence."""
    floats = {each.name: each for each in program.inputs if each.dtype.kind is Kind.FLOAT and not each.dtype.moves}
    texts = list(floats) if wrt is None else _texts(wrt)
    if not texts:
        raise ShardcError("SHC217", "no input has a gradient", help="give one a type of floats to compute in, say bf16")
    found: dict[str, Pattern] = {}
    for text in texts:
        name = text.partition("[")[0].rstrip() if "[" in text else text
        if name not in floats:
            raise _without_gradient(program, name, list(floats))
        array = floats[name]
        pattern = _pattern(program, array, text) if "[" in text else array.pattern.reduced
        if found.setdefault(name, pattern) != pattern:
            raise ShardcError("SHC217", f"`{name}` is asked for in two shardings", help="keep one of them")
    told = {name: pattern for name, pattern in found.items() if pattern != floats[name].pattern.reduced}
    return Gradients(tuple(floats[name] for name in found), told)


def _texts(wrt: str | Sequence[str]) -> Sequence[str]:
    """The inputs that are asked for, of a text between commas."""
    if isinstance(wrt, str):
        return [text.strip() for text in _BETWEEN.split(wrt)]
    try:
        texts = tuple(wrt)
        are_texts = all(isinstance(text, str) for text in texts)
    except TypeError:  # there is nothing to go through
        are_texts = False
    if not are_texts:
        raise ShardcError("SHC001", f"wrt is {in_line(repr(wrt)[:200])}", help='give names of inputs, as in ["W", "V"]')
    return texts


def _without_gradient(program: Program, name: str, floats: Sequence[str]) -> ShardcError:
    near = nearest(name, floats)
    what = next((f"an input of {each.dtype}" for each in program.inputs if each.name == name), "no input")
    those = f"inputs of floats to compute in are {', '.join(floats) or 'none'}"
    help = f"did you mean `{near}`?" if near else those
    return ShardcError("SHC217", f"`{name}` is {what}, and has no gradient", help=help)


def _pattern(program: Program, array: Input, text: str) -> Pattern:
    """What the brackets of `W[D, F_X]` say."""
    found = parse("\n".join([*program.declarations, f"d{array.name} = {text}"]), name="<wrt>")
    made = found.statements[0]
    is_array = len(found.statements) == 1 and isinstance(made, Statement) and isinstance(made.expr, Use)
    if not is_array:
        so = f'give one as "{array.name}{array.pattern.spell(array.dims)}"'
        raise ShardcError("SHC001", f"`{in_line(text)}` is no array", help=so)
    (told,) = found.inputs
    if told.dims != array.dims:
        own, other = (f"[{', '.join(each.dims)}]" for each in (array, told))
        raise ShardcError("SHC210", f"`{array.name}` is {own}, and not {other}", help="name its dims in its own order")
    return told.pattern
