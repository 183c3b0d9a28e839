"""The laws of the house: who may import what, write, start, print and evaluate."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks import structure
from benchmarks.structure import Module, circles, code_lines, modules
from benchmarks.structure import imports as imports_of

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "scaffold").rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    """What the files say, read once for all laws."""
    return {module.path: module.tree for module in modules().values()}


CHILD = "verify.child"  # runs in a process of its own, the user's code with it

# Package -> what it may import of scaffold, beside itself.
ALLOWED = {
    "version": set(),
    "errors": set[str](),
    "annotations": set[str](),
    "primitives": {"errors"},
    "formula": {"errors", "primitives"},
    "files": set[str](),
    "spec": {"errors", "files", "primitives", "formula"},
    "derive": {"errors", "primitives", "formula", "spec"},
    "kernels": {"errors", "primitives", "formula", "spec", "derive"},
    "render": {
        *("errors", "files", "primitives", "formula", "spec", "derive", "kernels"),
    },
    "inspect": {"errors", "primitives", "formula", "spec"},
    "lint": {"errors", "annotations", "primitives", "formula", "spec", "inspect"},
    "workspace": {"errors", "files"},
    "verify": {"errors", "files"},
    CHILD: {"verify", "derive", "spec", "formula", "primitives"},
    "project": {
        *("errors", "files", "primitives", "formula", "spec", "derive", "kernels"),
        *("render", "inspect", "workspace", "verify"),
    },
    "api": {"errors", "spec", "project", "render"},
    "notebook": {"errors", "spec", "api"},
    "__main__": {"cli"},
    "__init__": {"errors", "api", "notebook"},  # each where it is asked for
}
LIBRARIES = {
    "cli": {"typer"},
    "render": {"black", "jinja2", "matplotlib"},
    "lint": {"libcst"},
    "api": {"pygments"},
    CHILD: {"pytest", "torch", "verified_op"},
}
# Where what is imported only sometimes is required: by an extra.
EXTRAS = {
    "lint": {"fix"},
    "api": {"notebook"},
    "render": {"plot"},
    CHILD: {"torch", "test"},
}
MADE = {"verified_op"}  # by the run itself
PURE = {
    *("primitives", "formula", "spec", "derive", "kernels", "render", "inspect"),
    "lint",
}

IMPURE = {"time", "datetime", "random", "secrets", "uuid", "torch"}
STARTERS = {"subprocess", "multiprocessing", "concurrent", "pty", "threading"}
WRITERS = {"shutil", "tempfile"}
STREAMS = {"sys.stdout", "sys.stderr"}
EVALUATORS = {"eval", "exec", "compile", "__import__"}
LOADERS = {
    "exec",
    "compile",
}  # of what was generated, in the process of who asked for it

OS_WRITES = {
    *("chmod", "chown", "fchmod", "ftruncate", "link", "makedirs", "mkdir", "open"),
    *("remove", "removedirs", "rename", "renames", "replace", "rmdir", "symlink"),
    *("truncate", "unlink", "utime", "write"),
}
PATH_WRITES = {
    *("chmod", "hardlink_to", "mkdir", "rmdir", "symlink_to", "touch", "unlink"),
    *("write_bytes", "write_text"),
}
OS_STARTS = ("exec", "spawn", "fork", "posix_spawn", "popen", "system", "startfile")

Finding = tuple[int, str]
Law = Callable[[str, ast.Module], Iterator[Finding]]


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "scaffold").parts
    return CHILD if parts[:2] == ("verify", "child") else parts[0].removesuffix(".py")


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes; every law asks for them."""
    return tuple(ast.walk(tree))


