"""Emitted modules, as text."""
