"""The operators that a formula may name, of PyTorch and of NumPy.

In: the statements of a formula, and what the names in it were imported as. Out: what is said of each name that is no
operator. Invariant: a dotted name that stands is one of the table `torch_names.txt`, which a script makes, or of a newer
PyTorch; a module is never a value.

It keeps a repository from doing more than maths by what looks like maths: `torch.save`, `torch.hub.load`, `x.storage()`.
It is no sandbox: what a formula imports is the user's own code, and is not looked at.
"""

import ast
import copy
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from scaffold.errors import did_you_mean
from scaffold.formula.expression import ELSEWHERE
from scaffold.formula.graph import Formula, Node, expressions
from scaffold.formula.text import WELL_KNOWN, Meanings

VALUES = "values"  # methods and attributes, whatever they are asked of
OPS = "torch.ops"  # its operators are those of any library
LIBRARIES = {"math": "Python's math", "numpy": "NumPy", "torch": "PyTorch"}
# What nobody calls a tensor: libraries of arrays, by the names that people give them, each with its import.
ARRAYS = {
    "np": "numpy as np",
    "numpy": "numpy",
    "jnp": "jax.numpy as jnp",
    "cp": "cupy as cp",
    "tf": "tensorflow as tf",
}
NN = frozenset({"nn", "functional"})  # PyTorch's, without an import
SHORT = {"torch.nn.functional.": "F."}
INSTEAD = {  # of what has a spelling that a formula may use
    "data": "write: x.detach()",
    "apply_": "write it with tensors: it calls Python for each element",
    "map_": "write it with tensors: it calls Python for each element",
    "map2_": "write it with tensors: it calls Python for each element",
    "grad": "the gradients of a call are those of its backward",
}
Problem = tuple[ast.AST, str, str | None]


class Names(NamedTuple):
    """The names of a namespace: those of operators, and all others that it has."""

    operators: frozenset[str]
    others: frozenset[str]


@lru_cache(maxsize=1)
def table() -> Mapping[str, Names]:
    """The namespaces that have operators."""
    text = Path(__file__).with_name("torch_names.txt").read_text("utf-8")
    parts = {
        head: frozenset(body.split())
        for head, _, body in (part.partition("]") for part in text.split("\n[")[1:])
    }
    spaces = [head for head in parts if not head.startswith("not ")]
    found = {head: Names(parts[head], parts[f"not {head}"]) for head in spaces}
    public = frozenset(name for name in dir(math) if not name.startswith("_"))
    return found | {"math": Names(public, frozenset())}


def not_operators(body: Sequence[ast.stmt], meanings: Meanings) -> Iterator[Problem]:
    """Complaints about names that are no operators, each with its node."""
    visitor = _Visitor(body, meanings)
    for item in body:
        visitor.visit(item)
    yield from visitor.problems


class _Visitor(ast.NodeVisitor):
    """Reads each dotted name from its root."""

    def __init__(self, body: Sequence[ast.stmt], meanings: Meanings) -> None:
        self.roots = WELL_KNOWN | dict(meanings.imports)
        self.own = {*meanings.own, *_made_by(body, meanings.own)}
        self.problems: list[Problem] = []

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):  # what cannot be assigned, others refuse
            self._check(node, node, ())

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        names, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            names.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name):
            self._check(node, value, tuple(reversed(names)))
            return
        self.visit(value)
        if root_of(value) not in self.own:
            self._check_values(node, reversed(names))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Skip the annotation, which never runs."""
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def _check(self, node: ast.expr, root: ast.Name, names: tuple[str, ...]) -> None:
        if root.id not in self.roots:
            unimported = root.id in NN or root.id in ARRAYS  # of which others complain
            known = unimported or root.id in self.own
            self._check_values(node, () if known else names)
            return
        dotted = ".".join((self.roots[root.id], *names))
        said, rest = judged(dotted, imported=not names)
        if said is not None:
            self.problems.append((node, *said))
        else:
            self._check_values(node, rest)

    def _check_values(
        self, node: ast.expr, names: Iterator[str] | tuple[str, ...]
    ) -> None:
        for name in names:
            said = judged_value(name)
            if said is not None:
                self.problems.append((node, *said))


def root_of(value: ast.expr) -> str:
    """The name that an expression hangs on: that of the function for what it returns."""
    while True:
        match value:
            case ast.Name(name):
                return name
            case ast.Attribute(inner) | ast.Subscript(inner) | ast.Starred(inner):
                value = inner
            case ast.Call(inner):
                value = inner
            case _:
                return ""


def _made_by(body: Sequence[ast.stmt], own: Collection[str]) -> set[str]:
    """The names that are assigned what functions of the user's own return."""
    found = set[str]()
    assigned = [
        (targets, value)
        for item in body
        for node in ast.walk(item)
        for targets, value in _assigned(node)
    ]
    while True:
        known = {*own, *found}
        more = {
            target.id
            for targets, value in assigned
            if root_of(value) in known
            for item in targets
            for target in ast.walk(item)
            if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
        }
        if more <= found:
            return found
        found |= more


