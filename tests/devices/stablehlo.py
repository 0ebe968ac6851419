"""The collectives of a lowered program: what is asked of the compiler, before it changes anything."""

import math
import re

_OPS = {
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
    "all_to_all": "AllToAll",
    "collective_permute": "CollectivePermute",
}
_OP = re.compile(rf'"stablehlo\.({"|".join(_OPS)})"')
_DENSE = re.compile(r"replica_groups = dense<.*?> : tensor<\d+x(\d+)xi64>")
_NAMED = re.compile(r"replica_groups = #stablehlo\.replica_group_mesh_axes<mesh = @\w+, axes = \[(.*?)\]>")
_PAIRS = re.compile(r"source_target_pairs = dense<(.*?)> : tensor<")
_TYPE = re.compile(r":\s*\(tensor<((?:\d+x)*)([a-z]+)(\d+)(?:E\w+)?>\)\s*->")


def collectives(text, mesh):
    """(kind, devices per group, wire bytes) of each collective, in order. `mesh` gives the sizes of axes."""
    found = []
    for match in _OP.finditer(text):
        rest = text[match.start() :]
        kind = _OPS[match[1]]
        size = _bytes(rest)
        if kind == "CollectivePermute":
            pairs = _pairs(_PAIRS.search(rest)[1])
            moves = any(source != destination for source, destination in pairs)
            found.append((kind, len(pairs), size if moves else 0))
            continue
        group = _group(rest, mesh)
        found.append((kind, group, _wire(kind, group, size)))
    return found


def _pairs(text):
    """Many pairs are printed as the bytes of whole numbers."""
    if '"0x' not in text:
        return re.findall(r"\[(\d+), (\d+)\]", text)
    found = memoryview(bytes.fromhex(text.strip('"')[2:])).cast("q")
    return list(zip(found[::2], found[1::2], strict=True))


def _bytes(rest):
    shape, _, bits = _TYPE.search(rest).groups()
    return math.prod(int(extent) for extent in shape.split("x") if extent) * int(bits) // 8


def _group(rest, mesh):
    head = rest[: rest.index("}>") if "}>" in rest else None][:4000]
    named = _NAMED.search(head)
    if named and (not _DENSE.search(head) or named.start() < _DENSE.search(head).start()):
        return math.prod(mesh[axis] for axis in re.findall(r'name = "(\w+)"', named[1]))
    return int(_DENSE.search(head)[1])


def _wire(kind, n, size):
    return {
        "AllGather": (n - 1) * size,
        "ReduceScatter": (n - 1) * size // n,
        "AllToAll": (n - 1) * size // n,
        "AllReduce": 2 * (n - 1) * size // n,
    }[kind]
