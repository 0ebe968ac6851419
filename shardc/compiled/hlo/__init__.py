"""A compiler's text, read: HLO and StableHLO, and the collectives in them."""