def _assigned(node: ast.AST) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    match node:
        case ast.Assign(targets, value):
            yield targets, value
        case ast.AnnAssign(target, _, value) if value is not None:
            yield [target], value
        case ast.For(target, value) | ast.comprehension(target, value):
            yield [target], value


Said = tuple[str, str | None]


def judged(
    dotted: str, *, imported: bool = False
) -> tuple[Said | None, tuple[str, ...]]:
    """What is wrong with a dotted name of a library, and else what follows its operator.

    A name that is `imported` may be newer than the table, however near it is to another.
    """
    space, *names = dotted.split(".")
    while names and (f"{space}.{names[0]}" in table() or _leads(f"{space}.{names[0]}")):
        space = f"{space}.{names.pop(0)}"
    library = LIBRARIES[space.split(".")[0]]
    shown = _short(dotted)
    if space == OPS or space.startswith(f"{OPS}."):
        return _judged_op(names, shown)
    if not names:
        message = f"'{shown}' is a module, and no value"
        return (message, "a formula names operators: torch.exp(...)"), ()
    known = table().get(space, Names(frozenset(), frozenset()))
    name, *rest = names
    if name in known.operators:
        return None, tuple(rest)
    shown = _short(f"{space}.{name}")
    if name in known.others:
        return (f"'{shown}' is no operator of {library}", ELSEWHERE), ()
    misspelt = _elsewhere(name) or _is_near(name, known)
    if not rest and (imported or not misspelt):
        return None, ()  # a newer one has it, or else its proof says so
    near = _near_space(f"{space}.{name}") if rest else None
    return (f"{library} has no '{shown}'", near or meant(space, name)), ()


def _near_space(space: str) -> str | None:
    """The namespace that may be meant, as a hint."""
    near = get_close_matches(space, table(), n=1, cutoff=ALIKE)
    return f"did you mean '{near[0]}'?" if near else None


def newer(formula: Formula) -> frozenset[str]:
    """The functions of PyTorch that a formula names and the table does not have, by their dotted names."""
    statements = formula.kept.statements if formula.kept else formula.statements
    read = [node for item in statements for node in expressions(item)]
    read += [formula.result] if formula.result is not None else []
    dotted = {_dotted(inner) for node in read for inner in node.walk()}
    return frozenset(name for name in dotted if is_newer(*name.rpartition(".")[::2]))


def _dotted(node: Node) -> str:
    if node.kind == "name":
        return WELL_KNOWN.get(node.label, "")
    inner = _dotted(node.args[0]) if node.kind == "attribute" else ""
    return f"{inner}.{node.label}" if inner else ""


def is_newer(space: str, name: str) -> bool:
    """Whether a namespace of PyTorch has operators and the table does not have this one."""
    known = table().get(space) if space.startswith("torch") else None
    leads = _leads(f"{space}.{name}") or f"{space}.{name}" in table()
    return known is not None and not leads and name not in known.operators


def is_torch_word(word: str) -> bool:
    """Whether some namespace of PyTorch, or a tensor, has a name, be it an operator or not."""
    return any(word in said for names in table().values() for said in names)


def is_tensor_word(word: str) -> bool:
    """Whether a tensor has a method or an attribute of that name, be it an operator or not."""
    return any(word in names for names in table()[VALUES])


