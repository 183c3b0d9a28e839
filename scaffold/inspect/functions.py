"""Functions of a file, their methods, and their calls.

These are the plain data of a parsed file, made once by `inspect.classes`; `facts` answers further questions about them. Rules of
lint, test stubs and `adopt` read both.

Words: a Function of *style* setup-context keeps ctx out of forward, in a method `setup_context`, a *combined* one has
`forward(ctx, ...)`; its *saver* is the method with both ctx and the inputs; its *own* methods are written in the class itself.

In: `inspect.classes` and its siblings fill it. Out: the data of lint rules and test stubs.
Invariant: every field is a fact of the syntax; unknowns are None or absent, never assumed.
"""

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from scaffold.inspect.flow import Flow
from scaffold.inspect.imported_names import Names

Binding = Literal["static", "class", "plain"]  # by the decorator
Passing = Literal["positional", "variadic", "keyword", "keywords"]


class Parameter(NamedTuple):
    """A parameter of a method other than ctx; `passing` says how it is given: `x`, `*xs`, `*, x` or `**xs`."""

    name: str
    passing: Passing
    default: ast.expr | None
    annotation: ast.expr | None

    @property
    def type(self) -> str:
        """Return the annotation as text; "" without one."""
        return ast.unparse(self.annotation) if self.annotation else ""

    @property
    def is_bare(self) -> bool:
        """Return whether it has neither an annotation nor a default."""
        return self.annotation is None and self.default is None

    @property
    def admits_none(self) -> bool:
        """Return whether its annotation admits None."""
        return "None" in self.type or self.type.startswith("Optional")


@dataclass(frozen=True)
class Method:
    """A method of a Function; `ctx` is the name of its context parameter, if any."""

    node: ast.FunctionDef
    binding: Binding
    ctx: str | None
    parameters: tuple[Parameter, ...]
    decorators: tuple[str, ...]

    @property
    def positional(self) -> tuple[Parameter, ...]:
        """Return the parameters that take one positional argument each, without `*args` and keywords."""
        return tuple(item for item in self.parameters if item.passing == "positional")

    @property
    def variadic(self) -> Parameter | None:
        """Return the `*args` of the method, or None."""
        return next((i for i in self.parameters if i.passing == "variadic"), None)

    @property
    def required(self) -> int:
        """Return the number of required positional arguments."""
        return sum(item.default is None for item in self.positional)

    @cached_property
    def flow(self) -> Flow:
        """Return the method's statements and bindings of names; ctx counts as a parameter."""
        names = [item.name for item in self.parameters]
        return Flow(self.node, (*names, self.ctx) if self.ctx else tuple(names))

    @cached_property
    def asks_for_grad_mode(self) -> bool:
        """Return whether an `if` tests `torch.is_grad_enabled()`.

        In a backward this is on only under `create_graph=True`, so its author treats second derivatives apart.
        """
        return any(
            isinstance(call, ast.Call)
            and ast.unparse(call.func).endswith("is_grad_enabled")
            for node in ast.walk(self.node)
            if isinstance(node, ast.If)
            for call in ast.walk(node.test)
        )

    def has(self, decorator: str) -> bool:
        """Return whether the method has a decorator of this last name, from any module: `once_differentiable`."""
        return any(name.split(".")[-1] == decorator for name in self.decorators)


class Application(NamedTuple):
    """A call `Name.apply(...)`, and the definitions around it."""

    call: ast.Call
    within: tuple[ast.AST, ...]  # definitions around it, outermost first


@dataclass(frozen=True)
class Function:
    """A subclass of torch.autograd.Function."""

    name: str
    qualname: str
    node: ast.ClassDef
    methods: dict[str, Method]  # its own
    parents: tuple["Function", ...]  # of the same file
    complete: bool  # all bases, and theirs, are in this file or torch's
    generate_vmap_rule: bool
    applications: tuple[Application, ...]
    aliases: tuple[str, ...]  # names bound to `Name.apply`
    nested: bool  # within a function: not importable
    unique: bool  # no other class of the file has its name

    def method(self, name: str) -> Method | None:
        """Return a method by name, the class's own or inherited from a Function of the file; None if there is none."""
        if name in self.methods:
            return self.methods[name]
        for parent in self.parents:
            found = parent.method(name)
            if found is not None:
                return found
        return None

    @property
    def forward(self) -> Method | None:
        return self.method("forward")

    @property
    def backward(self) -> Method | None:
        # `vjp` is torch's other name for backward.
        return self.method("backward") or self.method("vjp")

    @property
    def is_base(self) -> bool:
        """Return whether backward is left to subclasses: it only raises NotImplementedError, after a docstring at most.

        Such a class is no op of its own, so `verify` skips it.
        """
        if self.backward is None:
            return False
        *before, last = self.backward.node.body
        documented = all(isinstance(statement, ast.Expr) for statement in before)
        return documented and ast.unparse(last).startswith("raise NotImplementedError")

    @property
    def setup_context(self) -> Method | None:
        return self.method("setup_context")

    @property
    def once_differentiable(self) -> bool:
        """Return whether its author gives no second derivative, or another: by `@once_differentiable` or a test of the grad mode."""
        backward = self.backward
        return backward is not None and (
            backward.has("once_differentiable") or backward.asks_for_grad_mode
        )

    @property
    def saver(self) -> Method | None:
        """Return the method with both ctx and the inputs, which keeps values for backward: setup_context or a combined forward."""
        return self.setup_context or self.forward

    @property
    def own(self) -> tuple[Method, ...]:
        """Return the methods written in the class itself, none inherited."""
        return tuple(self.methods.values())

    def inputs(self) -> tuple[Parameter, ...]:
        """Return the inputs of `apply`: the parameters of forward, without ctx; () if its forward is in another file."""
        return self.forward.parameters if self.forward else ()


@dataclass(frozen=True)
class Operator:
    """A function under torch.library.custom_op."""

    name: str
    node: ast.FunctionDef
    parameters: tuple[Parameter, ...]
    mutates: ast.expr | None  # the value of mutates_args
    autograd: ast.Call | None  # the call of register_autograd
    backward: ast.FunctionDef | None


@dataclass(frozen=True)
class Module:
    """A file: its Functions and custom operators, in the order of the text."""

    path: str
    text: str
    tree: ast.Module
    names: Names
    functions: tuple[Function, ...]
    operators: tuple[Operator, ...]
    calls: tuple[ast.Call, ...]  # in the whole file
    scopes: tuple[ast.AST, ...]  # every class and function in the file
