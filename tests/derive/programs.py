"""Random ops whose backward was written by rules of its own, independent of the engine under test.

In: a seed. Out: a `Program`: the raw spec (formulas as a user would write them, with names reused, inputs reassigned, shared
intermediates, locals of the forward read or computed again) and the same forward as a Python function for autograd.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

ROWS, COLUMNS = 2, 3
SHAPES = {
    "full": (ROWS, COLUMNS),
    "row": (COLUMNS,),
    "col": (ROWS, 1),
    "mat": (COLUMNS, COLUMNS),
}
Values = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """A primitive: its forward text, what it does, and the text of each gradient.

    `{0}`, `{1}` are the arguments, `{g}` the incoming gradient, `{o}` the result.
    """

    text: str
    run: Callable[..., Tensor]
    gradients: tuple[str, ...]
    attributes: tuple[str, ...] = ()


def _row_sum(a: Tensor) -> Tensor:
    return a.sum(-1, keepdim=True)


UNARY = (
    Rule("{0}.sin()", torch.sin, ("{g} * {0}.cos()",)),
    Rule("torch.tanh({0})", torch.tanh, ("{g} * (1 - {o} * {o})",)),
    Rule("torch.sigmoid({0})", torch.sigmoid, ("{g} * {o} * (1 - {o})",)),
    Rule(
        "torch.exp(-{0} * {0})", lambda a: torch.exp(-a * a), ("-2 * {g} * {0} * {o}",)
    ),
    Rule("-{0}", torch.neg, ("-{g}",)),
    Rule("{0} ** 2", torch.square, ("2 * {g} * {0}",)),
    Rule("{0} * p", lambda a, p: a * p, ("{g} * p",), ("p",)),
    Rule(
        "torch.where({0} > 0, {0}, {0} * 0.5)",
        lambda a: torch.where(a > 0, a, a * 0.5),
        ("torch.where({0} > 0, {g}, {g} * 0.5)",),
    ),
)
REDUCTIONS = (
    Rule("{0}.sum(-1, keepdim=True)", _row_sum, ("{g}.expand({0}.shape)",)),
    Rule("{0}.sum(dim=-1, keepdim=True)", _row_sum, ("{g}.expand_as({0})",)),
    Rule(
        "{0}.mean(-1, keepdim=True)",
        lambda a: a.mean(-1, keepdim=True),
        ("({g} / {0}.size(-1)).expand({0}.size())",),
    ),
)
ADD = Rule("{0} + {1}", torch.add, ("{g}", "{g}"))
MULTIPLY = Rule("{0} * {1}", torch.mul, ("{g} * {1}", "{g} * {0}"))
BINARY = (ADD, MULTIPLY, Rule("{0} - {1}", torch.sub, ("{g}", "-{g}")))
MATMUL = Rule("{0} @ {1}", torch.matmul, ("{g} @ {1}.t()", "{0}.t() @ {g}"))
UNBROADCAST = ("{v}.sum_to_size({a}.shape)", "{v}.sum_to_size({a}.size())")


@dataclass
class Step:
    """One statement of the forward in single-assignment form."""

    rule: Rule
    args: tuple[int, ...]
    result: int
    shape: str
    kind: str = "plain"  # or optional, branch, dropout, scalar, pair, parts
    mate: int = -1  # the mask, the scalar, the other half of a pair


@dataclass
class Program:
    """An op, and the same op without one."""

    raw: dict[str, Any]
    inputs: dict[str, str]  # tensor -> kind of shape
    optional: tuple[str, ...]
    reference: Callable[..., tuple[Tensor, ...]]
    steps: list[Step] = field(default_factory=list)


class Builder:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.inputs: dict[str, str] = {}
        self.shapes: dict[int, str] = {}
        self.of_input: dict[int, str] = {}
        self.steps: list[Step] = []
        self.lines: list[str] = []  # of the forward
        self.named: dict[int, str] = {}  # value -> the name it had when it was made
        self.holds: dict[str, int] = {}  # name -> the value that it has at last
        self.bias = False
        self.outputs: dict[int, str] = (
            {}
        )  # results that the backward may read as outputs

    def value(self, shape: str) -> int:
        number = len(self.shapes)
        self.shapes[number] = shape
        return number

    # -- the forward ---------------------------------------------------------

    def declare(self) -> None:
        for name in ("x", "y", "w")[: self.pick.randint(1, 3)]:
            shape = self.pick.choice(["full", "full", "row", "col"])
            self.add_input(name, "full" if name == "x" else shape)
        if self.pick.random() < 0.3:
            self.add_input("m", "mat")
        if self.pick.random() < 0.5:
            self.bias = True
            self.inputs["b"] = "row"

    def add_input(self, name: str, shape: str) -> None:
        number = self.value(shape)
        self.inputs[name] = shape
        self.of_input[number] = name
        self.named[number] = name

    def readable(self, *shapes: str) -> list[int]:
        """The values that still have a name."""
        return [
            number
            for number, shape in self.shapes.items()
            if shape in (shapes or ("full", "row", "col"))
            and (self.holds.get(self.named[number], number) == number)
        ]

    def target(self) -> str:
        """A name to assign: new, used before, or an input's."""
        names = ["h", "k", "t", "s1", "new_x", "output", "grad_x", "x_shape"]
        names += [name for name in self.inputs if name != "b"]
        return self.pick.choice(names)

    def assign(self, number: int, name: str) -> str:
        self.named[number], self.holds[name] = name, number
        return name

    def step(self) -> None:
        choice = self.pick.random()
        source = self.pick.choice(self.readable())
        shape = self.shapes[source]
        if choice < 0.3:
            rule = self.pick.choice(UNARY)
            self.plain(rule, (source,), shape)
        elif choice < 0.4 and shape in ("full", "col"):
            self.plain(self.pick.choice(REDUCTIONS), (source,), "col")
        elif choice < 0.65:
            other = self.pick.choice(self.readable())
            kinds = {shape, self.shapes[other]}
            joint = shape if len(kinds) == 1 else "full"
            self.plain(self.pick.choice(BINARY), (source, other), joint)
        elif choice < 0.7 and self.readable("mat") and shape == "full":
            self.plain(MATMUL, (source, self.readable("mat")[0]), "full")
        elif choice < 0.78 and self.bias and shape in ("full", "row"):
            self.optional(source, shape)
        elif choice < 0.84:
            self.branch(source, shape)
        elif choice < 0.88:
            self.pair(source, shape)
        elif choice < 0.92 and shape == "full":
            self.scalar(source, shape)
        elif choice < 0.96:
            self.dropout(source, shape)
        else:
            self.parts(source, shape)

    def plain(self, rule: Rule, args: tuple[int, ...], shape: str) -> None:
        result = self.value(shape)
        text = rule.text.format(*(self.named[arg] for arg in args))
        self.lines.append(f"{self.assign(result, self.target())} = {text}")
        self.steps.append(Step(rule, args, result, shape))

    def optional(self, source: int, shape: str) -> None:
        rule = self.pick.choice(BINARY)
        result = self.value(shape)
        text = rule.text.format(self.named[source], "b")
        self.lines.append(f"{self.assign(result, self.target())} = {text}")
        self.steps.append(Step(rule, (source,), result, shape, "optional"))

    def branch(self, source: int, shape: str) -> None:
        rule = Rule(
            "{0} * 2 if n > 2 else {0} + 1",
            lambda a, n: a * 2 if n > 2 else a + 1,
            ("{g} * 2 if n > 2 else {g}",),
            ("n",),
        )
        result, before = self.value(shape), self.named[source]
        name = self.assign(result, self.target())
        if self.pick.random() < 0.5:
            self.lines.append(f"{name} = {rule.text.format(before)}")
        else:
            self.lines.append(f"if n > 2:\n    {name} = {before} * 2")
            self.lines.append(f"else:\n    {name} = {before} + 1")
        self.steps.append(Step(rule, (source,), result, shape, "branch"))

    def pair(self, source: int, shape: str) -> None:
        one, two = self.value(shape), self.value(shape)
        before = self.named[source]
        first, second = self.pick.sample(["h", "k", "u", "v", "output"], 2)
        self.assign(one, first), self.assign(two, second)
        self.lines.append(f"{first}, {second} = {before}.sin(), {before}.cos()")
        sin, cos = UNARY[0], Rule("{0}.cos()", torch.cos, ("-{g} * {0}.sin()",))
        self.steps.append(Step(sin, (source,), one, shape))
        self.steps.append(Step(cos, (source,), two, shape))

    def scalar(self, source: int, shape: str) -> None:
        rule = Rule("{0} / c", lambda a: a / a.shape[-1], ("{g} / c",))
        result = self.value(shape)
        self.lines.append(f"c = {self.named[source]}.shape[-1]")
        self.lines.append(f"{self.target_of(result)} = {self.before(source)} / c")
        self.steps.append(Step(rule, (source,), result, shape))

    def target_of(self, result: int) -> str:
        self.pending = self.target()
        self.waiting = result
        return self.pending

    def before(self, source: int) -> str:
        """The name of a value, read before the pending target hides it."""
        text = self.named[source]
        self.assign(self.waiting, self.pending)
        return text

    def dropout(self, source: int, shape: str) -> None:
        mask = f"mask{len(self.steps)}"
        rule = Rule("{0} * " + mask, torch.mul, ("{g} * " + mask,), (mask,))
        result = self.value(shape)
        self.lines.append(f"{mask} = torch.rand_like({self.named[source]}) > 0.3")
        self.lines.append(f"{self.target_of(result)} = {self.before(source)} * {mask}")
        self.steps.append(Step(rule, (source,), result, shape, "dropout"))

    def parts(self, source: int, shape: str) -> None:
        name = f"parts{len(self.steps)}"
        rule = Rule(
            f"{name}[0] * {name}[1]",
            lambda a: a * (a * 2),
            (f"{{g}} * (2 * {name}[0] + {name}[1])",),
        )
        result, before = self.value(shape), self.named[source]
        stacked = f"torch.stack([{before}, {before} * 2])"
        split = self.pick.choice([f"{stacked}.unbind(0)", f"torch.unbind({stacked})"])
        self.lines.append(f"{name} = {split}")
        self.lines.append(f"{self.target_of(result)} = {name}[0] * {name}[1]")
        self.assign(result, self.pending)
        self.steps.append(Step(rule, (source,), result, shape))


