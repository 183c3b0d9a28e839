"""`scaffold bench`: a table, one object for programs, a picture; what cannot be measured."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scaffold.project import interpreter
from scaffold.verify.bench import Bench
from tests.cli.projects import SCALE, project
from tests.cli.running import Outcome, listing, scaffold

SWISH = ("--inputs", "x", "--forward", "x * torch.sigmoid(x)")
QUICK = ("--no-compile", "--rounds", "2", "--sizes", "...=4x5")


def bench(directory: Path, *arguments: str) -> Outcome:
    return scaffold(directory, "bench", "swish", *SWISH, *QUICK, *arguments)


def test_an_op_beside_its_text_and_another_operator(tmp_path: Path) -> None:
    done = bench(tmp_path, "--against", "F.silu(x)")
    assert (done.code, done.err) == (0, "")
    title, _, sizes, head, *rows = done.out.splitlines()
    assert title.startswith("swish on cpu, 1 thread, torch 2.")
    assert title.endswith("; medians of 2 rounds")
    assert sizes == "...=4x5, float32, times in us"
    assert head.split() == [
        "forward",
        "backward",
        "both",
        "over",
        "plain",
        "peak",
        "saved",
    ]
    names = [row[:14].rstrip() for row in rows]
    assert names == ["op", "plain autograd", "F.silu(x)"]
    assert rows[0].split()[-2:] == ["80", "B"] and rows[1].endswith(" 160 B")
    assert not listing(tmp_path)


@pytest.mark.each_commit
def test_one_object_for_programs(tmp_path: Path) -> None:
    project(tmp_path, SCALE)
    sizes = ("--sizes", "...=2x3, D=4", "--sizes", "D=8", "--dtype", "float64")
    options = ("--no-compile", "--rounds", "2", "--against", "x + factor")
    done = scaffold(tmp_path, "bench", "scale", *sizes, *options, "--format", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["settings"][0]["sizes"] == {"D": [4], "...": [2, 3]}
    second = found["settings"][1]
    assert second["sizes"]["D"] == [8] and second["dtype"] == "float64"
    op, plain, _other = second["variants"]
    assert list(op) == [
        *("name", "forward", "backward", "both", "peak_bytes", "saved_bytes"),
        *("saved_bytes_without", "differs", "over_plain", "noise"),
    ]
    assert op["saved_bytes"] == plain["saved_bytes"] == 0
    assert op["forward"]["low"] <= op["forward"]["median"] <= op["forward"]["high"]
    assert op["over_plain"] == op["both"]["median"] / plain["both"]["median"]
    assert plain["over_plain"] is None and isinstance(op["noise"], bool)
    first, second = found["notes"]
    note = "x + factor gives other values or gradients than the op, with "
    assert first == f"{note}D=4, ...=2x3, float64" and second.startswith(note)


@pytest.mark.each_commit
def test_what_the_compiler_cannot_do_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Bench.measure

    def without_compiler(self: Bench, variants: Any, *others: Any) -> Any:
        found = measure(self, variants[:2], *others)
        found.refused[variants[2].name] = "RuntimeError: no compiler"
        return found

    monkeypatch.setattr(Bench, "measure", without_compiler)
    done = bench(tmp_path, "--compile")
    assert done.code == 0, done.err
    assert done.out.endswith(
        "\ntorch.compile: not measured, RuntimeError: no compiler\n"
    )
    found = json.loads(bench(tmp_path, "--compile", "--format", "json").out)
    (told,) = found["settings"][0]["refused"].items()
    assert told == ("torch.compile", "RuntimeError: no compiler")


def test_functions_of_the_users_run(tmp_path: Path) -> None:
    """Autograd is taken to have no gradient of them."""
    (tmp_path / "mine.py").write_text("def twice(x):\n    return x * 2\n")
    forward = ("--inputs", "x", "--forward", "twice(x)", "--import", "mine:twice")
    stated = ("--grad", "x=grad_output * 2")
    done = scaffold(tmp_path, "bench", "doubled", *forward, *stated, *QUICK)
    assert done.code == 0, done.err
    why = "NotImplementedError: autograd has no gradient of it"
    assert f"plain autograd: not measured, {why}" in done.out
    assert done.err == "note: the measurement ran code of mine\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sizes", "D=3"), "--sizes: no dim 'D'\n    1 | D=3\n"),
        (("--sizes", "D"), "--sizes: 'D' is not name=number\n"),
        (("--against", "F.silu(y)"), "--against:1:8: unknown name 'y'\n"),
        (("--against", "F.silu(x, 1, 2)"), "--against: 'F.silu(x, 1, 2)' cannot be "),
        (("--dtype", "float33"), "--dtype: unknown value 'float33'\n"),
        (("--device", "gpu"), "--sizes: the op cannot be measured with ...=4x5, "),
        (("--rounds", "0"), "--rounds: '0' is too small\nhint: write: --rounds 15\n"),
        (("--plot", "x.png"), "--plot: 'x.png' is not an SVG file\n"),
        (
            ("--python", "/bin/false"),
            "--python: '/bin/false' is not a Python interpreter\n",
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_place(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = bench(tmp_path, *arguments)
    assert done.code == 2
    assert done.err.startswith(message) and "hint: " in done.err
    assert "Traceback" not in done.err


def test_sizes_that_the_op_does_not_take_are_told(tmp_path: Path) -> None:
    forward = ("--inputs", "x[N], y[M]", "--forward", "x + y")
    done = scaffold(tmp_path, "bench", "sum_", *forward, *QUICK[:3], "--sizes", "N=4")
    assert done.code == 2
    assert "--sizes: the op cannot be measured with N=4, M=" in done.err


def test_what_is_not_written_cannot_be_measured(tmp_path: Path) -> None:
    done = bench(tmp_path, "--no-derive")
    assert done.code == 2
    assert done.err.startswith("NAME: the op lacks grad_x: ")


def test_a_run_without_pytorch_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "find_interpreter", lambda given: None)
    done = bench(tmp_path)
    assert (done.code, done.err.splitlines()[0][-16:]) == (2, "no PyTorch found")


def test_a_picture_needs_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = bench(tmp_path, "--plot", "x.svg")
    assert done.code == 2
    assert done.err == (
        "--plot: matplotlib is not installed\nhint: pip install 'matplotlib>=3.8', beside scaffold\n"
    )


def test_a_picture_is_written_over_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scaffold.render import plots

    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setattr(plots, "bars", lambda title, times: f"{title} {[*times]}")
    (tmp_path / "x.svg").write_text("of before")
    done = bench(tmp_path, "--plot", "x.svg")
    assert done.code == 0, done.err
    assert (tmp_path / "x.svg").read_text() == "swish ['...=4x5, float32']"
