"""Features a project requires of every op: the key `require` of [tool.scaffold].

So a team sees to it that every op has a docstring, declared shapes or a test: `require = ["doc", "shapes"]`. In: the keys stated
for an op, and its inputs. Out: a problem for each missing feature. Invariant: the problem is at the key that would provide it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from scaffold.spec.op_spec import OpSpec, TensorInput
from scaffold.spec.problems import Locate, Problems

Raw = Mapping[str, Any]
Tensors = Sequence[TensorInput]
ONCE = "an op that can be differentiated only once"


class Feature(NamedTuple):
    """A feature: a test for its absence, the key that provides it, and a hint."""

    lacks: Callable[[Raw, Tensors], bool]
    key: str
    hint: str


def _unstated(key: str) -> Callable[[Raw, Tensors], bool]:
    """Return a test of whether an op leaves a key out, or blank."""
    return lambda raw, tensors: not str(raw.get(key, "")).strip()


def _is_off(key: str) -> Callable[[Raw, Tensors], bool]:
    """Return a test of whether an op sets a switch to false."""
    return lambda raw, tensors: raw.get(key) is False


def _unexplained(raw: Raw, tensors: Tensors) -> bool:
    """Return whether an op states that it has no second derivative, without a reason; `check_reason` finds those that have none unsaid."""
    return bool(raw.get("once-differentiable")) and _unstated("reason")(raw, tensors)


def _shapeless(raw: Raw, tensors: Tensors) -> bool:
    """Return whether a tensor input has no declared shape."""
    return any(item.dims is None for item in tensors)


FEATURES: dict[str, Feature] = {
    "doc": Feature(_unstated("doc"), "doc", "write: doc = 'What it computes.'"),
    "forward": Feature(
        _unstated("forward"), "forward", "write: forward = 'x * torch.sigmoid(x)'"
    ),
    "shapes": Feature(_shapeless, "inputs", "a shape stands in brackets: 'x[..., D]'"),
    "module": Feature(_is_off("module"), "module", "leave 'module' out"),
    "test": Feature(_is_off("test"), "test", "leave 'test' out"),
    "reason": Feature(
        _unexplained,
        "reason",
        "write: reason = 'the kernel has no second derivative'",
    ),
}

PROOF = "proof"  # checked by `scaffold check` in an op's record, not provided by a key
WANTED = (*FEATURES, PROOF)


def check_requirements(
    wanted: Collection[str], raw: Raw, tensors: Tensors, problems: Problems
) -> None:
    """Report each feature of the project's list `wanted` that an op lacks; a proof is none of its keys, and is checked elsewhere."""
    for name in wanted:
        if name != PROOF and FEATURES[name].lacks(raw, tensors):
            _report(name, problems)


def check_reason(
    wanted: Collection[str], spec: OpSpec, once: bool, locate: Locate
) -> None:
    """Raise for an op that turned out to be differentiable only `once`, if the project requires a reason and it states none.

    Apart from `check_requirements`, and later: only the derivation shows whether the op has a second derivative.
    """
    if "reason" in wanted and once and not (spec.reason or "").strip():
        problems = Problems(locate)
        _report("reason", problems)
        problems.raise_found()


def _report(name: str, problems: Problems) -> None:
    """Report a missing feature at the key for it."""
    feature = FEATURES[name]
    subject = ONCE if name == "reason" else "every op"
    message = f"the project requires '{name}' of {subject}"
    problems.at((feature.key,), message, feature.hint)
