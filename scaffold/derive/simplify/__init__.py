"""Simplification: each op simplified as it is made, and passes over whole gradients."""
