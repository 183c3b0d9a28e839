"""An op of each primitive with a spelling in Triton: a call of its first and last samples, with tensors of one shape."""

from scaffold.derive import derive, zero_gradients
from scaffold.derive.rules.sample_calls import Drawn, read_sample
from scaffold.derive.rules.table import Rule, built_in
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import emit
from scaffold.kernels.names import FIXED, Own
from scaffold.kernels.triton import triton_kernels
from scaffold.spec import OpSpec
from tests.derive.building import spec_of

TABLE = built_in()
SPELLED = tuple(name for name in TABLE.names() if TABLE.rule(name).triton)
NO_SPELLING = "of these arguments"  # with some arguments: `x ** 2.5`
SET_APART = "_"
FACTOR = "factor"  # an input that makes a mask a result of real numbers


def spelled_ops() -> dict[str, OpSpec]:
    """Return the ops by name."""
    found = {}
    for name in SPELLED:
        rule = TABLE.rule(name)
        for at, sample in enumerate(dict.fromkeys((rule.samples[0], rule.samples[-1]))):
            spec = _op(rule, sample, f"of_{name}_{at}")
            if spec is None:
                continue
            try:
                triton_kernels(spec, Location(name))
            except ScaffoldError as error:
                assert NO_SPELLING in error.message and at, error
            else:
                found[spec.name] = spec
    return found


def _op(rule: Rule, sample: str, name: str) -> OpSpec | None:
    """Return the op of a sample; None if it needs a tensor without dims."""
    given = read_sample(sample, rule.spelled, TABLE.graph)
    assert given is not None, rule.name
    if any(isinstance(item, Drawn) and not item.sizes for item in given.values()):
        return None
    inputs, values = [], dict[str, str]()
    for parameter, value in given.items():
        if isinstance(value, Drawn):
            kind = "; bool" if rule.domain.get(parameter) == "bool" else ""
            values[parameter] = own = _input(parameter)
            inputs.append(f"{own}[...{kind}]")
        else:
            values[parameter] = emit(value)
    call = _call(rule, values)
    if rule.facts.kinds == ("bool",) or all("bool" in item for item in inputs):
        call = f"torch.where({call}, {FACTOR}, -{FACTOR})"
        inputs.append(f"{FACTOR}[...]")
    spec = spec_of(", ".join(inputs), name, forward=call)
    stated: dict[str, object] = {}
    if zero_gradients(derive(spec)):  # there is no kernel for such a gradient
        grads = {item.name: "grad_output" for item in spec.differentiable}
        stated = {"grad": grads, "surrogate": True}
    return spec_of(", ".join(inputs), name, forward=call, kernels=["triton"], **stated)


def _input(parameter: str) -> str:
    """The name of the input for a parameter; the kernels' own names are refused."""
    return f"{parameter}{SET_APART}" if parameter in FIXED | {*Own()} else parameter


def parameter_of(name: str) -> str:
    """The parameter that an input stands for."""
    return name.removesuffix(SET_APART)


def _call(rule: Rule, values: dict[str, str]) -> str:
    """The call of a primitive, by how the table spells it."""
    head = TABLE.head(rule.name)
    if rule.spelled.kind == "operator":
        words = [values.get(word, word) for word in head.removeprefix("-").split()]
        return "-" * head.startswith("-") + " ".join(words)
    names = [item.name for item in rule.parameters if item.name in values]
    if rule.spelled.kind == "method":
        owner, *names = names
        return f"{values[owner]}.{rule.spelled.name}({', '.join(values[x] for x in names)})"
    listed = [values[names[0]], *(f"{x}={values[x]}" for x in names[1:])]
    if "=" not in head or all("=" not in part for part in head.split(",")):
        listed = [values[x] for x in names]
    return f"{head.partition('(')[0]}({', '.join(listed)})"