def imports(tree: ast.Module) -> Iterator[Finding]:
    """Each imported module, dotted; of scaffold's own, as far as the package."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            for alias in node.names:
                whole = node.module == "scaffold"
                yield (
                    node.lineno,
                    f"scaffold.{alias.name}" if whole else str(node.module),
                )


@cache
def called(tree: ast.Module) -> tuple[tuple[ast.Call, str, str], ...]:
    """Each call with what stands before the last dot, and the name after it."""
    return tuple(_called(tree))


def _called(tree: ast.Module) -> Iterator[tuple[ast.Call, str, str]]:
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node, "", node.func.id
            elif isinstance(node.func, ast.Attribute):
                yield node, ast.unparse(node.func.value), node.func.attr


def _dotted(node: ast.Attribute) -> str:
    """`name.attribute`, of which laws speak; of all else the attribute."""
    owner = node.value
    return f"{owner.id if isinstance(owner, ast.Name) else ''}.{node.attr}"


def imports_run_one_way(package: str, tree: ast.Module) -> Iterator[Finding]:
    if package == "cli":
        return
    for line, name in imports(tree):
        parts = name.split(".")
        if parts[0] != "scaffold" or parts[1:2] == ["version"]:
            continue
        if parts[1] not in ALLOWED.get(package, set()) | {package}:
            yield line, f"{package} imports {name}"


def the_child_is_only_started(package: str, tree: ast.Module) -> Iterator[Finding]:
    """What imports it would import torch, and run what it runs."""
    for line, name in imports(tree):
        if package != CHILD and name.startswith(f"scaffold.{CHILD}"):
            yield line, f"{package} imports {name}"


def libraries_stay_in_place(package: str, tree: ast.Module) -> Iterator[Finding]:
    allowed = {"scaffold", *sys.stdlib_module_names, *LIBRARIES.get(package, ())}
    for line, name in imports(tree):
        if name.split(".")[0] not in allowed:
            yield line, f"{package} imports {name}"


def generation_is_pure(package: str, tree: ast.Module) -> Iterator[Finding]:
    if package in PURE:
        for line, name in imports(tree):
            if name.split(".")[0] in IMPURE:
                yield line, f"{package} imports {name}"


def only_workspace_writes(package: str, tree: ast.Module) -> Iterator[Finding]:
    if package == "workspace":
        return
    for line, name in imports(tree):
        if name.split(".")[0] in WRITERS:
            yield line, f"{package} imports {name}"
    for call, owner, name in called(tree):
        if owner == "os" and name in OS_WRITES or owner and name in PATH_WRITES:
            yield call.lineno, f"{package} calls {owner}.{name}"
        if name == "open" and owner != "os" and not _reads(call, 0 if owner else 1):
            yield call.lineno, f"{package} opens a file to write"


OWN_FILES = ("__file__", "template_root()", "_path(bucket)")  # of the package itself


def files_are_read_in_one_place(package: str, tree: ast.Module) -> Iterator[Finding]:
    """A pipe or a device in the place of a file is an error there; the package's own files are what they are."""
    if package in ("files", CHILD):
        return
    for call, owner, name in called(tree):
        own = any(word in owner for word in OWN_FILES)
        values = owner == "values"  # a module that reads keys
        if owner and name in ("read_text", "read_bytes") and not (own or values):
            yield call.lineno, f"{package} calls {owner}.{name}"
        if name == "open" and owner != "os" and _reads(call, 0 if owner else 1):
            yield call.lineno, f"{package} opens a file to read"


def _reads(call: ast.Call, position: int) -> bool:
    """Whether an `open` has no mode, or one that can be seen to only read."""
    modes = call.args[position : position + 1]
    modes += [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    return all(
        isinstance(mode, ast.Constant) and not set(str(mode.value)) & set("wax+")
        for mode in modes
    )


def only_verify_starts_processes(package: str, tree: ast.Module) -> Iterator[Finding]:
    if package in ("verify", CHILD):
        return
    for line, name in imports(tree):
        if name.split(".")[0] in STARTERS:
            yield line, f"{package} imports {name}"
    for call, owner, name in called(tree):
        if owner == "os" and name.startswith(OS_STARTS):
            yield call.lineno, f"{package} calls os.{name}"


def only_cli_prints_and_exits(package: str, tree: ast.Module) -> Iterator[Finding]:
    if package == "cli":
        return
    for call, owner, name in called(tree):
        plain = not owner and name in {"print", "input", "exit", "quit"}
        if (package, name) == (CHILD, "_exit"):
            continue  # a copy of the process must not end as the process would
        if plain or (owner, name) in {("sys", "exit"), ("os", "_exit")}:
            yield call.lineno, f"{package} calls {name}"
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and _dotted(node) in STREAMS:
            yield node.lineno, f"{package} uses sys.{node.attr}"


def nothing_is_evaluated(package: str, tree: ast.Module) -> Iterator[Finding]:
    """But by the child; its parent may look for a module without importing it."""
    if package == CHILD:
        return
    for line, name in imports(tree):
        if (package, name) == ("verify", "importlib.util"):
            continue
        if name.split(".")[0] in {"importlib", "runpy", "pickle", "marshal", "code"}:
            yield line, f"{package} imports {name}"
    evaluators = EVALUATORS - LOADERS if package == "api" else EVALUATORS
    for node in nodes(tree):
        if isinstance(node, ast.Name) and node.id in evaluators:
            yield node.lineno, f"{package} uses {node.id}"
        if isinstance(node, ast.Attribute) and _dotted(node).startswith("builtins."):
            yield node.lineno, f"{package} uses {_dotted(node)}"


def functions_are_short(package: str, tree: ast.Module) -> Iterator[Finding]:
    """A body has at most 40 lines. The options of a command make a long signature."""
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0].lineno
            lines = (node.end_lineno or first) - first + 1
            if lines > 40:
                yield first, f"{node.name} has {lines} lines"


