"""How the source is built: its modules, their lines, who imports whom, and the primitives that Python names.

In: `python -m benchmarks.structure [-v]`. Nothing of the package is imported; its files are read as text.
Out: a line for each package, then the whole. `names` counts the words of the tables of primitives that stand as string literals in
Python, docstrings apart; a word that is also a plain English or Python one (`x`, `index`, `max`, `type`) does not count. `types` are
those of them that are words for types (`float`, `bool`, `half`) or kinds of tensors (`real`), as a signature and a dtype have them; what
`OTHER_WORDS` lists is not counted. `engine` are the operations that the engine makes and matches itself (the methods of
`Algebra`: sums, products, choices), as the passes of a compiler name its instructions. What is left, coded gradients and `verify` apart,
may be facts that belong into the table: the line `lists` has their number, for the engine and for what reads hand-written code. `alone` are
modules that just one other module imports, commands and lint rules apart: of each only their list knows. What a package offers in its
`__init__` is imported by whoever takes it from there. `twice` are file names that are used in several packages, `circles` groups of modules that
import each other, imports inside functions included. `untested` are modules without a test of their name,
`tests/<package>/test_<module>.py`; of a lint rule, without cases of its name. `-v` lists these four. `comments` counts lines that are a comment alone,
`code` those that are no blank line, no comment and in no docstring.

The figures are no aim in themselves: files that are glued together, or names that hide in longer strings, would better them and help
nobody to find a place.
"""

import argparse
import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "scaffold"
TESTS = ROOT / "tests"
PLAIN = frozenset(
    {"x", "y", "input", "index", "min", "max", "shape", "size", "type", "dtype", "to"}
    | {"sum", "result", "grad", "dim", "item", "list", "const", "call", "static"}
    | {"range", "cond", "count", "rank", "cast", "dot", "all", "any", "out"}
)
TYPES = frozenset(
    {"int", "float", "bool", "complex", "long", "double", "half", "bfloat16"}
    | {"real"}  # nearly always the kind of a tensor (`Kind`), and not torch.real
)
# Modules whose words of this kind are no primitives of PyTorch's, and what they are.
OTHER_WORDS = {
    "scaffold.formula.numpy_numbers": "functions of Python's `math`, by their names in NumPy",
    "scaffold.formula.einops": "functions of einops, and the calls of PyTorch that they stand for",
    "scaffold.derive.input_domains": "where values lie: positive",
    "scaffold.spec.module": "arguments of `nn.init`: mean, std, mode",
    "scaffold.cli.new_op": "an answer to a question: diff",
    "scaffold.primitives.facts": "the facts of the table, and what they may be: view, sign, linear",
}
# Whose names are counted together in the line `lists`, and a module whose gradients are written in code.
LAYERS = {
    "engine": (["derive"], ["formula"], ["spec"], ["render"]),
    "readers": (["inspect"], ["lint"]),
}
EXEMPT = ("scaffold.derive.rules.coded_gradients",)
LISTED = ("scaffold.cli.", "scaffold.lint.rules.")
CALLED = re.compile(r"[\w.]*?(\w+)\(")
LIST = 3  # a string of more words than this is a list of them


class Module(NamedTuple):
    """One file, read."""

    name: str  # scaffold.derive.reverse
    package: str  # scaffold.derive
    path: Path
    text: str
    tree: ast.Module


@cache
def modules() -> dict[str, Module]:
    """The modules of the package by name, read once."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = ".".join(parts[:-1])
        name = package if parts[-1] == "__init__" else ".".join(parts)
        text = path.read_text("utf-8")
        found[name] = Module(name, package, path, text, ast.parse(text))
    return found


def imports(module: Module, known: Mapping[str, Module]) -> set[str]:
    """The modules of the package that a module imports, wherever in its text."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = str(node.module)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in known else base)
    return found & known.keys() - {module.name}


def offered(known: Mapping[str, Module]) -> dict[str, str]:
    """Where each name comes from that a package offers: `scaffold.derive.derive` from `scaffold.derive.pipeline`."""
    return {
        f"{name}.{alias.asname or alias.name}": str(node.module)
        for name, module in known.items()
        if name == module.package
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module in known
        for alias in node.names
    }