def reference_of(
    steps: list[Step], of_input: dict[int, str], results: list[int]
) -> Callable[..., tuple[Tensor, ...]]:
    """The forward over tensors and attributes by name, for autograd to differentiate."""

    def run(**values: Any) -> tuple[Tensor, ...]:
        known: dict[int, Tensor] = {n: values[name] for n, name in of_input.items()}
        for step in steps:
            args = [known[arg] for arg in step.args]
            if step.kind == "optional":
                bias = values["b"]
                known[step.result] = (
                    args[0] if bias is None else step.rule.run(*args, bias)
                )
            elif step.kind == "dropout":
                mask = torch.rand_like(args[0]) > 0.3
                known[step.result] = args[0] * mask
            else:
                more = [values[name] for name in step.rule.attributes]
                known[step.result] = step.rule.run(*args, *more)
        return tuple(known[number] for number in results)

    return run


class Backward:
    """Writes the gradients of a forward, by the chain rule over its steps, as a user would."""

    def __init__(
        self, builder: Builder, grads: dict[int, str], wanted: set[str]
    ) -> None:
        self.builder, self.pick = builder, builder.pick
        self.wanted = wanted
        self.statements: list[tuple[str, str, tuple[str, ...]]] = []
        self.count = 0
        self.recomputed: dict[int, str] = {}
        self.cotangents: dict[int, str] = dict(grads)
        self.fresh: set[str] = set()
        self.bias: str | None = None
        self.outputs = builder.outputs

    def active(self) -> set[int]:
        """The values through which the wanted inputs reach the result."""
        found = {n for n, name in self.builder.of_input.items() if name in self.wanted}
        for step in self.builder.steps:
            through_bias = step.kind == "optional" and "b" in self.wanted
            if through_bias or found & set(step.args):
                found.add(step.result)
        return found

    def new(self, text: str, *reads: str) -> str:
        """A statement; variables are `@1`, `@2`, ... until they get names."""
        self.count += 1
        name = f"@{self.count}@"
        self.statements.append((name, text, reads))
        return name

    def read(self, number: int) -> str:
        """A value of the forward: by name if its name still has it, else computed again."""
        builder = self.builder
        if number in builder.of_input:
            return builder.of_input[number]
        name = builder.named[number]
        lasting = builder.holds[name] == number and name not in builder.inputs
        lasting = lasting and name not in ("output", "grad_x")
        if number in self.outputs and self.pick.random() < 0.5:
            return self.outputs[number]
        if number in self.recomputed:
            return self.recomputed[number]
        step = next(item for item in builder.steps if item.result == number)
        if lasting and self.pick.random() < 0.7:
            return name
        more = ("b",) if step.kind == "optional" else ()
        text = step.rule.text.format(*(self.read(arg) for arg in step.args), *more)
        self.recomputed[number] = self.new(text)
        return self.recomputed[number]

    def run(self) -> None:
        active = self.active()
        for step in reversed(self.builder.steps):
            if step.result not in active or step.result not in self.cotangents:
                continue
            incoming = self.cotangents[step.result]
            for position, arg in enumerate(step.args):
                if arg in active:
                    self.contribute(step, position, arg, incoming)
            if step.kind == "optional" and "b" in self.wanted:
                self.to_bias(step, incoming)

    def gradient(self, step: Step, position: int, incoming: str) -> str:
        rule = step.rule
        text = rule.gradients[position]
        names = [
            self.read(arg) if f"{{{k}}}" in text else ""
            for k, arg in enumerate(step.args)
        ]
        if step.kind == "optional":
            names.append("b")
        result = self.read(step.result) if "{o}" in text else ""
        return text.format(*names, g=incoming, o=result)

    def contribute(self, step: Step, position: int, arg: int, incoming: str) -> None:
        text = self.gradient(step, position, incoming)
        shape = self.builder.shapes[arg]
        if shape != step.shape and "expand" not in text and step.rule is not MATMUL:
            reduced = self.pick.choice(UNBROADCAST)
            text = reduced.format(v=f"({text})", a=self.read(arg))
        text = f"({text})" if " if " in text else text
        known = self.cotangents.get(arg)
        if known is None:
            self.cotangents[arg] = self.new(text)
        elif known in self.fresh and self.pick.random() < 0.4:
            self.statements.append((known, f"+= {text}", ()))
        else:
            self.cotangents[arg] = self.new(f"{known} + {text}")
            self.fresh.add(self.cotangents[arg])

    def to_bias(self, step: Step, incoming: str) -> None:
        factor = {"{g}": "{v}", "-{g}": "-{v}"}.get(step.rule.gradients[1])
        text = (
            factor.format(v=incoming)
            if factor
            else f"{incoming} * {self.read(step.args[0])}"
        )
        whole = f"({text}).sum_to_size(b.shape)"
        if self.bias is None:
            self.bias = self.new(f"?{whole}")
        else:
            self.bias = self.new(f"?{self.bias} + {whole}")

    # -- names ---------------------------------------------------------------

    def named(self, results: dict[str, str], whole: bool) -> list[str]:
        """The statements with names for the variables: names are used again where the value is dead."""
        last: dict[str, int] = {}
        for position, (target, text, _) in enumerate(self.statements):
            for word in (*_words(text), target):
                last[word] = position
        end = len(self.statements)
        for value in results.values():
            for word in _words(value):
                last[word] = end
        given: dict[str, str] = {}
        lines = []
        for position, (target, text, _) in enumerate(self.statements):
            text = _replaced(text, given)
            if target not in given or not text.startswith("+="):
                given[target] = self.name_for(target, given, last, position, whole)
            if text.startswith("+="):
                lines.append(f"{given[target]} {text}")
            elif text.startswith("?") and whole:
                lines.append(f"{given[target]} = None")
                lines.append(f"if b is not None:\n    {given[target]} = {text[1:]}")
            else:
                lines.append(f"{given[target]} = {text.lstrip('?')}")
        self.given = given
        return lines

    def name_for(
        self,
        target: str,
        given: dict[str, str],
        last: dict[str, int],
        position: int,
        whole: bool,
    ) -> str:
        """A name whose value is not read any more: of the backward, of an input, of a local, of the gradient."""
        busy = {
            given[word] for word in given if last[word] >= position and word != target
        }
        busy |= {
            word for word, end in last.items() if end >= position and "@" not in word
        }
        names = [
            "g",
            "t",
            "u",
            "h",
            "k",
            "grad_h",
            "x",
            "y",
            "w",
            "m",
            "s1",
            "new_x",
            "c",
        ]
        names += ["output", "one"]
        names += ["grad_output"] if position else []
        usable = [name for name in names if name not in busy]
        return self.pick.choice(usable or [f"v{position}"])


