"""Mistakes planted in operators, every one of which the generated test must find."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """Replacements in the text of an operator."""

    op: str
    mistake: str
    changes: tuple[tuple[str, str], ...]

    def apply(self, text: str) -> str:
        for old, new in self.changes:
            assert (
                text.count(old) == 1
            ), f"{self.op}: {old!r} occurs {text.count(old)} times"
            text = text.replace(old, new)
        return text


def mutant(op: str, mistake: str, *changes: tuple[str, str]) -> Mutant:
    return Mutant(op, mistake, changes)


SAVE_ALL = (
    (
        """            input if ctx.needs_input_grad[1] else None,
            weight if ctx.needs_input_grad[0] else None,
""",
        "            input, weight\n",
    ),
)
GRAD_WEIGHT = "torch.tensordot(grad_output, input, (leading, leading))"
ROWS = "grad_output.shape[:-1].numel(), grad_output.shape[-1]"
COLUMNS = "input.shape[:-1].numel(), input.shape[-1]"
RETURNED = "return grad_input, grad_weight, grad_bias"
UNPACKED = "        input, weight = ctx.saved_tensors\n"

LINEAR = (
    mutant("linear", "wrong transpose", (GRAD_WEIGHT, f"{GRAD_WEIGHT}.t()")),
    mutant(
        "linear",
        "missing sum",
        ("grad_output.sum(leading) if leading else grad_output", "grad_output"),
    ),
    mutant(
        "linear",
        "swapped grads",
        (RETURNED, "return grad_weight, grad_input, grad_bias"),
    ),
    *(
        mutant(
            "linear",
            f"no branch for input {position}",
            *SAVE_ALL,
            (f"        if ctx.needs_input_grad[{position}]:", "        if True:"),
        )
        for position in range(3)
    ),
    mutant(
        "linear", "detach", ("grad_output @ weight", "grad_output @ weight.detach()")
    ),
    mutant(
        "linear",
        "view for reshape",
        (
            GRAD_WEIGHT,
            f"grad_output.reshape({ROWS}).t() @ input.view({COLUMNS})",
        ),
    ),
    mutant(
        "linear",
        "grad_output.view",
        (
            GRAD_WEIGHT,
            f"grad_output.view({ROWS}).t() @ input.reshape({COLUMNS})",
        ),
    ),
    mutant(
        "linear",
        "tensor on ctx",
        (
            "            input if ctx.needs_input_grad[1] else None,\n",
            "            None,\n",
        ),
        (
            "        input, weight, _bias = inputs\n",
            "        input, weight, _bias = inputs\n        ctx.input = input\n",
        ),
        (GRAD_WEIGHT, GRAD_WEIGHT.replace("input", "ctx.input")),
    ),
    mutant(
        "linear",
        "output on ctx",
        (
            "        ctx.save_for_backward(\n",
            "        ctx.output = output\n        ctx.save_for_backward(\n",
        ),
    ),
    mutant(
        "linear", "factor 2", ("= grad_output @ weight", "= 2 * grad_output @ weight")
    ),
    mutant("linear", "sign", ("= grad_output @ weight", "= -grad_output @ weight")),
)

OTHERS = (
    mutant(
        "linear",
        "module ignores its bias",
        (
            "return linear(input, self.weight, self.bias)",
            "return linear(input, self.weight)",
        ),
    ),
    mutant(
        "linear",
        "module without meta device",
        (
            "torch.empty(out_features, in_features, device=device, dtype=dtype)",
            "torch.empty(out_features, in_features, dtype=dtype)",
        ),
    ),
    mutant("linear", "no vmap rule", ("    generate_vmap_rule = True\n\n", "")),
    mutant(
        "linear",
        "gradient of half precision",
        ("= grad_output @ weight", "= (grad_output @ weight).float()"),
    ),
    mutant(
        "linear",
        "graph break",
        (UNPACKED, f"{UNPACKED}        grad_output.sum().item()\n"),
    ),
    mutant("exp_", "not marked dirty", ("        ctx.mark_dirty(*inputs)\n", "")),
    mutant(
        "exp_",
        "out of place",
        ("        x.exp_()\n        return x", "        return x.exp()"),
        ("        ctx.mark_dirty(*inputs)\n", ""),
    ),
    mutant(
        "exp_",
        "output on ctx",
        ("        ctx.save_for_backward(output)", "        ctx.output = output"),
        ("        (output,) = ctx.saved_tensors\n", ""),
        ("grad_output * output", "grad_output * ctx.output"),
    ),
    mutant(
        "sort_last",
        "gather for scatter",
        (".scatter(-1, indices, grad_values)", ".gather(-1, indices)"),
    ),
    mutant(
        "sort_last",
        "ascending for descending",
        ("torch.sort(x, dim=-1)", "torch.sort(x, dim=-1, descending=True)"),
    ),
    mutant(
        "scale_by",
        "sign",
        ("grad_output * ctx.constant", "-grad_output * ctx.constant"),
    ),
    mutant(
        "scale_by",
        "gradient for the attribute",
        ("ctx.constant, None", "ctx.constant, grad_output"),
    ),
    mutant(
        "scale_by",
        "unguarded None",
        ("        if grad_output is None:\n            return None, None\n", ""),
    ),
    mutant(
        "scale_by",
        "module forgets its attribute",
        ("self.constant = constant", "self.constant = 1.0"),
    ),
    mutant(
        "numpy_tanh",
        "factor 2",
        ("grad_output.numpy() * (1", "2 * grad_output.numpy() * (1"),
    ),
    mutant(
        "numpy_tanh",
        "not once differentiable",
        ("    @once_differentiable\n", ""),
        ("from torch.autograd.function import once_differentiable\n", ""),
    ),
    mutant(
        "sum_all",
        "gradients for all",
        (" if needed else None\n            for needed, shape", " for _, shape"),
    ),
    mutant(
        "affine",
        "missing sum where reduced",
        ("grad_output = grad_output.expand(ctx.shape)", "pass"),
    ),
    mutant("affine", "without the attribute", ("(x + ctx.eps)", "x")),
    mutant(
        "affine",
        "bias absent",
        (
            "if bias is not None:\n            output = output + bias",
            "if bias is None:\n            output = output + 1\n        else:\n            output = output + bias",
        ),
    ),
    mutant("square_once", "factor 3", ("2 * x * grad_output", "3 * x * grad_output")),
    mutant(
        "square_once",
        "tensor on ctx",
        ("ctx.save_for_backward(x)", "ctx.x = x"),
        ("        (x,) = ctx.saved_tensors\n", "        x = ctx.x\n"),
    ),
    mutant("cubed_once", "twice differentiable", ("    @once_differentiable\n", "")),
    mutant("complex_mul", "no conjugate", ("z.conj()", "z")),
    mutant(
        "complex_mul",
        "complex gradient of a real input",
        ("(grad_output * z.conj()).real", "grad_output * z.conj()"),
    ),
    mutant(
        "nll",
        "sign",
        ("-(grad_output * scale[target])", "(grad_output * scale[target])"),
    ),
    mutant(
        "nll", "gradient of a constant", ("picked), None, None", "picked), None, scale")
    ),
    mutant(
        "sign_ste",
        "true derivative",
        ("grad_output * (x.abs() <= 1)", "grad_output * 0"),
    ),
    mutant(
        "sign_ste",
        "float gradient",
        ("(x.abs() <= 1)", "(x.abs() <= 1).float()[..., None]"),
    ),
    mutant(
        "top_class",
        "with a gradient",
        ("return scores.argmax(-1)", "return scores.amax(-1)"),
        ("        ctx.mark_non_differentiable(output)", "        pass"),
    ),
    mutant(
        "apply_to",
        "of the output",
        (
            "torch.func.vjp(ctx.function, x)",
            "torch.func.vjp(ctx.function, ctx.function(x))",
        ),
    ),
    mutant(
        "centring",
        "buffer is saved",
        ("        pass\n", "        ctx.save_for_backward(inputs[1])\n"),
        (
            "return grad_output, None",
            "return grad_output + 0 * ctx.saved_tensors[0], None",
        ),
        ("self.running_mean.clone()", "self.running_mean"),
    ),
    mutant("centring", "updated in eval", ("if self.training:", "if True:")),
    mutant(
        "l2_norm", "missing projection", ("grad_output - unit * inner", "grad_output")
    ),
    mutant(
        "l2_norm",
        "intermediate of the forward",
        ("save_for_backward(x)", "save_for_backward(x, norm)"),
        (
            "(x,) = ctx.saved_tensors\n        norm = (x * x).sum(-1, keepdim=True).sqrt()\n",
            "x, norm = ctx.saved_tensors\n",
        ),
    ),
)
