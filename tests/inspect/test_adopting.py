"""Adopting: the specification of what is there leads back to it, or there is a reason."""

import re
import shutil
from pathlib import Path

import pytest

from tests.cli.running import ROOT, Outcome, scaffold
from tests.executed.suites import Suites
from tests.inspect.test_stubs import pytest_says
from tests.sweeps import in_every_run, pairs_in_every_run

COMMANDS = {
    p.parent.name: p.read_text() for p in ROOT.glob("generated_examples/*/command")
}
# What is adopted is one Function: neither a registered op nor one of several.
REFUSED = {
    "--style library": "holds no autograd.Function",
    "--forward-ad": "holds several Functions",
}
EXAMPLES = ["cross_entropy", "exp_in_place", "gelu_tanh", "mish", "mul_constant"]
EXAMPLES += ["mul_constant_lazy", "nearest_code", "sigmoid", "sort_last", "swish"]
HEAD = "import torch\nfrom torch.autograd import Function\n\n\n"
SCALE = """\
class ScaleFunction(Function):
    @staticmethod
    def forward(ctx, x, weight, factor=2.0):
        # a comment that stays
        scaled = x * factor
        ctx.save_for_backward(x, weight)
        ctx.factor = factor
        ctx.size = x.shape[0]
        return scaled * weight

    @staticmethod
    def backward(ctx, g):
        inp, weight = ctx.saved_tensors
        grad_in = grad_w = None
        if ctx.needs_input_grad[0]:
            grad_in = g * weight * ctx.factor
        if ctx.needs_input_grad[1]:
            # per element
            grad_w = g * inp * ctx.factor
        return grad_in, grad_w, None
"""
TOML = """\
[ops.scale]
inputs = 'x, weight, factor: float = 2.0'
forward = 'scale_forward(x, weight, factor)'
backward = '''
grad_x, grad_weight, _ = scale_backward(grad_output, x, weight, factor, needs_input_grad)
'''
once-differentiable = false
import = ['scale_code:scale_forward, scale_backward']
module = false
style = 'setup-context'
transforms = true
"""
CODE = """\
\"\"\"The forward and backward of scale, as they stood in ops.\"\"\"


def scale_forward(x, weight, factor):
    # a comment that stays
    scaled = x * factor
    return scaled * weight


def scale_backward(g, inp, weight, factor, needs_input_grad):
    grad_in = grad_w = None
    if needs_input_grad[0]:
        grad_in = g * weight * factor
    if needs_input_grad[1]:
        # per element
        grad_w = g * inp * factor
    return grad_in, grad_w, None
"""
COMPARED = "the same values and gradients"


def adopt(directory: Path, code: str, *options: str) -> Outcome:
    """Adopt the Function of a file."""
    (directory / "ops.py").write_text(code)
    return scaffold(directory, "adopt", "ops.py", *options)


@pytest.mark.parametrize("option", REFUSED)
def test_an_example_that_is_not_one_function_is_refused(
    option: str, tmp_path: Path
) -> None:
    name = next(name for name, text in sorted(COMMANDS.items()) if option in text)
    shutil.copy(ROOT / "generated_examples" / name / f"{name}.py", tmp_path)
    adopted = scaffold(tmp_path, "adopt", f"{name}.py", "--no-verify")
    assert adopted.code == 2 and REFUSED[option] in adopted.err


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", in_every_run(EXAMPLES, EXAMPLES[::3]))
def test_a_generated_op_is_adopted_as_any_other(name: str, tmp_path: Path) -> None:
    for source in (ROOT / "generated_examples" / name).glob("*.py"):
        if not source.name.startswith("test_"):
            shutil.copy(source, tmp_path)
    adopted = scaffold(tmp_path, "adopt", f"{name}.py", "--name", "again")
    assert adopted.code == 0 and COMPARED in adopted.err, adopted.err
    made = scaffold(tmp_path, "new-op", "again", "--spec", "again.toml", "--no-test")
    assert made.code == 0 and made.proven.startswith("proven: "), made.err


