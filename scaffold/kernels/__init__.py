"""OpSpec + Derivation -> fused kernels: a row program of each direction, and its text in Triton. Pure, without torch.

`row_program` says what a row program is and knows nothing of Triton; `lowering` makes one of statements, `pair` those of an op's
forward and backward. `triton` writes them; a printer for another language would stand beside it.
"""
