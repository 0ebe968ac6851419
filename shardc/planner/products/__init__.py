"""Local products: which there are, what they cost, and which lead to a goal."""
