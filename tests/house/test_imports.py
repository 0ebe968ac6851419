"""The house: which room may import which, and what `import shardc` may load."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "shardc"

# Each room and what it may import besides itself, `errors` and the standard library.
ROOMS = {
    "io": {"click"},  # its colours, at a terminal
    "ir": set(),
    "notation": {"ir", "io", "lark"},  # io keeps the parser's table
    "rules": {"ir"},
    "lowering": {"ir"},
    "cost": {"ir", "lowering", "io"},
    "planner": {"ir", "rules", "lowering", "cost", "numpy"},  # numpy in `whole`, where there is a choice
    "interface": {"ir", "notation", "lowering", "cost", "planner"},
    "simulate": {"ir", "rules", "numpy"},
    "emit": {"ir", "lowering", "notation", "simulate", "jax", "numpy"},
    "machines": {"ir", "simulate", "emit", "jax", "numpy"},
    "proving": {"ir", "lowering"},  # not emit: it reads the text. Not numpy: `emit` starts fast
    "testing": {
        *{"ir", "rules", "cost", "simulate", "emit", "interface", "api", "results", "planner", "machines"},
        *{"proving", "compiled", "backward"},
        *{"hypothesis", "networkx", "numpy", "jax"},
    },
    "compiled": {
        *{"ir", "rules", "lowering", "cost", "planner", "io", "emit", "machines", "interface"},
        *{"proving", "numpy", "tabulate"},  # what is tuned is proved
    },
    "report": {"ir", "rules", "lowering", "cost", "planner", "compiled", "io", "tabulate", "drawsvg"},
    "results": {
        *{"ir", "cost", "planner", "simulate", "emit", "proving", "compiled", "report", "interface"},
        *{"jax", "numpy"},
    },
    "backward": {"ir", "notation"},
    "pipeline": {"ir", "notation", "lowering", "emit", "proving", "report"},  # proving holds pass against pass
    "api": {
        "jax",
        "backward",
        "ir",
        "notation",
        "cost",
        "planner",
        "emit",
        "machines",
        "compiled",
        "interface",
        "results",
    },
    "sweeping": {"api", "results", "interface", "ir", "io", "report", "tabulate"},
    "commands": {
        *{"api", "results", "interface", "io", "ir", "machines", "planner", "cost", "report", "proving", "click"},
        "backward",
    },
    "cli": {
        *{
            "api",
            "commands",
            "results",
            "interface",
            "sweeping",
            "backward",
            "pipeline",
            "io",
            "ir",
            "notation",
            "cost",
            "planner",
            "report",
        },
        *{"compiled", "machines", "click"},
    },
    "errors": set(),
    "__main__": {"cli", "io"},
}
OUTSIDE = {"lark", "jax", "numpy", "networkx", "hypothesis", "click", "tabulate", "drawsvg"}


def imported(text: str) -> set[str]:
    """The rooms and outside packages that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "shardc":
                found.add(parts[1])
            elif parts[0] in OUTSIDE:
                found.add(parts[0])
    return found


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def trespasses(room: str, text: str) -> set[str]:
    return imported(text) - ROOMS[room] - {room, "errors"}


@pytest.mark.instant
@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_what_is_behind_it(path):
    assert trespasses(room_of(path), path.read_text(encoding="utf-8")) == set()


def test_the_walk_sees_a_trespass():
    assert trespasses("ir", "def f():\n    from shardc.planner import plan_program\n") == {"planner"}
    assert trespasses("planner", "import jax.numpy as jnp\n") == {"jax"}


def test_the_rooms_are_a_partial_order():
    def behind(room, seen=()):
        assert room not in seen, f"a circle: {seen}"
        for other in ROOMS.get(room, ()):
            behind(other, (*seen, room))

    for room in ROOMS:
        behind(room)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(text: str, known: set[str]) -> set[str]:
    """The modules of the project that a module imports, anywhere in it."""
    froms = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    full = [(node.module, f"{node.module}.{alias.name}") for node in froms for alias in node.names]
    return {name if name in known else module for module, name in full} & known


def in_order(texts: dict[str, str]) -> list[str]:
    """Modules, each behind those that it imports; CycleError for a circle, one for types only included."""
    known = set(texts)
    return list(TopologicalSorter({n: imported_modules(text, known) - {n} for n, text in texts.items()}).static_order())


def test_no_two_modules_import_each_other():
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in modules()}
    assert set(in_order(texts)) == set(texts)
    planted = texts["shardc.ir.mesh"] + "\ndef f():\n    from shardc.ir import sharding\n"
    with pytest.raises(CycleError):
        in_order(texts | {"shardc.ir.mesh": planted})


HEAVY = ("jax", "numpy", "lark", "networkx", "hypothesis", "click", "tabulate", "drawsvg")


def loaded(statement: str, among: tuple[str, ...] = HEAVY) -> set[str]:
    check = f"import sys; {statement}; print(*[m for m in {among!r} if m in sys.modules])"
    return set(subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout.split())


def test_importing_shardc_loads_nothing_heavy():
    assert loaded("import shardc") == set()
    assert loaded("import numpy") == {"numpy"}, "the check itself must see a package"


def test_planning_loads_neither_jax_nor_numpy():
    found = loaded("import shardc; shardc.plan('A[I, J_X] → A[I, J]', mesh={'X': 4})")
    assert found.isdisjoint({"jax", "numpy", "networkx", "hypothesis", "drawsvg"})


PLANNED = "import shardc; str(shardc.plan('A[I, J_X] · B[J, K] → C[I, K_X]', mesh={'X': 4}))"
# What no plain plan asks for, and takes long to import or brings much with it.
SELDOM = (
    *("shardc.cost.allocation", "shardc.cost.calibration", "shardc.ir.uneven", "shardc.lowering.fusion"),
    *("shardc.lowering.together", "shardc.notation.mend", "shardc.proving", "shardc.report.tuning", "tomllib"),
)


def test_a_plain_plan_and_its_table_load_nothing_that_is_asked_for_seldom():
    assert loaded(PLANNED, SELDOM) == set()
    assert loaded("import shardc.notation.mend", SELDOM) == {"shardc.notation.mend"}, "the check must see a module"
