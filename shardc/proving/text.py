"""Emitted text, read again as Python and done on symbols: what `program` leaves on every device.

The few forms of Python that emitted modules have (`emit.allowed` lists them) are followed here as Python follows them.
A function below `@jax.shard_map` is done on the blocks of all devices; what comes in and goes out has to lie as its
specs say.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.proving import calls
from shardc.proving.devices import Devices, Held, alone, laid_out
from shardc.proving.faults import Fault, Unread, require
from shardc.proving.laid import Extent, InForce, Laid, Zeros
from shardc.proving.literals import are_numbers, shape_of, share_of, widened
from shardc.proving.meaning import row, stacked
from shardc.proving.python import OPERATORS, called, summed, unstacked
from shardc.proving.tensors import Tensor, arange, broadcast, filled, listed, rolled, shaped, transposed

_HELPERS = ("apart", "together", "alike")  # which change types, and are not checked by JAX for that


@dataclass(frozen=True)
class _Function:
    """A function of the module."""

    node: ast.FunctionDef
    module: Module

    def __call__(self, *arguments: Any) -> Any:
        names = [each.arg for each in self.node.args.args]
        require(len(names) == len(arguments), f"{self.node.name} takes {len(names)} arguments")
        return self.module.done(self.node.body, dict(zip(names, arguments, strict=True)))


@dataclass
class Module:
    """A module on the devices of a mesh. `literals` are the sizes that its numbers stand for, as `reduced` says.

    With `sums_wide` products add up in f32 whatever type they name: on TPUs, and where XLA splits them.
    """

    devices: Devices
    literals: Mapping[int, int]
    sums_wide: bool = False
    functions: dict[str, Any] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = {
            **calls.calls_on(self.devices),
            "jnp.einsum": partial(calls.einsum, sums_wide=self.sums_wide),
            "jax.lax.scan": self._scan,
            "jax.custom_gradient": lambda function: lambda *given: function(*given)[0],
            "jax.tree_util.Partial": partial,
            "jax.custom_derivatives.linear_call": lambda forth, back, nothing, given: forth(nothing, given),
            "jax.reshard": self._resharded,
            "jax.shard_map": self._mapped,
            "jax.lax.with_sharding_constraint": self._constrained,
            "jax.sharding.Mesh": lambda sizes, names: Mesh(tuple(zip(names, sizes, strict=True))),
            "jnp.zeros": lambda shape, out_sharding: Zeros(self.devices.mesh),
            "jnp.inf": float("inf"),
            "jnp.unstack": unstacked,
            "np.arange": arange,
            "np.roll": rolled,
            "np.array": lambda given, kind: Tensor((len(given),), tuple(map(int, given))),
            "P": _spec,
            "Layout": tuple,
            "True": True,
            "False": False,
            "list": list,
            "int": int,
            "zip": lambda *given: list(zip(*given, strict=True)),
            "range": range,
        }

    def loaded(self, text: str) -> Any:
        """The module's `program`."""
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = self._decorated(node)
        return self.functions["program"]

    def _decorated(self, node: ast.FunctionDef) -> Any:
        found: Any = _Function(node, self)
        for decorator in reversed(node.decorator_list):
            if ast.unparse(decorator) == "jax.jit":
                continue
            require(isinstance(decorator, ast.Call), f"@{ast.unparse(decorator)}")
            assert isinstance(decorator, ast.Call)
            keywords = {str(each.arg): self.value(each.value, {}) for each in decorator.keywords}
            name = ast.unparse(decorator.func)
            if name == "jax.shard_map":
                found = self._mapped(found, **keywords)
            elif name == "jax.sharding.auto_axes":
                found = partial(self._auto, found, keywords["out_sharding"])
            else:
                raise Unread(f"@{name}")
        return found

    def done(self, body: Sequence[ast.stmt], known: dict[str, Any]) -> Any:
        """What is returned; `known` is left with the variables."""
        for node in body:
            match node:
                case ast.Return(value):
                    assert value is not None
                    return self.value(value, known)
                case ast.Assign([target], value):
                    self._assigned(target, self.value(value, known), known)
                case ast.For(ast.Name(name), over, inside):
                    for turn in self.value(over, known):
                        known[name] = turn
                        self.done(inside, known)
                case ast.FunctionDef(name):
                    known[name] = partial(self._inner, node, known)
                case ast.With(_, inside):
                    self.done(inside, known)
                    if isinstance(inside[-1], ast.Return):
                        raise Unread("a return within a context")
                case ast.Expr(ast.Constant()):
                    continue
                case _:
                    raise Unread(ast.unparse(node))
        return None

    def _inner(self, node: ast.FunctionDef, around: dict[str, Any], *arguments: Any) -> Any:
        names = (each.arg for each in node.args.args)
        return self.done(node.body, {**around, **dict(zip(names, arguments, strict=True))})

    def _assigned(self, target: ast.expr, value: Any, known: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            known[target.id] = value
            return
        assert isinstance(target, ast.Tuple)
        require(len(target.elts) == len(value), "as many names as values")
        for one, each in zip(target.elts, value, strict=True):
            self._assigned(one, each, known)

    def value(self, node: ast.expr, known: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return known[name] if name in known else self.functions.get(name) or self._named(name)
            case ast.Tuple(items):
                return tuple(self.value(item, known) for item in items)
            case ast.List(items):
                return [self.value(item, known) for item in items]
            case ast.Set(items):
                return {self.value(item, known) for item in items}
            case ast.UnaryOp(ast.USub(), operand):
                return -self.value(operand, known)
            case ast.BinOp(left, ast.Add(), ast.Call(ast.Attribute(attr="arange"), [ast.Constant(int(count)), *_])):
                return self._positions(left, count, known)
            case ast.BinOp(left, kind, right):
                return self._computed(type(kind), self.value(left, known), self.value(right, known))
            case ast.Compare(left, [ast.Eq()], [right]):
                return self._computed(ast.Eq, self.value(left, known), self.value(right, known))
            case ast.Subscript(value, index):
                of, number = self.value(value, known), self.value(index, known)
                return of.each(lambda block: row(block, 0, number)) if isinstance(of, Held) else of[number]
            case ast.Attribute(value, name):
                return self._attribute(node, value, name, known)
            case ast.Call(ast.Attribute(attr="arange", value=ast.Name("jnp")), [ast.Constant(int(count)), *_]):
                return self._positions(None, count, known)
            case ast.Call(ast.Attribute(attr="full", value=ast.Name("jnp")), [ast.Tuple(extents), filling], [kind]):
                block = filled(shape_of(extents, self.literals), self.value(filling, known))
                return calls.alike(self.devices, block, self.value(kind.value, known))
            case ast.Call(ast.Attribute(attr="broadcast_to"), [mask, ast.Tuple(extents)]) if are_numbers(extents):
                return self.value(mask, known).each(lambda block: widened(block, len(extents)))
            case ast.Call(ast.Name("sum"), [ast.GeneratorExp(term, [each])]):
                return self._summed(term, each, known)
            case ast.Call(function, given, keywords):
                wanted = self.value(function, known)
                named = {str(each.arg): self.value(each.value, known) for each in keywords}
                return called(ast.unparse(function), wanted, [self.value(each, known) for each in given], named)
            case _:
                raise Unread(ast.unparse(node))

    def _summed(self, term: ast.expr, each: ast.comprehension, known: Mapping[str, Any]) -> Held:
        """`sum(term for left, right in zip(…))`."""
        found, inside = list[Held](), dict(known)
        for turn in self.value(each.iter, known):
            self._assigned(each.target, turn, inside)
            found.append(self.value(term, inside))
        return summed(found)

    def _named(self, name: str) -> Any:
        require(name in self.names, f"{name} is not bound")
        return self.names[name]

    def _attribute(self, node: ast.expr, value: ast.expr, name: str, known: Mapping[str, Any]) -> Any:
        dotted = ast.unparse(node)
        if dotted in self.names and dotted.partition(".")[0] not in known:
            return self.names[dotted]
        if "(" not in dotted and dotted.partition(".")[0] in ("jax", "jnp", "np"):
            raise Unread(dotted)
        of = self.value(value, known)
        if name == "shape" and isinstance(of, Held):
            return tuple(map(Extent, of.shape))
        if isinstance(of, Held | Tensor) and name in _METHODS:
            return partial(_METHODS[name], of)
        if isinstance(of, Held | Laid | Tensor | str | Zeros | InForce | Mesh):
            return of if name in ("abstract_mesh", "sharding", "mesh") else getattr(of, name)
        raise Fault(f"{dotted} of a {type(of).__name__}")

    def _computed(self, kind: type[ast.operator | ast.cmpop], left: Any, right: Any) -> Any:
        """Python's numbers and lists, and numbers that differ from device to device."""
        if not isinstance(left, Held | Tensor) and not isinstance(right, Held | Tensor):
            return OPERATORS[kind](left, right)
        blocks = [
            x.blocks if isinstance(x, Held) else (Tensor((), (int(x),)),) * len(self.devices) for x in (left, right)
        ]

        def of_each(one: Tensor, other: Tensor) -> Tensor:
            shape = max(one.shape, other.shape, key=len)
            return Tensor(
                shape, tuple(map(OPERATORS[kind], broadcast(one, shape).items, broadcast(other, shape).items))
            )

        return Held(alone(of_each, blocks), DTYPES["int32"])

    def _positions(self, left: ast.expr | None, count: int, known: Mapping[str, Any]) -> Any:
        """`jax.lax.axis_index("X") * 256 + jnp.arange(256, …)`: positions, by a literal that stands for another."""
        axes: tuple[str, ...] = ()
        match left:
            case None:
                pass
            case ast.BinOp(ast.Call(ast.Attribute(attr="axis_index"), [named]), ast.Mult(), ast.Constant(times)):
                require(times == count, f"{times!r} positions on each device, and {count}")
                axes = calls.axes_of(self.value(named, known))
            case _:
                raise Unread("positions of another form")
        parts = self.devices.mesh.product(axes)
        size = share_of(count * parts, parts, self.literals)
        blocks = {n: Tensor((size,), tuple(range(n * size, (n + 1) * size))) for n in range(parts)}
        return Held(tuple(blocks[n] for n in self.devices.index(axes)), DTYPES["int32"])

    def _scan(
        self,
        trip: Any,
        carried: tuple[Held, ...],
        rows: tuple[Held, ...],
        length: int | None = None,
        reverse: bool = False,
    ) -> Any:
        made: list[tuple[Held, ...]] = []
        counts = {x.shape[0] for x in rows} | (set() if length is None else {share_of(length, 1, self.literals)})
        require(len(counts) == 1, f"a loop of {sorted(counts)} rows")
        turns = range(counts.pop())
        for turn in reversed(turns) if reverse else turns:
            taken = tuple(x.each(partial(row, place=0, index=turn)) for x in rows)
            carried, left = trip(carried, taken)
            made.append(left)
        columns = zip(*(made[::-1] if reverse else made), strict=True)
        return carried, tuple(
            Held(alone(lambda *blocks: stacked(blocks, 0), [x.blocks for x in column]), column[0].dtype)
            for column in columns
        )

    def _mapped(
        self, function: Any, *, in_specs: Any, out_specs: Any, mesh: Mesh | None = None, check_vma: bool = True
    ) -> Any:
        name = function.node.name if isinstance(function, _Function) else ""
        require(check_vma or name in _HELPERS, f"JAX is told not to check the types of {name or 'a function'}")
        return partial(self._on_blocks, function, in_specs, out_specs, mesh)

    def _on_blocks(self, function: Any, in_specs: Any, out_specs: Any, mesh: Mesh | None, *given: Any) -> Any:
        devices = self.devices if mesh is None else Devices(mesh)
        specs = in_specs if isinstance(in_specs, tuple) else (in_specs,) * len(given)
        blocks = []
        for x, spec in zip(given, specs, strict=True):
            require(x is None or x.lies_as(spec, devices), f"an argument lies as {_spelt(x)}, not as {spec.dims}")
            blocks.append(None if x is None else x.held)
        inner = self if mesh is None else self._on(devices)
        found = _Function(function.node, inner)(*blocks)
        if not isinstance(out_specs, tuple):
            return Laid(found, out_specs, devices)
        require(isinstance(found, tuple) and len(found) == len(out_specs), "as many results as specs")
        return tuple(Laid(each, spec, devices) for each, spec in zip(found, out_specs, strict=True))

    def _on(self, devices: Devices) -> Module:
        """The same module on other devices: its functions call what is there."""
        other = Module(devices, self.literals, self.sums_wide)
        for name, function in self.functions.items():
            other.functions[name] = _Function(function.node, other) if isinstance(function, _Function) else function
        return other

    def on_whole_arrays(self) -> Module:
        """The same module where XLA splits arrays as it likes."""
        one = replace(self, sums_wide=True)._on(Devices(Mesh(())))
        one.names |= {"jax.lax.with_sharding_constraint": lambda x, sharding: x, "P.UNCONSTRAINED": None}
        return one

    def _auto(self, function: Any, wanted: Any, *given: Any) -> Any:
        """Left to XLA's partitioner a function is one of whole arrays, whatever XLA moves; a fine mesh is set in one
        that says so."""
        if any(isinstance(node, ast.With) for node in function.node.body):
            return self._constrained(function(*given), wanted)
        found = _Function(function.node, self.on_whole_arrays())(*(Held((x.whole(),), x.held.dtype) for x in given))
        if not isinstance(wanted, tuple):
            return self._laid(found, wanted)
        return tuple(map(self._laid, found, wanted))

    def _laid(self, found: Held, sharding: Sharding) -> Laid:
        return Laid(laid_out(found.blocks[0], sharding, found.dtype, self.devices, "split"), sharding, self.devices)

    def _constrained(self, given: Any, wanted: Any) -> Any:
        """What is given lies so already: XLA would move it otherwise, and nothing of that is planned."""
        pairs = zip(given, wanted, strict=True) if isinstance(wanted, tuple) else ((given, wanted),)
        for x, sharding in pairs:
            require(x.lies_as(sharding, self.devices), f"an array lies as {_spelt(x)}, not as {sharding.dims}")
        return given

    def _resharded(self, given: Laid, wanted: Sharding) -> Laid:
        """On one device partial sums are the sum."""
        require(len(self.devices) == 1, "a reshard of the compiler's own")
        return Laid(given.held, wanted, self.devices)


def _spec(*dims: Any, unreduced: set[str] | None = None, reduced: set[str] | None = None) -> Sharding:
    return Sharding(tuple(() if axes is None else calls.axes_of(axes) for axes in dims), frozenset(unreduced or ()))


def _spelt(given: Any) -> str:
    return str(given.sharding.dims) if isinstance(given, Laid) else type(given).__name__


_METHODS: dict[str, Any] = {
    "astype": calls.astype,
    "reshape": lambda x, *shape: shaped(x, shape) if isinstance(x, Tensor) else calls.reshape(x, *shape),
    "transpose": lambda x, *order: (
        transposed(x, order or range(len(x.shape))[::-1])
        if isinstance(x, Tensor)
        else x.each(lambda block: transposed(block, order))
    ),
    "ravel": lambda x: _METHODS["reshape"](x, -1),
    "tolist": listed,
}
