"""Text ⇄ program: parse, resolve names, print, diagnostics.

`lark` is imported when a text is first parsed, not before.
"""

from __future__ import annotations

from shardc.notation.options import parse_dims, parse_mesh
from shardc.notation.parse import by_itself, declared_in_vain, inputs_of, parse, parse_tree
from shardc.notation.printer import print_tree
from shardc.notation.spell import print_number, print_program, spelled

__all__ = [
    "by_itself",
    "declared_in_vain",
    "inputs_of",
    "parse",
    "parse_dims",
    "parse_mesh",
    "parse_tree",
    "print_number",
    "print_program",
    "print_tree",
    "spelled",
]
