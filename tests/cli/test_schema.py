"""`scaffold schema`: JSON on stdout."""

from pathlib import Path

from tests.cli.running import ROOT, scaffold


def test_the_schema_of_a_file_of_ops_is_the_one_of_the_documents(
    tmp_path: Path,
) -> None:
    outcome = scaffold(tmp_path, "schema")
    assert outcome.code == 0 and outcome.err == ""
    assert outcome.out == (ROOT / "docs/ops.schema.json").read_text()
