"""Devices, simulated and real; compilers; runs, held against NumPy and timed."""
