"""Emitted programs, applied: on the mesh in force, under jit, grad and vmap."""
