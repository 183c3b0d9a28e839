"""A raw mapping -> an `OpSpec`.

In: the keys that a TOML table or the command line gives, and where each value stands. Out: an `OpSpec`.
Invariant: all problems are raised together, each at its place; a spec that comes out is consistent.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaffold.formula import Formula, expressions
from scaffold.spec.arguments import Arguments, conventional_shapes, read_arguments
from scaffold.spec.config import Configuration
from scaffold.spec.keys import check_keys
from scaffold.spec.maths import Maths, ReadFile, read_maths
from scaffold.spec.model import ModuleSpec, OpSpec
from scaffold.spec.module import read_module
from scaffold.spec.names import check_class_name, op_names
from scaffold.spec.problems import Locate, Problems


def build(
    name: str,
    raw: Mapping[str, Any],
    locate: Locate,
    configuration: Configuration | None = None,
    read: ReadFile | None = None,
    packaged: bool = False,
) -> OpSpec:
    """The op that a raw mapping describes; `read` gives the text of a file that it names.

    `packaged` says that the op's file lies in a package, where it can hide no other module.
    """
    settings = configuration or Configuration()
    problems = Problems(locate)
    names = problems.attempt(
        lambda: op_names(name, problems.within(("name",)), packaged)
    )
    check_keys(name, raw, problems)
    problems.raise_found()
    arguments = read_arguments(raw, problems)
    if arguments is None or names is None:
        problems.raise_found()
        raise AssertionError("what could not be read was noted")
    maths = read_maths(raw, arguments, read or _read, problems)
    module = read_module(raw, arguments, maths.graph, settings, problems)
    _check_results(arguments, maths, problems)
    _check_class(raw, names, maths, problems)
    problems.raise_found()
    return _spec(raw, names, arguments, maths, module, settings)


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _spec(
    raw: Mapping[str, Any],
    names: tuple[str, str],
    arguments: Arguments,
    maths: Maths,
    module: ModuleSpec | None,
    configuration: Configuration,
) -> OpSpec:
    spec = OpSpec(
        name=names[0],
        class_name=raw.get("class-name", names[1]),
        inputs=arguments.inputs,
        outputs=arguments.outputs,
        doc=raw.get("doc"),
        forward=maths.forward,
        gradients=maths.gradients,
        backward=maths.backward,
        surrogate=maths.surrogate,
        imports=maths.imports,
        dirty=arguments.dirty,
        once_differentiable=raw.get("once-differentiable"),
        transforms=raw.get("transforms"),
        materialize_grads=raw.get("materialize-grads", True),
        derive=raw.get("derive", True),
        style=raw.get("style", configuration.style),
        save_policy=raw.get("save-policy", "recompute"),
        tolerance=tuple(
            (key, repr(value)) for key, value in raw.get("tolerance", {}).items()
        ),
        require=maths.require,
        samples=maths.samples,
        module=module,
        test=raw.get("test", True),
        conventional=conventional_shapes(arguments.tensors, configuration),
    )
    return _with_module_attributes(spec)


def _with_module_attributes(spec: OpSpec) -> OpSpec:
    """Leave to the module the attributes that only an update of a buffer reads."""
    if spec.module is None or spec.forward is None:
        return spec
    gradients = (formula for _, formula in spec.gradients)
    formulas = [item for item in (spec.forward, spec.backward, *gradients) if item]
    read = {name for item in formulas for name in _names(item)}
    updating = {name for _, item in spec.module.updates for name in _names(item)}
    moved = [item for item in spec.attributes if item.name in updating - read]
    inputs = tuple(item for item in spec.inputs if item not in moved)
    return replace(
        spec, inputs=inputs, module=replace(spec.module, attributes=tuple(moved))
    )


def _names(formula: Formula) -> frozenset[str]:
    """Every name that a formula reads."""
    nodes = [node for item in formula.statements for node in expressions(item)]
    nodes += [formula.result] if formula.result is not None else []
    return frozenset(name for node in nodes for name in node.names())


def _check_results(arguments: Arguments, maths: Maths, problems: Problems) -> None:
    """As many values as outputs, where the forward shows how many it returns."""
    formula = maths.forward
    if formula is None or formula.result is None:
        return
    variadic = any(output.variadic for output in arguments.outputs)
    if formula.result.kind != "tuple" or variadic:
        return
    count, expected = len(formula.result.args), len(arguments.outputs)
    if count != expected:
        names = ", ".join(f"y{position}" for position in range(1, count + 1))
        plural = "output is" if expected == 1 else "outputs are"
        message = (
            f"the forward returns {count} values, but {expected} {plural} declared"
        )
        problems.at(("forward",), message, f"write: --outputs '{names}'")


def _check_class(
    raw: Mapping[str, Any], names: tuple[str, str], maths: Maths, problems: Problems
) -> None:
    class_name = raw.get("class-name", names[1])
    key = "class-name" if "class-name" in raw else "name"
    problem = check_class_name(class_name, problems.within((key,)))
    problems.add(problem)
    bindings = {item.binding for item in maths.imports}
    for name in (class_name, f"{class_name}Function", names[0]):
        if name in bindings:
            problems.at(
                ("import",),
                f"the op defines '{name}' itself",
                "import it under another name",
            )
    if class_name == names[0]:
        problems.at(
            (key,), f"the class and the function are both called '{class_name}'"
        )
