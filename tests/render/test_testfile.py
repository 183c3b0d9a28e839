"""Generated test files: they pass on good operators and fail on bad ones."""

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import black
import jinja2
import pytest

from scaffold.render.layout import Layout
from scaffold.render.templates import template_root
from scaffold.render.testcases import plan_making
from scaffold.render.testfile import ModuleTestsView, module_tests, view
from scaffold.spec import Attribute, ModuleSpec, OpSpec, Samples
from tests.executed.checks import findings_of_mypy, findings_of_ruff
from tests.executed.suites import WITHOUT_COMPILING, Suites
from tests.render.formatted import suite_file
from tests.render.mutants import LINEAR, OTHERS, Mutant
from tests.render.op_specs import EXAMPLES, Example, tensor
from tests.render.running import Outcomes, run_files
from tests.sweeps import in_every_run

BY_NAME = {example.spec.name: example for example in EXAMPLES}
WRITTEN = sorted(BY_NAME.keys() - {"linear_todo"})


def suite_of(example: Example, layout: Layout) -> str:
    return suite_file(example.spec, example.derivation, layout, example.reference)


def flat(name: str) -> Layout:
    return Layout(name, f"{name}.py", f"test_{name}.py")


def survivors(suites: Suites, directory: Path, mutants: Iterable[Mutant]) -> list[str]:
    """The mistakes that no test of their op found."""
    living = []
    for number, mutant in enumerate(mutants):
        example = BY_NAME[mutant.op]
        files = {
            f"{mutant.op}.py": mutant.apply(example.op_text),
            f"test_{mutant.op}.py": example.suite_text,
        }
        outcomes = run_files(suites, directory / f"{number}", files, "-x")
        if not outcomes[f"test_{mutant.op}"]["failed"]:
            living.append(f"{mutant.op}: {mutant.mistake}")
    return living


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All operators and their tests."""
    directory = tmp_path_factory.mktemp("ops")
    for example in EXAMPLES:
        name = example.spec.name
        (directory / f"{name}.py").write_text(example.op_text)
        (directory / f"test_{name}.py").write_text(example.suite_text)
    return directory


def counts_of(name: str, directory: Path, suites: Suites) -> Counter[str]:
    """How the tests of an operator come out."""
    example = BY_NAME[name]
    files = {f"{name}.py": example.op_text, f"test_{name}.py": example.suite_text}
    return run_files(suites, directory, files, *WITHOUT_COMPILING)[f"test_{name}"]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "name", in_every_run(WRITTEN, WRITTEN[::3], pytest.mark.each_commit)
)
def test_a_written_op_passes_all_its_tests(
    name: str, tmp_path: Path, suites: Suites
) -> None:
    counts = counts_of(name, tmp_path, suites)
    assert counts["passed"] > 3
    if name == "numpy_tanh":  # NumPy has no bfloat16
        assert counts.pop("skipped") == 1
    if name == "apply_to":  # its pullback reads x where no subclass of tensors sees it
        assert counts.pop("failed") == 1
    assert set(counts) == {"passed"}


def test_a_skeleton_xfails_all_that_needs_its_maths(
    tmp_path: Path, suites: Suites
) -> None:
    counts = counts_of("linear_todo", tmp_path, suites)
    assert set(counts) == {"passed", "xfailed"}
    assert counts["passed"] == 3  # copies of the module, twice, and the meta device
    assert counts["xfailed"] > 40


def test_generated_tests_are_clean_for_ruff(directory: Path) -> None:
    assert not findings_of_ruff(directory)


@pytest.mark.each_commit
def test_generated_tests_are_clean_for_mypy(directory: Path, mypy_cache: Path) -> None:
    assert not findings_of_mypy(directory, mypy_cache)


@pytest.mark.parametrize(
    "example",
    in_every_run(EXAMPLES, EXAMPLES[::4], pytest.mark.each_commit),
    ids=lambda example: example.spec.name,
)
def test_a_generated_test_is_formatted_and_fits(example: Example) -> None:
    text = example.suite_text
    ast.parse(text)
    assert black.format_str(text, mode=black.Mode()) == text
    assert max(map(len, text.splitlines())) <= 88


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.spec.name)
def test_only_a_skeleton_speaks_of_what_is_not_written(example: Example) -> None:
    words = ("xfail", "written", "NotImplementedError", "contextlib")
    assert all(
        (word in example.suite_text) == (not example.derivation.complete)
        for word in words
    )


@pytest.mark.exhaustive  # in every run: one of each kind, tests/executed/test_mutants.py
@pytest.mark.parametrize("mutants", [LINEAR, OTHERS], ids=["linear", "others"])
def test_every_mistake_is_found(
    mutants: Iterable[Mutant], tmp_path: Path, suites: Suites
) -> None:
    assert survivors(suites, tmp_path, mutants) == []


def test_a_mistake_is_found(tmp_path: Path, suites: Suites) -> None:
    assert survivors(suites, tmp_path, LINEAR[:1]) == []


FILLED = BY_NAME["linear_2d"].op_text.replace("linear_2d", "linear_todo")
BIAS = "grad_bias = grad_output.sum(0)"
NO_BIAS = 'raise NotImplementedError("linear_todo: write grad_bias")'
WRONG = ("grad_output.mm(weight)", "grad_output.mm(weight.t())")
BODIES: dict[str, tuple[tuple[str, str], ...]] = {
    "filled": (),
    "half": ((BIAS, NO_BIAS),),
    "wrong_gradient": (WRONG,),
    "wrong_gradient_half": (WRONG, (BIAS, NO_BIAS)),
    "wrong_forward": (("input.mm(weight.t())", "input.mm(weight)"),),
    "own_message": (
        ("output = input.mm(weight.t())", 'raise NotImplementedError("no kernel")'),
    ),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, suites: Suites) -> Outcomes:
    """The outcomes of the skeleton's tests, unedited, over other bodies."""
    example = BY_NAME["linear_todo"]
    files = {}
    for name, changes in BODIES.items():
        text = FILLED.replace("Linear2d", "LinearTodo")
        files[f"{name}.py"] = Mutant("linear_todo", name, changes).apply(text)
        files[f"test_{name}.py"] = suite_of(example, flat(name))
    base = tmp_path_factory.mktemp("filled")
    return run_files(suites, base, files, *WITHOUT_COMPILING)


