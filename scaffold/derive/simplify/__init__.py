"""Simplify the gradients, between `reverse` and `plan`: each op as it is made, then in passes over whole gradients."""
