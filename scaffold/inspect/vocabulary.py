"""The words of torch that the analysis knows: what makes one fresh tensor, what changes one, what is a view.

Invariant: a word is here only if it has the one meaning for every tensor; a call that sometimes returns several
tensors, or its argument, is in none of the tables.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


POINTWISE = _words("""
    abs absolute acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh
    bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max
    clamp_min clip copysign cos cosh deg2rad digamma div divide elu erf erfc erfinv
    exp exp2 expm1 fix float_power floor floor_divide fmod frac gelu hardshrink
    heaviside hypot i0 lerp lgamma log log10 log1p log2 log_softmax logaddexp
    logical_and logical_not logical_or logical_xor logit masked_fill mul multiply
    mvlgamma nan_to_num neg negative nextafter polygamma pow prelu rad2deg
    reciprocal relu remainder round rsqrt selu sgn sigmoid sign sin sinc sinh
    softmax sqrt square sub subtract tan tanh tril triu true_divide trunc where
    xlogy
    """)
COMPARISONS = _words("""
    eq ge greater greater_equal gt isclose isfinite isinf isnan le less less_equal
    lt ne not_equal signbit
    """)
REDUCTIONS = _words("""
    amax amin argmax argmin count_nonzero cumprod cumsum dist logsumexp mean nanmean
    nansum norm prod std sum trace
    """)
PRODUCTS = _words("""
    addbmm addmm addmv addr baddbmm bilinear bmm conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d cross dot einsum ger inner
    kron linear matmul mm mv outer tensordot vdot
    """)
CREATIONS = _words("""
    arange as_tensor empty empty_like empty_strided eye from_numpy full full_like
    linspace logspace ones ones_like rand rand_like randint randint_like randn
    randn_like randperm tensor zeros zeros_like
    """)
REARRANGED = _words("""
    bincount bucketize cat clone concat embedding flip gather histc hstack index_add
    index_copy index_fill index_put index_select masked_select one_hot repeat
    repeat_interleave roll scatter scatter_add searchsorted stack take tile vstack
    """)
NEW = _words("""
    new_empty new_full new_ones new_tensor new_zeros
    """)
# One tensor, always; whether it shares memory is not said.
FRESH = POINTWISE | COMPARISONS | REDUCTIONS | PRODUCTS | CREATIONS | REARRANGED | NEW
VIEWS = _words("""
    as_strided detach diagonal expand expand_as moveaxis movedim narrow permute
    select squeeze swapaxes swapdims t transpose unfold unsqueeze view view_as
    """)
# One tensor, perhaps the very one that it is called on.
CONVERSIONS = _words("""
    adjoint bfloat16 bool conj contiguous cpu cuda double flatten float half int
    long ravel requires_grad_ reshape reshape_as sum_to_size to type type_as
    unflatten
    """)
ONE_TENSOR = FRESH | VIEWS | CONVERSIONS
# Cheap to know of a tensor, and no tensor.
SHAPELY = _words("""
    data_ptr device dim dtype element_size get_device is_complex is_contiguous
    is_cuda is_floating_point is_sparse item itemsize layout nbytes ndim ndimension
    nelement numel requires_grad shape size storage_offset stride tolist type
    """)
# Methods that change the tensor that they are called on.
CHANGES = _words("""
    abs_ absolute_ acos_ add_ addbmm_ addcdiv_ addcmul_ addmm_ addmv_ addr_ asin_
    atan2_ atan_ baddbmm_ bernoulli_ bitwise_and_ bitwise_not_ bitwise_or_
    bitwise_xor_ cauchy_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ copy_ cos_ cosh_
    cumprod_ cumsum_ div_ divide_ elu_ eq_ erf_ erfc_ erfinv_ exp_ expm1_
    exponential_ fill_ fill_diagonal_ float_power_ floor_ floor_divide_ fmod_ frac_
    ge_ geometric_ gt_ hypot_ index_add_ index_copy_ index_fill_ index_put_ le_
    leaky_relu_ lerp_ log10_ log1p_ log2_ log_ log_normal_ logical_and_ logical_not_
    logical_or_ logical_xor_ lt_ masked_fill_ masked_scatter_ mul_ multiply_
    nan_to_num_ ne_ neg_ negative_ normal_ pow_ put_ random_ reciprocal_ relu_
    remainder_ renorm_ resize_ resize_as_ round_ rsqrt_ scatter_ scatter_add_
    scatter_reduce_ set_ sgn_ sigmoid_ sign_ sin_ sinh_ sqrt_ square_ sub_ subtract_
    tan_ tanh_ threshold_ tril_ triu_ true_divide_ trunc_ uniform_ xlogy_ zero_
    """)
NAMESPACES = ("torch.", "torch.nn.functional.", "torch.special.", "torch.linalg.")
