"""The op a hand-written Function becomes: a table calling its forward and backward, functions of a file.

`scaffold adopt` asks for it, and compares the op with the Function. `context` finds what ctx carried, `bodies` writes the file,
`declarations` the inputs and outputs; here they become one table:

    class Scale(Function):             [ops.scale]
        def forward(ctx, x, n): ...    inputs = "x, n: float"
        def backward(ctx, g): ...  ->  forward = "scale_forward(x, n)"
                                       grad = { x = "scale_backward(grad_output, n)[0]" }

Words: a *wrapper* is the file's function that calls `Scale.apply`; *keys* are those of the op's table in TOML; *passed* are the
values forward left on ctx for backward (`Handed`); *made* are locals of forward among them, such as a saved `h = torch.exp(x)`:
the op's forward returns them beside the outputs; `Unfit` is the reason why a Function cannot be adopted.

In: the facts of a Function, and how it is imported. Out: the keys of its `[ops.NAME]` table, and the file; or why there can be none.
Invariant: what the Function computes is its own text; the table says what goes in, what comes out, and what is handed over.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from scaffold.formula.names import take
from scaffold.inspect.bodies import (
    Body,
    backward_body,
    file_text,
    forward_body,
    imported_by,
)
from scaffold.inspect.classes import parameters_of
from scaffold.inspect.context import Handed, handed
from scaffold.inspect.declarations import (
    Unfit,
    declared_input,
    declared_outputs,
    has_gradient,
    is_free,
    is_untold,
    output_kinds,
    output_names,
)
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Parameter
from scaffold.inspect.imported_names import method_call, snake_case, torch_call
from scaffold.inspect.vocabulary import is_tensor_call
from scaffold.spec.names import camel_name
from scaffold.spec.toml import op_table

Value = str | bool | list[str] | dict[str, str]
NO_KINDS: Mapping[str, str] = {}


class Adopted(NamedTuple):
    """An op in TOML, its keys in order, and the file with its functions."""

    name: str
    keys: dict[str, Value]
    file: str
    text: str
    recomputed: tuple[str, ...] = ()  # sentences on what ctx holds no more
    assumed: tuple[str, ...] = ()  # inputs whose types are a guess

    def toml(self) -> str:
        """Return the table as text."""
        return op_table(self.name, self.keys)

    def stating(self, keys: Mapping[str, Value | None]) -> "Adopted":
        """Return the op with other keys; None removes a key."""
        merged = {**self.keys, **keys}
        known = {key: value for key, value in merged.items() if value is not None}
        return self._replace(keys=known)

    def in_style(self, style: str) -> "Adopted":
        """Return the op in a style, with a vmap rule if the style has one."""
        # A generated rule for vmap takes neither a combined forward nor a change in place.
        vmap = style != "combined" and "dirty" not in self.keys
        return self.stating({"style": style, "transforms": True if vmap else None})


class Wanted(NamedTuple):
    """The caller's choices: where the op goes, its name, the kinds of its inputs."""

    module: str  # of the Function
    package: str = ""  # that the file lies in
    # Of the op; "": its wrapper's, else its class's: `ScaleFunction` -> `scale`.
    name: str = ""
    kinds: Mapping[str, str] = NO_KINDS  # of tensors without a gradient


