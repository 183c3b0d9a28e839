"""Ops of the backward, simplified as they are made, and what a graph is known to be equal to."""
