"""Building: the table of an op, from TOML or options -> an `OpSpec`.

All commands that generate, check or prove an op come through here. In: the keys of a TOML table or the command line, and the
place of each value. Out: an `OpSpec`, for `derive` and `render`. Invariant: all problems are raised together, each at its place;
a returned spec is consistent.

Words: *raw* are the keys of the op as written, *stated* those of them with valid values, *sound* these and the project's
defaults; `locate` finds the place of a key's value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from scaffold.files import read_text
from scaffold.spec.arguments import Arguments, read_arguments
from scaffold.spec.config import Configuration
from scaffold.spec.config_values import Shapes
from scaffold.spec.keys import check_keys
from scaffold.spec.library import check_library, read_sharding
from scaffold.spec.maths import Maths, ReadFile, read_maths
from scaffold.spec.module import read_module
from scaffold.spec.names import NAMESPACE, Patterns, check_class_name, op_names
from scaffold.spec.op_spec import Attribute, ModuleSpec, OpSpec, Sharding
from scaffold.spec.problems import Locate, Problems
from scaffold.spec.requirements import check_requirements

# The keys of an op that tell its inputs and outputs.
SIGNATURE = {"inputs", "outputs", "schema", "optional", "nondiff", "dirty"}


def build(
    name: str,
    raw: Mapping[str, Any],
    locate: Locate,
    configuration: Configuration | None = None,
    read: ReadFile | None = None,
    package: str | None = None,
) -> OpSpec:
    """Return the op described by a raw mapping; raise all its problems together.

    `read` returns the text of a file named in it. `package` is the package of the op's file: in one it hides no other module.
    """
    settings = configuration or Configuration()
    problems = Problems(locate)
    names = problems.attempt(
        lambda: op_names(
            name, problems.within(("name",)), package is not None, settings.names
        )
    )
    stated = check_keys(name, _with_new_amp(raw, settings.style), problems)
    assumed = {
        "save-policy": settings.save_policy,
        "shape-checks": settings.shape_checks,
        **dict(settings.defaults),
    }
    # A key of the op itself goes before.
    sound = {**assumed, **stated}
    if _unreadable(raw, stated):
        problems.raise_found()
    arguments = read_arguments(sound, problems)
    if arguments is None:
        problems.raise_found()
    assert arguments is not None  # otherwise a problem was reported
    shapes = arguments.conventional(settings.conventions)
    names = names or ("", "")  # invalid, and reported: look for further problems
    maths = read_maths(names[0], sound, arguments, shapes, read or read_text, problems)
    module = read_module(sound, arguments, maths, shapes, settings, problems)
    _check_counts(arguments, maths, problems)
    style = sound.get("style", settings.style)
    check_library(style, sound, arguments, problems)
    sharding = read_sharding(style, sound.get("sharding"), arguments, problems)
    for key, message, hint in _conflicts(sound, stated, arguments, style):
        problems.at((key,), message, hint)
    _check_classes(sound, names, arguments, maths, settings.names, problems)
    check_requirements(settings.require, sound, arguments.tensors, problems)
    problems.raise_found()
    spec = _spec(sound, names, arguments, maths, module, shapes, sharding, settings)
    return replace(spec, namespace=_namespace(sound, package, settings))


def _with_new_amp(raw: Mapping[str, Any], style: str) -> Mapping[str, Any]:
    """Return a table with the former word of the key `amp`, "lower", replaced by the word of today: it depends on the op's style."""
    if raw.get("amp") != "lower":
        return raw
    library = raw.get("style", style) == "library"
    return {**raw, "amp": "float32" if library else "region"}


def _unreadable(raw: Mapping[str, Any], sound: Mapping[str, Any]) -> bool:
    """Return whether invalid keys leave no signature worth checking: further problems would only follow from theirs.

    So it is if one of them tells the inputs or outputs, or if any is invalid and the op states no inputs: a misspelt `inptus`.
    `sound` are the keys with valid values.
    """
    wrong = raw.keys() - sound.keys()
    return bool(SIGNATURE & wrong or wrong and not {"inputs", "schema"} & sound.keys())


def _namespace(
    raw: Mapping[str, Any], package: str | None, settings: Configuration
) -> str:
    """Return the namespace of a registered op, before the `::` of its name: `mylib` of `mylib::scale`.

    A key of the op counts first, then the setting, then the top package of its file.
    """
    stated: str | None = raw.get("namespace", settings.namespace)
    if stated is not None:
        return stated
    return package.partition(".")[0] if package else NAMESPACE