def adopt(facts: Facts, wanted: Wanted) -> Adopted:
    """Return the op of a Function: its table, and a file with its forward and backward; raise Unfit if there can be none."""
    function = facts.function
    if function.forward is None or function.backward is None:
        raise Unfit(function.node, "it has no forward and backward of its own")
    _refuse_decorators(facts)
    wrapper = _wrapper(facts)
    base = function.name.removesuffix("Function") or function.name
    name = wanted.name or (wrapper.name if wrapper else snake_case(base))
    outputs = output_names(facts)
    passed = handed(facts, outputs)
    first, second = (
        _unused(facts, f"{name}_{which}") for which in ("forward", "backward")
    )
    forward = forward_body(facts, first, passed, len(outputs))
    backward = backward_body(facts, second, passed, len(outputs))
    texts = [forward.text, backward.text]
    called = [first, second]
    file = f"{name}_code"
    place = f"{wanted.package}.{file}" if wanted.package else file
    calls = _Calls(facts, outputs, passed)
    keys: dict[str, Value] = {}
    if base not in (camel_name(name), name):  # else it is the default
        keys["class-name"] = base
    keys["inputs"] = ", ".join(_declared(facts, wanted, wrapper, calls.names))
    if declared := declared_outputs(facts, outputs):
        keys["outputs"] = declared
    keys["forward"] = calls.forward(first)
    if facts.is_trivial:  # backward gives no gradient: the op has a forward alone
        texts, called = texts[:1], called[:1]
    else:
        keys |= calls.backward(second, backward)
        # A local that forward returns for backward is a constant there, so second derivatives would be wrong.
        keys["once-differentiable"] = function.once_differentiable or bool(calls.made)
    imports = imported_by(facts, backward.given, wanted.module)
    keys["import"] = [f"{place}:{', '.join(called)}", *imports]
    keys |= _behaviour(facts, calls.names)
    keys["module"] = False  # the Function had no nn.Module
    text = file_text(facts, name, wanted.module, texts)
    known = tuple(_recomputed(facts, passed)), _assumed(facts, wanted, wrapper)
    return Adopted(name, keys, f"{file}.py", text, *known)


def _assumed(
    facts: Facts, wanted: Wanted, wrapper: ast.FunctionDef | None
) -> tuple[str, ...]:
    """Return the inputs with a guessed type (one of `wanted.kinds`), as neither the Function nor its wrapper states it.

    The user is told to check them. A default in the wrapper states the type.
    """
    stated = _defaults(facts, wrapper) if wrapper else {}
    items = [item for item in facts.inputs if is_untold(facts, item)]
    names = [item.name for item in items if item.name in wanted.kinds]
    return tuple(name for name in names if name not in stated)


def _recomputed(facts: Facts, passed: tuple[Handed, ...]) -> Iterator[str]:
    """Yield notes on tensors the Function kept on ctx, and the op computes again: "ctx.scale is computed again in backward: ...".

    `passed` are the values forward left on ctx. An input, an output or a size costs nothing, and gets no note: only an
    expression with a call that makes a tensor does.
    """
    for item in passed:
        for node in ast.walk(ast.parse(item.given, mode="eval")):
            word = torch_call(node, facts.names) or method_call(node, facts.names)
            if word and is_tensor_call(word):
                held = f"ctx.{item.attribute}" if item.attribute else "a saved tensor"
                yield f"{held} is computed again in backward: {item.given}"
                break


def _unused(facts: Facts, name: str) -> str:
    """Return `name` for a function of the file, or `{name}_body` if the text of the Function uses it already."""
    used = {getattr(node, "id", "") for node in ast.walk(facts.function.node)}
    return take(used, name, f"{name}_body")


# Decorators the op has in another form: a function of a file, the key `once-differentiable`, the key `amp`.
DECORATORS = {"staticmethod", "once_differentiable"}
AUTOCAST = {"custom_fwd", "custom_bwd"}


def _refuse_decorators(facts: Facts) -> None:
    """Raise Unfit for a method with a decorator unknown here: the adopted function would lose its effect."""
    function = facts.function
    for method in (function.forward, function.backward, function.setup_context):
        for name in method.decorators if method else ():
            if name.split(".")[-1] not in DECORATORS | AUTOCAST:
                assert method is not None
                raise Unfit(
                    method.node, f"'{method.node.name}' is decorated with '{name}'"
                )


