"""Ops that, with those that `scaffold templates lint` renders, show every field of a view both present and missing."""

from collections.abc import Iterator

from scaffold.render.sample_ops import SOURCE, sample_ops
from scaffold.spec import OpSpec
from scaffold.spec.build import build
from scaffold.spec.toml import read_ops

SAMPLES = "def make():\n    return [(torch.randn(2), torch.randn(3))]\n"
TEXT = """
[ops.unwritten_positions]
inputs = 'x'
outputs = 'positions[...; int]'

[ops.nearest_code]
doc = 'Find the closest code of each row.'
inputs = 'x[N, D], codes[K, D]'
outputs = 'index[N; int]'
forward = 'torch.cdist(x, codes).argmin(-1)'

[ops.sort_last]
inputs = 'x[..., N; distinct]'
outputs = 'values[..., N], indices[..., N; int]'
forward = 'torch.sort(x, dim=-1)'
grad = { x = 'torch.zeros_like(x).scatter(-1, indices, grad_values)' }

[ops.exp_in_place]
inputs = 'x'
dirty = ['x']
forward = 'x.exp_()'
grad = { x = 'grad_output * output' }

[ops.sign_ste]
inputs = 'x'
forward = 'torch.sign(x)'
surrogate = 'x.clamp(-1, 1)'
grad = { x = 'grad_output * (x.abs() <= 1)' }

[ops.unit]
inputs = 'x[N, D]'
forward = 'x / x.norm(dim=-1, keepdim=True)'
once-differentiable = true

[ops.double_forward_mode]
inputs = 'x'
forward = 'x * 2'
forward-ad = true

[ops.silu_library]
inputs = 'x'
forward = 'x * torch.sigmoid(x)'
style = 'library'

[ops.silu_sharded]
inputs = 'x, gate'
forward = 'x * torch.sigmoid(gate)'
style = 'library'
sharding = '..., ... -> ...'

[ops.library_of_kernel_pair]
import = ['kernels:double_kernel']
inputs = 'x[N, D]'
outputs = 'y[N, D]'
forward = 'double_kernel(x)'
grad = { x = 'double_kernel(grad_output)' }
style = 'library'

[ops.sum_tensors]
inputs = '*tensors'
forward = 'torch.stack(tensors).sum(0)'
grad = { tensors = 'grad_output' }

[ops.split_rows]
inputs = 'x[N, D]'
outputs = '*rows'
forward = 'x.unbind(0)'
grad = { x = 'torch.stack(grad_rows)' }

[ops.dropped]
inputs = 'x[N; nonzero], p: float = 0.5'
forward = '''
keep = torch.rand_like(x) > p
return x * keep / (1 - p)
'''
transforms = true

[ops.masked]
inputs = 'x[N], mask[N; bool], frozen: bool = False'
forward = 'x.detach() * mask if frozen else x * mask'

[ops.centre]
inputs = 'x[N, D], running_mean[D; const], momentum: float = 0.1'
forward = 'x - running_mean'
buffers = ['running_mean']
update.running_mean = 'torch.lerp(running_mean, x.mean(0), momentum)'

[ops.by_kernels]
import = ['kernels:forward_kernel', 'kernels:backward_kernel']
inputs = 'x[..., D], weight[D; nonzero], group: torch.distributed.ProcessGroup = None'
forward = 'forward_kernel(x, weight)'
backward = 'grad_x, grad_weight = backward_kernel(grad_output, x, weight)'
transforms = false

[ops.inverse_of]
inputs = 'matrix[N, N; spd]'
forward = 'torch.linalg.inv(matrix)'
tolerance = { atol = 1e-3 }

[ops.picked]
inputs = 'x[N, 4], target[N; index(4)]'
forward = '(x * torch.nn.functional.one_hot(target, 4)).sum(-1)'
grad = { x = 'grad_output.unsqueeze(-1) * torch.nn.functional.one_hot(target, 4)' }

[ops.turned]
inputs = 'z[N; complex]'
forward = 'z * 1j'
grad = { z = 'grad_output * -1j' }
once-differentiable = true

[ops.sampled]
inputs = 'x, y'
forward = 'x.sum() * y'
samples = '@samples.py:make'

[ops.keyword_only]
schema = 'keyword_only(Tensor x, *, float alpha=1.0) -> Tensor'
forward = 'x * alpha'
"""


def specimens() -> Iterator[OpSpec]:
    """All of them."""
    yield from sample_ops()
    for entry in read_ops(TEXT, SOURCE):
        yield build(entry.name, entry.raw, entry.locate, read=lambda path: SAMPLES)
