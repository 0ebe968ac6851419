"""A whole program: statements in order, limits, axes cut."""
