"""What a compiled program communicates, what of it is wasteful, and what would do better."""
