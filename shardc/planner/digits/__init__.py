"""Products with dims cut in digits."""
