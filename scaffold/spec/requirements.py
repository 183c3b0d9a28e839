"""Features a project requires of every op: the key `require` of [tool.scaffold].

In: the keys stated for an op, and its inputs. Out: a problem for each missing feature. Invariant: the problem is at the
key that would provide the feature.
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
    return lambda raw, tensors: not str(raw.get(key, "")).strip()


def _is_off(key: str) -> Callable[[Raw, Tensors], bool]:
    return lambda raw, tensors: raw.get(key) is False


def _unexplained(raw: Raw, tensors: Tensors) -> bool:
    once = raw.get("once-differentiable") or raw.get("save-policy") == "balanced"
    return bool(once) and _unstated("reason")(raw, tensors)


def _shapeless(raw: Raw, tensors: Tensors) -> bool:
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
    """Report the required features an op lacks."""
    for name in wanted:
        if name != PROOF and FEATURES[name].lacks(raw, tensors):
            _report(name, problems)


def check_reason(
    wanted: Collection[str], spec: OpSpec, once: bool, locate: Locate
) -> None:
    """Raise for an op differentiable only `once`, if the project requires a reason and it has none.

    This is checked apart: only the derivation shows that it can.
    """
    if "reason" in wanted and once and not (spec.reason or "").strip():
        problems = Problems(locate)
        _report("reason", problems)
        problems.raise_found()


def _report(name: str, problems: Problems) -> None:
    """Report a missing feature at the key for it."""
    feature = FEATURES[name]
    whose = ONCE if name == "reason" else "every op"
    message = f"the project requires '{name}' of {whose}"
    problems.at((feature.key,), message, feature.hint)