def is_judged(module: str, name: str | None) -> bool:
    """Whether what is imported is of a library that the table knows, rather than the user's own."""
    whole = name is None and module in ("torch.nn", OPS)
    return whole or module in table() or module.startswith(f"{OPS}.")


def instead_of(node: ast.Name, body: Sequence[ast.stmt]) -> str | None:
    """What to write for a name that nobody knows and that is called, or has what is called: PyTorch's function, or an import."""
    parts = [part for item in body for part in ast.walk(item)]
    if any(isinstance(part, ast.Call) and part.func is node for part in parts):
        return (
            written_instead(node.id)
            or f"a function of yours: --import 'module:{node.id}'"
        )
    for part in parts:
        match part:
            case ast.Call(ast.Attribute() as callee) if _hangs_on(callee, node):
                there = written_instead(callee.attr)
                if node.id == "self":
                    break
                if node.id in NN:
                    return _of_nn(callee.attr)
                own = ARRAYS.get(node.id, node.id)
                import_ = f"--import '{own}'"
                return f"{there}, or {import_}" if there else f"a module: {import_}"
    if node.id == "self":
        return "the forward of a module: '@file.py:Class'"
    return None


def _of_nn(name: str) -> str:
    """What to write for `nn.functional.silu`, and for the module `nn.SiLU` the function that it calls."""
    if not name[:1].isupper():
        return f"write: F.{name}(...)"
    word = name.lower()
    for space in ("torch.nn.functional", "torch"):
        for known in sorted(table()[space].operators):
            if known.replace("_", "") in (word, word.removesuffix("loss")):
                return (
                    f"a module is no formula: write {_short(f'{space}.{known}')}(...)"
                )
    return "a module is no formula: write what its forward computes"


def written_instead(name: str) -> str | None:
    """The function of PyTorch's, or of Python's math, of that name: what to write for it."""
    same = _elsewhere(name)
    if same is None and name in table()["math"].operators:
        same = f"math.{name}"
    return f"write: {same}(...)" if same else None


def _hangs_on(value: ast.expr, node: ast.Name) -> bool:
    """Whether a dotted name begins with this one."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value is node


def _leads(space: str) -> bool:
    """Whether a module holds modules with operators."""
    return space == OPS or any(known.startswith(f"{space}.") for known in table())


def _judged_op(names: Sequence[str], shown: str) -> tuple[Said | None, tuple[str, ...]]:
    """`torch.ops.<library>.<operator>`, with an overload at most."""
    hint = "write: torch.ops.<library>.<operator>"
    if not 2 <= len(names) <= 3:
        return (f"'{shown}' is no operator of PyTorch", hint), ()
    others = table()["torch"].others | table()[VALUES].others
    if (
        names[1] in others
        or names[0].startswith("_")
        and names[0] != "_c10d_functional"
    ):
        return (f"'{shown}' is no operator of PyTorch", ELSEWHERE), ()
    return None, ()


def judged_value(name: str) -> Said | None:
    """What is wrong with a method or an attribute."""
    known = table()[VALUES]
    if name in known.operators or name.startswith("__"):  # of those others complain
        return None
    if name in known.others:
        return f"'.{name}' is no operator of a tensor", INSTEAD.get(name, ELSEWHERE)
    if _elsewhere(name) or _is_near(name, known):
        return f"a tensor has no '{name}'", meant(None, name)
    return None


def _is_near(name: str, known: Names) -> bool:
    return bool(get_close_matches(name, known.operators, n=1, cutoff=ALIKE))


def _short(dotted: str) -> str:
    for long, short in SHORT.items():
        if dotted.startswith(long):
            return short + dotted.removeprefix(long)
    return dotted


def _elsewhere(name: str) -> str | None:
    """The function of that name in another namespace, in torch's own before all."""
    if name in table()["torch"].operators:
        return f"torch.{name}"
    spaces = (space for space in table() if space.startswith("torch"))
    same = (f"{space}.{name}" for space in spaces if name in table()[space].operators)
    return min(map(_short, same), default=None)


ALIKE = 0.75  # there are so many names that something is a little like any word


