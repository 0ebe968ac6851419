"""What `shardc run` sees: faults planted in compiled programs, and right programs that it must accept.

    python tests/benchmark/bench_faults.py [--seeds 20]

Every program is planned, compiled for 8 simulated devices and run, in bf16 and in f32, once right for each seed and
once with each fault that it has room for. A line is a fault in a program: whether it was found, and its error by what
is allowed (the larger of two ratios: of the root mean squares, and of the largest elements). Exit 1 where a fault was
not found or a right program not accepted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tabulate import tabulate

import shardc
from shardc import simulate

MESH = {"X": 2, "Y": 4}
ATTENTION = """Qs[B_X, S, H_Y, E] = x[B_X, S, D] ·_D WQ[D, H_Y, E]
Ks[B_X, T, H_Y, E] = y[B_X, T, D] ·_D WK[D, H_Y, E]
Vs[B_X, T, H_Y, E] = y ·_D WV[D, H_Y, E]
Ps[B_X, H_Y, S, T] = softmax_T((Qs ⊙ scale[H_Y]) ·_E Ks)
Os[B_X, S, H_Y, E] = Ps ·_T Vs
Out[B_X, S, D_Y] = Os ·_{HE} WO[H_Y, E, D]"""
NORM = """Rs[B_X] = rsqrt(sum_D(square(x[B_X, D_Y])))
Ns[B_X, D_Y] = x ⊙ Rs ⊙ scale[D_Y]
Hs[B_X, F_Y] = gelu(Ns ·_D Win[D, F_Y])
Out[B_X, D_Y] = Hs ·_F Wout[F_Y, D] + x"""
BLOCK = (
    ATTENTION.rsplit("\n", 1)[0]
    + """
