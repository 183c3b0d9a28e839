"""A skeleton says what is missing, shows real errors, and passes once it is filled by hand."""

from pathlib import Path

import pytest

from tests.executed.checks import findings_of_mypy, findings_of_ruff
from tests.executed.generation import new_op
from tests.executed.suites import WITHOUT_COMPILING, Report, Suites
from tests.sweeps import in_every_run

# As the tutorials on extending PyTorch write them.
TUTORIAL = {
    "forward": """\
output = input.mm(weight.t())
if bias is not None:
    output += bias.unsqueeze(0).expand_as(output)
return output""",
    "grad_input": "grad_input = grad_output.mm(weight)",
    "grad_weight": "grad_weight = grad_output.t().mm(input)",
    "grad_bias": "grad_bias = grad_output.sum(0)",
}
WITHOUT_MATHS = {"test_module_copies[bias=True]", "test_module_copies[bias=False]"} | {
    "test_module_on_meta"
}
STYLES = pytest.mark.parametrize(
    "style", in_every_run(["setup-context", "combined"], ["setup-context"])
)


def fill(path: Path, op: str, bodies: dict[str, str]) -> None:
    """Write bodies in place of the lines that raise, and nothing else."""
    lines = []
    for line in path.read_text().splitlines():
        todo = line.strip().removeprefix(f'raise NotImplementedError("{op}: write ')
        part = todo.removesuffix('")')
        if todo == line.strip() or part not in bodies:
            lines.append(line)
        else:
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + new for new in bodies[part].splitlines()]
    path.write_text("\n".join(lines) + "\n")


def linear(directory: Path, bodies: dict[str, str], *options: str) -> Path:
    """The skeleton of the first example in the README, with some bodies written."""
    new_op(directory, "linear", "--inputs", "input,weight,bias?", *options)
    fill(directory / "linear.py", "linear", bodies)
    return directory


def passed(report: Report) -> set[str]:
    return {name.partition("::")[2] for name in report.named("passed")}


def test_two_files_in_an_empty_directory(tmp_path: Path) -> None:
    result = new_op(tmp_path, "linear", "--inputs", "input,weight,bias?")
    assert {path.name for path in tmp_path.iterdir()} == {"linear.py", "test_linear.py"}
    assert (
        "left for you to write: forward, grad_input, grad_weight, grad_bias"
        in result.stderr
    )


@STYLES
def test_nothing_that_needs_the_maths_passes(
    tmp_path: Path, suites: Suites, style: str
) -> None:
    report = suites.run(linear(tmp_path, {}, "--style", style))
    assert set(report.counts) == {"passed", "xfailed"}, report.output
    assert passed(report) == WITHOUT_MATHS


@STYLES
def test_a_skeleton_filled_as_tutorials_do_passes(
    tmp_path: Path, suites: Suites, style: str
) -> None:
    directory = linear(tmp_path, TUTORIAL, "--style", style)
    assert "NotImplementedError" not in (directory / "linear.py").read_text()
    report = suites.run(directory)
    assert set(report.counts) == {"passed"}, report.output
    assert report.counts["passed"] > 30
    assert not findings_of_ruff(directory)


@pytest.mark.parametrize(
    "written",
    in_every_run(
        [
            ("forward",),
            ("forward", "grad_input"),
            ("forward", "grad_weight", "grad_bias"),
        ],
        [("forward", "grad_input")],
    ),
    ids=" ".join,
)
def test_a_half_filled_skeleton_still_expects_failure(
    tmp_path: Path, suites: Suites, written: tuple[str, ...]
) -> None:
    bodies = {name: TUTORIAL[name] for name in written}
    report = suites.run(linear(tmp_path, bodies), *WITHOUT_COMPILING)
    assert set(report.counts) == {"passed", "xfailed"}, report.output
    assert passed(report) == WITHOUT_MATHS


