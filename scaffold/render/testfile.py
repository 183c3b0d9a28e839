"""The test file of an op.

In: an `OpSpec`, its `Derivation`, where the files go, and the op in plain PyTorch where that is known.
Out: the text of `test_NAME.py`, formatted.
Invariant: it imports what it uses, and holds no section that has nothing to say.
"""

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from scaffold.derive import Derivation
from scaffold.render.environment import format_source, render_template
from scaffold.render.imports import KNOWN, import_block
from scaffold.render.layout import Layout
from scaffold.render.signature import annotation, arguments, starred, wrapper_type
from scaffold.render.testcases import Making, absences, plan_making
from scaffold.render.testmodule import ModuleTests, module_tests
from scaffold.render.testvalues import makers_used
from scaffold.spec import Attribute, Import, OpSpec, TensorInput

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
    {"build", "case", "distinct", "gradients", "in_double", "loss", "make", "nonzero"}
    | {"on_copy", "permuted", "reference", "spd", "surrogate", "unwritten", "written"}
    | {"CASES", "DIFFERENTIABLE", "EMPTY_CASES", "NEEDS", "Recorder", "module"}
    | {item.binding for item in LIBRARY}
)
SECOND = (
    "eps",
    "atol",
    "rtol",
    "nondet_tol",
    "fast_mode",
)  # options of gradgradcheck too
ALL_SUBSETS = 4  # inputs up to which every subset of them is tried


@dataclass(frozen=True, slots=True)
class TestView:
    """What the template shows; every `_lines` is a body, not yet indented."""

    op: str
    wrapper: str  # the op, as this file imports it
    function: str
    imports: str
    samples_lines: tuple[str, ...]
    differentiable: str
    needs_lines: tuple[str, ...]
    case_lines: tuple[str, ...]
    case_comprehension: str  # instead of lines, where the user gives the inputs
    empty_case_lines: tuple[str, ...]
    makes_nonzero: bool
    makes_spd: bool
    makes_distinct: bool
    make_parameters: tuple[str, ...]
    make_title: str
    make_lines: tuple[str, ...]
    changes_inputs: bool
    arguments: str
    copies: str
    in_place_lines: tuple[str, ...]
    reference: str
    reference_title: str
    reference_parameters: str
    reference_type: str
    reference_lines: tuple[str, ...]
    states_forward: bool
    states_gradients: bool
    gradients: bool
    gradchecks: bool
    transforms: bool
    compiles: bool
    skeleton: bool
    once_differentiable: bool
    single: bool  # one output, rather than a tuple
    result: str  # what a call returns
    end: str  # an output with a gradient
    ends: str  # all of them
    call: str  # the op, given a copy where it changes its input
    reference_call: str
    forward: str  # what decides whether a size of 0 is allowed
    gradcheck_options: str
    gradgradcheck_options: str
    first: int  # position of an input with a gradient
    to_real: str
    returns_bare: bool
    may_lack_needed: bool
    recorder_call: str
    recorded: str
    joint: bool
    not_joint: str
    changed: str
    argnums: str
    all_tensors: bool
    in_dims: str
    loss_lines: tuple[str, ...]
    op_ends: str
    reference_ends: str
    needed: str
    flat: str
    module: ModuleTests | None
