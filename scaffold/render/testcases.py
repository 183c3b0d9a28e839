"""The inputs of the generated test: how `make` makes them, and their sizes.

`testfile.py` puts them into the class of an op's tests; a proof uses the same (`verification.py`). In: an `OpSpec`. Out: `Making`, the
parameters and the body of `make` and the arguments of its cases.
Invariant: the defaults of `make` satisfy `require`, and so does every case.

Words: `make` is the function of the test that makes the inputs; a case is a name and the arguments of `make` for it, as code:
`"other-sizes": {"N": 4}`; leading dims are any number of dims, `...` or `*batch`; a *choice* is an attribute with a `Literal[...]` type; a
*sample* is a call given by the user's own function, instead of `make`; a variadic input is any number of tensors, `*tensors`; a group of
*absent* inputs, optional ones passed as None, is *taken* if the forward may accept it.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from scaffold.formula import refuses
from scaffold.render.imports import KNOWN
from scaffold.render.kept_forward import may_be_number
from scaffold.render.testlimits import never_empty
from scaffold.render.testsizes import allows, choose_sizes, input_dims
from scaffold.render.testvalues import (
    attribute_value,
    choices,
    label,
    literal,
    tensor_expression,
)
from scaffold.spec import (
    ANY_DIMS,
    Attribute,
    Dim,
    Import,
    OpSpec,
    TensorInput,
    is_leading,
    is_size_name,
    leading,
)
from scaffold.spec.op_spec import SHARDING

# --- Names in the generated test file.
#
# In: an `OpSpec`. Out: the names of the op in the file, and the names in use.
# Invariant: no name of the user's hides a name the file itself needs.


LIBRARY = (
    *KNOWN,
    *(Import(name) for name in ("contextlib", "copy", "gc", "itertools", "pickle")),
    *(Import(name) for name in ("os", "pytest", "re", "subprocess", "sys", "types")),
    Import("weakref"),
    *(
        Import("collections.abc", name)
        for name in ("Collection", "Iterable", "Iterator")
    ),
    Import("pathlib", "Path"),
    Import("typing", "ClassVar"),
    Import("typing", "TypeVar"),
    Import("torch.autograd", "gradcheck"),
    Import("torch.autograd", "gradgradcheck"),
    Import("torch.testing", "assert_close"),
)
MAKERS = ("distinct", "in_double", "mask", "nonzero", "spd")
# Imported by a test from `op_testing`, or held by the test itself.
SHARED = ("Case", "Cases", "ModuleTests", "OpTests", "Options", *MAKERS)
HELPERS = frozenset(
    {"CONDITIONS", "Inputs", "Questions", "Test", "WARNINGS", "as_tuple", "asked_if"}
    | {
        "gradients",
        "holds",
        "is_real",
        "permuted",
        "shard",
        "strided",
        "unshard",
        "unwritten",
        *SHARED,
    }
    # Names in a proof, as it has the same class.
    | {"backpropagating", "call_recorder", "make", "making", "needs_of", "on_copy"}
    | {"prepared", "recording", "true_forward"}
    | {item.binding for item in LIBRARY}
)


def tuple_of(items: Iterable[str]) -> str:
    """Return the source of a tuple of these items."""
    listed = [*items]
    return f"({', '.join(listed)}{',' * (len(listed) == 1)})"


def op_imports(spec: OpSpec, module: str) -> tuple[Import, ...]:
    """Return the imports of the Function, the wrapper, the sharding rule and the module, each under a free name."""
    names = [spec.function_name, spec.name, *([SHARDING] if spec.sharding else [])]
    names += [spec.module_name] if spec.module is not None else []
    imports = [Import(module, name, _alias(name)) for name in names]
    # The wrapper's alias is the name of the op itself in library style.
    if imports[1].alias == spec.function_name:
        imports[1] = Import(module, spec.name, f"call_{spec.name}")
    return tuple(imports)


def samples_name(spec: OpSpec) -> str:
    """Return the name for the user's function of samples, changed if it would hide a helper."""
    name = spec.samples.function if spec.samples is not None else ""
    # The test imports the op by its name, which a function so named would hide.
    return "sample_inputs" if name in HELPERS or name == spec.name else name


