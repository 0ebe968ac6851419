"""For users' own tests: checkers of rewrites, functions and prices, laws, and hypothesis strategies of valid things.

Names are imported when first used, so that the checkers work where hypothesis is not installed.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardc.ir.laws import function_law, product_law, reshape_law
    from shardc.testing.checkers import assert_equal_on_every_device, assert_schedule_legal
    from shardc.testing.drawn_loops import backward_programs, loops
    from shardc.testing.functions import assert_equivalent, assert_matches_reference
    from shardc.testing.identities import IDENTITIES, Identity
    from shardc.testing.laws import LAWS, Law, counterexample, found_when
    from shardc.testing.mixed import mixed_programs
    from shardc.testing.models import assert_cost_model
    from shardc.testing.modules import assert_same_module
    from shardc.testing.oracles import all_moves, all_shardings, matmul_oracle, needed_bytes, shortest_path_oracle
    from shardc.testing.partial import partial_programs
    from shardc.testing.rewrites import assert_rewrite, conditions, holds_on
    from shardc.testing.sequences import Path, chips, paths
    from shardc.testing.shardy import SHARDY, SHARDY_PATTERNS, Canonicalization
    from shardc.testing.sides import Moves
    from shardc.testing.strategies import Case, Reshard, matmuls, meshes, programs, reshards, shardings
    from shardc.testing.transposes import TRANSPOSES, is_transpose

_HOMES = {
    "shardc.ir.laws": ("function_law", "product_law", "reshape_law"),
    "shardc.testing.checkers": ("assert_equal_on_every_device", "assert_schedule_legal"),
    "shardc.testing.functions": ("assert_equivalent", "assert_matches_reference"),
    "shardc.testing.identities": ("IDENTITIES", "Identity"),
    "shardc.testing.laws": ("LAWS", "Law", "counterexample", "found_when"),
    "shardc.testing.drawn_loops": ("backward_programs", "loops"),
    "shardc.testing.mixed": ("mixed_programs",),
    "shardc.testing.models": ("assert_cost_model",),
    "shardc.testing.modules": ("assert_same_module",),
    "shardc.testing.oracles": (
        *("all_moves", "all_shardings", "matmul_oracle", "needed_bytes", "shortest_path_oracle"),
    ),
    "shardc.testing.partial": ("partial_programs",),
    "shardc.testing.sequences": ("Path", "chips", "paths"),
    "shardc.testing.rewrites": ("assert_rewrite", "conditions", "holds_on"),
    "shardc.testing.sides": ("Moves",),
    "shardc.testing.shardy": ("SHARDY", "SHARDY_PATTERNS", "Canonicalization"),
    "shardc.testing.strategies": ("Case", "Reshard", "matmuls", "meshes", "programs", "reshards", "shardings"),
    "shardc.testing.transposes": ("TRANSPOSES", "is_transpose"),
}
_DRAWING = (
    *("shardc.testing.drawn_loops", "shardc.testing.mixed", "shardc.testing.partial"),
    *("shardc.testing.sequences", "shardc.testing.strategies"),
)
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "IDENTITIES",
    "LAWS",
    "SHARDY",
    "SHARDY_PATTERNS",
    "TRANSPOSES",
    "Canonicalization",
    "Case",
    "Identity",
    "Law",
    "Moves",
    "Path",
    "Reshard",
    "all_moves",
    "all_shardings",
    "assert_cost_model",
    "assert_equal_on_every_device",
    "assert_equivalent",
    "assert_matches_reference",
    "assert_rewrite",
    "assert_same_module",
    "assert_schedule_legal",
    "backward_programs",
    "chips",
    "conditions",
    "counterexample",
    "found_when",
    "function_law",
    "holds_on",
    "is_transpose",
    "loops",
    "matmul_oracle",
    "matmuls",
    "meshes",
    "mixed_programs",
    "needed_bytes",
    "partial_programs",
    "paths",
    "product_law",
    "programs",
    "reshape_law",
    "reshards",
    "shardings",
    "shortest_path_oracle",
]

if find_spec("hypothesis") is None:  # so that `from shardc.testing import *` has the others
    __all__ = [name for name in __all__ if _HOME_OF[name] not in _DRAWING]


def __getattr__(name: str) -> object:
    from importlib import import_module

    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'shardc.testing' has no attribute '{name}'")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ImportError(
            f"`{name}` draws by hypothesis, which is not installed: pip install hypothesis", name=error.name
        ) from None


def __dir__() -> list[str]:
    return sorted(__all__)
