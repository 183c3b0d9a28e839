"""`scaffold show`: a picture in a file, on stdout, or the graph for programs."""

import json
from pathlib import Path

from tests.cli.projects import SCALE, project
from tests.cli.running import listing, scaffold

GATE = ("gate", "--inputs", "x[N, D], y[N, D]", "--forward", "x * torch.sigmoid(y)")


def test_a_picture_is_written_and_asked_for(tmp_path: Path) -> None:
    done = scaffold(tmp_path, "show", *GATE)
    assert (done.code, done.out) == (0, "create  gate.svg\n")
    assert (tmp_path / "gate.svg").read_text().startswith("<svg ")
    assert scaffold(tmp_path, "show", *GATE).out == "identical  gate.svg\n"
    (tmp_path / "gate.svg").write_text("mine")
    refused = scaffold(tmp_path, "show", *GATE)
    assert refused.code == 1 and (tmp_path / "gate.svg").read_text() == "mine"
    asked = scaffold(tmp_path, "show", *GATE, "--on-conflict", "overwrite")
    assert asked.code == 0 and (tmp_path / "gate.svg").read_text() != "mine"


def test_nothing_is_written_to_show_it(tmp_path: Path) -> None:
    text = scaffold(tmp_path, "show", *GATE, "--stdout", "--format", "mermaid").out
    assert text.startswith("flowchart TD\n")
    assert scaffold(tmp_path, "show", *GATE, "--dry-run").out == "create  gate.svg\n"
    assert not listing(tmp_path)
    (tmp_path / "pictures").mkdir()
    named = ("--format", "mermaid", "--out", "pictures/of_gate.mmd")
    assert scaffold(tmp_path, "show", *GATE, *named).code == 0
    assert (tmp_path / "pictures/of_gate.mmd").read_text() == text


def test_bytes_are_counted_where_sizes_are_given(tmp_path: Path) -> None:
    policy = ("--save-policy", "recompute")
    sized = ("--sizes", "N=32, D=512", "--format", "json", *policy)
    found = json.loads(scaffold(tmp_path, "show", *GATE, *sized).out)
    assert found["kept"] == "4 * (2*N*D) = 131,072"
    saved = [item for item in found["items"] if item["part"] == "saved"]
    assert saved[0]["detail"] == ["4 * (N*D) = 65,536 bytes", "for grad_y"]
    assert list(saved[0]) == ["part", "kind", "code", "detail", "reads"]


def test_an_op_of_the_manifest_needs_no_options(tmp_path: Path) -> None:
    project(tmp_path, SCALE)
    done = scaffold(tmp_path, "show", "scale", "--stdout")
    assert done.code == 0 and "grad_x" in done.out


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    wrong = scaffold(tmp_path, "show", *GATE, "--format", "png", "--sizes", "N")
    assert wrong.code == 2 and wrong.err.startswith("--format: unknown value 'png'")
    wrong = scaffold(tmp_path, "show", *GATE, "--sizes", "N")
    assert wrong.err.startswith("--sizes: 'N' is not name=number")
