"""Translation validation: program, plan and emitted text agree for every value."""

from shardc.proving.prove import ASKED, BESIDE_A_COMPILATION, UNASKED, Proof, Verdict, prove, refuse_wrong

__all__ = ["ASKED", "BESIDE_A_COMPILATION", "UNASKED", "Proof", "Verdict", "prove", "refuse_wrong"]
