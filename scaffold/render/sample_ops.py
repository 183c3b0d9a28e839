"""Sample ops for `scaffold templates lint`: together they have every part a template writes.

That command renders them with a team's templates, to find mistakes before an op is generated. Out: `sample_ops`. Invariant: each part (a
Module, a registered op, a jvp, ...) is present in one of them, and missing in another.
"""

from collections.abc import Iterator

from scaffold.spec import OpSpec
from scaffold.spec.build import build
from scaffold.spec.toml import read_ops

SOURCE = "a specimen"
TEXT = """
[ops.linear]
inputs = 'input[..., in_features], weight[out_features, in_features], bias[out_features]?'
forward = 'input @ weight.t() + bias'

[ops.unwritten]
inputs = 'input, weight, bias?'
once-differentiable = true

[ops.written_by_hand]
inputs = 'x, constant: float = 2.0'
forward = 'x * constant'
grad = { x = 'grad_output * constant' }
once-differentiable = true
style = 'combined'
module = false

[ops.silu_forward_mode]
inputs = 'x'
forward = 'x * torch.sigmoid(x)'
forward-ad = true

[ops.fused]
inputs = 'x'
forward = 'x * torch.sigmoid(x)'
kernels = ['triton']

[ops.library_of_kernels]
import = ['kernels:double_kernel']
inputs = 'x[N, D]'
outputs = 'y[N, D]'
forward = 'double_kernel(x)'
grad = { x = 'grad_output * 2' }
style = 'library'
transforms = false
"""


def sample_ops() -> Iterator[OpSpec]:
    """Yield the sample ops."""
    for entry in read_ops(TEXT, SOURCE):
        yield build(entry.name, entry.raw, entry.locate)
