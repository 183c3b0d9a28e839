"""The keys of an op's table and the types of their values.

An op is a table, `[ops.swish]` of ops.toml, or the options of `new-op`: one row of `KEYS` declares a key for both, for the JSON
Schema and the docs. In: a raw mapping from TOML or the command line. Out: its valid part, which `build` reads; the rest is
reported as problems. Invariant: a returned mapping contains only known keys, each with a value of its kind.

Words: *raw* is such a mapping, key -> value as written; a *sound* value is of its key's kind.
"""

import sys
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from scaffold.errors import did_you_mean
from scaffold.spec.kinds import (
    EITHER,
    NAMES,
    NUMBERS,
    SWITCH,
    TABLE,
    TEXT,
    TEXTS,
    Kind,
    check_value,
    choice,
    choices,
)
from scaffold.spec.problems import KeyPath, Problems

Style = Literal["setup-context", "combined", "library"]
SavePolicy = Literal["recompute", "balanced"]
Amp = Literal["region", "float32", "off"]  # behaviour of an op under autocast
# For an op that states none, in a project that states none.
DEFAULT_STYLE: Style = "setup-context"
DEFAULT_POLICY: SavePolicy = "balanced"
LANGUAGES = ("triton",)  # of fused kernels


class Key(NamedTuple):
    """A key of an op's table, and the option of the same name."""

    kind: Kind
    help: str
    # A change of it ends a proof of the op; False: about names, docs, the Module or tests.
    proven: bool = True
    formula: bool = False  # its text may be a file reference: '@file.py:function'
    option: str = ""  # help of the option, if it differs
    # A project may set it for all its ops, in [tool.scaffold.defaults].
    default: bool = False
    # It tells of the Function; False: about the Module or the tests alone.
    function: bool = True


_NOT_NEGATIVE = {"type": "number", "minimum": 0}
# Arguments of gradcheck that the key `tolerance` may set, with their schemas.
TOLERANCES = {
    "eps": {"type": "number", "exclusiveMinimum": 0},
    "atol": _NOT_NEGATIVE,
    "rtol": _NOT_NEGATIVE,
    "nondet_tol": _NOT_NEGATIVE,
    "fast_mode": {"type": "boolean"},
}
TOLERANCE = NUMBERS._replace(
    schema={
        "type": "object",
        "additionalProperties": False,
        "properties": TOLERANCES,
    }
)
STYLE = choice("a style", get_args(Style))
SAVE_POLICY = choice("a policy", get_args(SavePolicy))
AMP = choice("a word", get_args(Amp))
KERNELS = choices("a list of languages", LANGUAGES, "LANGUAGE")