SCAN = """\
class ScanFunction(Function):
    @staticmethod
    def forward(gate, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = gate[:, t] * h + x[:, t]
        return h

    @staticmethod
    def setup_context(ctx, inputs, output):
        gate, x = inputs
        ctx.save_for_backward(gate, x)

    @staticmethod
    def backward(ctx, grad_output):
        gate, x = ctx.saved_tensors
        grad_gate = grad_x = None
        hs = [torch.zeros_like(x[:, 0])]
        for t in range(x.shape[1]):
            hs.append(gate[:, t] * hs[t] + x[:, t])
        grad_h = grad_output
        grads_gate, grads_x = [], []
        for t in reversed(range(x.shape[1])):
            if ctx.needs_input_grad[0]:
                grads_gate.append(grad_h * hs[t])
            if ctx.needs_input_grad[1]:
                grads_x.append(grad_h)
            grad_h = grad_h * gate[:, t]
        if ctx.needs_input_grad[0]:
            grad_gate = torch.stack(grads_gate[::-1], 1)
        if ctx.needs_input_grad[1]:
            grad_x = torch.stack(grads_x[::-1], 1)
        return grad_gate, grad_x


def scan(gate, x):
    return ScanFunction.apply(gate, x)
"""


@pytest.mark.each_commit
def test_a_loop_goes_on_asking_which_gradients_are_needed(tmp_path: Path) -> None:
    adopted = adopt(tmp_path, HEAD + SCAN)
    assert adopted.code == 0 and COMPARED in adopted.err
    text = (tmp_path / "scan_code.py").read_text()
    assert (
        "        if needs_input_grad[1]:\n            grads_x.append(grad_h)\n" in text
    )
    made = scaffold(tmp_path, "new-op", "scan", "--spec", "scan.toml")
    assert made.code == 0, made.err
    assert "ctx.needs_input_grad)" in (tmp_path / "scan.py").read_text()


@pytest.mark.each_commit
def test_what_ctx_carries_becomes_parameters(tmp_path: Path) -> None:
    outcome = adopt(tmp_path, HEAD + SCALE)
    assert outcome.out == "create  scale.toml\ncreate  scale_code.py\n"
    assert outcome.err == (
        f"note: compared with a run of ScaleFunction of ops.py: {COMPARED}\n"
        "note: style setup-context adds torch.func (grad, vjp, jacrev) and vmap\n"
        "note: ScaleFunction, by hand: 1 of 24 checks fail (shapes that backward returns)\n"
        "note: scale, as an op: 1 of 27 checks fail (shapes that backward returns)\n"
        "note: next: scaffold new-op scale --spec scale.toml\n"
    )
    assert (tmp_path / "scale.toml").read_text() == TOML
    assert (tmp_path / "scale_code.py").read_text() == CODE
    made = scaffold(tmp_path, "new-op", "scale", "--spec", "scale.toml", "--no-test")
    assert made.code == 0, made.err


