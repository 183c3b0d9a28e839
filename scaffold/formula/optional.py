"""Which arguments of a call may be None.

In: a call, as `ast`. Out: the positions, keywords behind positional ones, where an optional tensor may stand untested.
Invariant: functions of torch are those that PyTorch documents so; of a user's own function nothing is known, so it may.
"""

import ast

# As PyTorch's documentation has them; a question mark follows a tensor that may be None.
SIGNATURES = """
batch_norm(input, running_mean?, running_var?, weight?, bias?)
bilinear(input1, input2, weight, bias?)
binary_cross_entropy(input, target, weight?)
binary_cross_entropy_with_logits(input, target, weight?, size_average, reduce, reduction, pos_weight?)
bincount(input, weights?)
clamp(input, min?, max?)
clip(input, min?, max?)
conv1d(input, weight, bias?)
conv2d(input, weight, bias?)
conv3d(input, weight, bias?)
conv_transpose1d(input, weight, bias?)
conv_transpose2d(input, weight, bias?)
conv_transpose3d(input, weight, bias?)
cross_entropy(input, target, weight?)
diff(input, n, dim, prepend?, append?)
group_norm(input, num_groups, weight?, bias?)
instance_norm(input, running_mean?, running_var?, weight?, bias?)
layer_norm(input, normalized_shape, weight?, bias?)
linear(input, weight, bias?)
multilabel_soft_margin_loss(input, target, weight?)
nll_loss(input, target, weight?)
rms_norm(input, normalized_shape, weight?)
scaled_dot_product_attention(query, key, value, attn_mask?)
stft(input, n_fft, hop_length, win_length, window?)
trapezoid(y, x?)
"""
ELSEWHERE = {"torch.batch_norm", "torch.instance_norm"}  # in another order


def takes_none(
    call: ast.Call, torch: frozenset[str], values: frozenset[str]
) -> set[int]:
    """Where None is welcome; names in `torch` are modules of it, those in `values` are no modules."""
    everywhere = set(range(len(call.args) + len(call.keywords)))
    root, callee = _root(call.func), call.func
    if root is not None and root not in torch and root not in values:
        return everywhere
    if not isinstance(callee, ast.Attribute) or ast.unparse(callee) in ELSEWHERE:
        return set()
    return _welcome(call, callee.attr, method=root is None or root in values)


def _root(callee: ast.expr) -> str | None:
    """The name that a dotted name begins with."""
    while isinstance(callee, ast.Attribute):
        callee = callee.value
    return callee.id if isinstance(callee, ast.Name) else None


def _welcome(call: ast.Call, function: str, *, method: bool) -> set[int]:
    start = SIGNATURES.find(f"\n{function}(")
    if start < 0:
        return set()
    line = SIGNATURES[start:].split("(", 1)[1].split(")", 1)[0]
    parameters = line.split(", ")[1 if method else 0 :]
    found = {
        position
        for position, parameter in enumerate(parameters[: len(call.args)])
        if parameter.endswith("?")
    }
    return found | {
        position
        for position, keyword in enumerate(call.keywords, len(call.args))
        if f"{keyword.arg}?" in parameters
    }