def _words(text: str) -> Iterator[str]:
    word = ""
    for char in text + " ":
        if char.isalnum() or char in "_@":
            word += char
        elif word:
            yield word
            word = ""


def _replaced(text: str, given: dict[str, str]) -> str:
    for variable in sorted(given, key=len, reverse=True):
        text = text.replace(variable, given[variable])
    return text


def program(seed: int) -> Program:
    """A random op."""
    builder = Builder(seed)
    pick = builder.pick
    builder.declare()
    for _ in range(pick.randint(1, 7)):
        builder.step()
    inner = [step.result for step in builder.steps]
    kept = [n for n in inner if builder.holds.get(builder.named[n]) == n]
    count = 2 if len(kept) > 1 and pick.random() < 0.4 else 1
    results = [kept[-1], *pick.sample(kept[:-1], count - 1)]
    named = ("output",) if count == 1 else ("one", "two")
    raw: dict[str, Any] = {
        "forward": "\n".join(
            [*builder.lines, f"return {', '.join(builder.named[n] for n in results)}"]
        )
    }
    if count > 1:
        raw["outputs"] = ", ".join(named)
    for n, name in zip(results, named, strict=True):
        if name not in builder.holds or builder.named[n] == name:
            builder.outputs[n] = name
    grads = {
        n: "grad_output" if count == 1 else f"grad_{name}"
        for n, name in zip(results, named, strict=True)
    }
    wanted = set(builder.inputs)
    if pick.random() < 0.5:
        raw["backward"] = _whole(builder, grads, wanted)
    else:
        raw["grad"] = {name: _single(builder, grads, name) for name in sorted(wanted)}
    declared = [name for name in builder.inputs if name != "b"]
    optional = ("b",) if builder.bias else ()
    words = [
        *declared,
        *(f"{name}?" for name in optional),
        "p: float = 1.5",
        "n: int = 3",
    ]
    raw["inputs"] = ", ".join(words)
    reference = reference_of(builder.steps, builder.of_input, results)
    return Program(raw, builder.inputs, optional, reference, builder.steps)


def _results(written: Backward, builder: Builder) -> dict[str, str]:
    found = {}
    for number, name in builder.of_input.items():
        if name in written.wanted:
            known = written.cotangents.get(number)
            found[name] = known or f"torch.zeros_like({name})"
    if "b" in written.wanted:
        found["b"] = written.bias or "torch.zeros_like(b)"
    return found


def _whole(builder: Builder, grads: dict[int, str], wanted: set[str]) -> str:
    written = Backward(builder, grads, wanted)
    written.run()
    results = _results(written, builder)
    lines = written.named(results, whole=True)
    for name, value in results.items():
        text = f"grad_{name} = {_replaced(value, written.given)}"
        guarded = name == "b" and "zeros_like" in value
        lines.append(f"if b is not None:\n    {text}" if guarded else text)
    return "\n".join(lines)


def _single(builder: Builder, grads: dict[int, str], name: str) -> str:
    written = Backward(builder, grads, {name})
    written.run()
    results = _results(written, builder)
    lines = written.named(results, whole=False)
    return "\n".join([*lines, f"return {_replaced(results[name], written.given)}"])