# In every run skeletons are filled in tests/executed/test_skeleton.py.
@pytest.mark.each_commit
def test_a_filled_skeleton_passes_unedited(filled: Outcomes) -> None:
    assert set(filled["test_filled"]) == {"passed"}


@pytest.mark.each_commit
def test_a_half_filled_skeleton_still_xfails(filled: Outcomes) -> None:
    counts = filled["test_half"]
    assert counts["xfailed"] > 40
    assert set(counts) == {"passed", "xfailed"}


@pytest.mark.each_commit
@pytest.mark.parametrize(
    "name", ["wrong_gradient", "wrong_gradient_half", "wrong_forward", "own_message"]
)
def test_a_real_error_in_a_skeleton_is_a_failure(filled: Outcomes, name: str) -> None:
    counts = filled[f"test_{name}"]
    assert counts["failed"] > 5
    assert not counts["xfailed"]
    assert not counts["error"]


SAMPLES = """\
def make() -> list[tuple[object, ...]]:
    logp = torch.randn(5, 7).log_softmax(-1)
    target = torch.randint(7, (5,))
    return [(logp, target, torch.rand(7)), (logp[:1], target[:1], torch.ones(7))]
"""


def test_the_users_own_samples_are_the_cases(tmp_path: Path, suites: Suites) -> None:
    example = BY_NAME["nll"]
    spec = replace(example.spec, samples=Samples("make", SAMPLES))
    text = suite_of(replace(example, spec=spec), flat("nll"))
    assert "def sample_inputs() -> list" in text
    files = {"nll.py": example.op_text, "test_nll.py": text}
    counts = run_files(suites, tmp_path, files)["test_nll"]
    assert set(counts) == {"passed"}
    assert counts["passed"] > 8


def test_the_file_finds_its_op_in_another_directory(
    tmp_path: Path, suites: Suites
) -> None:
    """Under the name of a helper of the file, which is harder."""
    example = BY_NAME["scale_by"]
    op = example.op_text.replace("scale_by", "make").replace("ScaleBy", "Questions")
    spec = replace(example.spec, name="make", class_name="Questions")
    places = Layout(
        "make", "src/make.py", "tests/unit/test_make.py", 88, ("../../src",)
    )
    files = {
        places.op_path: op,
        places.test_path: suite_of(replace(example, spec=spec), places),
    }
    assert set(run_files(suites, tmp_path, files)["test_make"]) == {"passed"}
    assert not findings_of_ruff(tmp_path)


@pytest.mark.parametrize(
    ("search_path", "expected"),
    [
        ("../src", 'Path(__file__).resolve().parents[1] / "src"'),
        ("../../lib/ops", 'Path(__file__).resolve().parents[2] / "lib" / "ops"'),
        ("..", "Path(__file__).resolve().parents[1]"),
        ("src", 'Path(__file__).resolve().parents[0] / "src"'),
    ],
)
def test_the_directory_of_the_op_is_said_plainly(
    search_path: str, expected: str
) -> None:
    places = flat("linear")._replace(search_paths=(search_path,))
    text = suite_of(BY_NAME["linear"], places)
    assert f"\nsys.path.insert(0, str({expected}))\n\nfrom linear import" in text


def test_tolerances_go_to_both_checks() -> None:
    example = BY_NAME["sum_all"]
    options = (("atol", "0.001"), ("nondet_tol", "1e-9"))
    spec = replace(example.spec, tolerance=options)
    text = suite_of(replace(example, spec=spec), flat("sum_all"))
    stated = '{"atol": 0.001, "nondet_tol": 1e-9}'
    assert f"gradcheck_options: ClassVar[Options] = {stated}" in text
    checks = text.split("def test_gradcheck")[1].split("def test_")[0]
    assert checks.count("**options") == 2


