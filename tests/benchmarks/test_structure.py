"""What is counted of the source is what stands in it."""

import ast
from pathlib import Path

from benchmarks.structure import (
    OTHER_WORDS,
    PACKAGE,
    ROOT,
    Module,
    code_lines,
    engine,
    functions,
    has_test,
    importers,
    named,
    vocabulary,
)


def module(text: str) -> Module:
    return Module("scaffold.some", "scaffold", Path("some.py"), text, ast.parse(text))


def test_primitives_are_counted_where_python_names_them() -> None:
    text = '"""softmax"""\nA = ("tanh", "x", "tanhs")\nB = "exp log sqrt and"\nC = "exp it"'
    found = sorted(named(module(text), vocabulary()))
    assert found == ["exp", "log", "sqrt", "tanh"]


def test_the_lines_of_nested_functions_count_twice() -> None:
    text = "def f():\n    def g():\n        pass\n"
    assert list(functions(module(text))) == [3, 2]


def test_prose_is_no_code() -> None:
    text = '"""A module.\n\nIn: x."""\n\n# why\nx = 1  # what\n\ndef f():\n    """Do."""\n    return """\na\n"""\n'
    assert code_lines(module(text)) == 5


def test_a_test_of_a_module_is_the_one_of_its_name_at_its_place() -> None:
    def placed(path: str) -> Module:
        return module("")._replace(path=PACKAGE / path)

    assert has_test(placed("errors.py"))
    assert has_test(placed("verify/pool.py"))
    assert not has_test(placed("lint/pool.py"))
    assert has_test(placed("lint/rules/af01.py"))
    assert not has_test(placed("lint/rules/af99.py"))


def test_most_modules_have_a_test_of_their_name() -> None:
    files = (path for path in PACKAGE.rglob("*.py") if path.stem[0] != "_")
    tested = [has_test(module("")._replace(path=path)) for path in files]
    assert sum(tested) > 0.8 * len(tested)


def test_a_word_that_is_none_of_pytorch_s_is_not_counted() -> None:
    for name in OTHER_WORDS:
        assert (ROOT / f"{name.replace('.', '/')}.py").is_file()
    other = module('A = "sqrt"')._replace(name=next(iter(OTHER_WORDS)))
    assert not [*named(other, vocabulary())]


def test_what_the_engine_makes_itself_are_primitives() -> None:
    assert {"mul", "where"} <= engine() <= vocabulary() | {"sum"}  # `sum` is a word


def test_what_a_package_offers_is_imported_from_the_module_that_it_comes_from() -> None:
    def imported(name: str, text: str) -> tuple[str, Module]:
        package = name if name == "scaffold.a" else name.rpartition(".")[0]
        return name, module(text)._replace(name=name, package=package)

    known = dict(
        (
            imported("scaffold.a", "from scaffold.a.b import f"),
            imported("scaffold.a.b", "def f(): pass"),
            imported("scaffold.c.d", "from scaffold.a import f"),
        )
    )
    assert importers(known)["scaffold.a.b"] == 2
