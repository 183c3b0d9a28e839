"""Statements and expressions of the forward -> the graph."""