@pytest.mark.parametrize(
    ("before", "after", "place", "reason"),
    [
        ("ctx.factor = factor", "ctx.factor = Holder(x)", 11, "ctx.factor holds is neither"),
        ("factor=2.0", "*factors", 5, "takes '*factors'"),
        ("@staticmethod\n    def forward(ctx,", "@classmethod\n    def forward(cls, ctx,", 7, "decorated with 'classmethod'"),
        ("g * inp * ctx.factor", "g * inp * ctx.other", 23, "ctx.other is not set in sight"),
        ("ctx.factor = factor", "helper(ctx)", 11, "ctx itself is handed on"),
        ("ctx.factor = factor", "ctx.factor = (x, Holder(x))", 11, "ctx.factor[1] holds is neither"),
        ("ctx.factor = factor", "ctx.factor = (Holder(x), *weight)", 11, "ctx.factor holds is neither"),
        ("ctx.factor = factor", "factor += 1; ctx.factor = factor * 2", 11, "ctx.factor holds is neither"),
        ("scaled * weight", "scaled * weight * local", 5, "'local' is not defined in its module"),
        ("ctx.save_for_backward(x, weight)", "if factor: ctx.save_for_backward(x)\n        else: ctx.save_for_backward(x, weight)", 11, "depend on the branch"),
    ],
)  # fmt: skip
def test_what_cannot_be_handed_over_is_a_reason(
    tmp_path: Path, before: str, after: str, place: int, reason: str
) -> None:
    code = (HEAD + SCALE).replace(before, after)
    assert code != HEAD + SCALE
    outcome = adopt(tmp_path, code)
    assert outcome.code == 1 and reason in outcome.err, outcome.err
    assert outcome.err.startswith(f"ops.py:{place}:")
    assert not (tmp_path / "scale.toml").exists()


LOOP = """\
LIMIT = 3


def doubled(x, times):
    for _ in range(times):
        x = x * 2
    return x


class Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, factor: float = 2.0):
        \"\"\"Scale each row.\"\"\"
        x = x.contiguous()
        y = doubled(x, LIMIT)
        out = torch.zeros_like(y)
        for i in range(y.shape[0]):
            # row by row
            out[i] = y[i] * weight[i] * factor
        ctx.save_for_backward(x, weight, y)
        ctx.factor = factor
        ctx.shape = weight.shape
        return out

    @staticmethod
    def backward(ctx, g):
        x, weight, y = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = doubled(g * weight * ctx.factor, LIMIT)
        if ctx.needs_input_grad[1]:
            gw = torch.zeros(ctx.shape, dtype=g.dtype)
            for i in range(len(gw)):
                gw[i] = g[i] * y[i] * ctx.factor
        return gx, gw, None
"""
BODIES = """\
\"\"\"The forward and backward of rows, as they stood in ops.\"\"\"

import torch
from ops import LIMIT, doubled


def rows_forward(x, weight, factor):
    x = x.contiguous()
    y = doubled(x, LIMIT)
    out = torch.zeros_like(y)
    for i in range(y.shape[0]):
        # row by row
        out[i] = y[i] * weight[i] * factor
    return out, x, y


def rows_backward(g, x, weight, y, factor, shape, needs_input_grad):
    gx = gw = None
    if needs_input_grad[0]:
        gx = doubled(g * weight * factor, LIMIT)
    if needs_input_grad[1]:
        gw = torch.zeros(shape, dtype=g.dtype)
        for i in range(len(gw)):
            gw[i] = g[i] * y[i] * factor
    return gx, gw, None
"""


@pytest.mark.each_commit
def test_locals_that_are_saved_are_results_of_the_forward(
    tmp_path: Path, suites: Suites
) -> None:
    outcome = adopt(tmp_path, f"import torch\n\n{LOOP}")
    assert outcome.out == "create  rows.toml\ncreate  rows_code.py\n"
    assert (tmp_path / "rows_code.py").read_text() == BODIES
    toml = (tmp_path / "rows.toml").read_text()
    assert (
        "output, x_kept, y = rows_forward(x, weight, factor)\nreturn output\n" in toml
    )
    made = scaffold(tmp_path, "new-op", "rows", "--spec", "rows.toml")
    assert made.code == 0, made.err
    assert pytest_says(tmp_path, suites).endswith(" passed")


def test_names_of_a_factory_cannot_be_imported(tmp_path: Path) -> None:
    code = "def make(LIMIT):\n" + LOOP.replace("LIMIT = 3\n", "", 1)
    code = code.replace("\n", "\n    ").rstrip() + "\n    return Rows\n"
    (tmp_path / "ops.py").write_text(f"import torch\n\n{code}")
    assert scaffold(tmp_path, "adopt", "ops.py").code == 1


