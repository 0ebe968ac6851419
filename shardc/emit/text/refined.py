"""The emitted `program` of a plan with axes cut, as in `refined`; its steps are a function of that name."""

from __future__ import annotations

from shardc.emit.exprs import Call, Items, Keyword, Name, axes_argument, call, numbers
from shardc.emit.steps.calls import Body
from shardc.emit.steps.partial_sums import Border
from shardc.emit.steps.spec import in_specs, joined, out_specs, spec
from shardc.emit.text.layout import lay_out, written
from shardc.ir.plan import Schedule
from shardc.ir.refine import Refinement


def program_lines(schedule: Schedule, by: Refinement, described: Body, around: Border) -> list[str]:
    """Takes and returns arrays on the mesh in force, and calls `refined` on the fine one; there what leaves the steps
    as equal blocks becomes one."""
    arrays = [schedule.given(number) for number in schedule.inputs]
    given = [spec(array.sharding, by.coarse) for array in arrays]
    out = joined([spec(schedule.given(number).sharding, by.coarse) for number in schedule.outputs])
    names = tuple(Name(name) for name in described.parameters)
    several = len(names) > 1
    constrained = call("jax.lax.with_sharding_constraint", Items(names) if several else names[0], joined(given))
    sizes = numbers(by.fine.sizes)
    fine = call("jax.sharding.Mesh", Call(Name("mesh.devices.reshape"), (sizes,)), axes_argument(by.fine.names))
    mapped = call(
        "jax.shard_map",
        Name("refined"),
        mesh=Name("fine"),
        in_specs=in_specs(schedule),
        out_specs=out_specs(schedule),
    )
    return [
        "@jax.jit",
        *lay_out(Call(Name("jax.sharding.auto_axes"), (Keyword("out_sharding", out),)), 0, "@", ""),
        *lay_out(Call(Name("program"), names), 0, "def ", ":"),
        *lay_out(constrained, 4, f"{', '.join(described.parameters)} = ", ""),
        "    with jax.ensure_compile_time_eval():",
        "        mesh = jnp.zeros((), out_sharding=P()).sharding.mesh  # that of jax.set_mesh",
        *lay_out(fine, 4, "fine = ", ""),
        "    with jax.sharding.use_abstract_mesh(fine.abstract_mesh):",
        *lay_out(mapped, 8, "mapped = ", ""),
        *_called(names, described.results, around),
        *lay_out(call("jax.lax.with_sharding_constraint", Name("results"), out), 4, "return ", ""),
    ]


def _called(names: tuple[Name, ...], results: tuple[str, ...], around: Border) -> list[str]:
    called, left = Call(Name("mapped"), names), ", ".join(results)
    if not around.after:
        return lay_out(called, 8, "results = ", "")
    within = (text for line in around.after for text in written(line, 8))
    return [*lay_out(called, 8, f"{left} = ", ""), *within, f"        results = {left}"]
