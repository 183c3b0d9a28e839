"""Lowering: statements and expressions of the forward -> the graph."""