RETURNED = """\
class Pair(Function):
    @staticmethod
    def forward(ctx, x, y):
        total = [0 * x]
        for part in (x, y):
            total.append(total[-1] + part)
        h = total[-1]
        ctx.save_for_backward(x, y, h)
        return (x
                - y) * (x + y), (
            h
            - x * 2
        )

    @staticmethod
    def backward(ctx, g, k):
        x, y, h = ctx.saved_tensors
        for _ in range(2):
            h = h - x
        return (
            g * 2 * x
            - k + 0 * h
        ), (k
            - g * 2 * y)
"""


def test_the_elements_that_forward_returns_keep_their_meaning(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(HEAD + RETURNED)
    outcome = scaffold(tmp_path, "adopt", "ops.py")
    assert outcome.code == 0 and "the same values" in outcome.err, outcome.err


def test_a_helper_is_not_taken_for_what_adopt_makes(tmp_path: Path) -> None:
    """Names of the file's own: `rows_forward`, `backward`, `grad_x`, and a builtin that it has another one of."""
    code = LOOP.replace("doubled", "rows_forward").replace("LIMIT)", "int(LIMIT))")
    helpers = "def int(value):\n    return value\n\n\ndef backward(x):\n    return x\n\n\ngrad_x = 1\n\n\n"
    code = helpers + code.replace("return gx, gw", "return backward(gx) * grad_x, gw")
    (tmp_path / "ops.py").write_text(f"import torch\n\n{code}")
    outcome = scaffold(tmp_path, "adopt", "ops.py")
    assert outcome.code == 0 and "the same values" in outcome.err, outcome.err
    text = (tmp_path / "rows_code.py").read_text()
    assert "def rows_forward_body(" in text and "def rows_backward(" in text
    assert "from ops import LIMIT, backward, grad_x, int, rows_forward" in text


USES = [
    ("x.gather(0, index)", "index[...; int]"),
    ("x[index]", "index[...; int]"),
    ("torch.where(index, x, 0 * x)", "index[...; bool]"),
    ("x * index", "index[...; int]"),
]


@pytest.mark.parametrize(("uses", "declared"), pairs_in_every_run(USES, USES[1:3]))
def test_an_index_is_no_constant(tmp_path: Path, uses: str, declared: str) -> None:
    code = f"""\
class Pick(Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(x, index)
        return {uses}

    @staticmethod
    def backward(ctx, g):
        x, index = ctx.saved_tensors
        return torch.func.vjp(lambda x: {uses}, x)[1](g)[0], None
"""
    (tmp_path / "ops.py").write_text(HEAD + code)
    outcome = scaffold(tmp_path, "adopt", "ops.py", "--stdout")
    assert declared in outcome.out, outcome.err


def test_an_input_may_be_called_output(tmp_path: Path) -> None:
    code = re.sub(r"\bx\b", "output", SCALE)
    (tmp_path / "ops.py").write_text(HEAD + code)
    assert scaffold(tmp_path, "adopt", "ops.py").code == 0
    assert "outputs = 'result'" in (tmp_path / "scale.toml").read_text()
    made = scaffold(tmp_path, "new-op", "scale", "--spec", "scale.toml", "--no-test")
    assert made.code == 0 and made.proven.startswith("proven: "), made.err


def test_a_surrogate_is_said_to_be_one(tmp_path: Path) -> None:
    code = SCALE.replace("g * weight * ctx.factor", "g")
    (tmp_path / "ops.py").write_text(HEAD + code)
    outcome = scaffold(tmp_path, "adopt", "ops.py", "--surrogate")
    assert "is not the derivative" in outcome.err
    assert "surrogate = true" in (tmp_path / "scale.toml").read_text()
    made = scaffold(tmp_path, "new-op", "scale", "--spec", "scale.toml", "--verify")
    assert made.code == 0, made.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import no_such_kernels", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("import os; os._exit(7)", "ended with exit code 7"),
    ],
)
def test_what_cannot_be_run_is_not_compared(
    tmp_path: Path, line: str, words: str
) -> None:
    (tmp_path / "ops.py").write_text(f"{line}\n{HEAD}{SCALE}")
    outcome = scaffold(tmp_path, "adopt", "ops.py")
    assert outcome.code == 0, outcome.err
    assert "note: not compared: " in outcome.err and words in outcome.err