def _alias(name: str) -> str | None:
    """Return a new name for one of the op's, hiding a helper of the test file: `CaseOp`, `mask_op`; None if it hides none."""
    if name not in HELPERS:
        return None
    return f"{name}Op" if name[:1].isupper() else f"{name}_op"


# --- The inputs of the generated test, and their sizes.


VARIADIC = 3  # tensors of a variadic input
BATCH = 2  # the leading dim
SHAPE = "(2, 3)"  # of inputs without declared dims, by default
CROSSED = 3  # optionals up to which every combination is a case
RESERVED = frozenset(  # names used by `make` or its callers
    {"F", "absent", "batch", "closed", "count", "device", "dtype", "index", "inputs"}
    | {"layout"}
    | {"mask", "name", "needs", "sample", "seed", "self", "shape", "single", "value"}
)


class Making(NamedTuple):
    """The pieces of `make`, and of the cases calling it."""

    parameters: tuple[str, ...]  # sizes and choices, with defaults
    items: tuple[str, ...]  # of the dict of inputs: `"input": torch.randn(...)`
    names: tuple[str, ...]  # of the tensors with a gradient, as the dict has them
    cases: tuple[str, ...]  # items of the dict of cases
    empty: tuple[str, ...]  # those with a size of 0
    broadcast: tuple[str, ...]  # those with one input broadcasting
    sizes: dict[str, str]  # of the named dims
    shapes: dict[str, str]  # of the tensors, for a module taking a whole shape


def plan_making(spec: OpSpec) -> Making:
    """Return the pieces of `make` and of its cases: everything depending on shapes, dtypes and domains."""
    if spec.samples is not None:
        return _sampled(spec)
    first = 3 if leading_names(spec) else 2  # unlike the leading dim, which is 2
    sizes = choose_sizes(spec, first=first)
    others = choose_sizes(spec, first=first + 1)
    batch = _batch(spec, sizes)
    parameters = _parameters(spec, sizes)
    return Making(
        parameters=tuple(
            f"{name}: {kind} = {value}" for name, kind, value in parameters
        ),
        items=tuple(_items(spec)),
        names=differentiable_names(spec),
        cases=tuple(
            f"{literal(name)}: {{{text}}}"
            for name, text in (
                *_cases(spec, batch),
                *_other_sizes(sizes, others),
            )
        ),
        empty=tuple(
            f"{literal(name)}: {{{text}}}" for name, text in _empty_cases(spec, sizes)
        ),
        broadcast=tuple(
            f"{literal(name)}: {{{text}}}" for name, text in _broadcast_cases(spec)
        ),
        sizes={name: str(size) for name, size in sizes.items()},
        shapes={item.name: _made(spec, item, sizes) for item in spec.tensors},
    )


def _batch(spec: OpSpec, sizes: dict[str, int]) -> tuple[int, int]:
    """Return two leading dims for a case with more of them; they are equal if some input declares no dims.

    Else the second is unlike all `sizes`, so that a mistaken dim shows.
    """
    other = next(size for size in range(3, 99) if size not in sizes.values())
    # Of `q[2, 3]` and `k[2, 3]` the product `q @ k.mT` is 2 by 2: a mask `[...]` has to fit.
    return (BATCH, BATCH if _shared_shape(spec) else other)


def _shape(spec: OpSpec) -> str:
    """Return the shape of inputs without declared dims: a scalar's if others have dims, as it broadcasts with all."""
    dims = (dim for item in spec.tensors for dim in input_dims(spec, item.name))
    return SHAPE if all(map(is_leading, dims)) else "()"


