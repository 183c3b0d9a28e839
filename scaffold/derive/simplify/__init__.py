"""Simplification: a simpler op in the place of one as it is made, and passes over the whole of a gradient."""
