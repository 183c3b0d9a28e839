"""Names in the generated test file.

In: an `OpSpec`. Out: the names under which the file knows the op, and those that are taken.
Invariant: nothing of the user's hides a name that the file itself needs.
"""

from scaffold.render.imports import KNOWN
from scaffold.spec import Import, OpSpec

LIBRARY = (
    *KNOWN,
    *(Import(name) for name in ("contextlib", "copy", "gc", "itertools", "pickle")),
    *(Import(name) for name in ("pytest", "sys", "weakref")),
    Import("collections.abc", "Collection"),
    Import("pathlib", "Path"),
    Import("torch.autograd", "gradcheck"),
    Import("torch.autograd", "gradgradcheck"),
    Import("torch.testing", "assert_close"),
)
HELPERS = frozenset(
    {
        "assert_near",
        "build",
        "call_recorder",
        "case",
        "distinct",
        "function_of",
        "gradients",
    }
    | {"in_double", "loss", "make", "module", "nonzero", "on_copy", "permuted"}
    | {"positional", "reference", "request", "true_forward"}
    | {
        "seeded",
        "spd",
        "surrogate",
        "unwritten",
        "written",
        "CASES",
        "DIFFERENTIABLE",
        "EMPTY_CASES",
        "NEEDS",
        "Recorder",
    }
    | {item.binding for item in LIBRARY}
)


def op_imports(spec: OpSpec, module: str) -> tuple[Import, ...]:
    """The module, the Function and the functional form, each under a name that is free."""
    names = (spec.module_name, spec.function_name, spec.name)
    return tuple(Import(module, name, _alias(name)) for name in names)


def samples_name(spec: OpSpec) -> str:
    """The user's function of samples, renamed where it would hide a helper."""
    name = spec.samples.function if spec.samples is not None else ""
    return "sample_inputs" if name in HELPERS or name == spec.name else name


def _alias(name: str) -> str | None:
    if name not in HELPERS:
        return None
    return f"{name}Op" if name[:1].isupper() else f"{name}_op"
