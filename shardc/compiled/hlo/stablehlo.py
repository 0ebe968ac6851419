"""The collectives of a lowered program: what is asked of the compiler, before it changes anything.

    %1 = "stablehlo.all_reduce"(%0) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, …}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      …
    }) : (tensor<8x4xbf16>) -> tensor<8x4xbf16>

Read is the text that `lowered.as_text()` gives: lines, of which one that ends in `{` opens a region of its
operation, and one that begins with `}` closes it. With `debug_info=True` it also says where each comes from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardc.compiled.hlo.collectives import Collective, wire_bytes
from shardc.compiled.hlo.groups import Groups, axes_of_groups, axes_of_pairs, read_groups
from shardc.compiled.hlo.locations import Locations
from shardc.compiled.hlo.loops import count
from shardc.compiled.hlo.text import Shape, UnreadableHlo
from shardc.ir.mesh import Mesh

KINDS = {
    "stablehlo.all_gather": "AllGather",
    "stablehlo.all_reduce": "AllReduce",
    "stablehlo.reduce_scatter": "ReduceScatter",
    "stablehlo.all_to_all": "AllToAll",
    "stablehlo.collective_permute": "CollectivePermute",
    "stablehlo.collective_broadcast": "CollectiveBroadcast",
}


def collectives(lowered: Any, mesh: Mesh | None = None) -> tuple[Collective, ...]:
    """Every collective of a lowered JAX function, or of its StableHLO text, in order; of a case, the costliest branch.

    `lowered` is what `jax.jit(f).lower(…)` gives. Axes have names if the mesh is given. Raises UnreadableHlo.
    """
    text = lowered if isinstance(lowered, str) else lowered.as_text(debug_info=True)
    return _Reader.of(text, mesh).all()


@dataclass(frozen=True, slots=True)
class Op:
    """An operation: its own text, and the operations of its regions."""

    text: str
    regions: tuple[tuple[Op, ...], ...] = ()

    @property
    def name(self) -> str:
        found = _OP.match(self.text)
        return found.group(2) if found else ""

    @property
    def kind(self) -> str:
        """Of a collective, what it is; else empty."""
        return "AllToAll" if _is_ragged(self) else KINDS.get(self.name, "")

    @property
    def result(self) -> str:
        found = _OP.match(self.text)
        return found.group(1) or "" if found else ""


_SYMBOL = r'@("[^"]*"|[\w.$-]+)'
_OP = re.compile(r'(?:(%\w+)(?::\d+)? = )?"?([a-zA-Z_][\w.]*)"?')
_FUNCTION = re.compile(rf"func\.func (?:(?:public|private) )?{_SYMBOL}")
_CALLED = re.compile(rf"call {_SYMBOL}|decomposition = {_SYMBOL}")
_MESH = re.compile(rf"sdy\.mesh {_SYMBOL} = <\[([^\]]*)\](?:, device_ids=\[([^\]]*)\])?>")
_NAMED = re.compile(
    rf"replica_groups = #stablehlo\.replica_group_mesh_axes<mesh(?:_name)? = {_SYMBOL}, axes = \[(.*?)\]>"
)
_AXIS = re.compile(r'#stablehlo\.axis_ref<name = "([^"]+)"(?:, sub_axis_info = (\(\d+\)\d+))?>')
_DENSE = r" = dense<(.*?)> : tensor<(\d+)x(\d+)xi64>"
_DEVICES = re.compile(r"mhlo\.num_(?:partitions|replicas) = (\d+)")
_OPERANDS = re.compile(r":\s*\(([^()]*)\)\s*->")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(complex<\w+>|\w+)[^>]*>")
_WHILE = re.compile(r"(%\w+) = (%[\w#]+)")
_COMPARE = re.compile(r"stablehlo\.compare (\w+), (%[\w#]+), (%[\w#]+)")
_ADD = re.compile(r"stablehlo\.(add|subtract) (%[\w#]+), (%[\w#]+)")
_CONVERT = re.compile(r"stablehlo\.convert (%[\w#]+)")
_CONSTANT = re.compile(r"stablehlo\.constant dense<(-?\d+)>")
_VALUE = re.compile(r"%[\w#]+")
_DTYPES = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


@dataclass(frozen=True, slots=True)
class _Reader:
    functions: Mapping[str, Op]
    meshes: Mapping[str, str]  # as compiled HLO writes them
    devices: int
    locations: Locations
    mesh: Mesh | None

    @classmethod
    def of(cls, text: str, mesh: Mesh | None) -> _Reader:
        ops = blocks_of_text(text)
        inside = [op for region in ops[0].regions for op in region]
        functions = {found.group(1): op for op in inside if (found := _FUNCTION.match(op.text))}
        meshes = {found.group(1): _hlo_mesh(*found.groups()[1:]) for op in inside if (found := _MESH.match(op.text))}
        devices = np.prod([int(number) for number in _DEVICES.findall(ops[0].text)] or [1])
        return cls(functions, meshes, int(devices), Locations.of(text), mesh)

    def all(self) -> tuple[Collective, ...]:
        main = self.functions.get("main") or next(iter(self.functions.values()), None)
        if main is None:
            raise UnreadableHlo("the module has no function")
        return tuple(self._inside(main, {}))

    def _inside(self, op: Op, scope: Mapping[str, Op]) -> Iterator[Collective]:
        for region in op.regions:
            yield from self._within(region, scope)

    def _within(self, ops: tuple[Op, ...], outer: Mapping[str, Op]) -> Iterator[Collective]:
        scope = {**outer, **_by_result(ops)}
        for op in ops:
            if op.kind:
                yield self._collective(op)
            elif op.name == "stablehlo.while":
                yield from self._loop(op, scope)
            elif op.name in ("stablehlo.case", "stablehlo.if"):
                branches = [tuple(self._within(region, scope)) for region in op.regions]
                yield from max(branches, key=lambda branch: sum(c.total_bytes for c in branch), default=())
            elif op.name in ("call", "func.call", "stablehlo.composite"):
                yield from self._inside(self._called(op), {})
            else:
                yield from self._inside(op, scope)

    def _called(self, op: Op) -> Op:
        found = _CALLED.search(op.text)
        if not found or (found.group(1) or found.group(2)) not in self.functions:
            raise UnreadableHlo(op.text[:200])
        return self.functions[found.group(1) or found.group(2)]

    def _loop(self, loop: Op, scope: Mapping[str, Op]) -> Iterator[Collective]:
        trips = _trips(loop, scope)
        for region, more in zip(loop.regions, (1, 0), strict=False):
            for found in self._within(region, scope):
                times = 1 if trips is None else trips + more
                known = found.count_known and trips is not None
                yield replace(found, count=found.count * times, count_known=known)

    def _collective(self, op: Op) -> Collective:
        kind, size = op.kind, _operand_bytes(op)
        if kind == "CollectivePermute":
            groups = dense("source_target_pairs", op.text)
            members = 2 if any(source != target for source, target in groups) else 1
            axes = axes_of_pairs(groups, self.mesh) if self.mesh else None
        else:
            groups = self.groups(op.text)
            members = max(map(len, groups))
            axes = axes_of_groups(groups, self.mesh) if self.mesh else None
        scope, source = self.locations.of_op(op.text)
        wire = wire_bytes(kind, members, size)
        return Collective(kind, op.result, size, wire, members, groups, axes, scope=scope, source=source)

    def groups(self, text: str) -> Groups:
        named = _NAMED.search(text)
        if named is None:
            return replica_groups(text, self.devices)
        if named.group(1) not in self.meshes:
            raise UnreadableHlo(f"no mesh {named.group(1)}")
        axes = (f"'{name}':{part}" if part else f"'{name}'" for name, part in _AXIS.findall(named.group(2)))
        return read_groups(f"{self.meshes[named.group(1)]} {{{','.join(axes)}}}", self.devices)


def with_dense_groups(text: str) -> str:
    """The same module with groups as device numbers; newer releases of JAX name them by axes of a mesh."""
    if "replica_group_mesh_axes" not in text:
        return text
    reader = _Reader.of(text, None)

    def written(found: re.Match[str]) -> str:
        groups = [list(group) for group in reader.groups(found[0])]
        return f"replica_groups = dense<{groups}> : tensor<{len(groups)}x{len(groups[0])}xi64>"

    return _NAMED.sub(written, text)


def blocks_of_text(text: str) -> tuple[Op, ...]:
    """The module, with its functions as operations of its region. Raises UnreadableHlo."""
    ops, closing = _block(iter([line.strip() for line in text.splitlines()]))
    if closing or not ops or ops[0].name != "module":
        raise UnreadableHlo("the text does not begin with `module`")
    return tuple(ops)


def _block(lines: Iterator[str]) -> tuple[list[Op], str]:
    """The operations up to the line that closes their region, and that line."""
    ops: list[Op] = []
    for line in lines:
        if line.startswith("}"):
            return ops, line
        if line.startswith("cond {") and ops:  # a while's regions begin on a line of their own
            regions, closing = _regions(lines)
            ops[-1] = Op(f"{ops[-1].text} {closing}", regions)
        elif line.endswith("{"):
            regions, closing = _regions(lines)
            ops.append(Op(f"{line} {closing}", regions))
        elif line and not line.startswith(("^", "#", "//")):
            ops.append(Op(line))
    return ops, ""


def _regions(lines: Iterator[str]) -> tuple[tuple[tuple[Op, ...], ...], str]:
    """One after the other, as `} do {` or `}, {` goes on to the next; and the line that closes the last."""
    found = []
    while True:
        ops, closing = _block(lines)
        found.append(tuple(ops))
        if not closing:
            raise UnreadableHlo("a region is not closed")
        if not closing.endswith("{"):
            return tuple(found), closing


def _by_result(ops: tuple[Op, ...]) -> dict[str, Op]:
    return {op.result: op for op in ops if op.result}


def _hlo_mesh(axes: str, device_ids: str | None) -> str:
    """`"X"=2, "Y"=4` as `mesh['X'=2,'Y'=4]`."""
    ids = f", device_ids=({device_ids.replace(' ', '')})" if device_ids else ""
    return f"mesh[{axes.replace(' ', '').replace(chr(34), chr(39))}]{ids}"


def replica_groups(text: str, devices: int) -> Groups:
    """The groups of an operation, in which -1 fills up the shorter ones. None are one of all devices.

    The specification has every device in a group; no groups are taken by its verifier, but for ids of all devices
    (`use_global_device_ids`), and XLA has them as one."""
    groups = dense("replica_groups", text)
    return tuple(tuple(number for number in row if number != -1) for row in groups) or (tuple(range(devices)),)


def dense(attribute: str, text: str) -> Groups:
    """The rows of a matrix of numbers, of which MLIR prints an even one as one number, and a large one as bytes."""
    found = re.search(attribute + _DENSE, text)
    if not found:
        raise UnreadableHlo(f"no {attribute}: {text[:200]}")
    rows, columns = int(found.group(2)), int(found.group(3))
    try:
        matrix = _matrix(found.group(1), rows, columns)
    except ValueError as error:
        raise UnreadableHlo(f"{attribute}: {text[:200]}") from error
    if [len(row) for row in matrix] != [columns] * rows:
        raise UnreadableHlo(f"{attribute}: {text[:200]}")
    return matrix


def _matrix(body: str, rows: int, columns: int) -> Groups:
    """ValueError for what is no matrix of whole numbers."""
    written = json.loads(body or "[]")
    match written:
        case str() if written.startswith("0x"):
            numbers = np.frombuffer(bytes.fromhex(written[2:]), dtype="<i8").tolist()
            return tuple(tuple(numbers[at : at + columns]) for at in range(0, len(numbers), columns))
        case int() if type(written) is int:
            return ((written,) * columns,) * rows
        case list() if all(isinstance(row, list) and all(type(each) is int for each in row) for row in written):
            return tuple(map(tuple, written))
        case _:
            raise ValueError(body)


def _operand_bytes(op: Op) -> int:
    types = _OPERANDS.findall(op.text)
    if not types:
        raise UnreadableHlo(op.text[:200])
    shapes = [_shape(*found) for found in _TENSOR.findall(types[-1])]
    if _is_ragged(op):  # it also takes the result's buffer, and what to send and where
        shapes = shapes[:1]
    return sum(shape.bytes for shape in shapes)


def _is_ragged(op: Op) -> bool:
    return op.name == "stablehlo.custom_call" and "@ragged_all_to_all(" in op.text


def _shape(sizes: str, dtype: str) -> Shape:
    name = dtype.lower() if dtype.startswith(("f", "b", "F")) else dtype
    if re.fullmatch(r"u?i\d+", name) and name != "i1":
        name = name.replace("i", "") if name.startswith("u") else name.replace("i", "s")
    return Shape(_DTYPES.get(dtype, name), tuple(int(size) for size in sizes.split("x") if size))


def _trips(loop: Op, scope: Mapping[str, Op]) -> int | None:
    """How often a while runs whose condition compares a counter with a constant; None if that cannot be told."""
    if len(loop.regions) != 2 or not all(loop.regions):
        return None
    carried = _WHILE.findall(loop.text.partition(") : ")[0])
    names = [name for name, _ in carried]
    (condition, body), starts = loop.regions, dict(carried)
    inside, after = _by_result(condition), _VALUE.findall(body[-1].text)
    test = _COMPARE.search(inside[value].text) if (value := _returned(condition)) in inside else None
    if test is None:
        return None
    values = {**scope, **inside}
    for counter, direction, limit in ((test[2], test[1], test[3]), (test[3], _MIRRORED.get(test[1], test[1]), test[2])):
        if counter not in names or len(after) < len(names):
            continue
        step = _step(counter, after[names.index(counter)], {**scope, **_by_result(body)})
        kept = limit in names and after[names.index(limit)] == limit
        start, end = _number(starts[counter], scope), _number(starts[limit] if kept else limit, values)
        if step and start is not None and end is not None:
            return count(start, step, direction, end)
    return None


_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def _returned(region: tuple[Op, ...]) -> str:
    found = _VALUE.search(region[-1].text)
    return found.group() if found else ""


def _step(counter: str, after: str, values: Mapping[str, Op]) -> int | None:
    added = _ADD.search(values[after].text) if after in values else None
    if added is None:
        return None
    sign, one, other = (1 if added[1] == "add" else -1), added[2], added[3]
    if one == counter:
        by = _number(other, values)
        return None if by is None else by * sign
    return _number(one, values) if other == counter and sign == 1 else None


def _number(value: str, values: Mapping[str, Op]) -> int | None:
    while value in values and (converted := _CONVERT.search(values[value].text)):
        value = converted[1]
    constant = _CONSTANT.search(values[value].text) if value in values else None
    return int(constant[1]) if constant else None
