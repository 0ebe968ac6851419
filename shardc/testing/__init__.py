"""For users' own tests: hypothesis strategies that draw valid programs, checkers, and brute-force oracles."""

from shardc.ir.laws import function_law, product_law, reshape_law
from shardc.testing.checkers import assert_equal_on_every_device, assert_schedule_legal
from shardc.testing.oracles import all_moves, all_shardings, matmul_oracle, needed_bytes, shortest_path_oracle
from shardc.testing.partial import partial_programs
from shardc.testing.strategies import Case, Reshard, matmuls, meshes, programs, reshards, shardings

__all__ = [
    "Case",
    "Reshard",
    "all_moves",
    "all_shardings",
    "assert_equal_on_every_device",
    "assert_schedule_legal",
    "function_law",
    "matmul_oracle",
    "matmuls",
    "meshes",
    "needed_bytes",
    "partial_programs",
    "product_law",
    "programs",
    "reshape_law",
    "reshards",
    "shardings",
    "shortest_path_oracle",
]
