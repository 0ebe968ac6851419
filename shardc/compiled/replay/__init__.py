"""A compiled program replayed: a timeline of compute, copies and links, drawn and priced."""