def _made(spec: OpSpec, item: TensorInput, sizes: dict[str, int]) -> str:
    """Return the default shape of an input in `make`."""
    dims = spec.tested_dims(item.name)
    if dims is None:
        return _shape(spec)
    # By default all leading dims are one dim.
    known = dict.fromkeys(leading_names(spec), BATCH) | sizes
    return str(tuple(known[dim] if isinstance(dim, str) else dim for dim in dims))


def _sampled(spec: OpSpec) -> Making:
    """Return the pieces of a test with the user's own inputs: a case is the number of a sample."""
    every = f"range(len(list({samples_name(spec)}())))"
    return Making(
        parameters=("sample: int = 0",),
        items=(),
        names=differentiable_names(spec),
        cases=(f'f"sample-{{index}}": {{"sample": index}} for index in {every}',),
        empty=(),
        broadcast=(),
        sizes=_sampled_sizes(spec),
        shapes={
            item.name: f"inputs[{spec.index(item.name)}].shape" for item in spec.tensors
        },
    )


def _sampled_sizes(spec: OpSpec) -> dict[str, str]:
    """Return the named dims as expressions of a sample's inputs: `inputs[0].shape[-1]`, of the first tensor having the dim."""
    sizes: dict[str, str] = {}
    for item in spec.tensors:
        dims = spec.tested_dims(item.name) or ()
        for axis, dim in enumerate(dims):
            # Behind leading dims, counted from the end.
            position = axis - len(dims) if leading(dims[:axis]) else axis
            if is_size_name(dim):
                sizes.setdefault(
                    dim, f"inputs[{spec.index(item.name)}].shape[{position}]"
                )
    return sizes


def differentiable_names(spec: OpSpec) -> tuple[str, ...]:
    """Return the names in the tests of the tensors with a gradient: `tensors[0]`, `tensors[1]` for a variadic input."""
    # If no output has a gradient, `spec.differentiable` is empty: those that could have one.
    listed = spec.differentiable or tuple(t for t in spec.tensors if t.differentiable)
    count = element_count(spec)
    return tuple(name for item in listed for name in element_names(item, count))


def element_count(spec: OpSpec) -> int:
    """Return the number of tensors the tests assume for a variadic input; a user's sample is only known to have one."""
    return VARIADIC if spec.samples is None else 1


def element_names(item: TensorInput, count: int) -> tuple[str, ...]:
    """Return the names of an input's tensors: `tensors[0]`, `tensors[1]`, ... for a variadic one."""
    if not item.variadic:
        return (item.name,)
    return tuple(f"{item.name}[{position}]" for position in range(count))


def size_name(name: str) -> str:
    """Return the parameter of `make` for a dim or a choice."""
    return f"{name}_size" if name in RESERVED else name


def leading_names(spec: OpSpec) -> dict[str, str]:
    """Return the parameter of `make` for each of the leading dims: `batch` for those without a name."""
    dims = [dim for item in spec.tensors for dim in spec.tested_dims(item.name) or ()]
    return {str(dim): _leading_name(str(dim), dims) for dim in filter(is_leading, dims)}


def _leading_name(dim: str, dims: Sequence[Dim]) -> str:
    """Return the parameter of `make` for leading dims: `batch` for `...` or `*batch`, else their name, changed if `make` uses it."""
    # Beside `...`, `*batch` is `batch_dims`.
    if dim == ANY_DIMS or (dim == "*batch" and ANY_DIMS not in dims):
        return "batch"
    name = dim.removeprefix("*")
    return f"{name}_dims" if name in RESERVED else name


def leading_arguments(spec: OpSpec, sizes: tuple[int, ...]) -> str:
    """Return the arguments of `make` for these leading dims, the same ones for every name."""
    return ", ".join(f'"{name}": {sizes}' for name in leading_names(spec).values())


