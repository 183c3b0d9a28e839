"""What of a tensor is a Python value, and no tensor: its sizes, its dtype, numbers that are read out of it.

In: the last word of a call or an attribute. Out: sets of such words. Invariant: what is called so is no tensor, whatever it is asked of.
"""

# What describes a tensor, whatever its elements are; of a method also the attribute that says as much.
METADATA = frozenset({"shape", "dtype", "device", "ndim"})
METADATA_METHODS = {
    "size": "shape",
    "dim": "ndim",
    "ndimension": "ndim",
    "numel": "shape",
    "nelement": "shape",
}
ATTRIBUTES = METADATA | frozenset(
    {"is_cuda", "is_sparse", "itemsize", "layout", "nbytes", "requires_grad"}
)
# Python values of a tensor's data, through which no gradient flows.
READ_OUT = frozenset({"allclose", "equal", "is_nonzero", "item", "tolist"})
METHODS = (
    READ_OUT
    | METADATA_METHODS.keys()
    | {"data_ptr", "element_size", "get_device", "is_complex", "is_conj"}
    | {"is_contiguous", "is_floating_point", "is_neg", "is_pinned", "is_same_size"}
    | {"is_set_to", "is_signed", "storage_offset", "stride"}
)
# Of torch alone, no methods of a tensor.
FUNCTIONS = frozenset(
    {"broadcast_shapes", "can_cast", "device", "finfo", "get_default_dtype", "iinfo"}
    | {"is_grad_enabled", "is_tensor", "promote_types", "result_type", "Size"}
)
