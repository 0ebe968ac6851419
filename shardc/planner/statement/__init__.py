"""One statement: its tables, its strategies, its steps."""
