"""Lines are split as `ruff format` splits them, whatever expression is assigned: of the forms that are written."""

import random
import subprocess
import sys
from collections import Counter

from shardc.emit.exprs import (
    BinOp,
    Call,
    Const,
    Index,
    Items,
    Keyword,
    Line,
    Name,
    call,
    flat,
    method,
    over,
    size_of,
    times,
)
from shardc.emit.text.layout import written

FUNCTIONS = ("jnp.add", "jax.lax.all_gather", "jax.lax.dynamic_slice_in_dim", "jnp.einsum", "P")
COUNT = 700


class Drawn:
    """Expressions of names from one letter to a full variable's, so that lines end on either side of the width."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def name(self, lengths=(1, 2, 5, 10, 20, 24)):
        return Name(self.draw.choice("abcdefghijklmnopqrstuvwxyz") * self.draw.choice(lengths))

    def size(self):
        return self.draw.choice((self.name(), size_of(self.name(), 1), over(size_of(self.name(), 0), 4)))

    def argument(self):
        return self.draw.choice((self.size(), Const(self.draw.randint(0, 300)), Const("X"), times(4, self.name())))

    def items(self):
        some = tuple(self.argument() for _ in range(self.draw.randint(1, 6)))
        return Items(some, self.draw.choice(("()", "()", "[]")))

    def call(self, depth):
        inside = lambda: self.expr(depth - 1)  # noqa: E731
        given = [self.draw.choice((self.argument, self.items, inside))() for _ in range(self.draw.randint(2, 3))]
        names = ("axis", "perm", "preferred_element_type")[: self.draw.choice((0, 0, 1, 2))]
        given += [Keyword(name, self.argument() if self.draw.random() < 0.7 else self.items()) for name in names]
        return Call(Name(self.draw.choice(FUNCTIONS)), tuple(given))

    def terms(self):
        found, operators = self.name(), self.draw.choice((("+", "-"), ("*", "//", "%")))
        for _ in range(self.draw.randint(2, 5)):
            inner = BinOp(BinOp(self.name(), "+", self.name()), "-", BinOp(self.name(), "*", self.name()))
            term = self.draw.choice((self.size(), Const(3), inner))
            found = BinOp(found, self.draw.choice(operators), term)
        return found

    def methods(self):
        found = call("np.arange", Const(self.draw.randint(2, 4096)))
        for _ in range(self.draw.randint(2, 5)):
            name, *given = self.draw.choice((("reshape", 2, 4, 4096), ("transpose", 0, 2, 1), ("ravel",)))
            found = method(found, name, *map(Const, given))
        return found

    def expr(self, depth, is_assigned=False):
        """A chain of methods is an argument, a sum that ends with a call is assigned."""
        if depth == 0:
            return self.argument()
        ends = (
            (lambda: BinOp(times(8, self.name((1, 2))), self.draw.choice("+-"), self.call(depth)))
            if is_assigned
            else self.methods
        )
        cast = lambda: method(self.call(depth), "astype", Name("jnp.bfloat16"))  # noqa: E731
        both = Items((self.name(), self.name()))
        held = lambda: Index(call("jax.lax.optimization_barrier", both), 0)  # noqa: E731
        return self.draw.choice((lambda: self.call(depth), lambda: self.call(depth), cast, held, ends, self.terms))()

    def line(self):
        target = self.draw.choice(("A", "piece", "some_long_variable_name"))
        return Line(target, self.expr(2, is_assigned=True), self.draw.choice(("", "C[I_X, J]")))


def test_lines_are_split_as_the_formatter_splits_them():
    drawn = Drawn(1)
    lines = [drawn.line() for _ in range(COUNT)]
    comments = (f"  # {line.comment}" if line.comment else "" for line in lines)
    text = "".join(f"def f():\n    {a.target} = {flat(a.expr)}{b}\n" for a, b in zip(lines, comments, strict=True))
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    found = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    wanted = [part.rstrip("\n") for part in found.split("def f():\n")[1:]]
    ours = ["\n".join(written(line)) for line in lines]
    for one, other in zip(ours, wanted, strict=True):
        assert one == other
    assert min(Counter("\n" in one for one in ours).values()) > COUNT / 10
