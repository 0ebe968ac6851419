"""Meshes coarsened and refined: axes that nobody wrote, axes that move as one, axes cut in two."""