def _parameters(spec: OpSpec, sizes: dict[str, int]) -> list[tuple[str, str, str]]:
    """Return the parameters of `make`, each with its type and default: leading dims, sizes, counts, choices."""
    several = "tuple[int, ...]"
    listed = [(name, several, f"({BATCH},)") for name in leading_names(spec).values()]
    if _shared_shape(spec):
        listed.append(("shape", several, _shape(spec)))
    listed += [(size_name(name), "int", str(size)) for name, size in sizes.items()]
    if any(item.variadic for item in spec.tensors):
        listed.append(("count", "int", str(VARIADIC)))
    chosen = [item for item in spec.attributes if choices(item)]
    values = [(size_name(item.name), attribute_value(spec, item)) for item in chosen]
    return listed + [(name, _kind(value), value) for name, value in values]


def _kind(literal: str) -> str:
    """Return the type of a choice, the source of one value of a `Literal[...]`."""
    match ast.parse(literal, mode="eval").body:
        case ast.Constant(value=bool() | int() | str() as value):
            return type(value).__name__
    return "Any"


def _shared_shape(spec: OpSpec) -> bool:
    """Return whether inputs without declared dims share one shape in the tests."""
    return any(spec.tested_dims(item.name) is None for item in spec.tensors)


def takes_shape(spec: OpSpec) -> bool:
    """Return whether `make` takes the shape of inputs without declared dims."""
    return _shared_shape(spec) and _shape(spec) == SHAPE


def _items(spec: OpSpec) -> Iterator[str]:
    """Yield the items of the dict `make` returns: `"x": torch.randn(...)`, for a variadic input a comprehension."""
    for item in spec.inputs:
        if isinstance(item, Attribute):
            yield f'"{item.name}": {_attribute(spec, item)}'
        elif item.variadic:
            key = f'f"{item.name}[{{index}}]"'
            yield f"**{{{key}: {_tensor(spec, item)} for index in range(count)}}"
        else:
            yield f'"{item.name}": {_tensor(spec, item)}'


def masks(spec: OpSpec) -> tuple[TensorInput, ...]:
    """Return the masks to be False everywhere in some case."""
    # Masks in the user's samples stay as they are.
    if spec.samples is not None:
        return ()
    return tuple(
        item for item in spec.tensors if item.dtype == "bool" and not item.variadic
    )


def _attribute(spec: OpSpec, item: Attribute) -> str:
    """Return the value of an attribute; a choice, or a size named in dims, is a parameter of `make`."""
    named = any(item.name in input_dims(spec, tensor.name) for tensor in spec.tensors)
    return (
        size_name(item.name) if named or choices(item) else attribute_value(spec, item)
    )


def _tensor(spec: OpSpec, item: TensorInput) -> str:
    """Return the expression making a tensor in `make`."""
    dims = spec.tested_dims(item.name)
    starred = {dim: f"*{name}" for dim, name in leading_names(spec).items()}
    sizes = ("*shape",) if dims is None else tuple(_size(dim, starred) for dim in dims)
    # Integers without a stated bound are 0 and 1.
    bound = _size(2 if item.bound is None else item.bound, starred)
    return tensor_expression(item, sizes, bound)


def _size(dim: Dim, starred: Mapping[str, str]) -> str:
    """Return a dim in the arguments of a tensor's maker: a number, a parameter, or a starred one for leading dims."""
    if isinstance(dim, int):
        return str(dim)
    return starred[dim] if dim in starred else size_name(dim)


