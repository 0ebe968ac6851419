"""Paths of one array from sharding to sharding."""
