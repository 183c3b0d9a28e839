"""From options, a file and the configuration to an op: who wins, what is said of it, and that it is rendered once."""

from collections import Counter
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import black
import pytest
from black.mode import TargetVersion

from scaffold.project import rendering, specification
from scaffold.project.interpreter import Proving
from scaffold.verify import Verdict, limits, pool
from tests.cli.running import QUICK, Outcome, listing, new_op, scaffold

LINEAR = ("--inputs", "input, weight, bias?", "--forward", "input @ weight.t() + bias")
COMBINED = "def forward(ctx: Any"


def configured(directory: Path, *lines: str) -> None:
    text = "\n".join(["[tool.scaffold]", *lines, ""])
    (directory / "pyproject.toml").write_text(text)


def op(directory: Path, *arguments: str) -> str:
    """The text of the op."""
    outcome = new_op(directory, *arguments, "--stdout", "--no-test", "--no-verify")
    assert outcome.code == 0, outcome.err
    return outcome.out


def test_style_option_over_file_over_configuration_over_default(tmp_path: Path) -> None:
    spec = tmp_path / "ops.toml"
    spec.write_text("[ops.foo]\ninputs = 'x'\n")
    arguments = ("--spec", "ops.toml")
    assert COMBINED not in op(tmp_path, *arguments)
    configured(tmp_path, "style = 'combined'")
    assert COMBINED in op(tmp_path, *arguments)
    spec.write_text("[ops.foo]\ninputs = 'x'\nstyle = 'setup-context'\n")
    assert COMBINED not in op(tmp_path, *arguments)
    assert COMBINED in op(tmp_path, *arguments, "--style", "combined")


def long_lines(text: str, width: int) -> bool:
    mode = black.Mode(line_length=width, target_versions={TargetVersion.PY311})
    return black.format_str(text, mode=mode) == text


def test_the_line_length_is_the_project_s(tmp_path: Path) -> None:
    assert long_lines(op(tmp_path, *LINEAR), 88)
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.black]\nline-length = 70\n")
    assert long_lines(op(tmp_path, *LINEAR), 70)
    project.write_text("[tool.ruff]\nline-length = 110\n[tool.scaffold]\n")
    assert long_lines(op(tmp_path, *LINEAR), 110)
    configured(tmp_path, "line-length = 60")
    assert long_lines(op(tmp_path, *LINEAR), 60)
    assert not long_lines(op(tmp_path, *LINEAR), 88)


def test_parameter_names_are_configured(tmp_path: Path) -> None:
    inputs = ("--inputs", "x, weight, kernel")
    assert "self.weight = nn.Parameter" in op(tmp_path, *inputs)
    configured(tmp_path, "parameter-names = ['kernel']")
    text = op(tmp_path, *inputs)
    assert "self.kernel = nn.Parameter" in text
    assert "self.weight" not in text
    assert "self.kernel" not in op(tmp_path, *inputs, "--params", "weight")


def test_conventions_are_configured_and_printed_when_used(tmp_path: Path) -> None:
    configured(tmp_path, "conventions = [{ x = 'N, D', scale = 'D' }]")
    outcome = new_op(tmp_path, "--inputs", "x, scale")
    assert outcome.err.splitlines()[0] == "note: conventional shapes: x[N, D], scale[D]"
    outcome = new_op(tmp_path, "--inputs", "input, weight, bias?", name="other")
    assert "conventional" not in outcome.err


def test_shapes_of_the_tests_are_stronger_than_a_convention(tmp_path: Path) -> None:
    """The module takes sizes that its tests have: there was a traceback."""
    inputs = ("--inputs", "input, weight", "--test-shapes", "input[N, D], weight[K]")
    outcome = new_op(tmp_path, *inputs)
    assert "conventional" not in outcome.err


def test_the_built_in_convention_is_printed(tmp_path: Path) -> None:
    first, second = new_op(
        tmp_path, "--inputs", "input, weight, bias?"
    ).err.splitlines()
    shapes = "input[N, in_features], weight[out_features, in_features]"
    assert first == f"note: conventional shapes: {shapes}, bias[out_features]"
    assert second == (
        "note: left for you to write: forward, grad_input, grad_weight, grad_bias"
    )


def test_nothing_is_said_of_an_op_that_is_whole(tmp_path: Path) -> None:
    arguments = (*QUICK, "--forward", "x * x", "--grad", "x=2 * x", "--no-verify")
    outcome = new_op(tmp_path, *arguments)
    assert (outcome.code, outcome.err) == (0, "")