def _spec(
    raw: Mapping[str, Any],
    names: tuple[str, str],
    arguments: Arguments,
    maths: Maths,
    module: ModuleSpec | None,
    shapes: Shapes,
    sharding: Sharding | None,
    configuration: Configuration,
) -> OpSpec:
    """Join the parts, read one by one, into an `OpSpec`; `raw` has the project's defaults in it."""
    spec = OpSpec(
        name=names[0],
        class_name=raw.get("class-name", names[1]),
        inputs=arguments.inputs,
        outputs=arguments.outputs,
        doc=raw.get("doc", maths.doc),
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
        forward_ad=raw.get("forward-ad", False),
        kernels=tuple(raw.get("kernels", ())),
        rules=configuration.rules,
        style=raw.get("style", configuration.style),
        style_is_free=_is_free(raw, configuration),
        # What a kernel computes of a row costs no memory, so nothing is saved that can be computed again.
        save_policy="recompute" if raw.get("kernels") else raw["save-policy"],
        sharding=sharding,
        amp=raw.get("amp"),
        tolerance=tuple((k, repr(v)) for k, v in raw.get("tolerance", {}).items()),
        require=maths.require,
        test_shapes=arguments.test_shapes,
        test_require=maths.test_require,
        samples=maths.samples,
        module=module,
        test=raw.get("test", True),
        shape_checks=raw["shape-checks"],
        strict_types=configuration.typing == "strict",
        conventional=shapes,
        reason=raw.get("reason"),
        patterns=configuration.names,
    )
    return _with_module_attributes(spec)


def _is_free(raw: Mapping[str, Any], configuration: Configuration) -> bool:
    """Return whether nobody chose a style: the op may then get a combined forward, which `derive` chooses if it is faster.

    A combined forward is faster as it saves locals without returning them, so only under the policy `balanced`: under
    `recompute` the op saves no locals.
    """
    # A project's style is no choice for this op: "setup-context" may be the default, and "combined" stays anyway.
    stated = "style" in raw or configuration.style == "library"
    # Forward mode and kernels need the style `setup-context` (`_conflicts`).
    fixed = stated or raw.get("forward-ad", False) or raw.get("kernels")
    return not fixed and raw["save-policy"] == "balanced"


def _with_module_attributes(spec: OpSpec) -> OpSpec:
    """Return the spec with attributes that only a buffer's update reads, such as `momentum`, moved from the op to its module.

    An op without such attributes stays as it is; one without a forward too, as the forward yet to be written may read them.
    """
    if spec.module is None or spec.forward is None:
        return spec
    gradients = (formula for _, formula in spec.gradients)
    surrogate = spec.surrogate.forward if spec.surrogate else None
    sizes = (*spec.require, *spec.test_require)
    stated = (spec.forward, spec.backward, surrogate, *gradients, *sizes)
    read = {name for item in stated if item for name in item.names()}
    read |= {str(item.bound) for item in spec.tensors}  # N of `index(N)`
    updating = {name for _, item in spec.module.updates for name in item.names()}
    moved = [item for item in spec.attributes if item.name in updating - read]
    inputs = tuple(item for item in spec.inputs if item not in moved)
    return replace(
        spec, inputs=inputs, module=spec.module._replace(attributes=tuple(moved))
    )


def _check_counts(arguments: Arguments, maths: Maths, problems: Problems) -> None:
    """Report a forward or surrogate that returns a known, wrong number of values: not as many as outputs are declared.

    Only tuples are counted: any other result may be a tuple made by a call. A forward kept as written, with branches, has several
    returns. A single output must be no tuple at all, so no count is right for it.
    """
    variadic = any(output.variadic for output in arguments.outputs)
    expected = len(arguments.outputs)
    shown = maths.surrogate.forward if maths.surrogate else None
    for key, formula in (("forward", maths.forward), ("surrogate", shown)):
        if formula is None or formula.result is None:
            continue
        returned = formula.kept.returned if formula.kept else (formula.result,)
        counts = {len(item.args) for item in returned if item.kind == "tuple"}
        # With one output no tuple is right, of whatever length.
        right = {expected} if expected > 1 else set()
        if variadic or counts <= right:
            continue
        count = min(counts - {expected} or counts)  # or: `return x,` for one output
        names = ", ".join(f"y{position}" for position in range(1, count + 1))
        plural = "output is" if expected == 1 else "outputs are"
        message = f"the {key} returns {count} values, but {expected} {plural} declared"
        hint = f"declare them, as in: outputs = '{names}'"
        if count == 1:
            message = f"the {key} returns a tuple of one value"
            hint = "return the tensor itself, without the comma"
        # A `return ()` shows no output to declare.
        problems.at((key,), message, hint if count else "return a tensor")


