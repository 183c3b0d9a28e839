"""A year of a team's life with thirty ops: edits, changes of specifications and of templates, and nothing is lost.

It runs without git. By default the generated tests of a few ops are run, those of all with -m exhaustive.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.team_ops import manifest
from scaffold.render import sandbox, templates
from tests.cli.projects import contents, edit
from tests.cli.running import Outcome, scaffold
from tests.executed.suites import Suites

FURTHER = """
[ops.plain_skeleton]
inputs = 'x, y?'

[ops.skeleton_of_two]
inputs = 'x[N, D], scale: float = 1.0'
outputs = 'low, high'

[ops.skeleton_with_weight]
inputs = 'input[N, K], weight[M, K]'

[ops.centre]
inputs = 'x[N, D], running_mean[D; const], momentum: float = 0.1'
forward = 'x - running_mean'
grad.x = 'grad_output'
buffers = ['running_mean']
update.running_mean = 'torch.lerp(running_mean, x.mean(0), momentum)'

[ops.affine]
inputs = 'x[..., D], weight[D]?, bias[D]?'
forward = 'x * weight + bias'

[ops.sorted_last]
inputs = 'x[..., N; distinct]'
outputs = 'values[..., N], indices[..., N; int]'
forward = 'torch.sort(x, dim=-1)'
grad.x = 'torch.zeros_like(x).scatter(-1, indices, grad_values)'

[ops.sign_through]
inputs = 'x'
forward = 'torch.sign(x)'
surrogate = 'x.clamp(-1, 1)'
grad.x = 'grad_output * (x.abs() <= 1)'

[ops.grow]
inputs = 'x'
dirty = ['x']
forward = 'x.exp_()'
grad.x = 'grad_output * output'

[ops.once]
inputs = 'x'
forward = 'torch.sinh(x)'
grad.x = 'grad_output * torch.cosh(x)'
once-differentiable = true

[ops.reverse]
inputs = 'x, times: int = 2, flip: bool = False'
forward = 'x * (-times if flip else times)'
grad.x = 'grad_output * (-times if flip else times)'
"""
CONFIGURATION = "[tool.scaffold]\nsource = 'ops'\ntests = 'tests'\n"
SHARED = "tests/op_testing.py"
BY_HAND = "\n\nBY_HAND = 'kept'\n"
APPENDED = (
    *("linear_0", "power_1", "sigmoid_3", "mean_5", "affine", "centre", "grow"),
    "plain_skeleton",
)
COLLIDING = ("swish_6", "rms_7")  # one with its specification, one with a template
EDITED = {f"ops/{name}.py" for name in (*APPENDED, *COLLIDING)}
TEAM = """{% extends "builtin/op.py.jinja" %}
{% block header %}
# Kernels of our team.
{{ super() }}{% endblock %}
"""
FEW = ("power_1", "swish_6", "rms_7", "plain_skeleton")


def thirty() -> str:
    """Ten ops with gradients written out, ten derived, ten of other kinds."""
    derived = manifest(20, derived=True)
    return (
        manifest(10, derived=False)
        + derived[derived.index("[ops.linear_10]") :]
        + (FURTHER)
    )


@pytest.fixture
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the built-in templates in their place, for a test to change."""
    copy = tmp_path / "installed"
    shutil.copytree(templates.template_root(), copy)
    monkeypatch.setattr(templates, "template_root", lambda: copy)
    forget()
    yield copy
    forget()


def forget() -> None:
    """Read templates anew, as another process does."""
    templates.built_in_environment.cache_clear()
    sandbox.layered.cache_clear()


def checked(root: Path, *arguments: str) -> tuple[int, dict[str, set[str]]]:
    """The exit code of `check`, and the files by what they are, whether or not they are proven."""
    outcome = scaffold(root, "check", "--format", "json", *arguments)
    found: dict[str, set[str]] = {}
    for item in json.loads(outcome.out)["files"]:
        found.setdefault(item["status"], set()).add(item["path"])
    advised = found.pop("unproven", set()) | found.pop("unprovable", set())
    rest = advised - set().union(*found.values())
    if rest:
        found["ok"] = found.get("ok", set()) | rest
    return outcome.code, found


def done(outcome: Outcome, code: int = 0) -> Outcome:
    assert outcome.code == code, outcome.err + outcome.out
    return outcome


def edit_by_hand(root: Path) -> None:
    for name in APPENDED:
        path = root / f"ops/{name}.py"
        path.write_text(path.read_text() + BY_HAND)
    edit(root / "ops/swish_6.py", "beta: float = 2.0", "beta: float = 7.0")
    edit(root / "ops/rms_7.py", "# Generated", "# Once generated")


