"""Random valid specifications, and their two forms.

In: hypothesis. Out: a `Raw`, the mapping that a TOML table holds; `options` and `toml` write it down.
Every float tensor has one shape, every operation keeps it, so whatever is drawn can be computed.
"""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Raw = dict[str, Any]
SHAPES = ("", "[D]", "[N, D]", "[..., D]", "[2, 3]", "[..., 4]", "[...]", "[N, N]")
NAMES = (
    *("x", "input", "gamma", "scale", "w_1", "größe", "lambda_", "sum", "_b", "mask"),
    *("Type", "dim", "module", "tensor", "inputs", "needs", "values", "gradients"),
)
ATTRIBUTES = (
    *("eps: float = 1e-6", "alpha: float", "k = 3", "n: int = 2", "flag = True"),
    *("flag: bool = False", "mode = 'a\"b'", "mode: Literal['sum', 'mean'] = 'sum'"),
    *(
        "out_dtype: dtype = torch.float32",
        "sizes: tuple[int, ...] = (1, 2)",
    ),
    *("handle: object = None", "group: torch.distributed.ProcessGroup | None = None"),
    *("where: device | None = None", "pair: tuple[int, float] = (1, 2.5)"),
)
NUMBERS = {"eps", "alpha", "k", "n"}
UNARY = (
    *("torch.tanh({})", "({}).sin()", "-({})", "({}).exp()", "F.relu({})", "({}) ** 2"),
    *("torch.where(({}) > 0, {}, 0)", "({}).clamp(-1, 1)", "math.pi * ({})"),
    *("({}).mul(2)", "({}).contiguous()", "torch.sigmoid({})", "abs({})"),
)
BINARY = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "torch.maximum({}, {})",
    "{} / (1 + {} ** 2)",
)
DOCS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=40
)
STYLES = ("setup-context", "combined")


@dataclass(frozen=True)
class Signature:
    """What was drawn for the inputs: names by their use."""

    entries: tuple[str, ...]
    floats: tuple[str, ...]  # get a gradient, are always there
    optional: tuple[str, ...]
    constant: tuple[str, ...]
    variadic: str | None
    numbers: tuple[str, ...]


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    """One or more float tensors of one shape, and whatever else may stand beside them."""
    shape = draw(st.sampled_from(SHAPES))
    count = draw(st.integers(1, 5))
    names = draw(
        st.lists(st.sampled_from(NAMES), min_size=count, max_size=count, unique=True)
    )
    floats, optional, constant, entries = [names[0]], [], [], [names[0] + shape]
    for name in names[1:]:
        kind = draw(
            st.sampled_from(["float", "optional", "const", "int", "bool", "index"])
        )
        trait = {"const": "const", "int": "int", "bool": "bool", "index": "index(5)"}
        if kind == "float":
            floats.append(name)
            entries.append(name + shape)
        elif kind == "optional":
            optional.append(name)
            mark = draw(st.sampled_from(["{0}{1}?", "{0}?{1}", "{0}{1}=None"]))
            entries.append(mark.format(name, shape))
        else:
            constant.append(name)
            inner = shape[1:-1]
            entries.append(f"{name}[{inner}; {trait[kind]}]")
    variadic = draw(st.sampled_from([None, None, None, "tensors"]))
    attributes = draw(
        st.lists(st.sampled_from(ATTRIBUTES), max_size=3, unique_by=_name)
    )
    plain = [item for item in attributes if "=" not in item]
    defaults = [item for item in attributes if "=" in item]
    if variadic:
        entries += [*plain, f"*{variadic}{shape}", *defaults]
    else:
        entries += [*plain, *defaults]
    numbers = tuple(_name(item) for item in attributes if _name(item) in NUMBERS)
    return Signature(
        *(tuple(entries), tuple(floats), tuple(optional), tuple(constant)),
        *(variadic, numbers),
    )


def _name(entry: str) -> str:
    return entry.split(":")[0].split("=")[0].strip()