LOOP = "for i in range(w.shape[0]):\n    x = x + i\nreturn x"


@pytest.mark.parametrize(
    ("arguments", "unread"),
    [
        (("--inputs", "x, w", "--forward", "x * 2"), ["w"]),
        (("--inputs", "x, eps=1e-6, w?", "--forward", "x * 2"), ["eps", "w"]),
        (("--inputs", "x, w", "--forward", "x * 2", "--grad", "w=w"), []),
        (("--inputs", "x, w"), []),
        (
            (
                "--inputs",
                "x, w",
                "--forward",
                LOOP,
            ),
            [],
        ),
    ],
)
def test_inputs_that_nothing_reads_are_named(
    arguments: tuple[str, ...], unread: list[str], tmp_path: Path
) -> None:
    outcome = new_op(tmp_path, *arguments, "--no-verify")
    notes = [line for line in outcome.err.splitlines() if "never reads" in line]
    assert outcome.code == 0, outcome.err
    assert notes == [f"note: the forward never reads '{name}'" for name in unread]


@pytest.mark.parametrize(
    ("arguments", "flat"),
    [
        (("--forward", "torch.round(x / w) * w"), ["x"]),
        (("--forward", "torch.where(x > 0, 1.0, -1.0) * w"), ["x"]),
        (("--forward", "x.detach() * w"), []),
        (("--forward", "w * 2"), []),  # never reads x, and says so
        (("--forward", "x * w"), []),
    ],
)
def test_a_gradient_that_is_zero_everywhere_is_told(
    arguments: tuple[str, ...], flat: list[str], tmp_path: Path
) -> None:
    """What rounds has none, and whoever writes it down for the first time expects another."""
    outcome = new_op(tmp_path, "--inputs", "x, w", *arguments, "--no-verify")
    notes = [line for line in outcome.err.splitlines() if "zero everywhere" in line]
    assert outcome.code == 0, outcome.err
    assert notes == [
        f"note: grad_{name} is zero everywhere; one that is meant to differ from the derivative is stated: "
        f"--grad '{name}=grad_output' --surrogate"
        for name in flat
    ]


@pytest.mark.parametrize(
    ("forward", "gains"), [("x * 2", False), ("torch.softmax(x @ x.mT, -1) @ x", True)]
)
def test_a_policy_that_gains_nothing_is_told(
    forward: str, gains: bool, tmp_path: Path
) -> None:
    arguments = ("--inputs", "x[N, D]", "--forward", forward, "--no-verify")
    note = "note: balanced saves no more than recompute: nothing is gained by it\n"
    outcome = new_op(tmp_path, *arguments, "--save-policy", "balanced")
    assert outcome.err == ("" if gains else note)
    configured(tmp_path, "save-policy = 'balanced'")
    other = new_op(tmp_path, *arguments, name="other")
    assert note not in other.err, "it was not asked for of this op"


def test_one_gradient_that_is_left_is_named(tmp_path: Path) -> None:
    maths = ("--forward", "x * w", "--grad", "x=grad_output * w", "--no-derive")
    outcome = new_op(tmp_path, "--inputs", "x, w", *maths, "--no-test")
    assert outcome.err == "note: left for you to write: grad_w\n"


def test_the_gradient_of_a_surrogate_is_left_where_its_input_is_gone(
    tmp_path: Path,
) -> None:
    maths = ("--forward", "x.round_()", "--surrogate-forward", "x.clamp(-1, 1)")
    outcome = new_op(tmp_path, "--inputs", "x[N]", "--dirty", "x", *maths, "--no-test")
    assert (outcome.code, outcome.err) == (1, "note: left for you to write: grad_x\n")


