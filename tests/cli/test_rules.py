"""`scaffold rules`: what there is, one of them, and tables of a team's own."""

import json
from pathlib import Path

import pytest

from scaffold.cli import output
from scaffold.derive.rules.table import built_in
from scaffold.derive.rules.table_checks import checked_table
from tests.cli.running import Outcome, new_op, scaffold

SQUARE = """\
[square]
call = "torch.square(x)"
also = ["method"]
category = "elementwise"
grad.x = "FACTOR * grad * x"
samples = ["x[3, 4]"]
complex = false
"""
PROJECT = '[tool.scaffold]\nrules = ["rules.toml"]\n'
OP = ("--inputs", "x", "--forward", "torch.square(x)")


def table(factor: int) -> str:
    return SQUARE.replace("FACTOR", str(factor))


def rules(directory: Path, *arguments: str) -> Outcome:
    return scaffold(directory, "rules", *arguments)


def project(directory: Path, factor: int = 2) -> None:
    (directory / "pyproject.toml").write_text(PROJECT)
    (directory / "rules.toml").write_text(table(factor))


def test_all_of_them_are_listed(tmp_path: Path) -> None:
    lines = rules(tmp_path, "list").out.splitlines()
    assert len(lines) > 200
    assert [line.split() for line in lines if line.startswith("exp ")] == [
        ["exp", "elementwise", "torch.exp(x)"]
    ]
    listed = json.loads(rules(tmp_path, "list", "--format", "json").out)["rules"]
    assert len(listed) == len(lines)


def test_one_is_shown_as_a_table_has_it(tmp_path: Path) -> None:
    shown = rules(tmp_path, "show", "softplus").out
    assert shown.startswith('[softplus]\ncall = "F.softplus(')
    again = checked_table(shown, "shown", built_in())
    assert again.rule("softplus").formulas
    (one,) = json.loads(rules(tmp_path, "show", "exp", "--format", "json").out)["rules"]
    assert one["grad"] == {"x": "grad * conj(result)"}
    flag = "undifferentiated = true\n"  # which a table must say to have the rule
    assert flag in rules(tmp_path, "show", "bessel_j0").out and flag not in shown


@pytest.mark.parametrize("name", ["sum", "var_mean", "matmul", "chunk", "where"])
def test_what_is_shown_can_be_read_again(name: str, tmp_path: Path) -> None:
    shown = rules(tmp_path, "show", name).out
    assert checked_table(shown, "shown", built_in()).rule(name)


def test_a_team_s_rule_goes_before_the_built_in(tmp_path: Path) -> None:
    before = new_op(tmp_path, *OP, "--stdout", "--no-verify").out
    project(tmp_path, factor=7)
    after = new_op(tmp_path, *OP, "--stdout", "--no-verify").out
    assert "7" not in before
    assert "7" in after
    assert "7" in scaffold(tmp_path, "derive", "foo", *OP).out
    assert rules(tmp_path, "show", "square").out.count("7 * grad * x") == 1


def test_a_table_counts_from_its_pyproject(tmp_path: Path) -> None:
    project(tmp_path)
    below = tmp_path / "src"
    below.mkdir()
    assert scaffold(below, "derive", "foo", *OP).code == 0
    (tmp_path / "rules.toml").write_text("[square]\n")
    outcome = scaffold(below, "derive", "foo", *OP)
    assert outcome.code == 2
    assert outcome.err.startswith("../rules.toml:1:2: rule 'square': 'call' is missing")


def test_a_table_is_read_where_something_is_derived(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "rules.toml").write_text("[square]\n")
    stated = ("--grad", "x=2 * x * grad_output")
    assert scaffold(tmp_path, "derive", "foo", *OP, *stated).code == 0


def test_a_right_table_passes_its_check(tmp_path: Path) -> None:
    project(tmp_path)
    outcome = rules(tmp_path, "check")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "rules.toml: all 1 checks agree with autograd\n"


def test_on_a_terminal_a_line_says_what_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path)
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    outcome = rules(tmp_path, "check")
    assert (outcome.code, outcome.err) == (
        0,
        "\rchecking rules.toml ...\r",
    )


WRONG = "grad.x = 4 * grad * x on x[3, 4]"


def test_a_wrong_formula_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(table(4))
    outcome = rules(tmp_path, "check", "other.toml")
    assert outcome.code == 1
    assert outcome.messages == [
        f"other.toml:5:11: rule 'square': {WRONG} in torch.float64: factor 2"
    ]
    found = json.loads(rules(tmp_path, "check", "other.toml", "--format", "json").out)
    (problem,) = found["files"][0]["problems"]
    assert problem["words"] == "factor 2"