As[B_X, S, D] = Os ·_{HE} WO[H_Y, E, D] + x
Rs[B_X, S] = rsqrt(sum_D(square(As)))
Out[B_X, S, D_Y] = silu((As ⊙ Rs) ·_D Win[D, F_Y]) ·_F Wout[F_Y, D]"""
)


SHARDED = """Ps[S_X, T_Y] = softmax_T(where(index_S >= index_T, q[S_X, E] · k[T_Y, E] / sqrt(|E|), -inf))
Out[S_X, E] = Ps ·_T v[T_Y, E]"""


@dataclass(frozen=True)
class Tried:
    """A program to plant faults in."""

    name: str
    text: str
    dims: str


PROGRAMS = (
    Tried("product, scattered", "A[I_X, J_Y] · B[J_Y, K] → C[I_X, K_Y]", "I=32,J=64,K=32"),
    Tried("product, summed", "A[I_X, J_Y] · B[J_Y, K] → C[I_X, K]", "I=16,J=512,K=16"),
    Tried("product, gathered", "A[I_X, J] · B[J_Y, K_X] → C[I_X, K]", "I=256,J=32,K=16"),
    Tried(
        "feed-forward",
        "Hs = gelu(x[B_X, D_Y] ·_D Win[D_X, F_Y]); Out[B_X, D_Y] = Hs ·_F Wout[F_Y, D_X]",
        "B=64,D=32,F=128",
    ),
    Tried("norm, gelu", NORM, "B=64,D=64,F=128"),
    Tried("attention", ATTENTION, "B=4,S=16,T=16,H=4,E=16,D=64"),
    Tried("attention, sharded sequence", SHARDED, "S=64,T=128,E=16"),
    Tried("whole block", BLOCK, "B=2,S=16,T=16,H=4,E=8,D=32,F=64"),
)
DTYPES = ("bf16", "f32")


# Faults: what is done instead, in JAX, inside the program


def constant_softmax(x: Any, axis: int) -> Any:
    import jax

    return jax.nn.softmax(x - x, axis=axis)


def softmax_of_another_dim(x: Any, axis: int) -> Any:
    import jax

    return jax.nn.softmax(x, axis=(axis - 1) % x.ndim)


def relu(x: Any) -> Any:
    import jax

    return jax.nn.relu(x)


def halved(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes, **options: (right(x, axes, **options) * 0.5).astype(x.dtype)


def a_part_left_out(right: Callable[..., Any]) -> Callable[..., Any]:
    import jax

    return lambda x, axes, **options: right(x * (jax.lax.axis_index(axes) > 0).astype(x.dtype), axes, **options)


def its_own(right: Callable[..., Any]) -> Callable[..., Any]:
    """Each device goes on with its own."""
    return lambda x, axes: x


def a_mask_inverted(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda mask, x, y: right(mask, y, x)


def a_local_index(right: Callable[..., Any]) -> Callable[..., Any]:
    """Every device counts from 0."""
    import jax.numpy as jnp

    return lambda x, y: right(x % 32, y) if x.dtype == jnp.int32 else right(x, y)


def stale(right: Callable[..., Any]) -> Callable[..., Any]:
    """The second device's part has not come yet: in its place is still the first's."""
    import jax

    def gather(x: Any, axes: Any, axis: int = 0, **options: Any) -> Any:
        found, own = right(x, axes, axis=axis, **options), x.shape[axis]
        first = jax.lax.slice_in_dim(found, 0, own, axis=axis)
        return jax.lax.dynamic_update_slice_in_dim(found, first, own, axis=axis)

    return gather


def ones(whole: Any) -> Any:
    return np.full_like(whole, np.sqrt(np.mean(np.square(whole))))


SUMS = ("jax.lax.psum", "jax.lax.psum_scatter")
IN_CODE: dict[str, tuple[tuple[str, ...], Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "softmax by a constant": (("jax.nn.softmax",), lambda right: constant_softmax),
    "softmax over another dim": (("jax.nn.softmax",), lambda right: softmax_of_another_dim),
    "gelu as relu": (("jax.nn.gelu", "jax.nn.silu"), lambda right: relu),
    "a sum halved": (SUMS, halved),
    "a part left out of a sum": (SUMS, a_part_left_out),
    "a maximum of its own": (("jax.lax.pmax",), its_own),
    "a mask inverted": (("jnp.where",), a_mask_inverted),
    "positions from 0 on every device": (("jnp.greater_equal",), a_local_index),
    "a stale gather": (("jax.lax.all_gather",), stale),
}
FAULTS = (*IN_CODE, "a shard of another device", "a dropped scale")


@contextmanager
def planted(fault: str) -> Iterator[list[str]]:
    """The fault in what is compiled meanwhile: the first call that it fits. Yields the calls that it was put in."""
    from shardc.emit.call import applied
    from shardc.emit.call import callable as emitter
    from shardc.emit.exprs import Call, Line, Name

    right, (names, change), hit = emitter.body, IN_CODE[fault], []

    def body(schedule: Any) -> Any:
        found = right(schedule)
        return replace(found, code=tuple(map(changed, found.code)))

    def changed(code: Any) -> Any:
        called = code.expr.function if isinstance(code, Line) and isinstance(code.expr, Call) else None
        if hit or not isinstance(called, Name) or called.name not in names:
            return code
        hit.append(called.name)
        applied._BARE["fault"] = change(applied._resolve(called.name))
        return replace(code, expr=Call(Name("fault"), code.expr.args))

    emitter.body = body
    try:
        yield hit
    finally:
        emitter.body = right
        applied._BARE.pop("fault", None)


@dataclass(frozen=True)
class Trial:
    """One program in one type, planned."""

    tried: Tried
    dtype: str
    schedule: Any
    mesh: Any

    @classmethod
    def of(cls, tried: Tried, dtype: str) -> Trial:
        from shardc.machines.run import simulated_mesh

        plan = shardc.plan(tried.text, mesh=MESH, dims=tried.dims, dtype=dtype, objective="bytes")
        return cls(tried, dtype, plan.schedule, simulated_mesh(plan.schedule, plan.schedule.given_mesh))

    def compiled(self) -> Callable[..., Any]:
        from shardc.emit.call.program import CompiledProgram

        return CompiledProgram(self.schedule, self.mesh)

    def report(self, program: Callable[..., Any], seed: int, given: Callable[[list[Any]], list[Any]] = list) -> Any:
        """What `run` says of the program on inputs of this seed, or on what is given in their place."""
        from shardc.machines.run import placed, report_of

        wholes = simulate.sample_inputs(self.schedule.program, seed)
        arguments = placed(self.schedule, given(wholes), self.mesh)
        results = program(*arguments)
        return report_of(self.schedule, wholes, results if isinstance(results, tuple) else (results,))

    def with_fault(self, fault: str, seed: int = 0) -> Any | None:
        """The report of a faulty run; None where the program has no room for the fault."""
        if fault in IN_CODE:
            with planted(fault) as hit:
                program = self.compiled()
                try:
                    found = self.report(program, seed)
                except (TypeError, ValueError, shardc.ShardcError):
                    if hit:
                        raise
                    return None
            return found if hit else None
        if fault == "a dropped scale":
            names = [array.name for array in self.schedule.program.inputs]
            if "scale" not in names:
                return None
            place = names.index("scale")
            return self.report(
                self.compiled(), seed, lambda wholes: [ones(w) if k == place else w for k, w in enumerate(wholes)]
            )
        return self.report(self.compiled(), seed, self._shards_swapped)

    def _shards_swapped(self, wholes: list[Any]) -> list[Any]:
        """The first input as it is when each device along an axis has its neighbour's block."""
        array = self.schedule.given(self.schedule.inputs[0])
        dim = next(dim for dim, axes in enumerate(array.sharding.dims) if axes)
        local = array.local_shape(self.schedule.given_mesh)[dim]
        return [np.roll(wholes[0], local, axis=dim), *wholes[1:]]


def table(seeds: int, programs: tuple[Tried, ...] = PROGRAMS, dtypes: tuple[str, ...] = DTYPES) -> tuple[str, bool]:
    """The table, and whether every fault was found and every right program accepted."""
    rows, fine = [], True
    for tried in programs:
        for dtype in dtypes:
            trial = Trial.of(tried, dtype)
            program = trial.compiled()
            right = [trial.report(program, seed) for seed in range(seeds)]
            accepted = sum(report.ok for report in right)
            fine = fine and accepted == seeds
            nearest = max((output.ratio for report in right for output in report.outputs), default=0.0)
            rows.append((tried.name, dtype, "none", f"accepted {accepted} of {seeds}", f"{nearest:.2f}"))
            for fault in FAULTS:
                report = trial.with_fault(fault)
                if report is None:
                    continue
                found = report.verdict.value == "not equal"
                fine = fine and found
                ratio = max(output.ratio for output in report.outputs)
                rows.append((tried.name, dtype, fault, "found" if found else "NOT FOUND", f"{ratio:.1f}"))
    return tabulate(rows, ["program", "type", "fault", "run says", "error ÷ allowed"], disable_numparse=True), fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="how often each right program is tried")
    text, fine = table(parser.parse_args().seeds)
    print(text)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
