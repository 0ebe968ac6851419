"""One plan for a whole program: the shardings of all that its text leaves free, chosen together."""
