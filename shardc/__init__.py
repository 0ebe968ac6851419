"""shardc: the named-axis notation for sharded arrays, checked, planned, priced and compiled to JAX.

>>> import shardc
>>> plan = shardc.plan("A[I, J_X] · B[J_X, K] → C[I, K_X]", mesh={"X": 4}, dims={"I": 8192, "J": 8192, "K": 8192})
>>> [step.op for step in plan.steps]
['Einsum', 'ReduceScatter']

`print(plan)` shows the table, `plan.compile()` is the jitted program, `plan.source()` its text.

Names are imported when first used, so that `import shardc` costs nothing.
"""

TYPE_CHECKING = (
    False  # as type checkers read it: until `python -m shardc` answers interrupts, not even typing is loaded
)

if TYPE_CHECKING:
    from shardc.api import check, einsum, explain, parse, plan, reshard
    from shardc.backward import grad
    from shardc.errors import ShardcError
    from shardc.ir.mesh import Mesh
    from shardc.ir.program import Program
    from shardc.results import Front, Plan
    from shardc.sweeping import Swept, sweep

    __version__: str

_HOMES = {
    "Front": "shardc.results",
    "Mesh": "shardc.ir.mesh",
    "Plan": "shardc.results",
    "Program": "shardc.ir.program",
    "ShardcError": "shardc.errors",
    "Swept": "shardc.sweeping",
    "check": "shardc.api",
    "einsum": "shardc.api",
    "explain": "shardc.api",
    "grad": "shardc.backward",
    "parse": "shardc.api",
    "plan": "shardc.api",
    "reshard": "shardc.api",
    "sweep": "shardc.sweeping",
}

__all__ = [
    "Front",
    "Mesh",
    "Plan",
    "Program",
    "ShardcError",
    "Swept",
    "__version__",
    "check",
    "einsum",
    "explain",
    "grad",
    "parse",
    "plan",
    "reshard",
    "sweep",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("shardc")
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shardc' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
