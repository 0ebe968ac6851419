"""The same function, planned: what its inputs and outputs need, whatever the compiler made of it.

Y[I_X, L_Y] = relu(x[I_X, J] ·_J w1[J, K_Y]) ·_K w2[K_Y, L]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardc.compiled.explain.change import dim_names
from shardc.compiled.explain.notated import ODD, Dim, Node, Trace, Unsaid, Value
from shardc.compiled.explain.search import array_name
from shardc.cost.model import LinkModel
from shardc.ir.expressions import Call, Expr, Pattern, Product, Use
from shardc.ir.mesh import Mesh
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Array, Sharding
from shardc.planner import Objective, PlannedProgram, plan_with_subaxes

_MOST_NODES = 24
_MOST_RANK = 5
_SIGNS = {"add": "+", "sub": "-"}


def planned(
    jaxpr: Any, inputs: Sequence[Array | None], outputs: Sequence[Array | None], model: LinkModel
) -> dict[Objective, PlannedProgram]:
    """The plans of a closed jaxpr on the model's slice, from its inputs' shardings to its outputs': the one of fewest
    bytes, then the fastest. Empty where the notation cannot say it."""
    try:
        program = program_of(getattr(jaxpr, "jaxpr", jaxpr), inputs, outputs, model)
        objectives = (Objective.BYTES, Objective.TIME)
        return {objective: plan_with_subaxes(program, model, objective) for objective in objectives}
    except (*ODD, RecursionError):
        return {}


def program_of(
    jaxpr: Any, inputs: Sequence[Array | None], outputs: Sequence[Array | None], model: LinkModel
) -> Program:
    """Raises Unsaid."""
    trace = Trace()
    results = trace.run(jaxpr)
    if len(inputs) != len(trace.given) or len(outputs) != len(results) or not results:
        raise Unsaid("arguments that are not known")
    writer = _Writer(model.mesh, inputs)
    for number, (result, array) in enumerate(zip(results, outputs, strict=True)):
        if result is None or result.node is None or array is None:
            raise Unsaid("a result")
        writer.count(result.node)
        writer.results.append((result, array.sharding, number))
    return replace(writer.program(), chip=model.chip.name, topology=_slice(model))


def _slice(model: LinkModel) -> str | None:
    """`v5e:4x4`; None where the model knows of no slice."""
    topology = model.network.layout.topology
    return None if topology is None else str(topology)


@dataclass(slots=True)
class _Writer:
    """Writes nodes as statements: one for each result, and one for each node that is used twice."""

    mesh: Mesh
    given: Sequence[Array | None]
    results: list[tuple[Value, Sharding, int]] = field(default_factory=list)
    uses: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)  # of nodes that have a name
    dims: dict[int, tuple[str, Dim]] = field(default_factory=dict)  # by the id of the root, which stays alive here
    inputs: list[Input] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    def count(self, node: Node) -> None:
        self.uses[id(node)] = self.uses.get(id(node), 0) + 1
        if len(self.uses) > _MOST_NODES or len(node.dims) > _MOST_RANK:
            raise Unsaid("too much")
        if self.uses[id(node)] == 1:
            for operand in node.operands:
                self.count(operand)

    def program(self) -> Program:
        for value, sharding, number in self.results:
            name = "Y" if len(self.results) == 1 else f"Y{number}"
            self.state(value.array, name, self.spell(value.known()), Pattern.exactly(sharding))
        sizes = tuple((name, dim.size) for name, dim in self.dims.values())
        kind = self.inputs[0].dtype
        return Program(self.mesh, sizes, kind, tuple(self.inputs), tuple(self.statements))

    def spell(self, dims: Sequence[Dim]) -> tuple[str, ...]:
        """The dims' names; a dim twice in one array has none."""
        found = []
        for dim in dims:
            root = dim.root
            if id(root) not in self.dims:
                self.dims[id(root)] = (dim_names(len(self.dims) + 1, self.mesh)[-1], root)
            found.append(self.dims[id(root)][0])
        if len(set(found)) < len(found):
            raise Unsaid("a dim twice")
        return tuple(found)

    def state(self, node: Node, name: str, dims: tuple[str, ...], pattern: Pattern) -> None:
        expr = self.expr(node, named=True)
        text = f"{name}{pattern.spell(dims)} = {written(expr)}"
        self.statements.append(Statement(name, dims, pattern, expr, expr.dtype, text))

    def expr(self, node: Node, named: bool = False) -> Expr:
        dims = self.spell(node.dims)
        if node.op == "given":
            return self._input(node, dims)
        if not named and self.uses[id(node)] > 1:
            if id(node) not in self.names:
                self.names[id(node)] = f"T{len(self.names)}"
                self.state(node, self.names[id(node)], dims, Pattern.free(len(dims)))
            return Use(self.names[id(node)], dims, None, node.dtype)
        below = tuple(self.expr(operand) for operand in node.operands)
        if node.op == "·":
            return Product(below, dims, node.dtype)
        return Call(node.op, below, dims, node.dtype, self.spell(node.over))

    def _input(self, node: Node, dims: tuple[str, ...]) -> Use:
        array = self.given[node.number]
        if array is None:
            raise Unsaid("how an argument lies")
        pattern = Pattern.exactly(array.sharding)
        if id(node) not in self.names:
            taken = {known.name for known in self.inputs} | {"Y"}
            name = array_name(array.name)
            self.names[id(node)] = name if name not in taken else f"{name}{node.number}"
            self.inputs.append(Input(self.names[id(node)], dims, pattern, node.dtype))
        return Use(self.names[id(node)], dims, pattern, node.dtype)


def written(expr: Expr, inner: bool = False) -> str:
    """An expression in the notation."""
    match expr:
        case Use(name, dims, pattern):
            return name if pattern is None else name + pattern.spell(dims)
        case Product((operand,), dims):
            summed = ",".join(dim for dim in operand.dims if dim not in dims)
            return f"sum_{{{summed}}}({written(operand)})"
        case Product(operands, dims):
            both = [dim for dim in operands[0].dims if dim in operands[1].dims]
            gone = ",".join(dim for dim in both if dim not in dims)
            sign = f"·_{{{gone}}}" if "," in gone else f"·_{gone}" if gone else "·"
            text = f" {sign} ".join(written(operand, True) for operand in operands)
        case Call(function, operands) if function in _SIGNS:
            text = f" {_SIGNS[function]} ".join(written(operand, True) for operand in operands)
        case Call(function, operands, over=over):
            below = f"_{{{','.join(over)}}}" if over else ""
            return f"{function}{below}({', '.join(written(operand) for operand in operands)})"
        case _:
            raise Unsaid("a named collective")
    return f"({text})" if inner else text
