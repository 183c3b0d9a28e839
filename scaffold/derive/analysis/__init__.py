"""Analyses of an op's statements, shared by all passes: gradients, shared memory, dead code, kinds of values."""