LAWS: list[Law] = [
    imports_run_one_way,
    the_child_is_only_started,
    libraries_stay_in_place,
    generation_is_pure,
    only_workspace_writes,
    files_are_read_in_one_place,
    only_verify_starts_processes,
    only_cli_prints_and_exits,
    nothing_is_evaluated,
    functions_are_short,
]


def test_no_modules_import_each_other() -> None:
    known = modules()
    graph = {name: imports_of(module, known) for name, module in known.items()}
    graph["scaffold"] = set()  # imports what it offers when that is asked for
    assert not circles(graph)


def test_a_circle_is_found_wherever_the_import_stands() -> None:
    texts = {
        "a": "from b import x",
        "b": "def f():\n    import c",
        "c": "import a",
        "d": "import a",
    }
    known = {
        name: Module(name, "", Path(name), text, ast.parse(text))
        for name, text in texts.items()
    }
    graph = {name: imports_of(module, known) for name, module in known.items()}
    assert circles(graph) == [{"a", "b", "c"}]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: str(law.__name__))
def test_the_law_is_kept(law: Law) -> None:
    broken = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in SOURCES
        for line, what in law(package_of(path), trees()[path])
    ]
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("law", "package", "code"),
    [
        (imports_run_one_way, "formula", "import scaffold.spec.op_spec"),
        (imports_run_one_way, "primitives", "from scaffold.formula import Graph"),
        (imports_run_one_way, "workspace", "from scaffold.formula import Graph"),
        (imports_run_one_way, "errors", "from scaffold import formula"),
        (imports_run_one_way, "project", "from scaffold.cli import output"),
        (imports_run_one_way, "derive", "from scaffold import render"),
        (imports_run_one_way, "later", "from scaffold.errors import ScaffoldError"),
        (the_child_is_only_started, "verify", f"import scaffold.{CHILD}.runner"),
        (the_child_is_only_started, "cli", f"from scaffold.{CHILD} import cases"),
        (libraries_stay_in_place, "spec", "import jinja2.sandbox"),
        (libraries_stay_in_place, "cli", "import rich"),
        (libraries_stay_in_place, "project", "import typer"),
        (libraries_stay_in_place, "verify", "def f():\n    import torch"),
        (generation_is_pure, "derive", "from datetime import datetime"),
        (only_workspace_writes, "cli", "path.write_text('')"),
        (only_workspace_writes, "render", "import os\nos.replace(a, b)"),
        (only_workspace_writes, "spec", "open(path, 'w')"),
        (only_workspace_writes, "spec", "open(path, mode=mode)"),
        (only_workspace_writes, "spec", "path.open('r+')"),
        (only_workspace_writes, "spec", "import tempfile"),
        (files_are_read_in_one_place, "cli", "path.read_text()"),
        (files_are_read_in_one_place, "workspace", "path.read_bytes()"),
        (files_are_read_in_one_place, "spec", "open(path)"),
        (only_verify_starts_processes, "workspace", "import subprocess"),
        (only_verify_starts_processes, "cli", "os.system('ls')"),
        (only_verify_starts_processes, "cli", "os.execvp('ls', [])"),
        (only_cli_prints_and_exits, "spec", "print('x')"),
        (only_cli_prints_and_exits, "spec", "sys.exit(2)"),
        (only_cli_prints_and_exits, "project", "sys.stderr.isatty()"),
        (only_cli_prints_and_exits, "spec", "sys.stderr.write('x')"),
        (nothing_is_evaluated, "spec", "eval(text)"),
        (nothing_is_evaluated, "spec", "run = exec"),
        (nothing_is_evaluated, "cli", "from importlib import import_module"),
        (nothing_is_evaluated, "cli", "from importlib.util import find_spec"),
        (nothing_is_evaluated, "verify", "from importlib import import_module"),
        (nothing_is_evaluated, "spec", "builtins.compile(text)"),
        (functions_are_short, "spec", "def f():\n" + "    x\n" * 41),
    ],
)
def test_the_law_notices(law: Law, package: str, code: str) -> None:
    assert list(law(package, ast.parse(code)))