def importers(known: Mapping[str, Module]) -> Counter[str]:
    """How many modules import each, from where it stands or from its package."""
    source, found = offered(known), Counter[str]()
    for name, module in known.items():
        used = imports(module, known)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom):
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                used |= {source[item] for item in names if item in source}
        found.update(used - {name})
    return found


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The groups of modules that reach each other."""
    reached = {name: _reached(name, graph) for name in graph}
    found: list[set[str]] = []
    for name, others in reached.items():
        group = {other for other in others if name in reached[other]} | {name}
        if len(group) > 1 and group not in found:
            found.append(group)
    return found


def _reached(name: str, graph: Mapping[str, set[str]]) -> set[str]:
    found, waiting = set[str](), [name]
    while waiting:
        for other in graph[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found


def vocabulary() -> frozenset[str]:
    """What the tables call: the names of their sections, and the functions of `call` and `also`."""
    found = set[str]()
    for path in PACKAGE.rglob("*.toml"):
        for name, rule in tomllib.loads(path.read_text("utf-8")).items():
            if isinstance(rule, dict) and isinstance(rule.get("call"), str):
                heads = (rule["call"], *rule.get("also", ()))
                found |= {name, *(m[1] for head in heads if (m := CALLED.match(head)))}
    return frozenset(found) - PLAIN


def engine() -> frozenset[str]:
    """The operations that the engine makes of its own accord."""
    tree = ast.parse((PACKAGE / "derive" / "graph" / "operations.py").read_text())
    several = (
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    )
    return frozenset(name for name in several if not name.startswith("_"))


def named(module: Module, words: frozenset[str]) -> Iterator[str]:
    """The primitives that a module names."""
    if module.name in OTHER_WORDS:
        return
    documented = ast.FunctionDef | ast.ClassDef | ast.Module
    docs = {
        id(node.body[0].value)
        for node in ast.walk(module.tree)
        if isinstance(node, documented)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) in docs:
            continue
        parts = node.value.split()
        several = [part for part in parts if part in words]
        if node.value in words:
            yield node.value
        elif len(parts) > LIST and len(several) > len(parts) / 2:
            yield from several


def outside_of_table(
    known: Mapping[str, Module], words: frozenset[str]
) -> Iterator[tuple[str, int]]:
    """How many names are neither types nor the engine's operations: what may be facts outside of the table."""
    left = words - TYPES - engine()
    for title, packages in LAYERS.items():
        of = [m for m in known.values() if m.name.split(".")[1:2] in packages]
        yield title, sum(len([*named(m, left)]) for m in of if m.name not in EXEMPT)


def functions(module: Module) -> Iterator[int]:
    """The lines of each function."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or 0) - node.lineno + 1


def code_lines(module: Module) -> int:
    """Count the lines that are no blank line, no comment and in no docstring."""
    documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
    prose = set[int]()
    for node in ast.walk(module.tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False):
            first = node.body[0]
            prose.update(range(first.lineno, (first.end_lineno or 0) + 1))
    return sum(
        bool(text := line.strip()) and not text.startswith("#")
        for number, line in enumerate(module.text.splitlines(), 1)
        if number not in prose
    )


def has_test(module: Module) -> bool:
    """Whether there is a test of its name at its place."""
    place = TESTS / module.path.parent.relative_to(PACKAGE)
    cases = place.parent / "cases" / f"{module.path.stem}.txt"
    return cases.exists() or (place / f"test_{module.path.stem}.py").exists()


def line(title: str, those: list[Module], words: frozenset[str]) -> str:
    """What is counted of some modules."""
    lengths = [length for module in those for length in functions(module)]
    lines = [text for module in those for text in module.text.splitlines()]
    comments = sum(text.lstrip().startswith("#") for text in lines)
    code = sum(map(code_lines, those))
    names = [name for module in those for name in named(module, words)]
    types = sum(name in TYPES for name in names)
    own = sum(name in engine() - TYPES for name in names)
    return (
        f"{title:<26} modules {len(those):>4}  lines {len(lines):>6}  code {code:>6}  comments {comments:>5}"
        f"  names {len(names):>5}  types {types:>4}  engine {own:>4}  function {median(lengths or [0]):>3g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="How the source is built.")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    known, words = modules(), vocabulary()
    graph = {name: imports(module, known) for name, module in known.items()}
    users = importers(known)
    named_so = Counter(module.path.stem for module in known.values())
    inside = [name for name, module in known.items() if name != module.package]
    alone = [
        name for name in inside if users[name] == 1 and not name.startswith(LISTED)
    ]
    twice = [stem for stem, n in named_so.items() if n > 1 and stem != "__init__"]
    rings = circles(graph)
    named_apart = [name for name in inside if known[name].path.stem != "__main__"]
    untested = [name for name in named_apart if not has_test(known[name])]
    share = 1 - len(untested) / len(named_apart)
    for package in sorted({module.package for module in known.values()}):
        those = [module for module in known.values() if module.package == package]
        print(line(package, those, words))
    print(line("all", list(known.values()), words))
    print(
        "lists",
        *(f"{title} {count}" for title, count in outside_of_table(known, words)),
    )
    print(
        f"alone {len(alone)}  twice {len(twice)}  circles {len(rings)}  tested {share:.0%}"
    )
    if options.verbose:
        print(*(f"alone {name}" for name in alone), sep="\n")
        print(*(f"twice {stem}" for stem in sorted(twice)), sep="\n")
        print(*(f"untested {name}" for name in untested), sep="\n")
        print(*(f"circle {' '.join(sorted(ring))}" for ring in rings), sep="\n")


if __name__ == "__main__":
    main()