def _conflicts(
    raw: Mapping[str, Any],
    stated: Mapping[str, Any],
    arguments: Arguments,
    style: str,
) -> Iterator[tuple[str, str, str]]:
    """Yield a key, a message and a hint for each pair of keys that exclude each other, as a jvp and a combined style do.

    `raw` has defaults of the project in it, `stated` only the op's own keys.
    """
    changed = f"'{arguments.dirty[0]}' is changed in place" if arguments.dirty else ""
    if raw.get("amp") == "float32" and changed:
        message = f"{changed}: with 'float32' its cast copy would change instead"
        yield "amp", message, "write: amp = 'region'"
    plain = style == "setup-context"
    if raw.get("forward-ad"):
        key, without = "forward-ad", "leave out forward-ad"
        if not plain:
            message = "forward mode needs style 'setup-context': torch.func refuses other Functions"
            yield key, message, "write: style = 'setup-context'"
        if changed:
            message = f"{changed}: its tangent would have to change, too"
            yield key, message, "return a new tensor, or leave out forward-ad"
        if raw.get("surrogate"):
            message = "the gradient is a surrogate: a tangent, which is the derivative, would not agree with it"
            yield key, message, without
        if raw.get("materialize-grads") is False:
            message = (
                "forward-ad needs materialize-grads: without it a tangent may be None"
            )
            yield key, message, "leave materialize-grads on, as it is by default"
    if raw.get("kernels"):
        if not plain:
            message = "kernels need style 'setup-context'"
            yield "kernels", message, "write: style = 'setup-context'"
        # The project's own policy, in `raw`, gives way to kernels (`_spec`).
        if stated.get("save-policy") == "balanced":
            message = "kernels do not use save-policy 'balanced': they recompute what it would save"
            yield "kernels", message, "leave out save-policy"
        if raw.get("forward-ad"):
            yield "kernels", "a kernel has no forward mode", "leave out forward-ad"


def _check_classes(
    raw: Mapping[str, Any],
    names: tuple[str, str],
    arguments: Arguments,
    maths: Maths,
    patterns: Patterns,
    problems: Problems,
) -> None:
    """Report names the op's file defines, and that imports, inputs or another of them have too.

    These are the op's function, its Function and its Module. `path` is the key the class is named by. Imports stated by the
    key `import` come first in `maths.imports`; the others are those of a forward read from a file.
    """
    class_name = raw.get("class-name", names[1])
    path = ("class-name",) if "class-name" in raw else ("name",)
    if class_name == names[1] == "":  # the op's own name was invalid
        return
    classes = (patterns.module_class(class_name), patterns.function_class(class_name))
    errors = (check_class_name(klass, problems.within(path)) for klass in classes)
    # One error is enough: both classes are named after one key.
    problems.add(next(filter(None, errors), None))
    defined = (names[0], *classes)
    for position, item in enumerate(maths.imports):
        if item.binding in defined:
            # Its problem is at the key `import`, else at the forward whose file imports it.
            stated = position < len(raw.get("import", ()))
            place = ("import", str(position)) if stated else ("forward",)
            imported = f"{item.module}:{item.binding}"
            hint = f"import it under another name: '{imported} as ...'"
            problems.at(place, f"the op itself defines '{item.binding}'", hint)
    types = {
        item.imported[1]
        for item in arguments.inputs
        if isinstance(item, Attribute) and item.imported
    }
    inputs = {item.name for item in arguments.inputs}
    for name in {*defined[1:]} & (types | inputs):
        problems.at(path, f"the class '{name}' has the name of an input or of its type")
    if names[0] in classes:
        message = f"the class and the function have the same name, '{names[0]}'"
        problems.at(path, message)
