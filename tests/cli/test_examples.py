"""`scaffold examples`: each command makes an op that is proven, in an empty directory, as it is printed."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from scaffold.cli.examples import Example, find_examples, read_examples
from tests.cli.running import scaffold
from tests.sweeps import in_every_run

EXAMPLES = read_examples()
# What a newcomer wants to write, and what they would type to find it.
WANTED = {
    "activation": "mish",
    "custom activation": "mish",
    "norm": "rms_norm",
    "loss": "cross_entropy",
    "contrastive loss": "info_nce",
    "rotary": "rotary",
    "rope": "rotary",
    "straight-through quantizer": "fake_quantize",
    "surrogate": "spike",
    "masked softmax": "masked_softmax",
    "segment sum": "segment_sum",
    "scatter": "segment_sum",
    "numpy": "numpy_log1p",
    "kernel": "fused_norm",
    "kernel pair": "fused_norm",
    "triton": "fused_norm",
    "in-place": "exp_in_place",
    "inplace": "exp_in_place",
    "two outputs": "mean_and_var",
    "complex": "phase_rotate",
    "loop": "scan",
    "nn.Module": "swiglu",
    "layer": "swiglu",
}


def words_of(example: Example) -> list[str]:
    """The command as a shell splits it, which joins lines that end in a backslash."""
    return shlex.split(example.command.replace("\\\n", " "))[1:]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "name", in_every_run(EXAMPLES, [*EXAMPLES][::3], pytest.mark.each_commit)
)
def test_an_example_is_proven(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    for file, text in example.files.items():
        (tmp_path / file).write_text(text.lstrip())
    done = scaffold(tmp_path, *words_of(example))
    assert done.code == 0, done.err
    assert (tmp_path / f"{name}.py").exists() and (
        tmp_path / f"test_{name}.py"
    ).exists()
    left = "left for you to write" in done.err
    assert left == (name == "skeleton")
    assert words_of(example)[:2] == ["new-op", name]


def test_a_shell_takes_what_is_printed(tmp_path: Path) -> None:
    """Every line of it, by a shell whose scaffold only tells what it was given."""
    told = tmp_path / "scaffold"
    told.write_text('#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done\n')
    told.chmod(0o755)
    for example in EXAMPLES.values():
        text = scaffold(tmp_path, "examples", example.name).out
        done = subprocess.run(
            ["sh", "-ec", f'PATH="$PWD:$PATH"\n{text}'],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split("\0")[:-1] == words_of(example)
        for file, content in example.files.items():
            assert (tmp_path / file).read_text() == content.lstrip()


@pytest.mark.parametrize(("typed", "name"), WANTED.items())
def test_what_a_newcomer_types_finds_it(typed: str, name: str, tmp_path: Path) -> None:
    found = find_examples(typed.split(), EXAMPLES)
    assert name in [item.name for item in found]
    assert len(found) <= 4, "few enough to read"
    out = scaffold(tmp_path, "examples", *typed.split()).out
    assert out == scaffold(tmp_path, "examples", typed).out, "in quotes, too"
    assert EXAMPLES[name].command.strip() in out


def test_the_list_has_every_example_on_a_line(tmp_path: Path) -> None:
    done = scaffold(tmp_path, "examples")
    assert (done.code, done.err) == (0, "")
    for name, example in EXAMPLES.items():
        (line,) = (
            line for line in done.out.splitlines() if line.startswith(f"{name} ")
        )
        assert example.about in line


def test_a_word_that_finds_nothing_is_told(tmp_path: Path) -> None:
    done = scaffold(tmp_path, "examples", "contrastiv_loss")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("WORD: no example is about 'contrastiv_loss'\nhint: ")
    assert "scaffold examples" in done.err


def test_programs_get_the_same(tmp_path: Path) -> None:
    done = scaffold(tmp_path, "examples", "numpy", "--format", "json")
    (found,) = json.loads(done.out)["examples"]
    assert list(found) == ["name", "about", "files", "command"]
    assert found["command"] == EXAMPLES["numpy_log1p"].command.strip()