@pytest.mark.parametrize(("name", "told"), [("strength", False), ("lam", True)])
def test_arguments_whose_type_the_text_does_not_tell_are_named(
    tmp_path: Path, name: str, told: bool
) -> None:
    code = SCALE.replace("factor=2.0", name).replace("factor", name)
    code = code.replace(f"x * {name}", f"x * {name}{'' if told else '.amount'}")
    (tmp_path / "ops.py").write_text(f"{HEAD}{code}")
    outcome = scaffold(tmp_path, "adopt", "ops.py", "--stdout")
    assert outcome.code == 0, outcome.err
    untold = (
        f"note: the text does not tell the type of '{name}': write it into the table, "
        f"as in '{name}: float', and the tests have a value\n"
    )
    assert (untold in outcome.err) is not told
    assert ("note: compared with" in outcome.err) is told
    assert f"{name}: {'float' if told else 'object'}" in outcome.out


AROUND = """\
class Swish(Function):
    @staticmethod
    def forward(ctx, x, weight):
        with torch.no_grad():
            # all of it
            y = x * torch.sigmoid(x)
            ctx.save_for_backward(x, weight, y)
            return y * weight

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad(), torch.autograd.set_detect_anomaly(False) as _:
            x, weight, y = ctx.saved_tensors
            {x}
            return {gx}, g * y
"""
BY_HAND = (
    "s = torch.sigmoid(x)",
    "g * weight * (s + x * s * (1 - s))",
)
BY_AUTOGRAD = (
    "x = x.detach().requires_grad_()",
    "torch.autograd.grad(x * torch.sigmoid(x), x, g * weight)[0]",
)


@pytest.mark.parametrize(("line", "gradient"), [BY_HAND, BY_AUTOGRAD])
def test_a_with_may_stand_around_the_return(
    tmp_path: Path, line: str, gradient: str
) -> None:
    (tmp_path / "ops.py").write_text(HEAD + AROUND.format(x=line, gx=gradient))
    outcome = scaffold(tmp_path, "adopt", "ops.py")
    assert outcome.code == 0, outcome.err
    assert "note: compared with a run of Swish of ops.py" in outcome.err, outcome.err
    text = (tmp_path / "swish_code.py").read_text()
    assert """
def swish_forward(x, weight):
    with torch.no_grad():
        # all of it
        y = x * torch.sigmoid(x)
        return y * weight, y
""" in text
    assert f"        {line}\n        return {gradient}, g * y" in text
    again = scaffold(tmp_path, "new-op", "swish", "--spec", "swish.toml")
    assert again.code == 0, again.err


GATHER = """\
class Gather(Function):
    @staticmethod
    def forward(ctx, features, idx):
        ctx.save_for_backward(idx)
        ctx.shape = features.shape
        return features[idx]

    @staticmethod
    def backward(ctx, g):
        (idx,) = ctx.saved_tensors
        grad = g.new_zeros(ctx.shape)
        grad.index_add_(0, idx, {g})
        return grad, None
"""


def test_where_the_backward_of_the_function_raises_too_nothing_is_compared(
    tmp_path: Path,
) -> None:
    """It is one for an index of one dim: that of two is no case of it, and no reason to take it for a mask."""
    (tmp_path / "ops.py").write_text(HEAD + GATHER.format(g="g"))
    outcome = scaffold(tmp_path, "adopt", "ops.py", "--stdout")
    assert outcome.code == 0 and "idx[...; int]" in outcome.out, outcome.err
    assert "note: compared with a run of Gather of ops.py" in outcome.err, outcome.err
    assert (
        "note: scaffold new-op would refuse it: backward: raised IndexError"
        in outcome.err
    )