@pytest.mark.parametrize(
    ("law", "package", "code"),
    [
        (imports_run_one_way, "render", "from scaffold.version import __version__"),
        (imports_run_one_way, "cli", "from scaffold.render import render"),
        (libraries_stay_in_place, "spec", "import tomllib, scaffold.errors"),
        (only_workspace_writes, "spec", "open(path)\nopen(p, 'rb')\npath.open('r')"),
        (files_are_read_in_one_place, "spec", "Path(__file__).read_text()"),
        (only_workspace_writes, "spec", "text.replace('a', 'b')\nos.path.join(a)"),
        (nothing_is_evaluated, "spec", "re.compile('a')\nast.literal_eval(x)"),
        (libraries_stay_in_place, CHILD, "import torch"),
        (nothing_is_evaluated, "verify", "from importlib.util import find_spec"),
        (functions_are_short, "spec", "def f():\n" + "    x\n" * 40),
    ],
)
def test_the_law_permits(law: Law, package: str, code: str) -> None:
    assert not list(law(package, ast.parse(code)))


def requirements() -> dict[str | None, set[str]]:
    """What the project requires, and what each of its extras adds, under None and its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {None: project["dependencies"], **project["optional-dependencies"]}
    return {
        extra: {re.split(r"[^\w-]", line, maxsplit=1)[0] for line in lines}
        for extra, lines in named.items()
    }


def test_what_is_imported_is_required_and_nothing_else() -> None:
    """An environment with the declared dependencies has what a run imports."""
    required = requirements()
    imported: dict[str, set[str]] = {}
    for path in SOURCES:
        names = {name.split(".")[0] for _, name in imports(trees()[path])}
        foreign = names - {"scaffold", *sys.stdlib_module_names, *MADE}
        imported.setdefault(package_of(path), set()).update(foreign)
    for package, names in imported.items():
        extras = (required[extra] for extra in EXTRAS.get(package, ()))
        assert names <= required[None].union(*extras), package
    assert required[None] <= set.union(*imported.values())


def test_every_package_has_its_laws() -> None:
    known = set(ALLOWED) | {"cli"}
    assert {package_of(path) for path in SOURCES} <= known


def modules_after(arguments: list[str], directory: Path) -> set[str]:
    """The names of all modules that a run of the command imports."""
    program = (
        "import json, sys\n"
        "from scaffold.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "print(json.dumps(list(sys.modules)), file=sys.stderr)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stderr.splitlines()[-1]))


NEW_OP = ["new-op", "linear", "--inputs", "input,weight,bias?"]


@pytest.mark.parametrize("arguments", [["--help"], ["new-op", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    heavy = {"jinja2", "black", "rich", "torch", "networkx", "pydantic", "numpy"}
    heavy |= {"scaffold.formula", "scaffold.spec.grammar", "scaffold.project.project"}
    assert not modules_after(arguments, tmp_path) & heavy


@pytest.mark.parametrize(
    "maths",
    [
        [],
        [
            "--forward=input @ weight.t() + bias",
            "--grad=input=grad_output @ weight",
            "--grad=weight=grad_output.t() @ input",
            "--grad=bias=grad_output.sum(0)",
        ],
    ],
    ids=["skeleton", "formulas"],
)
def test_generation_does_without_torch(maths: list[str], tmp_path: Path) -> None:
    seen = modules_after([*NEW_OP, *maths, "--dry-run"], tmp_path)
    assert not seen & {"torch", "numpy", "rich", "networkx", "pydantic"}
    assert not list(tmp_path.iterdir())
    engine = {"scaffold.derive.gradients", "scaffold.derive.graph.op"}
    engine |= {"scaffold.derive.rules.table", "scaffold.derive.simplify"}
    assert not seen & engine, "nothing is derived"


def test_derivation_does_without_torch(tmp_path: Path) -> None:
    maths = ["--forward=input @ weight.t() + bias", "--no-verify", "--dry-run"]
    seen = modules_after([*NEW_OP, *maths], tmp_path)
    assert "scaffold.derive.gradients" in seen
    assert not seen & {"torch", "numpy", "rich", "networkx", "pydantic"}


def test_reading_code_does_without_torch_and_the_formatter(tmp_path: Path) -> None:
    """What a pre-commit hook runs; LibCST is for --fix alone."""
    (tmp_path / "ops.py").write_text(
        "from torch.autograd import Function\n\n\nclass F(Function):\n    pass\n"
    )
    seen = modules_after(["lint", "ops.py"], tmp_path)
    heavy = {"torch", "numpy", "rich", "networkx", "jinja2", "black", "libcst"}
    assert "scaffold.inspect.classes" in seen
    assert not seen & heavy


def committed() -> list[Path]:
    """The files of the repository; those of the directory where there is no git."""
    if (ROOT / ".git").exists():
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        )
        names = listing.stdout.decode().split("\0")
        paths = [ROOT / name for name in names if name]
    else:
        paths = [path for path in ROOT.rglob("*") if "/." not in str(path)]
    return [path for path in paths if path.is_file()]


def test_nothing_committed_names_a_machine() -> None:
    places = tuple(
        f"/{directory}/".encode()
        for directory in ("work", "root", "home/" + "runner", "tmp/bash_" + "jobs")
    )
    paths = committed()
    assert ROOT / "pyproject.toml" in paths
    guilty = [
        str(path.relative_to(ROOT))
        for path in paths
        if any(place in path.read_bytes() for place in places)
    ]
    assert not guilty


# How many names of primitives, words for dtypes apart, stand as strings in the Python of a package. What is known of a primitive
# stands in its section; these are lists that have not gone there yet, and what the engine itself makes and matches: sums, products,
# choices. A number may only become smaller.
NAMED = {
    "scaffold.derive": 7,  # one of them the parts of a cat, one a sum to a shape, two make zeros
    "scaffold.derive.analysis": 0,
    "scaffold.derive.forward": 6,  # two of them made: the ones that dropout gives its factors of, and the layout of what a kernel returns; two add a term to a gradient
    "scaffold.derive.graph": 55,  # 24 of them the methods that make ops, 9 what has a sign, 5 what may be a number
    "scaffold.derive.lower": 20,  # an index that appends dims is a reshape
    "scaffold.derive.plan": 0,
    "scaffold.derive.rules": 49,  # 25 in the coded gradients; the grids of meshgrid are expanded
    "scaffold.derive.simplify": 152,  # what passes match and make: sums, products, choices, parts, views
    "scaffold.derive.write": 50,  # two of them write sums to a shape
    "scaffold.formula": 5,  # `where`, of one argument several tensors, came from derive.analysis
    "scaffold.inspect": 19,
    "scaffold.kernels": 129,  # what each reduction and view comes to in a row; extrema with their places, losses, logsumexp, sums times a number
    "scaffold.render": 13,  # 5 whose sizes tests choose, one that hides NaN
    "scaffold.spec": 6,
}


def test_no_more_primitives_are_named_in_python() -> None:
    words = structure.vocabulary() - structure.TYPES
    found = {
        package: [
            f"{module.path.name}: {name}"
            for module in modules().values()
            if module.package == package
            for name in structure.named(module, words)
        ]
        for package in NAMED
    }
    for package, names in found.items():
        assert len(names) <= NAMED[package], (package, sorted(names))


# Code lines (no blanks, comments, docstrings) that a package may have, with its largest parts. A clean-up lowers a number; only a new capability
# raises one, in its own commit, by the lines it takes, which names what it is and what went for it.
BUDGET = {
    "cli": 4810,  # one module a command; an error shows its line; names for adopted Functions, a table of them, the verdict on each
    "derive": 19497,  # lowering, gradients, simplification, plan by the memory autograd takes, writing; masks of backward calls; inequalities of sizes; stated gradients that hold for real inputs alone
    "formula": 7369,  # the Python of forwards: functions, modules, loops, branches, changes in place
    "inspect": 3749,  # hand-written Functions; arguments for them, sizes that constant indices tell, all shapes that fit; tuples on ctx, changes in place
    "lint": 4698,  # 47 rules, --fix, output formats
    "primitives": 831,  # the reader of the table: rules and facts, as signs, bounds and dtypes
    "kernels": 2988,  # row programs, and their printer for Triton
    "project": 5394,  # shapes to try for a Function; inputs and sizes inferred from a forward, adopted Functions, verdicts on ops not written yet, updates
    "render": 6152,  # files of ops, tests and kernels
    "spec": 4641,  # options, keys, `--inputs`, conditions on sizes
    "verify": 7202,  # proofs, checks of a hand-written Function, of further shapes too, recorded calls, samples of a kind: sparse, symmetric
    "workspace": 2004,  # records, merges of statements, transactions
}


def test_every_package_keeps_its_budget() -> None:
    lines = dict.fromkeys(BUDGET, 0)
    for module in modules().values():
        package = module.name.partition(".")[2].partition(".")[0]
        if package in BUDGET:
            lines[package] += code_lines(module)
    over = {
        package: f"{count} lines of code, {BUDGET[package]} allowed"
        for package, count in lines.items()
        if count > BUDGET[package]
    }
    assert not over
