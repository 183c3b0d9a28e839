"""The rules of differentiation: the table parsed into formulas, its checks, and gradients written as code."""
