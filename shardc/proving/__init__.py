"""Translation validation: program, plan and emitted text agree for every value."""

from shardc.proving.prove import ASKED, UNASKED, Proof, Verdict, prove

__all__ = ["ASKED", "UNASKED", "Proof", "Verdict", "prove"]