FORWARD = TUTORIAL["forward"]
HALF = {name: TUTORIAL[name] for name in ("forward", "grad_input")}
ERRORS = {
    "a typing error": (
        {"forward": "return input.mm(wieght.t())"},
        "NameError: name 'wieght' is not defined",
    ),
    "shapes that do not fit": (
        {"forward": "return input.mm(weight)"},
        "mat1 and mat2 shapes cannot be multiplied",
    ),
    "a wrong call": (
        {"forward": FORWARD.replace("weight.t()", "weight.transpose()")},
        "TypeError: transpose() missing 2 required",
    ),
    "another NotImplementedError": (
        {"forward": 'raise NotImplementedError("later")'},
        "NotImplementedError: later",
    ),
    "no result": ({"forward": "input.mm(weight.t())"}, "Error"),
    "a typing error in a gradient": (
        HALF | {"grad_input": "grad_input = grad_output.mm(wieght)"},
        "NameError: name 'wieght' is not defined",
    ),
    "shapes that do not fit in a gradient": (
        HALF | {"grad_input": "grad_input = grad_output.mm(weight.t())"},
        "mat1 and mat2 shapes cannot be multiplied",
    ),
    "a gradient of a wrong shape": (
        HALF | {"grad_input": "grad_input = grad_output.mm(weight).sum(0)[:2]"},
        "returned an invalid gradient at index 0",
    ),
    "an error in the last gradient": (
        HALF | {"grad_bias": 'grad_bias = grad_output.sum("N")'},
        "Error",
    ),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("kind", in_every_run(ERRORS, [*ERRORS][::3]))
def test_an_error_in_a_half_filled_skeleton_is_a_failure(
    tmp_path: Path, suites: Suites, kind: str
) -> None:
    bodies, error = ERRORS[kind]
    report = suites.run(linear(tmp_path, bodies), "--tb=line", *WITHOUT_COMPILING)
    assert report.counts["failed"] > 10, report.output
    assert error in report.output


def test_a_wrong_gradient_in_a_filled_skeleton_is_a_failure(
    tmp_path: Path, suites: Suites
) -> None:
    wrong = {"grad_weight": "grad_weight = 2 * grad_output.t().mm(input)"}
    report = suites.run(linear(tmp_path, TUTORIAL | wrong), *WITHOUT_COMPILING)
    assert not report.counts["xfailed"]
    assert any("test_gradcheck" in name for name in report.named("failed"))


@pytest.mark.each_commit
def test_a_forward_that_is_given_leaves_only_the_gradients(
    tmp_path: Path, suites: Suites
) -> None:
    options = ["--forward", "input @ weight.t() + bias", "--no-derive"]
    report = suites.run(linear(tmp_path, {}, *options), *WITHOUT_COMPILING)
    assert set(report.counts) == {"passed", "xfailed"}, report.output
    compared = {name for name in passed(report) if "forward" in name}
    assert passed(report) == compared | WITHOUT_MATHS
    assert compared
    fill(tmp_path / "linear.py", "linear", TUTORIAL)
    assert set(suites.run(tmp_path, *WITHOUT_COMPILING).counts) == {"passed"}


OTHERS = {
    "one input": (
        ["--inputs", "x"],
        {"forward": "return x.exp()", "grad_x": "grad_x = grad_output * x.exp()"},
    ),
    "an attribute": (
        ["--inputs", "x, factor: float = 3.0"],
        {
            "forward": "return x * factor",
            "grad_x": "grad_x = grad_output * ctx.factor",
        },
    ),
    "several outputs": (
        ["--inputs", "x[N; distinct]", "--outputs", "values, indices[N; int]"],
        {
            "forward": "values, indices = x.sort()\nreturn values, indices",
            "grad_x": "grad_x = grad_values.gather(0, x.argsort().argsort())",
        },
    ),
    "several tensors": (
        ["--inputs", "*tensors"],
        {
            "forward": "first, *others = tensors\nreturn sum(others, first.exp())",
            "grad_tensors": (
                "grad_tensors = [grad_output] * len(tensors)\n"
                "grad_tensors[0] = grad_output * tensors[0].exp()"
            ),
        },
    ),
    "in place": (
        ["--inputs", "x", "--dirty", "x", "--no-transforms"],
        {
            "forward": "x.mul_(2)\nreturn x",
            "grad_x": "grad_x = 2 * grad_output",
        },
    ),
    "no gradient": (
        ["--inputs", "x", "--outputs", "found[N; int]"],
        {"forward": "return x.argmax(-1)"},
    ),
}


@pytest.mark.parametrize("kind", in_every_run(OTHERS, ["several tensors"]))
def test_every_kind_of_skeleton_can_be_filled(
    tmp_path: Path, suites: Suites, kind: str
) -> None:
    options, bodies = OTHERS[kind]
    new_op(tmp_path, "op", *options)
    empty = suites.run(tmp_path, *WITHOUT_COMPILING)
    assert set(empty.counts) <= {"passed", "xfailed"}, empty.output
    assert passed(empty) <= {"test_module_copies[default]"}
    assert not findings_of_ruff(tmp_path)
    fill(tmp_path / "op.py", "op", bodies)
    filled = suites.run(tmp_path)
    assert set(filled.counts) <= {"passed", "skipped"}, filled.output


@pytest.mark.each_commit
def test_the_type_checker_agrees_before_and_after(
    tmp_path: Path, mypy_cache: Path
) -> None:
    """One run over an empty, a half-filled and a filled skeleton of each style."""
    half = {name: TUTORIAL[name] for name in ("forward", "grad_weight")}
    for style in ("setup-context", "combined"):
        for label, bodies in (("empty", {}), ("half", half), ("filled", TUTORIAL)):
            op = f"linear_{label}_{style[0]}"
            new_op(tmp_path, op, "--inputs", "input,weight,bias?", "--style", style)
            fill(tmp_path / f"{op}.py", op, bodies)
    assert not findings_of_mypy(tmp_path, mypy_cache)
    assert not findings_of_ruff(tmp_path)
