"""The module that a verification runs: the generated test's inputs and reference, further cases, no test."""

import ast
from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.render.layout import Layout
from scaffold.render.reference import reference_lines
from scaffold.render.verification import verification
from scaffold.spec import OpSpec
from tests.derive.building import spec_of
from tests.render.formatted import suite_file

SPECS = {
    "linear": spec_of(
        "x[..., I], w[O, I], b[O]?",
        forward="x @ w.t() + b",
        grad={"x": "grad_output @ w", "w": "w", "b": "b"},
    ),
    "surrogate": spec_of(
        "x", forward="torch.sign(x)", grad={"x": "grad_output"}, surrogate="x.tanh()"
    ),
    "no gradient": spec_of("x[N; int]", forward="x + 1", outputs="y[N; int]"),
    "in place": spec_of(
        "x", forward="x.exp_()", dirty=["x"], grad={"x": "grad_output"}
    ),
    "variadic": spec_of("*xs", forward="sum(xs)", grad={"xs": "grad_output"}),
    "two outputs": spec_of(
        "x[N]", forward="x * 2, x * 3", outputs="a, b", grad={"x": "grad_a + grad_b"}
    ),
}


def checks_of(spec: OpSpec, derived: frozenset[str] = frozenset()) -> str:
    return verification(spec, derive(spec), derived).checks


def functions(text: str) -> dict[str, str]:
    """Those of the module, and of the class of tests, which also says what it claims."""
    tree = ast.parse(text)
    classes = [item for item in tree.body if isinstance(item, ast.ClassDef)]
    found = [*tree.body, *(inner for item in classes for inner in item.body)]
    return {
        node.name: ast.unparse(node)
        for node in found
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("name", SPECS)
def test_it_holds_no_test_and_no_trace_of_pytest(name: str) -> None:
    text = checks_of(SPECS[name])
    assert not [item for item in functions(text) if item.startswith("test_")]
    assert "pytest" not in text


@pytest.mark.parametrize("name", SPECS)
def test_what_it_shares_with_the_test_file_is_the_same(name: str) -> None:
    spec = SPECS[name]
    layout = Layout(spec.name, f"{spec.name}.py", f"test_{spec.name}.py")
    layout = layout._replace(op_testing="op_testing")
    reference = reference_lines(spec, derive(spec))
    tests = functions(suite_file(spec, derive(spec), layout, reference))
    checks = functions(checks_of(spec))
    shared = checks.keys() & tests.keys()
    assert "make" in shared
    assert {item: checks[item] for item in shared} == {i: tests[i] for i in shared}


def assigned(text: str, name: str) -> object:
    """The literal that the module assigns to a name."""
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.AnnAssign):
            target = node.target
        if target is not None and ast.unparse(target) == name:
            assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value
            return ast.literal_eval(node.value)
    raise AssertionError(name)


def test_each_named_size_has_another_value_and_1() -> None:
    spec = spec_of("x[N, D]", forward="x * 2", derive=True)
    assert assigned(checks_of(spec), "FURTHER_CASES") == {
        "larger-sizes": {"N": 7, "D": 8},
        "N=1": {"N": 1},
        "D=1": {"D": 1},
    }


def test_a_stated_gradient_has_more_leading_dims_and_sizes() -> None:
    further: Any = assigned(checks_of(SPECS["linear"]), "FURTHER_CASES")
    assert [*further][:2] == ["three leading dims", "four leading dims"]
    assert [*further][-3:] == ["I=3, O=3", "I=1, O=1", "I=45, O=45"]
    spec = spec_of("x[N]", forward="x", grad={"x": "0 if len(x) > 9 else grad_output"})
    further = assigned(checks_of(spec), "FURTHER_CASES")
    assert {"N=9", "N=10"} <= further.keys()


def test_leading_dims_of_several_names_broadcast_each_in_all_its_inputs() -> None:
    spec = spec_of("x[*a], y[*b], z[*a]", forward="x + y + z", derive=True)
    checks = checks_of(spec)
    assert assigned(checks, "BROADCAST") == {}
    assert assigned(checks, "FURTHER_CASES") == {
        "without leading dims *a": {"a": ()},
        "with leading dims *a of size 1": {"a": (1,)},
        "without leading dims *b": {"b": ()},
        "with leading dims *b of size 1": {"b": (1,)},
    }
    same = spec_of("x[*a], y[*a]", forward="x + y")
    assert assigned(checks_of(same), "FURTHER_CASES") == {}


def test_leading_dims_without_a_name_broadcast_against_those_with_one() -> None:
    spec = spec_of("x[*a, D], y[..., D]", forward="x + y")
    checks = checks_of(spec, frozenset({"x", "y"}))
    assert assigned(checks, "BROADCAST") == {1: 1}
    further = assigned(checks, "FURTHER_CASES")
    assert "without leading dims *a" in str(further)


def test_a_condition_on_the_sizes_holds_of_all_of_them() -> None:
    spec = spec_of(
        "x[H, D]", forward="x", grad={"x": "grad_output"}, require=["H % 4 == 0"]
    )
    further = assigned(checks_of(spec), "FURTHER_CASES")
    assert further == {"larger-sizes": {"H": 8, "D": 7}, "D=1": {"D": 1}}


def test_shapes_that_are_not_declared_are_guessed() -> None:
    spec = spec_of(
        "x, y", forward="x + y", grad={"x": "grad_output", "y": "grad_output"}
    )
    derived = checks_of(spec, frozenset({"x", "y"}))
    for names in (frozenset[str](), frozenset({"x"})):
        stated = checks_of(spec, names)  # a formula may count on equal shapes
        assert assigned(stated, "BROADCAST") == {}
        assert "shape (3, 3)" in str(assigned(stated, "FURTHER_CASES"))
    assert assigned(derived, "BROADCAST") == {0: 0, 1: 0}
    assert "shape (3, 3)" in str(assigned(derived, "FURTHER_CASES"))
    assert assigned(derived, "LOOSE") is True


def test_the_outputs_that_are_judged_are_those_declared() -> None:
    """Not what the Function returns besides: an intermediate, or the statistics of a kernel."""
    norm = "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)"
    for kernels in ([], ["triton"]):
        text = checks_of(spec_of("x[..., D]", forward=norm, kernels=kernels))
        assert "recording(TESTS, 1," in text
    assert "recording(TESTS, None," in checks_of(SPECS["two outputs"])
