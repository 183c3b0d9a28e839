"""Ops as the libraries and papers that they are taken from write them; none was at hand when the engine was made.

In: nothing. Out: `PUBLISHED`, each with its signature, its forward and the inputs of several calls. Invariant: an op needs
nothing but torch.
"""

from tests.derive.cases import Case
from tests.derive.published.activations import ACTIVATIONS, NORMS
from tests.derive.published.attention import ATTENTION
from tests.derive.published.cameras import CAMERAS
from tests.derive.published.checked import CHECKED
from tests.derive.published.densities import DENSITIES
from tests.derive.published.gates import GATES, LATER_NORMS
from tests.derive.published.gathers import GATHERS
from tests.derive.published.geometry import GEOMETRY
from tests.derive.published.loops import LOOPS
from tests.derive.published.losses import CLASSES
from tests.derive.published.mixers import MIXERS
from tests.derive.published.quantisation import QUANTISATION
from tests.derive.published.recent import RECENT
from tests.derive.published.recurrences import RECURRENCES
from tests.derive.published.regression import REGRESSION
from tests.derive.published.rendering import RENDERING
from tests.derive.published.rotations import ROTATIONS
from tests.derive.published.rounding import ROUNDING
from tests.derive.published.scans import SCANS
from tests.derive.published.scatters import SCATTERS
from tests.derive.published.sciences import SCIENCES
from tests.derive.published.signals import SIGNALS
from tests.derive.published.spikes import SPIKES
from tests.derive.published.training import TRAINING

PUBLISHED: tuple[Case, ...] = (
    *(*ACTIVATIONS, *NORMS, *CLASSES, *REGRESSION, *ATTENTION, *RECURRENCES),
    *(*GEOMETRY, *RENDERING, *GATHERS, *QUANTISATION),
    *(*GATES, *LATER_NORMS, *DENSITIES, *MIXERS, *ROTATIONS, *CAMERAS),
    *SCIENCES,
    *RECENT,
    *(*CHECKED, *SCANS, *SCATTERS, *ROUNDING, *SPIKES, *SIGNALS, *TRAINING),
    *LOOPS,
)

# Something is detached on the way, so that the gradient is not that of finite differences.
DETACHED = frozenset(
    {"atan_surrogate", "berhu", "bitnet_linear", "ciou", "circle_loss", "dorefa_weight"}
    | {"fake_quant_channel", "fsq", "lookup_free_quant", "performer_features"}
    | {"retnet_parallel", "superspike_adlif", "vq_commitment"}
    | {"advantages_without_gradients", "gumbel_sigmoid", "beta_nll"}
    | {"alif_step", "binary_connect_xnor", "fake_quant_affine", "gumbel_vq"}
    | {"learned_lookup_quant", "lif_step_soft_reset", "log2_quant", "lsq_plus"}
    | {"pact_dorefa_act", "rvq_stage", "scale_grad_detach", "smooth_quant_linear"}
    | {
        "gae_loss",
        "quantile_huber",
        "teacher_by_addition",
        "ttq_ternary",
        "vq_ema_free",
    }
)
