"""Replayed time at real sizes, ours over XLA's: products and blocks of a model, drawn from a seed.

    python tests/benchmark/bench_time.py [--products 40] [--blocks 14] [--seed 0] [--few-rows] [--tuned] [--json FILE]

Drawn are the slice (v5e:4x4, v5p:2x2x2, v5p:4x4x4), a mesh of one to three axes on it, dims of 4,096 to 32,768, and
for each axis where it stands: by one of the four cases, anywhere, or nowhere. Planned by time, compiled for the slice
(which needs libtpu, and no TPU), beside `jax.jit` with the same shardings alone, and both replayed. What was compiled
once is kept on disk, by its content. With `--few-rows` products and blocks have 16 to 512 rows, as in decoding, and
other dims of half the size.

Ratios are ours ÷ XLA's of replayed time, their mean is geometric. `priced` is the plan's own time, over its replay's.
A limit is the longer of what our program computes and what it communicates: all of the other hidden beside it.
With `--tuned` also what `shardc tune` keeps, of a few plans in their forms and XLA's own program.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

from tabulate import tabulate

import shardc
from shardc.compiled.compare import Side
from shardc.compiled.compilers import slice_mesh
from shardc.compiled.tune.made import made
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program, every_statement
from shardc.ir.sharding import Sharding, spell
from shardc.machines.baseline import lower_baseline
from shardc.machines.stderr import caught_stderr
from shardc.machines.tpu import lower_schedule
from shardc.results import Plan

PRODUCTS, BLOCKS, ABOVE = "products", "blocks", 1.02
MESHES = {
    "v5e:4x4": ("X=16", "X=4,Y=4", "X=8,Y=2", "X=2,Y=8", "X=2,Y=2,Z=4"),
    "v5p:2x2x2": ("X=8", "X=2,Y=4", "X=4,Y=2", "X=2,Y=2,Z=2"),
    "v5p:4x4x4": ("X=64", "X=16,Y=4", "X=4,Y=16", "X=4,Y=4,Z=4"),
}
SIZES = (4096, 8192, 16384, 32768)
ROWS = (16, 32, 64, 128, 256, 512)
# Bytes of a device, for all arrays as they are written.
MOST = {
    "v5e:4x4": 6 << 30,
    "v5p:2x2x2": 32 << 30,
    "v5p:4x4x4": 32 << 30,
}
# Where an axis stands on A[I, J], B[J, K] and C[I, K]: None is nowhere.
CASES: tuple[tuple[str | None, str | None, str | None], ...] = (
    ("I", None, "I"),
    (None, "K", "K"),
    ("J", None, None),
    (None, "J", "I"),
    ("J", "J", None),
    ("J", "J", "I"),
    ("J", "J", "K"),
    ("I", "K", "I"),
    ("I", "K", None),
    ("I", "J", "I"),
    ("J", "K", "K"),
)


@dataclass(frozen=True)
class Case:
    section: str
    text: str
    mesh: str
    dims: dict[str, int]
    topology: str


@dataclass(frozen=True)
class Row:
    """One case: the seconds that were priced and replayed, wire bytes and temporaries of both; or why there is none."""

    case: Case
    priced_s: float = 0.0
    planned_s: float = 0.0
    xla_s: float = 0.0
    compute_s: float = 0.0
    communication_s: float = 0.0
    exposed_s: float = 0.0
    wire_bytes: int = 0
    xla_wire_bytes: int = 0
    temporary: int = 0
    xla_temporary: int = 0
    steps: tuple[str, ...] = ()
    tuned_s: float = 0.0
    kept: str = ""
    refused: str = ""

    @property
    def ratio(self) -> float:
        return self.planned_s / self.xla_s

    @property
    def of_limit(self) -> float:
        return self.planned_s / max(self.compute_s, self.communication_s)


# The axes of a block's mesh are P, Q and R here, and become those of the mesh; one that the mesh lacks is left out.
TEMPLATES = {
    "MLP, tensor parallel": "H = In[B_P, D] · W1[D, F_Q]; G = relu(H); Out[B_P, D] = G · W2[F_Q, D]",
    "MLP, weights sharded": "H[B_P, F_Q] = In[B_P, D] · W1[D_P, F_Q]; G = relu(H); Out[B_P, D] = G · W2[F_Q, D_P]",
    "MLP, activations sharded": "H[B_P, F_Q] = In[B_P, D_Q] · W1[D_P, F_Q]; G = gelu(H); "
    "Out[B_P, D_Q] = G · W2[F_Q, D_P]",
    "gated MLP": "G = In[B_P, D] · Wg[D, F_Q]; U = In · Wu[D, F_Q]; S = silu(G); M = S ⊙ U; "
    "Out[B_P, D_Q] = M · Wd[F_Q, D]",
    "projections": "Q[B_P, H_Q] = In[B_P, D_Q] · Wq[D_P, H_Q]; K[B_P, H_Q] = In · Wk[D_P, H_Q]; "
    "V[B_P, H_Q] = In · Wv[D_P, H_Q]",
    "attention": "S = Q[N_P, T_Q, H] · K[N_P, S, H]; A = softmax_S(S); Out[N_P, T_Q, H] = A · V[N_P, S, H]",
    "gradients of an MLP": "dW2[F_Q, D_P] = G[B_P, F_Q] · dOut[B_P, D]; dG = dOut · W2[F_Q, D_P]; "
    "dW1[D_P, F_Q] = In[B_P, D] · dG",
    "two products": "T = A[B_P, D] · W1[D_Q, F]; Out[B_P, E_Q] = T · W2[F, E_Q]",
    "logits": "L = In[B_P, D_Q] · W[D, V_Q]; Out[B_P, V_Q] = softmax_V(L)",
}
SMALLER = {"N": (32, 64), "H": (4096, 8192, 16384), "S": (2048, 4096), "T": (2048, 4096)}
HEAD = {"H": (128,)}


def cases(seed: int, products: int, blocks: int, few_rows: bool = False) -> list[Case]:
    """Each section from a generator of its own, so that the length of one changes no other."""
    drawn = random.Random(f"{seed} {PRODUCTS}")
    found = [_fitting(drawn, _with_few(_product, "I") if few_rows else _product) for _ in range(products)]
    drawn = random.Random(f"{seed} {BLOCKS}")
    return found + [_fitting(drawn, _with_few(_block, "B") if few_rows else _block) for _ in range(blocks)]


def _with_few(draw: Callable[[random.Random], Case], rows: str) -> Callable[[random.Random], Case]:
    """The same of few rows, along a dim that it has."""

    def found(drawn: random.Random) -> Case:
        case = draw(drawn)
        while rows not in case.dims:
            case = draw(drawn)
        return replace(case, dims={dim: size // 2 for dim, size in case.dims.items()} | {rows: drawn.choice(ROWS)})

    return found


def _fitting(drawn: random.Random, draw: Callable[[random.Random], Case]) -> Case:
    """The first that is legal and that a device has room for, as far as its arrays are written; no plan is asked."""
    while True:
        case = draw(drawn)
        try:
            if _held(_program(case)) <= MOST[case.topology]:
                return case
        except shardc.ShardcError:
            continue


def _program(case: Case) -> Program:
    return shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="bf16", topology=case.topology)


def _held(program: Program) -> int:
    """Bytes of a device for all arrays, those without a sharding spread over all devices."""
    written = [(array.dims, array.pattern) for array in (*program.inputs, *every_statement(program))]
    return sum(2 * math.prod(program.shape(dims)) // _parts(pattern, program.mesh) for dims, pattern in written)


def _parts(pattern: Pattern | None, mesh: Mesh) -> int:
    dims = (None,) if pattern is None else pattern.dims
    return mesh.devices if None in dims else math.prod(mesh.product(axes) for axes in dims if axes is not None)


def _machine(drawn: random.Random) -> tuple[str, str]:
    topology = drawn.choice([*MESHES])
    return topology, drawn.choice(MESHES[topology])


def _product(drawn: random.Random) -> Case:
    topology, mesh = _machine(drawn)
    places = [dict[str, list[str]]() for _ in range(3)]
    for axis in Mesh.of(_sizes(mesh)).names:
        kind = drawn.random()
        stands = drawn.choice(CASES) if kind < 0.6 else tuple(drawn.choice([*d, None]) for d in ("IJ", "JK", "IK"))
        for place, dim in zip(places, stands if kind < 0.85 else (None,) * 3, strict=True):
            if dim is not None:
                place.setdefault(dim, []).append(axis)
    names = zip("ABC", ("IJ", "JK", "IK"), places, strict=True)
    a, b, c = (n + spell(tuple(dims), Sharding(tuple(tuple(p.get(d, ())) for d in dims))) for n, dims, p in names)
    return Case(PRODUCTS, f"{a} · {b} → {c}", mesh, {dim: drawn.choice(SIZES) for dim in "IJK"}, topology)


def _block(drawn: random.Random) -> Case:
    topology, mesh = _machine(drawn)
    name = drawn.choice([*TEMPLATES])
    axes = [*_sizes(mesh)]
    drawn.shuffle(axes)
    kept = axes[: max(1, len(axes) - (drawn.random() < 0.25))]  # the others stand idle
    text = TEMPLATES[name]
    for place, letter in enumerate("PQ"):
        here = kept[place] if place < len(kept) else ""
        here += kept[2] if place == 0 and len(kept) > 2 and drawn.random() < 0.5 else ""
        text = text.replace(f"_{letter}", f"_{here}" if here else "")
    used = {dim for dim in "BDEFHNSTV" if any(f"{before}{dim}" in text for before in ("[", " "))}
    sizes = SMALLER | (HEAD if name == "attention" else {})
    dims = {dim: drawn.choice(sizes.get(dim, SIZES)) for dim in sorted(used)}
    return Case(BLOCKS, text, mesh, {dim: size for dim, size in dims.items() if _is_dim(text, dim)}, topology)


def _is_dim(text: str, dim: str) -> bool:
    return any(dim in part.split("]")[0].replace("_", ",").replace(" ", "").split(",") for part in text.split("[")[1:])


def _sizes(mesh: str) -> dict[str, int]:
    return {name: int(size) for name, _, size in (part.partition("=") for part in mesh.split(","))}


def replayed(case: Case, few: int | None = None) -> Row:
    """The plan and XLA's own program, compiled or read from what was kept, and replayed; tuned with so `few` plans."""
    plan = shardc.plan(_program(case))
    try:
        with caught_stderr():
            ours, theirs = sides(plan)
            best = None if few is None else plan.tune(few).tried.best
    except shardc.ShardcError as error:
        return Row(case, refused=str(error).splitlines()[0])
    assert ours.memory is not None and theirs.memory is not None
    return Row(
        case,
        plan.cost.time_s,
        ours.timeline.step_s,
        theirs.timeline.step_s,
        ours.timeline.compute_s,
        ours.timeline.communication_s,
        ours.timeline.exposed_s,
        ours.wire_bytes,
        theirs.wire_bytes,
        ours.memory.temporary_bytes,
        theirs.memory.temporary_bytes,
        tuple(f"{step.op}_{''.join(step.axes)} {step.time_s * 1e6:,.0f} µs → {step.result}" for step in plan.steps),
        *(() if best is None else (best.replayed_s, best.candidate.label)),
    )


