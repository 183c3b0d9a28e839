"""Python values read from a tensor: its sizes, its dtype, numbers in it; and the names of dtypes.

By them `x.shape` and `x.item()` are known to be no tensors, so no gradient flows through them. In: the last word of a call or an
attribute. Out: sets of such words. Invariant: a word in these sets never names a
tensor, whatever value it is read from.
"""

from collections.abc import Mapping
from typing import Literal

# Descriptions independent of the elements; each method with the equivalent attribute.
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
# Python values of a tensor's data, with no gradient through them.
READ_OUT = frozenset({"allclose", "equal", "is_nonzero", "item", "tolist"})
METHODS = (
    READ_OUT
    | METADATA_METHODS.keys()
    | {"data_ptr", "element_size", "get_device", "is_complex", "is_conj"}
    | {"is_contiguous", "is_floating_point", "is_neg", "is_pinned", "is_same_size"}
    | {"is_set_to", "is_signed", "storage_offset", "stride"}
)
# Functions of torch without a method.
FUNCTIONS = frozenset(
    {"broadcast_shapes", "can_cast", "device", "finfo", "get_default_dtype", "iinfo"}
    | {"is_grad_enabled", "is_tensor", "promote_types", "result_type", "Size"}
)
# Names of torch's dtypes, each with the kind of its numbers.
DTYPES: Mapping[str, Literal["int", "real", "complex", "bool"]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8"), "int"),
    **dict.fromkeys(("short", "int", "long"), "int"),
    **dict.fromkeys(("float16", "float32", "float64", "bfloat16"), "real"),
    **dict.fromkeys(("half", "float", "double"), "real"),
    **dict.fromkeys(("complex64", "complex128", "cfloat", "cdouble"), "complex"),
    "bool": "bool",
}