def resolve(path: Path) -> None:
    """Take what scaffold says at each place that is marked."""
    lines, keep = [], True
    for line in path.read_text().splitlines(keepends=True):
        if line.startswith(("<<<<<<< ", "||||||| ")):
            keep = False
        elif line.rstrip() == "=======" or line.startswith(">>>>>>> "):
            keep = True
        elif keep:
            lines.append(line)
    path.write_text("".join(lines))


def live_through(root: Path, built_in: Path) -> None:
    """The year, with `check` after each event."""
    (root / "pyproject.toml").write_text(CONFIGURATION)
    (root / "ops.toml").write_text(thirty())
    assert "30 created (61 files)" in done(scaffold(root, "sync")).out
    files = {path for path in contents(root) if path.startswith(("ops/", "tests/"))}
    assert checked(root, "--strict") == (0, {"ok": files})

    edit_by_hand(root)
    assert checked(root) == (0, {"ok": files - EDITED, "edited": EDITED})
    assert checked(root, "--strict")[0] == 1

    edit(root / "ops.toml", "beta: float = 2.0", "beta: float = 3.0")
    edit(root / "ops.toml", "torch.sinh(x)'", "torch.sinh(x) + 1'")
    gone = {"ops/reverse.py", "tests/test_reverse.py"}
    text = (root / "ops.toml").read_text()
    (root / "ops.toml").write_text(text[: text.index("[ops.reverse]")])
    (root / "tests/test_pair_9.py").unlink()
    missing = {"tests/test_pair_9.py"}
    stale = {
        *("ops/swish_6.py", "tests/test_swish_6.py"),
        *("ops/once.py", "tests/test_once.py"),
    }
    now = {"stale": stale, "missing": missing, "orphaned": gone}
    now["edited"] = EDITED - stale
    assert checked(root) == (
        1,
        {"ok": files - stale - gone - missing - EDITED, **now},
    )

    (root / "templates").mkdir()
    (root / "templates/op.py.jinja").write_text(TEAM)
    edit(root / "pyproject.toml", "source", "template-dirs = ['templates']\nsource")
    forget()
    ops = {path for path in files - gone if path.startswith("ops/")}
    now |= {"stale": stale | ops}
    del now["edited"]
    assert checked(root) == (1, {"ok": files - gone - missing - stale - ops, **now})

    block = "{% block imports %}"
    edit(built_in / "test.py.jinja", block, f"{block}\n# New.")
    forget()
    now["stale"] = files - gone - missing - {SHARED}
    assert checked(root) == (1, {"ok": {SHARED}, **now})


@pytest.mark.each_commit
def test_a_year(tmp_path: Path, built_in: Path, suites: Suites) -> None:
    root = tmp_path / "project"
    root.mkdir()
    live_through(root, built_in)
    outcome = done(scaffold(root, "upgrade", "--all"), 1)
    marked = {f"ops/{name}.py" for name in COLLIDING}
    conflicts = [line for line in outcome.out.splitlines() if "conflict  " in line]
    assert {line.split()[-1] for line in conflicts} == marked
    code, found = checked(root)
    assert (code, found["conflict-markers"]) == (1, marked)
    assert set(found) == {"ok", "edited", "conflict-markers", "orphaned"}
    assert found["edited"] == EDITED - marked
    for name in APPENDED:
        assert (root / f"ops/{name}.py").read_text().endswith(BY_HAND)
    for op in (root / "ops").iterdir():
        ours = "# Kernels of our team.\n" in op.read_text()
        assert ours is (op.stem != "reverse"), op
    for path in marked:
        resolve(root / path)
    done(scaffold(root, "remove", "reverse"))
    code, found = checked(root)
    assert (code, set(found)) == (0, {"ok", "edited"})
    assert found["edited"] == EDITED - marked
    said = done(scaffold(root, "sync")).out
    assert said == "8 edited, 21 identical (58 files)\n"
    report = suites.run(root, *(f"tests/test_{name}.py" for name in FEW))
    assert not report.named("failed") + report.named("error"), report.output
    assert report.named("passed")


@pytest.mark.exhaustive
def test_what_is_generated_passes_after_a_year(
    tmp_path: Path, built_in: Path, suites: Suites
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    live_through(root, built_in)
    done(scaffold(root, "upgrade", "--all"), 1)
    for name in COLLIDING:
        resolve(root / f"ops/{name}.py")
    done(scaffold(root, "remove", "reverse"))
    report = suites.run(root)
    assert not report.named("failed") + report.named("error"), report.output