def meant(space: str | None, name: str) -> str | None:
    """What may have been meant by a name that a namespace does not have, or a tensor: a hint."""
    same = _elsewhere(name)
    if same is not None and not name[:1].isupper():
        return f"write: {same}(...)"
    if same is not None:  # torch.Sigmoid: a module of torch.nn
        return _of_nn(name)
    if name in table()["math"].operators:
        return f"write: math.{name}(...)"
    own = table().get(space or VALUES)
    near = did_you_mean(name, sorted(own.operators), ALIKE) if own else None
    spaces = (item for item in table() if item.startswith("torch"))
    paths = (f"{item}.{one}" for item in spaces for one in table()[item].operators)
    near = near or did_you_mean(name, sorted(map(_short, paths)), ALIKE)
    return near or "scaffold rules list names what there is"


# --- Modules without parameters, which are functions.

FUNCTIONS = frozenset(
    {"CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss", "ELU"}
    | {"GELU", "HuberLoss", "KLDivLoss", "L1Loss", "LeakyReLU", "LogSoftmax"}
    | {"MSELoss", "MarginRankingLoss", "Mish", "NLLLoss", "PairwiseDistance"}
    | {"ReLU", "SELU", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss"}
    | {"Softmax", "Softplus", "Softsign", "Tanh", "TripletMarginLoss"}
)
OF_DIM = frozenset({"CosineSimilarity", "LogSoftmax", "Softmax"})  # nn.Softmax(-1)


def with_functions(body: list[ast.stmt], taken: Collection[str]) -> list[ast.stmt]:
    """The statements with `F.mse_loss(x, y)` in the place of `nn.MSELoss()(x, y)`, or of `criterion(x, y)` after `criterion = nn.MSELoss()`."""
    nodes = [node for item in body for node in ast.walk(item)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if "nn" in taken or not any(map(made_of, calls)):
        return body
    called = Counter(node.func.id for node in calls if isinstance(node.func, ast.Name))
    names = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    made = {
        name: value
        for item in nodes
        if isinstance(item, ast.Assign)
        for name, value in _named_module(item)
        if names[name] == called[name] + 1 and name not in taken
    }
    found = _Functions(made).visit(ast.Module(copy.deepcopy(body), []))
    return list(found.body)


def _named_module(item: ast.Assign) -> Iterator[tuple[str, ast.Call]]:
    match item:
        case ast.Assign([ast.Name(name)], ast.Call() as value) if made_of(value):
            yield name, value


def made_of(call: ast.Call) -> ast.Attribute | None:
    """The function that a module is which a call makes, with nothing but keywords, or a dim."""
    match call.func:
        case ast.Attribute(
            ast.Name("nn") | ast.Attribute(ast.Name("torch"), "nn"), name
        ) if (name in FUNCTIONS):
            pass
        case _:
            return None
    if call.args and (len(call.args) > 1 or name not in OF_DIM):
        return None
    word = name.lower()
    for module, short in (("torch.nn.functional", "F"), ("torch", "torch")):
        for known in sorted(table()[module].operators):
            if known.replace("_", "") in (word, word.removesuffix("loss")):
                return ast.Attribute(ast.Name(short, ast.Load()), known, ast.Load())
    return None


class _Functions(ast.NodeTransformer):
    """Calls the function of each module; `made` are those that have a name."""

    def __init__(self, made: Mapping[str, ast.Call]) -> None:
        self.made = made

    def visit_Assign(self, item: ast.Assign) -> ast.Assign | None:
        target = item.targets[0]
        if isinstance(target, ast.Name) and target.id in self.made:
            return None
        self.generic_visit(item)
        return item

    def visit_Call(self, call: ast.Call) -> ast.Call:
        self.generic_visit(call)
        module = call.func
        if isinstance(module, ast.Name):
            module = self.made.get(module.id, module)
        function = made_of(module) if isinstance(module, ast.Call) else None
        if function is None or not isinstance(module, ast.Call):
            return call
        return called(function, module, call)


def called(function: ast.expr, module: ast.Call, call: ast.Call) -> ast.Call:
    """The call of a module as one of the function that it is."""
    given = [ast.keyword("dim", dim) for dim in module.args]
    words = [*call.keywords, *given, *copy.deepcopy(module.keywords)]
    made = ast.copy_location(ast.Call(function, call.args, words), call)
    return ast.fix_missing_locations(made)