def _wrapper(facts: Facts) -> ast.FunctionDef | None:
    """Return the first top-level function of the file that calls `Scale.apply`: `def scale(x, n=2.0)`; None if there is none.

    Its name becomes the op's, and its defaults those of the op. A function with the class's own name does not count, since it
    hides the class; nor does a test.
    """
    name = facts.function.name
    # Calls of an alias, `scale = Scale.apply`, may stand in any function.
    calls = (
        x for x in facts.function.applications if isinstance(x.call.func, ast.Attribute)
    )
    outer = (node for _, within in calls for node in within[:1])
    functions = (node for node in outer if isinstance(node, ast.FunctionDef))
    return next((x for x in functions if not re.match(f"test|{name}$", x.name)), None)


def _declared(
    facts: Facts,
    wanted: Wanted,
    wrapper: ast.FunctionDef | None,
    names: Mapping[str, str],
) -> Iterator[str]:
    """Yield the entries of the key `inputs`, with the wrapper's defaults: `x`, `n: float = 2.0`.

    `names` maps each parameter of forward to its name in the op.
    """
    defaults = _defaults(facts, wrapper) if wrapper else {}
    items = inputs_of(facts)
    entries = [
        declared_input(facts, item, defaults.get(item.name, ""), wanted.kinds)
        for item in items
    ]
    # `mask?` may be None and `n: float = 2.0` has a default: a call may leave them out.
    required = [not ("?" in entry or " = " in entry) for entry in entries]
    for at, (item, entry) in enumerate(zip(items, entries, strict=True)):
        # Python allows no default before a parameter without one, so a required one further on takes it away.
        entry = entry.partition(" = ")[0] if any(required[at:]) else entry
        yield names[item.name] + entry.removeprefix(item.name)


def _defaults(facts: Facts, node: ast.FunctionDef) -> dict[str, str]:
    """Return the literal defaults of a function's parameters, as text: `{"eps": "1e-5"}`."""
    return {
        item.name: ast.get_source_segment(facts.module.text, item.default) or ""
        for item in parameters_of(node)
        if isinstance(item.default, ast.Constant | ast.UnaryOp)
    }


def inputs_of(facts: Facts) -> list[Parameter]:
    """Return the inputs of `apply`, the positional parameters of forward; raise Unfit for `*args` and a keyword without default.

    `apply` hands on positional arguments alone, so a keyword with a default always has it, and is no input.
    """
    for item in facts.inputs:
        if (
            item.passing == "variadic"
            or item.passing == "keyword"
            and item.default is None
        ):
            star = "*" if item.passing == "variadic" else "*, "
            raise Unfit(facts.function.node, f"its forward takes '{star}{item.name}'")
    return [item for item in facts.inputs if item.passing == "positional"]


