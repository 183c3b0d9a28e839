"""The known ops that reach, with the development cases, every part of the engine that any known op reaches.

In: nothing. Out: `REPRESENTATIVE`, the ops that run in every test run, each with its declared shapes or without them; the
first of them reach the most. Invariant: each is one of `tests/derive/ops_of_others.py` or `tests/derive/published`.

They are chosen again, which takes some minutes, by

    python -m tests.derive.representative

A part is a call of one function of the package from one line of another, a kind of input, a method or a keyword of the
forward, and what the notes say.
"""

import re
import sys
from types import FrameType

from scaffold.derive import derive
from tests.derive.building import spec_of
from tests.derive.cases import CASES, Case

UNDECLARED = " undeclared"
NAMES = """
steps_and_ends, masked_cut_pool, swin_window undeclared, lovasz_softmax_classes, bitnet_linear, sdpa_mask,
nt_xent_masked, minibatch_stddev, funnel_relu, linalg_mix, quality_focal undeclared, guided_attention_loss,
attention_dropout, diou, take_along_rank, cosine_norm_reduction, trilinear_voxel, nerf_raw2outputs undeclared,
spectral_norm_power, avg_max_pool, edge_attention_softmax, spherical_to_cartesian, smooth_one_hot_focal,
wing_by_parts, homography_dlt, rms_norm_cast, packed_qkv, muon_newton_schulz, sdpa_call, both_or_none, cosface,
so3_exp undeclared, modulate_demodulate undeclared, soft_exponential, stable_logit_diff, laplace_act, barlow,
cosformer, kabsch_cov undeclared, chamfer_cdist, nt_xent, causal_attention, sinkhorn_divergence, sort_gather_cvar,
zinb_log_prob, steps_and_ends undeclared, linspace_basis, si_sdr, group_norm_call undeclared, elif_on_strings,
special_functions, dtype_arguments, interpolated, performer_features, chebyshev_kan, nms_soft_scores undeclared,
superspike_adlif undeclared, equivariant_coordinates undeclared, triplet_margin, poly1_ce, gqa_repeat_interleave,
angle_between, umbrella_laplacian, take_along, complex_mix, unflatten_heads, xielu, vicreg, hyena_fftconv,
hilbert_envelope, label_smoothing undeclared, rotation_6d undeclared, tile_repeat undeclared, meta_acon undeclared,
kd_kl_div undeclared, linear_cka undeclared, fisheye_projection undeclared, geglu_split, group_norm_manual,
binary_entropy, rotary_complex, additive_attention, running_max, lif_step, functions_of_methods,
bilinear_pool_signed, drop_path, arcface_easy_margin, vq_commitment, gwd_rotated_boxes, splat_alpha,
lennard_jones_pairs, segment_logsumexp, spectral_norm undeclared, gumbel_softmax_hard, poisson_nll,
cross_entropy_call, tv_loss, linear_attention, smooth_min, discounted_returns, finite_difference, depthwise_conv,
fft_mixer, scatter_softmax, gat_edge_scores, unfold_windows, index_fill, keywords_in_odd_order, einsum_implicit,
complex_out, functional_dropout_eval, meshgrid_outer, assert_free_numel, hard_sigmoid_gate, bilinear_glu_gates,
sup_con, focal_tversky, kto, ssim_map, hf_rotate_half, alibi_slopes_bias, s4d_kernel, homography_warp_points,
shifted_lm_loss, topk_gating, fsq, entmax15, stft_magnitude_losses, bpr_with_l2, shifted_windows,
focused_linear_attention, thin_plate_spline, black_scholes_price, gated_channel_transform, sigmoid_focal_reduced,
boundary_loss, gnn_mean_aggregate, pointer_network_scores, knn_interpolate, log2_quant, take_along undeclared,
nt_xent_masked undeclared, crf_nll undeclared, homography_dlt undeclared, masked_cut_pool undeclared, funnel_relu
undeclared
"""
REPRESENTATIVE: list[tuple[str, bool]] = [
    (name.removesuffix(UNDECLARED), not name.endswith(UNDECLARED))
    for name in " ".join(NAMES.split()).split(", ")
]


def reached(case: Case, **options: str) -> set[str]:
    """The parts of the engine that the derivation of a case reaches, and what it is made of."""
    found: set[str] = set()

    def called(frame: FrameType, event: str, _: object) -> None:
        code, caller = frame.f_code, frame.f_back
        if event == "call" and "/scaffold/" in code.co_filename:
            inside = caller and "/scaffold/" in caller.f_code.co_filename
            line = caller.f_lineno if caller and inside else 0
            found.add(f"{code.co_filename} {code.co_qualname} {line}")

    raw = {"forward": case.forward, "outputs": case.outputs, **options}
    spec = spec_of(case.inputs, derive=True, **raw)
    sys.setprofile(called)
    try:
        derivation = derive(spec)
    finally:
        sys.setprofile(None)
    quoted = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\d+")
    found |= {f"says {quoted.sub('_', note)[:60]}" for note in derivation.notes}
    found |= {f"calls {name}" for name in re.findall(r"\.(\w+)\(", case.forward)}
    found |= {f"names {name}" for name in re.findall(r"(\w+)=", case.forward)}
    found |= {f"takes {type(item).__name__}" for item in spec.inputs}
    found |= {"takes an optional" for item in spec.tensors if item.optional}
    return found | {f"gives {len(spec.outputs) > 1}"}


def covering(candidates: dict[str, set[str]], given: set[str]) -> list[str]:
    """Few of the candidates that reach all that any of them reaches, beyond what is given."""
    wanted = set[str]().union(*candidates.values()) - given
    chosen = []
    while wanted:
        best = max(candidates, key=lambda name: len(candidates[name] & wanted))
        wanted -= candidates[best]
        chosen.append(best)
    return chosen


def main() -> None:
    from tests.derive.test_ops_of_others import BY_NAME, undeclared, variants

    policies = [{}, {"save_policy": "balanced"}]
    given = [reached(case, **options) for case in CASES for options in policies]
    candidates = {}
    for name, typed in variants(BY_NAME.values()):
        case = BY_NAME[name]
        if typed:
            candidates[name] = reached(case)
        else:
            inputs, outputs = undeclared(case.inputs), undeclared(case.outputs)
            weaker = case._replace(inputs=inputs, outputs=outputs)
            candidates[f"{name}{UNDECLARED}"] = reached(weaker)
    print(", ".join(covering(candidates, set().union(*given))))


if __name__ == "__main__":
    main()