def failed(directory: Path, *arguments: str, name: str = "foo") -> Outcome:
    before = listing(directory)
    outcome = new_op(directory, *arguments, name=name)
    assert (outcome.code, outcome.out) == (2, "")
    assert listing(directory) == before
    return outcome


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\xff", "pyproject.toml:1:1: cannot be read: not UTF-8"),
        (b"[tool.scaffold\n", "pyproject.toml:1:15: not valid TOML: "),
        (b"[tool]\nscaffold = 3\n", "pyproject.toml:2:12: 'tool.scaffold' must be"),
        (b"[tool.scaffold]\nstyle = 'x'\n", "pyproject.toml:2:10: unknown value"),
    ],
)
def test_a_broken_configuration(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(data)
    assert failed(tmp_path, *QUICK).err.startswith(complaint)


@pytest.mark.parametrize(
    "text", ["tool = 3\n", "tool.black = 3\ntool.pytest = 'x'\n", "[tool.black\n", ""]
)
def test_a_project_that_is_not_about_us_is_left_alone(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"# line-length, pytest\n{text}")
    assert new_op(tmp_path, *QUICK).code == 0


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("none.toml", "--spec: cannot read 'none.toml': No such file or directory"),
        ("directory", "--spec: cannot read 'directory': Is a directory"),
        ("latin.toml", "--spec: cannot read 'latin.toml': not UTF-8"),
        ("", "--spec: cannot read '': "),
        ("empty.toml", "empty.toml:1:1: the file holds no op\nhint: "),
        ("other.toml", "other.toml:1:1: no op 'foo' in the file\nhint: did you mean"),
        ("many.toml", "many.toml:1:1: no op 'foo' in the file\nhint: its ops: a, b"),
    ],
)
def test_a_spec_that_cannot_be_read(tmp_path: Path, path: str, complaint: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "latin.toml").write_bytes(b"[ops.foo]\ndoc = '\xe9'\n")
    (tmp_path / "empty.toml").touch()
    (tmp_path / "other.toml").write_text("[ops.fooo]\ninputs = 'x'\n")
    (tmp_path / "many.toml").write_text("[ops.a]\n[ops.b]\n")
    assert failed(tmp_path, "--spec", path).err.startswith(complaint)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    spec = b"[ops.foo]\ninputs = 'x'\nforward = '@maths.py'\n"
    (tmp_path / "ops.toml").write_bytes(mark + spec)
    (tmp_path / "maths.py").write_bytes(mark + b"def f(x):\n    return x * x\n")
    (tmp_path / "pyproject.toml").write_bytes(mark + b"[tool.scaffold]\n")
    assert "return x * x" in op(tmp_path, "--spec", "ops.toml")


@pytest.mark.parametrize("name", ["copy", "torch", "numpy", "select"])
def test_a_name_that_hides_a_module_is_fine_in_a_package(
    tmp_path: Path, name: str
) -> None:
    outcome = failed(tmp_path, *QUICK, name=name)
    assert f"NAME: '{name}' cannot name an op" in outcome.err
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").touch()
    inside = new_op(tmp_path, *QUICK, "--out-dir", "ops", name=name)
    assert inside.code == (2 if name == "torch" else 0)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "a/b",
            "../b",
            "/etc/b",
            "a.b",
            "b.py",
            "",
            " ",
            "a b",
            "2b",
            "class",
            "__x__",
        ),
        *("test_x", "tests", "ﬁ", "ctx", "self", "a\nb", "a\0b", "é\udce9"),
    ],
)
def test_a_name_that_is_no_file_of_ours(tmp_path: Path, name: str) -> None:
    outcome = failed(tmp_path, *QUICK, name=name)
    assert outcome.err.startswith("NAME: ")
    assert all(
        line.startswith(("NAME: ", "hint: ")) for line in outcome.err.splitlines()
    )


STEPS = ("build", "derive", "drafts")


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often an op's specification is built, derived and rendered from now on."""
    done = Counter[str]()

    def count(module: ModuleType, name: str) -> None:
        usual = getattr(module, name)

        def once_more(*arguments: object, **named: object) -> object:
            done[name] += 1
            return usual(*arguments, **named)

        monkeypatch.setattr(module, name, once_more)

    for module, name in zip((specification, rendering, rendering), STEPS, strict=True):
        count(module, name)
    return done


def test_each_of_several_ops_is_rendered_once_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(tmp_path)
    table = "[ops.{}]\ninputs = 'x, y'\nforward = 'x * y'\n"
    (tmp_path / "ops.toml").write_text("".join(map(table.format, ("one", "two"))))
    done = counted(monkeypatch)
    for command in (["sync", "--no-verify"], ["sync", "--no-verify"], ["check"]):
        assert scaffold(tmp_path, *command).code == 0
        assert done == dict.fromkeys(STEPS, 2)


