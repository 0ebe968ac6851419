"""How steps are written: which form, in which rounds."""