CASES = {
    "the input that was saved": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x * 3
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 18
""",
    "a local that is named anew": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 3
        ctx.save_for_backward(y)
        y = y * y
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * 6
""",
    "apply in place of the class": """\
class op(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g): return g * 2


op = op.apply
""",
    "a function in place of the class": """\
class op(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


apply = op.apply


def op(x):
    return apply(x)
""",
    "a class in a class": """\
class Outer:
    class Op(Function):
        factor = 3

        @staticmethod
        def forward(ctx, x):
            return x * Outer.Op.factor

        @staticmethod
        def backward(ctx, g):
            return g * Outer.Op.factor
""",
    "in place": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, factor=3.0):
        ctx.mark_dirty(x)
        ctx.factor = factor
        return x.mul_(factor)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None
""",
    "an output that is saved in place": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.exp_()
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]
""",
    "several returns": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, flip: bool = False):
        ctx.save_for_backward(x)
        ctx.flip = flip
        if flip:
            return -x * x
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if ctx.flip:
            return -2 * g * x, None
        return 2 * g * x, None
""",
    "an output without a gradient": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        values, indices = x.sort(-1)
        ctx.save_for_backward(indices)
        ctx.mark_non_differentiable(indices)
        ctx.shape = x.shape
        return values, indices

    @staticmethod
    def backward(ctx, g, _):
        (indices,) = ctx.saved_tensors
        return torch.zeros(ctx.shape, dtype=g.dtype).scatter(-1, indices, g)
""",
    "an optional input": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, bias=None, *, scale=2.0):
        if bias is not None:
            ctx.shape = bias.shape
        ctx.scale = scale
        ctx.needs_bias = ctx.needs_input_grad[1]
        return (x if bias is None else x + bias) * scale

    @staticmethod
    def backward(ctx, *grads):
        (g,) = grads
        return g * ctx.scale, (g * ctx.scale).sum_to_size(ctx.shape) if ctx.needs_bias else None
""",
    "a number kept for an input that is given": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, w=None, n: int = 2):
        if w is not None:
            if w.ndim >= 0:
                ctx.k = n * 2
        ctx.shape = None if w is None else w.shape
        return x if w is None else x + w * (n * 2)

    @staticmethod
    def backward(ctx, g):
        return g, g.sum_to_size(ctx.shape) * ctx.k if ctx.shape is not None else None, None
""",
    "gradients that are absent": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, g, h):
        if g is None and h is None:
            return None, None
        x, y = ctx.saved_tensors
        a = b = 0
        if g is not None:
            a, b = g * y, g * x
        return (a, b) if h is None else (a + h, b + h)
""",
    "a tuple on ctx": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, w, factor: float = 2.0):
        scale = torch.zeros(())
        scale += 2 * factor
        n = x.shape[-1]
        ctx.parts = scale, x, w, n, scale + n
        scale = scale - n
        return x * w * (scale + n) / n

    @staticmethod
    def backward(ctx, g):
        scale, x, w, n, more = ctx.parts
        return g * w * (more - n) / n, g * x * scale / n, None
""",
    "a list on ctx, read by its elements": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, w):
        h = x * 2
        h.mul_(3)
        ctx.parts = [h, w]
        h = h + 1
        return h * w

    @staticmethod
    def backward(ctx, g):
        parts = ctx.parts
        assert isinstance(parts, list)
        return 6 * g * ctx.parts[1], g * (parts[-2] + 1)
""",
    "a tuple on ctx in each branch": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        shape = x.size()
        if x.dim() == 1:
            kept = torch.full_like(x, 3)
            ctx.both = kept, shape
            return x * 3
        kept = x.new_full(shape, 2)
        ctx.both = (kept, shape)
        return x * kept

    @staticmethod
    def backward(ctx, g):
        kept, shape = ctx.both
        return (g * kept).reshape(shape)
""",
    "saved tensors by their old name": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_variables
        return g * w, g * x
