"""What `scaffold lint --format sarif` writes is what code-scanning services take."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.cli.running import scaffold
from tests.cli.test_lint import SHORT

# What the schema of SARIF 2.1.0 requires of each object that is written.
REQUIRED = {
    "": {"version", "runs"},
    "runs": {"tool"},
    "tool": {"driver"},
    "driver": {"name"},
    "rules": {"id"},
    "results": {"message"},
    "message": {"text"},
    "shortDescription": {"text"},
    "fullDescription": {"text"},
}


def objects(value: object, key: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Each object of a document, with the key that it stands under."""
    if isinstance(value, dict):
        yield key, value
        for name, inner in value.items():
            yield from objects(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner, key)


def test_sarif_is_as_its_schema_wants_it(tmp_path: Path) -> None:
    (tmp_path / "my ops#1.py").write_text(SHORT)
    outcome = scaffold(tmp_path, "lint", "--format", "sarif", "--select", "ALL")
    data = json.loads(outcome.out)
    for key, found in objects(data):
        assert REQUIRED.get(key, set()) <= found.keys(), key
    results = data["runs"][0]["results"]
    assert len(results) > 1
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert {place["artifactLocation"]["uri"] for place in places} == {"my%20ops%231.py"}
    assert all(min(place["region"].values()) >= 1 for place in places)
    assert {result["level"] for result in results} <= {"error", "note"}
