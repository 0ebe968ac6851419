"""The best few plans in their forms, and XLA's own program, compiled and replayed; the fastest is kept."""