def sides(plan: Plan) -> tuple[Side, Side]:
    """Ours and XLA's. On a finer mesh of the same devices XLA's is that of the mesh as given."""
    from shardc.emit.call import placing

    schedule, model, asked = plan.schedule, plan._model, plan._asked.model
    whole = plan._found.whole or schedule
    mesh = slice_mesh(schedule.mesh, model)
    given = placing.coarser(mesh, schedule.by)
    ours = made(lower_schedule(schedule, mesh), mesh).side("ours", model)
    return ours, made(lower_baseline(whole, given), given).side("XLA", asked)


def table(rows: list[Row]) -> str:
    """Of each section the ratios."""
    lines = []
    for section in dict.fromkeys(row.case.section for row in rows):
        part = [row for row in rows if row.case.section == section and not row.refused]
        ratios, promised = [row.ratio for row in part], [row.planned_s / row.priced_s for row in part]
        within = sum(abs(ratio - 1) <= 0.15 for ratio in promised)
        figures = (_mean(ratios), max(ratios), _mean(promised), max(promised))
        mean, worst, of_priced, worst_priced = (f"{figure:.3f}" for figure in figures)
        above = sum(ratio > ABOVE for ratio in ratios)
        lines.append((section, len(part), mean, worst, above, of_priced, worst_priced, f"{within} of {len(part)}"))
    headers = ("", "cases", "÷ XLA, mean", "worst", f"above {ABOVE}", "÷ priced, mean", "worst", "within 15 %")
    return tabulate(lines, headers=headers, disable_numparse=True, colalign=("left", *["right"] * 7))