@st.composite
def expressions(draw: st.DrawFn, names: tuple[str, ...], depth: int = 2) -> str:
    """Maths that keeps the one shape."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(names))
    inner = expressions(names, depth - 1)
    if draw(st.booleans()):
        form = draw(st.sampled_from(UNARY))
        return form.replace("{}", draw(inner))
    form = draw(st.sampled_from(BINARY))
    return form.format(f"({draw(inner)})", f"({draw(inner)})")


@st.composite
def forwards(
    draw: st.DrawFn, signature: Signature, outputs: int
) -> tuple[str, list[str]]:
    """A forward, and the locals that it assigns."""
    local = draw(
        st.lists(st.sampled_from(["h", "rstd", "t1"]), max_size=2, unique=True)
    )
    known, lines = signature.floats, []
    for name in local:
        comment = draw(st.sampled_from(["", "  # why: {{ it }} helps", "\n# alone"]))
        lines.append(f"{name} = {draw(expressions(known))}{comment}")
        known = (*known, name)
    first = draw(expressions(known))
    for name in signature.optional:
        first = f"({first}) {draw(st.sampled_from(['+', '-', '*']))} {name}"
    for name in signature.constant:
        first = f"({first}) * {name}"
    for name in signature.numbers:
        first = f"({first}) * {name}"
    if signature.variadic:
        if "sum" in (*signature.floats, *signature.optional, *signature.constant):
            first = f"({first}) + {signature.variadic}[0]"
        else:
            first = f"({first}) + sum({signature.variadic})"
    others = [draw(expressions(known)) for _ in range(outputs - 1)]
    result = ", ".join([first, *others])
    if not lines:
        return (result if draw(st.booleans()) else f"return {result}"), local
    end = "\n" if draw(st.booleans()) else ""
    return "\n".join([*lines, f"return {result}"]) + end, local


@st.composite
def gradients(draw: st.DrawFn, signature: Signature, names: tuple[str, ...]) -> Raw:
    """Formulas of the one shape for some inputs, or a whole backward for all."""
    wanted = [*signature.floats, *signature.optional]
    given = {
        name: draw(expressions(names))
        for name in wanted
        if draw(st.integers(0, 3))  # most of the time
    }
    if signature.variadic and draw(st.booleans()):
        formula = draw(expressions(names))
        given[signature.variadic] = f"{formula} * {signature.variadic}[i]"
    elif not signature.variadic and given and draw(st.booleans()):
        lines = [f"g = {draw(expressions(names))}"]
        lines += [f"grad_{name} = g * ({text})" for name, text in given.items()]
        return {"backward": "\n".join(lines)}
    return {"grad": given} if given else {}


@st.composite
def behaviours(draw: st.DrawFn) -> Raw:
    """Switches and settings, each with a chance to be left out."""
    switch = st.booleans()
    choices: dict[str, st.SearchStrategy[Any]] = {
        "class-name": st.sampled_from(["RMSNorm", "My_Op", "Größe"]),
        "doc": DOCS,
        "derive": switch,
        "once-differentiable": switch,
        "transforms": switch,
        "materialize-grads": switch,
        "style": st.sampled_from(STYLES),
        "save-policy": st.sampled_from(["recompute", "balanced"]),
        "module": switch,
        "tolerance": st.fixed_dictionaries(
            {},
            optional={
                "eps": st.sampled_from([1e-5, 1]),
                "atol": st.sampled_from([0, 0.001]),
                "nondet_tol": st.just(1e-3),
                "fast_mode": switch,
            },
        ),
    }
    keys = draw(st.sets(st.sampled_from(sorted(choices)), max_size=5))
    return {key: draw(choices[key]) for key in sorted(keys)}


@st.composite
def ordinary(draw: st.DrawFn) -> Raw:
    """Float tensors with all that may stand beside them."""
    signature = draw(signatures())
    count = draw(st.sampled_from([1, 1, 1, 2, 3]))
    raw: Raw = {"inputs": ", ".join(signature.entries)} | draw(behaviours())
    names = ["output"] if count == 1 else ["y", "z", "v"][:count]
    if count > 1:
        raw["outputs"] = ", ".join(names)
    if draw(st.integers(0, 4)):
        raw |= draw(maths(signature, names))
        if raw.get("once-differentiable") is False:
            del raw["once-differentiable"]  # some ops cannot promise that
    if signature.optional and draw(st.booleans()):  # type: ignore[arg-type]
        raw["optional"] = list(signature.optional)
        raw["inputs"] = raw["inputs"].replace("?", "").replace("=None", "")
    raw |= draw(modules(signature, raw))
    return raw


@st.composite
def maths(draw: st.DrawFn, signature: Signature, outputs: list[str]) -> Raw:
    forward, local = draw(forwards(signature, len(outputs)))
    grad = "grad_output" if len(outputs) == 1 else f"grad_{outputs[0]}"
    raw: Raw = {"forward": forward}
    raw |= draw(gradients(signature, (grad, *signature.floats, *local)))
    if draw(st.integers(0, 5)) == 0:
        raw["surrogate"] = draw(st.sampled_from([True, signature.floats[0]]))
    if draw(st.integers(0, 5)) == 0:
        raw["import"] = ["torch.nn.functional:relu as act", "math"]
        raw["forward"] = raw["forward"].replace("F.relu", "act")
    return raw


@st.composite
def modules(draw: st.DrawFn, signature: Signature, raw: Raw) -> Raw:
    """What the module owns: the last float tensor as a parameter, the first constant one as a buffer."""
    found: Raw = {}
    floats, constant = signature.floats, signature.constant
    if raw.get("module") is False:
        return found
    if len(floats) > 1 and draw(st.booleans()):
        start = draw(st.sampled_from(["zeros", "uniform(-0.1, 5**0.5)", "normal()"]))
        found |= {"params": [floats[-1]], "init": {floats[-1]: start}}
    if constant and draw(st.booleans()):  # type: ignore[arg-type]
        found["buffers"] = [constant[0]]
        if draw(st.booleans()):
            found["update"] = {constant[0]: f"{constant[0]} * {constant[0]}"}
    return found


@st.composite
def particular(draw: st.DrawFn) -> Raw:
    """Forms that exclude most others."""
    rank = draw(st.sampled_from(["x[..., N, N", "x[N, N", "x[3, 3"]))
    domain = draw(
        st.sampled_from(["positive", "unit", "nonzero", "simplex", "spd", "distinct"])
    )
    options: list[Raw] = [
        {
            "inputs": f"{rank}; {domain}]",
            "forward": "x * 2",
            "grad": {"x": "2 * grad_output"},
        },
        {
            "inputs": "z[...; complex]",
            "forward": "z * z",
            "grad": {"z": "2 * grad_output * z.conj()"},
        },
        {
            "inputs": "x[N; complex], y[N]",
            "outputs": "o[N; complex]",
            "forward": "x * y",
        },
        {
            "inputs": "x",
            "dirty": ["x"],
            "forward": "x.exp_()",
            "grad": {"x": "grad_output * output"},
        },
        {"inputs": "x, k: float = 2.0", "dirty": ["x"], "forward": "x *= k\nreturn x"},
        {"inputs": "x", "outputs": "y[...; int]", "forward": "(x > 0).long()"},
        {
            "inputs": "x",
            "outputs": "y, i[...; bool]",
            "forward": "h = x * 2; return h, h > 0",
            "grad": {"x": "grad_y * 2"},
        },
        {
            "inputs": "x",
            "outputs": "*ys",
            "forward": "x, 2 * x",
            "grad": {"x": "sum(grad_ys)"},
        },
        {"inputs": "*xs", "outputs": "*ys", "forward": "tuple(2 * x for x in xs)"},
        {
            "inputs": "*xs",
            "forward": "torch.stack(xs).sum(0)",
            "grad": {"xs": "grad_output"},
        },
        {
            "inputs": "x[H], w[G]",
            "require": ["H % G == 0", "G > 2"],
            "forward": "x.sum() * w",
        },
        {"inputs": "f: object, x", "forward": "f(x)"},
        {
            "inputs": "x[N, C], t[N; index(C)]",
            "forward": "F.nll_loss(F.log_softmax(x, -1), t)",
        },
        {
            "inputs": "a[M, K], b[K, N]",
            "forward": "a @ b",
            "grad": {"a": "grad_output @ b.t()", "b": "a.t() @ grad_output"},
        },
        {
            "schema": "f(Tensor x, Tensor? w=None, float k=2, *, int[2] s=[1, 2]) -> Tensor",
            "forward": "x * k + w",
        },
        {
            "schema": "f(Tensor(a!) x, Scalar k) -> Tensor(a!)",
            "forward": "x.mul_(k)",
            "grad": {"x": "k * grad_output"},
        },
        {
            "schema": "f(Tensor[] xs, bool flag=True) -> (Tensor a, Tensor b)",
            "forward": "xs[0], xs[-1] * 2",
        },
        {
            "schema": "f(Tensor x, Tensor y) -> Tensor",
            "inputs": "x[N, D], y[N, D; const]",
            "outputs": "z[N, D]",
        },
    ]
    options = [item for item in options if " for " not in item.get("forward", "")]
    raw = draw(st.sampled_from(options)) | draw(behaviours())
    return {
        key: value
        for key, value in raw.items()
        if (key, value) != ("once-differentiable", False)
    }


def raws() -> st.SearchStrategy[Raw]:
    """A valid op."""
    return st.one_of(ordinary(), ordinary(), ordinary(), particular())


LISTS = {"import", "require"}  # one option each
NAME_LISTS = {"optional", "nondiff", "dirty", "params", "buffers"}


def options(raw: Raw) -> tuple[str, ...]:
    """The op as the command line says it."""
    return tuple(word for key, value in raw.items() for word in _option(key, value))


def _option(key: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no-{key}"]
    if key == "surrogate":
        return ["--surrogate-forward", value]
    if key == "tolerance":
        return (
            [f"--{key}", ", ".join(f"{name}={item}" for name, item in value.items())]
            if value
            else []
        )
    if isinstance(value, dict):
        return [
            word
            for name, item in value.items()
            for word in (f"--{key}", f"{name}={item}")
        ]
    if key in LISTS:
        return [word for item in value for word in (f"--{key}", item)]
    if key in NAME_LISTS:
        return [f"--{key}", ",".join(value)]
    return [f"--{key}", value]


def toml(name: str, raw: Raw) -> str:
    """The op as a file says it."""
    lines = [f"{json.dumps(key)} = {_value(value)}" for key, value in raw.items()]
    return "\n".join([f"[ops.{name}]", *lines, ""])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(
            f"{json.dumps(k, ensure_ascii=False)} = {_value(v)}"
            for k, v in value.items()
        )
        return f"{{ {inner} }}"
    return json.dumps(value, ensure_ascii=False)
