"""The part of the generated test that makes inputs.

In: an `OpSpec` and the `Making` of its inputs. Out: an `InputsView`.
Invariant: `make` takes no argument that nothing calls it with.
"""

from typing import NamedTuple

from scaffold.render.testcases import Making, masks
from scaffold.render.testvalues import MASK, makers_used
from scaffold.spec import OpSpec, TensorInput

ALL_SUBSETS = 4  # inputs up to which every subset of them is tried
WRITTEN_OUT = 2  # inputs up to which the subsets are short enough to list


class InputsView(NamedTuple):
    """Inputs as the template shows them; every `_lines` is a body, not yet indented."""

    samples_lines: tuple[str, ...]  # the user's function
    differentiable: str
    needs: str  # subsets of them; "" where there are no others
    cases: str
    empty_cases: str
    empty_words: str  # what these have
    nonzero: bool
    spd: bool
    distinct: bool
    mask: bool
    parameters: tuple[str, ...]
    title: str
    seed: str
    lines: tuple[str, ...]


def inputs_view(
    spec: OpSpec, making: Making, samples: str, gradients: bool, seeded: bool
) -> InputsView:
    """Inputs with or without what gradients need, from one seed or from any; `samples` is the user's function."""
    needs = gradients or bool(making.names)
    makers = makers_used(spec) if spec.samples is None else frozenset()
    return InputsView(
        samples_lines=_samples_lines(spec, samples),
        differentiable=_tuple(making.names) if needs else "",
        needs=_needs(making.names) if gradients else "",
        cases=", ".join(making.cases),
        empty_cases=", ".join(making.empty),
        empty_words=_empty_words(making, len(masks(spec))),
        nonzero="nonzero" in makers,
        spd="spd" in makers,
        distinct="distinct" in makers,
        mask=MASK in makers,
        parameters=_parameters(spec, making, gradients, seeded),
        title="Make the inputs in call order"
        + ("; those in `needs` require grad." if needs else "."),
        seed="seed" if seeded else "0",
        lines=tuple(_make_lines(spec, making, samples, gradients)),
    )


def _empty_words(making: Making, closed: int) -> str:
    if not closed:
        return "an empty tensor"
    both = closed < len(making.empty)
    return "an empty tensor or mask" if both else "an empty mask"


def _samples_lines(spec: OpSpec, name: str) -> tuple[str, ...]:
    if spec.samples is None:
        return ()
    source = spec.samples.source.strip("\n")
    return tuple(
        source.replace(f"def {spec.samples.function}(", f"def {name}(", 1).splitlines()
    )


def _tuple(names: tuple[str, ...]) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"({listed},)" if len(names) == 1 else f"({listed})"


def _needs(names: tuple[str, ...]) -> str:
    """The subsets of the inputs that a call may need gradients of."""
    if len(names) <= 1:
        return ""
    if len(names) <= WRITTEN_OUT:
        return ", ".join(
            _tuple(group) for group in (*((name,) for name in names), names)
        )
    few = len(names) <= ALL_SUBSETS
    counts = (
        f"range(1, {len(names) + 1})" if few else f"(1, {len(names) - 1}, {len(names)})"
    )
    groups = "itertools.combinations(DIFFERENTIABLE, count)"
    return f"needs for count in {counts} for needs in {groups}"


def _parameters(
    spec: OpSpec, making: Making, gradients: bool, seeded: bool
) -> tuple[str, ...]:
    listed = list(making.parameters)
    if spec.samples is None and any(item.optional for item in spec.tensors):
        listed.append("absent: Collection[str] = ()")
    if masks(spec):
        listed.append("closed: Collection[str] = ()")
    if making.names:
        listed.append("needs: Collection[str] = DIFFERENTIABLE")
    if gradients:
        listed.append("layout: Callable[[Tensor], Tensor] = torch.clone")
    if seeded:
        listed.append("seed: int = 0")
    return tuple(listed)


def _make_lines(
    spec: OpSpec, making: Making, samples: str, gradients: bool
) -> list[str]:
    """The body of `make` below its seed."""
    optional = any(item.optional for item in spec.tensors) and spec.samples is None
    mixed = bool(spec.attributes) or spec.samples is not None
    if spec.samples is not None:
        lines = _sample_lines(spec, samples)
    else:
        kind = ": dict[str, Any]" if mixed else ""
        items = making.items
        sole = len(items) == 1 and items[0].startswith("**{")
        listed = [items[0][3:-1]] if sole else [f"    {item}," for item in items]
        lines = [f"inputs{kind} = {{", *listed, "}"]
    value = "layout(value)" if gradients else "value"
    value += ".requires_grad_(name in needs)" if making.names else ""
    if value == "value" and not optional:
        return [*lines, "return tuple(inputs.values())"]
    every = "for name, value in inputs.items()"
    if not mixed:
        value = f"None if name in absent else {value}" if optional else value
        return [*lines, f"return tuple({value} {every})"]
    return [
        *lines,
        *["inputs |= dict.fromkeys(absent)"] * optional,
        f"{every}:",
        "    if isinstance(value, Tensor):",
        f"        inputs[name] = {value}",
        "return tuple(inputs.values())",
    ]


def _sample_lines(spec: OpSpec, samples: str) -> list[str]:
    """Take one of the user's tuples apart."""
    keys = [
        (
            f'*(f"{item.name}[{{index}}]" for index in range(len(values)))'
            if isinstance(item, TensorInput) and item.variadic
            else f'"{item.name}"'
        )
        for item in spec.inputs
    ]
    return [
        f"values = [in_double(value) for value in list({samples}())[sample]]",
        f"inputs = dict(zip([{', '.join(keys)}], values, strict=True))",
    ]