""",
    "changed in place after its expression": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        h = torch.tanh(x)
        first = h[0]
        ctx.h, ctx.size = h, h.shape[0]
        first.mul_(2)
        return h * x.shape[0]

    @staticmethod
    def backward(ctx, g):
        h = ctx.h.clone()
        h[0] /= 2
        grad = g * (1 - h * h) * ctx.size
        grad[0] *= 2
        return grad
""",
    "a branch that raises": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x, factor: float = 2.0):
        if factor > -100:
            scale = factor
        else:
            raise ValueError("too small")
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None
""",
    "a text of several lines": """\
class Op(Function):
    @staticmethod
    def forward(ctx, x):
        text = '''
keeps
  its lines
'''
        return x * len(text)

    @staticmethod
    def backward(ctx, g):
        return g * 19
""",
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("case", in_every_run(CASES, [*CASES][::4]))
def test_it_is_adopted_and_proven(tmp_path: Path, case: str) -> None:
    outcome = adopt(tmp_path, HEAD + CASES[case], "--name", "again")
    assert outcome.code == 0 and COMPARED in outcome.err, outcome.err
    assert "new-op wants" not in outcome.err and "surrogate" not in outcome.err
    made = scaffold(tmp_path, "new-op", "again", "--spec", "again.toml", "--no-test")
    assert made.code == 0 and made.proven.startswith("proven: "), made.err


def test_imports_of_a_package_count_from_it(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "sub").mkdir(parents=True)
    for name in ("pkg/__init__.py", "pkg/sub/__init__.py"):
        (tmp_path / name).touch()
    (tmp_path / "pkg" / "parts.py").write_text("def twice(x):\n    return x * 2\n")
    code = CASES["apply in place of the class"].replace("x * 2", "twice(x)")
    path = tmp_path / "pkg" / "sub" / "ops.py"
    path.write_text(f"{HEAD}from ..parts import twice\n\n\n{code}")
    outcome = scaffold(tmp_path, "adopt", "pkg/sub/ops.py:op")
    assert outcome.code == 0 and COMPARED in outcome.err, outcome.err
    assert "from pkg.sub.ops import twice" in (tmp_path / "op_code.py").read_text()


def test_a_fault_of_the_author_has_its_line(tmp_path: Path) -> None:
    few = SCALE.replace("return grad_in, grad_w, None", "return grad_in, grad_w")
    outcome = adopt(tmp_path, HEAD + few)
    assert outcome.code == 1 and outcome.err.startswith("ops.py:24:9: ")
    assert "backward returns 2 gradients, and forward takes 3 inputs" in outcome.err
    for before, line in (("x * factor", 9), ("inp * ctx.factor", 23)):
        code = (HEAD + SCALE).replace(before, before.replace("*", "@ None *"))
        outcome = adopt(tmp_path, code, "--stdout")
        assert "note: not compared: ScaleFunction of ops.py " in outcome.err
        assert f"(line {line})\n" in outcome.err and "report" not in outcome.err


NUMPY = """\
class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(np.exp(x.detach().numpy()))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(g.numpy() * np.exp(x.detach().numpy()))
"""


@pytest.mark.parametrize("option", ["--verify", "--no-verify"])
def test_what_vmap_cannot_run_is_not_said_to_be_for_it(
    tmp_path: Path, option: str
) -> None:
    outcome = adopt(tmp_path, f"import numpy as np\n{HEAD}{NUMPY}", option)
    assert outcome.code == 0, outcome.err
    told = "it does not run under torch.func and vmap: raised RuntimeError"
    assert (told in outcome.err) is (option == "--verify")
    toml = (tmp_path / "exp.toml").read_text()
    assert "transforms" not in toml