def test_a_surrogate_is_not_gradchecked() -> None:
    text = BY_NAME["sign_ste"].suite_text
    assert "gradcheck(" not in text
    assert "test_gradients_match_surrogate" in text
    assert "test_forward_matches_reference" not in text


def test_an_op_that_leaves_torch_is_not_transformed() -> None:
    text = BY_NAME["numpy_tanh"].suite_text
    assert not [word for word in ("torch.func", "torch.compile") if word in text]
    assert "supports_batched_gradcheck = False" in text


def test_a_team_can_replace_a_block() -> None:
    example = BY_NAME["linear"]
    child = '{% extends "test.py.jinja" %}{% block docstring %}# ours{% endblock %}'
    loaders = [
        jinja2.DictLoader({"ours": child}),
        jinja2.FileSystemLoader(template_root()),
    ]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = view(example.spec, example.derivation, flat("linear"), example.reference)
    text = environment.get_template("ours").render(view=shown)
    assert text.startswith("# ours")
    assert "class TestLinear(OpTests):" in text


def test_the_line_length_is_that_of_the_project() -> None:
    example = BY_NAME["linear"]
    text = suite_of(example, flat("linear")._replace(line_length=120))
    assert black.format_str(text, mode=black.Mode(line_length=120)) == text
    assert text != example.suite_text


SPECS = {example.spec.name: example.spec for example in EXAMPLES}


def described(spec: OpSpec) -> ModuleTestsView:
    found = module_tests(spec, plan_making(spec), spec.class_name, "TestOp")
    assert found is not None
    return found


def claims_of(spec: OpSpec) -> dict[str, str]:
    return {claim.name: claim.value for claim in described(spec).claims}


def built(spec: OpSpec) -> str:
    """The call of the constructor."""
    return described(spec).build_lines[-1]


def test_no_module_has_no_tests() -> None:
    spec = replace(SPECS["linear"], module=None)
    assert module_tests(spec, plan_making(spec), "Linear", "TestLinear") is None


def test_an_optional_parameter_is_a_switch() -> None:
    assert claims_of(SPECS["linear"]) == {
        "op_tests": "TestOp",
        "owned": '("weight", "bias")',
        "optional": '("bias",)',
        "given": '("input",)',
    }
    assert described(SPECS["linear"]).build_parameters == "**options: Any"
    assert built(SPECS["linear"]) == (
        "return Linear(in_features=3, out_features=4, dtype=torch.double, **options)"
    )


def test_a_module_without_tensors_has_no_state() -> None:
    assert "**options" not in described(SPECS["scale_by"]).build_parameters
    claims = claims_of(SPECS["scale_by"])
    assert "owned" not in claims
    assert claims["attributes"] == '("constant",)'


def test_a_module_of_nothing_has_nothing_to_copy() -> None:
    assert claims_of(SPECS["exp_"]) == {"op_tests": "TestOp", "given": '("x",)'}


def test_an_object_need_not_survive_a_copy() -> None:
    assert "attributes" not in claims_of(SPECS["apply_to"])


def test_parameters_of_unknown_shape_bring_theirs() -> None:
    inputs = (tensor("x"), tensor("weight"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)))
    assert built(spec).startswith("return Op(weight_shape=(2, 3), dtype")


def test_a_parameter_with_leading_dims_has_the_shape_of_the_input_that_it_is_loaded_from() -> (
    None
):
    inputs = (tensor("x", "...", "D"), tensor("bias", "...", "D"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("bias",)))
    assert built(spec).startswith("return Op(bias_shape=(2, 3), dtype")
    inputs = (tensor("x", "..."), tensor("bias", "..."))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("bias",)))
    assert built(spec).startswith("return Op(bias_shape=(2,), dtype")


def test_a_complex_parameter_makes_a_complex_module() -> None:
    inputs = (tensor("x", "D"), tensor("weight", "D", dtype="complex"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)))
    assert "dtype=torch.cdouble" in built(spec)


def test_a_buffer_that_training_updates_is_named() -> None:
    assert claims_of(SPECS["centring"])["updated"] != ""
    assert "momentum=0.1" in built(SPECS["centring"])


def test_the_sizes_of_the_users_own_samples_are_read_off() -> None:
    inputs = (
        tensor("x", "...", "D"),
        tensor("weight", "K", "D"),
        Attribute("p", "float"),
    )
    samples = Samples("draw", "def draw():\n    return []\n")
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)), samples=samples)
    assert described(spec).build_lines[0] == "inputs = TestOp().inputs()"
    assert built(spec).startswith(
        "return Op(D=inputs[0].shape[-1], K=inputs[1].shape[0], p=inputs[2]"
    )


def test_variadic_tensors_are_passed_on() -> None:
    inputs = (tensor("x"), tensor("xs", variadic=True))
    assert claims_of(OpSpec("op", "Op", inputs))["given"] == '("x", "xs")'
