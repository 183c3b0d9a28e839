"""The table of the names that formulas may say: `python -m tests.formula.make_torch_names`.

In: the PyTorch and the NumPy of this environment. Out: `scaffold/formula/torch_names.txt`. Invariant: an operator is what
computes from its arguments alone: whatever reads or writes files, loads code, or changes the state of the process is none.
"""

import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy
import torch
import torch.masked
import torch.nn.functional as F
import torch.signal.windows
from torch.overrides import get_overridable_functions

TABLE = Path("scaffold", "formula", "torch_names.txt")
WIDTH = 120
HEADER = """\
# The names that a formula may say, and those that it may not, of PyTorch {torch} and NumPy {numpy}.
# Made by: python -m tests.formula.make_torch_names
"""

# Of what PyTorch makes from its list of operators: files, pointers, state, and what is there for tests alone.
NO_OPERATORS = frozenset(
    {"from_file", "_from_blob", "_cufft_set_plan_cache_max_size", "_print"}
    | {"_cufft_clear_plan_cache", "_debug_has_internal_overlap", "_foobar"}
    | {"_sync", "init_num_threads"}
)
TESTED = "_test_"
# Beside those: functions of Python's, types, constants, and questions about the process.
TORCH = frozenset(
    {
        "broadcast_shapes",
        "broadcast_tensors",
        "cond",
        "from_dlpack",
        "get_default_dtype",
    }
    | {"is_autocast_enabled", "is_grad_enabled", "is_inference_mode_enabled"}
    | {"is_tensor", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not"}
    | {"sym_sqrt", "sym_sum", "unravel_index", "vmap", "while_loop", "lobpcg"}
    | {"pca_lowrank", "svd_lowrank", "_assert", "_check", "_check_index"}
    | {"_check_is_size", "_check_value", "_check_type", "_segment_reduce"}
    | {"_sym_acos", "_sym_asin", "_sym_atan", "_sym_cos", "_sym_cosh", "_sym_log2"}
    | {"_sym_sin", "_sym_sinh", "_sym_sqrt", "_sym_tan", "_sym_tanh"}
    | {"Generator", "Size", "SymBool", "SymFloat", "SymInt", "Tensor", "autocast"}
    | {"device", "dtype", "enable_grad", "finfo", "iinfo", "inference_mode"}
    | {"layout", "memory_format", "no_grad", "qscheme"}
    | {"e", "inf", "nan", "newaxis", "pi", "typename"}
    | {"BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor"}
    | {"FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor"}
)
CONSTANTS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
# Methods and attributes of a tensor that are no maths: memory that others hold, state, hooks, functions of Python's.
NO_METHODS = frozenset(
    {"apply_", "as_subclass", "backward", "const_data_ptr", "data", "grad"}
    | {"grad_dtype", "grad_fn", "is_shared", "map2_", "map_", "module_load", "name"}
    | {"output_nr", "record_stream", "register_hook", "reinforce", "retain_grad"}
    | {"register_post_accumulate_grad_hook", "retains_grad", "set_", "share_memory_"}
    | {"storage", "storage_type", "untyped_storage", "volatile"}
)
PRIVATE_METHODS = frozenset(
    {"_addmm_activation", "_coalesced_", "_conj", "_conj_physical", "_indices"}
    | {"_is_all_true", "_is_any_true", "_is_view", "_is_zerotensor", "_neg_view"}
    | {"_nnz", "_to_dense", "_to_sparse", "_values", "_version"}
)
# Of NumPy: files, state, functions that are given functions.
NO_NUMPY = frozenset(
    {"apply_along_axis", "apply_over_axes", "asmatrix", "bmat", "busdaycalendar"}
    | {"errstate", "from_dlpack", "fromfile", "frompyfunc", "fromregex", "genfromtxt"}
    | {"get_include", "get_printoptions", "getbufsize", "geterr", "geterrcall", "info"}
    | {"load", "loadtxt", "matrix", "memmap", "nditer", "ndindex", "nested_iters"}
    | {"piecewise", "printoptions", "recarray", "record", "save", "savetxt", "savez"}
    | {"savez_compressed", "set_printoptions", "setbufsize", "seterr", "seterrcall"}
    | {"show_config", "show_runtime", "test", "vectorize", "fromstring", "fromiter"}
    | {"fromfunction", "array_repr", "array_str", "array2string", "chararray"}
    | {"flatiter", "broadcast", "object_", "void", "poly1d", "typename"}
    | {"format_float_positional", "format_float_scientific", "get_printoptions"}
)
# What draws; whoever draws is not to seed.
NO_DRAWS = frozenset({"get_state", "seed", "set_state"})
# What makes a function of a function: a gradient that is stated may take one.
TRANSFORMS = frozenset(
    {"grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize"}
    | {"vjp", "vmap"}
)
NO_ARRAY = frozenset(
    {"base", "byteswap", "ctypes", "data", "dump", "dumps", "flags"}
    | {"getfield", "newbyteorder", "setfield", "setflags", "tobytes", "tofile"}
    | {"tostring", "to_device"}
)
# Of what else a formula holds: strings, lists, tuples, numbers, dtypes, devices.
PYTHON = frozenset(
    {"lower", "upper", "strip", "startswith", "endswith", "split", "join", "replace"}
    | {"removeprefix", "removesuffix", "isdigit", "isalpha", "format"}
    | {"append", "clear", "copy", "count", "extend", "index", "insert", "pop"}
    | {"remove", "reverse", "sort"}
    | {"real", "imag", "conjugate", "is_integer", "bit_length", "numerator"}
    | {"denominator", "numel", "value"}
    | {"bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"}
    | {"is_complex", "is_floating_point", "is_signed", "itemsize", "to_complex"}
    | {"to_real", "type", "index"}
)
SPACES = (
    "linalg",
    "special",
    "fft",
    "sparse",
    "masked",
    "signal.windows",
    "nested",
    "nn.grad",
    "nn.init",
)


def table() -> str:
    """The text of the file."""
    versions = {
        "torch": torch.__version__.partition("+")[0],
        "numpy": numpy.__version__,
    }
    return HEADER.format(**versions) + "".join(map(_section, _sections()))


def _section(section: tuple[str, set[str], set[str]]) -> str:
    """A namespace: what formulas may say of it, and what else it has."""
    name, operators, others = section
    return f"\n[{name}]\n{_filled(operators)}\n[not {name}]\n{_filled(others)}\n"


def _filled(names: Iterable[str]) -> str:
    lines, line = [], ""
    for name in sorted(names):
        if line and len(line) + len(name) + 1 > WIDTH:
            lines.append(line)
            line = ""
        line = f"{line} {name}" if line else name
    return "\n".join([*lines, line])


def _sections() -> Iterator[tuple[str, set[str], set[str]]]:
    yield "torch", *_of_torch()
    yield "torch.nn.functional", *_split(F, _is_functional)
    yield "torch.nn", *_split(torch.nn, _is_layer)
    for name in SPACES:
        space: Any = torch
        for part in name.split("."):
            space = getattr(space, part)
        known = {item.__name__ for item in get_overridable_functions().get(space, ())}
        yield f"torch.{name}", *_split(space, _is_function, known)
    yield "torch.func", set(TRANSFORMS), _names(torch.func) - TRANSFORMS
    yield "values", *_of_values()
    own = set(numpy.__all__) - NO_NUMPY - _below(numpy)
    yield "numpy", own, _names(numpy) - own
    for name in ("linalg", "fft"):
        space = getattr(numpy, name)
        listed = set(space.__all__) - {"test", "LinAlgError"}
        yield f"numpy.{name}", listed, _names(space) - listed
    draws = set(numpy.random.__all__) - NO_DRAWS
    draws = {name for name in draws if name.islower()}  # no generators
    yield "numpy.random", draws, _names(numpy.random) - draws


def _names(space: Any) -> set[str]:
    """The names of a module or a class; those of modules below it whether or not something has imported them."""
    names = {*dir(space), *_below(space)}
    return {name for name in names if not name.startswith("__")}


def _below(space: Any) -> set[str]:
    return {item.name for item in iter_modules(getattr(space, "__path__", ()))}


def _split(
    space: Any, is_operator: Any, more: Iterable[str] = ()
) -> tuple[set[str], set[str]]:
    """The operators of a module, and its other names."""
    names = _names(space)
    found = {name for name in names if is_operator(name, vars(space).get(name))}
    found |= names & set(more)
    return found, names - found


def _of_torch() -> tuple[set[str], set[str]]:
    made = _names(torch._C._VariableFunctions)
    made = {name for name in made - NO_OPERATORS if not name.startswith(TESTED)}

    def is_operator(name: str, item: Any) -> bool:
        listed = name in made or name in TORCH or isinstance(item, CONSTANTS)
        return listed or getattr(item, "__module__", None) == "torch.functional"

    return _split(torch, is_operator)


def _is_functional(name: str, item: Any) -> bool:
    if isinstance(item, types.BuiltinFunctionType):
        return item.__module__ in ("torch", "torch._C._nn")
    plain = isinstance(item, types.FunctionType)
    return plain and item.__module__ == "torch.nn.functional" or name.endswith("Type")


def _is_layer(name: str, item: Any) -> bool:
    """Whether it is a layer, which is no more than what its `forward` does."""
    return (
        isinstance(item, type)
        and issubclass(item, torch.nn.Module)
        and item is not torch.nn.Module
    )


def _is_function(name: str, item: Any) -> bool:
    module = getattr(item, "__module__", "") or ""
    kinds = (types.FunctionType, types.BuiltinFunctionType)
    own = module.startswith(tuple(f"torch.{name.split('.')[0]}" for name in SPACES))
    builtin = isinstance(item, types.BuiltinFunctionType)
    named = not name.startswith("_") and "docstr" not in name
    return named and isinstance(item, kinds) and (own or builtin)


def _of_values() -> tuple[set[str], set[str]]:
    """Methods and attributes, of whatever a formula may hold."""
    tensor, array = _names(torch.Tensor), _names(numpy.ndarray)
    public = {name for name in tensor if not name.startswith("_")} - NO_METHODS
    found = public | (tensor & PRIVATE_METHODS) | PYTHON
    found |= (array - NO_ARRAY) - NO_METHODS
    for name in dir(torch.return_types):
        item = getattr(torch.return_types, name)
        if isinstance(item, type):
            found |= {field for field in dir(item) if not field.startswith(("_", "n_"))}
    found |= {"eigenvalues", "eigenvectors", "sign", "logabsdet"}
    return found, (tensor | array) - found


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
