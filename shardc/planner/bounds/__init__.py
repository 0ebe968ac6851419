"""Bytes that no method gets below."""