KEYS: dict[str, Key] = {
    "inputs": Key(
        TEXT,
        "Inputs in call order: 'x[..., D], weight[D]?, eps: float = 1e-6'.",
        option="Inputs in call order: 'x[..., D], weight[D]?, eps: float = 1e-6' (default: the forward's).",
    ),
    "outputs": Key(
        TEXT, "Outputs: 'values, indices[N; int]' (default: one, named output)."
    ),
    "schema": Key(
        TEXT, "A PyTorch schema instead: 'scale(Tensor x, float a) -> Tensor'."
    ),
    "class-name": Key(
        TEXT,
        "The op's name in class names: RMSNorm (default: its name in CamelCase).",
        proven=False,
    ),
    "doc": Key(TEXT, "A description; the first lines of the docstring.", proven=False),
    "forward": Key(
        TEXT,
        "An expression, statements with a return, or '@file.py[:function]'.",
        formula=True,
    ),
    "grad": Key(
        TABLE,
        "A formula for each input: weight = 'grad_output.t() @ input'.",
        formula=True,
        option="A formula for one input: 'weight=grad_output.t() @ input'.",
    ),
    "backward": Key(
        TEXT,
        "Statements that assign grad_<input>, 'bwd(grad_output, x)', or '@file.py[:function]'.",
        formula=True,
    ),
    "surrogate": Key(
        EITHER,
        "The gradient is not the forward's derivative; a string is the function whose derivative it is.",
        formula=True,
        option="The gradient is meant to differ from the forward's derivative.",
    ),
    "import": Key(TEXTS, "Functions of yours to use: 'my_kernels:fwd, bwd'."),
    "optional": Key(NAMES, "Inputs that may be None, like 'name?'."),
    "nondiff": Key(NAMES, "Inputs without a gradient, like 'name[; const]'."),
    "dirty": Key(NAMES, "Inputs that the forward changes in place."),
    "require": Key(TEXTS, "Conditions on the sizes: 'H % G == 0'."),
    "test-shapes": Key(
        TEXT,
        "Shapes for the tests alone, of inputs declared without, and conditions on their sizes: 'x[B, T, D], w[D, N]; D % 2 == 0'.",
    ),
    "samples": Key(
        TEXT, "Test inputs of your own: '@file.py:make'.", formula=True, function=False
    ),
    "derive": Key(
        SWITCH, "Derive the gradients that no formula states (true).", default=True
    ),
    "once-differentiable": Key(
        SWITCH,
        "Forbid a second derivative (default: if the backward has none).",
        default=True,
    ),
    "reason": Key(TEXT, "Why the op can be differentiated only once.", proven=False),
    "transforms": Key(
        SWITCH,
        "Write a vmap rule and tests of torch.func (default: if PyTorch sees all of the op).",
        default=True,
    ),
    "materialize-grads": Key(
        SWITCH, "Zeros, not None, for gradients of unused outputs (true).", default=True
    ),
    "forward-ad": Key(
        SWITCH,
        "Forward mode too: a jvp, for jacfwd and hessian of torch.func.",
        default=True,
    ),
    "sharding": Key(
        TEXT,
        "How an op in library style is split over devices: 'mk, nk -> mn', with _ for a dim that is not split.",
    ),
    "style": Key(
        STYLE,
        "How the op is written: as a Function, in two forms, or with torch.library.custom_op.",
    ),
    "namespace": Key(
        TEXT,
        "The part before the :: of an op in library style: 'mylib' of mylib::linear (default: the name of its package).",
        proven=False,
    ),
    "save-policy": Key(SAVE_POLICY, "The values saved for the backward."),
    "amp": Key(
        AMP,
        "Behaviour under autocast (region, if autocast changes its forward): run its backward under the autocast of the forward, "
        "compute in float32, or nothing.",
        option="Behaviour under autocast (default: region, if it changes the forward).",
    ),
    "kernels": Key(
        KERNELS,
        "Fused kernels in a file of their own, which the Function calls where they can run.",
        default=True,
    ),
    "shape-checks": Key(
        SWITCH,
        "Raise an error for a shape that is not as declared, if the backward relies on it (true).",
    ),
    "tolerance": Key(
        TOLERANCE,
        "For gradcheck.",
        option="For gradcheck: 'eps=1e-6, atol=1e-4, nondet_tol=0'.",
        default=True,
        function=False,
    ),
    "module": Key(
        SWITCH, "Write an nn.Module (true).", proven=False, default=True, function=False
    ),
    "params": Key(
        NAMES,
        "Inputs that the module owns as parameters.",
        proven=False,
        function=False,
    ),
    "buffers": Key(
        NAMES, "Inputs that the module owns as buffers.", proven=False, function=False
    ),
    "update": Key(
        TABLE,
        "New values of buffers in training.",
        proven=False,
        formula=True,
        option="New value of a buffer in training: 'running_mean=...'.",
        function=False,
    ),
    "init": Key(
        TABLE,
        "Start of parameters: weight = 'kaiming_uniform(a=5**0.5)'.",
        proven=False,
        option="Start of a parameter: 'weight=kaiming_uniform(a=5**0.5)'.",
        function=False,
    ),
    "test": Key(
        SWITCH,
        "Write the test file (true).",
        proven=False,
        default=True,
        function=False,
    ),
}
# Removed keys, and advice for them.
GONE = {"double-backward": "leave it out: every op can be differentiated again"}


def check_keys(op: str, raw: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Return the known keys of the op `op` with values of their kind, so its readers need not check them again.

    Report the others; a key of an older version (GONE) with what to do instead.
    """
    sound = {}
    for key, value in raw.items():
        if key not in KEYS:
            gone, close = GONE.get(key), did_you_mean(key, KEYS)
            hint = gone or close or f"the keys of an op: {', '.join(KEYS)}"
            problems.at_key((key,), f"unknown key '{key}' in op '{op}'", hint)
        elif check_key((key,), value, problems):
            sound[key] = value
    return sound


def check_key(path: KeyPath, value: Any, problems: Problems) -> bool:
    """Return whether the value of a known key, the last of `path`, is valid; report why not at that path."""
    before = len(problems)
    sound = check_value(path, value, KEYS[path[-1]].kind, problems)
    if sound and path[-1] == "tolerance":
        _check_tolerance(path, value, problems)
    return len(problems) == before


def _check_tolerance(
    above: KeyPath, table: Mapping[str, float], problems: Problems
) -> None:
    """Report arguments gradcheck does not have, or of the wrong type, in the table of the key `tolerance` (at `above`)."""
    for name, value in table.items():
        path = (*above, name)
        if name not in TOLERANCES:
            hint = did_you_mean(name, TOLERANCES) or f"one of: {', '.join(TOLERANCES)}"
            problems.at_key(path, f"gradcheck has no argument '{name}'", hint)
        elif name == "fast_mode":
            if not isinstance(value, bool):
                problems.at(path, "'fast_mode' must be true or false")
        # To Python True is a number, too. gradcheck takes what a float holds: no `inf`, no 400 digits.
        elif isinstance(value, bool) or not 0 <= value <= sys.float_info.max:
            problems.at(path, f"'{name}' must be a number from 0 up")
        elif name == "eps" and value == 0:
            problems.at(path, "'eps' must be above 0")
