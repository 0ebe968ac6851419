"""What is said of a statement that no local product and no move does."""

from __future__ import annotations

from collections.abc import Iterable

from shardc.errors import ShardcError
from shardc.ir.expressions import Expr, Named, Product
from shardc.ir.program import Statement
from shardc.ir.sharding import Sharding, spell


def impossible(expr: Expr) -> ShardcError:
    match expr:
        case Named(collective=collective):
            return ShardcError(
                "SHC219",
                f"`{collective}` cannot be done to its operand",
                span=expr.span,
                help="check that the operand is sharded, or unreduced, over the axes named",
            )
        case Product(local=True):
            return ShardcError(
                "SHC211",
                "the operands' shardings do not allow a local product",
                span=expr.span,
                help="drop `_LOCAL`, or shard the contracted dim alike on both operands",
            )
        case _:
            return ShardcError(
                "SHC220", "no sharding of the operands allows this", span=expr.span, help="reduce or gather first"
            )


def unreachable(statement: Statement, lies: Iterable[Sharding]) -> ShardcError:
    """`lies` is how the value lies before it is moved on."""
    wanted = statement.pattern.spell(statement.dims)
    left = sorted(statement.name + spell(statement.dims, sharding) for sharding in lies)
    if isinstance(statement.expr, Named):
        return ShardcError(
            "SHC219",
            f"`{statement.expr.collective}` does not give `{statement.name}{wanted}`",
            span=statement.span,
            help="it gives " + " or ".join(f"`{text}`" for text in left[:4]),
        )
    if isinstance(statement.expr, Product) and statement.expr.local:
        return ShardcError(
            "SHC211",
            f"a local product does not leave `{statement.name}{wanted}`",
            span=statement.span,
            help="it leaves " + " or ".join(f"`{text}`" for text in left[:4]),
        )
    missing = statement.pattern.unreduced
    reason = " over ".join(["nothing makes the value unreduced", ", ".join(sorted(missing))]) if missing else ""
    return ShardcError(
        "SHC220",
        f"no sequence of moves leads to `{statement.name}{wanted}`",
        span=statement.span,
        note=reason,
        help="drop the `{U_…}`, or contract a dim that this axis shards" if missing else "choose another sharding",
    )