def tuned_table(rows: list[Row]) -> str:
    """Of what tuning keeps."""
    lines = []
    for section in dict.fromkeys(row.case.section for row in rows):
        part = [row for row in rows if row.case.section == section and row.tuned_s]
        ratios, above = [row.tuned_s / row.xla_s for row in part], [row for row in part if row.tuned_s > row.xla_s]
        kept = Counter(_how(row.kept) for row in part)
        figures = (f"{_mean(ratios):.3f}", f"{max(ratios):.3f}", len(above))
        lines.append((section, len(part), *figures, *(kept[name] for name in ("steps", "a form", "XLA"))))
    headers = ("tuned", "cases", "÷ XLA, mean", "worst", "above 1.00", "kept: steps", "a form", "XLA's own")
    return tabulate(lines, headers=headers, disable_numparse=True, colalign=("left", *["right"] * 7))


def _how(label: str) -> str:
    """Of what is kept: XLA's own program, a plan with a form in it, or steps alone."""
    if label == "XLA":
        return label
    return "a form" if any(word in label for word in ("left to XLA", "as a ring", "in chunks")) else "steps"


def limit_table(rows: list[Row]) -> str:
    """Of the cases that name every axis, our time over its limit."""
    lines = []
    for chip in MESHES:
        part = [row.of_limit for row in rows if row.case.topology == chip and not row.refused and _names_all(row.case)]
        if part:
            lines.append((chip, len(part), f"{_mean(part):.3f}", f"{max(part):.3f}", sum(each > 1.15 for each in part)))
    headers = ("every axis named", "cases", "÷ limit, mean", "worst", "above 1.15")
    return tabulate(lines, headers=headers, disable_numparse=True, colalign=("left", *["right"] * 4))