@pytest.mark.parametrize("patterns", ["'ops.toml'", "'ops/*.toml'"])
@pytest.mark.parametrize("verified", [True, False])
def test_an_op_is_rendered_once(
    tmp_path: Path, patterns: str, verified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a project too, where it is proven before it is written, and its files name its manifest."""
    configured(tmp_path, f"manifest = {patterns}")
    done = counted(monkeypatch)
    option = "--verify" if verified else "--no-verify"
    with patch.object(Proving, "prove", return_value=Verdict(1, torch="0.0")):
        outcome = new_op(tmp_path, *LINEAR, option)
    assert outcome.code == 0, outcome.err
    assert done == dict.fromkeys(STEPS, 1)
    path = "ops.toml" if "*" not in patterns else "ops/foo.toml"
    assert f"# Generated by scaffold from {path}:" in (tmp_path / "foo.py").read_text()
    assert scaffold(tmp_path, "check", "--strict").code == 0


def test_what_the_project_renders_otherwise_is_rendered_again(tmp_path: Path) -> None:
    """The op is in another manifest than where a new one goes: that is the one that its files name."""
    configured(tmp_path, "manifest = ['ops.toml', 'more.toml']")
    (tmp_path / "ops.toml").touch()
    (tmp_path / "more.toml").write_text("[ops.foo]\ninputs = 'x'\n")
    assert new_op(tmp_path).code == 0
    assert "from more.toml:" in (tmp_path / "foo.py").read_text()
    assert scaffold(tmp_path, "check").code == 0


def test_templates_that_are_killed_are_an_error_at_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(tmp_path, "template-dirs = ['t']")
    (tmp_path / "t").mkdir()
    template = tmp_path / "t/op.py.jinja"
    template.write_text('{% extends "builtin/op.py.jinja" %}')
    assert scaffold(tmp_path, "new-op", "foo", "--inputs", "x").code == 0
    template.write_text('{% extends "builtin/op.py.jinja" %}\n')

    def killed(*_: object, **__: object) -> None:
        raise limits.LimitReached

    monkeypatch.setattr(limits, "limited", killed)
    monkeypatch.setattr(pool, "over", killed)
    words = "t/op.py.jinja:1:1: rendering took more than 5 seconds"
    for arguments in (("new-op", "bar", "--inputs", "x"), ("sync", "--no-verify")):
        outcome = scaffold(tmp_path, *arguments)
        assert outcome.code == 2 and outcome.err.startswith(words)


def test_kernels_of_several_tensors_are_asked_about_autocast(tmp_path: Path) -> None:
    (tmp_path / "kern.py").write_text("def fwd(x, *more): return x * 2\n")
    told = "note: under autocast fwd may get tensors of different dtypes"
    kernel = ("--import", "kern:fwd", "--grad", "x=grad_output * 2", "--dry-run")

    def errors(inputs: str, *more: str) -> str:
        forward = f"fwd({inputs})"
        words = ("new-op", "foo", "--inputs", inputs, "--forward", forward, *kernel)
        return scaffold(tmp_path, *words, "--no-verify", *more).err

    two = ("--grad", "w=grad_output * 0")
    assert told in errors("x, w", *two)
    assert told not in errors("x, w", *two, "--amp", "off")
    assert told not in errors("x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{% set ns = namespace(a=3) %}{% for n in range(60) %}{% set ns.a = ns.a * ns.a %}{% endfor %}",
            "the template takes too long",
        ),
        ("{{ '%1500000000d' % 1 }}", "the template takes too much memory"),
        ("{{ '{:1500000000}'.format(1) }}", "the template takes too much memory"),
        (
            "{{ range(100000)|join('x' * 1000000) }}",
            "the template takes too much memory",
        ),
        (
            "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
            "the template takes too much memory",
        ),
    ],
)
def test_what_a_template_may_take_is_bounded(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` renders the templates of whoever wrote the repository."""
    monkeypatch.setattr(limits, "SECONDS", 1.0)
    monkeypatch.setattr(limits, "GRACE", 1)
    configured(tmp_path, "template-dirs = ['t']")
    (tmp_path / "t").mkdir()
    template = tmp_path / "t/op.py.jinja"
    plain = '{% extends "builtin/op.py.jinja" %}\n{% block header %}TEXT{{ super() }}{% endblock %}'
    template.write_text(plain.replace("TEXT", ""))
    assert scaffold(tmp_path, "new-op", "foo", "--inputs", "x").code == 0
    template.write_text(plain.replace("TEXT", f"# {text}\n"))
    outcome = scaffold(tmp_path, "check")
    assert outcome.code == 2 and words in outcome.err, outcome.err