def test_what_torch_refuses_is_said(tmp_path: Path) -> None:
    text = table(2).replace("complex = false\n", "").replace("square(x)", "erf(x)")
    (tmp_path / "other.toml").write_text(text)
    outcome = rules(tmp_path, "check", "other.toml")
    assert outcome.code == 1
    assert "complex = false" in outcome.err


KERNELS = """
import torch

def scaled(x, factor=2.0):
    with torch.no_grad():
        return factor * x * x
"""
OWN = """
[scaled]
call = "scaled(x, factor=2.0)"
from = "my_kernels"
category = "elementwise"
grad.x = "{number} * factor * grad * x"
samples = ["x[3, 4]", "x[3], factor=0.5"]
complex = false
"""


def own(directory: Path, number: int) -> None:
    """A project with a function of its own and a rule about it."""
    (directory / "my_kernels.py").write_text(KERNELS)
    (directory / "rules.toml").write_text(OWN.format(number=number))
    (directory / "pyproject.toml").write_text(PROJECT)


def test_a_function_of_the_team_s_has_a_rule(tmp_path: Path) -> None:
    own(tmp_path, 2)
    assert rules(tmp_path, "check").out == (
        "rules.toml: all 2 checks agree with differences in float64, as autograd has no gradient of scaled\n"
    )
    used = ("--import", "my_kernels:scaled", "--inputs", "x")
    outcome = scaffold(
        tmp_path, "derive", "foo", *used, "--forward", "scaled(x, factor=3.0)"
    )
    assert outcome.code == 0, outcome.err
    assert "6 * grad_output * x" in outcome.out
    outcome = scaffold(tmp_path, "derive", "foo", *used, "--forward", "scaled(x, 1, 2)")
    assert "no rule is for this call of scaled" in outcome.err


def test_a_rule_of_a_kernel_is_checked_by_differences(tmp_path: Path) -> None:
    own(tmp_path, 4)
    outcome = rules(tmp_path, "check")
    assert outcome.code == 1
    assert "factor 2" in outcome.err


HALVES = """\
[halves]
call = "torch.split_with_sizes(x, split_sizes, dim=0)"
category = "view"
results = ["one", "other"]
grad.x = "cat((grad_one, grad_other), dim)"
samples = ["x[3, 4], (1, 2)"]
complex = false
"""


def test_each_of_several_results_is_asked_alone(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(HALVES)
    outcome = rules(tmp_path, "check", "rules.toml")
    assert "if only grad_one has a gradient, the others are the number 0" in outcome.err
    parts = "zeros(one, one) + grad_one, zeros(other, other) + grad_other"
    text = HALVES.replace("grad_one, grad_other", parts)
    (tmp_path / "rules.toml").write_text(text)
    outcome = rules(tmp_path, "check", "rules.toml")
    assert outcome.out == "rules.toml: all 3 checks agree with autograd\n"


BESIDE_AUTOGRAD = """\
[airy]
call = "torch.special.airy_ai(x)"
category = "elementwise"
complex = false
grad.x = "grad * result"
samples = ["x[3]"]

[kept]
call = "x.detach()"
category = "elementwise"
complex = false
grad.x = "grad"
samples = ["x[3]"]

[own_exp]
call = "torch.exp(x)"
category = "elementwise"
complex = false
grad.x = "grad * result"
samples = ["x[3]"]
"""


def test_what_autograd_has_no_gradient_of_is_held_against_differences(
    tmp_path: Path,
) -> None:
    (tmp_path / "rules.toml").write_text(BESIDE_AUTOGRAD)
    outcome = rules(tmp_path, "check", "rules.toml")
    assert "'airy': grad.x = grad * result on x[3] in" in outcome.err
    assert "differs from finite differences by up to" in outcome.err
    assert "'kept': autograd has no gradient of it" in outcome.err
    said = BESIDE_AUTOGRAD.partition("[kept]")[2]
    text = f"[kept]{said}".replace('"grad"', '"grad"\nundifferentiated = true')
    (tmp_path / "rules.toml").write_text(text)
    assert rules(tmp_path, "check", "rules.toml").out == (
        "rules.toml: all 2 checks agree, 1 of them with differences in float64, as autograd has no gradient of kept\n"
    )


def test_a_rule_is_about_the_function_of_its_module(tmp_path: Path) -> None:
    own(tmp_path, 2)
    used = ("--import", "other_kernels:scaled", "--inputs", "x")
    outcome = scaffold(tmp_path, "derive", "foo", *used, "--forward", "scaled(x)")
    assert "'scaled' is not part of PyTorch" in outcome.err