def _cases(spec: OpSpec, batch: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """Yield the name and the arguments of `make` for each case of a test: absent inputs, more leading dims, other choices."""
    yield "base", ""
    for absent in absences(spec):
        listed = ", ".join(f'"{name}"' for name in absent)
        yield f"without-{'-'.join(absent)}", f'"absent": [{listed}]'
    if leading_names(spec):
        yield "higher-rank", leading_arguments(spec, batch)
        yield "no-batch", leading_arguments(spec, ())
    if any(item.variadic for item in spec.tensors):
        yield "one-tensor", '"count": 1'
    for item in spec.attributes:
        for value in choices(item):
            # That value is the default of `make`, so "base" has it.
            if value != attribute_value(spec, item):
                yield f"{item.name}={label(value)}", f'"{size_name(item.name)}": {value}'


def _other_sizes(
    usual: dict[str, int], others: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield a case with a second size for every named dim.

    With a size of 2 alone, a constant 2 could stand for the size or, as a factor, for its square.
    """
    changed = {name: size for name, size in others.items() if size != usual[name]}
    if changed:
        yield "other-sizes", size_arguments(changed)


def size_arguments(sizes: Mapping[str, int]) -> str:
    """Return the arguments of `make` for these sizes."""
    return ", ".join(f'"{size_name(name)}": {size}' for name, size in sizes.items())


def absences(spec: OpSpec) -> tuple[tuple[str, ...], ...]:
    """Return groups of optionals to leave out together: all combinations of a few; of many, each alone and all.

    An input accepted only together with another is left out with it.
    """
    names = [item.name for item in spec.tensors if item.optional]
    few = len(names) <= CROSSED
    counts = range(1, len(names) + 1) if few else (1, len(names))
    groups = [group for count in counts for group in combinations(names, count)]
    pairs = tuple(combinations(names, 2))
    # Of each group, itself if the forward may accept it, else the first pair with it.
    found = [next(_taken(spec, (group, *_with(group, pairs))), ()) for group in groups]
    return tuple(dict.fromkeys(filter(None, found)))


def _with(
    group: tuple[str, ...], pairs: tuple[tuple[str, ...], ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the pairs of inputs that contain a group of one, to leave it out with another; none for a larger group."""
    return tuple(pair for pair in pairs if {*group} < {*pair})


def _taken(
    spec: OpSpec, groups: Iterable[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """Yield the groups of inputs the forward may accept as absent together; for others it surely raises.

    A forward with `assert (q is None) == (k is None)` refuses each alone.
    """
    names = [item.name for item in spec.tensors if item.optional]
    for group in groups:
        # As `refuses` wants it: whether each optional input is passed.
        given = {name: name not in group for name in names}
        if spec.forward is None or not refuses(spec.forward, given):
            yield group


def _empty_cases(spec: OpSpec, sizes: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield cases of tensors without elements, and of masks without a True."""
    for item in masks(spec):
        yield f"closed-{item.name}", f'"closed": ["{item.name}"]'
    if leading_names(spec):
        yield "empty-batch", leading_arguments(spec, (0,))
    if takes_shape(spec):
        yield "empty", '"shape": (0, 3)'
    if may_be_number(spec):  # without elements it may return a number, no tensor
        return
    # Not to be 0: a size that bounds indices, one given by an attribute, one the gradient divides by.
    bounds = {item.bound for item in spec.tensors}
    attributes = {item.name for item in spec.attributes}
    kept = bounds | attributes | never_empty(spec)
    for name in sizes:
        if name not in kept and allows(spec, sizes | {name: 0}):
            yield f"{name}=0", f'"{size_name(name)}": 0'


def _broadcast_cases(spec: OpSpec) -> Iterator[tuple[str, str]]:
    """Yield a case with a first dim of 1 for each differentiable input able to broadcast, undeclared or by its `...`.

    None if fewer than two tensors may: there would be nothing to broadcast with. A variadic input counts as two.
    """
    free = [item for item in spec.tensors if _may_broadcast(spec, item)]
    if len(free) < 2 and not any(item.variadic for item in free):
        return
    for item in free:
        if item in spec.differentiable:
            # Of a variadic input its first tensor, `tensors[0]`.
            name = element_names(item, 1)[0]
            yield f"broadcast-{item.name}", f'"single": ["{name}"]'


def _may_broadcast(spec: OpSpec, item: TensorInput) -> bool:
    """Return whether an input may have a first dim of 1 in the tests: undeclared, or with `...` in front."""
    dims = spec.tested_dims(item.name)
    if dims is None:
        return _shape(spec) == SHAPE
    return dims[:1] == (ANY_DIMS,)
