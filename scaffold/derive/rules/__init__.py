"""The rules of differentiation: the table read into formulas, its check, and the gradients that are code."""
