"""Parse the rules of differentiation: the table as formulas, its checks, and gradients written as code."""
