"""OpSpec + Derivation -> fused kernels: a row program of each direction, and its text in Triton. Pure, without torch.

`row_program` says what a row program is and knows nothing of Triton; `lowering` makes one of statements, `pair` those of an op's
forward and backward. `expressions`, `kernel_body` and `launch` write them in Triton, and `triton` the file; printers for another language
would stand beside these.
"""
