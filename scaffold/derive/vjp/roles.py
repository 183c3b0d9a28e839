"""Words for values, by the primitive that makes or reads them.

In: the name of a rule. Out: words, the best first. Invariant: each says what the value is, and none is a builtin's name.
"""

# Of values without a cotangent in them.
VALUE: dict[str, tuple[str, ...]] = {
    "add": ("total", "combined"),
    "sub": ("difference", "rest"),
    "mul": ("product", "slope", "factor"),
    "div": ("quotient", "ratio", "share"),
    "neg": ("negative",),
    "lead_dims": ("leading",),
    "matmul": ("product",),
    "by_rank": ("matrix",),
    "contracted": ("product",),
    "einsum": ("product",),
    "softmax": ("probs",),
    "log_softmax": ("log_probs",),
    "sum": ("total", "whole"),
    "where": ("selected", "chosen"),
    "pow": ("power",),
    "pow_exponent": ("power",),
    "pow_base": ("power",),
    "slice": ("part", "piece"),
    "select": ("part", "piece"),
    "index": ("picked",),
    "getitem": ("picked",),
    "gather": ("gathered",),
    "index_select": ("picked",),
    "expanded": ("expanded",),
    "expand": ("expanded",),
    "reshaped": ("reshaped",),
    "reshape": ("reshaped",),
    "summed_to": ("summed",),
    "zeros": ("zeros",),
    "cond": ("chosen",),
    "call": ("value",),
    "abs": ("magnitude",),
    "amax": ("largest",),
    "amin": ("smallest",),
    "rsqrt": ("inverse_root",),
    "sqrt": ("root",),
    "reciprocal": ("inverse",),
    "inv": ("inverse",),
    "solve": ("solution",),
    "cat": ("joined",),
    "stack": ("stacked",),
    "vector_norm": ("norm",),
    "clamp": ("clamped",),
    "masked_fill": ("masked",),
    "sgn": ("sign",),
    "flip": ("flipped",),
    "mT": ("transposed",),
    "transpose": ("transposed",),
    "permute": ("permuted",),
}

# Of what holds a cotangent, and is not itself that of a forward value.
GRADIENT: dict[str, tuple[str, ...]] = {
    "add": ("joint_grad", "total_grad", "whole_grad"),
    "sub": ("net_grad", "rest_grad", "left_grad"),
    "mul": ("scaled_grad", "weighted_grad"),
    "div": ("scaled_grad", "weighted_grad"),
    "neg": ("minus_grad",),
    "matmul": ("projected_grad", "mapped_grad"),
    "contracted": ("projected_grad", "mapped_grad"),
    "einsum": ("projected_grad", "mapped_grad"),
    "by_rank": ("grad_matrix", "matrix_grad"),
    "sum": ("inner", "total_grad", "sum_grad"),
    "mean": ("mean_grad", "inner"),
    "where": ("selected_grad", "chosen_grad"),
    "slice": ("part_grad", "piece_grad"),
    "select": ("part_grad", "piece_grad"),
    "summed_to": ("summed_grad",),
    "expanded": ("expanded_grad",),
    "reshaped": ("reshaped_grad",),
    "masked_fill": ("masked_grad",),
    "cond": ("chosen_grad",),
    "solve": ("solution",),
    "gather": ("gathered_grad",),
    "cat": ("joined_grad",),
    "flip": ("flipped_grad",),
    "pad": ("padded_grad",),
    "narrow": ("narrowed_grad",),
}

# What a value is called that goes into a primitive.
CONSUMED = {
    "softmax": "scores",
    "log_softmax": "logits",
    "logsumexp": "logits",
    "exp": "exponent",
    "sigmoid": "preactivation",
    "tanh": "preactivation",
    "relu": "preactivation",
    "silu": "preactivation",
    "gelu": "preactivation",
    "softplus": "preactivation",
    "elu": "preactivation",
    "leaky_relu": "preactivation",
    "logsigmoid": "logits",
}

MASKS = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_not"}
    | {"logical_not", "logical_and", "logical_or"}
)