class _Calls:
    """The writer of the calls in the op's table: `scale_forward(x, n)`, `scale_backward(grad_output, n)`.

    They are over the op's names of inputs: `names` maps each parameter of forward to one.
    """

    def __init__(
        self, facts: Facts, outputs: tuple[str, ...], passed: tuple[Handed, ...]
    ) -> None:
        """Choose a name in the op for each input, unlike those of the outputs and of the locals forward returns for backward (`made`).

        A name an op cannot have is changed: `__x` -> `x`, `grad_x` -> `x_in`.
        """
        self.facts, self.outputs = facts, outputs
        self.made = [item.given for item in passed if item.local]
        self.names: dict[str, str] = {}
        taken = {*outputs, *self.made}
        for item in inputs_of(facts):
            plain = item.name.strip("_") if not is_free(item.name) else item.name
            other = plain.removeprefix("grad_")
            new = plain if is_free(plain) else f"{other}_in"
            self.names[item.name] = take(taken, new)

    def forward(self, name: str) -> str:
        """Return the formula of the forward: a call of the function `name`, or statements if it returns locals beside the outputs.

        `y, h = f_forward(x)`, then `return y`: the local `h` is for backward alone.
        """
        call = f"{name}({', '.join(self.names.values())})"
        if not self.made:
            return call
        results = ", ".join([*self.outputs, *self.made])
        return f"{results} = {call}\nreturn {', '.join(self.outputs)}\n"

    def backward(self, name: str, body: Body) -> dict[str, Value]:
        """Return the table's key of the gradients: `grad = {x: call}` if one input has one, else `backward`, a line `grad_x, _ = call`.

        The call of `body`, the function `name` with the old backward, passes the values it had from ctx (`given`), and a
        grad_output for each output with a gradient. Raise Unfit if no input has one, or backward returns too few.
        """
        kinds = output_kinds(self.facts, len(self.outputs))
        several = len(self.outputs) > 1
        grads = [
            f"grad_{output}" if several else "grad_output"
            for output, kind in zip(self.outputs, kinds, strict=True)
            if not kind  # an output of a kind, `int` or `const`, has no gradient
        ]
        given = [self._over_inputs(text) for text in body.given]
        passed = [*given, *grads] if body.leading else [*grads, *given]
        call = f"{name}({', '.join(passed)})"
        items = inputs_of(self.facts)
        needed = [has_gradient(self.facts, item) for item in items]
        if not any(needed):
            raise Unfit(self.facts.function.node, "no input gets a gradient")
        for item in self.facts.gradients:
            if item.length is not None and item.length < len(items):
                message = f"backward returns {item.length} gradients, and forward takes {len(items)} inputs"
                raise Unfit(item.step.statement, message)
        lengths = (item.length for item in self.facts.gradients)
        count = max((n for n in lengths if n is not None), default=len(items))
        tuples = [isinstance(item.node, ast.Tuple) for item in self.facts.gradients]
        if sum(needed) == 1:
            at = needed.index(True)
            # `return grad` or `return grad, None`
            bare = count == 1 and not any(tuples)
            gradient = call if bare else f"{call}[{at}]"
            return {"grad": {self.names[items[at].name]: gradient}}
        targets = [
            f"grad_{self.names[item.name]}" if need else "_"
            for item, need in zip(items, needed, strict=True)
        ]
        # Autograd allows further gradients, all None.
        targets += ["_"] * (count - len(items))
        return {"backward": f"{', '.join(targets[:count])} = {call}\n"}

    def _over_inputs(self, text: str) -> str:
        """Rewrite an expression over forward's parameters in the op's names: `grad_x * 2` -> `x_in * 2`."""
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = self.names.get(node.id, node.id)
        return ast.unparse(tree)


def _behaviour(facts: Facts, names: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    """Yield the keys and values for the Function's changes in place, absent gradients and autocast.

    `mark_dirty(x)` -> `dirty = ["x"]`; `set_materialize_grads(False)` -> `materialize-grads = false`; `custom_fwd` -> `amp`.
    `names` maps each input to its name in the op. Raise Unfit if `mark_dirty` is given anything but inputs.
    """
    dirty = facts.marked("mark_dirty")
    if dirty is None or not dirty <= names.keys():  # None: an argument is no name
        raise Unfit(facts.function.node, "what mark_dirty is given is not named")
    if dirty:
        yield "dirty", [names[name] for name in names if name in dirty]
    if not facts.materializes:
        yield "materialize-grads", False
    methods = (facts.function.forward, facts.function.backward)
    decorators = {d.split(".")[-1] for m in methods if m for d in m.decorators}
    if decorators & AUTOCAST:
        yield "amp", "float32" if _casts(facts) else "region"


def _casts(facts: Facts) -> bool:
    """Return whether `custom_fwd(cast_inputs=...)` casts the inputs: then the op computes in float32.

    Else its backward runs under the autocast of its forward ("region"), as `custom_bwd` does.
    """
    forward = facts.function.forward
    return forward is not None and any(
        "cast_inputs" in ast.unparse(item) for item in forward.node.decorator_list
    )