def _names_all(case: Case) -> bool:
    used = [part.split("_")[-1] for part in case.text.replace("]", ",").split(",") if "_" in part]
    return all(any(axis in axes for axes in used) for axis in _sizes(case.mesh))


def _mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def losses(rows: list[Row], most: int) -> Iterator[str]:
    """Where XLA's own program is faster, the worst first, with the plan."""
    above = sorted((row for row in rows if not row.refused and row.ratio > ABOVE), key=lambda row: -row.ratio)
    for row in above[:most]:
        dims = ",".join(f"{dim}={size}" for dim, size in row.case.dims.items())
        yield f"  {row.ratio:.3f}  {row.case.text}   {row.case.mesh}; {dims}; {row.case.topology}"
        yield f"         priced {_us(row.priced_s)}, replayed {_us(row.planned_s)}, XLA's {_us(row.xla_s)}"
        yield from (f"           {step}" for step in row.steps)
    yield from (f"  {row.case.text}: {row.refused}" for row in rows if row.refused)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--products", type=int, default=40)
    parser.add_argument("--blocks", type=int, default=14)
    parser.add_argument("--few-rows", action="store_true", help="of 16 to 512 rows, as in decoding")
    parser.add_argument("--tuned", action="store_true", help="also what tuning keeps")
    parser.add_argument("--few", type=int, default=2, help="plans that are tuned beside the first")
    parser.add_argument("--worst", type=int, default=12, help="how many losses to show")
    parser.add_argument("--json", metavar="FILE", help="every figure of every case")
    options = parser.parse_args()
    start, rows = time.perf_counter(), list[Row]()
    for case in cases(options.seed, options.products, options.blocks, options.few_rows):
        rows.append(replayed(case, options.few if options.tuned else None))
        print(f"{len(rows)}, {time.perf_counter() - start:.0f} s: {case.text}", file=sys.stderr)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"seed": options.seed, "rows": [asdict(row) for row in rows]}, file, ensure_ascii=False, indent=1)
    print(f"seed {options.seed}, {len(rows)} cases, {time.perf_counter() - start:.0f} s\n\n{table(rows)}")
    if options.tuned:
        print(f"\n{tuned_table(rows)}")
    print(f"\n{limit_table(rows)}")
    print("\n".join(["\nabove XLA's, the worst first:", *losses(rows, options.worst)]))


if __name__ == "__main__":
    main()
